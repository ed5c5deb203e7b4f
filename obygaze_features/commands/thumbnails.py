"""`obygaze features thumbnails`: a small picture of each clip."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from obygaze_features.commands.extract import which_clips
from obygaze_features.commands.outcome import MOST_NAMED, PARTLY_DONE
from obygaze_features.common.cli import echo_json, json_option
from obygaze_features.common.text import counted
from obygaze_features.errors import VideoError

__all__ = ["thumbnails"]


@click.command()
@which_clips
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
    manifest: Path,
    videos: Path,
    films: tuple[str, ...],
    limit: int | None,
    workers: int | None,
    timeout: float,
    output: Path,
    width: int,
    as_json: bool,
) -> None:
    """Write a small picture of each clip, the frame in its middle, for a report of your own.

    Pictures that are there are kept, so that the same command goes on after an interruption; for
    others of another width, give another folder. A clip that cannot be read is named, and the exit
    code is then 3. They are pictures of films, and not to be shared.

    \b
    Examples:
      obygaze features thumbnails manifests/mine --videos films -o thumbnails
      obygaze features thumbnails manifests/mine --videos films -o thumbnails --films tt0108160
    """
    from obygaze_features.common.package import cache_folder
    from obygaze_features.extraction.plan import Wanted
    from obygaze_features.extraction.thumbnails import WARNING, write_thumbnails
    from obygaze_features.manifests import Manifest

    found = write_thumbnails(
        Manifest.load(manifest), videos, output, width=width, wanted=Wanted(films, limit),
        workers=workers, patience=timeout, cache=cache_folder("index"),
    )  # fmt: skip
    if as_json:
        echo_json(asdict(found))
    for one, why in list(found.failed.items())[: 0 if as_json else MOST_NAMED]:
        click.echo(f"  {one}: {why}", err=True)
    failed = len(found.failed)
    if failed > MOST_NAMED:
        click.echo(f"  and {failed - MOST_NAMED} more (--json names all)", err=True)
    if failed and not found.made and not found.there:
        raise VideoError(f"not one of {counted(failed, 'clip')} has a picture")
    before = f", {found.there:,} were there" if found.there else ""
    without = f", {counted(failed, 'clip')} without" if failed else ""
    click.echo(f"{counted(found.made, 'picture')} made{before}{without} -> {output}", err=as_json)
    click.secho(WARNING, fg="yellow", err=True)
    if failed:
        ctx.exit(PARTLY_DONE)
