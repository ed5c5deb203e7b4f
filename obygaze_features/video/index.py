"""The frames of a film, from one pass over its packets.

Where each packet says when its frame is shown, and nothing else speaks against it, the order in
which frames are shown is the order of these times, and any frame can be decoded from the last
keyframe before it. AVI has no such times: there only the decoder knows which frame comes when.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from obygaze_features.errors import VideoError
from obygaze_features.video.bitstream import KNOWN, is_hidden, is_spare, is_start, nal_length
from obygaze_features.video.container import (
    codec_of,
    complaints_of,
    open_video,
    packets_of,
)
from obygaze_features.video.frame_index import NO_TIME, FrameIndex
from obygaze_features.video.index_cache import keep_index, kept_index

__all__ = ["index_file"]

_TIMED = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm")
"""Containers that say of every frame when it is shown, and lead to any time at once."""
_PACKED = re.compile(rb"DivX\d+(b|Build)\d+p")
"""How DivX says that it puts two frames into one packet, and none into the next."""
_MICROSECONDS = 1_000_000


def index_file(
    path: Path, *, cache: Path | None = None, tick: Callable[[], None] | None = None
) -> FrameIndex:
    """Index a film.

    Parameters
    ----------
    path
        In any format that FFmpeg reads.
    cache
        A folder in which the index is kept, for as long as the file does not change. One that
        cannot be written or read is gone without.
    tick
        Called at every packet.
    """
    tick = tick or (lambda: None)
    index = kept_index(path, cache) if cache else None
    if index is None:
        index = _index(path, tick)
        if cache:
            keep_index(index, path, cache)
    return index


@dataclass(frozen=True)
class _Packets:
    """What is kept of each packet that holds something, in the order of the file."""

    pts: NDArray[np.int64]
    dts: NDArray[np.int64]
    spare: NDArray[np.bool_]
    starts: list[int]
    last_duration: int
    doubts: str | None


def _index(path: Path, tick: Callable[[], None]) -> FrameIndex:
    with open_video(path) as (container, stream):
        with complaints_of(container) as complaints:
            packets = _read(path, container, stream, tick)
        if complaints and container.format.name == "matroska,webm":
            raise VideoError(f"{path} is damaged: {complaints[0]}")
        rate = stream.average_rate or stream.guessed_rate
        unit, begin = _clock(container, stream)
        codec, kind = codec_of(stream), container.format.name
        size = stream.codec_context.width, stream.codec_context.height
    why_slow = packets.doubts or _doubts(codec, kind, packets)
    order = np.argsort(packets.pts, kind="stable").astype(np.int32)
    pts, starts = packets.pts[order], _clean(packets)
    if why_slow is not None:
        order, starts = order[:0], starts[:0]
        # In AVI a packet is a frame; elsewhere some may hold half of one, or none to be shown.
        pts = _of_packets(packets) if kind == "avi" else _counted(path, tick)
    if len(pts) == 0:
        raise VideoError(f"{path} has no video frames")
    if pts[0] == NO_TIME or (np.diff(pts) <= 0).any():
        if not rate:
            raise VideoError(f"{path} has neither times nor a frame rate")
        times, step = np.arange(len(pts)) / float(rate), 1 / float(rate)
    else:
        times = (pts - begin) * unit.numerator / unit.denominator
        step = float(packets.last_duration * unit) or (float(1 / rate) if rate else 0.0)
    return FrameIndex(
        codec=codec,
        container=kind,
        width=size[0],
        height=size[1],
        seconds=float(times[-1] + step),
        why_slow=why_slow,
        times=times,
        pts=pts if why_slow is None else pts[:0],
        positions=order,
        spare=packets.spare,
        starts=starts,
        seeks=np.stack([packets.pts[starts], packets.dts[starts]], axis=1),
    )


def _read(
    path: Path, container: InputContainer, stream: VideoStream, tick: Callable[[], None]
) -> _Packets:
    pts: list[int] = []
    dts: list[int] = []
    spare: list[bool] = []
    starts: list[int] = []
    codec, doubts, duration = codec_of(stream), None, 0
    extradata = stream.codec_context.extradata
    length = nal_length(codec, extradata)
    for packet in packets_of(container, stream):
        tick()
        data = bytes(packet)
        if packet.is_discard:
            doubts = "an edit list hides a part of it"
        elif packet.is_corrupt:
            doubts = doubts or "some of it is damaged"
        elif is_hidden(codec, data):
            doubts = doubts or "it has frames that are not shown"
        if packet.is_keyframe and is_start(codec, data, length):
            starts.append(len(pts))
        if not pts and codec == "mpeg4" and _PACKED.search(bytes(extradata or b"") + data):
            doubts = doubts or "it has two frames in one packet"
        pts.append(NO_TIME if packet.pts is None else packet.pts)
        dts.append(NO_TIME if packet.dts is None else packet.dts)
        spare.append(is_spare(codec, data, length))
        duration = packet.duration or 0
    held = len(stream.index_entries) if container.format.name == _TIMED[0] else 0
    if len(pts) < held:
        raise VideoError(f"{path} is cut short: {len(pts)} of its {held} frames are there")
    return _Packets(
        np.array(pts, np.int64),
        np.array(dts, np.int64),
        np.array(spare, bool),
        starts,
        duration,
        doubts,
    )


def _doubts(codec: str, kind: str, packets: _Packets) -> str | None:
    """Why the packets' times do not tell which frame comes when."""
    if kind == "avi":
        return "AVI does not say when frames are shown"
    if kind not in _TIMED:
        return f"{kind} does not lead to every frame"
    if codec not in KNOWN:
        return f"{codec} is not known well enough"
    if (packets.pts == NO_TIME).any():
        return "some of its frames have no time"
    if len(np.unique(packets.pts)) < len(packets.pts):
        return "some of its frames have the same time"
    if len(packets.pts) and (packets.starts[:1] != [0] or packets.pts.min() < packets.pts[0]):
        return "it does not begin with a keyframe"
    return None


def _clean(packets: _Packets) -> NDArray[np.int32]:
    """Those of the starts before which nothing is stored that is shown after them."""
    starts = np.array(packets.starts, np.int32)
    latest = np.maximum.accumulate(packets.pts)
    clean: NDArray[np.int32] = starts[(starts == 0) | (packets.pts[starts] > latest[starts - 1])]
    return clean


def _clock(container: InputContainer, stream: VideoStream) -> tuple[Fraction, int]:
    """The unit of the stream's times in seconds, and what they say at the start of the file."""
    unit = stream.time_base
    assert unit is not None
    if container.format.name == "avi" or container.start_time is None:
        return unit, 0 if container.format.name == "avi" else stream.start_time or 0
    return unit, round(Fraction(container.start_time, _MICROSECONDS) / unit)


def _of_packets(packets: _Packets) -> NDArray[np.int64]:
    """The times of frames that come one a packet, without those that no decoder gives.

    A film that was cut out of another may begin with frames that refer to what was cut off.
    """
    needed = np.flatnonzero(~packets.spare[1:])
    leading = int(needed[0]) if len(needed) else 0
    return np.delete(packets.dts, slice(1, 1 + leading))


def _counted(path: Path, tick: Callable[[], None]) -> NDArray[np.int64]:
    """The times of all frames that the decoder gives."""
    pts: list[int] = []
    with open_video(path) as (container, stream):
        for packet in container.demux(stream):
            tick()
            pts += [NO_TIME if frame.pts is None else frame.pts for frame in packet.decode()]
    return np.array(pts, np.int64)
