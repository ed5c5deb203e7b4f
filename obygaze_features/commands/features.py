"""`obygaze features`: from film clips to stores of frame features."""

from __future__ import annotations

from pathlib import Path

import click

from obygaze_features.commands.backbones import backbones, make_weights, prefetch
from obygaze_features.commands.caption_scores import caption_scores
from obygaze_features.commands.extract import extract, probe
from obygaze_features.commands.saliency import saliency
from obygaze_features.commands.thumbnails import thumbnails
from obygaze_features.common.cli import folder_argument, overwrite_option

__all__ = ["features"]


@click.command("make-clips")
@folder_argument("folder")
@click.option("--films", type=click.IntRange(1), default=3, show_default=True, help="Films.")
@click.option(
    "--scenes", type=click.IntRange(1), default=4, show_default=True, help="Clips a film."
)
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=2.0, show_default=True, help="A clip."
)
@overwrite_option
def make_clips(folder: Path, films: int, scenes: int, seconds: float, overwrite: bool) -> None:
    """Write a small synthetic data set: made-up clips and their annotations.

    Nothing in it was filmed or annotated by anybody. It serves to try the software without a film.

    \b
    Examples:
      obygaze features make-clips demo/data
      obygaze features make-clips demo/data --films 12 --scenes 8
    """
    from obygaze_features.video.synthetic import write_synthetic_dataset

    annotations = write_synthetic_dataset(
        folder, films=films, scenes=scenes, seconds=seconds, overwrite=overwrite
    )
    click.echo(f"{films * scenes} SYNTHETIC clips in {folder / 'videos'}")
    click.echo(f"their made-up annotations in {annotations}")


@click.group()
def features() -> None:
    """From film clips to stores of frame features.

    \b
    Example:
      obygaze features extract manifests/mine --videos films --backbone xclip-kinetics -o stores
    """


for command in (
    backbones,
    prefetch,
    probe,
    extract,
    thumbnails,
    saliency,
    caption_scores,
    make_clips,
    make_weights,
):
    features.add_command(command)
