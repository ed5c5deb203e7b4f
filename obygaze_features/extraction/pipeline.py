"""From films to stores: what is asked is planned, an engine does it, and a summary says how."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from pathlib import Path

from obygaze_features.backbones import Backbone, Towers
from obygaze_features.errors import ObygazeError
from obygaze_features.extraction.decoders import PATIENCE
from obygaze_features.extraction.engines import Engine, Job
from obygaze_features.extraction.engines.local import work_here
from obygaze_features.extraction.plan import (
    EVERYTHING,
    Wanted,
    check_items,
    check_media,
    errands,
    open_lanes,
    store_paths,
)
from obygaze_features.extraction.summary import Summary, log_run
from obygaze_features.manifests import Manifest

__all__ = ["extract", "fill"]


def extract(
    manifest: Manifest,
    videos: Path,
    backbones: Sequence[Backbone],
    output: Path,
    *,
    wanted: Wanted = EVERYTHING,
    batch: int | None = None,
    workers: int | None = None,
    max_hours: float | None = None,
    patience: float = PATIENCE,
    cache: Path | None = None,
    engine: Engine = work_here,
) -> Summary:
    """Extract the features of a manifest's clips into one store a backbone.

    A clip that cannot be found or decoded is recorded with the reason, and the run goes on.
    Stores that exist are gone on with where they end, so an interrupted call can be repeated.
    Several calls may fill the same stores at the same time, on one machine or on several: each
    block is claimed by one of them.

    Parameters
    ----------
    manifest
        Which clips, under which ids.
    videos
        The folder of their files.
    backbones
        From `load_backbone`. Each clip is decoded once for all of them.
    output
        Gets ``NAME.zarr`` for each backbone, and ``log.jsonl``.
    wanted
        Which of the clips; by default all that the stores lack.
    batch
        Clips in one forward pass; by default what the device has memory for.
    workers
        Processes that decode; by default one a core, but for one.
    max_hours
        Begin no block that would not be done by then, and stop when the time is up.
    patience
        Seconds without headway after which a file is given up.
    cache
        The folder where the index of long films is kept; by default none.
    engine
        Where the work is done; by default here. See `engines.ray` for a cluster.
    """
    check_items(manifest)
    return fill(
        manifest,
        videos,
        backbones,
        output,
        wanted=wanted,
        batch=batch,
        workers=workers,
        max_hours=max_hours,
        patience=patience,
        cache=cache,
        engine=engine,
    )


def fill(
    manifest: Manifest,
    videos: Path,
    backbones: Sequence[Backbone | Towers],
    output: Path,
    *,
    wanted: Wanted,
    batch: int | None,
    workers: int | None,
    max_hours: float | None,
    patience: float = PATIENCE,
    cache: Path | None = None,
    engine: Engine,
) -> Summary:
    """Have an engine fill what stores lack, and note how it went; as `extract`, of any items."""
    begin = time.monotonic()
    rows = wanted.rows(manifest)
    is_new = not any(path.exists() for path in store_paths(backbones, output).values())
    if is_new:
        check_media(manifest, rows, videos)
    lanes = open_lanes(manifest, backbones, output)
    todo = errands(lanes, rows, wanted)
    if todo and not is_new:
        check_media(manifest, rows, videos)
    job = Job(
        manifest=manifest,
        videos=videos,
        wanted=wanted,
        batch=batch,
        workers=workers,
        patience=patience,
        cache=cache,
        lanes={lane.name: lane for lane in lanes},
        rows=rows,
        todo=todo,
        begin=begin,
        end=math.inf if max_hours is None else begin + 3600 * max_hours,
    )
    try:
        if todo:
            engine(job)
    except BaseException as problem:
        # What was done is noted all the same, if the disk lets it be.
        with contextlib.suppress(OSError, ObygazeError):
            log_run(lanes, job.summary(type(problem).__name__.strip("_")), job.devices)
        raise
    summary = job.summary("time" if job.short_of_time else "done")
    if todo:
        log_run(lanes, summary, job.devices)
    return summary
