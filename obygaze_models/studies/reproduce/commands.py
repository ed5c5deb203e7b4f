"""``obygaze reproduce``: the paper's tables and figures, with your numbers next to the paper's."""

from __future__ import annotations

from pathlib import Path

import click

import obygaze_models as om
from obygaze_features.common.cli import echo, exit_if, output_options, read_pairs
from obygaze_models.commands._shared import echo_warnings, path_option


@click.command()
@click.argument("target")
@path_option(
    "--manifest",
    required=True,
    help="ObyGaze12's manifest. The released protocol needs the authors' splits in it.",
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    callback=read_pairs,
    metavar="NAME=FOLDER",
    help="A backbone (xclip-kinetics, vivit or xclip-lsmdc) and its feature store. Rows "
    "whose store is missing are left out.",
)
@click.option(
    "--protocol",
    "protocols",
    multiple=True,
    help="How to split the clips of table2, table5, fig3 and fig5: released, leak-free or paper; "
    "by default in all three ways (fig5: in the first).",
)
@output_options("The folder.  [default: reproduction/TARGET]", required=False)
def reproduce(
    target: str,
    manifest: Path,
    stores: dict[str, str],
    protocols: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
) -> None:
    """Reproduce the paper's tables and figures.

    TARGET is fig2, fig3, fig5, fig6, table2, table4, table5 or all. Writes a folder with each table
    as text and CSV, figures as SVG and PDF, and the run folders. Prints the path of each table's
    text and, unless TARGET is all, the last table. The exit code is 3 if a table has no new
    numbers, for example because a store is missing.

    \b
    Example:
      obygaze reproduce table4 --manifest manifests/obygaze12 \\
        --store xclip-kinetics=stores/xclip-kinetics.zarr
    """
    from obygaze_models.studies.reproduce.render import to_text

    reproduction = om.reproduce(
        target,
        manifest,
        stores,
        output or Path("reproduction", target),
        protocols=protocols,
        overwrite=overwrite,
        log=lambda line: echo(line, err=True),
    )
    for table in reproduction.tables:
        echo(f"{reproduction.folder / table.name}.txt: {table.title}", bold=True)
    if target != "all":
        echo("\n" + to_text(reproduction.tables[-1]).removesuffix("\n"))

    for need, lacking in reproduction.missing.items():
        echo(f"MISSING: {need} ({'; '.join(lacking)})", fg="yellow", bold=True, err=True)
    cautions = []
    for table in reproduction.tables:
        cautions += [note for note in table.notes if note.code != "note"]
    echo_warnings(cautions)
    exit_if(reproduction.empty)
