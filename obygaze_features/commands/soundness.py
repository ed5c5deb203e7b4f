"""`obygaze stores verify | repair`: what is damaged, and what to do again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    store_argument,
)
from obygaze_features.common.text import counted, for_shell, join_some, redact_url
from obygaze_features.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obygaze_features.store.integrity import Damage
    from obygaze_features.store.repair import Repair

__all__ = ["repair", "verify"]


@click.command()
@store_argument("store")
@json_option
def verify(store: Path | str, as_json: bool) -> None:
    """Read a whole store again and name what is damaged, by file and id.

    Every chunk, shard, record and other file is held to the checksum that was kept of it. Nothing
    is changed. Ends with exit code 1 if anything is damaged.

    \b
    Examples:
      obygaze stores verify stores/xclip.zarr
      obygaze stores verify stores/xclip.zarr --json
    """
    from obygaze_features.store import verify as check

    found = check(store)
    damage = [one for one in found if not one.harmless]
    if as_json:
        echo_json([asdict(one) for one in found])
    else:
        _print_damage(damage)
        harmless: dict[str, list[str]] = {}
        for damaged in found:
            if damaged.harmless:
                harmless.setdefault(damaged.why, []).append(damaged.file)
        for reason, files in harmless.items():
            click.echo(f"harmless: {join_some(files)}: {reason}")
        if damage:
            rows = len({one for each in damage for one in each.ids})
            click.echo(f"{counted(len(damage), 'place')} damaged, {counted(rows, 'row')} hit")
            if isinstance(store, Path) and store.is_dir():
                click.echo(f"next: obygaze stores repair {for_shell(store)}")
            elif isinstance(store, Path):
                click.echo("next: pack it again, or fetch it again from where it came from")
            else:
                click.echo(
                    "next: tell whoever offers it, for whom it may be: obygaze stores repair"
                )
        else:
            click.echo(f"{redact_url(store)} is sound")
    if damage:
        click.get_current_context().exit(1)


@click.command()
@folder_argument("store")
@click.option("--reopen", is_flag=True, help="Open a final store again though it is sound.")
@json_option
def repair(store: Path, reopen: bool, as_json: bool) -> None:
    """Turn damaged blocks into missing ones, which extraction fills.

    Also clears the files that killed writers left. A final store that is damaged is opened again:
    it keeps every intact block, and is to be filled and finalised once more. Nobody may be
    writing the store meanwhile.

    \b
    Examples:
      obygaze stores repair stores/xclip.zarr
      obygaze stores repair stores/xclip.zarr --reopen
    """
    from obygaze_features.store import repair as mend

    if store.suffix == ".zip" and store.is_file():
        raise StoreError(
            f"{store} is an archive; unpack it first with: obygaze stores unpack {store} "
            "-o NAME.zarr"
        )
    done = mend(store, reopen=reopen)
    if as_json:
        echo_json({**asdict(done), "path": str(done.path)})
    else:
        _print_repair(done)


def _print_damage(damage: Sequence[Damage]) -> None:
    for one in damage:
        hit = f"; hit: {join_some(one.ids)}" if one.ids else ""
        click.echo(f"{one.file}: {one.why}{hit}")


def _print_repair(done: Repair) -> None:
    _print_damage(done.damage)
    for name in done.restored:
        click.echo(f"restored {name}")
    if done.cleared:
        click.echo(f"cleared {counted(len(done.cleared), 'file')} that a writer had left")
    if done.left:
        click.echo(
            f"left {counted(len(done.left), 'file')} that may be of a writer at work; run this "
            "again in a few minutes"
        )
    if done.reopened:
        click.echo(f"{done.path} is open again")
    if done.to_do:
        click.echo(
            f"{counted(len(done.to_do), 'row')} to be done again: {join_some(done.to_do)}\n"
            "next: run the extraction again"
        )
    if not (done.damage or done.restored or done.cleared or done.left or done.reopened):
        click.echo(f"{done.path} is sound; nothing was changed")
