"""What a run has done so far, which backbones broke, and when its time is up."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from dataclasses import dataclass, field

from obygaze_features.errors import BrokenBackbone

logger = logging.getLogger(__name__)

TIME_MARGIN = 1.25
"""How much longer than the average before it a block may take when time is short."""


@dataclass(frozen=True)
class Counts:
    """Counts of the items that were read.

    Parameters
    ----------
    frames
        Frames or images that were read.
    slow
        Why films were decoded from their start, and how many.
    resized_by_cpu
        How many items a GPU had no memory to resize.
    thinned
        How many clips have more frames at the rate than a backbone takes: it saw fewer a second.
    tracks
        Which sound tracks were heard in clips that have several, ``1 of 2 (fra)``, and how many.
    unheard
        How many windows of sound clips have, of which not all were heard, and how many clips.
    cut
        Texts of which only the beginning was read, and their token counts.
    lost
        Why processes of a cluster were lost, and how many.
    """

    frames: int = 0
    slow: Counter[str] = field(default_factory=Counter)
    resized_by_cpu: int = 0
    thinned: int = 0
    tracks: Counter[str] = field(default_factory=Counter)
    unheard: Counter[int] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: count + vars(other)[name] for name, count in vars(self).items()})


@dataclass
class BrokenBackbones:
    """Why backbones were left out of a run of `count`, by name; it goes on while any is left."""

    count: float
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, problem: BrokenBackbone) -> None:
        """Leave out a backbone; raises the error if it is the last."""
        if name in self.reasons:
            return
        self.reasons[name] = str(problem)
        if len(self.reasons) == self.count:
            raise problem
        logger.warning(f"{str(problem).rstrip('.')}. The other backbones go on")


@dataclass
class Progress:
    """How far a run is, and where its time went.

    Parameters
    ----------
    broken
        The backbones that were left out.
    begin, end
        When the run began and when its time is up, by the monotonic clock.
    started, items
        Items that were claimed, and items that were read or could not be.
    passed
        Items that other runs have taken, since the progress bar was told.
    decode, device, write
        Seconds that the run waited for frames, for the device (a CPU computes then) and the disk.
    batches, devices
        The batch size and the device of each backbone.
    waiting_for
        What the run waits for before its first item.
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
    batches: dict[str, int] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    waiting_for: str = ""
    out_of_time: bool = False
    _work_begin: float = math.inf

    def start_work(self) -> None:
        """Note that loading and planning are over."""
        self._work_begin = time.monotonic()

    def count(self, counts: Counts | None) -> None:
        """Count an item that was read, or could not be (None)."""
        self.items += 1
        if counts:
            self.counts += counts

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
            seconds_per_item = (now - self._work_begin) / self.items
            ahead = TIME_MARGIN * (self.started - self.items + items) * seconds_per_item
        has_time = now + ahead < self.end
        self.out_of_time |= not has_time
        return has_time

    def take_passed(self) -> int:
        """Return how many items other runs have taken since the last call."""
        passed, self.passed = self.passed, 0
        return passed

    def shares(self, seconds: float) -> dict[str, float]:
        """Return each stage's share of a time; the rest of it is loading and planning."""
        times = {"decode": self.decode, "device": self.device, "write": self.write}
        times["start"] = max(0.0, seconds - sum(times.values()))
        return {stage: stage_seconds / seconds for stage, stage_seconds in times.items()}

    def note(self) -> str:
        """Describe speed, where the time goes, and the bottleneck, for a line of progress."""
        if not self.items and self.waiting_for:
            return self.waiting_for
        seconds = time.monotonic() - self._work_begin
        shares = self.shares(seconds)
        busy = ", ".join(f"{stage} {shares[stage]:.0%}" for stage in ("decode", "device", "write"))
        bound = max(shares, key=shares.__getitem__)
        frames = self.counts.frames
        speed = f"{frames / seconds:.0f} frames/s, " if frames else ""
        return f"{speed}{busy}, bound by {bound}"
