"""The summary of a run, which grows while it runs."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.extraction.job import Job
from obygaze_features.store import Status, Store, StoreWriter
from obygaze_features.store.rows import Rows
from obygaze_features.store.writer import append_to_log

STAGES = ("decode", "device", "write", "start")
"""The stages of a run: waiting for frames, the device and the disk, and loading and planning."""


@dataclass
class Summary:
    """The result of an extraction; while it runs, its progress.

    Parameters
    ----------
    stores
        The paths of the stores.
    wanted
        The number of selected items, including those that were already done.
    clips, frames
        The number of items that this run processed, and of frames or images that it read.
    notes
        Notes on items, such as "silent sound track", and the number of items with each.
    done, done_in
        The number of selected items done in every store, and in each store, by name.
    to_do
        The number of selected items still to do in any store; above 0 only if the run failed, or
        other processes wrote to the same blocks at the same time.
    failed
        The reasons why selected items failed in any store, by kind (``missing``, ``unreadable`` or
        ``not_finite``) and id.
    seconds, shares
        The duration of the run, and the shares of it that the run spent waiting for frames
        (``decode``), for the device (``device``) and for the disk (``write``), and on loading and
        planning (``start``). A GPU also computes while the run waits for frames.
    batches, devices
        The batch size of each backbone after any halving, and its device.
    """

    stores: list[Path] = field(default_factory=list)
    wanted: int = 0
    clips: int = 0
    frames: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    done: int = 0
    done_in: dict[str, int] = field(default_factory=dict)
    to_do: int = 0
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: float = 0.0
    shares: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    batches: dict[str, int] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic, repr=False)

    def lap(self, stage: str) -> None:
        """Count the time since the last lap, or since the start, for a stage."""
        spent = {name: share * self.seconds for name, share in self.shares.items()}
        total = time.monotonic() - self._began
        spent[stage] += total - self.seconds
        self.seconds = total
        self.shares = {name: seconds / total for name, seconds in spent.items()}

    def add(self, part: Summary) -> None:
        """Add the work of another process, except its time, which that process logs."""
        self.clips += part.clips
        self.frames += part.frames
        self.notes.update(part.notes)
        self.batches |= part.batches
        self.devices |= part.devices

    def note(self) -> str:
        """Describe the speed and the stages for the progress line."""
        speed = self.frames / (self.seconds * (1 - self.shares["start"]))
        busy = ", ".join(f"{stage} {share:.0%}" for stage, share in self.shares.items())
        return f"{speed:.0f} frames/s, {busy}"

    def count(self, job: Job, writers: Mapping[str, StoreWriter]) -> None:
        """Count the rows that are in a job's stores now."""
        rows = job.rows
        stores = {name: writer.store.refresh() for name, writer in writers.items()}
        status = np.array([store.status[rows] for store in stores.values()])
        is_done = status == Status.DONE
        self.stores = [store.path for store in stores.values()]
        self.wanted = len(rows)
        self.done = int(is_done.all(axis=0).sum())
        self.done_in = dict(zip(stores, is_done.sum(axis=1).tolist(), strict=True))
        self.to_do = int((status == Status.TODO).any(axis=0).sum())
        self.failed = _find_failures(stores, rows)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        facts = {**vars(self), "stores": [str(path) for path in self.stores]}
        del facts["_began"]
        return facts


def _find_failures(stores: Mapping[str, Store], rows: Rows) -> dict[str, dict[str, str]]:
    """Return a reason for each item that failed in any store, by kind of failure and id."""
    failed: dict[str, dict[str, str]] = defaultdict(dict)
    for store in stores.values():
        for row in rows[store.status[rows] > Status.DONE].tolist():
            failure = Status(store.status[row]).name.lower()
            id_ = store.ids[row]
            failed[failure].setdefault(id_, store.failures[id_])
    return dict(failed)


def log_run(summary: Summary) -> None:
    """Append a run to each store's log and, with all failures, to the folder's ``log.jsonl``."""
    packages = {name: version(name) for name in ("av", "torch", "transformers")}
    spent = {"clips": summary.clips, "seconds": summary.seconds, "shares": summary.shares}
    for path, device in zip(summary.stores, summary.devices.values(), strict=True):
        append_to_log(path, "extracted", device=device, **packages, **spent)
    append_to_log(path.parent, "extracted", **packages, **summary.to_json())
