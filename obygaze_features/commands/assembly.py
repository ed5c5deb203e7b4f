"""`obygaze stores subset | merge`: new stores of the rows of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import (
    ADDRESS,
    echo_json,
    json_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.text import counted, for_shell, redact_url
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_features.store.assemble import Assembled

__all__ = ["merge", "subset"]


output_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The new store, NAME.zarr.",
)


@click.command()
@store_argument("store")
@click.option("--films", multiple=True, metavar="FILM,...", help="Keep the items of these films.")
@click.option("--ids", multiple=True, metavar="ID,...", help="Keep these items.")
@output_option
@overwrite_option
@json_option
def subset(
    store: Path | str,
    films: tuple[str, ...],
    ids: tuple[str, ...],
    output: Path,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Make a store of some films or items of another.

    Names are separated by commas; @FILE stands for the names in a file, one a line. The new store
    is open: finalise it to hand it on.

    \b
    Examples:
      obygaze stores subset stores/xclip.zarr --films tt0108160,tt0120338 -o stores/two.zarr
      obygaze stores subset stores/xclip.zarr --ids @labelled.txt -o stores/labelled.zarr
      obygaze stores subset https://lab.example/xclip.zarr --films tt0108160 -o stores/one.zarr
    """
    from obygaze_features.store import open_store
    from obygaze_features.store import subset as take

    made = take(
        open_store(store),
        output,
        ids=_names(ids) if ids else None,
        films=_names(films) if films else None,
        overwrite=overwrite,
    )
    _report(made, as_json)


@click.command()
@click.argument("stores_", nargs=-1, required=True, metavar="STORE...", type=ADDRESS)
@output_option
@overwrite_option
@json_option
def merge(stores_: tuple[Path | str, ...], output: Path, overwrite: bool, as_json: bool) -> None:
    """Join part stores of one manifest, or stores of different films.

    Stores of the same items are taken as parts: each row comes from the first store that has it.
    Stores that have no id in common become one of all their items. Other weights, preprocessing,
    precision or arrays are refused.

    \b
    Examples:
      obygaze stores merge part1/xclip.zarr part2/xclip.zarr -o stores/xclip.zarr
      obygaze stores merge ours/xclip.zarr theirs/xclip.zarr -o stores/both.zarr
    """
    from obygaze_features.store import merge as join
    from obygaze_features.store import open_store

    for one, times in Counter(map(str, stores_)).items():
        if times > 1:
            click.echo(f"{redact_url(one)} is named {times} times, which adds nothing", err=True)
    made = join([open_store(one) for one in stores_], output, overwrite=overwrite)
    _report(made, as_json)


def _report(made: Assembled, as_json: bool) -> None:
    if as_json:
        echo_json({**asdict(made), "path": str(made.path)})
        return
    rows = made.done + made.failed + made.to_do
    click.echo(
        f"{counted(rows, 'row')}: {made.done:,} done, {made.failed:,} failed, "
        f"{made.to_do:,} to do -> {made.path}"
    )
    if not made.to_do:
        click.echo(f"next: obygaze stores finalise {for_shell(made.path)}")


def _names(values: Sequence[str]) -> list[str]:
    """Names separated by commas, or one a line in a file that @ stands before."""
    names: list[str] = []
    for value in values:
        if value.startswith("@"):
            try:
                text = Path(value[1:]).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as problem:
                why = getattr(problem, "strerror", None) or "it is no text in UTF-8"
                raise UsageError(f"{value[1:]} cannot be read: {why}") from None
            names += text.split()
        else:
            names += [name.strip() for name in value.split(",") if name.strip()]
    return names
