"""Frames of a film by number, with PyAV.

Frames are numbered in the order in which the decoder gives them, the one numbering that is right
in every container. Where the index proves that order (see `FrameIndex.why_slow`), only what the
wanted frames need is decoded, and each is known by its time; elsewhere everything is decoded in
order and counted. If anything comes otherwise than the index says, all is decoded in order.

A frame is given as itself or not at all: where the decoder complains, whatever may have suffered
is refused, that is, what follows in the file up to the next packet that needs nothing before it.
Damage that the decoder does not notice cannot be noticed here.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from obygaze_features.errors import VideoError
from obygaze_features.video.container import open_video, packets_of
from obygaze_features.video.counting import damaged, decode_counting
from obygaze_features.video.frame_index import NO_TIME, FrameIndex
from obygaze_features.video.index import index_file
from obygaze_features.video.pictures import Pictures

__all__ = ["Frames", "decode_frames", "decode_into"]

_FAR = 200
"""From so many packets on, a seek is quicker than reading on."""
_CHANGED = "is not what its index says; it may have changed meanwhile"


@dataclass(frozen=True)
class Frames:
    """Decoded frames.

    Parameters
    ----------
    rgb
        ``[T, height, width, 3]``, uint8, upright.
    indices
        The number of each frame in its film, from 0.
    times
        When each is shown, in seconds from the start of the file.
    """

    rgb: NDArray[np.uint8]
    indices: NDArray[np.int32]
    times: NDArray[np.float64]

    def take(self, indices: NDArray[np.int32]) -> Frames:
        """Those of the frames that have these numbers, in this order."""
        where = np.searchsorted(self.indices, indices)
        return Frames(self.rgb[where], self.indices[where], self.times[where])


def decode_frames(
    path: Path,
    numbers: Sequence[int] | NDArray[np.int32],
    *,
    index: FrameIndex | None = None,
    tick: Callable[[], None] | None = None,
    room: Callable[[tuple[int, ...]], NDArray[np.uint8]] | None = None,
) -> Frames:
    """Decode the frames with these numbers.

    Parameters
    ----------
    path
        A film in any format that FFmpeg reads.
    numbers
        Of frames, from 0. Only these are converted to RGB.
    index
        From `index_file`; by default it is made.
    tick
        Called at every packet.
    room
        Gives the array of a shape to decode into, as soon as the size of the pictures is known.

    Returns
    -------
    Frames
        Each wanted frame once, in ascending order; see `Frames.take`.
    """
    tick = tick or (lambda: None)
    index = index_file(path, tick=tick) if index is None else index
    wanted = np.unique(np.asarray(numbers, np.int32))
    if wanted[-1] >= len(index):
        raise VideoError(
            f"{path} cannot be decoded up to frame {wanted[-1]}; it has {len(index)} frames"
        )
    pictures = Pictures(path, wanted, room)
    decode_into(pictures, index, wanted, tick)
    return Frames(pictures.rgb, wanted, index.times[wanted])


def decode_into(
    pictures: Pictures, index: FrameIndex, wanted: NDArray[np.int32], tick: Callable[[], None]
) -> None:
    """Decode the frames with these numbers, ascending, into their places."""
    if index.why_slow is not None:
        decode_counting(pictures, index, wanted, tick)
        return
    try:
        _decode(pictures, index, wanted, _runs(index, wanted), tick, fast=True)
    except _Surprise:
        everything = [(0, int(index.positions[wanted].max()))]
        try:
            _decode(pictures, index, wanted, everything, tick, fast=False)
        except _Surprise as problem:
            raise VideoError(f"{pictures.path} {problem}") from None


class _Surprise(Exception):
    """The film is not as its index says."""


def _runs(index: FrameIndex, wanted: NDArray[np.int32]) -> list[tuple[int, int]]:
    """The first and last packets of the pieces of the file that have to be decoded."""
    runs: list[tuple[int, int]] = []
    lasts = index.positions[wanted]
    for first, last in zip(_begins(index, wanted).tolist(), lasts.tolist(), strict=True):
        if runs and first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
        else:
            runs.append((first, last))
    return runs


def _begins(index: FrameIndex, wanted: NDArray[np.int32]) -> NDArray[np.int32]:
    """The packet from which each frame can be decoded: the last start shown no later."""
    before = np.searchsorted(index.seeks[:, 0], index.pts[wanted], side="right") - 1
    return index.starts[before]


def _decode(
    pictures: Pictures,
    index: FrameIndex,
    wanted: NDArray[np.int32],
    runs: Sequence[tuple[int, int]],
    tick: Callable[[], None],
    *,
    fast: bool,
) -> None:
    """Decode pieces of a film whose frames are known by their times.

    Where it is `fast`, frames that nobody needs are left out, and any complaint is a surprise.
    Otherwise the frames that may have suffered are refused in the end.
    """
    stored = np.empty_like(index.pts)
    stored[index.positions] = index.pts
    numbers = dict(zip(index.pts[wanted].tolist(), wanted.tolist(), strict=True))
    needed = ~index.spare if fast else np.ones(len(index), bool)
    needed[index.positions[wanted]] = True
    expected: dict[int, int] = {}
    complaints: list[int] = []

    def take(frames: Iterable[VideoFrame], since: int) -> None:
        for frame in frames:
            if frame.pts is None:
                raise _Surprise("gives frames without a time")
            if frame.pts < since:
                continue  # it refers to what was not read
            if fast and frame.interlaced_frame:
                # Half of it may be needed by others, and the other half left out.
                raise _Surprise("is interlaced")
            if (position := expected.pop(frame.pts, None)) is None:
                raise _Surprise("gives frames at times that its packets do not name")
            if frame.is_corrupt:
                complaints.append(position)
            if frame.pts in numbers:
                pictures.put(numbers[frame.pts], frame)

    with open_video(pictures.path) as (container, stream):
        context = stream.codec_context
        packets, position = packets_of(container, stream), 0
        for first, last in runs:
            if first - position > _FAR:
                packets, position = _seek(container, stream, index, first)
            since = int(stored[first])
            for packet in packets:
                tick()
                if packet.pts != stored[position]:
                    raise _Surprise(_CHANGED)
                if position >= first and needed[position]:
                    if packet.pts is not None and packet.pts >= since:
                        expected[packet.pts] = position
                    try:
                        take(context.decode(packet), since)
                    except av.FFmpegError:
                        complaints.append(position)
                position += 1
                if position > last:
                    break
            # What the decoder still holds back; then it is made ready for the next piece.
            with contextlib.suppress(av.FFmpegError):
                take(context.decode(None), since)
            context.flush_buffers()
            complaints += expected.values()
            expected.clear()
            if fast and complaints:
                raise _Surprise("is damaged")
    _refuse(index, wanted, complaints)


def _refuse(index: FrameIndex, wanted: NDArray[np.int32], complaints: Sequence[int]) -> None:
    """Raise where a wanted frame did not come, or may have suffered from damage before it.

    The frame that is named is the first such one, wanted or not: the same for every backbone.
    """
    numbers = np.arange(wanted[0], len(index), dtype=np.int32)
    begins, ends = _begins(index, numbers), index.positions[numbers]
    spoiled = np.zeros(len(numbers), bool)
    for position in complaints:
        spoiled |= (begins <= position) & (position <= ends)
    if spoiled[wanted - wanted[0]].any():
        raise _Surprise(damaged(int(numbers[spoiled][0]), index))


def _position(index: FrameIndex, pts: int) -> int:
    """Which packet holds the frame that is shown at this time."""
    number = int(np.searchsorted(index.pts, pts))
    if number == len(index) or index.pts[number] != pts:
        raise _Surprise(_CHANGED)
    return int(index.positions[number])


def _seek(
    container: InputContainer, stream: VideoStream, index: FrameIndex, first: int
) -> tuple[Iterator[Packet[VideoStream]], int]:
    """Go to a packet, or to one before it; say which it is."""
    # Matroska finds by presentation time; mp4 by decoding time, by which the other is too late.
    for time in index.seeks[np.searchsorted(index.starts, first)].tolist():
        if time == NO_TIME:
            continue
        container.seek(time, stream=stream)
        packets = packets_of(container, stream)
        packet = next(packets, None)
        if packet is not None and packet.pts is not None:
            position = _position(index, packet.pts)
            if position <= first:
                return itertools.chain([packet], packets), position
    raise _Surprise("cannot be sought in")
