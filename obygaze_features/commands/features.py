"""`obygaze features`: from film clips to stores of frame features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.commands.backbones import backbones, make_weights, prefetch
from obygaze_features.common.commands import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.words import counted
from obygaze_features.errors import VideoError

if TYPE_CHECKING:
    from obygaze_features.extraction import Summary

__all__ = ["features"]

MOST_NAMED = 20
"""Failed clips that are named in the terminal; the store names all."""
PARTLY_DONE = 3
"""The exit code where some rows failed."""


@click.group()
def features() -> None:
    """From film clips to stores of frame features.

    \b
    Example:
      obygaze features extract manifests/mine --videos films --backbone xclip-kinetics -o stores
    """


@features.command()
@folder_argument("manifest")
@click.option(
    "--videos", type=click.Path(path_type=Path), required=True, help="The folder of the clips."
)
@click.option(
    "--backbone",
    "specs",
    multiple=True,
    required=True,
    metavar="NAME=PATH",
    help="A checkpoint folder and the name of its store, or a name that "
    "`obygaze features backbones` lists. Give it several times for several stores.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder that gets NAME.zarr for each backbone.",
)
@click.option("--part", metavar="I/N", help="Every Nth block, from the Ith on.")
@click.option("--retry-failed", is_flag=True, help="Try clips again that failed before.")
@click.option("--device", help="cpu, cuda, cuda:1 ...; by default a GPU if there is one.")
@json_option
@click.pass_context
def extract(
    ctx: click.Context,
    manifest: Path,
    videos: Path,
    specs: tuple[str, ...],
    output: Path,
    part: str | None,
    retry_failed: bool,
    device: str | None,
    as_json: bool,
) -> None:
    """Extract the features of a manifest's clips, one store a backbone.

    Each clip is decoded once for all backbones. Run the same command again to go on after an
    interruption; run it several times at once, on machines that share the output, and each takes
    what no other is at work on (or say who does what with --part 1/4 ... 4/4). A clip that cannot
    be read is recorded with the reason, and the others are extracted; the exit code is then 3, and
    --retry-failed tries those clips again.

    \b
    Examples:
      obygaze features extract manifests/mine --videos films --backbone xclip-kinetics -o stores
      obygaze features extract manifests/mine --videos films \\
          --backbone tiny=weights/tiny --backbone lsmdc=weights/lsmdc -o stores --device cuda
    """
    from obygaze_features.manifests import Manifest

    items = Manifest.load(manifest)
    from obygaze_features.backbones import load_backbone
    from obygaze_features.extraction import extract as run

    loaded = [load_backbone(spec, device) for spec in specs]
    names = ", ".join(f"{backbone.name} ({backbone.device})" for backbone in loaded)
    click.echo(f"Extracting {len(items)} clips of {items.name} with {names}", err=True)
    summary = run(items, videos, loaded, output, part=part, retry_failed=retry_failed)
    if as_json:
        echo_json(_as_json(summary))
    else:
        _report(summary, len(items))
    if not summary.done:
        raise VideoError(f"not one of the {len(items)} clips could be extracted")
    if summary.failed:
        ctx.exit(PARTLY_DONE)


@features.command("make-clips")
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


features.add_command(backbones)
features.add_command(make_weights)
features.add_command(prefetch)


def _as_json(summary: Summary) -> dict[str, object]:
    return {
        "stores": [str(path) for path in summary.stores],
        "clips": summary.clips,
        "done": summary.done,
        "failed": summary.failed,
        "seconds": round(summary.seconds, 3),
        "clips_a_second": round(summary.clips_a_second, 3),
        "shares": {stage: round(share, 3) for stage, share in summary.shares.items()},
        "bound_by": summary.bound_by,
    }


def _report(summary: Summary, n: int) -> None:
    for kind, reasons in summary.failed.items():
        click.echo(f"{len(reasons)} failed, {kind.replace('_', ' ')}:", err=True)
        for one, reason in list(reasons.items())[:MOST_NAMED]:
            click.echo(f"  {one}: {reason}", err=True)
        if len(reasons) > MOST_NAMED:
            more = len(reasons) - MOST_NAMED
            click.echo(f"  and {more} more: obygaze stores info {summary.stores[0]}", err=True)
    if summary.clips:
        shares = ", ".join(f"{stage} {share:.0%}" for stage, share in summary.shares.items())
        click.echo(
            f"{counted(summary.clips, 'clip')} in {summary.seconds:.1f} s "
            f"({summary.clips_a_second:.1f} a second; {shares}: bound by {summary.bound_by})"
        )
    else:
        hint = " (failed clips are tried again with --retry-failed)" if summary.failed else ""
        click.echo(f"Nothing was left to do{hint}.")
    left = n - summary.done - len(set().union(*summary.failed.values()))
    rest = f", {left} left to other runs or parts" if left else ""
    where = ", ".join(map(str, summary.stores))
    click.echo(f"{summary.done} of {n} clips done in {where}{rest}")
