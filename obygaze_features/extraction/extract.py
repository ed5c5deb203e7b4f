"""Extract features into stores: load backbones, plan the work, compute, and summarise."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.backbones.devices import describe_device
from obygaze_features.backbones.load import resample
from obygaze_features.backbones.readers import SoundReader
from obygaze_features.common.names import as_list, unknown_name
from obygaze_features.errors import ObygazeError, OutputExists, UsageError
from obygaze_features.extraction.job import (
    Job,
    Options,
    OptionTypes,
    check_items,
    plan_job,
    recipe_of,
)
from obygaze_features.extraction.loop import run_local
from obygaze_features.extraction.probe import embed_probe
from obygaze_features.extraction.reuse import reuse_rows, warn_of_replaced
from obygaze_features.extraction.summary import Summary, log_run
from obygaze_features.manifests import Manifest
from obygaze_features.sampling import read_sampling
from obygaze_features.store import StoreWriter

logger = logging.getLogger(__name__)


def extract(
    manifest: Manifest | str | Path,
    media: str | Path | None,
    backbones: Any,
    output: str | Path = "stores",
    **options: Unpack[OptionTypes],
) -> Summary:
    """Extract the features of a manifest's items into one store per backbone.

    If an item cannot be found or decoded, the reason is recorded and the run continues. Existing
    stores are resumed, so an interrupted call can simply be repeated. Several calls may fill the
    same stores at the same time, on one or more machines, if each has a `part` of its own.

    Parameters
    ----------
    manifest
        The manifest or its folder. Its items are either clips, or images and texts.
    media
        The folder of the films or images; None if there are only texts.
    backbones
        One or more backbones: names, checkpoints (``NAME=PATH``), `Backbone` objects, or
        functions that return one. All of them share each decoded item.
    output
        The folder for ``log.jsonl`` and for the store ``NAME.zarr`` of each backbone.
    options
        The fields of `Options`, which select items and control how and where they are computed.

    Examples
    --------
    ::

        extract(manifest, "films", ["xclip-kinetics", "vivit"], "stores", limit=100)
        extract(manifest, "films", Backbone.from_torch(net, name="mine"), "stores")
        extract(manifest, "films", "timm:resnet18", "stores", sampling="2 fps", frames=360)
    """
    summary = Summary()
    types = OptionTypes.__annotations__
    unknown = options.keys() - types
    if unknown:
        raise UsageError(unknown_name("option", min(unknown), types))
    settings = Options(**options)
    manifest = Manifest.load(manifest)
    if media is not None:
        media = Path(media)
    output = Path(output)
    if isinstance(backbones, str) or not isinstance(backbones, Sequence):
        backbones = [backbones]
    engine: Callable[..., None] = run_local
    if settings.ray is not None:
        engine = use_cluster(manifest, media, backbones, output, settings)

    loaded = load(manifest, media, backbones, settings)
    job = plan_job(manifest, media, loaded, output, settings)
    warn_of_replaced(job)
    writers = open_writers(job, loaded)
    if settings.reuse and job.to_do:
        job = reuse_rows(job, writers)
    summary.devices = {backbone.name: describe_device(backbone.device) for backbone in loaded}
    summary.lap("start")

    if not job.to_do:
        summary.count(job, writers)
        return summary
    logger.info(f"Extracting {manifest.name} with {', '.join(job.paths)} (items: {len(job.rows)})")
    try:
        engine(job, loaded, writers, summary)
    except BaseException:
        # Finished work is logged even after an error, if the disk still works.
        with contextlib.suppress(OSError, ObygazeError):
            summary.count(job, writers)
            log_run(summary)
        raise
    summary.count(job, writers)
    log_run(summary)
    return summary


def load(
    manifest: Manifest,
    media: Path | None,
    backbones: Sequence[Any],
    options: Options,
) -> list[Backbone]:
    """Load the backbones for a manifest's items, which are clips, or images and texts."""
    kinds = sorted(set(manifest.items.kinds)) or ["clip"]
    if "clip" in kinds:
        check_items(manifest)
    if media is None and kinds != ["text"]:
        raise UsageError(f"no folder of {kinds[0]}s; pass --videos or --images")
    if not backbones:
        raise UsageError("no backbones; pass at least one")
    sampling = read_sampling(options.sampling, options.frames)
    if sampling and "clip" not in kinds:
        raise UsageError("images and texts cannot be sampled; leave out --sampling and --frames")
    # On a cluster, each process loads its own networks; those loaded here only make the stores.
    device = "cpu" if options.ray else options.device
    loaded = []
    for backbone in backbones:
        if isinstance(backbone, Backbone) and backbone.about:  # already loaded
            loaded.append(resample(backbone, sampling, options.audio_track))
            continue
        loaded.append(
            load_backbone(
                backbone,
                device,
                mode=options.preprocessing,
                precision=options.precision,
                arrays=options.arrays,
                sampling=sampling,
                track=options.audio_track,
            )
        )
    if "clip" in kinds:
        _check_for_clips(loaded, options)
    else:
        loaded = [backbone.for_images_and_texts(*kinds) for backbone in loaded]
    return loaded


def use_cluster(
    manifest: Manifest,
    media: Path | None,
    backbones: Sequence[Any],
    output: Path,
    options: Options,
) -> Callable[..., None]:
    """Connect to a Ray cluster, and return the engine that extracts parts on it."""
    from obygaze_features.extraction.ray import connect, run_ray

    if options.part:
        raise UsageError("Ray divides the work into parts itself; leave out --part or --ray")
    if not all(isinstance(backbone, str) for backbone in backbones):
        raise UsageError("on Ray, each process loads its own backbones; pass backbones by name")
    connect(str(options.ray))
    media = media and media.absolute()
    return partial(run_ray, partial(extract_part, manifest, media, backbones, output.absolute()))


_loaded: list[Backbone] = []
"""The backbones of a Ray process, which works for a single command."""


def extract_part(
    manifest: Manifest,
    media: Path | None,
    backbones: Sequence[str],
    output: Path,
    options: Options,
) -> Summary:
    """Extract a part in a Ray process, which keeps the backbones for its next part."""
    if not _loaded:
        _loaded.extend(load(manifest, media, backbones, options))
    return extract(manifest, media, _loaded, output, **vars(options))


def _check_for_clips(backbones: Sequence[Backbone], options: Options) -> None:
    """Raise `UsageError` if a backbone cannot embed clips, or an option applies to no backbone."""
    hears = any(isinstance(backbone.clip, SoundReader) for backbone in backbones)
    if options.audio_track and not hears:
        raise UsageError("audio_track needs an audio backbone; add one, or leave out audio_track")
    names = [backbone.name for backbone in backbones]
    for backbone in backbones:
        if not backbone.clip:
            raise UsageError(
                f"{backbone.name} is for images or texts, not for clips. To use spoken words, "
                "convert subtitles to texts: obygaze manifests subtitles"
            )
    for array in as_list(options.arrays or ()):
        owner = array.rpartition(":")[0]
        if owner not in ("", *names):
            raise UsageError(f"--arrays: unknown store {owner}; choose from {', '.join(names)}")


def open_writers(job: Job, backbones: Sequence[Backbone]) -> dict[str, StoreWriter]:
    """Open the stores of a job for writing; create missing stores with their probes."""
    writers = {}
    for backbone in backbones:
        if backbone.name in job.stores:
            writers[backbone.name] = StoreWriter(job.stores[backbone.name])
            continue
        probe = embed_probe(backbone)
        path = job.paths[backbone.name]
        recipe = recipe_of(backbone)
        rows = job.block_rows
        # If several runs start together, one creates the store and the others resume it.
        try:
            writer = StoreWriter.create(
                path,
                job.manifest.items,
                recipe,
                job.manifest.about,
                probe=probe,
                block_rows=rows,
            )
        except OutputExists:
            writer = StoreWriter.resume(path, job.manifest.items, recipe, block_rows=rows)
        writers[backbone.name] = writer
    return writers
