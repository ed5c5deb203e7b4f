"""Draw small synthetic clips for tests, the demo and benchmarks.

Each frame contains its number, as a strip of black and white squares along its top edge, so that a
decoder's output can be checked against the picture itself. The three levels look different, but
only on average: Sure is warm with a large moving disc, Easy Negative is cool with a small disc, and
Hard Negative is in between. Models therefore score between chance and 1. Whatever its look, a scene
has a voice or, as often, a tone. Most voices say some words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray

from obygaze_features.common.files import SYNTHETIC, new_folder, write_text
from obygaze_features.common.tables import format_rows
from obygaze_features.errors import UsageError
from obygaze_features.items.items import safe_id
from obygaze_features.items.media import clip_id
from obygaze_features.manifests import obygaze_scheme

FRAMES_PER_SECOND = 24
SOUND_RATE = 24_000
BITS = 16
SQUARE = 8
_WIDTH, _HEIGHT = 160, 120
_LEVELS = ("EN", "S", "HN", "S")
"""The levels of a film's scenes, in a repeating pattern."""
_WARMTH = {"EN": 0.0, "HN": 0.5, "S": 1.0}
_SPREAD = 0.5
"""The standard deviation of warmth among scenes of the same level."""
_CONCEPTS = {"EN": 0, "HN": 1, "S": 3}
"""The number of concepts in a scene of each level."""
_SAID = ("Where were you?", "", "Look at me.", "Not here, please.", "Say something!")
"""The words that voices say, in a repeating pattern; some scenes have no words."""


def write_synthetic_dataset(
    folder: Path,
    *,
    films: int = 3,
    scenes: int = 4,
    seconds: float = 2.0,
    titles: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Write clips and their annotations, and return the path of ``annotations.csv``.

    Clips are files ``videos/FILM/FILM_scene_N.mp4``. Of every four scenes of a film, two are Sure,
    one is Easy Negative and one is Hard Negative. The ``heard`` column is ``voice`` or ``tone``.
    With `titles`, each title is a whole film in the file ``videos/TITLE.mp4``, with subtitles in
    ``videos/TITLE.srt``, and the clips are spans of it. With `overwrite`, an earlier synthetic data
    set is replaced.
    """
    for title in titles:
        if Path(title).name != title:
            raise UsageError(f"a title must be a file name, without a slash (got {title!r})")
    rows: list[dict[str, object]] = []
    videos: dict[Path, list[tuple[int, Iterable[NDArray[np.uint8]]]]] = {}
    names = obygaze_scheme().visual_concepts
    for number in range((len(titles) or films) * scenes):
        at, scene = divmod(number, scenes)
        film = safe_id(titles[at]) if titles else f"tt{at + 1:07d}"
        level = _LEVELS[(scene + (at if titles else 0)) % len(_LEVELS)]
        media = f"{titles[at]}.mp4" if titles else f"{film}_scene_{scene + 1}.mp4"
        pictures = draw_clip(level, number, round(seconds * FRAMES_PER_SECOND))
        videos.setdefault(Path("" if titles else film, media), []).append((number, pictures))
        row: dict[str, object] = {
            "id": clip_id(film, scene + 1),
            "film": film,
            "media": media,
            "level": level,
        }
        row["concepts"] = [names[(number + n) % len(names)] for n in range(_CONCEPTS[level])]
        span = {"start": scene * seconds, "end": (scene + 1) * seconds} if titles else {}
        row["heard"] = "voice" if has_voice(number) else "tone"
        rows.append({**row, **span, "synthetic": "drawn by a program"})
    with new_folder(folder, overwrite=overwrite, marker=SYNTHETIC, allow_missing=True) as new:
        write_text(new / SYNTHETIC, "Drawn by obygaze features demo; nothing was filmed.\n")
        for path, scenes_of_film in videos.items():
            (new / "videos" / path).parent.mkdir(parents=True, exist_ok=True)
            _write_clip(new / "videos" / path, scenes_of_film)
            if titles:
                scene_numbers = [number for number, _ in scenes_of_film]
                write_text(
                    new / "videos" / path.with_suffix(".srt"), _subtitles(scene_numbers, seconds)
                )
        write_text(new / "annotations.csv", format_rows(rows))
    return folder / "annotations.csv"


def _write_clip(path: Path, scenes: Iterable[tuple[int, Iterable[NDArray[np.uint8]]]]) -> None:
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    with av.open(path, "w") as container:
        stream = container.add_stream(codec, rate=FRAMES_PER_SECOND, options={})
        sound = container.add_stream("aac", rate=SOUND_RATE, layout="mono")
        assert isinstance(stream, VideoStream)
        sound.bit_rate = 32_000
        stream.height, stream.width, stream.pix_fmt = _HEIGHT, _WIDTH, "yuv420p"
        stream.gop_size, stream.max_b_frames = 12, 2
        stream.codec_context.thread_count = 1
        for seed, pictures in scenes:
            for number, picture in enumerate(pictures):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
                tone = av.AudioFrame.from_ndarray(draw_sound(seed, number), "fltp", "mono")
                tone.sample_rate = SOUND_RATE
                container.mux(sound.encode(tone))
        container.mux([*stream.encode(), *sound.encode()])


def has_voice(seed: int) -> bool:
    """Return True if a scene has a voice, which is independent of its picture."""
    return bool(np.random.default_rng([seed, 1]).random() < 0.5)


def draw_sound(seed: int, number: int) -> NDArray[np.float32]:
    """Return the sound of a frame: a steady tone, or syllables. The pitch has no meaning."""
    count = SOUND_RATE // FRAMES_PER_SECOND
    time = np.arange(number * count, (number + 1) * count) / SOUND_RATE
    pitch = 180 + 10 * (seed % 13)
    waves = [np.sin(2 * np.pi * pitch * n * time) / n for n in range(1, 9)]
    sound = sum(waves) * np.sin(np.pi * 4 * time) ** 2 if has_voice(seed) else waves[0]
    return (0.3 * sound).astype(np.float32)[None]


def _subtitles(scenes: Sequence[int], seconds: float) -> str:
    """Return the words spoken in a film's scenes, as SRT subtitles."""
    voices = [n for n in scenes if has_voice(n)]
    words_of = {n: _SAID[at % len(_SAID)] for at, n in enumerate(voices)}
    lines = [
        f"{_clock(at * seconds)} --> {_clock((at + 1) * seconds)}\n{words_of[n]}\n"
        for at, n in enumerate(scenes)
        if words_of.get(n)
    ]
    return "\n".join(f"{number}\n{line}" for number, line in enumerate(lines, 1))


def _clock(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    return f"00:{minutes:02}:{milliseconds // 1000:02},{milliseconds % 1000:03}"


def draw_frame_number(rgb: NDArray[np.uint8], number: int) -> None:
    """Draw a frame's number into a picture, as a strip of squares."""
    bits = (number >> np.arange(BITS)) & 1
    rgb[:SQUARE, : BITS * SQUARE] = np.repeat(bits, SQUARE)[:, None] * 255


def draw_clip(
    level: str, seed: int, count: int, width: int = _WIDTH, height: int = _HEIGHT
) -> Iterator[NDArray[np.uint8]]:
    """Yield the pictures of a clip that looks like a level; each seed gives a different clip."""
    random = np.random.default_rng(seed)
    warmth = np.clip(_WARMTH[level] + random.normal(0, _SPREAD), 0, 1)
    cool, warm = np.array([40, 70, 150]), np.array([200, 90, 50])
    background = cool + warmth * (warm - cool) + random.normal(0, 8, 3)
    disc = np.array([140, 190, 220]) + warmth * np.array([100, 10, -60])
    radius = height * (0.1 + 0.2 * warmth)
    phase, turns = random.uniform(0, 2 * np.pi), random.uniform(0.5, 1.5)
    y, x = np.mgrid[:height, :width]
    shade = (0.8 + 0.4 * y / height)[..., None]
    empty = (background * shade).clip(0, 255).astype(np.uint8)
    for number in range(count):
        angle = phase + 2 * np.pi * turns * number / count
        centre_x = width / 2 + np.cos(angle) * (width / 2 - radius)
        centre_y = height / 2 + np.sin(angle) * (height / 2 - radius)
        picture = empty.copy()
        picture[(x - centre_x) ** 2 + (y - centre_y) ** 2 < radius**2] = disc.clip(0, 255)
        draw_frame_number(picture, number)
        yield picture
