"""Choose the frames of a clip that a backbone sees, or the windows of sound that it hears."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import UsageError

MAX_FRAMES = 64
"""A clip's default maximum of windows of sound, and of frames sampled at a rate."""
SILENCE_DB = -100.0
"""The loudness of silence in dB, which is the lowest value."""
SILENCE = 1e-4
"""The level that all samples of a silent track stay below. They need not be 0, due to dither."""

Samples = NDArray[np.float32]


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

    `frames` is the number of frames per clip, or of windows of sound; with a rate, the maximum.
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


def is_silent(sound: Samples) -> bool:
    """Return True if no sample is louder than dithered silence."""
    return bool(np.abs(sound).max(initial=0.0) < SILENCE)


@dataclass(frozen=True)
class SoundSampling:
    """A backbone's rule for choosing windows of a clip's sound.

    Parameters
    ----------
    rate
        The samples per second.
    window, stride
        The seconds per window, and the seconds from the start of one window to the next. The last
        window ends with the clip; a clip shorter than a window has a single window.
    frames
        The maximum number of windows. If a clip has more, they are sampled evenly, including the
        first and the last.
    track
        The number of a file's sound track, from 1 (default: FFmpeg's choice).

    Examples
    --------
    >>> SoundSampling(10, window=2, stride=1).windows(35)
    [(0, 20), (10, 30), (15, 35)]
    >>> SoundSampling(10, window=2, stride=1, frames=2).windows(35)
    [(0, 20), (15, 35)]
    >>> SoundSampling(10, window=2, stride=1).windows(7)
    [(0, 7)]
    >>> row = SoundSampling(10, window=2, stride=2, frames=3).row(np.ones(40, "f4"), start=60)
    >>> row["frame_time"].tolist(), row["loudness"].tolist()
    ([61.0, 63.0, nan], [0.0, 0.0, nan])
    >>> SoundSampling(10, window=2, stride=2, frames=1).row(np.zeros(20, "f4"))["loudness"].tolist()
    [-100.0]
    """

    rate: int
    window: float
    stride: float
    frames: int = MAX_FRAMES
    track: int | None = None

    @property
    def words(self) -> str:
        """A description of the rule, for a store's attributes."""
        track = f"; sound track {self.track}" if self.track else ""
        return (
            f"sound at {self.rate} a second, in windows of {self.window:g} s, one every "
            f"{self.stride:g} s, the last at the end; at most {self.frames} evenly, ends included"
            f"{track}"
        )

    def windows(self, samples: int) -> list[tuple[int, int]]:
        """Return the windows of a clip as (start, end) in samples, with `end` exclusive."""
        size = min(samples, max(1, round(self.window * self.rate)))
        stride = max(1, round(self.stride * self.rate))
        starts = np.array([*range(0, samples - size, stride), samples - size])
        if len(starts) > self.frames:
            starts = starts[np.linspace(0, len(starts) - 1, self.frames, dtype=int)]
        return [(start, start + size) for start in starts.tolist()]

    def row(self, sound: Samples, start: float = 0.0) -> dict[str, NDArray[Any]]:
        """Return ``frame_time`` and ``loudness`` for a clip that starts at `start` seconds.

        They give each window's middle (in seconds of the film) and root mean square level (in dB
        relative to full scale), and NaN after the last window.
        """
        time = np.full(self.frames, np.nan)
        loudness = np.full(self.frames, np.nan, np.float32)
        for i, (first, end) in enumerate(self.windows(len(sound))):
            power = np.square(sound[first:end], dtype=np.float64).sum() / max(1, end - first)
            time[i] = start + (first + end) / 2 / self.rate
            loudness[i] = 10 * np.log10(max(power, 10 ** (SILENCE_DB / 10)))
        return {"frame_time": time, "loudness": loudness}
