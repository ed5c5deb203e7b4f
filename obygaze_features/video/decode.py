"""Frames of a film by number, with PyAV.

Frames are numbered in the order in which the decoder returns them, the only numbering that is right
in every container. Where the index proves that order (see `FrameIndex.why_slow`), only the packets
that the frames need are decoded, and each frame is recognised by its time. Elsewhere the film is
decoded from its start and frames are counted. If the film contradicts its index, it is also decoded
from its start.

A frame is returned exactly, or not at all: where the decoder reports damage, every frame that may
have suffered is refused, up to the next packet that needs nothing before it. Damage that the
decoder does not notice cannot be noticed here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import PictureType, VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from obygaze_features.errors import VideoError
from obygaze_features.video.index import NO_TIME, FrameIndex, index_file, open_video, packets_of

SEEK_PACKETS = 200
"""From this many packets on, a seek is faster than reading on."""
EMPTY_MPEG4_BYTES = 20
"""MPEG-4 packets below this size may stand for a frame that was left out."""
MAX_PIXELS = 100_000_000
"""Of a picture, unless OBYGAZE_MAX_PIXELS says another number; 8K film has 33 million."""
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
        """The frames with these numbers, in this order."""
        rows = np.searchsorted(self.indices, indices)
        return Frames(self.rgb[rows], self.indices[rows], self.times[rows])


def decode_frames(
    path: Path,
    numbers: Sequence[int] | NDArray[np.int32],
    *,
    index: FrameIndex | None = None,
    tick: Callable[[], None] = lambda: None,
    allocate: Callable[[tuple[int, ...]], NDArray[np.uint8]] | None = None,
) -> Frames:
    """Decode the frames with these numbers: each once, in ascending order; see `Frames.take`.

    Parameters
    ----------
    path, index
        A film in any format that FFmpeg reads, and its index, made here by default.
    numbers
        Frame numbers, from 0. Only these are converted to RGB.
    tick
        Called at every packet.
    allocate
        Returns the array of a shape to decode into, once the size of the pictures is known.
    """
    index = index_file(path, tick=tick) if index is None else index
    unique = np.unique(np.asarray(numbers, np.int32))
    if unique[-1] >= len(index):
        raise VideoError(
            path, f"cannot be decoded up to frame {unique[-1]}; it has {len(index)} frames"
        )
    pictures = Pictures(path, unique, allocate)
    decode_into(pictures, index, tick)
    return Frames(pictures.rgb, unique, index.times[unique])


def max_pixels() -> int:
    """How many pixels a picture may have: `MAX_PIXELS`, or what OBYGAZE_MAX_PIXELS says."""
    text = os.environ.get("OBYGAZE_MAX_PIXELS") or str(MAX_PIXELS)
    try:
        limit = int(text)
    except ValueError:
        limit = 0
    if limit < 1:
        raise VideoError(
            "OBYGAZE_MAX_PIXELS must be a whole number above 0, in digits such as 500000000 "
            f"(got {text!r})"
        )
    return limit


def refuse_large(path: Path, width: int, height: int) -> None:
    """Raise on pictures of more than `max_pixels`: they take many times as much memory."""
    limit = max_pixels()
    if width * height > limit:
        raise VideoError(
            path,
            f"is too large: {width} x {height} pixels, more than {limit:,}; set "
            "OBYGAZE_MAX_PIXELS to allow more",
        )


class Pictures:
    """Decoded frames of a film as upright RGB pictures, filled in any order.

    `numbers` are the frames' numbers, ascending; `allocate` returns the array of a shape.
    """

    def __init__(
        self,
        path: Path,
        numbers: NDArray[np.int32],
        allocate: Callable[[tuple[int, ...]], NDArray[np.uint8]] | None = None,
    ) -> None:
        self.path, self.numbers = path, numbers
        self.rotation = 0
        self._slots = {number: slot for slot, number in enumerate(numbers.tolist())}
        self._allocate = allocate or (lambda shape: np.empty(shape, np.uint8))
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
        """Convert a frame to RGB and rotate it upright."""
        refuse_large(self.path, frame.width, frame.height)
        plane = self._reformatter.reformat(frame, format="rgb24", threads=1).planes[0]
        lines = np.frombuffer(memoryview(plane), np.uint8).reshape(frame.height, plane.line_size)
        stored = lines[:, : frame.width * 3].reshape(frame.height, frame.width, 3)
        picture = self._upright(stored, frame)
        if self._rgb is None:
            self._rgb = self._allocate((len(self._slots), *picture.shape))
        if picture.shape != self._rgb.shape[1:]:
            (new_height, new_width, _), (_, height, width, _) = picture.shape, self._rgb.shape
            raise VideoError(
                self.path,
                f"changes its picture size midway: frame {number} is "
                f"{new_width}x{new_height}, those before are {width}x{height}",
            )
        self._rgb[self._slots[number]] = picture

    def _upright(self, stored: NDArray[Any], frame: VideoFrame) -> NDArray[Any]:
        """Apply the display matrix, which maps a stored point (x, y) to a displayed one."""
        if "DISPLAYMATRIX" not in frame.side_data:
            return stored
        matrix: Any = cast(Any, frame.side_data)["DISPLAYMATRIX"]
        a, b, _, c, d = np.frombuffer(matrix, np.int32)[:5].tolist()
        self.rotation = frame.rotation
        if b == c == 0:
            right, down = a, d
        elif a == d == 0:
            stored, right, down = stored.swapaxes(0, 1), c, b
        else:
            raise VideoError(
                self.path,
                f"is rotated by {frame.rotation} degrees; only quarter turns are supported",
            )
        return stored[:: -1 if down < 0 else 1, :: -1 if right < 0 else 1]


def decode_into(pictures: Pictures, index: FrameIndex, tick: Callable[[], None]) -> None:
    """Decode the frames that `pictures` asks for."""
    if index.why_slow is not None:
        _decode_counting(pictures, index, tick)
        return
    try:
        _decode(pictures, index, _runs(index, pictures.numbers), tick, fast=True)
    except _IndexMismatch:
        everything = [(0, int(index.positions[pictures.numbers].max()))]
        try:
            _decode(pictures, index, everything, tick, fast=False)
        except _IndexMismatch as problem:
            raise VideoError(pictures.path, problem) from None


class _IndexMismatch(Exception):
    """The film is not as its index says."""


def _runs(index: FrameIndex, numbers: NDArray[np.int32]) -> list[tuple[int, int]]:
    """The first and last packets of the pieces of the file to decode."""
    runs: list[tuple[int, int]] = []
    lasts = index.positions[numbers]
    for first, last in zip(_begins(index, numbers).tolist(), lasts.tolist(), strict=True):
        if runs and first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
        else:
            runs.append((first, last))
    return runs


def _begins(index: FrameIndex, numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """The packet from which each frame can be decoded: the last start shown no later."""
    before = np.searchsorted(index.seeks[:, 0], index.pts[numbers], side="right") - 1
    return index.starts[before]


def _decode(
    pictures: Pictures,
    index: FrameIndex,
    runs: Sequence[tuple[int, int]],
    tick: Callable[[], None],
    *,
    fast: bool,
) -> None:
    """Decode pieces of a film and recognise frames by their times.

    If `fast`, frames that no other frame needs are skipped, and any damage is an `_IndexMismatch`.
    Otherwise the frames that may have suffered are refused at the end.
    """
    stored = np.empty_like(index.pts)
    stored[index.positions] = index.pts
    requested = pictures.numbers
    numbers = dict(zip(index.pts[requested].tolist(), requested.tolist(), strict=True))
    needed = ~index.spare if fast else np.ones(len(index), bool)
    needed[index.positions[requested]] = True
    expected: dict[int, int] = {}
    damage: list[int] = []

    def take(frames: Iterable[VideoFrame], since: int) -> None:
        for frame in frames:
            if frame.pts is None:
                raise _IndexMismatch("gives frames without a time")
            if frame.pts < since:
                continue  # it refers to packets that were not read
            if fast and frame.interlaced_frame:
                # Other frames may need one of its fields, which skipping would lose.
                raise _IndexMismatch("is interlaced")
            if (position := expected.pop(frame.pts, None)) is None:
                raise _IndexMismatch("gives frames at times that its packets do not have")
            if frame.is_corrupt:
                damage.append(position)
            if frame.pts in numbers:
                pictures.put(numbers[frame.pts], frame)

    with open_video(pictures.path) as (container, stream):
        context = stream.codec_context
        packets, position = packets_of(container, stream), 0
        for first, last in runs:
            if first - position > SEEK_PACKETS:
                packets, position = _seek(container, stream, index, first)
            since = int(stored[first])
            for packet in packets:
                tick()
                if packet.pts != stored[position]:
                    raise _IndexMismatch(_CHANGED)
                if position >= first and needed[position]:
                    if packet.pts is not None and packet.pts >= since:
                        expected[packet.pts] = position
                    try:
                        take(context.decode(packet), since)
                    except av.FFmpegError:
                        damage.append(position)
                position += 1
                if position > last:
                    break
            # Take the frames that the decoder still holds; then reset it for the next piece.
            with contextlib.suppress(av.FFmpegError):
                take(context.decode(None), since)
            context.flush_buffers()
            damage += expected.values()
            expected.clear()
            if fast and damage:
                raise _IndexMismatch("is damaged")
    _refuse_damaged(index, requested, damage)


def _refuse_damaged(index: FrameIndex, requested: NDArray[np.int32], damage: Sequence[int]) -> None:
    """Raise where a requested frame did not come, or may have suffered from damage before it.

    The message names the first such frame, requested or not, so it is the same for every backbone.
    """
    numbers = np.arange(requested[0], len(index), dtype=np.int32)
    begins, ends = _begins(index, numbers), index.positions[numbers]
    spoiled = np.zeros(len(numbers), bool)
    for position in damage:
        spoiled |= (begins <= position) & (position <= ends)
    if spoiled[requested - requested[0]].any():
        raise _IndexMismatch(_describe_damage(int(numbers[spoiled][0]), index))


def _describe_damage(number: int, index: FrameIndex) -> str:
    return f"cannot be decoded at frame {number} ({index.times[number]:.3f} s); it is damaged there"


def _seek(
    container: InputContainer, stream: VideoStream, index: FrameIndex, first: int
) -> tuple[Iterator[Packet[VideoStream]], int]:
    """Seek to a packet, or to one before it; return the packets from there and its position."""
    # Matroska seeks by presentation time; mp4 by decoding time, with which Matroska overshoots.
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
    raise _IndexMismatch("cannot be seeked")


def _decode_counting(pictures: Pictures, index: FrameIndex, tick: Callable[[], None]) -> None:
    """Decode from the start and count frames, where only the decoder's order tells them apart.

    Damage spoils the frames up to the next keyframe, and back to the last frame that is not a
    B-frame: frames in between may refer to the damaged one, or be shown in its stead.
    """
    requested = pictures.numbers
    last, number, anchor, suffering = int(requested[-1]), -1, 0, False
    spoiled: set[int] = set()
    for number, frame in enumerate(_frames_in_order(pictures.path, index, last, tick)):
        if frame.is_corrupt:
            suffering = True
            spoiled.update(range(anchor, number))
        elif frame.key_frame:
            suffering = False
        if suffering:
            spoiled.add(number)
        if number in pictures:
            pictures.put(number, frame)
        if frame.pict_type != PictureType.B:
            anchor = number
    if number < last:
        spoiled.update(range(number + 1, last + 1))
    if not spoiled.isdisjoint(requested.tolist()):
        first = min(lost for lost in spoiled if lost >= requested[0])
        raise VideoError(pictures.path, _describe_damage(first, index))


def _frames_in_order(
    path: Path, index: FrameIndex, last: int, tick: Callable[[], None]
) -> Iterator[VideoFrame]:
    """The frames in order, up to the first packet that cannot be decoded: counting ends there.

    Frames right after the last may follow, up to one that shows whether the last was damaged.
    In AVI a packet is a frame: a packet that gave none, and was not empty, shifts all numbers.
    """
    fed, received, ended, empty = 0, 0, False, len(index.spare) - len(index)
    with open_video(path) as (container, stream):
        context = stream.codec_context
        for packet in packets_of(container, stream):
            tick()
            try:
                frames = context.decode(packet)
            except av.FFmpegError:
                ended = True
                break
            yield from frames
            fed, received = fed + 1, received + len(frames)
            empty += index.codec == "mpeg4" and packet.size < EMPTY_MPEG4_BYTES
            if received - len(frames) > last and any(
                frame.pict_type != PictureType.B for frame in frames
            ):
                ended = True
                break
        with contextlib.suppress(av.FFmpegError):
            rest = context.decode(None)
            received += len(rest)
            if not ended:
                yield from rest
    if index.container == "avi" and received + empty < fed:
        raise VideoError(
            path, "is damaged: some of its packets gave no frame, so its frames cannot be counted"
        )
