"""Draw small synthetic clips for tests, the demo and benchmarks.

Each frame contains its number in its scene, as a strip of black and white squares along its top
edge, so that a decoder's output can be checked against the picture itself. The three levels look
different, but only on average: Sure is warm with a large moving disc, Easy Negative is cool with a
small disc, and Hard Negative is in between. Models therefore do better than chance, but make
mistakes. Whatever its look, a scene has a voice or, as often, a tone. In the subtitles, most voices
say some words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import SYNTHETIC, new_folder, write_text
from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import format_rows
from obygaze_features.errors import UsageError
from obygaze_features.items.items import safe_id

FRAMES_PER_SECOND = 24
SOUND_RATE = 24_000
BITS = 16
SQUARE = 8
_WIDTH = 160
_HEIGHT = 120
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
    With `titles`, there is a whole film for each title, ``videos/TITLE.mp4``, with subtitles in
    ``videos/TITLE.srt``, and the clips are spans of films. With `overwrite`, an earlier synthetic
    data set is replaced.
    """
    for title in titles:
        if Path(title).name != title:
            raise UsageError(f"a title must be a file name, without a slash (got {title!r})")
    rows = []
    concepts = reference_json("scheme-obygaze.json")["concepts"]
    names = [concept["name"] for concept in concepts if concept["visual"]]
    with new_folder(folder, overwrite=overwrite, marker=SYNTHETIC, allow_missing=True) as new:
        write_text(new / SYNTHETIC, "Drawn by obygaze features demo; nothing was filmed.\n")
        videos = new / "videos"
        for at, title in enumerate(titles or [f"tt{n + 1:07d}" for n in range(films)]):
            film = safe_id(title)
            shift = 0
            if titles:
                shift = at
            drawn = []
            for scene in range(scenes):
                number = at * scenes + scene
                level = _LEVELS[(scene + shift) % len(_LEVELS)]
                drawn.append((level, number))
                concepts = range(number, number + _CONCEPTS[level])
                row: dict[str, object] = {
                    "id": f"{film}-{scene + 1:03d}",
                    "film": film,
                    "media": f"{film}_scene_{scene + 1}.mp4",
                    "level": level,
                    "concepts": [names[n % len(names)] for n in concepts],
                    "heard": "voice" if has_voice(number) else "tone",
                }
                if titles:
                    row["media"] = f"{title}.mp4"
                    row["start"] = scene * seconds
                    row["end"] = (scene + 1) * seconds
                else:
                    _write_clip(videos / film / str(row["media"]), drawn[-1:], seconds)
                row["synthetic"] = "drawn by a program"
                rows.append(row)
            if titles:
                _write_clip(videos / f"{title}.mp4", drawn, seconds)
                write_text(videos / f"{title}.srt", _subtitles(drawn, seconds))
        write_text(new / "annotations.csv", format_rows(rows))
    return folder / "annotations.csv"


def _write_clip(path: Path, scenes: Sequence[tuple[str, int]], seconds: float) -> None:
    """Write a film of scenes, each with a level and a seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    with av.open(path, "w") as container:
        stream: Any = container.add_stream(codec, rate=FRAMES_PER_SECOND)
        sound = container.add_stream("aac", rate=SOUND_RATE, layout="mono")
        sound.bit_rate = 32_000
        stream.width = _WIDTH
        stream.height = _HEIGHT
        stream.pix_fmt = "yuv420p"
        stream.gop_size = 12
        stream.max_b_frames = 2
        stream.codec_context.thread_count = 1
        for level, seed in scenes:
            pictures = draw_clip(level, seed, round(seconds * FRAMES_PER_SECOND))
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
    sound = np.sin(2 * np.pi * pitch * time)
    if has_voice(seed):
        for overtone in range(2, 9):
            sound += np.sin(2 * np.pi * pitch * overtone * time) / overtone
        sound *= np.sin(np.pi * 4 * time) ** 2
    return (0.3 * sound).astype(np.float32)[None]


def _subtitles(scenes: Sequence[tuple[str, int]], seconds: float) -> str:
    """Return the words spoken in a film's scenes, as SRT subtitles."""
    blocks: list[str] = []
    voices = 0
    for at, (_, seed) in enumerate(scenes):
        if not has_voice(seed):
            continue
        words = _SAID[voices % len(_SAID)]
        voices += 1
        if words:
            span = f"{_clock(at * seconds)} --> {_clock((at + 1) * seconds)}"
            blocks.append(f"{len(blocks) + 1}\n{span}\n{words}\n")
    return "\n".join(blocks)


def _clock(seconds: float) -> str:
    minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
    return f"00:{minutes:02}:{milliseconds // 1000:02},{milliseconds % 1000:03}"


def draw_frame_number(rgb: NDArray[np.uint8], number: int) -> None:
    """Draw a frame's number into a picture, as a strip of squares."""
    bits = (number >> np.arange(BITS)) & 1
    rgb[:SQUARE, : BITS * SQUARE] = np.repeat(bits, SQUARE)[:, None] * 255


def draw_clip(
    level: str,
    seed: int,
    count: int,
    width: int = _WIDTH,
    height: int = _HEIGHT,
) -> Iterator[NDArray[np.uint8]]:
    """Yield the pictures of a clip that looks like a level; each seed gives a different clip."""
    random = np.random.default_rng(seed)
    warmth = np.clip(_WARMTH[level] + random.normal(0, _SPREAD), 0, 1)
    cool = np.array([40, 70, 150])
    warm = np.array([200, 90, 50])
    background = cool + warmth * (warm - cool) + random.normal(0, 8, 3)
    disc = np.array([140, 190, 220]) + warmth * np.array([100, 10, -60])
    radius = height * (0.1 + 0.2 * warmth)
    phase = random.uniform(0, 2 * np.pi)
    turns = random.uniform(0.5, 1.5)
    y, x = np.mgrid[:height, :width]
    shade = (0.8 + 0.4 * y / height)[..., None]
    empty = (background * shade).clip(0, 255).astype(np.uint8)
    for number in range(count):
        angle = phase + 2 * np.pi * turns * number / count
        centre_x = width / 2 + np.cos(angle) * (width / 2 - radius)
        centre_y = height / 2 + np.sin(angle) * (height / 2 - radius)
        distance = (x - centre_x) ** 2 + (y - centre_y) ** 2
        picture = empty.copy()
        picture[distance < radius**2] = disc.clip(0, 255)
        draw_frame_number(picture, number)
        yield picture
