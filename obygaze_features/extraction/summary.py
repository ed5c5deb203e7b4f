"""The progress of a run, and its summary."""

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

from obygaze_features.extraction.job import Job, Rows
from obygaze_features.extraction.reader import ReadItem
from obygaze_features.store import Failed, Status, Store, StoreWriter
from obygaze_features.store.writer import append_to_log

logger = logging.getLogger(__name__)

TIME_MARGIN = 1.25
"""The allowance for a slow block, as a multiple of the average, when deciding if there is time."""


@dataclass
class Progress:
    """The progress of a run, and how it spent its time.

    Parameters
    ----------
    begin, work_begin, end
        The start of the run, the end of loading and planning, and the time limit, by the monotonic
        clock.
    started, items, frames
        The number of items that were started, the number of items that were read or failed, and the
        number of frames or images that were read.
    notes
        Sentences about items, and the number of items of each.
    decode, device, write
        The seconds spent waiting for frames, for the device (on a CPU, computing), and for the
        disk.
    batches, devices
        The batch size and the device of each backbone.
    """

    begin: float = field(default_factory=lambda: time.monotonic())
    end: float = math.inf
    started: int = 0
    items: int = 0
    frames: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    decode: float = 0.0
    device: float = 0.0
    write: float = 0.0
    batches: dict[str, int] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    out_of_time: bool = False
    work_begin: float = math.inf

    def count(self, item: ReadItem | Failed) -> None:
        """Count an item that was read or failed."""
        self.items += 1
        if not isinstance(item, Failed):
            self.frames += item.frames
            self.notes.update(item.notes)

    def is_over(self) -> bool:
        """Return True if the time is up."""
        is_over = time.monotonic() > self.end
        self.out_of_time |= is_over
        return is_over

    def has_time_for(self, items: int) -> bool:
        """Return True if this many more items can be done in time at the average speed so far."""
        now = time.monotonic()
        ahead = 0.0
        if self.items:
            seconds_per_item = (now - self.work_begin) / self.items
            ahead = TIME_MARGIN * (self.started - self.items + items) * seconds_per_item
        has_time = now + ahead < self.end
        self.out_of_time |= not has_time
        return has_time

    def add(self, part: Progress, at_a_time: int) -> None:
        """Add the progress of a part of the work, of which several are done at a time."""
        self.items += part.items
        self.frames += part.frames
        self.notes += part.notes
        self.decode += part.decode / at_a_time
        self.device += part.device / at_a_time
        self.write += part.write / at_a_time
        self.batches |= part.batches
        self.devices |= part.devices
        self.out_of_time |= part.out_of_time

    def shares(self, seconds: float) -> dict[str, float]:
        """Return each stage's share of a total time; loading and planning take the rest."""
        times = {"decode": self.decode, "device": self.device, "write": self.write}
        times["start"] = max(0.0, seconds - sum(times.values()))
        return {stage: stage_seconds / seconds for stage, stage_seconds in times.items()}

    def note(self) -> str:
        """Describe the speed, the stages and the bottleneck for the progress line."""
        seconds = time.monotonic() - self.work_begin
        shares = self.shares(seconds)
        busy = ", ".join(f"{stage} {shares[stage]:.0%}" for stage in ("decode", "device", "write"))
        bound = max(shares, key=shares.__getitem__)
        return f"{self.frames / seconds:.0f} frames/s, {busy}, bound by {bound}"


@dataclass(frozen=True)
class Summary:
    """The result of an extraction.

    Parameters
    ----------
    stores
        The paths of the stores.
    wanted
        The number of selected items, including those that were already done.
    clips, frames
        The number of items that this run processed, and the number of frames or images in them.
    notes
        Sentences about items, such as "silent sound track", and the number of items of each.
    done, done_in, left
        The number of selected items done in every store, the number done in each store (by name),
        and the number left because time was up.
    failed
        The reasons why selected items failed, by kind (``missing``, ``unreadable`` or
        ``not_finite``) and id. A reason names the stores unless it applies to all of them.
    shares
        The shares of `seconds` that the run spent waiting for frames (``decode``), for the device
        (``device``) and for the disk (``write``), and on loading and planning (``start``). A GPU
        also computes while the run waits for frames.
    batches, bytes
        The batch size of each backbone after any halving, and the size of each store.
    ended
        ``done``; ``time`` if ``max_hours`` ended the run early; or the name of an error.
    """

    stores: list[Path]
    wanted: int
    clips: int
    frames: int
    notes: Mapping[str, int]
    done: int
    done_in: dict[str, int]
    left: int
    failed: dict[str, dict[str, str]]
    seconds: float
    shares: dict[str, float]
    batches: dict[str, int]
    bytes: dict[str, int]
    ended: str

    @property
    def clips_a_second(self) -> float:
        """The number of items per second."""
        return self.clips / self.seconds

    @property
    def frames_a_second(self) -> float:
        """The number of frames per second."""
        return self.frames / self.seconds

    @property
    def bound_by(self) -> str:
        """The stage that took longest."""
        return max(self.shares, key=lambda stage: self.shares[stage])

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON values, including the rates."""
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
    """Summarise a run, counting the rows that are in its stores now."""
    rows = job.rows
    seconds = time.monotonic() - progress.begin
    stores = {name: writer.store.refresh() for name, writer in writers.items()}
    status = np.array([store.status[rows] for store in stores.values()])
    is_done = status == Status.DONE
    left = int((status == Status.TODO).any(axis=0).sum())
    if ended == "time" and not left:
        ended = "done"
    sizes = {}
    for name, store in stores.items():
        row_bytes = sum(spec.row_bytes for spec in store.specs)
        sizes[name] = row_bytes * int((store.status == Status.DONE).sum())
    return Summary(
        stores=[store.path for store in stores.values()],
        wanted=len(rows),
        clips=progress.items,
        frames=progress.frames,
        notes=dict(progress.notes),
        done=int(is_done.all(axis=0).sum()),
        done_in=dict(zip(stores, is_done.sum(axis=1).tolist(), strict=True)),
        left=left,
        failed=_describe_failures(stores, rows),
        seconds=seconds,
        shares=progress.shares(seconds),
        batches=progress.batches,
        bytes=sizes,
        ended=ended,
    )


def _describe_failures(stores: Mapping[str, Store], rows: Rows) -> dict[str, dict[str, str]]:
    """Return the reasons by kind of failure and id, naming the stores if not all are affected."""
    names_of: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, store in stores.items():
        for row in rows[store.status[rows] > Status.DONE].tolist():
            kind = Status(store.status[row]).name.lower()
            item = store.ids[row]
            names_of[kind, item, store.failures[item]].append(name)
    failed: dict[str, dict[str, str]] = defaultdict(dict)
    for (kind, item, reason), names in names_of.items():
        if len(names) < len(stores):
            reason += f" ({', '.join(names)})"
        if item in failed[kind]:
            reason = f"{failed[kind][item]}; {reason}"
        failed[kind][item] = reason
    return dict(failed)


def log_run(summary: Summary, writers: Mapping[str, StoreWriter], devices: dict[str, str]) -> None:
    """Append a run to each store's log and, with all failures, to the folder's ``log.jsonl``."""
    packages = {name: version(name) for name in ("av", "torch", "transformers")}
    fields = summary.to_json()
    brief = {key: fields[key] for key in ("clips", "seconds", "shares")}
    for name, writer in writers.items():
        path = writer.store.path
        append_to_log(path, "extracted", device=devices[name], **packages, **brief)
    append_to_log(path.parent, "extracted", devices=devices, **packages, **fields)
