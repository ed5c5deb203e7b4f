"""The progress of a run, the backbones that broke, and its summary."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.errors import BrokenBackbone
from obygaze_features.extraction.job import Job, Rows
from obygaze_features.store import Status, Store, StoreWriter
from obygaze_features.store.writer import append_to_log

logger = logging.getLogger(__name__)

TIME_MARGIN = 1.25
"""The factor by which a block may exceed the average time when time is short."""


@dataclass(frozen=True)
class Counts:
    """Counts of the items that were read.

    Parameters
    ----------
    frames
        Frames or images that were read.
    slow
        The number of films decoded from their start, by reason.
    resized_by_cpu
        The number of items that a GPU had no memory to resize.
    thinned
        The number of clips with more frames at the rate than a backbone takes, sampled evenly.
    tracks
        The sound tracks heard in clips with several, ``1 of 2 (fra)``, and their numbers.
    silent
        The number of clips with a silent sound track.
    unheard
        The number of windows of sound in clips that were not fully heard, and the number of clips.
    cut
        The texts of which only the beginning was read, and their token counts.
    lost
        The number of lost processes of a cluster, by reason.
    """

    frames: int = 0
    slow: Counter[str] = field(default_factory=Counter)
    resized_by_cpu: int = 0
    thinned: int = 0
    silent: int = 0
    tracks: Counter[str] = field(default_factory=Counter)
    unheard: Counter[int] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: count + vars(other)[name] for name, count in vars(self).items()})


@dataclass
class BrokenBackbones:
    """The reasons why backbones were left out of a run of `count`, by name.

    The run goes on while any backbone is left.
    """

    count: float
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, problem: BrokenBackbone) -> None:
        """Leave out a backbone; raise the error if it is the last."""
        if name in self.reasons:
            return
        self.reasons[name] = str(problem)
        if len(self.reasons) == self.count:
            raise problem
        logger.warning(f"{str(problem).rstrip('.')}. The other backbones go on")


@dataclass
class Progress:
    """The progress of a run, and where its time went.

    Parameters
    ----------
    broken
        The backbones that were left out.
    begin, work_begin, end
        The start of the run, the end of loading and planning, and the time limit, by the monotonic
        clock.
    started, items
        The items that were claimed, and those that were read or failed.
    passed
        Items that other runs have taken since the progress bar was last updated.
    decode, device, write
        Seconds that the run waited for frames, for the device (a CPU computes then) and the disk.
    read_ahead_bytes
        The most memory of the devices that items read ahead may take.
    batches, devices
        The batch size and the device of each backbone.
    waiting_for
        The reason why the run waits before its first item.
    """

    broken: BrokenBackbones
    begin: float = field(default_factory=lambda: time.monotonic())
    end: float = math.inf
    started: int = 0
    items: int = 0
    passed: int = 0
    counts: Counts = field(default_factory=Counts)
    decode: float = 0.0
    device: float = 0.0
    write: float = 0.0
    read_ahead_bytes: int = 0
    batches: dict[str, int] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    waiting_for: str = ""
    out_of_time: bool = False
    work_begin: float = math.inf

    def is_over(self) -> bool:
        """Return True if the time is up."""
        is_over = time.monotonic() > self.end
        self.out_of_time |= is_over
        return is_over

    def has_time_for(self, items: int) -> bool:
        """Return True if more items can be done in time, at the average speed so far."""
        now = time.monotonic()
        ahead = 0.0
        if self.items:
            seconds_per_item = (now - self.work_begin) / self.items
            ahead = TIME_MARGIN * (self.started - self.items + items) * seconds_per_item
        has_time = now + ahead < self.end
        self.out_of_time |= not has_time
        return has_time

    def shares(self, seconds: float) -> dict[str, float]:
        """Return each stage's share of a time; the rest is loading and planning."""
        times = {"decode": self.decode, "device": self.device, "write": self.write}
        times["start"] = max(0.0, seconds - sum(times.values()))
        return {stage: stage_seconds / seconds for stage, stage_seconds in times.items()}

    def note(self) -> str:
        """Describe speed, stages and the bottleneck, for a line of progress."""
        if not self.items and self.waiting_for:
            return self.waiting_for
        seconds = time.monotonic() - self.work_begin
        shares = self.shares(seconds)
        busy = ", ".join(f"{stage} {shares[stage]:.0%}" for stage in ("decode", "device", "write"))
        bound = max(shares, key=shares.__getitem__)
        frames = self.counts.frames
        speed = f"{frames / seconds:.0f} frames/s, " if frames else ""
        return f"{speed}{busy}, bound by {bound}"


@dataclass(frozen=True, kw_only=True)
class Summary(Counts):
    """The results of an extraction, and facts about the items that it read.

    Parameters
    ----------
    stores
        The stores' paths.
    wanted
        The selected items, done before or not.
    clips
        The items that this run processed.
    done, done_in, left
        Selected items that are done in every store, in each store by name, and still to do: time
        was up, or other runs have them.
    failed
        ``missing``, ``unreadable`` or ``not_finite`` -> id -> reason, for selected items, with the
        names of the stores if not all have it.
    shares
        ``decode``, ``device``, ``write`` and ``start``: the share of `seconds` in which the run
        waited for frames, for the device and for the disk, and loaded and planned. A GPU computes
        while the run waits for frames, too.
    read_ahead_bytes
        The memory of the devices that items read ahead could take: a share of the free memory.
    batches, bytes
        The batch size of each backbone, after any halving; the size of each store.
    ended
        ``done``; ``time`` if ``max_hours`` left something to do; or the error's name.
    broken
        The reasons why backbones were left out, by name; their stores are not counted above.
    """

    stores: list[Path]
    wanted: int
    clips: int
    done: int
    done_in: dict[str, int]
    left: int
    failed: dict[str, dict[str, str]]
    seconds: float
    shares: dict[str, float]
    read_ahead_bytes: int
    batches: dict[str, int]
    bytes: dict[str, int]
    ended: str
    broken: dict[str, str]

    @property
    def clips_a_second(self) -> float:
        """The items per second."""
        return self.clips / self.seconds

    @property
    def frames_a_second(self) -> float:
        """The frames per second."""
        return self.frames / self.seconds

    @property
    def bound_by(self) -> str:
        """The stage that took longest."""
        return max(self.shares, key=lambda stage: self.shares[stage])

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, with the rates."""
        return {
            **vars(self),
            "stores": [str(path) for path in self.stores],
            "seconds": round(self.seconds, 3),
            "clips_a_second": round(self.clips_a_second, 3),
            "frames_a_second": round(self.frames_a_second, 3),
            "shares": {stage: round(share, 3) for stage, share in self.shares.items()},
            "bound_by": self.bound_by,
        }


def summarise(
    job: Job, writers: Mapping[str, StoreWriter], progress: Progress, ended: str
) -> Summary:
    """Summarise a run, from the current content of its stores."""
    rows, seconds = job.rows, time.monotonic() - progress.begin
    broken = progress.broken.reasons
    names = [name for name in writers if name not in broken] or list(writers)
    stores = {name: writers[name].store.refresh() for name in names}
    status = np.array([store.status[rows] for store in stores.values()])
    is_done = status == Status.DONE
    left = int((status == Status.TODO).any(axis=0).sum())
    return Summary(
        **vars(progress.counts),
        stores=[store.path for store in stores.values()],
        wanted=len(rows),
        clips=progress.items,
        done=int(is_done.all(axis=0).sum()),
        done_in=dict(zip(stores, is_done.sum(axis=1).tolist(), strict=True)),
        left=left,
        failed=_describe_failures(stores, rows),
        seconds=seconds,
        shares=progress.shares(seconds),
        read_ahead_bytes=progress.read_ahead_bytes,
        batches=progress.batches,
        bytes={
            name: int((store.status == Status.DONE).sum())
            * sum(spec.row_bytes for spec in store.specs)
            for name, store in stores.items()
        },
        ended="done" if ended == "time" and not left else ended,
        broken=broken,
    )


def _describe_failures(stores: Mapping[str, Store], rows: Rows) -> dict[str, dict[str, str]]:
    """Return reasons by kind of failure and id, with the store's name if not all have them."""
    names_of: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, store in stores.items():
        for row in rows[store.status[rows] > Status.DONE].tolist():
            kind, item = Status(store.status[row]).name.lower(), store.ids[row]
            names_of[kind, item, store.failures[item]].append(name)
    failed: dict[str, dict[str, str]] = defaultdict(dict)
    for (kind, item, reason), names in names_of.items():
        text = reason if len(names) == len(stores) else f"{reason} ({', '.join(names)})"
        failed[kind][item] = "; ".join(filter(None, (failed[kind].get(item), text)))
    return dict(failed)


def log_run(summary: Summary, writers: Mapping[str, StoreWriter], devices: dict[str, str]) -> None:
    """Append a run to each store's log, and with all failures to ``log.jsonl`` beside them."""
    packages = {name: version(name) for name in ("av", "torch", "transformers")}
    fields = summary.to_json()
    brief = {key: fields[key] for key in ("clips", "seconds", "shares")}
    for name, writer in writers.items():
        writer.log("extracted", device=devices[name], **packages, **brief)
        folder = writer.store.path.parent
    append_to_log(folder, "extracted", devices=devices, **packages, **fields)
