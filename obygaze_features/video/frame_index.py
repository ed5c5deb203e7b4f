"""What is known of a film's frames without decoding them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import VideoError

__all__ = ["NO_TIME", "FrameIndex"]

NO_TIME: int = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class FrameIndex:
    """The frames of a film.

    Parameters
    ----------
    codec, container
        By FFmpeg's names.
    width, height
        The pictures' size as they are stored, before they are turned upright.
    seconds
        When the last frame ends.
    why_slow
        Why only decoding from the start is right; None where frames can be decoded each by itself.
    times
        ``[n]``: when each frame is shown, in seconds from the start of the file. Frames are
        numbered in the order in which the decoder gives them.
    pts, positions
        ``[n]``: the same in the file's own unit, and which of the packets holds each frame.
    spare
        Of each packet, whether other frames can do without it.
    starts, seeks
        ``[m]`` and ``[m, 2]``: packets from which on decoding can begin, and the presentation
        and decoding time by which each is found; `NO_TIME` where there is none.
    """

    codec: str
    container: str
    width: int
    height: int
    seconds: float
    why_slow: str | None
    times: NDArray[np.float64]
    pts: NDArray[np.int64]
    positions: NDArray[np.int32]
    spare: NDArray[np.bool_]
    starts: NDArray[np.int32]
    seeks: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.times)

    def span(self, start: float | None = None, end: float | None = None) -> range:
        """The numbers of the frames with ``start <= time < end``."""
        # Times are written with few digits and frames are shown at odd fractions of a second.
        inner = np.array([-np.inf if start is None else start, np.inf if end is None else end])
        first, last = np.searchsorted(self.times, inner - 1e-6).tolist()
        if first >= last:
            raise VideoError(
                f"there is no frame from {0 if start is None else start:g} s to "
                f"{self.seconds if end is None else end:g} s; the film is {self.seconds:.3f} s long"
            )
        return range(first, last)
