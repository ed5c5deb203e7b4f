"""`obygaze features extract` and `probe`: the commands that read films."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from obygaze_features.commands.embedding import embed_items
from obygaze_features.commands.engines import engine_of, which_engine
from obygaze_features.commands.outcome import PARTLY_DONE, kept_on_interruption, report
from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.text import counted
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_features.extraction.engines import Job

__all__ = ["extract", "probe", "which_clips", "which_items"]

_VIDEOS = "The folder of the clips, or of the films that they are spans of."

Command = TypeVar("Command", bound=Callable[..., Any])


def which_clips(command: Command) -> Command:
    """The options of every command that reads films."""
    return which_items(
        click.option("--videos", type=click.Path(path_type=Path), required=True, help=_VIDEOS)(
            command
        )
    )


def which_items(command: Command) -> Command:
    """The options of every command that reads items, but for where their files are."""
    for option in (
        click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0,
                     show_default=True, help="Seconds without headway before a file is given up."),
        click.option("--workers", type=click.IntRange(1),
                     help="Processes that decode, or threads that read images.  [default: one a "
                     "core but for one, 32 at most]"),
        click.option("--limit", type=click.IntRange(1), help="Only the first so many items."),
        click.option("--films", multiple=True, metavar="FILM",
                     help="Only items of this film; give it several times for several films."),
        folder_argument("manifest"),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@which_items
@click.option("--videos", type=click.Path(path_type=Path), help=_VIDEOS)
@click.option("--images", type=click.Path(path_type=Path), help="The folder of the images.")
@click.option(
    "--backbone",
    "specs",
    multiple=True,
    required=True,
    metavar="[NAME=]PATH",
    help="A name that `obygaze features backbones` lists, or a checkpoint of your own and the name "
    "of its store. Give it several times: one pass over the clips fills all stores.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("stores"),
    show_default=True,
    help="The folder that gets NAME.zarr for each backbone.",
)
@click.option(
    "--arrays",
    metavar="NAME,NAME",
    help="What to keep, such as native,frames,tokens; vivit:cls is for the store vivit alone.  "
    "[default: all but tokens]",
)
@click.option(
    "--preprocessing",
    type=click.Choice(["standard", "author"]),
    default="standard",
    show_default=True,
    help="As the checkpoint's processor does it, or as the paper's authors did (frames squashed "
    "to a square first).",
)
@click.option(
    "--precision",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default="float32",
    show_default=True,
    help="In which the backbones compute; bfloat16 is several times faster on a recent GPU.",
)
@click.option("--device", help="cpu, cuda, cuda:1 or mps; by default a GPU if there is one.")
@click.option(
    "--batch-size",
    type=click.IntRange(1, 32),
    help="Clips, images or texts at a time.  [default: what the device has memory for]",
)
@click.option(
    "--max-gpu-memory", metavar="SIZE", help="What to take of a shared GPU, such as 20GB."
)
@click.option(
    "--max-hours",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop cleanly so many hours after the start; the same command goes on later.",
)
@click.option("--part", metavar="I/N", help="Every Nth block, from the Ith on: for job arrays.")
@which_engine
@click.option("--retry-failed", is_flag=True, help="Try clips again that failed before.")
@click.option(
    "--dry-run", is_flag=True, help="Say what would be done, how big it gets and how long it takes."
)
@json_option
@click.pass_context
def extract(
    ctx: click.Context,
    /,
    manifest: Path,
    videos: Path | None,
    images: Path | None,
    films: tuple[str, ...],
    limit: int | None,
    workers: int | None,
    timeout: float,
    specs: tuple[str, ...],
    output: Path,
    arrays: str | None,
    preprocessing: str,
    precision: str,
    device: str | None,
    batch_size: int | None,
    max_gpu_memory: str | None,
    max_hours: float | None,
    part: str | None,
    retry_failed: bool,
    dry_run: bool,
    as_json: bool,
    engine: str,
    **ray: Any,
) -> None:
    """Extract the features of a manifest's items, one store a backbone.

    Each clip is decoded once for all backbones. Run the same command again to go on after an
    interruption; run it several times at once, on machines that share the output, and each takes
    what no other is at work on (or say who does what with --part 1/4 ... 4/4). A clip that cannot
    be read is recorded with the reason, and the others are extracted; the exit code is then 3, and
    --retry-failed tries those clips again. It is 3 as well where --max-hours ended the run. All
    that is noted of a run is in OUTPUT/log.jsonl.

    A manifest of images, of texts or of both goes through backbones that have a tower for each
    (clip, open-clip, siglip and xclip), into one space; texts need no folder.

    With --engine ray the machines of a Ray cluster do the work, and only the films have to be
    reachable from them; --workers are then those that decode in the whole cluster.

    \b
    Examples:
      obygaze features extract manifests/mine --videos films --backbone xclip-kinetics
      obygaze features extract manifests/mine --videos films --backbone xclip-kinetics \\
          --backbone vivit --backbone xclip-lsmdc=weights/pytorch_model.bin.0 -o stores --dry-run
      obygaze features extract manifests/mine --videos films --backbone vivit \\
          --precision bfloat16 --max-gpu-memory 20GB --max-hours 0.9
      obygaze features extract manifests/mine --videos films --backbone vivit \\
          --engine ray --ray-address auto --ray-gpus 0.5
      obygaze features extract manifests/photos --images photos --backbone clip-vit-base-patch32
      obygaze features extract manifests/prompts --backbone clip-vit-base-patch32 -o stores/texts
    """
    if engine == "ray" and dry_run:
        raise UsageError("--dry-run tries clips on this machine; leave --engine ray out of it")
    if engine == "ray" and max_gpu_memory:
        raise UsageError("--max-gpu-memory is not for --engine ray; give a part: --ray-gpus 0.5")
    from obygaze_features.manifests import Manifest

    items = Manifest.load(manifest)
    from obygaze_features.extraction.plan import Wanted

    wanted = Wanted(films, limit, part, retry_failed)
    if set(items.items.kinds) - {"clip"}:
        clips_only = {
            "--videos": videos is not None, "--arrays": bool(arrays), "--dry-run": dry_run,
            "--engine ray": engine == "ray",
        }  # fmt: skip
        with kept_on_interruption():
            summary = embed_items(
                items, images, specs, output, clips_only=clips_only, preprocessing=preprocessing,
                precision=precision, device=device, max_gpu_memory=max_gpu_memory, wanted=wanted,
                batch=batch_size, workers=workers, max_hours=max_hours,
            )  # fmt: skip
        report(ctx, summary, "item", as_json=as_json)
        return
    if videos is None or images:
        raise UsageError(f"{items.name} has clips; say where they are: --videos FOLDER")
    from obygaze_features.backbones import load_backbone
    from obygaze_features.backbones.devices import limit_gpu_memory
    from obygaze_features.common.package import cache_folder
    from obygaze_features.extraction import extract as run
    from obygaze_features.extraction.estimate import describe_estimate, estimate
    from obygaze_features.store.format import BLOCK_ROWS

    begin = time.monotonic()
    chosen = [one.strip() for one in arrays.split(",")] if arrays else None
    loads = [
        partial(load_backbone, spec, mode=preprocessing, precision=precision, arrays=chosen)
        for spec in specs
    ]
    work = engine_of(engine, loads, device, ray)
    # What computes on a cluster is loaded there; here it only says what is to be made.
    backbones = [load("cpu" if engine == "ray" else device) for load in loads]
    names = [backbone.name for backbone in backbones]
    for owner, _, _array in (one.rpartition(":") for one in chosen or ()):
        if owner not in ("", *names):
            raise UsageError(f"--arrays names the store {owner}; there are {', '.join(names)}")
    if max_gpu_memory:
        limit_gpu_memory(backbones[0].device, max_gpu_memory)
    index = cache_folder("index")
    if dry_run:
        found = estimate(
            items, videos, backbones, output, wanted=wanted, batch=batch_size, workers=workers,
            patience=timeout, cache=index,
        )  # fmt: skip
        echo_json(found.to_json()) if as_json else click.echo(describe_estimate(found))
        return
    told = ", ".join(
        f"{one.name} ({'Ray' if engine == 'ray' else one.device})" for one in backbones
    )
    rows = wanted.rows(items)
    if part and not rows.size:
        blocks = counted(len({*(replace(wanted, part=None).rows(items) // BLOCK_ROWS)}), "block")
        click.echo(f"part {part} is empty: the clips make only {blocks} of {BLOCK_ROWS}", err=True)

    def work_and_say(job: Job) -> None:
        some = counted(len(rows), "clip")
        click.echo(f"Extracting {some} of {items.name} with {told}", err=True)
        work(job)

    if max_hours is not None:
        max_hours -= (time.monotonic() - begin) / 3600  # to load them took of it, too
    with kept_on_interruption():
        summary = run(
            items, videos, backbones, output, wanted=wanted, batch=batch_size, workers=workers,
            max_hours=max_hours, patience=timeout, cache=index, engine=work_and_say,
        )  # fmt: skip
    report(ctx, summary, "clip", as_json=as_json)


@click.command()
@which_clips
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A CSV file that gets a row a clip."
)
@overwrite_option
@json_option
@click.pass_context
def probe(
    ctx: click.Context,
    manifest: Path,
    videos: Path,
    films: tuple[str, ...],
    limit: int | None,
    workers: int | None,
    timeout: float,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Look into every clip's file, on CPU, before a GPU's time is spent on it.

    What extraction would decode is decoded: what cannot be is named with the reason, and the exit
    code is then 3. Of the others it is said what is odd: a variable frame rate, fewer frames than
    a backbone takes, a file that can only be decoded from its beginning.

    \b
    Examples:
      obygaze features probe manifests/mine --videos films
      obygaze features probe manifests/mine --videos films -o probe.csv
    """
    from obygaze_features.common.files import refuse_to_overwrite, write_text
    from obygaze_features.common.package import cache_folder
    from obygaze_features.extraction.plan import Wanted
    from obygaze_features.extraction.probe import describe_probe, probe_clips, probe_table
    from obygaze_features.manifests import Manifest

    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    rows = list(
        probe_clips(
            Manifest.load(manifest), videos, wanted=Wanted(films, limit), workers=workers,
            patience=timeout, cache=cache_folder("index"),
        )
    )  # fmt: skip
    if output:
        write_text(output, probe_table(rows))
    if as_json:
        echo_json(rows)
    else:
        click.echo(describe_probe(rows))
        if output:
            click.echo(f"\na row a clip in {output}")
    if any(row["error"] for row in rows):
        ctx.exit(PARTLY_DONE)
