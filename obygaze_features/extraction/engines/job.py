"""What an engine is to do, and what has come of it: the same for each of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone, Towers
from obygaze_features.extraction.plan import Claimed, Errand, Lane, Wanted, errands
from obygaze_features.extraction.summary import Summary, Tally, summarise
from obygaze_features.manifests import Manifest

__all__ = ["Job"]

HEADROOM = 1.25
"""How much longer than those before it a block may take, when time is short."""


@dataclass
class Job:
    """One run over the blocks of some stores.

    Parameters
    ----------
    manifest, videos, wanted, batch, workers, patience, cache
        As in `fill`.
    lanes
        The backbones and their stores, by name.
    rows
        The clips that are asked for, done or not.
    todo
        The blocks that any store lacked when the run began.
    begin, end
        When it began, and when its time is up.
    tally
        What came of it so far.
    batches
        Clips in a batch, by backbone, as far as that is known.
    devices
        Where each backbone computes.
    short_of_time
        Whether something was left for want of time.
    """

    manifest: Manifest
    videos: Path
    wanted: Wanted
    batch: int | None
    workers: int | None
    patience: float
    cache: Path | None
    lanes: dict[str, Lane]
    rows: NDArray[np.intp]
    todo: list[Errand]
    begin: float
    end: float
    tally: Tally = field(default_factory=Tally)
    batches: dict[str, int] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    short_of_time: bool = False
    _begun: int = 0
    _work: float = 0.0

    def __post_init__(self) -> None:
        self.devices = {name: lane.backbone.device for name, lane in self.lanes.items()}

    @property
    def backbones(self) -> list[Backbone]:
        """What computes on clips."""
        found = [lane.backbone for lane in self.lanes.values()]
        return [one for one in found if isinstance(one, Backbone)]

    @property
    def towers(self) -> list[Towers]:
        """What computes on images and texts."""
        found = [lane.backbone for lane in self.lanes.values()]
        return [one for one in found if isinstance(one, Towers)]

    def errands(self, claimed: Claimed) -> Iterator[Errand]:
        """Go through the blocks as far as time reaches, each claimed as it is asked for."""
        self._work = time.monotonic()
        yield from self._claim(claimed, self.todo)
        # What others had claimed and gave back, or left when they died.
        once = replace(self.wanted, failed=False)
        yield from self._claim(claimed, errands(list(self.lanes.values()), self.rows, once))

    def is_over(self) -> bool:
        """Whether the time is up."""
        over = time.monotonic() > self.end
        self.short_of_time |= over
        return over

    def words(self) -> str:
        """How things go, for a progress bar."""
        return self.tally.words(time.monotonic() - self._work)

    def summary(self, ended: str) -> Summary:
        """What has come of it."""
        return summarise(
            list(self.lanes.values()),
            self.tally,
            self.rows,
            seconds=time.monotonic() - self.begin,
            batches=self.batches,
            ended=ended,
        )

    def _claim(self, claimed: Claimed, todo: list[Errand]) -> Iterator[Errand]:
        for errand in todo:
            if not self._has_time_for(errand):
                self.short_of_time = True
                return
            if mine := claimed.take(errand, self.wanted):
                self._begun += len(mine.rows)
                yield mine

    def _has_time_for(self, errand: Errand) -> bool:
        """Whether a block can be done in time, by how long the clips took so far."""
        now = time.monotonic()
        if not self.tally.clips:
            return now < self.end
        ahead = self._begun - self.tally.clips + len(errand.rows)
        return now + HEADROOM * ahead * (now - self._work) / self.tally.clips < self.end
