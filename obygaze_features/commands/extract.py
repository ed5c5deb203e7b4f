"""The command `obygaze features extract`, which writes one store per backbone."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.backbones.devices import PRECISIONS
from obygaze_features.commands._shared import (
    VIDEOS_HELP,
    device_option,
    echo_failures,
    resumable,
)
from obygaze_features.common.cli import (
    PATH,
    echo,
    echo_json,
    emit,
    exit_if,
    film_option,
    folder_argument,
    join_options,
    json_option,
    names_option,
    output_option,
)
from obygaze_features.common.text import counted, format_duration, format_size, join_some
from obygaze_features.errors import VideoError

if TYPE_CHECKING:
    from obygaze_features.extraction import Summary


_input_options = join_options(
    click.option("--preprocessing", type=click.Choice(["standard", "author"]), default="standard",
                 help="Preprocess like the checkpoint's processor, or as the paper's authors did "
                 "(squash frames to a square)."),
    click.option("--precision", type=click.Choice(PRECISIONS), default="float32",
                 help="The number format for computing; tf32 and bfloat16 are several times "
                 "faster on Ampere or newer GPUs."),
    click.option("--sampling", metavar="RATE",
                 help="For backbones that see each frame alone: a frame rate, such as '2 fps', so "
                 "that longer clips get more frames.  "
                 "[default: each backbone's number of frames, evenly spaced]"),
    click.option("--frames", type=click.IntRange(1), metavar="BOUND",
                 help="With --sampling, the most frames per clip; for audio backbones, the most "
                 "windows of sound. Longer clips are sampled evenly.  [default: 64]"),
)  # fmt: skip

_ray_options = join_options(
    click.option("--engine", type=click.Choice(["local", "ray"]), default="local",
                 help="Compute here, or on a Ray cluster."),
    click.option("--ray-address", metavar="HOST:PORT",
                 help="The head of a cluster, or auto.  [default: start one here]"),
)  # fmt: skip


@click.command()
@folder_argument("manifest")
@film_option("Only items of these films.")
@click.option("--limit", type=click.IntRange(1), help="Use only the first N items.")
@click.option(
    "--videos", "--images", "media", type=PATH, help=f"{VIDEOS_HELP} Or the folder of images."
)
@click.option(
    "--backbone",
    "specs",
    multiple=True,
    required=True,
    metavar="[NAME=]PATH",
    help="A name from `obygaze features backbones`, NAME=PATH (your own checkpoint, and a name for "
    "its store), NAME=module:make or timm:NAME; add @LAYER for a layer. "
    "Repeatable: a single pass over the clips fills all stores.",
)
@output_option("The folder for the stores, NAME.zarr for each backbone.", default=Path("stores"))
@names_option(
    "--arrays",
    metavar="NAME,NAME",
    help="The arrays to store, such as native,frames,tokens; vivit:cls applies only to the store "
    "vivit.  [default: all but tokens]",
)
@_input_options
@device_option
@click.option(
    "--batch-size",
    "batch",
    type=click.IntRange(1, 32),
    help="Items per forward pass; halved if memory runs out.  [default: 8 clips, fewer on a "
    "CPU or with many frames; 32 images or texts]",
)
@click.option(
    "--max-gpu-memory", metavar="SIZE", help="The most memory to use on a shared GPU, such as 20GB."
)
@click.option(
    "--max-hours",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop cleanly after this many hours; the same command resumes later.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Number of decoding processes (threads for images).  [default: all cores but one, shared "
    "among the GPUs; at most 32]",
)
@click.option("--part", metavar="I/N", help="Extract blocks I, I + N and so on, for job arrays.")
@_ray_options
@click.option("--retry-failed", is_flag=True, help="Retry items that failed before.")
@click.option("--dry-run", is_flag=True, help="Only report what is left to do, and its size.")
@json_option
def extract(
    manifest: Path,
    media: Path | None,
    specs: tuple[str, ...],
    output: Path,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Extract a manifest's features, one store per backbone.

    Each clip is decoded once for all backbones. Run the same command again to resume after an
    interruption. You can run it several times in parallel, on machines that share the output: each
    run takes blocks that no other run has (or divide the work with --part 1/4 ... 4/4). A clip that
    cannot be read is recorded with the reason, and the other clips are still extracted; retry such
    clips with --retry-failed. Every run is logged in OUTPUT/log.jsonl. Without a terminal, a line
    every 30 seconds reports progress, speed and the time left.

    Exits with code 3 if clips failed, or if clips are left, because --max-hours ended the run or
    other runs are working on them (a dead run holds its clips for two minutes).

    A manifest of images, texts or both needs backbones that accept them: clip, siglip and xclip
    embed both in one space; dinov2 and dinov3 accept only images. For texts, leave out --videos.

    Audio backbones (clap and others) and visual backbones fill their stores in the same pass. A
    clip without a sound track fails only for audio backbones.

    With --engine ray, the machines of a Ray cluster do the work and need access only to the films;
    --workers is then the number of decoding processes for each computing process.

    \b
    Examples:
      obygaze features extract manifests/mine --videos films --backbone xclip-kinetics
      obygaze features extract manifests/mine --videos films --backbone xclip-kinetics \\
          --backbone vivit --backbone xclip-lsmdc=weights/pytorch_model.bin.0 -o stores --dry-run
      obygaze features extract manifests/mine --videos films --backbone vivit \\
          --precision bfloat16 --max-gpu-memory 20GB --max-hours 0.9
      obygaze features extract manifests/mine --videos films --backbone vivit \\
          --engine ray --ray-address auto
      obygaze features extract manifests/mine --videos films --backbone timm:resnet18@layer3
      obygaze features extract manifests/mine --videos films \\
          --backbone clip-vit-base-patch32 --sampling "4 fps" --frames 720
      obygaze features extract manifests/photos --images photos --backbone clip-vit-base-patch32
      obygaze features extract manifests/prompts --backbone clip-vit-base-patch32 -o stores/texts
    """
    from obygaze_features.manifests import Manifest

    loaded = Manifest.load(manifest)
    if dry_run:
        from obygaze_features.extraction import Options
        from obygaze_features.extraction.estimate import estimate

        emit(estimate(loaded, media, specs, output, Options(**options)), as_json, _describe_plan)
        return
    from obygaze_features import extract as extract_features

    with resumable(), _messages():
        summary = extract_features(loaded, media, specs, output, **options)
    noun = "clip" if "clip" in loaded.items.kinds else "item"
    if as_json:
        echo_json(summary.to_json())
    else:
        _describe(summary, noun, is_sampled=bool(options["sampling"]))
    if summary.clips and not any(summary.done_in.values()) and not summary.left:
        raise VideoError(f"none of the {summary.wanted} {noun}s could be extracted")
    exit_if(summary.failed or summary.left)


@contextlib.contextmanager
def _messages() -> Iterator[None]:
    """Print the package's log messages, such as the plan of a run."""

    class Echo(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            echo(record.getMessage(), err=True)

    logger, handler = logging.getLogger("obygaze_features"), Echo()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _describe_plan(plan: Mapping[str, Any]) -> str:
    """Describe what each store lacks, the free disk space, and the clips without a file."""
    lines = []
    for name, store in plan["stores"].items():
        size = format_size(store["bytes"])
        state = "new" if store["is_new"] else "resumed"
        lines.append(f"{name}: {store['to_do']:,} to do, {size} in {store['path']} ({state})")
    needed = sum(store["bytes"] for store in plan["stores"].values())
    warning = "" if needed < plan["free"] else ", which is NOT ENOUGH"
    lines.append(f"disk: {format_size(plan['free'])} free{warning}")
    if missing := plan["missing"]:
        lines.append(f"{len(missing):,} without a file or with several ({join_some(missing)})")
    return "\n".join(lines)


def _describe(summary: Summary, noun: str, *, is_sampled: bool) -> None:
    """Print failures, speed, warnings, what is left to do, and the paths of the stores."""
    for kind, reasons in summary.failed.items():
        echo(f"{len(reasons)} failed, {kind.replace('_', ' ')}:", err=True)
        all_in = "; ".join(f"obygaze stores info {path}" for path in summary.stores)
        echo_failures(reasons, all_in=all_in)
    if summary.clips or not summary.left:
        echo(_describe_speed(summary, noun))
    for line in _unusual(summary, is_sampled=is_sampled):
        echo(line)
    for line in _problems(summary, noun):
        echo(line, err=True)
    left = counted(summary.left, noun)
    if summary.ended == "time":
        echo(f"Time is up, with {left} left; run the same command again to resume.")
    elif summary.left:
        echo(f"Other runs are computing {left}; run the same command again for the rest.")
    requested, sizes = counted(summary.wanted, noun), map(format_size, summary.bytes.values())
    stores = [f"{path} ({size})" for path, size in zip(summary.stores, sizes, strict=True)]
    if set(summary.done_in.values()) == {summary.done}:
        echo(f"{summary.done} of {requested} done in {', '.join(stores)}")
        return
    for store, done in zip(stores, summary.done_in.values(), strict=True):
        echo(f"{done} of {requested} done in {store}")
    echo(f"{summary.done} of {requested} done in all stores")


def _describe_speed(summary: Summary, noun: str) -> str:
    if summary.clips:
        is_seen = noun == "clip" and summary.frames
        frames = f"{summary.frames_a_second:.0f} frames/s; " if is_seen else ""
        shares = ", ".join(f"{stage} {share:.0%}" for stage, share in summary.shares.items())
        return (
            f"{counted(summary.clips, noun)} in {format_duration(summary.seconds)} "
            f"({summary.clips_a_second:.1f}/s, {frames}"
            f"time: {shares}; bound by {summary.bound_by})"
        )
    hint = " (to retry failed items, add --retry-failed)" if summary.failed else ""
    return f"Nothing was left to do{hint}."


def _unusual(summary: Summary, *, is_sampled: bool) -> Iterator[str]:
    """Yield remarks about clips that are usable but unusual."""
    for reason, count in summary.slow.items():
        yield f"{counted(count, 'clip')} had to be decoded from the start of the file: {reason}"
    if summary.thinned and is_sampled:  # otherwise each clip has as many frames as in training
        thinned = counted(summary.thinned, "clip")
        yield f"{thinned} had more frames at this rate than --frames; they were sampled evenly"
    if summary.silent:
        silent = counted(summary.silent, "clip")
        yield f"{silent} had a silent sound track, so their features are nearly identical"
    if summary.unheard:
        clips, largest = counted(sum(summary.unheard.values()), "clip"), max(summary.unheard)
        yield (
            f"{clips} had more windows of sound (up to {largest}) than --frames; they were "
            "sampled evenly. Cut clips into spans, or extract all windows into a new folder (audio "
            f"backbones only): --frames {largest}"
        )
    for track, count in summary.tracks.items():
        yield f"{counted(count, 'clip')} had several sound tracks: used {track}"


def _problems(summary: Summary, noun: str) -> Iterator[str]:
    if summary.resized_by_cpu:
        resized = counted(summary.resized_by_cpu, noun)
        yield f"resized on the CPU, because the GPU's memory was full: {resized}"
    if summary.cut:
        longest = max(summary.cut, key=lambda item_id: summary.cut[item_id])
        yield (
            f"{counted(len(summary.cut), 'text was', 'texts were')} cut off at the backbone's "
            f"maximum length: {join_some(list(summary.cut))} (the longest, {longest}, has "
            f"{summary.cut[longest]} tokens)"
        )
    for reason, count in summary.lost.items():
        yield f"{counted(count, 'process was', 'processes were')} lost and replaced: {reason}"
