"""Frames of a clip by number, with PyAV.

Frames are numbered in the order in which the decoder gives them. That is the one numbering
that is right in every container: AVI stores no presentation times, and seeking by them there
gives wrong frames without a word. So nothing here seeks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream
from numpy.typing import NDArray

from obygaze_features.errors import VideoError

__all__ = ["Frames", "count_frames", "decode_frames"]


@dataclass(frozen=True)
class Frames:
    """Decoded frames.

    Parameters
    ----------
    rgb
        ``[T, height, width, 3]``, uint8.
    indices
        The number of each frame in its clip, from 0.
    times
        When each is shown, in seconds.
    """

    rgb: NDArray[np.uint8]
    indices: NDArray[np.int32]
    times: NDArray[np.float64]

    def take(self, indices: NDArray[np.int32]) -> Frames:
        """Those of the frames that have these numbers, in this order."""
        where = np.searchsorted(self.indices, indices)
        return Frames(self.rgb[where], self.indices[where], self.times[where])


def count_frames(path: Path) -> int:
    """The number of frames, counted from the packets; what a header claims is not trusted."""
    with _open(path) as (container, stream):
        n = sum(packet.size > 0 and not packet.is_discard for packet in container.demux(stream))
    if n == 0:
        raise VideoError(f"{path} has no video frames")
    return n


def decode_frames(path: Path, indices: Sequence[int] | NDArray[np.int32]) -> Frames:
    """Decode the frames with these numbers.

    Parameters
    ----------
    path
        A video file in any format that FFmpeg reads.
    indices
        Numbers in decode order. Only these are converted to RGB.

    Returns
    -------
    Frames
        Each wanted frame once, in ascending order; see `Frames.take`.
    """
    wanted = sorted({int(index) for index in indices})
    pictures: list[NDArray[Any]] = []
    clock: list[float | None] = []
    with _open(path) as (container, stream):
        for number, frame in enumerate(container.decode(stream)):
            clock.append(frame.time)
            if number == wanted[len(pictures)]:
                pictures.append(frame.to_ndarray(format="rgb24"))
                if len(pictures) == len(wanted):
                    break
        rate = stream.average_rate or stream.guessed_rate
    if len(pictures) < len(wanted):
        raise VideoError(
            f"{path} cannot be decoded up to frame {wanted[-1]}; it is damaged or cut short"
        )
    if len({picture.shape for picture in pictures}) > 1:
        raise VideoError(f"{path} changes its picture size midway")
    times = _times(path, clock, rate)[wanted]
    return Frames(np.stack(pictures), np.array(wanted, np.int32), times)


def _times(path: Path, clock: Sequence[float | None], rate: Fraction | None) -> NDArray[np.float64]:
    """When frames are shown: as the container says if it can be right, else by the frame rate.

    AVI keeps the order of packets only, so that frames seem to go back and forth in time.
    """
    said = np.array(clock, np.float64)
    if (np.diff(said) > 0).all() and np.isfinite(said).all():
        return said
    if not rate:
        raise VideoError(f"{path} has neither times nor a frame rate")
    return np.arange(len(clock)) / float(rate)


@contextmanager
def _open(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a file's video; whatever FFmpeg says about it inside the block is a `VideoError`."""
    if not path.is_file():
        raise VideoError(f"{path} is not a file")
    if path.stat().st_size == 0:
        raise VideoError(f"{path} is empty")
    try:
        # Old AVI files carry titles in any encoding; they are of no interest.
        with av.open(path, metadata_errors="ignore") as container:
            # A picture of the album cover, as music files carry, is a video stream too.
            streams = [
                stream
                for stream in container.streams.video
                if not stream.disposition & Disposition.attached_pic
            ]
            if not streams:
                raise VideoError(f"{path} has no video, only {_kinds(container)}")
            # Slices: one clip on one core, without the delay and the copies of frame threads.
            streams[0].thread_type = "SLICE"
            streams[0].codec_context.thread_count = 1
            yield container, streams[0]
    except av.FFmpegError as problem:
        raise VideoError(f"{path} cannot be decoded: {problem.strerror}") from None


def _kinds(container: InputContainer) -> str:
    return " and ".join(sorted({stream.type for stream in container.streams})) or "nothing"
