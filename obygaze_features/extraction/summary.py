"""What a run did: done, failed and why, how fast, and its bottleneck."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.extraction.job import Job, Rows
from obygaze_features.extraction.progress import Counts, Progress
from obygaze_features.store import Status, Store, StoreWriter
from obygaze_features.store.writer import append_to_log


@dataclass(frozen=True, kw_only=True)
class Summary(Counts):
    """What an extraction did, and what is told of the items that it read.

    Parameters
    ----------
    stores
        The stores' paths.
    wanted
        Items selected, done before or not.
    clips
        Items that this run processed.
    done, done_in, left
        Selected items that are done in every store, in each by its name, and those still to do:
        time was up, or other runs have them.
    failed
        ``missing``, ``unreadable`` or ``not_finite`` -> id -> reason, of the selected items; with
        the names of the stores that it is of, if not of all.
    shares
        ``decode``, ``device``, ``write`` and ``start``: the share of `seconds` in which the run
        waited for frames, for the device and for the disk, and loaded and planned. A GPU computes
        while the run waits for frames, too.
    batches, bytes
        The batch size of each backbone, after any halving; the size of each store.
    ended
        ``done``; ``time`` if ``max_hours`` left something to do; or the error's name.
    broken
        Why backbones were left out, by name; their stores are not counted above.
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
    batches: dict[str, int]
    bytes: dict[str, int]
    ended: str
    broken: dict[str, str]

    @property
    def clips_a_second(self) -> float:
        """Items a second."""
        return self.clips / self.seconds

    @property
    def frames_a_second(self) -> float:
        """Frames a second."""
        return self.frames / self.seconds

    @property
    def bound_by(self) -> str:
        """The stage that took longest."""
        return max(self.shares, key=lambda stage: self.shares[stage])

    def to_json(self) -> dict[str, Any]:
        """As JSON values, with the rates."""
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
    """Summarise a run, from what its stores hold now."""
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
    """The kind of failure -> id -> reason, with the names of its stores if not all have it."""
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
