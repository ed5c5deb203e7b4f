"""Which frames of a clip a backbone sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sampling:
    """A backbone's rule for choosing frames.

    Parameters
    ----------
    frames
        How many frames it takes.
    rate
        Frames per second to choose from; by default all of the clip's. A clip that is too short at
        this rate gives fewer than `frames`, and the rest is padding.

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

    def pick(self, times: NDArray[np.float64]) -> NDArray[np.int32]:
        """Which frames of a clip to take, by number, given when each is shown."""
        if self.rate is None:
            return uniform_indices(len(times), self.frames)
        # The first frame at or after each tick of the clock; the microsecond is rounding's.
        ticks = np.arange(0, times[-1] - times[0] + 1e-6, 1 / self.rate)
        chosen = np.unique(np.searchsorted(times - times[0], ticks - 1e-6)).astype(np.int32)
        if len(chosen) > self.frames:
            chosen = chosen[np.linspace(0, len(chosen) - 1, self.frames, dtype=int)]
        return chosen


def uniform_indices(n: int, count: int) -> NDArray[np.int32]:
    """Spread `count` indices evenly over `n` frames: ``int(i * n / count)``.

    A clip with fewer frames repeats some of them.

    >>> uniform_indices(100, 4).tolist()
    [0, 25, 50, 75]
    >>> uniform_indices(2, 4).tolist()
    [0, 0, 1, 1]
    """
    return (np.arange(count, dtype=np.int64) * n // count).astype(np.int32)
