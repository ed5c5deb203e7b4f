"""The cost of decoding, compared with decord and torchcodec.

Each side uses one thread. The film is generated and encoded here: a camera that pans over noise,
with cuts, and with the number of each frame in its picture.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from benchmarks.result import Result, side_by_side
from obygaze_features.sampling import uniform_indices
from obygaze_features.video.index import index_file
from obygaze_features.video.synthetic import draw_frame_number
from tests.kit.decoding import decode_frames
from tests.kit.films import read_frame_number, write_pictures

Peer = Callable[..., str]

FRAMES, HEIGHT, WIDTH, WANTED = 3000, 720, 1280, 32
HOURS = 2


def measure() -> Iterator[Result]:
    """Measure the promised speed of decoding."""
    with tempfile.TemporaryDirectory() as folder:
        with _torchcodec(Path(folder)) as torchcodec:
            yield from _decode(Path(folder), torchcodec)
        yield from _span(Path(folder))


def _decode(folder: Path, torchcodec: Peer | None) -> Iterator[Result]:
    """Decode 32 of 3,000 frames with obygaze and with other libraries."""
    numbers = uniform_indices(FRAMES, WANTED)
    for gop, target in ((25, 1.0), (250, 1 / 1.3)):
        film = folder / f"gop{gop}.mp4"
        write_pictures(
            film, draw_film(FRAMES), rate=25, gop=gop, b_frames=3, options={"preset": "veryfast"}
        )
        label = f"{WANTED} of {FRAMES} frames, 720p, GOP {gop}"
        yield side_by_side(
            f"{label} (decord)", partial(_ours, film, numbers), partial(_decord, film, numbers),
            target=target,
        )  # fmt: skip
        if torchcodec:
            yield side_by_side(
                f"{label} (torchcodec)",
                partial(_ours, film, numbers), partial(torchcodec, film, numbers),
                target=1.0,
            )  # fmt: skip
        ours = _ours(film, numbers)
        yield _differing(f"{label}: frames that differ (of, decord)", ours, _decord(film, numbers))
    film = folder / "film.avi"
    write_pictures(film, draw_film(FRAMES, 144, 176), rate=25, codec="mpeg4", gop=250, b_frames=3)
    yield Result(
        "AVI with B-frames: wrong frames of 32 (decord)",
        _wrong(_ours(film, numbers), numbers), "",
        peer := _wrong(_decord(film, numbers), numbers),
        _wrong(_ours(film, numbers), numbers) / max(peer, 1), 0,
    )  # fmt: skip


def _span(folder: Path) -> Iterator[Result]:
    """Decode a scene from the middle of a long film, and the same scene from its own file."""
    film, scene = folder / "film.mp4", folder / "scene.mp4"
    begin, length = 3600, 60
    _repeat(folder / "gop250.mp4", film, HOURS * 3600 * 25 // FRAMES)
    _cut(film, scene, begin, begin + length)
    film_index = index_file(film)
    scene_index = index_file(scene)

    def of_the_film() -> NDArray[np.uint8]:
        span = film_index.span(film, begin, begin + length)
        numbers = span.start + uniform_indices(len(span), WANTED)
        return decode_frames(film, numbers, index=film_index).rgb

    def of_the_scene() -> NDArray[np.uint8]:
        numbers = uniform_indices(len(scene_index), WANTED)
        return decode_frames(scene, numbers, index=scene_index).rgb

    yield side_by_side(
        f"{WANTED} frames of 60 s in a film of {HOURS} h, index kept (the 60 s as a file)",
        of_the_film, of_the_scene, target=1.2,
    )  # fmt: skip
    yield _differing("its frames that differ (of)", of_the_film(), of_the_scene())


def _ours(film: Path, numbers: NDArray[np.int32]) -> NDArray[np.uint8]:
    return decode_frames(film, numbers).rgb


def _decord(film: Path, numbers: NDArray[np.int32]) -> NDArray[np.uint8]:
    import decord

    reader = decord.VideoReader(str(film), num_threads=1)
    frames: NDArray[np.uint8] = reader.get_batch(numbers.tolist()).asnumpy()
    return frames


TORCHCODEC = """
import json, sys
from torchcodec.decoders import VideoDecoder
print("ready", flush=True)
for line in sys.stdin:
    film, numbers = json.loads(line)
    decoder = VideoDecoder(film, num_ffmpeg_threads=1, dimension_order="NHWC")
    frames = decoder.get_frames_at(numbers).data.numpy()
    print(len(frames), flush=True)
"""


@contextlib.contextmanager
def _torchcodec(folder: Path) -> Iterator[Peer | None]:
    """Yield a function that decodes with torchcodec on the CPU, or None if it cannot be used.

    The decoder runs in a separate process, in which it finds PyAV's FFmpeg under the usual names.
    """
    if not find_spec("torchcodec"):
        print("torchcodec is not installed, so it is left out")
        yield None
        return
    libraries, links = Path(av.__file__).parent.with_name("av.libs"), folder / "ffmpeg"
    links.mkdir()
    for library in [*libraries.glob("libav*"), *libraries.glob("libsw*")]:
        links.joinpath(re.sub(r"-\w+(\.so\.\d+).*", r"\1", library.name)).symlink_to(library)
    paths = {"LD_LIBRARY_PATH": f"{links}:{libraries}", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", TORCHCODEC], env=os.environ | paths, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        questions, answers = process.stdin, process.stdout
        assert questions
        assert answers

        def decode(film: Path, numbers: NDArray[np.int32]) -> str:
            questions.write(json.dumps([str(film), numbers.tolist()]) + "\n")
            questions.flush()
            answer = answers.readline().strip()
            assert answer, "the process of torchcodec has ended"
            return answer

        is_ready = answers.readline() == "ready\n"
        if not is_ready:
            print("torchcodec cannot be used here, so it is left out")
        yield decode if is_ready else None
        questions.close()


def _differing(name: str, ours: NDArray[np.uint8], peer: NDArray[np.uint8]) -> Result:
    """Return the number of frames that are not identical, pixel by pixel."""
    differ = int((ours != peer).any(axis=(1, 2, 3)).sum())
    return Result(name, differ, "", len(ours), differ / len(ours), 0)


def _wrong(rgb: NDArray[np.uint8], numbers: NDArray[np.int32]) -> int:
    drawn = [read_frame_number(picture) for picture in rgb]
    return sum(a != b for a, b in zip(drawn, numbers.tolist(), strict=True))


def draw_film(
    count: int, height: int = HEIGHT, width: int = WIDTH, *, seed: int = 0
) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames of a pan over smooth noise, with a cut every 100 frames."""
    chance = np.random.default_rng(seed)
    for number in range(count):
        if number % 100 == 0:
            coarse = chance.integers(0, 256, (height // 8 + 40, width // 8 + 40, 3))
            fine = chance.integers(-12, 13, (height + 320, width + 320, 3))
            scene = (coarse.repeat(8, 0).repeat(8, 1) * 0.6 + 50 + fine).clip(0, 255)
            scene = scene.astype(np.uint8)
        y, x = number % 100, 2 * (number % 100)
        picture = scene[y : y + height, x : x + width].copy()
        draw_frame_number(picture, number)
        yield picture


def _repeat(film: Path, path: Path, times: int) -> None:
    """Write a film that repeats the packets of another film several times."""
    with av.open(path, "w") as output:
        copy: Any = None
        for turn in range(times):
            with av.open(film) as container:
                stream = container.streams.video[0]
                copy = copy or output.add_stream_from_template(stream)
                unit = stream.time_base or Fraction(1)
                shift = round(turn * FRAMES / 25 / unit)
                for packet in container.demux(stream):
                    if packet.size and packet.pts is not None and packet.dts is not None:
                        packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                        packet.stream = copy
                        output.mux(packet)


def _cut(film: Path, path: Path, begin: float, end: float) -> None:
    """Write a piece of a film from its packets, beginning at a keyframe."""
    with av.open(film) as container, av.open(path, "w") as output:
        stream = container.streams.video[0]
        copy = output.add_stream_from_template(stream)
        unit = stream.time_base or Fraction(1)
        shift = round(begin / unit)
        container.seek(shift, stream=stream)
        for packet in container.demux(stream):
            if packet.pts is None or packet.dts is None or packet.pts * unit >= end:
                continue
            if packet.dts * unit > end:
                break
            packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
            packet.stream = copy
            output.mux(packet)
