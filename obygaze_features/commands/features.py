"""`obygaze features`: from film clips to stores of frame features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from obygaze_features.commands._shared import PARTLY_DONE, clip_options, echo_failures
from obygaze_features.commands.backbones import backbones, make_weights, prefetch
from obygaze_features.commands.caption_scores import caption_scores
from obygaze_features.commands.extract import extract
from obygaze_features.commands.saliency import saliency
from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.text import counted
from obygaze_features.errors import VideoError


@click.group()
def features() -> None:
    """From film clips to stores of frame features.

    \b
    Example:
      obygaze features extract manifests/mine --videos films --backbone xclip-kinetics -o stores
    """


@click.command()
@clip_options
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A CSV file that gets a row a clip."
)
@overwrite_option
@json_option
@click.pass_context
def probe(
    ctx: click.Context,
    /,
    manifest: Path,
    videos: Path,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Check every clip's file, on CPU, before a GPU's time is spent on it.

    It decodes what extraction would: clips that cannot be decoded are named with the reason, and
    the exit code is then 3. It also reports what is unusual about the others: a variable frame
    rate, fewer frames than a backbone takes, a file that can only be decoded from its beginning.

    \b
    Examples:
      obygaze features probe manifests/mine --videos films
      obygaze features probe manifests/mine --videos films -o probe.csv
    """
    from obygaze_features.common.files import refuse_to_overwrite, write_text
    from obygaze_features.extraction.check_videos import (
        check_videos,
        describe_checks,
        format_checks,
    )
    from obygaze_features.manifests import Manifest

    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    rows = list(check_videos(Manifest.load(manifest), videos, **options))
    if output:
        write_text(output, format_checks(rows))
    if as_json:
        echo_json(rows)
    else:
        click.echo(describe_checks(rows))
        if output:
            click.echo(f"\na row a clip in {output}")
    if any(row["error"] for row in rows):
        ctx.exit(PARTLY_DONE)


@click.command()
@clip_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder that gets ID.jpg for each clip.",
)
@click.option(
    "--width", type=click.IntRange(16, 1920), default=160, show_default=True, help="In pixels."
)
@json_option
@click.pass_context
def thumbnails(
    ctx: click.Context,
    /,
    manifest: Path,
    videos: Path,
    output: Path,
    width: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a small picture of each clip, its middle frame, for a report of your own.

    Existing pictures are kept, so the same command resumes after an interruption; for another
    width, give another folder. A clip that cannot be read is named, and the exit code is then 3.
    These are pictures of films and must not be shared.

    \b
    Examples:
      obygaze features thumbnails manifests/mine --videos films -o thumbnails
      obygaze features thumbnails manifests/mine --videos films -o thumbnails --films tt0108160
    """
    from obygaze_features.extraction.thumbnails import WARNING, write_thumbnails
    from obygaze_features.manifests import Manifest

    result = write_thumbnails(Manifest.load(manifest), videos, output, width=width, **options)
    made, there, reasons = result["made"], result["there"], result["failed"]
    if as_json:
        echo_json(result)
    else:
        echo_failures(reasons, all_in="--json names all")
    if reasons and not made and not there:
        raise VideoError(f"not one of {counted(len(reasons), 'clip')} has a picture")
    before = f", {there:,} existed" if there else ""
    without = f", {counted(len(reasons), 'clip')} without" if reasons else ""
    click.echo(f"{counted(made, 'picture')} made{before}{without} -> {output}", err=as_json)
    click.secho(WARNING, fg="yellow", err=True)
    if reasons:
        ctx.exit(PARTLY_DONE)


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

    Nothing in it was filmed or annotated. Use it to try the software without a film.

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
    click.echo(f"their synthetic annotations in {annotations}")


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
