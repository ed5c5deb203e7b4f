"""From items to stores: load the backbones, plan, then read, embed and write, and summarise."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.backbones.checkpoints import split_name
from obygaze_features.backbones.devices import (
    default_workers,
    is_asynchronous_error,
    limit_gpu_memory,
)
from obygaze_features.backbones.load import requested_arrays
from obygaze_features.backbones.sampling import read_sampling
from obygaze_features.backbones.windows import resample
from obygaze_features.common.files import require_folder_name
from obygaze_features.common.progress import meter
from obygaze_features.common.text import counted, first_line
from obygaze_features.errors import BackboneError, BrokenBackbone, ObygazeError, UsageError
from obygaze_features.extraction.forward import Embedder, Forward
from obygaze_features.extraction.plan import (
    STALL_TIMEOUT_S,
    BlockTask,
    BrokenBackbones,
    ExtractionRun,
    Load,
    Options,
    check_items,
    check_media,
    open_targets,
    plan_blocks,
    shared_block_rows,
    store_paths,
)
from obygaze_features.extraction.readers import Decoder, ItemReader, ReadItem, map_decoders
from obygaze_features.extraction.summary import Summary, log_run, summarise
from obygaze_features.extraction.uploads import no_uploads
from obygaze_features.extraction.write import BlockWriter
from obygaze_features.manifests import Manifest
from obygaze_features.store import Failed

logger = logging.getLogger(__name__)

Engine = Callable[[ExtractionRun], None]

READ_AHEAD = 16
"""Items, beside one per worker, that may be read before they are needed."""


def extract(
    manifest: Manifest | str | Path,
    media: str | Path | None,
    backbones: Any,
    output: str | Path = "stores",
    *,
    films: Sequence[str] | str = (),
    limit: int | None = None,
    part: str | None = None,
    retry_failed: bool = False,
    preprocessing: str = "standard",
    precision: str = "float32",
    arrays: Sequence[str] | None = None,
    sampling: str | None = None,
    frames: int | None = None,
    window: int | None = None,
    stride: int | None = None,
    audio_track: int | None = None,
    device: str | None = None,
    max_gpu_memory: str | None = None,
    batch: int | None = None,
    workers: int | None = None,
    max_hours: float | None = None,
    stall_timeout: float = STALL_TIMEOUT_S,
    engine: str = "local",
    ray_address: str | None = None,
    ray_forwards: int | None = None,
    ray_cpus: float | None = None,
    ray_gpus: float | None = None,
) -> Summary:
    """Extract the features of a manifest's items into one store per backbone.

    An item that cannot be found or decoded is recorded with the reason, and the run continues.
    Existing stores are resumed, so you can repeat an interrupted call. Several calls may fill the
    same stores at the same time, on one machine or on several: each block is claimed by one call.
    A backbone of another package whose code fails is left out, and the others go on; the summary's
    `broken` says why.

    Parameters
    ----------
    manifest
        The items, or their manifest's folder: clips alone, or images and texts.
    media
        The folder of the films or images; None if there are only texts.
    backbones
        Names, checkpoints (``NAME=PATH``), `Backbone` objects, functions that make one, or torch
        modules with a `transform`; one or several. Each item is read once for all of them.
    output
        The folder that gets ``NAME.zarr`` for each backbone, and ``log.jsonl``.
    films, limit, ...
        Which items, how, and on what: see `obygaze_features.extraction.Options`.

    Examples
    --------
    ::

        extract(manifest, "films", ["xclip-kinetics", "vivit"], "stores", limit=100)
        extract(manifest, "films", Backbone.from_torch(net, name="mine"), "stores")
        extract(manifest, "films", "timm:resnet18", "stores", sampling="2 fps", frames=360)
    """
    begin = time.monotonic()
    settings = Options(
        films=films, limit=limit, part=part, retry_failed=retry_failed,
        preprocessing=preprocessing, precision=precision, arrays=arrays, sampling=sampling,
        frames=frames, window=window, stride=stride, audio_track=audio_track, device=device,
        max_gpu_memory=max_gpu_memory, batch=batch, workers=workers, max_hours=max_hours,
        stall_timeout=stall_timeout, engine=engine, ray_address=ray_address,
        ray_forwards=ray_forwards, ray_cpus=ray_cpus, ray_gpus=ray_gpus,
    )  # fmt: skip
    if not isinstance(manifest, Manifest):
        manifest = Manifest.load(manifest)
    media, output = Path(media) if media is not None else None, Path(output)
    require_folder_name(output)
    kinds = _check_kinds(manifest, media)
    if isinstance(backbones, str) or not isinstance(backbones, Sequence):
        backbones = [backbones]
    broken = BrokenBackbones(len(backbones))
    loaded, run_engine = load(backbones, settings, kinds, broken)
    if settings.max_gpu_memory:
        for device in {backbone.device for backbone in loaded}:
            limit_gpu_memory(device, settings.max_gpu_memory)
    return fill(manifest, media, loaded, output, settings, run_engine, broken, begin)


def load(
    backbones: Sequence[Any],
    options: Options,
    kinds: Sequence[str],
    broken: BrokenBackbones,
) -> tuple[list[Backbone], Engine]:
    """Load the backbones for items of these kinds, and choose the engine."""
    if not backbones:
        raise UsageError("there is no backbone; give one or several")
    is_ray = options.engine == "ray"
    if is_ray:
        if "clip" not in kinds:
            raise UsageError("--engine ray is for clips; images and texts are embedded locally")
        if not all(isinstance(backbone, str) for backbone in backbones):
            raise UsageError("on a Ray cluster each process loads the backbones: give their names")
        from obygaze_features.extraction.ray_engine import check_ray, run_ray

        check_ray(options)
    elif options.engine != "local":
        raise UsageError(f"unknown engine {options.engine!r}; take local or ray")
    elif given := [n for n, x in vars(options).items() if n[:4] == "ray_" and x is not None]:
        raise UsageError(f"--{given[0].replace('_', '-')} is for --engine ray")
    counts = {name: getattr(options, name) for name in ("frames", "window", "stride")}
    sampling = read_sampling(options.sampling, **counts)
    if sampling and "clip" not in kinds:
        raise UsageError("sampling is for clips; leave it out for images and texts")
    loaded: list[Backbone] = []
    loads: list[Load] = []
    for backbone in backbones:
        if isinstance(backbone, Backbone) and backbone.about:  # it is loaded
            wanted = requested_arrays(options.arrays, backbone.name)
            loaded.append(resample(backbone, sampling, options.audio_track, wanted))
            continue
        load_one = partial(
            load_backbone,
            backbone,
            mode=options.preprocessing,
            precision=options.precision,
            arrays=options.arrays,
            sampling=sampling,
            track=options.audio_track,
        )
        try:
            # A cluster loads its own; here a backbone then only describes its store.
            loaded.append(load_one("cpu" if is_ray else options.device))
            loads.append(load_one)
        except BrokenBackbone as problem:
            name, target = split_name(backbone) if isinstance(backbone, str) else ("", "")
            name = name or target.rpartition(":")[2] or getattr(backbone, "__name__", "")
            broken.add(name or type(backbone).__name__, problem)
    engine = partial(run_ray, loads=loads) if is_ray else run_local
    if "clip" not in kinds:
        needs = {"texts": "text" in kinds, "images": "image" in kinds}
        return [backbone.for_images_and_texts(**needs) for backbone in loaded], engine
    if options.audio_track and not any(backbone.hears for backbone in loaded):
        raise UsageError("--audio-track is for backbones that hear; none of these does")
    names = [backbone.name for backbone in loaded]
    if blind := [backbone.name for backbone in loaded if not backbone.for_clips]:
        raise UsageError(
            f"{blind[0]} is for images or texts, not for clips. For the words spoken in clips, "
            "make texts of them: obygaze manifests subtitles"
        )
    for owner, _, _array in (array.rpartition(":") for array in options.arrays or ()):
        if owner not in ("", *names, *broken.reasons):
            raise UsageError(f"--arrays names the store {owner}; there are {', '.join(names)}")
    return loaded, engine


def fill(
    manifest: Manifest,
    media: Path | None,
    backbones: Sequence[Backbone],
    output: Path,
    options: Options,
    engine: Engine,
    broken: BrokenBackbones,
    begin: float,
) -> Summary:
    """Have an engine compute what the stores lack, and log the run."""
    paths = store_paths([backbone.name for backbone in backbones], output)
    block_rows = shared_block_rows(manifest, paths.values())
    rows = options.select(manifest, block_rows)
    if media:
        check_media(manifest, rows, media)
    targets = open_targets(manifest, backbones, output, block_rows, broken.add)
    blocks = plan_blocks(targets, rows, retry_failed=options.retry_failed)
    run = ExtractionRun(manifest, media, options, targets, rows, blocks, begin, broken)
    try:
        if blocks:
            logger.info(_describe(run))
            engine(run)
    except BaseException as problem:
        # What was done is logged all the same, if the disk allows.
        with contextlib.suppress(OSError, ObygazeError):
            log_run(run, summarise(run, type(problem).__name__.strip("_")))
        if is_asynchronous_error(problem):
            raise BackboneError(
                f"the GPU failed ({first_line(problem)}), perhaps over an earlier operation than "
                "the one that noticed. What was computed is kept. To find the cause, set "
                "CUDA_LAUNCH_BLOCKING=1 and run: obygaze --debug features extract ..."
            ) from problem
        raise
    summary = summarise(run, "time" if run.out_of_time else "done")
    if blocks:
        log_run(run, summary)
    return summary


def run_local(run: ExtractionRun) -> None:
    """Read ahead, embed in batches, and write each block: on this machine, item by item.

    Processes decode clips (threads read images); threads take the frames to the device and resize
    them for each backbone; this thread embeds; another writes. The items in between are bounded.
    """
    claims, options, tally = run.claims(), run.options, run.tally
    workers = options.workers or default_workers(run.backbones[0].device)
    reader = ItemReader(run.media, run.backbones)
    alone = partial(no_uploads, reader.resizers.values())
    forwards = {
        backbone.name: Forward(backbone, options.batch, alone) for backbone in run.backbones
    }
    embedder = Embedder(forwards, run.broken)

    def read(decoder: Decoder, task: tuple[BlockTask, BlockTask, int]) -> ReadItem | Failed:
        _, piece, row = task
        return reader.read(decoder, run.manifest.items[row], piece.names(row))

    tasks = (
        (block, piece, row)
        for block in run.tasks(claims)
        for piece in block.pieces()
        for row in piece.rows
    )
    with (
        warnings.catch_warnings(),
        claims.heartbeat(),
        BlockWriter(run.targets, claims) as writer,
        contextlib.closing(
            map_decoders(read, tasks, workers, options.stall_timeout, ahead=READ_AHEAD + workers)
        ) as items,
        meter(run.item_count, "Extracting", unit=run.noun) as advance,
    ):
        # Oddities of images that can be read would come between lines of progress.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        block, begin = None, time.monotonic()
        try:
            for (block, piece, row), item in items:
                tally.decode += time.monotonic() - begin
                if run.is_over():
                    break
                tally.count(item)
                computed = embedder.add(piece, row, item)
                if row == block.rows[-1]:
                    writer.submit(block, embedder.take())
                tally.device, tally.write = embedder.seconds, writer.waited_s
                advance(computed + run.take_passed(), run.progress_note())
                begin = time.monotonic()
        finally:
            # What is computed of a block is kept, even after an error.
            try:
                embedder.collect()
            finally:
                if block and (outcomes := embedder.take()):
                    writer.submit(block, outcomes)
                run.batches = embedder.batches
                for row, count in embedder.cut.items():
                    tally.counts.cut[run.manifest.ids[row]] = count


def _check_kinds(manifest: Manifest, media: Path | None) -> list[str]:
    """The kinds of a manifest's items; `UsageError` if the folder of their files is missing."""
    kinds = sorted(set(manifest.items.kinds)) or ["clip"]
    if "clip" in kinds:
        check_items(manifest)
    for kind, folder in (("clip", "--videos FOLDER"), ("image", "--images FOLDER")):
        if kind in kinds and media is None:
            raise UsageError(f"{manifest.name} has {kind}s; say where they are: {folder}")
    return kinds


def _describe(run: ExtractionRun) -> str:
    is_ray = run.options.engine == "ray"
    names = ", ".join(
        f"{backbone.name} ({'Ray' if is_ray else backbone.device})" for backbone in run.backbones
    )
    return f"Extracting {counted(len(run.rows), run.noun)} of {run.manifest.name} with {names}"
