"""Emotion words in captions of images: how often a thousand captions have them, by group.

A group is the images of one condition, emotion and intensity. Captions of one image are alike, so
that intervals are over draws of images, not of captions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import BiasError
from obygaze_models.bias.lexicon import Lexicon
from obygaze_models.bias.tables import read_rows, table_errors

__all__ = ["ImageCaptions", "Rate", "Rates", "emotion_rates", "read_captions"]

MINIMUM = 100
"""Words that are seen less often in the whole set are left out."""
DRAWS = 1000
INTENSITIES = ("1", "2")
"""As file names have them. Which is high nobody has said, so that 2 is not taken for high."""
_CELLS = 4_000_000
_NAME = re.compile(r".+_(?P<emotion>[^_0-9]+)(?P<intensity>[0-9]*)_(?P<condition>[^_]+)_[^_]+")
Array = NDArray[Any]


@dataclass(frozen=True)
class ImageCaptions:
    """How many captions an image has, and how often each word of a lexicon stands in them.

    `blank` lines or cells hold none, and are no captions.
    """

    image: str
    condition: str
    emotion: str
    intensity: str
    captions: int
    counts: Counter[str]
    blank: int = 0


@dataclass(frozen=True)
class Rate:
    """How often a group's captions have the words of one list.

    `rate` is 1000 `count` / `captions`; `low` and `high` are the ends of a 95% interval over
    draws of images, None where there is only one.
    """

    condition: str
    emotion: str
    intensity: str
    words: str
    count: int
    captions: int
    rate: float
    low: float | None
    high: float | None
    images: int


@dataclass(frozen=True)
class Rates:
    """Rates, and which words they count: for each list, word -> how often it is seen at all."""

    rates: tuple[Rate, ...]
    minimum: int
    counted: dict[str, dict[str, int]]
    left_out: dict[str, dict[str, int]]


def read_captions(path: Path, lexicon: Lexicon) -> list[ImageCaptions]:
    """Count the words of a lexicon in captions.

    Parameters
    ----------
    path
        A CSV table with ``image_id``, ``condition``, ``emotion``, ``caption`` and, if there is
        more than one, ``intensity``. Or a folder of files such as ``ann_AN1_NO_3.txt``: subject,
        emotion and intensity (none for neutral: ``ann_NE_NO_3.txt``), condition, number; each is
        an image, and each line a caption.
    lexicon
        Whose words are counted, and which knows the groups' names.
    """
    if not {"condition", "emotion"} <= set(lexicon.groups) or not (
        set(lexicon.words) <= set(lexicon.groups["emotion"])
    ):
        raise BiasError(
            f'the lexicon {lexicon.name} is not for captions: its "groups" are to be "condition" '
            'and "emotion", and each list of "words" is to have the name of an emotion'
        )
    return _of_folder(path, lexicon) if path.is_dir() else _of_table(path, lexicon)


def _of_folder(folder: Path, lexicon: Lexicon) -> list[ImageCaptions]:
    found = []
    for path in sorted(folder.glob("[!.]*.txt")):
        if not (match := _NAME.fullmatch(path.stem)):
            raise BiasError(
                f"{path}: the name gives no group; name it as SUBJECT_AN1_NO_1.txt or "
                "SUBJECT_NE_NO_1.txt: subject, emotion and intensity, condition, number"
            )
        try:
            condition, emotion = _group(lexicon, match["condition"], match["emotion"])
        except BiasError as problem:
            raise BiasError(f"{path}: {problem}") from None
        if match["intensity"] not in ("", *INTENSITIES):
            raise BiasError(
                f"{path}: the intensity {match['intensity']} is none of {', '.join(INTENSITIES)}"
            )
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as problem:
            raise BiasError(f"{path} is not UTF-8 (byte {problem.start})") from None
        if not text.strip():
            raise BiasError(f"{path} holds no captions; each line is to be one")
        # What ends the last line begins no other.
        lines = text.removesuffix("\n").split("\n")
        blank = lines.count("") + sum(map(str.isspace, lines))
        found.append(
            ImageCaptions(
                path.stem,
                condition,
                emotion,
                match["intensity"],
                len(lines) - blank,
                lexicon.count(" ".join(lines)),
                blank,
            )
        )
    if not found:
        raise BiasError(f"{folder} holds no .txt files of captions, such as SUBJECT_AN1_NO_1.txt")
    return found


def _of_table(path: Path, lexicon: Lexicon) -> list[ImageCaptions]:
    said_as: dict[tuple[str, str], tuple[str, str]] = {}
    images: dict[tuple[str, str, str, str], list[str]] = {}
    with table_errors():
        table = read_rows(path, ["image_id", "condition", "emotion", "caption"])
        intensities = table.columns.get("intensity", [""] * len(table))
        groups = zip(table["condition"], table["emotion"], strict=True)
        rows = zip(table["image_id"], groups, intensities, table["caption"], strict=True)
        for row, (image, said, intensity, caption) in enumerate(rows):
            if not image:
                raise table.problem(row, "the image_id is missing")
            if said not in said_as:
                try:
                    said_as[said] = _group(lexicon, *said)
                except BiasError as problem:
                    raise table.problem(row, str(problem)) from None
            images.setdefault((image, *said_as[said], intensity), []).append(caption)
    if not any(map(str.strip, table["caption"])):
        raise BiasError(f"{path}: not one of its cells of captions has something in it")
    return [
        ImageCaptions(*key, len(captions) - blank, lexicon.count(" ".join(captions)), blank)
        for key, captions in images.items()
        for blank in [sum(not caption.strip() for caption in captions)]
    ]


def _group(lexicon: Lexicon, condition: str, emotion: str) -> tuple[str, str]:
    return lexicon.group("condition", condition), lexicon.group("emotion", emotion)


def emotion_rates(
    images: Sequence[ImageCaptions],
    lexicon: Lexicon,
    *,
    minimum: int = MINIMUM,
    all_words: bool = False,
) -> Rates:
    """The rates of emotion words in each group.

    Parameters
    ----------
    images
        As `read_captions` gives them.
    lexicon
        The same as there.
    minimum
        Words seen less often than that in all captions together are left out.
    all_words
        Count the words of each list in each group, not of the group's own emotion alone. In a
        group without words of its own, such as neutral, each list is counted anyway.
    """
    seen: Counter[str] = Counter()
    for image in images:
        seen.update(image.counts)
    counted = {
        name: {word: seen[word] for word in words if seen[word] >= minimum}
        for name, words in lexicon.words.items()
    }
    left_out = {
        name: {word: seen[word] for word in words if seen[word] < minimum}
        for name, words in lexicon.words.items()
    }
    groups: dict[tuple[str, str, str], list[ImageCaptions]] = {}
    for image in images:
        if not image.captions:
            continue
        groups.setdefault((image.emotion, image.intensity, image.condition), []).append(image)
    orders = {column: list(names) for column, names in lexicon.groups.items()}
    rates = [
        _rate(groups[emotion, intensity, condition], name, counted[name])
        for emotion, intensity, condition in sorted(
            groups,
            key=lambda key: (
                orders["emotion"].index(key[0]),
                key[1],
                orders["condition"].index(key[2]),
            ),
        )
        for name in lexicon.words
        if all_words or name == emotion or emotion not in lexicon.words
    ]
    return Rates(tuple(rates), minimum, counted, left_out)


def _rate(images: Sequence[ImageCaptions], name: str, words: Iterable[str]) -> Rate:
    words = list(words)
    hits = np.array([sum(image.counts[word] for word in words) for image in images])
    captions = np.array([image.captions for image in images])
    count, of = int(hits.sum()), int(captions.sum())
    low, high = _interval(hits, captions) if len(images) > 1 else (None, None)
    one = images[0]
    return Rate(
        one.condition,
        one.emotion,
        one.intensity,
        name,
        count,
        of,
        1000 * count / of,
        low,
        high,
        len(images),
    )


def _interval(hits: Array, captions: Array) -> tuple[float, float]:
    """The middle 95% of rates over draws of as many images, with replacement."""
    chance = np.random.default_rng(0)
    step = max(1, _CELLS // len(hits))
    drawn = []
    for at in range(0, DRAWS, step):
        rows = chance.integers(0, len(hits), (min(step, DRAWS - at), len(hits)))
        drawn.append(1000 * hits[rows].sum(axis=1) / captions[rows].sum(axis=1))
    low, high = np.quantile(np.concatenate(drawn), [0.025, 0.975])
    return float(low), float(high)
