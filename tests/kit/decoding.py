"""Decode frames of a film into one array."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.video.decode import iter_frames
from obygaze_features.video.index import FrameIndex, Numbers, Tick, index_file


@dataclass(frozen=True)
class Frames:
    """Decoded frames.

    Parameters
    ----------
    rgb
        ``[T, height, width, 3]``, uint8, upright.
    indices
        The number of each frame in its film, starting at 0.
    times
        The time at which each frame is shown, in seconds from the start of the file.
    """

    rgb: NDArray[np.uint8]
    indices: Numbers
    times: NDArray[np.float64]


def decode_frames(
    path: Path,
    numbers: Sequence[int] | Numbers,
    *,
    index: FrameIndex | None = None,
    tick: Tick = lambda: None,
) -> Frames:
    """Decode the frames with these numbers; each is returned once, in ascending order.

    Parameters
    ----------
    path, index
        A film in any format that FFmpeg reads, and its index (default: made here).
    numbers
        Frame numbers, starting at 0. Only these frames are converted to RGB.
    tick
        A function that is called at every packet.
    """
    index = index_file(path, tick=tick) if index is None else index
    unique = np.unique(np.asarray(numbers, np.int32))
    rgb = np.empty((0, 0, 0, 3), np.uint8)
    for number, picture in iter_frames(path, unique, index=index, tick=tick):
        if not len(rgb):
            rgb = np.empty((len(unique), *picture.shape), np.uint8)
        rgb[np.searchsorted(unique, number)] = picture
    return Frames(rgb, unique, index.times[unique])
