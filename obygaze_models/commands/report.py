"""``obygaze report``: an HTML page of annotations or runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import obygaze_models as om
from obygaze_features.common.cli import PATH, echo, overwrite_option
from obygaze_features.errors import UsageError
from obygaze_models.commands._shared import path_option


@click.command()
@click.argument(
    "sources",
    metavar="MANIFEST | TIMELINES | RUN...",
    nargs=-1,
    required=True,
    type=PATH,
)
@path_option(
    "-o",
    "--output",
    help="The page (.html); by default, report.html in the folder of a single source.",
)
@click.option("--title", help="The page's title; by default a description, or a single run's name.")
@path_option(
    "--thumbnails",
    help="A folder of pictures (ID.jpg) to embed; needs -o. Do not share a page with pictures.",
)
@path_option(
    "--timelines",
    metavar="FOLDER",
    help="Timelines from obygaze annotations import, drawn with one lane per annotator.",
)
@path_option(
    "--videos",
    help="A folder of the films. Opened from your disk, the page plays clips from it.",
)
@overwrite_option
def report(sources: tuple[Path, ...], output: Path | None, **options: Any) -> None:
    """Write annotations, or the results of runs, as an HTML page.

    The page is a single file, needs no network, and can be printed. With --videos, open it from
    your disk. For a MANIFEST with labels, or for TIMELINES (minute by minute), it shows each film
    as a strip, each clip with its annotations, and how well annotators agree. For RUNS on the
    same labels, it also shows what the models can tell apart, with intervals and cautions.

    \b
    Example:
      obygaze report runs/sure-against-easy
    """
    if output is None:
        if options["thumbnails"] is not None or len(sources) > 1:
            raise UsageError(
                "a page of several runs, or with pictures of films, needs a path of its own. "
                "Add -o report.html"
            )
        output = sources[0] / "report.html"
    echo(f"Wrote {om.report(sources, output, **options)}")
