"""From which packets on a film can be decoded, as if nothing had come before.

A container's keyframe flag is a hint: x264's open GOPs and intra refresh are flagged as well.
So the packets themselves are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from av.packet import Packet
from av.video.stream import VideoStream

__all__ = ["SKIPPABLE", "STARTS_AT_FLAGS", "is_hidden", "is_start", "nal_length"]

STARTS_AT_FLAGS = {"mpeg4", "mpeg2video", "vp8", "vp9", "mjpeg", "prores", "dnxhd"}
"""Codecs in which no frame shown after a keyframe refers to what came before it."""

SKIPPABLE = {"h264", "mpeg4", "mpeg2video"}
"""Codecs whose decoders leave out only frames that no other ever refers to (not so HEVC's: a
frame that its own layer does not refer to may serve another)."""

_H264_IDR = {5}
_HEVC_RANDOM_ACCESS = set(range(16, 22))
_AV1_SHOWN_KEY = 0b0001
"""show_existing_frame 0, frame_type key, show_frame 1."""


def is_start(codec: str, packet: Packet[VideoStream], length: int) -> bool:
    """Whether frames shown from this one on can be decoded from here.

    Parameters
    ----------
    codec
        See `codec_of`.
    packet
        One that is flagged as a keyframe.
    length
        See `nal_length`.
    """
    if codec == "h264":
        return _first_slice(bytes(packet), length, lambda head: head & 31, range(1, 6)) in _H264_IDR
    if codec == "hevc":
        kind = _first_slice(bytes(packet), length, lambda head: head >> 1 & 63, range(32))
        return kind in _HEVC_RANDOM_ACCESS
    if codec == "av1":
        return _first_av1_frame(bytes(packet)) == _AV1_SHOWN_KEY
    return codec in STARTS_AT_FLAGS


def is_hidden(codec: str, packet: Packet[VideoStream]) -> bool:
    """Whether a packet of VP8 or VP9 holds nothing but a frame that is never shown."""
    data = memoryview(packet)
    if codec == "vp8":
        return not data[0] >> 4 & 1
    if codec != "vp9" or data[-1] >> 5 == 0b110:  # several in one packet: the last is shown
        return False
    bits = data[0] << 1 if data[0] >> 4 & 3 == 3 else data[0]  # profile 3 has a bit more
    shows_another, shown = bits >> 3 & 1, bits >> 1 & 1
    return not shows_another and not shown


def nal_length(codec: str, extradata: bytes | None) -> int:
    """How many bytes say a NAL unit's length, as in mp4; 0 where start codes part them."""
    if not extradata or extradata[0] != 1:
        return 0
    place = {"h264": 4, "hevc": 21}.get(codec)
    return (extradata[place] & 3) + 1 if place and len(extradata) > place else 0


def _first_slice(
    data: bytes, length: int, kind_of: Callable[[int], int], slices: Container[int]
) -> int | None:
    """The kind of the first NAL unit that holds a piece of the picture."""
    place = 0
    while True:
        if length:
            head = place + length
            following = head + int.from_bytes(data[place:head])
        else:
            head = data.find(b"\0\0\1", place) + 3
            following = head
            if head < 3:
                return None
        if head >= len(data) or following < head:
            return None
        if (kind := kind_of(data[head])) in slices:
            return kind
        place = following


def _first_av1_frame(data: bytes) -> int | None:
    """The first four bits of the first frame's header."""
    place = 0
    while place < len(data):
        head = data[place]
        place += 2 if head & 4 else 1
        size = 0
        for shift in range(0, 56, 7) if head & 2 else ():
            if place >= len(data):
                return None
            size |= (data[place] & 127) << shift
            place += 1
            if data[place - 1] < 128:
                break
        if head >> 3 & 15 in (3, 6):  # a frame header, or a frame
            return data[place] >> 4 if place < len(data) else None
        if not head & 2:
            return None
        place += size
    return None
