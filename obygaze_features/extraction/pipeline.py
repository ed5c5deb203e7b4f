"""The way of a clip: decoded once ahead of the device, forward in batches, written by the block.

Processes decode; threads take their frames to the device and resize them for each backbone; the
caller's thread runs the backbones in turn; one more thread writes. What lies between is bounded,
whatever the number of clips.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone
from obygaze_features.common.progress import meter
from obygaze_features.errors import ObygazeError
from obygaze_features.extraction.clips import Clip, ClipReader
from obygaze_features.extraction.decoders import PATIENCE, Decoder, Decoders, default_workers
from obygaze_features.extraction.forward import Forward
from obygaze_features.extraction.plan import (
    EVERYTHING,
    Claimed,
    Errand,
    Lane,
    Wanted,
    check_items,
    check_media,
    errands,
    open_lanes,
    store_paths,
)
from obygaze_features.extraction.summary import Summary, Tally, log_run, summarise
from obygaze_features.extraction.writing import Writing
from obygaze_features.manifests import Manifest
from obygaze_features.store import Done, Failed

__all__ = ["extract"]

AHEAD = 16
"""Clips, beside one a decoder, that may be decoded before they are needed."""
HEADROOM = 1.25
"""How much longer than those before it a block may take, when time is short."""


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
    """
    begin = time.monotonic()
    check_items(manifest)
    rows = wanted.rows(manifest)
    is_new = not any(path.exists() for path in store_paths(backbones, output).values())
    if is_new:
        check_media(manifest, rows, videos)
    lanes = open_lanes(manifest, backbones, output)
    todo = errands(lanes, rows, wanted)
    if todo and not is_new:
        check_media(manifest, rows, videos)
    end = math.inf if max_hours is None else begin + 3600 * max_hours
    run = _Run(manifest, lanes, wanted, rows, ClipReader(videos, backbones, cache), batch, end)
    try:
        if todo:
            run.work(todo, workers or default_workers(), patience)
    except BaseException as problem:
        # What was done is noted all the same, if the disk lets it be.
        with contextlib.suppress(OSError, ObygazeError):
            log_run(lanes, run.summary(begin, type(problem).__name__.strip("_")))
        raise
    summary = run.summary(begin, "time" if run.short_of_time else "done")
    if todo:
        log_run(lanes, summary)
    return summary


@dataclass(frozen=True)
class _Task:
    """A clip to read, for the stores that want it."""

    errand: Errand
    row: int

    @property
    def names(self) -> list[str]:
        return [name for name, rows in self.errand.wanted.items() if self.row in rows]

    @property
    def is_last(self) -> bool:
        return self.row == self.errand.rows[-1]


class _Run:
    """One run over the blocks: the reading, the backbones and what has come of a block so far."""

    def __init__(
        self,
        manifest: Manifest,
        lanes: Sequence[Lane],
        wanted: Wanted,
        rows: NDArray[np.intp],
        reader: ClipReader,
        batch: int | None,
        end: float,
    ) -> None:
        self.manifest, self.wanted, self.rows, self.reader = manifest, wanted, rows, reader
        self.lanes = {lane.name: lane for lane in lanes}
        self.forwards = {lane.name: Forward(lane.backbone, batch) for lane in lanes}
        self.tally, self.end, self.short_of_time = Tally(), end, False
        self._begin, self._begun = time.monotonic(), 0
        self._errand: Errand | None = None
        self._waiting: dict[str, list[tuple[int, Clip]]] = {name: [] for name in self.lanes}
        self._outcomes: dict[str, dict[int, Done | Failed]] = {name: {} for name in self.lanes}

    def work(self, todo: list[Errand], workers: int, patience: float) -> None:
        """Do what is to be done, as far as nobody else does and the time reaches."""
        claimed = Claimed(list(self.lanes.values()))
        total = sum(len(errand.rows) for errand in todo)
        with (
            claimed.kept(),
            Writing(self.lanes, claimed.release) as writing,
            contextlib.closing(
                Decoders(workers, patience=patience).map(
                    self._read, self._tasks(claimed, todo), ahead=AHEAD + workers
                )
            ) as clips,
            meter(total, "Extracting", unit="clip") as advance,
        ):
            try:
                self._compute(clips, writing, advance)
            finally:
                # What is computed of a block is kept, also where something stopped it.
                if self._errand and any(self._outcomes.values()):
                    writing.bring(self._errand, self._done())

    def _compute(
        self,
        clips: Iterator[tuple[_Task, Clip | Failed]],
        writing: Writing,
        advance: Callable[[int, str], None],
    ) -> None:
        begin = time.monotonic()
        for task, clip in clips:
            now = time.monotonic()
            self.tally.decode += now - begin
            if now > self.end:
                self.short_of_time = True
                return
            self._errand = task.errand
            before = self._computed()
            self._take(task, clip)
            computed = self._computed() - before
            if task.is_last:
                writing.bring(task.errand, self._done())
            self.tally.device = sum(one.seconds for one in self.forwards.values())
            self.tally.write = writing.waited
            advance(computed, self.tally.words(time.monotonic() - self._begin))
            begin = time.monotonic()

    def _computed(self) -> int:
        """The clips of the block in hand that are through every backbone that wants them."""
        if self._errand is None:
            return 0
        return min(len(self._outcomes[name]) for name in self._errand.wanted)

    def summary(self, begin: float, ended: str) -> Summary:
        """What has come of it, given when it began."""
        batches = {name: one.batch for name, one in self.forwards.items() if one.batch}
        return summarise(
            list(self.lanes.values()),
            self.tally,
            self.rows,
            seconds=time.monotonic() - begin,
            batches=batches,
            ended=ended,
        )

    def _tasks(self, claimed: Claimed, todo: list[Errand]) -> Iterator[_Task]:
        """Go through the blocks, each claimed as it is begun."""
        yield from self._claim(claimed, todo)
        # What others had claimed and gave back, or left when they died.
        once = replace(self.wanted, failed=False)
        yield from self._claim(claimed, errands(list(self.lanes.values()), self.rows, once))

    def _claim(self, claimed: Claimed, todo: list[Errand]) -> Iterator[_Task]:
        for errand in todo:
            if not self._has_time_for(errand):
                self.short_of_time = True
                return
            if mine := claimed.take(errand, self.wanted):
                self._begun += len(mine.rows)
                yield from (_Task(mine, row) for row in mine.rows)

    def _has_time_for(self, errand: Errand) -> bool:
        """Whether a block can be done in time, by how long the clips took so far."""
        now = time.monotonic()
        if not self.tally.clips:
            return now < self.end
        ahead = self._begun - self.tally.clips + len(errand.rows)
        return now + HEADROOM * ahead * (now - self._begin) / self.tally.clips < self.end

    def _read(self, decoder: Decoder, task: _Task) -> Clip | Failed:
        return self.reader.read(decoder, self.manifest.items[task.row], task.names)

    def _take(self, task: _Task, clip: Clip | Failed) -> None:
        """Put a clip where it is wanted, and run the backbones whose batch is full with it."""
        self.tally.clips += 1
        if isinstance(clip, Clip):
            self.tally.frames += clip.decoded
            if clip.why_slow:
                self.tally.slow[clip.why_slow] += 1
        for name in task.names:
            if isinstance(clip, Failed):
                self._outcomes[name][task.row] = clip
            else:
                self._waiting[name].append((task.row, clip.of(name)))
        for name in task.errand.wanted:
            # Batches never cross blocks: a run that goes on forms the same ones.
            if len(self._waiting[name]) >= self.forwards[name].find_batch() or task.is_last:
                self._forward(name)

    def _done(self) -> dict[str, dict[int, Done | Failed]]:
        done = {name: rows for name, rows in self._outcomes.items() if rows}
        self._outcomes = {name: {} for name in self.lanes}
        return done

    def _forward(self, name: str) -> None:
        waiting, self._waiting[name] = self._waiting[name], []
        computed = self.forwards[name]([clip.pixels[name] for _, clip in waiting])
        for (row, clip), values in zip(waiting, computed, strict=True):
            self._outcomes[name][row] = Done({**values, **clip.sampled[name]}, clip.source)
