"""Films for tests, manifests of them, and the frames that a plain decoder reads."""

import contextlib
import functools
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import av
import av.filter
import numpy as np

from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.video.synthetic import BITS, SQUARE, draw_clip

ALTREF = {"deadline": "good", "cpu-used": "5", "auto-alt-ref": "1", "lag-in-frames": "16"}
#: One thread, because x265 once failed to start its pool on a busy machine.
QUIET = "log-level=none:pools=none:frame-threads=1"

#: The settings for writing each film, by file name.
KINDS: dict[str, dict[str, Any]] = {
    "x264.mp4": {},
    "x264.mkv": {"b_frames": 3},
    "x264.mov": {"gop": 5, "options": {"x264-params": "b-pyramid=none:ref=1"}},
    "x264.avi": {},
    "x264.ts": {},
    "x264.flv": {},
    "mpeg4.avi": {"codec": "mpeg4"},
    "mpeg4.mp4": {"codec": "mpeg4", "b_frames": 1},
    "mpeg2.mpg": {"codec": "mpeg2video"},
    "mpeg2.mkv": {"codec": "mpeg2video"},
    "vp8.webm": {"codec": "libvpx", "options": ALTREF | {"cpu-used": "8"}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": ALTREF},
    "x265-open.mp4": {"codec": "libx265", "options": {"x265-params": QUIET}},
    "variable.mp4": {"variable_rate": True},
    "variable.mkv": {"variable_rate": True, "codec": "mpeg4"},
    "odd.mp4": {"width": 161, "height": 121},
    "open.mp4": {"b_frames": 3, "options": {"x264-params": "open-gop=1"}},
    "open.mkv": {"b_frames": 4, "gop": 8, "options": {"x264-params": "open-gop=1"}},
    "refresh.mkv": {"options": {"x264-params": "intra-refresh=1"}},
    "interlaced.mkv": {"options": {"flags": "+ildct+ilme"}},
    "upright.mp4": {"rotation": 90},
    "sideways.mov": {"rotation": -90, "width": 176},
}


def write_clip(
    path: Path,
    level: str,
    *,
    seed: int = 0,
    seconds: float = 2.0,
    width: int = 160,
    height: int = 120,
    rate: int = 24,
    **settings: Any,
) -> None:
    """Write a clip that looks like a level; `settings` are those of `write_pictures`."""
    pictures = draw_clip(level, seed, round(seconds * rate), width, height)
    write_pictures(path, pictures, rate=rate, **settings)


def write_pictures(
    path: Path,
    pictures: Iterable[np.ndarray],
    *,
    rate: int = 24,
    variable_rate: bool = False,
    rotation: int = 0,
    codec: str | None = None,
    gop: int = 12,
    b_frames: int = 2,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write RGB pictures of one size as a film; the suffix of `path` selects the container.

    With a `variable_rate`, frames are shown for one, two or three times as long, in turn. A player
    has to rotate the pictures by `rotation` degrees counter-clockwise. `codec` is an FFmpeg
    encoder, and `gop` is the number of frames from one keyframe to the next.
    """
    codec = codec or ("libx264" if "libx264" in av.codecs_available else "mpeg4")
    with av.open(path, "w") as container:
        stream: Any = container.add_stream(codec, rate=rate, options=dict(options or {}))
        pictures = iter(pictures)
        first = next(pictures)
        stream.height, stream.width = first.shape[:2]
        odd = stream.height % 2 or stream.width % 2
        # x264 halves the colours of even sizes only.
        stream.pix_fmt = "yuv444p" if odd and codec == "libx264" else "yuv420p"
        stream.gop_size = gop
        stream.max_b_frames = b_frames
        stream.codec_context.thread_count = 1
        if variable_rate:
            stream.codec_context.time_base = Fraction(1, 1000)
        if rotation:
            stream.set_display_rotation(rotation)
        tick = 0
        for number, rgb in enumerate(chain([first], pictures)):
            frame = av.VideoFrame.from_ndarray(rgb, format="rgb24")
            if variable_rate:
                frame.pts = tick * 1000 // rate
                frame.time_base = Fraction(1, 1000)
                tick += 1 + number % 3
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def read_frame_number(rgb: np.ndarray) -> int:
    """Return the number that a synthetic frame carries in its strip."""
    strip = rgb[:SQUARE, : BITS * SQUARE].mean(axis=(0, 2))
    squares = strip.reshape(BITS, SQUARE)
    bits = squares[:, 2:-2].mean(axis=1) > 127
    return int((bits << np.arange(BITS)).sum())


def write(path: Path, *, seconds: float = 3, **changes: Any) -> Path:
    path.write_bytes(encode(path.name, seconds, tuple(changes.items())))
    return path


@functools.cache
def encode(name: str, seconds: float, changes: tuple[tuple[str, Any], ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        for attempt in range(3):  # x265 refuses a frame once in some thousand times
            with contextlib.suppress(*[av.error.FFmpegError] * (attempt < 2)):
                write_clip(path, "S", seconds=seconds, **(KINDS[name] | dict(changes)))
                break
        return path.read_bytes()


def copy_packets(
    films: Sequence[Path],
    path: Path,
    *,
    kind: str = "video",
    key: int = 0,
    zero: int = 0,
    **options: Any,
) -> None:
    """Join films, or their sound, without re-encoding, like editing programs.

    Start from keyframe number `key`. The clock is 0 at the time of frame number `zero`.
    """
    with av.open(path, "w", **options) as target:
        copy = None
        end = 0
        for film in films:
            with av.open(film) as source:
                stream: Any = getattr(source.streams, kind)[0]
                copy = copy or target.add_stream_from_template(stream)
                keys = -1
                shift = end - round(zero / 24 / stream.time_base)
                shift -= stream.start_time * (kind == "audio")
                for packet in source.demux(stream):
                    keys += packet.is_keyframe
                    if packet.dts is not None and keys >= key:
                        packet.pts = packet.pts + shift
                        packet.dts = packet.dts + shift
                        end = max(end, packet.pts + packet.duration)
                        packet.stream = copy
                        target.mux(packet)


def everything(path: Path) -> np.ndarray:
    """Return all stored frames, in the order in which PyAV returns them."""
    with av.open(path) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def upright(rgb: np.ndarray, rotation: int) -> np.ndarray:
    return np.rot90(rgb, rotation // 90, axes=(1, 2))


def numbers(rgb: np.ndarray, rotation: int = 0) -> list[int]:
    """Return the numbers drawn into upright pictures that were stored rotated."""
    return [read_frame_number(picture) for picture in upright(rgb, -rotation)]


def clips(*names: str) -> Manifest:
    """Return a manifest of clips whose ids are the stems of their files."""
    items = [Item(Path(name).stem, media=name) for name in names]
    return Manifest("made-up", Items.of(items))


def rows(count: int, films: int = 6) -> Manifest:
    """Return a manifest of clips, clip-00 and so on, that share the files clip0.mp4 and so on."""
    files = [f"clip{row % films}.mp4" for row in range(count)]
    items = [Item(f"clip-{row:02}", media=file) for row, file in enumerate(files)]
    return Manifest("made-up", Items.of(items))


def write_sound(
    path: Path,
    codec: str,
    *tracks: np.ndarray,
    rate: int = 48_000,
    pictures: float = 0,
    later: Sequence[tuple[float, float]] = (),
    **settings: Any,
) -> Path:
    """Write sound tracks ``[S]`` or ``[S, 2]`` from -1 to 1, and `pictures` seconds of black film.

    Sound from ``later[n][0]`` on is heard ``later[n][1]`` seconds later.
    """
    with av.open(path, "w", **settings) as container:
        film: Any = container.add_stream("mpeg4", rate=24) if pictures else None
        if film:
            film.width = 64
            film.height = 48
        streams: list[Any] = []
        for number, samples in enumerate(tracks):
            layout = "mono" if samples.ndim == 1 else "stereo"
            streams.append(container.add_stream(codec, rate=rate, layout=layout))
            streams[-1].metadata["language"] = ("fra", "deu", "ita")[number]
        for _ in range(round(24 * pictures)):
            picture = np.zeros((48, 64, 3), np.uint8)
            container.mux(film.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        for stream, samples in zip(streams, tracks, strict=True):
            layout = stream.layout.name
            converter = av.AudioResampler(stream.format.name, layout, rate)
            frames: list[Any] = []
            for first in range(0, len(samples), 1024):
                plain = samples[first : first + 1024].astype(np.float32)
                plain = plain.reshape(1, -1)
                frame = av.AudioFrame.from_ndarray(plain, format="flt", layout=layout)
                frame.sample_rate = rate
                frame.pts = first
                frame.time_base = Fraction(1, rate)
                frames += converter.resample(frame)
            for packet in chain(*map(stream.encode, [*frames, None])):
                seconds = float(packet.pts * packet.time_base)
                pause = sum(by for at, by in later if seconds >= at)
                shift = round(pause / packet.time_base)
                packet.pts = packet.pts + shift
                packet.dts = packet.dts + shift
                container.mux(packet)
        container.mux(film.encode() if film else [])
    return path


def ffmpeg_cut(
    path: Path, rate: int, start: float | None = None, end: float | None = None
) -> np.ndarray:
    """Return a span of a file's mono sound, or all of it, decoded and cut by FFmpeg."""
    graph = av.filter.Graph()
    pieces = list[np.ndarray]()
    shape = f"sample_fmts=flt:channel_layouts=mono:sample_rates={rate}"
    first = round((start or 0) * rate)
    last = round((end or 99) * rate)
    span = f"start_sample={first}:end_sample={last}"
    with av.open(path) as container:
        source = container.streams.audio[0]
        into = graph.add_abuffer(template=source)
        cutter = graph.add("atrim", span)
        ends = graph.add("aformat", shape), cutter, graph.add("abuffersink")
        graph.link_nodes(into, *ends).configure()
        with contextlib.suppress(av.EOFError):  # frames after the span are not included
            for frame in [*container.decode(source), None]:
                into.push(frame)
    with contextlib.suppress(av.EOFError):
        while True:
            pieces.append(graph.pull().to_ndarray()[0])
    return np.concatenate(pieces)
