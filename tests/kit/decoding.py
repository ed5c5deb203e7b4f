"""Decode frames of a film into one array."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from obygaze_features.video.decode import iter_frames
from obygaze_features.video.index import FrameIndex, index_file


class Frames(NamedTuple):
    """Upright pictures ``[T, height, width, 3]``, their numbers, and their times in seconds."""

    rgb: np.ndarray
    indices: np.ndarray
    times: np.ndarray


def decode_frames(
    path: Path,
    numbers: Sequence[int] | np.ndarray,
    *,
    index: FrameIndex | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Frames:
    """Decode the frames with these numbers, from 0; each is returned once, in ascending order.

    Only these frames are converted to RGB. `tick` is called at every packet.
    """
    index = index or index_file(path, tick=tick)
    unique = np.unique(np.asarray(numbers, np.int32))
    pictures = dict(iter_frames(path, unique, index=index, tick=tick))
    rgb = np.stack([pictures[number] for number in unique.tolist()])
    return Frames(rgb, unique, index.times[unique])
