"""Index the frames of a film by its packets.

If every packet has a presentation time, and nothing contradicts these times, frames are shown in
the order of their times, and each frame can be decoded from the last keyframe before it. AVI files
have no such times, so only the decoder knows the order of their frames.

This module also opens films and computes their fingerprints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.logging
import numpy as np
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition
from av.video.stream import VideoStream
from numpy.typing import NDArray

from obygaze_features.errors import VideoError, translate
from obygaze_features.video.bitstream import FRAME_PER_PACKET, is_disposable, nal_length_bytes

Tick = Callable[[], None]
"""A function that is called at every packet, as a sign of life."""
Numbers = NDArray[np.int32]
"""The numbers of frames or of packets, from 0."""
NO_TIME: int = np.iinfo(np.int64).min
FINGERPRINT_BYTES = 1 << 20
MAX_BEYOND_S = 1.0
"""The seconds by which any clip may exceed its film: ends are rounded, and sound may be longer."""
TIMED = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm")
"""The containers that store the time of every frame and support seeking to any frame."""
LISTS = ("concat", "dash", "hls", "image2", "image2pipe", "imf", "rtsp", "sdp")
"""FFmpeg's names for formats that list other files or addresses."""
SINGLE_FILES = ",".join(sorted(av.formats_available - {*LISTS}))
"""FFmpeg's names for formats that contain media themselves."""


@dataclass(frozen=True, eq=False)
class FrameIndex:
    """The frames of a film: their times, and where to start decoding.

    Parameters
    ----------
    codec, container
        FFmpeg's names of the codec and the container.
    seconds
        The end of the last frame.
    why_slow
        The reason why the film must be decoded from its start, or None if any frame can be decoded
        separately.
    times
        ``[n]``: the time at which each frame is shown, in seconds from the start of the file.
        Frames are numbered in the order in which the decoder returns them.
    pts, positions
        ``[n]``: the same times in the file's own unit, and the packet that holds each frame. These
        and the fields below are valid only if `why_slow` is None.
    spare
        For each packet, True if other frames can be decoded without it.
    starts, seeks
        ``[m]`` and ``[m, 2]``: the packets at which decoding can start, and the presentation and
        decoding time to seek to for each, or `NO_TIME` if unknown.
    """

    codec: str
    container: str
    seconds: float
    why_slow: str | None
    times: NDArray[np.float64]
    pts: NDArray[np.int64]
    positions: Numbers
    spare: NDArray[np.bool_]
    starts: Numbers
    seeks: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.times)

    def span(self, path: Path, start: float | None, end: float | None) -> range:
        """Return the numbers of the frames with ``start <= time < end``.

        Raise `VideoError` if there are none, or if most of the clip, and more than `MAX_BEYOND_S`,
        is after the film's end.
        """
        # Spans have few digits, but frame times are odd fractions of a second.
        begin = start or 0.0
        until = self.seconds if end is None else end
        first = 0
        last = len(self)
        if start is not None:
            first = int(np.searchsorted(self.times, start - 1e-6))
        if end is not None:
            last = int(np.searchsorted(self.times, end - 1e-6))
        is_beyond = until - self.seconds > max(MAX_BEYOND_S, (until - begin) / 2)
        if first >= last or is_beyond:
            raise VideoError(
                path,
                f": the clip's span ({begin:g} s to {until:g} s) has no frame, or exceeds the film "
                f"({self.seconds:.3f} s); check the span and the file",
            )
        return range(first, last)


def fingerprint(path: Path, index: FrameIndex | None = None) -> str:
    """Return a string that identifies a film file, without reading all of it.

    It has the file's size, duration and frame count (the last two only with an index), and the
    SHA-256 of its first MiB, in this order, as ``key=value`` separated by spaces.
    """
    with translate(VideoError, path, "cannot be read: {}", foreign=OSError):
        with path.open("rb") as file:
            head = hashlib.sha256(file.read(FINGERPRINT_BYTES)).hexdigest()
        size = path.stat().st_size
    counted = ""
    if index is not None:
        counted = f" seconds={index.seconds:.3f} frames={len(index)}"
    return f"bytes={size}{counted} head={head}"


@contextmanager
def open_media(path: Path) -> Iterator[InputContainer]:
    """Open a file with FFmpeg; convert FFmpeg's and system errors in the block to `VideoError`."""
    with translate(VideoError, path, "cannot be decoded: {}", foreign=(av.FFmpegError, OSError)):
        if not path.is_file():
            # Opening a pipe might block forever.
            raise VideoError(path, "is not a file")
        if path.stat().st_size == 0:
            raise VideoError(path, "is empty")
        # Old AVI files may have titles in any encoding. They are not needed.
        options = {"format_whitelist": SINGLE_FILES}
        try:
            container = av.open(path, metadata_errors="ignore", options=options)
        except av.ArgumentError:
            raise VideoError(
                path,
                "cannot be decoded: it is damaged or a list of other files; pass the film itself",
            ) from None
        with container:
            yield container


@contextmanager
def open_video(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a film and its video stream; see `open_media`."""
    with open_media(path) as container:
        streams = _moving_pictures(container)
        if not streams:
            kinds = sorted({stream.type for stream in container.streams})
            raise VideoError(
                path, f"has no moving pictures (streams: {' and '.join(kinds) or 'none'})"
            )
        stream = streams[0]
        if stream.codec_context is None:
            raise VideoError(
                path, "cannot be decoded: FFmpeg does not know its codec; convert it to MP4"
            )
        # Slice threads avoid the delay and the copies of frame threads; each core decodes one clip.
        stream.thread_type = "SLICE"
        stream.codec_context.thread_count = 1
        yield container, stream


def _moving_pictures(container: InputContainer) -> list[VideoStream]:
    """Return the video streams, without the cover picture of a music file."""
    return [
        stream
        for stream in container.streams.video
        if not stream.disposition & Disposition.attached_pic
    ]


def last_picture(path: Path) -> tuple[float, float]:
    """Return when the last picture of a film begins and ends, in seconds.

    Only the film's last part is read if its format can seek. Both times of a sound file are the
    length that its header states.
    """
    with open_media(path) as container:
        stated = container.duration or 0
        for stream in _moving_pictures(container)[:1]:
            unit, begin = _clock(container, stream)
            for time in (stated, 0):
                container.seek(time + (container.start_time or 0))
                last = duration = 0  # of the stream's clock
                for packet in packets_of(container, stream):
                    pts = packet.dts if container.format.name == "avi" else packet.pts
                    last = max(last, (pts or 0) - begin)
                    duration = packet.duration or 0
                if last:
                    return float(last * unit), float((last + duration) * unit)
    return stated / av.time_base, stated / av.time_base


def packets_of(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    """Yield the non-empty packets of a stream, in file order."""
    reason = "cannot be decoded: it has a stream that its header does not list"
    # PyAV raises an error for streams that appear after the file was opened.
    with translate(VideoError, Path(container.name), reason, foreign=IndexError):
        yield from (packet for packet in container.demux(stream) if packet.size > 0)


def decode_packet(
    stream: VideoStream | AudioStream,
    packet: Packet[Any] | None,
) -> list[Any] | None:
    """Return the frames of a packet, or None if it is damaged.

    Without a packet, return the frames that are left in the decoder.
    """
    try:
        return [*stream.decode(packet)]
    except MemoryError:  # may also come from FFmpeg: the worker's limit, not damage
        raise
    except av.FFmpegError:
        return None


@dataclass(frozen=True)
class _Packets:
    """The packets of a film, in file order.

    `starts` are the keyframes. `doubts` says why times may not determine the order of frames, or is
    None.
    """

    pts: NDArray[np.int64]
    dts: NDArray[np.int64]
    spare: NDArray[np.bool_]
    starts: Numbers
    last_duration: int
    doubts: str | None


def index_file(path: Path, *, tick: Tick = lambda: None, decode: bool = True) -> FrameIndex:
    """Index a film in any format that FFmpeg reads.

    All frames are decoded if packets do not tell their order, except in AVI. If `decode` is false,
    reliable times of packets are taken as they are, which is enough for the film's length and
    fingerprint. `tick` is called at every packet.
    """
    with open_video(path) as (container, stream):
        # The name of the codec, not of the decoder: av1, not libdav1d.
        codec = stream.codec_context.codec.canonical_name
        with _refuse_damaged_structure(path):
            packets = _read_packets(path, container, stream, codec, tick)
        container_format = container.format.name
        rate = stream.average_rate or stream.guessed_rate
        unit, begin = _clock(container, stream)

    why_slow = _format_doubts(codec, container_format) or packets.doubts
    positions = np.argsort(packets.pts, kind="stable").astype(np.int32)
    starts = _clean_starts(packets)
    # In AVI, a packet is a frame. In other formats, it may be half a frame or a hidden frame.
    if container_format == "avi":
        pts = _packet_times(packets)
    elif why_slow is None or not (packets.doubts or decode):
        pts = packets.pts[positions]
    else:
        pts = _decoded_times(path, tick)

    if len(pts) == 0:
        raise VideoError(path, "has no video frames")
    if pts[0] != NO_TIME and (np.diff(pts) > 0).all():
        times = (pts - begin) * unit.numerator / unit.denominator
        step = float(packets.last_duration * unit)
    elif rate:
        times = np.arange(len(pts)) / float(rate)
        step = 0.0
    else:
        raise VideoError(path, "has no usable timestamps or frame rate; convert it to MP4")
    if rate and not step:
        step = float(1 / rate)
    return FrameIndex(
        codec=codec,
        container=container_format,
        seconds=float(times[-1] + step),
        why_slow=why_slow,
        times=times,
        pts=pts,
        positions=positions,
        spare=packets.spare,
        starts=starts,
        seeks=np.stack([packets.pts[starts], packets.dts[starts]], axis=1),
    )


@contextmanager
def _refuse_damaged_structure(path: Path) -> Iterator[None]:
    """Raise if FFmpeg skips a damaged part of a Matroska file during the ``with`` block.

    FFmpeg's message is the only sign. Damaged frames are found when they are decoded.
    """
    level = av.logging.get_level()
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)  # the message of the same file again
    try:
        with av.logging.Capture() as messages:
            yield
    finally:
        av.logging.set_level(level)
    for _, source, text in messages:
        if source == "matroska,webm":
            raise VideoError(path, f"is damaged: {text.strip()}")


def _read_packets(
    path: Path,
    container: InputContainer,
    stream: VideoStream,
    codec: str,
    tick: Tick,
) -> _Packets:
    pts: list[int] = []
    dts = []
    spare = []
    starts = []
    doubts = None
    duration = 0
    length_bytes = nal_length_bytes(codec, stream.codec_context.extradata)
    for packet in packets_of(container, stream):
        tick()
        if packet.is_discard:
            doubts = "an edit list hides part of it"
        elif packet.is_corrupt:
            doubts = doubts or "part of it is damaged"
        if packet.is_keyframe:
            starts.append(len(pts))
        pts.append(NO_TIME if packet.pts is None else packet.pts)
        dts.append(NO_TIME if packet.dts is None else packet.dts)
        spare.append(is_disposable(codec, bytes(packet), length_bytes))
        duration = packet.duration or 0
    listed = len(stream.index_entries) if container.format.name == TIMED[0] else 0
    if len(pts) < listed:
        raise VideoError(path, f"is cut short (frames found: {len(pts)} of {listed})")
    return _Packets(
        pts=np.array(pts, np.int64),
        dts=np.array(dts, np.int64),
        spare=np.array(spare, bool),
        starts=np.array(starts, np.int32),
        last_duration=duration,
        doubts=doubts or _time_doubts(pts, starts),
    )


def _time_doubts(pts: list[int], starts: list[int]) -> str | None:
    """Return the reason why packets' times do not determine the order of frames, or None."""
    if NO_TIME in pts or len(set(pts)) < len(pts):
        return "some of its frames have no timestamp of their own"
    if pts and (starts[:1] != [0] or min(pts) < pts[0]):
        return "it does not begin with a keyframe"
    return None


def _format_doubts(codec: str, container_format: str) -> str | None:
    """Return the reason why films of this format are decoded from their start, or None."""
    if container_format == "avi":
        return "AVI does not say when frames are shown"
    if container_format not in TIMED:
        return f"{container_format} cannot seek to every frame"
    if codec not in FRAME_PER_PACKET:
        return f"packets of {codec} may hold no frame"
    return None


def _clean_starts(packets: _Packets) -> Numbers:
    """Return the start packets that are shown later than every packet before them."""
    latest = np.maximum.accumulate(packets.pts)
    starts = packets.starts
    clean: Numbers = starts[(starts == 0) | (packets.pts[starts] > latest[starts - 1])]
    return clean


def _clock(container: InputContainer, stream: VideoStream) -> tuple[Fraction, int]:
    """Return the stream's time unit, in seconds, and the start of the file in that unit."""
    unit = stream.time_base
    assert unit is not None
    if container.format.name == "avi":
        return unit, 0
    return unit, round(Fraction(container.start_time or 0, av.time_base) / unit)


def _packet_times(packets: _Packets) -> NDArray[np.int64]:
    """Return the times of the frames that a decoder returns, if each packet is a frame.

    A film that was cut from a longer film may begin with frames that the decoder drops, because
    they refer to frames that were cut off.
    """
    needed = np.flatnonzero(~packets.spare[1:])
    leading = int(needed[0]) if len(needed) else 0
    return np.delete(packets.dts, slice(1, 1 + leading))


def _decoded_times(path: Path, tick: Tick) -> NDArray[np.int64]:
    """Return the times of all frames that the decoder returns."""
    pts = []
    with open_video(path) as (container, stream):
        for packet in container.demux(stream):
            tick()
            pts += [NO_TIME if frame.pts is None else frame.pts for frame in packet.decode()]
    return np.array(pts, np.int64)
