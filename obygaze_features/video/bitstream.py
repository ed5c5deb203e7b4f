"""Parse packets to find frames that no other frame needs, so that decoding can skip them."""

from __future__ import annotations

from collections.abc import Iterator

FRAME_PER_PACKET = {
    "av1",
    "dnxhd",
    "h264",
    "hevc",
    "mjpeg",
    "mpeg2video",
    "mpeg4",
    "prores",
    "vp9",
}
"""The codecs whose packets hold one frame that is shown, in containers with times."""
_H264_SLICES = range(1, 6)
_H264_PARAMETERS = range(7, 9)
_MPEG4_B = 2
_MPEG2_B = 3


def is_disposable(codec: str, data: bytes, length_bytes: int) -> bool:
    """Return True if it is certain that no other frame needs this frame.

    Only packets of H.264, MPEG-4 and MPEG-2 are parsed. `codec` is FFmpeg's canonical name; for
    `length_bytes`, see `nal_length_bytes`.
    """
    if codec == "h264":
        for at in _nal_units(data, length_bytes):
            unit_type = data[at] & 31
            if unit_type in _H264_SLICES:
                return data[at] >> 5 & 3 == 0
            if unit_type in _H264_PARAMETERS:
                return False
    if codec == "mpeg4":
        return data[:4] == b"\0\0\1\xb6" and len(data) > 4 and data[4] >> 6 == _MPEG4_B
    if codec == "mpeg2video":
        return data[:4] == b"\0\0\1\0" and len(data) > 5 and data[5] >> 3 & 7 == _MPEG2_B
    return False


def nal_length_bytes(codec: str, extradata: bytes | None) -> int:
    """Return the size in bytes of the NAL unit length field of H.264, or 0 if there is none."""
    if codec != "h264" or not extradata or extradata[0] != 1 or len(extradata) < 5:
        return 0
    return (extradata[4] & 3) + 1


def _nal_units(data: bytes, length_bytes: int) -> Iterator[int]:
    """Yield the offset of each NAL unit's header."""
    end = 0
    while True:
        if length_bytes:
            head = end + length_bytes
            end = head + int.from_bytes(data[end:head])
        else:
            head = data.find(b"\0\0\1", end) + 3
            end = head
            if head < 3:
                return
        if head >= len(data):
            return
        yield head
