"""Decoded frames as upright RGB pictures in one array."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from obygaze_features.errors import VideoError

__all__ = ["Pictures"]


class Pictures:
    """The wanted pictures of a film, put into their places as they come.

    Parameters
    ----------
    path
        The film, for messages.
    numbers
        Of the wanted frames, ascending.
    room
        Gives the array of a shape; called once.
    """

    def __init__(
        self,
        path: Path,
        numbers: NDArray[np.int32],
        room: Callable[[tuple[int, ...]], NDArray[np.uint8]] | None,
    ) -> None:
        self.path = path
        self.turned = 0
        self._slots = {number: slot for slot, number in enumerate(numbers.tolist())}
        self._room = room or (lambda shape: np.empty(shape, np.uint8))
        self._rgb: NDArray[np.uint8] | None = None
        self._reformatter = VideoReformatter()

    @property
    def rgb(self) -> NDArray[np.uint8]:
        """``[T, height, width, 3]``."""
        assert self._rgb is not None
        return self._rgb

    def __contains__(self, number: int) -> bool:
        return number in self._slots

    def put(self, number: int, frame: VideoFrame) -> None:
        """Convert a frame to RGB and turn it upright."""
        plane = self._reformatter.reformat(frame, format="rgb24", threads=1).planes[0]
        lines = np.frombuffer(memoryview(plane), np.uint8).reshape(frame.height, plane.line_size)
        stored = lines[:, : frame.width * 3].reshape(frame.height, frame.width, 3)
        picture = self._upright(stored, frame)
        if self._rgb is None:
            self._rgb = self._room((len(self._slots), *picture.shape))
        if picture.shape != self._rgb.shape[1:]:
            (new_height, new_width, _), (_, height, width, _) = picture.shape, self._rgb.shape
            raise VideoError(
                f"{self.path} changes its picture size midway: frame {number} is "
                f"{new_width}x{new_height}, those before are {width}x{height}"
            )
        self._rgb[self._slots[number]] = picture

    def _upright(self, stored: NDArray[Any], frame: VideoFrame) -> NDArray[Any]:
        """Apply the display matrix, which says where a point (x, y) is to be shown."""
        if "DISPLAYMATRIX" not in frame.side_data:
            return stored
        matrix: Any = cast(Any, frame.side_data)["DISPLAYMATRIX"]
        a, b, _, c, d = np.frombuffer(matrix, np.int32)[:5].tolist()
        self.turned = frame.rotation
        if b == c == 0:
            right, down = a, d
        elif a == d == 0:
            stored, right, down = stored.swapaxes(0, 1), c, b
        else:
            raise VideoError(
                f"{self.path} is to be turned by {frame.rotation} degrees; only quarter turns "
                "are known here"
            )
        return stored[:: -1 if down < 0 else 1, :: -1 if right < 0 else 1]
