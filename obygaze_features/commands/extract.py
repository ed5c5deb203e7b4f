"""The command `obygaze features extract`, which writes one store per backbone."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import obygaze_features as of
from obygaze_features.backbones.devices import PRECISIONS
from obygaze_features.commands._shared import device_option, echo_failures
from obygaze_features.common.cli import (
    ADDRESS,
    PATH,
    echo,
    exit_if,
    film_option,
    folder_argument,
    json_option,
    names_option,
    output_option,
    show,
)
from obygaze_features.common.formatting import counted
from obygaze_features.errors import VideoError


@click.command()
@folder_argument("manifest")
@film_option("Only items of these films.")
@click.option("--limit", type=int, help="Use only the first N items.")
@click.option(
    "--videos",
    "--images",
    "media",
    type=PATH,
    help="The folder of the clips, of the films that contain them, or of the images.",
)
@click.option(
    "--backbone",
    "specs",
    multiple=True,
    required=True,
    metavar="[NAME=]PATH",
    help="A name from `obygaze features backbones`; NAME=PATH (your own checkpoint, and a name for "
    "its store); OWNER/NAME on the Hugging Face Hub; NAME=module:make; or timm:NAME[@LAYER]. "
    "Repeatable: a single pass over the clips fills all stores.",
)
@output_option("The folder for the stores, one per backbone.", default=Path("stores"))
@names_option(
    "--arrays",
    metavar="NAME,NAME",
    help="The arrays to store, such as native,frames,tokens; vivit:cls applies only to the store "
    "vivit.  [default: all but tokens]",
)
@click.option(
    "--preprocessing",
    type=click.Choice(["standard", "author"]),
    default="standard",
    help="Preprocess like the checkpoint's processor, or squash frames to a square first, like "
    "ObyGaze12's released code.",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="float32",
    help="The number format for computing; tf32 and bfloat16 save time if the GPU is the limit.",
)
@click.option(
    "--sampling",
    metavar="RATE",
    help="For backbones that see each frame alone: a frame rate, such as '2 fps', so that longer "
    "clips get more frames.  [default: each backbone's own sampling]",
)
@click.option(
    "--frames",
    type=int,
    metavar="NUMBER",
    help="For backbones that see each frame alone: the number of frames, spread evenly over each "
    "clip; with --sampling, the maximum [default: 64]. For audio backbones: the maximum number of "
    "windows of sound, spread evenly over longer clips.  [default: 64]",
)
@device_option
@click.option(
    "--batch-size",
    "batch",
    type=int,
    help="Items per forward pass, up to 32; halved if memory runs out.  [default: 8 clips, "
    "fewer if they have many frames, on a CPU 8 frames; 32 images or texts]",
)
@click.option(
    "--workers",
    type=int,
    help="Number of decoding processes (threads for images).  [default: all cores but one, shared "
    "among the GPUs; at most 32]",
)
@click.option("--part", metavar="I/N", help="Extract blocks I, I + N and so on, for job arrays.")
@click.option(
    "--ray",
    metavar="HOST:PORT",
    help="Compute on the Ray cluster with this head; auto finds it on this machine.",
)
@click.option(
    "--reuse",
    type=ADDRESS,
    multiple=True,
    metavar="OLD.zarr",
    help="An older store: copy the rows of unchanged clips, and compute the rest. Repeatable.",
)
@click.option("--retry-failed", is_flag=True, help="Retry items that failed before.")
@json_option
def extract(
    manifest: Path,
    media: Path | None,
    specs: tuple[str, ...],
    output: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Extract a manifest's features, one store per backbone.

    Each clip is decoded once for all backbones. Run the same command again to resume after an
    interruption. Rows of films that have since been replaced are kept and counted; to compute them
    again, choose another output, and copy the other rows with --reuse. Several runs can fill the
    same stores, on machines that share the output, if they divide the work: --part 1/4 ... 4/4. A
    clip that cannot be read is recorded with the reason, and the other clips are still extracted;
    retry such clips with --retry-failed. Every run with clips to extract is logged in
    OUTPUT/log.jsonl. Without a terminal, a line every 30 seconds reports progress, speed and the
    time left.

    Exits with code 3 if clips failed or are still to do, or with code 1 if all that were tried
    failed.

    A manifest of images, texts or both needs backbones that accept them: clip, siglip and xclip
    embed images and texts in one space; dinov2, dinov3 and efficientnet-lite0 accept only images,
    and all-minilm-l6-v2, clap and words only texts. For texts, leave out --videos.

    Audio backbones (clap) and visual backbones fill their stores in the same pass. A clip without a
    sound track fails only for audio backbones.

    With --ray, the machines of a Ray cluster do the work. They must see the films and the output
    under the same paths. --workers is then the number of decoding processes for each task.

    \b
    Example:
      obygaze features extract manifests/mine --videos films --backbone xclip-kinetics
    """
    loaded = of.Manifest.load(manifest)
    # Ray prints what happens to machines.
    with _messages(), contextlib.redirect_stdout(sys.stderr):
        summary = of.extract(loaded, media, specs, output, **options)
    for failure, reasons in summary.failed.items():
        echo(f"{len(reasons)} failed, {failure.replace('_', ' ')} (see --retry-failed):", err=True)
        echo_failures(reasons)
    facts = summary.to_json()
    if as_json:
        show(facts, as_json)
    else:
        facts["failed"] = {failure: len(reasons) for failure, reasons in summary.failed.items()}
        show({name: value for name, value in facts.items() if value})
        noun = "clips" if "clip" in loaded.items.kinds else "items"
        stores = ", ".join(map(str, summary.stores))
        echo(f"{summary.done} of {summary.wanted} {noun} done in {stores}")
    if summary.to_do:
        left = counted(summary.to_do, "item")
        echo(f"{left} still to do; wait for other runs to end, then run this again", err=True)
    elif summary.clips and not any(summary.done_in.values()):
        raise VideoError("no item could be extracted; see the reasons above")
    exit_if(summary.failed or summary.to_do)


@contextlib.contextmanager
def _messages() -> Iterator[None]:
    """Print the package's log messages, such as the plan of a run."""

    class Echo(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            echo(record.getMessage(), err=True)

    logger = logging.getLogger("obygaze_features")
    handler = Echo()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
