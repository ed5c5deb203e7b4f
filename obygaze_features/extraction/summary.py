"""What a run did: done, failed and why, how fast, and what bounds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from obygaze_features.extraction.plan import Lane
from obygaze_features.store import Status, open_store
from obygaze_features.store.layout import append_to_log

__all__ = ["Summary", "Tally", "log_run", "summarise"]


@dataclass
class Tally:
    """What is counted while a run goes on.

    Parameters
    ----------
    clips
        Clips that were worked on, readable or not.
    frames
        Frames that were made into pictures.
    decode, device, write
        Seconds that the run waited for frames, was at work on the device, and waited for the disk.
    """

    clips: int = 0
    frames: int = 0
    decode: float = 0.0
    device: float = 0.0
    write: float = 0.0

    def shares(self, seconds: float) -> dict[str, float]:
        """The parts of a time."""
        times = {"decode": self.decode, "device": self.device, "write": self.write}
        return {stage: taken / seconds for stage, taken in times.items()}

    def words(self, seconds: float) -> str:
        """How things go, for a progress bar."""
        return f"{self.frames / seconds:.0f} frames/s, device {self.device / seconds:.0%} busy"


@dataclass(frozen=True)
class Summary:
    """What an extraction did.

    Parameters
    ----------
    stores
        Where they lie.
    clips, frames
        How many clips this run worked on, and how many frames of them it decoded; what was there
        before is not counted.
    done
        How many of the manifest's items are now done in every store.
    left
        How many that this run was to do are still to do: time was up, or others are at work on
        them.
    failed
        ``missing``, ``unreadable`` or ``not_finite`` -> id -> reason, over the whole stores.
    seconds
        How long the run took.
    shares
        ``decode``, ``device`` and ``write``: the share of that time in which the run waited for
        frames, was at work on the device, and waited for the disk.
    batches
        Clips in a batch, for each backbone: fewer than at first where memory ran out.
    bytes
        What each store takes.
    out_of_time
        Whether ``max_hours`` ended it.
    """

    stores: list[Path]
    clips: int
    frames: int
    done: int
    left: int
    failed: dict[str, dict[str, str]]
    seconds: float
    shares: dict[str, float]
    batches: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    out_of_time: bool = False

    @property
    def clips_a_second(self) -> float:
        """Speed of this run."""
        return self.clips / self.seconds

    @property
    def frames_a_second(self) -> float:
        """Speed of this run, in decoded frames."""
        return self.frames / self.seconds

    @property
    def bound_by(self) -> str:
        """The stage that took most of the time: a faster one would make the run faster."""
        return max(self.shares, key=lambda stage: self.shares[stage])

    def to_json(self) -> dict[str, Any]:
        """As plain values, with the rates."""
        return {
            "stores": [str(path) for path in self.stores],
            "clips": self.clips,
            "frames": self.frames,
            "done": self.done,
            "left": self.left,
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
            "clips_a_second": round(self.clips_a_second, 3),
            "frames_a_second": round(self.frames_a_second, 3),
            "shares": {stage: round(share, 3) for stage, share in self.shares.items()},
            "bound_by": self.bound_by,
            "batches": self.batches,
            "bytes": self.bytes,
            "out_of_time": self.out_of_time,
        }


def summarise(
    lanes: Sequence[Lane], tally: Tally, *, left: int, seconds: float, **more: Any
) -> Summary:
    """The summary of a run that has ended, by what its stores hold now."""
    stores = [open_store(lane.path) for lane in lanes]
    failed: dict[str, dict[str, str]] = {}
    for store in stores:
        for row in (store.status > Status.DONE).nonzero()[0]:
            kind = Status(store.status[row]).name.lower()
            failed.setdefault(kind, {})[store.ids[row]] = store.failures[store.ids[row]]
    done = [set((store.status == Status.DONE).nonzero()[0].tolist()) for store in stores]
    return Summary(
        stores=[store.path for store in stores],
        clips=tally.clips,
        frames=tally.frames,
        done=len(set.intersection(*done)),
        left=left,
        failed=failed,
        seconds=seconds,
        shares=tally.shares(seconds),
        bytes={
            lane.name: len(rows) * sum(one.bytes_a_row for one in store.specs)
            for lane, store, rows in zip(lanes, stores, done, strict=True)
        },
        **more,
    )


def log_run(lanes: Sequence[Lane], summary: Summary) -> None:
    """Note a run in each store's log, and with all its failures in ``log.jsonl`` beside them."""
    packages = {name: version(name) for name in ("av", "torch", "transformers")}
    told = summary.to_json()
    brief = {key: told[key] for key in ("clips", "seconds", "shares")}
    for lane in lanes:
        lane.writer.log("extracted", device=lane.backbone.device, **packages, **brief)
    folder = lanes[0].path.parent
    devices = {lane.name: lane.backbone.device for lane in lanes}
    append_to_log(folder, "extracted", devices=devices, **packages, **told)
