"""``obygaze report``: a run as a page."""

from __future__ import annotations

from pathlib import Path

import click

from obygaze_features.common.commands import folder_argument, overwrite_option

__all__ = ["report"]


@click.command()
@folder_argument("run")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The page; by default report.html in the run folder.",
)
@overwrite_option
def report(run: Path, output: Path | None, overwrite: bool) -> None:
    """Write a run's results as an HTML page.

    The page is one file, needs no network, and can be printed.

    \b
    Examples:
      obygaze report runs/sure-against-easy
      obygaze report runs/sure-against-easy -o report.html
    """
    from obygaze_models.experiments.run import read_run
    from obygaze_models.report.page import write_report

    run = run.parent if run.name == "run.json" else run
    page = write_report(read_run(run), output or run / "report.html", overwrite=overwrite)
    click.echo(f"Wrote {page}")
