"""Frames by their number where nothing but the decoder's order tells which is which."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import av
import numpy as np
from av.video.frame import PictureType, VideoFrame
from numpy.typing import NDArray

from obygaze_features.errors import VideoError
from obygaze_features.video.container import open_video, packets_of
from obygaze_features.video.frame_index import FrameIndex
from obygaze_features.video.pictures import Pictures

__all__ = ["damaged", "decode_counting"]

_TINY = 20
"""Packets of MPEG-4 with fewer bytes may stand for a frame that was left out."""


def decode_counting(
    pictures: Pictures, index: FrameIndex, wanted: NDArray[np.int32], tick: Callable[[], None]
) -> None:
    """Decode in order from the start; see `decode_into`.

    A complaint spoils the frames up to the next keyframe, and those back to the last one that is
    not a B-frame: they may refer to it, or be shown where it should have been.
    """
    last, number, anchor, suffering = int(wanted[-1]), -1, 0, False
    spoiled: set[int] = set()
    for number, frame in enumerate(_frames(pictures, index, last, tick)):
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
    if not spoiled.isdisjoint(wanted.tolist()):
        first = min(lost for lost in spoiled if lost >= wanted[0])
        raise VideoError(f"{pictures.path} {damaged(first, index)}")


def damaged(number: int, index: FrameIndex) -> str:
    """Describe a film whose first damaged frame has this number, in the order of showing."""
    return f"cannot be decoded at frame {number} ({index.times[number]:.3f} s); it is damaged there"


def _frames(
    pictures: Pictures, index: FrameIndex, last: int, tick: Callable[[], None]
) -> Iterator[VideoFrame]:
    """The frames in order, up to the first packet that cannot be decoded: then numbers end.

    Those right after the last may follow, up to one that tells of the damage that it suffered.
    In AVI a packet is a frame. One that gave none, and was none, has moved all numbers after it.
    """
    fed, given, ended, none = 0, 0, False, len(index.spare) - len(index)
    with open_video(pictures.path) as (container, stream):
        context = stream.codec_context
        for packet in packets_of(container, stream):
            tick()
            try:
                frames = context.decode(packet)
            except av.FFmpegError:
                ended = True
                break
            yield from frames
            fed, given = fed + 1, given + len(frames)
            none += index.codec == "mpeg4" and packet.size < _TINY
            if given - len(frames) > last and any(
                frame.pict_type != PictureType.B for frame in frames
            ):
                ended = True
                break
        with contextlib.suppress(av.FFmpegError):
            rest = context.decode(None)
            given += len(rest)
            if not ended:
                yield from rest
    if index.container == "avi" and given + none < fed:
        raise VideoError(
            f"{pictures.path} is damaged: some of its packets gave no frame, "
            "so that frames cannot be told apart"
        )
