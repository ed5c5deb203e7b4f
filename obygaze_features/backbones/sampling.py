"""Choose the frames of a clip that a backbone sees."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import UsageError

MAX_FRAMES = 64
"""The default maximum number of frames per clip when frames are sampled at a rate."""


@dataclass(frozen=True)
class Sampling:
    """A backbone's rule for choosing frames.

    Parameters
    ----------
    frames
        The number of frames to choose.
    rate
        The frames per second to choose from (default: all frames of the clip). A clip that is too
        short at this rate has fewer than `frames` frames; the rest is padding.
    window, stride
        The number of frames per window, and the number of frames between the starts of consecutive
        windows, for networks that take clips in windows. The last window ends with the clip.

    Examples
    --------
    >>> half_seconds = np.arange(6) / 2
    >>> Sampling(4).pick(half_seconds).tolist()
    [0, 1, 3, 4]
    >>> Sampling(4, rate=1).pick(half_seconds).tolist()
    [0, 2, 4]
    >>> Sampling(64, 2, window=16, stride=8).windows(36)
    [(0, 16), (8, 24), (16, 32), (20, 36)]
    """

    frames: int
    rate: float | None = None
    window: int | None = None
    stride: int | None = None

    @property
    def words(self) -> str:
        """A description of the rule, for a store's attributes."""
        if not self.frames:
            return "none, it reads texts"
        if self.rate is None:
            return f"uniform, frame int(i * n / {self.frames})"
        words = f"{self.rate:g} a second, of these at most {self.frames} evenly, ends included"
        if self.window:
            words += f"; in windows of {self.window}, one every {self.stride}, the last at the end"
        return words

    @property
    def tokens(self) -> int:
        """The number of frames or windows in a clip's row."""
        return len(self.windows(self.frames)) if self.window else self.frames

    def windows(self, count: int) -> list[tuple[int, int]]:
        """Return the windows of a clip with `count` frames as (start, end); `end` is exclusive."""
        size, stride = min(self.window or 1, count), self.stride or 1
        return [(n, n + size) for n in (*range(0, count - size, stride), count - size)]

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
        if self.window:
            spans = self.windows(len(numbers))
            numbers = [numbers[(first + end - 1) // 2] for first, end in spans]
            times = [(times[first] + times[end - 1]) / 2 for first, end in spans]
        index, time = np.full(self.tokens, -1, np.int32), np.full(self.tokens, np.nan)
        index[: len(numbers)], time[: len(times)] = numbers, times
        return {"frame_index": index, "frame_time": time}


def read_sampling(text: str | None, **counts: int | None) -> Sampling | None:
    """Parse a sampling such as ``"2 fps"``; return None for the backbone's default.

    `counts` are the other fields of `Sampling` that the user sets. `frames` without a rate is only
    for audio backbones.
    """
    settings = {name: count for name, count in counts.items() if count is not None}
    if text is None and not settings:
        return None
    numbers = ", ".join(f"{name}={count}" for name, count in settings.items())
    if text is None and settings.keys() != {"frames"}:
        raise UsageError(f"{numbers}: a window or a stride needs a rate. Add --sampling '2 fps'")
    rate = re.fullmatch(r"(\d*\.?\d+) ?fps", "1 fps" if text is None else text.strip().lower())
    if not rate or not float(rate[1]) or min(settings.values(), default=1) < 1:
        raise UsageError(
            "sampling must be a rate such as '2 fps', and frames, window and stride must be at "
            f"least 1 (got {', '.join(filter(None, (text, numbers)))})"
        )
    return Sampling(**{"frames": MAX_FRAMES, **settings}, rate=float(rate[1]) if text else None)


def uniform_indices(n: int, count: int) -> NDArray[np.int32]:
    """Return `count` indices spread evenly over `n` frames: ``int(i * n / count)``.

    If there are fewer than `count` frames, some are repeated.

    >>> uniform_indices(100, 4).tolist()
    [0, 25, 50, 75]
    >>> uniform_indices(2, 4).tolist()
    [0, 0, 1, 1]
    """
    return (np.arange(count, dtype=np.int64) * n // count).astype(np.int32)
