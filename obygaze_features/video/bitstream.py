"""Parse packets to determine if decoding can start at them and if other frames need them.

A container's keyframe flag is only a hint. For instance, x264's intra refresh also sets it,
although complete pictures build up only gradually after it. Therefore, packets of common codecs are
parsed.
"""

from __future__ import annotations

from collections.abc import Iterator

_STARTS_AT_FLAGS = {"mpeg4", "mpeg2video", "vp9", "mjpeg", "prores", "dnxhd"}
"""The codecs in which no frame shown after a keyframe refers to a frame before the keyframe.

MPEG-2 is included because, if its frames were counted, lost frames in a damaged file would go
unnoticed and later frames would get wrong numbers.
"""

PARSED_CODECS = _STARTS_AT_FLAGS | {"h264", "hevc", "av1"}
"""The codecs whose start points can be determined reliably."""

_H264_SLICES, _H264_IDR, _H264_PARAMETERS = range(1, 6), 5, range(7, 9)
_H264_SEI, _H264_RECOVERY_POINT, _H264_EXACT_NOW = 6, 6, 0b110
"""The last value means recovery_frame_cnt 0, exact_match_flag set, broken_link not set."""
_HEVC_SLICES, _HEVC_RANDOM_ACCESS = range(32), range(16, 22)
_AV1_FRAMES, _AV1_SHOWN_KEY = (3, 6), 0b0001
"""The last value means show_existing_frame 0, frame_type key, show_frame 1."""
_MPEG4_B, _MPEG2_B = 2, 3


def is_start(codec: str, data: bytes, length_bytes: int) -> bool:
    """Return True if all frames shown from a flagged keyframe on can be decoded from there.

    For the parameters, see `index.codec_of` and `nal_length_bytes`.
    """
    if codec == "h264":
        for at in _nal_units(data, length_bytes):
            kind = data[at] & 31
            if kind in _H264_SLICES or (kind == _H264_SEI and _is_recovery_point(data[at + 1 :])):
                return kind in (_H264_IDR, _H264_SEI)
        return False
    if codec == "hevc":
        kinds = (data[at] >> 1 & 63 for at in _nal_units(data, length_bytes))
        return next((kind for kind in kinds if kind in _HEVC_SLICES), None) in _HEVC_RANDOM_ACCESS
    if codec == "av1":
        return _first_av1_frame(data) == _AV1_SHOWN_KEY
    return codec in _STARTS_AT_FLAGS


def is_disposable(codec: str, data: bytes, length_bytes: int) -> bool:
    """Return True if no other frame needs this frame; always False for newer codecs."""
    if codec == "h264":
        for at in _nal_units(data, length_bytes):
            if data[at] & 31 in _H264_SLICES:
                return data[at] >> 5 & 3 == 0
            if data[at] & 31 in _H264_PARAMETERS:
                return False
    if codec == "mpeg4":
        return data[:4] == b"\0\0\1\xb6" and len(data) > 4 and data[4] >> 6 == _MPEG4_B
    if codec == "mpeg2video":
        return data[:4] == b"\0\0\1\0" and len(data) > 5 and data[5] >> 3 & 7 == _MPEG2_B
    return False


def nal_length_bytes(codec: str, extradata: bytes | None) -> int:
    """Return the size in bytes of the NAL unit length field, or 0 if units have start codes."""
    if not extradata or extradata[0] != 1:
        return 0
    at = {"h264": 4, "hevc": 21}.get(codec)
    return (extradata[at] & 3) + 1 if at and len(extradata) > at else 0


def _nal_units(data: bytes, length_bytes: int) -> Iterator[int]:
    """Yield the offset of each NAL unit's header."""
    end = 0
    while True:
        if length_bytes:
            head = end + length_bytes
            end = head + int.from_bytes(data[end:head])
        else:
            head = end = data.find(b"\0\0\1", end) + 3
            if head < 3:
                return
        if head >= len(data):
            return
        yield head


def _is_recovery_point(sei: bytes) -> bool:
    """Return True if an H.264 SEI message says that all frames shown from here on are exact."""
    sei, at = sei[:256].replace(b"\0\0\3", b"\0\0"), 0
    while at + 2 < len(sei) and (kind := sei[at]) != 255 and (size := sei[at + 1]) != 255:
        if kind == _H264_RECOVERY_POINT:
            return sei[at + 2] >> 5 == _H264_EXACT_NOW
        at += 2 + size
    return False


def _first_av1_frame(data: bytes) -> int | None:
    """Return the first four bits of the first frame header; None if there is no frame."""
    at = 0
    while at < len(data):
        head = data[at]
        at += 2 if head & 4 else 1
        size = 0
        for shift in range(0, 56, 7) if head & 2 else ():
            if at >= len(data):
                return None
            size |= (data[at] & 127) << shift
            at += 1
            if data[at - 1] < 128:
                break
        if head >> 3 & 15 in _AV1_FRAMES:
            return data[at] >> 4 if at < len(data) else None
        if not head & 2:
            return None
        at += size
    return None
