"""Opening a film, and what may be wrong with it before anything is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import av
import av.logging
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition
from av.video.stream import VideoStream

from obygaze_features.errors import VideoError

__all__ = ["codec_of", "complaints_of", "open_video", "packets_of"]


@contextmanager
def open_video(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a file's video; whatever FFmpeg says about it inside the block is a `VideoError`."""
    try:
        if not path.is_file():
            # Not even a look at a pipe, which may never answer.
            raise VideoError(f"{path} is not a file")
        if path.stat().st_size == 0:
            raise VideoError(f"{path} is empty")
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
            if streams[0].codec_context is None:
                raise VideoError(f"{path} cannot be decoded: FFmpeg does not know its codec")
            # Slices: one clip on one core, without the delay and the copies of frame threads.
            streams[0].thread_type = "SLICE"
            streams[0].codec_context.thread_count = 1
            yield container, streams[0]
    except PermissionError:
        raise VideoError(f"{path} may not be read; see to its permissions") from None
    except av.EOFError:
        raise VideoError(f"{path} ends before its first frame") from None
    except av.FFmpegError as problem:
        raise VideoError(f"{path} cannot be decoded: {problem.strerror}") from None


@contextmanager
def complaints_of(container: InputContainer) -> Iterator[list[str]]:
    """What FFmpeg says is wrong with a file's structure while the block reads it.

    Matroska is read on behind a damaged piece, as if that had never been there; it is only said.
    """
    before, told = av.logging.get_level(), list[str]()
    av.logging.set_level(av.logging.ERROR)
    try:
        with av.logging.Capture() as said:
            yield told
        # The decoder's complaints are not of the structure, and found out when frames are decoded.
        told += [words.strip() for _, who, words in said if who == container.format.name]
    finally:
        av.logging.set_level(before)


def codec_of(stream: VideoStream) -> str:
    """The codec's own name, whichever decoder is used: ``av1``, not ``libdav1d``."""
    return stream.codec_context.codec.canonical_name


def packets_of(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    """The packets that hold something, in the order of the file."""
    try:
        yield from (packet for packet in container.demux(stream) if packet.size > 0)
    except IndexError:  # PyAV looks up a stream that it did not know of when the file was opened
        raise VideoError(
            f"{container.name} cannot be decoded: a stream begins that its head does not name"
        ) from None


def _kinds(container: InputContainer) -> str:
    return " and ".join(sorted({stream.type for stream in container.streams})) or "nothing"
