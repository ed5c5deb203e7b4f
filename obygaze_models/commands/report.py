"""``obygaze report``: annotations or runs as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import obygaze_models as om
from obygaze_features.common.cli import PATH, echo, film_option, overwrite_option
from obygaze_features.errors import UsageError
from obygaze_models.commands._shared import path_option, run_folders

if TYPE_CHECKING:
    from obygaze_models.report.fact_sheet import Shape


@click.command()
@click.argument("sources", metavar="MANIFEST|TIMELINES|RUN...", nargs=-1, required=True, type=PATH)
@path_option("-o", "--output", help="The page; by default report.html in the folder shown.")
@click.option("--title", help="The page's title; by default its content, or a single run's name.")
@path_option(
    "--thumbnails",
    help="A folder of pictures (ID.jpg) to embed; do not share a page that contains them.",
)
@path_option(
    "--analysis",
    "analyses",
    multiple=True,
    help="JSON from models explain --tcav or --significance; repeatable.",
)
@click.option(
    "--nearest",
    metavar="STORE",
    help="Show the five nearest clips of each clip, by the cosine of this store's vectors.",
)
@path_option(
    "--frames",
    help="Probabilities of frames (frames.csv from models moments), as a time axis for each film.",
)
@path_option("--moments", help="The moments in these frames (moments.csv).")
@path_option(
    "--timelines",
    metavar="FOLDER",
    help="Annotators' segments from annotations import, as a lane for each annotator.",
)
@path_option(
    "--videos",
    help="A folder of the films. The page plays each clip at its time, from this computer.",
)
@film_option("Draw one film on a sheet instead, a PDF, SVG or PNG for -o.")
@click.option(
    "--shape",
    type=click.Choice(["a5", "16:9"]),
    help="The sheet of --film: A5 landscape (the default), or a slide.",
)
@overwrite_option
def report(sources: tuple[Path, ...], output: Path | None, **options: Any) -> None:
    """Write annotations, or the results of runs, as an HTML page.

    The page is a single file, needs no network, and can be printed. For a MANIFEST with labels, or
    for TIMELINES (minute by minute), it shows the films as strips, each clip with its annotations,
    and how far annotators agree. For RUNS it also shows the models' results: the scores beside the
    paper's and chance, their limits, and explanations.

    \b
    Examples:
      obygaze report way/timelines -o films.html
      obygaze report mobygaze/minutes -o films.html --title "Objectification in 20 films"
      obygaze report runs/sure-against-easy
      obygaze report runs/* -o report.html --title "All protocols"
      obygaze report runs/bottlenecks --analysis significance.json
      obygaze report runs/frames --frames frames.csv --moments moments.csv
      obygaze report mobygaze/minutes --film "Gone Girl" -o gone-girl.pdf
    """
    films, shape = options.pop("films"), options.pop("shape")
    if films:
        _write_sheet(sources, films, output, shape or "a5", options)
        return
    if shape is not None:
        raise UsageError("--shape is for the sheet of one film; add --film TITLE")
    folders, has_pictures = run_folders(sources), options["thumbnails"] is not None
    if output is None:
        if has_pictures:
            raise UsageError(
                "a page with pictures of films must not be shared, but run folders are. "
                "Choose another path with -o"
            )
        if len(folders) > 1:
            raise UsageError("several runs need an output file. Add -o report.html")
        output = folders[0] / "report.html"
    echo(f"Wrote {om.report(folders, output, **options)}")
    if options["videos"] is not None:
        echo(f"Its clips play from {options['videos']}, on this computer; open it from your disk.")
    if has_pictures:
        echo("It contains pictures of films: do not share it.")


def _write_sheet(
    sources: tuple[Path, ...],
    films: list[str],
    output: Path | None,
    shape: Shape,
    options: dict[str, Any],
) -> None:
    overwrite = options.pop("overwrite")
    if unused := [name for name, value in options.items() if value]:
        names = ", ".join(f"--{name.replace('analyses', 'analysis')}" for name in unused)
        raise UsageError(f"--film draws a sheet, which has no {names}. Leave that out")
    if output is None:
        raise UsageError("a film's sheet needs an output file. Add -o film.pdf (or .svg, .png)")
    path = om.fact_sheet(run_folders(sources), films, output, shape=shape, overwrite=overwrite)
    echo(f"Wrote {path}")
