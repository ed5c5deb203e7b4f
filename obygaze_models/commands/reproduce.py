"""``obygaze reproduce``: the paper's tables and figures, ours beside the published ones."""

from __future__ import annotations

from pathlib import Path

import click

from obygaze_features.common.cli import echo_json, json_option, overwrite_option
from obygaze_models.commands.warnings import echo_warnings

__all__ = ["reproduce"]

#: Repeated here so that --help imports nothing; a test holds them to what is meant.
WHAT = ("table2", "table4", "table5", "fig2", "fig3", "fig5", "fig6", "all")
PROTOCOLS = ("released", "leak-free", "paper")
PARTLY_DONE = 3


def _stores(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, Path]:
    stores = {}
    for one in given:
        name, sign, path = one.partition("=")
        if not (name and sign and path):
            raise click.BadParameter(f"{one!r} is not NAME=FOLDER, such as vivit=stores/vivit.zarr")
        if name in stores:
            raise click.BadParameter(f"{name} is given twice")
        stores[name] = Path(path)
    return stores


@click.command()
@click.argument("what", type=click.Choice(WHAT))
@click.option(
    "--manifest",
    type=click.Path(path_type=Path),
    required=True,
    help="ObyGaze12's manifest, with the authors' splits for the released protocol.",
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    callback=_stores,
    metavar="NAME=FOLDER",
    help="The features of xclip-kinetics, vivit or xclip-lsmdc, by the name that they were "
    "extracted under. Rows whose store is not given are left out.",
)
@click.option(
    "--protocol",
    "protocols",
    multiple=True,
    type=click.Choice(PROTOCOLS),
    help="Which reading of the paper; by default all three.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The folder; by default reproduction/ and WHAT.",
)
@overwrite_option
@json_option
@click.pass_context
def reproduce(
    ctx: click.Context,
    what: str,
    manifest: Path,
    stores: dict[str, Path],
    protocols: tuple[str, ...],
    seed: int,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Reproduce a table or figure of the paper, or all, beside the published numbers.

    Writes a folder with each table as text, CSV, LaTeX and JSON, figures as SVG and PDF, the runs
    behind them, and a page of these runs. What does not compare like with like is said beneath.
    Exits with 3 where a table has no number of ours, for want of a store.

    \b
    Examples:
      obygaze reproduce fig2 --manifest manifests/obygaze12
      obygaze reproduce table4 --manifest manifests/obygaze12 \\
        --store xclip-kinetics=stores/xclip-kinetics.zarr
      obygaze reproduce all --manifest manifests/obygaze12 --store vivit=stores/vivit.zarr \\
        --store xclip-kinetics=stores/xclip-kinetics.zarr \\
        --store xclip-lsmdc=stores/xclip-lsmdc.zarr
    """
    from obygaze_features.common.text import format_duration
    from obygaze_models.reproduce.formats import as_json as to_data
    from obygaze_models.reproduce.formats import as_text
    from obygaze_models.reproduce.reproduce import WHAT as KNOWN
    from obygaze_models.reproduce.reproduce import reproduce as make

    done = make(
        list(KNOWN) if what == "all" else [what],
        manifest,
        stores,
        output or Path("reproduction", what),
        protocols=protocols or PROTOCOLS,
        seed=seed,
        overwrite=overwrite,
        say=lambda text: click.echo(text, err=True),
    )
    tables = [table for made in done.made.values() for table in made.tables]
    for one in done.missing:
        click.secho(f"MISSING: {one}", fg="yellow", bold=True, err=True)
    echo_warnings(done.warnings)
    if as_json:
        echo_json({table.name: to_data(table) for table in tables})
        ctx.exit(PARTLY_DONE if done.empty else 0)
    for table in tables:
        click.echo(as_text(table))
    for path in sorted(done.folder.glob("*.svg")):
        click.echo(f"figure -> {path}")
    click.echo(f"{', '.join(done.made)} in {format_duration(done.seconds)} -> {done.folder}")
    if done.report:
        click.echo(f"the runs as a page -> {done.report}")
    ctx.exit(PARTLY_DONE if done.empty else 0)
