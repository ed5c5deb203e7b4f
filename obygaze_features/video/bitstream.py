"""What a packet says of itself: whether decoding can begin there, and whether others need it.

A container's keyframe flag is a hint: x264's intra refresh is flagged as well, and from there
pictures build up only slowly. So the packets themselves are looked at, where that is simple.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["KNOWN", "is_hidden", "is_spare", "is_start", "nal_length"]

_STARTS_AT_FLAGS = {"mpeg4", "mpeg2video", "vp8", "vp9", "mjpeg", "prores", "dnxhd"}
"""Codecs in which no frame shown after a keyframe refers to what came before it."""

KNOWN = _STARTS_AT_FLAGS | {"h264", "hevc", "av1"}
"""Codecs of which it is known where decoding can begin."""

_H264_SLICES, _H264_IDR, _H264_PARAMETERS = range(1, 6), 5, range(7, 9)
_H264_SEI, _H264_RECOVERY, _H264_AT_ONCE = 6, 6, 0b110
"""recovery_frame_cnt 0, exact_match_flag, no broken_link."""
_HEVC_SLICES, _HEVC_RANDOM_ACCESS = range(32), range(16, 22)
_AV1_FRAMES, _AV1_SHOWN_KEY = (3, 6), 0b0001
"""show_existing_frame 0, frame_type key, show_frame 1."""
_MPEG4_B, _MPEG2_B = 2, 3


def is_start(codec: str, data: bytes, length: int) -> bool:
    """Whether frames shown from this one on can be decoded from here.

    Parameters
    ----------
    codec
        See `codec_of`.
    data
        A packet that is flagged as a keyframe.
    length
        See `nal_length`.
    """
    if codec == "h264":
        for place in _nals(data, length):
            kind = data[place] & 31
            if kind in _H264_SLICES or (kind == _H264_SEI and _recovers(data[place + 1 :])):
                return kind in (_H264_IDR, _H264_SEI)
        return False
    if codec == "hevc":
        kinds = (data[place] >> 1 & 63 for place in _nals(data, length))
        return next((kind for kind in kinds if kind in _HEVC_SLICES), None) in _HEVC_RANDOM_ACCESS
    if codec == "av1":
        return _first_av1_frame(data) == _AV1_SHOWN_KEY
    return codec in _STARTS_AT_FLAGS


def is_spare(codec: str, data: bytes, length: int) -> bool:
    """Whether no other frame refers to this one; not told of newer codecs, with their layers."""
    if codec == "h264":
        for place in _nals(data, length):
            if data[place] & 31 in _H264_SLICES:
                return data[place] >> 5 & 3 == 0
            if data[place] & 31 in _H264_PARAMETERS:
                return False
    if codec == "mpeg4":
        return data[:4] == b"\0\0\1\xb6" and len(data) > 4 and data[4] >> 6 == _MPEG4_B
    if codec == "mpeg2video":
        return data[:4] == b"\0\0\1\0" and len(data) > 5 and data[5] >> 3 & 7 == _MPEG2_B
    return False


def is_hidden(codec: str, data: bytes) -> bool:
    """Whether a frame is only there to be referred to; VP8 gives each of those a packet."""
    return codec == "vp8" and not data[0] >> 4 & 1


def nal_length(codec: str, extradata: bytes | None) -> int:
    """How many bytes say a NAL unit's length, as in mp4; 0 where start codes part them."""
    if not extradata or extradata[0] != 1:
        return 0
    place = {"h264": 4, "hevc": 21}.get(codec)
    return (extradata[place] & 3) + 1 if place and len(extradata) > place else 0


def _nals(data: bytes, length: int) -> Iterator[int]:
    """Where each NAL unit begins."""
    place = 0
    while True:
        if length:
            head = place + length
            place = head + int.from_bytes(data[place:head])
        else:
            head = place = data.find(b"\0\0\1", place) + 3
            if head < 3:
                return
        if head >= len(data):
            return
        yield head


def _recovers(sei: bytes) -> bool:
    """Whether H.264 promises that from here on, in the order of showing, all frames are exact."""
    sei, place = sei[:256].replace(b"\0\0\3", b"\0\0"), 0
    while place + 2 < len(sei) and (kind := sei[place]) != 255 and (size := sei[place + 1]) != 255:
        if kind == _H264_RECOVERY:
            return sei[place + 2] >> 5 == _H264_AT_ONCE
        place += 2 + size
    return False


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
        if head >> 3 & 15 in _AV1_FRAMES:
            return data[place] >> 4 if place < len(data) else None
        if not head & 2:
            return None
        place += size
    return None
