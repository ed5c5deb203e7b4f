"""Choose the frames of a clip that a backbone sees."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import UsageError

MAX_FRAMES = 64
"""A clip's default maximum of windows of sound, and of frames sampled at a rate."""


@dataclass(frozen=True)
class Sampling:
    """A backbone's rule for choosing frames.

    Parameters
    ----------
    frames
        The number of frames to choose; with a `rate`, the maximum.
    rate
        The frames per second to choose from (default: all frames of the clip). A clip that is too
        short at this rate has fewer than `frames` frames; the rest is padding.

    Examples
    --------
    >>> half_seconds = np.arange(6) / 2
    >>> Sampling(4).pick(half_seconds).tolist()
    [0, 1, 3, 4]
    >>> Sampling(4, rate=1).pick(half_seconds).tolist()
    [0, 2, 4]
    """

    frames: int
    rate: float | None = None

    @property
    def words(self) -> str:
        """A description of the rule, for a store's attributes."""
        if not self.frames:
            return "none, it reads texts"
        if self.rate is None:
            return f"uniform, frame int(i * n / {self.frames})"
        return f"{self.rate:g} a second, of these at most {self.frames} evenly, ends included"

    def at_rate(self, times: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the indices of a clip's frames at `rate`, given the times of all frames."""
        # Choose the first frame at or after each tick; the microsecond allows for rounding.
        ticks = np.arange(0, times[-1] - times[0] + 1e-6, 1 / (self.rate or 1))
        return np.unique(np.searchsorted(times - times[0], ticks - 1e-6)).astype(np.int32)

    def pick(self, times: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the numbers of the frames to use, given the times of all frames of a clip."""
        if self.rate is None:
            return uniform_indices(len(times), self.frames)
        chosen = self.at_rate(times)
        if len(chosen) > self.frames:
            chosen = chosen[np.linspace(0, len(chosen) - 1, self.frames, dtype=int)]
        return chosen

    def row(self, numbers: list[int], times: list[float]) -> dict[str, NDArray[Any]]:
        """Return a clip's ``frame_index`` and ``frame_time``, padded with -1 and NaN."""
        index = np.full(self.frames, -1, np.int32)
        index[: len(numbers)] = numbers
        time = np.full(self.frames, np.nan)
        time[: len(times)] = times
        return {"frame_index": index, "frame_time": time}


def read_sampling(text: str | None, frames: int | None) -> Sampling | None:
    """Parse a sampling such as ``"2 fps"``; return None for the backbone's default.

    `frames` is the maximum number of frames per clip; without a rate, it is the maximum number of
    windows of sound.
    """
    if text is None:
        return Sampling(frames) if frames else None
    match = re.fullmatch(r"(\d*\.?\d+) ?fps", text.strip().lower())
    if not match or not float(match[1]):
        raise UsageError(f"sampling must be a rate such as '2 fps' (got {text})")
    return Sampling(frames or MAX_FRAMES, float(match[1]))


def uniform_indices(n: int, count: int) -> NDArray[np.int32]:
    """Return `count` indices spread evenly over `n` frames: ``int(i * n / count)``.

    If there are fewer than `count` frames, some are repeated.

    >>> uniform_indices(100, 4).tolist()
    [0, 25, 50, 75]
    >>> uniform_indices(2, 4).tolist()
    [0, 0, 1, 1]
    """
    return (np.arange(count, dtype=np.int64) * n // count).astype(np.int32)
