"""Decode frames of a film by number, with PyAV.

Frames are numbered in the order in which the decoder returns them, which is correct in every
container. If the index proves that order (see `FrameIndex.why_slow`), only the packets that the
frames may need are decoded, and each frame is identified by its time. Otherwise, or if the film
contradicts its index, the film is decoded from its start.

If the decoder reports damage, all frames that the damage may affect are refused, at least up to the
next packet at which decoding can start. Damage that the decoder does not report cannot be detected.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import PictureType, VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from obygaze_features.errors import VideoError
from obygaze_features.video.index import (
    NO_TIME,
    FrameIndex,
    Numbers,
    Tick,
    decode_packet,
    open_video,
    packets_of,
)

SEEK_PACKETS = 200
"""The number of packets to skip above which seeking is faster than reading on."""
EMPTY_MPEG4_BYTES = 20
"""The size below which an MPEG-4 packet may stand for a frame that the encoder skipped."""
MAX_PIXELS = 100_000_000
"""The maximum pixels per picture, unless OBYGAZE_MAX_PIXELS is set; 8K frames have 33 million."""
_CHANGED = "does not match its index; it may have changed in the meantime"


def iter_frames(
    path: Path,
    numbers: Numbers,
    *,
    index: FrameIndex,
    tick: Tick,
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield the number and the upright RGB picture of each frame as it is decoded.

    `numbers` are ascending. If a frame is yielded twice, use the second picture. The frames
    are valid only if no error is raised up to the end. `tick` is called at every packet.
    """
    painter = _Painter(path)
    if index.why_slow is None:
        frames = _decode_by_time(path, numbers, index, tick)
    else:
        frames = _decode_counting(path, numbers, index, tick)
    for number, frame in frames:
        yield number, painter.paint(number, frame)


def max_pixels() -> int:
    """Return the maximum pixels per picture: OBYGAZE_MAX_PIXELS if set, or else `MAX_PIXELS`."""
    text = os.environ.get("OBYGAZE_MAX_PIXELS") or str(MAX_PIXELS)
    if not text.isdecimal() or int(text) < 1:
        raise VideoError(
            "OBYGAZE_MAX_PIXELS must be a whole number above 0, in digits such as 500000000 "
            f"(got {text!r})"
        )
    return int(text)


def refuse_large(path: Path, width: int, height: int) -> None:
    """Raise if a picture has more than `max_pixels`, because decoding could exhaust memory."""
    limit = max_pixels()
    if width * height > limit:
        raise VideoError(
            path,
            f"is too large: {width} x {height} pixels, more than {limit:,}; set "
            "OBYGAZE_MAX_PIXELS to allow more",
        )


class _Painter:
    """A converter of one film's frames to upright RGB pictures of one size."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._shape: tuple[int, ...] = ()
        self._reformatter = VideoReformatter()

    def paint(self, number: int, frame: VideoFrame) -> NDArray[np.uint8]:
        """Convert a frame to RGB and rotate it upright."""
        refuse_large(self._path, frame.width, frame.height)
        plane = self._reformatter.reformat(frame, format="rgb24", threads=1).planes[0]
        lines = np.frombuffer(memoryview(plane), np.uint8).reshape(frame.height, plane.line_size)
        stored = lines[:, : frame.width * 3].reshape(frame.height, frame.width, 3)
        picture = self._upright(stored, frame)
        self._shape = self._shape or picture.shape
        if picture.shape != self._shape:
            new_height, new_width, _ = picture.shape
            height, width, _ = self._shape
            raise VideoError(
                self._path,
                f"changes size at frame {number}: {new_width}x{new_height}, not {width}x{height}. "
                "Encode it again in one size",
            )
        return picture

    def _upright(self, stored: NDArray[Any], frame: VideoFrame) -> NDArray[Any]:
        """Apply the frame's display matrix, which maps stored points (x, y) to displayed points."""
        side_data: Any = frame.side_data
        if "DISPLAYMATRIX" not in side_data:
            return stored
        a, b, _, c, d = np.frombuffer(side_data["DISPLAYMATRIX"], np.int32)[:5].tolist()
        if b or c:
            if a or d:
                raise VideoError(
                    self._path,
                    f"is rotated by {frame.rotation} degrees. Encode it again, upright",
                )
            stored = stored.swapaxes(0, 1)
            a = c
            d = b
        if a < 0:
            stored = stored[:, ::-1]
        if d < 0:
            stored = stored[::-1]
        return stored


def _decode_by_time(
    path: Path,
    numbers: Numbers,
    index: FrameIndex,
    tick: Tick,
) -> Iterator[tuple[int, VideoFrame]]:
    """Decode the pieces that the frames need; start again if the film contradicts its index."""
    try:
        yield from _TimedDecoding(path, numbers, index, tick, fast=True).run(_runs(index, numbers))
    except _IndexMismatch:
        everything = [(0, int(index.positions[numbers].max()))]
        try:
            yield from _TimedDecoding(path, numbers, index, tick, fast=False).run(everything)
        except _IndexMismatch as problem:
            raise VideoError(path, problem) from None


class _IndexMismatch(Exception):
    """The error raised if a film does not match its index, or is damaged."""


def _runs(index: FrameIndex, numbers: Numbers) -> list[tuple[int, int]]:
    """Return the first and last packet of each piece of the file to decode."""
    runs: list[tuple[int, int]] = []
    firsts = _begins(index, numbers).tolist()
    lasts = index.positions[numbers].tolist()
    for first, last in zip(firsts, lasts, strict=True):
        if runs and first <= runs[-1][1]:
            first, end = runs.pop()
            last = max(last, end)
        runs.append((first, last))
    return runs


def _begins(index: FrameIndex, numbers: Numbers) -> Numbers:
    """Return the packet from which to decode each frame: the last start shown no later than it."""
    before = np.searchsorted(index.seeks[:, 0], index.pts[numbers], side="right") - 1
    return index.starts[before]


class _TimedDecoding:
    """A decoder of pieces of a film, which identifies frames by their times.

    If `fast`, frames that are not needed are skipped, and any damage raises `_IndexMismatch`.
    Otherwise, it is raised at the end, if requested frames may be damaged.
    """

    def __init__(
        self,
        path: Path,
        requested: Numbers,
        index: FrameIndex,
        tick: Tick,
        *,
        fast: bool,
    ) -> None:
        self._path = path
        self._requested = requested
        self._index = index
        self._tick = tick
        self._fast = fast
        self._stored = np.empty_like(index.pts)
        self._stored[index.positions] = index.pts
        times = index.pts[requested].tolist()
        self._numbers = dict(zip(times, requested.tolist(), strict=True))
        self._needed = np.ones(len(index), bool)
        if fast:
            self._needed = ~index.spare
        self._needed[index.positions[requested]] = True
        self._expected: dict[int, int] = {}
        self._damage: list[int] = []

    def run(self, runs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, VideoFrame]]:
        """Decode from the first to the last packet of each run."""
        with open_video(self._path) as (container, stream):
            packets = packets_of(container, stream)
            position = 0
            for first, last in runs:
                if first - position > SEEK_PACKETS:
                    packets, position = _seek(container, stream, self._index, first)
                position = yield from self._decode_run(stream, packets, position, first, last)
                if self._fast and self._damage:
                    raise _IndexMismatch("is damaged")
        _refuse_damaged(self._index, self._requested, self._damage)

    def _decode_run(
        self,
        stream: VideoStream,
        packets: Iterator[Packet[VideoStream]],
        position: int,
        first: int,
        last: int,
    ) -> Generator[tuple[int, VideoFrame], None, int]:
        """Decode a run of packets, starting at `position`; return the position after it."""
        since = int(self._stored[first])
        for packet in packets:
            self._tick()
            pts = int(self._stored[position])
            if packet.pts != pts:
                raise _IndexMismatch(_CHANGED)
            if position >= first and self._needed[position]:
                if pts >= since:
                    self._expected[pts] = position
                frames = decode_packet(stream, packet)
                if frames is None:
                    self._damage.append(position)
                else:
                    yield from self._take(frames, since)
            position += 1
            if position > last:
                break
        # Take the frames left in the decoder, then reset it for the next piece.
        yield from self._take(decode_packet(stream, None) or [], since)
        stream.codec_context.flush_buffers()
        self._damage += self._expected.values()
        self._expected.clear()
        return position

    def _take(self, frames: Sequence[VideoFrame], since: int) -> Iterator[tuple[int, VideoFrame]]:
        for frame in frames:
            if frame.pts is None:
                raise _IndexMismatch("has frames without timestamps")
            if frame.pts < since:
                continue  # the frame refers to packets that were not read
            if self._fast and frame.interlaced_frame:
                # Other frames may need one of the frame's fields, which may have been skipped.
                raise _IndexMismatch("is interlaced")
            position = self._expected.pop(frame.pts, None)
            if position is None:
                raise _IndexMismatch("has frames whose timestamps match no packet")
            if frame.is_corrupt:
                self._damage.append(position)
            if frame.pts in self._numbers:
                yield self._numbers[frame.pts], frame


def _refuse_damaged(index: FrameIndex, requested: Numbers, damage: Sequence[int]) -> None:
    """Raise if a requested frame is missing or may be damaged.

    The message names the first damaged frame since the first requested one, requested or not.
    """
    numbers = np.arange(requested[0], len(index), dtype=np.int32)
    begins = _begins(index, numbers)
    ends = index.positions[numbers]
    spoiled = np.zeros(len(numbers), bool)
    for position in damage:
        spoiled |= (begins <= position) & (position <= ends)
    if spoiled[requested - requested[0]].any():
        raise _IndexMismatch(_describe_damage(int(numbers[spoiled][0]), index))


def _describe_damage(number: int, index: FrameIndex) -> str:
    return f"cannot be decoded at frame {number} ({index.times[number]:.3f} s); it is damaged there"


def _seek(
    container: InputContainer,
    stream: VideoStream,
    index: FrameIndex,
    first: int,
) -> tuple[Iterator[Packet[VideoStream]], int]:
    """Seek to `first` or an earlier packet; return the packets from there, and the position."""
    # Matroska seeks by presentation time, mp4 by decoding time (which overshoots in Matroska).
    for time in index.seeks[np.searchsorted(index.starts, first)].tolist():
        if time == NO_TIME:
            continue
        container.seek(time, stream=stream)
        packets = packets_of(container, stream)
        packet = next(packets, None)
        if packet is not None and packet.pts is not None:
            number = int(np.searchsorted(index.pts, packet.pts))
            if number == len(index) or index.pts[number] != packet.pts:
                raise _IndexMismatch(_CHANGED)
            position = int(index.positions[number])
            if position <= first:
                return itertools.chain([packet], packets), position
    raise _IndexMismatch("does not support seeking")


def _decode_counting(
    path: Path,
    numbers: Numbers,
    index: FrameIndex,
    tick: Tick,
) -> Iterator[tuple[int, VideoFrame]]:
    """Decode the film from its start, and identify frames by counting.

    Raise `VideoError` if there is any damage up to the last frame.
    """
    last = int(numbers[-1])
    wanted = set(numbers.tolist())
    number = -1
    anchor = 0
    for number, frame in enumerate(_frames_in_order(path, index, last, tick)):
        if frame.is_corrupt:
            # Frames since the last non-B-frame may refer to the damaged frame.
            raise VideoError(path, _describe_damage(anchor, index))
        if frame.pict_type != PictureType.B:
            anchor = number
        if number in wanted:
            yield number, frame
    if number < last:
        raise VideoError(path, _describe_damage(number + 1, index))


def _frames_in_order(path: Path, index: FrameIndex, last: int, tick: Tick) -> Iterator[VideoFrame]:
    """Yield the frames in order, up to the first packet that cannot be decoded.

    A few frames after `last` may follow, until it is clear whether `last` was damaged. In AVI, each
    packet is a frame, so raise if a non-empty packet gave no frame, which would shift all numbers.
    """
    fed = 0
    received = 0
    empty = len(index.spare) - len(index)
    is_end = False
    with open_video(path) as (container, stream):
        for packet in packets_of(container, stream):
            tick()
            frames = decode_packet(stream, packet)
            if frames is None:
                break
            yield from frames
            is_beyond = received > last
            fed += 1
            received += len(frames)
            empty += index.codec == "mpeg4" and packet.size < EMPTY_MPEG4_BYTES
            if is_beyond and any(frame.pict_type != PictureType.B for frame in frames):
                break
        else:
            is_end = True
        rest = decode_packet(stream, None) or []
        received += len(rest)
        if is_end:
            yield from rest
    if index.container == "avi" and received + empty < fed:
        raise VideoError(
            path,
            "is damaged: some packets decode to no frame, so frames cannot be counted; convert it "
            "to MP4",
        )
