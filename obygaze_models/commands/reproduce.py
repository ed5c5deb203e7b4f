"""``obygaze reproduce``: the paper's tables and figures, with your numbers next to the paper's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.common.cli import echo, echo_json, json_option, output_options
from obygaze_features.common.printer import fill
from obygaze_features.common.text import format_time
from obygaze_models.commands._shared import (
    PARTLY_DONE,
    echo_warnings,
    path_option,
    verbose_option,
)

if TYPE_CHECKING:
    from obygaze_models.reproduce.reproduce import Reproduction


class _Named(click.Choice):  # type: ignore[type-arg]
    """A choice of names from the library, which is imported only when needed."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self.case_sensitive, self._names = True, names

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names to choose from."""
        return tuple(self._names())


def _library() -> Any:
    from obygaze_models.reproduce import reproduce

    return reproduce


LINE_EVERY_S = 30.0


def _stores(ctx: click.Context, param: click.Parameter, pairs: tuple[str, ...]) -> dict[str, Path]:
    stores = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise click.BadParameter(
                f"not NAME=FOLDER (got {pair!r}). Write, for example, vivit=stores/vivit.zarr"
            )
        if name in stores:
            raise click.BadParameter(f"duplicate store for {name}. Pass one store per backbone")
        stores[name] = Path(path)
    return stores


@click.command()
@click.argument("target", type=_Named(lambda: [*_library().TARGETS, "all"]))
@path_option(
    "--manifest",
    required=True,
    help="ObyGaze12's manifest. The released protocol needs the authors' splits in it.",
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    callback=_stores,
    metavar="NAME=FOLDER",
    help="A backbone (xclip-kinetics, vivit or xclip-lsmdc) and its feature store. Rows "
    "whose store is missing are left out.",
)
@click.option(
    "--protocol",
    "protocols",
    multiple=True,
    type=_Named(lambda: _library().PROTOCOLS),
    help="How to split the clips; by default in all three ways.",
)
@output_options("The folder.  [default: reproduction/NAME]", required=False)
@verbose_option
@json_option
def reproduce(
    target: str,
    manifest: Path,
    stores: dict[str, Path],
    protocols: tuple[str, ...],
    output: Path | None,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Reproduce the paper's tables and figures.

    Writes a folder with each table as text, CSV, LaTeX and JSON, figures as SVG and PDF, the run
    folders, and a report of these runs. Prints one line per table, with the result next to the
    published numbers. For a single table, the leak-free part is printed as well, or all of it if
    nothing was trained. For tables 2 and 5, this part compares the released and leak-free results
    side by side. -v prints everything. The exit code is 3 if a table has no new numbers because a
    store is missing.

    \b
    Example:
      obygaze reproduce table4 --manifest manifests/obygaze12 \\
        --store xclip-kinetics=stores/xclip-kinetics.zarr
    """
    from obygaze_models.reproduce.render import to_json_data

    library = _library()
    reproduction: Reproduction = library.reproduce(
        target,
        manifest,
        stores,
        output or Path("reproduction", target),
        protocols=protocols or library.PROTOCOLS,
        log=_progress(verbose=verbose),
        **options,
    )
    echo_warnings(reproduction.warnings)
    if as_json:
        echo_json({table.name: to_json_data(table) for table in reproduction.tables})
    else:
        _echo_tables(reproduction, verbose=verbose)
    for need, rows in reproduction.needs.items():
        of_tables = "; ".join(f"{table}: {', '.join(names)}" for table, names in rows.items())
        echo(f"MISSING: {need} ({of_tables})", fg="yellow", bold=True, err=True)
    if not as_json:
        cautions = [note for table in reproduction.tables for note in table.notes]
        cautions = [n for n in cautions if verbose or not (n.code == "note" or n.voids_scores)]
        echo_warnings(cautions, heading="NOTE", verbose=verbose)
    click.get_current_context().exit(PARTLY_DONE if reproduction.empty else 0)


def _progress(*, verbose: bool) -> Callable[[str], None]:
    """Return a function that prints progress: every line if verbose, otherwise now and then."""
    last = time.monotonic()

    def log(text: str) -> None:
        nonlocal last
        if verbose or time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            echo(text, err=True)

    return log


def _echo_tables(reproduction: Reproduction, *, verbose: bool) -> None:
    """Print one line per table and the names of the files, then the table if there is only one."""
    from obygaze_models.reproduce.render import summary, to_screen, to_text

    for table in reproduction.tables:
        echo(fill(summary(table), 100), bold=True)
    named = [table.name for table in reproduction.tables if table.has_results]
    files = [f"{named[0] if len(named) == 1 else '*'}.txt: all protocols, guesses, intervals"]
    if reproduction.report:
        files.append(f"{reproduction.report.name}: the runs")
    if any(reproduction.folder.glob("*.svg")):
        files.append("*.svg, *.pdf: figures")
    took = format_time(round(reproduction.seconds))
    echo(f"-> {reproduction.folder} ({'; '.join(files)}; {took})")
    if verbose or len(reproduction.artifacts) == 1:
        # The last table shows the numbers of the other tables side by side.
        for table in reproduction.tables if verbose else reproduction.tables[-1:]:
            if verbose or table.has_results:
                echo(f"\n{(to_text if verbose else to_screen)(table)}", nl=False)
