"""``obygaze models curve``: the score by the number of annotated films."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

import obygaze_models as om
from obygaze_features.common.cli import (
    echo,
    echo_json,
    figure_options,
    folder_argument,
    json_option,
    output_options,
)
from obygaze_features.common.figures import check_figure_path, save_figure
from obygaze_features.errors import UsageError


@click.command()
@folder_argument("experiment")
@click.option("--films", default="2,5,10,15", show_default=True, help="Numbers of films.")
@click.option(
    "--draws",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="How often the annotated films are drawn for each number.",
)
@figure_options
@output_options("A figure: .svg, .pdf or .png.", required=False)
@json_option
def curve(
    experiment: Path, films: str, draws: int, output: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Score an EXPERIMENT by the number of annotated films, to see if more would help.

    Each model is trained on the clips of a number of films of each training set, which are drawn
    several times, and tested as in a run. A score is a mean over the tested films, with its 95%
    interval; the last columns say by how much it changes from one number of films to the next.

    \b
    Examples:
      obygaze models curve mobygaze/level.toml
      obygaze models curve mobygaze/level.toml --films 3,6,12 --draws 10 -o curve.svg
    """
    if output:
        check_figure_path(output, overwrite=overwrite)
    try:
        sizes = [int(size) for size in films.split(",")]
    except ValueError:
        raise UsageError(
            f"--films: these are not whole numbers (got {films}). Write 2,5,10."
        ) from None
    drawn = om.learning_curve(experiment, sizes, draws=draws, log=lambda line: echo(line, err=True))
    if as_json:
        echo_json(asdict(drawn))
    else:
        echo(str(drawn))
    if output:
        save_figure(drawn.figure(), output, overwrite=overwrite)
        echo(f"Wrote {output}", err=as_json)
