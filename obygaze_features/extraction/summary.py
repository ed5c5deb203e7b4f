"""What a run did: done, failed and why, how fast, and what bounds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.extraction.clips import Clip
from obygaze_features.extraction.plan import Lane
from obygaze_features.store import Failed, Status, open_store
from obygaze_features.store.writer import append_to_log

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
    slow
        Why files had to be decoded in order from their start, and how many.
    decode, device, write
        Seconds that the run waited for frames, was at work on the device, and waited for the disk.
    lost
        Why processes of a cluster were lost, and how many; what they were at was done by others.
    cut
        Texts that are longer than what is read of them, and their tokens.
    """

    clips: int = 0
    frames: int = 0
    slow: Counter[str] = field(default_factory=Counter)
    decode: float = 0.0
    device: float = 0.0
    write: float = 0.0
    lost: Counter[str] = field(default_factory=Counter)
    cut: dict[str, int] = field(default_factory=dict)

    def count(self, clip: Clip | Failed) -> None:
        """Count a clip that was read, or could not be."""
        self.clips += 1
        if isinstance(clip, Clip):
            self.frames += clip.decoded
            if clip.why_slow:
                self.slow[clip.why_slow] += 1

    def shares(self, seconds: float) -> dict[str, float]:
        """The parts of a time; what is none of the three is the start and the planning."""
        times = {"decode": self.decode, "device": self.device, "write": self.write}
        times["start"] = max(0.0, seconds - sum(times.values()))
        return {stage: taken / seconds for stage, taken in times.items()}

    def words(self, seconds: float) -> str:
        """How things go, for a progress bar."""
        shares = self.shares(seconds)
        bound = max(shares, key=lambda stage: shares[stage])
        busy = f"device {shares['device']:.0%} busy"
        return f"{self.frames / seconds:.0f} frames/s, {busy}, bound by {bound}"


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
    wanted
        How many clips it was asked for, done before or not.
    done
        How many of these are now done in every store.
    left
        How many of them are still to do: time was up, or others are at work on them.
    failed
        ``missing``, ``unreadable`` or ``not_finite`` -> id -> reason, of the clips asked for.
    slow
        Why files had to be decoded in order from their start, and how many.
    lost
        Why processes of a cluster were lost, and how many.
    cut
        Texts of which this run read only the beginning, and how many tokens they have.
    seconds
        How long the run took.
    shares
        ``decode``, ``device``, ``write`` and ``start``: the share of that time in which the run
        waited for frames, was at work on the device, waited for the disk, and got ready.
    batches
        Clips in a batch, for each backbone: fewer than at first where memory ran out.
    bytes
        What each store takes.
    ended
        ``done``; ``time`` where ``max_hours`` left something to do; or the error's name.
    """

    stores: list[Path]
    wanted: int
    clips: int
    frames: int
    done: int
    left: int
    failed: dict[str, dict[str, str]]
    slow: dict[str, int]
    lost: dict[str, int]
    cut: dict[str, int]
    seconds: float
    shares: dict[str, float]
    batches: dict[str, int]
    bytes: dict[str, int]
    ended: str

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
            "wanted": self.wanted,
            "clips": self.clips,
            "frames": self.frames,
            "done": self.done,
            "left": self.left,
            "failed": self.failed,
            "slow": self.slow,
            "lost": self.lost,
            "cut": self.cut,
            "seconds": round(self.seconds, 3),
            "clips_a_second": round(self.clips_a_second, 3),
            "frames_a_second": round(self.frames_a_second, 3),
            "shares": {stage: round(share, 3) for stage, share in self.shares.items()},
            "bound_by": self.bound_by,
            "batches": self.batches,
            "bytes": self.bytes,
            "ended": self.ended,
        }


def summarise(
    lanes: Sequence[Lane],
    tally: Tally,
    rows: NDArray[np.intp],
    *,
    seconds: float,
    batches: dict[str, int],
    ended: str,
) -> Summary:
    """The summary of a run over some rows, by what its stores hold now."""
    stores = [open_store(lane.path) for lane in lanes]
    failed: dict[str, dict[str, str]] = {}
    for store in stores:
        for row in rows[store.status[rows] > Status.DONE].tolist():
            kind = Status(store.status[row]).name.lower()
            failed.setdefault(kind, {})[store.ids[row]] = store.failures[store.ids[row]]
    status = np.array([store.status[rows] for store in stores])
    left = int((status == Status.TODO).any(axis=0).sum())
    return Summary(
        stores=[store.path for store in stores],
        wanted=len(rows),
        clips=tally.clips,
        frames=tally.frames,
        done=int((status == Status.DONE).all(axis=0).sum()),
        left=left,
        failed=failed,
        slow=dict(tally.slow),
        lost=dict(tally.lost),
        cut=dict(tally.cut),
        seconds=seconds,
        shares=tally.shares(seconds),
        batches=batches,
        bytes={
            lane.name: int((store.status == Status.DONE).sum())
            * sum(one.row_bytes for one in store.specs)
            for lane, store in zip(lanes, stores, strict=True)
        },
        ended="done" if ended == "time" and not left else ended,
    )


def log_run(lanes: Sequence[Lane], summary: Summary, devices: Mapping[str, str]) -> None:
    """Note a run in each store's log, and with all its failures in ``log.jsonl`` beside them."""
    packages = {name: version(name) for name in ("av", "torch", "transformers")}
    told = summary.to_json()
    brief = {key: told[key] for key in ("clips", "seconds", "shares")}
    for lane in lanes:
        lane.writer.log("extracted", device=devices[lane.name], **packages, **brief)
    folder = lanes[0].path.parent
    append_to_log(folder, "extracted", devices=dict(devices), **packages, **told)
