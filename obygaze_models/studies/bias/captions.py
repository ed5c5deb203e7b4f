"""Emotion words in captions of images, per thousand captions, by group.

A group consists of the images with the same condition, emotion and intensity. Captions of the same
image resemble each other, so intervals come from resampling images, not captions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.arrays import Array
from obygaze_features.common.grouping import group_by
from obygaze_features.common.tables import read_table
from obygaze_features.errors import BiasError, translate
from obygaze_models.studies.bias.association import bootstrap_interval
from obygaze_models.studies.bias.inputs import Lexicon, tokens
from obygaze_models.studies.bias.measured import Drawing, Measured

MIN_COUNT = 100
"""The minimum number of occurrences in all captions; rarer words are left out."""
DRAWS = 1000
# The maximum number of bootstrap samples in memory at a time.
_DRAWS_AT_ONCE = 100
_NAME = re.compile(r".+_(?P<emotion>[^_0-9]+)(?P<intensity>[12]?)_(?P<condition>[^_]+)_[^_]+")
_DRAWING = Drawing(
    title="Emotion words in captions",
    axis="emotion words per 1000 captions; lines: 95% bootstrap interval over images",
    groups=["emotion", "words", "intensity"],
    series="condition",
    value="rate",
)
# A row's origin (for messages), image, condition, emotion, intensity and captions.
_Row = tuple[str, str, str, str, str, Sequence[str]]


@dataclass
class ImageCaptions:
    """The number of an image's captions, and of each word's occurrences in them.

    `counts` has only words of the lexicon.
    """

    condition: str
    emotion: str
    intensity: str
    captions: int = 0
    counts: Counter[str] = field(default_factory=Counter)


def read_captions(path: str | Path, lexicon: Lexicon) -> list[ImageCaptions]:
    """Count the words of a lexicon in the captions of each image that has any.

    Parameters
    ----------
    path
        A CSV table with the columns ``image_id``, ``condition``, ``emotion`` and ``caption``, and
        ``intensity`` if there are several intensities. Or pass a folder with one file per image and
        one caption per line. File names consist of subject, emotion and intensity, condition, and
        number, such as ``ann_AN1_NO_3.txt``, or ``ann_NE_NO_3.txt`` without an intensity.
    lexicon
        The words to count, and the names of the emotions and conditions.
    """
    path = Path(path)
    words = set(chain.from_iterable(lexicon.words.values()))
    images: dict[tuple[str, ...], ImageCaptions] = {}
    rows = _folder_rows(path) if path.is_dir() else _table_rows(path)
    for where, image_id, condition, emotion, intensity, captions in rows:
        condition = lexicon.group("condition", condition, where)
        emotion = lexicon.group("emotion", emotion, where)
        group = condition, emotion, intensity
        image = images.setdefault((image_id, *group), ImageCaptions(*group))
        image.captions += len(list(filter(str.strip, captions)))
        image.counts.update(filter(words.__contains__, tokens(" ".join(captions))))
    counted = [image for image in images.values() if image.captions]
    if not counted:
        raise BiasError(f"{path} has no captions. Pass a table, or a folder of .txt files")
    return counted


def _folder_rows(folder: Path) -> Iterator[_Row]:
    for path in sorted(folder.glob("[!.]*.txt")):
        match = _NAME.fullmatch(path.stem)
        if match is None:
            raise BiasError(f"{path}: no group in the file name. Name it like ann_AN1_NO_3.txt")
        with translate(BiasError, path, "is not UTF-8: {}", foreign=UnicodeDecodeError):
            text = path.read_text(encoding="utf-8-sig")
        group = match["condition"], match["emotion"], match["intensity"]
        # The last newline does not start another line.
        yield str(path), path.stem, *group, text.removesuffix("\n").split("\n")


def _table_rows(path: Path) -> Iterator[_Row]:
    required = ["image_id", "condition", "emotion", "caption"]
    table = read_table(path, delimiter=None, required=required)
    table.check_cells("image_id")
    for line, row in zip(table.lines, table.rows(), strict=True):
        group = row["condition"], row["emotion"], row.get("intensity", "")
        yield f"{path}, line {line}", row["image_id"], *group, [row["caption"]]


def emotion_rates(
    images: Sequence[ImageCaptions],
    lexicon: Lexicon,
    *,
    minimum: int = MIN_COUNT,
) -> Measured:
    """Return the rates of emotion words in each group.

    In each group, the words of the group's emotion are counted. If the emotion (such as neutral)
    has no list of words, there is a row for each list.

    A row's ``rate`` is 1000 ``count`` / ``captions``. ``low`` and ``high`` are the ends of the 95%
    bootstrap interval over images; None if the group has a single image. ``about`` has the numbers
    of images with captions and of captions, and the words that are too rare.

    Parameters
    ----------
    images
        The result of `read_captions`.
    lexicon
        The lexicon whose words were counted.
    minimum
        The minimum number of occurrences in all captions; rarer words are left out.
    """
    total: Counter[str] = Counter()
    for image in images:
        total.update(image.counts)

    common = {}
    for name, words in lexicon.words.items():
        common[name] = [word for word in words if total[word] >= minimum]

    emotions = list(lexicon.groups["emotion"])
    conditions = list(lexicon.groups["condition"])

    def place(image: ImageCaptions) -> tuple[int, str, int]:
        emotion = emotions.index(image.emotion)
        return emotion, image.intensity, conditions.index(image.condition)

    rows = []
    for group in group_by(sorted(images, key=place), place).values():
        lists = list(lexicon.words)
        emotion = group[0].emotion
        if emotion in lists:
            lists = [emotion]
        rows += [_rate(group, name, common[name]) for name in lists]

    left_out = []
    notes = []
    for name in dict.fromkeys(row["words"] for row in rows):
        for word in lexicon.words[name]:
            if 0 < total[word] < minimum:
                left_out.append({"left_out_of": name, "word": word, "count": total[word]})
        if not common[name]:
            notes.append(f"rates of {name} mean nothing: no word reaches the minimum ({minimum})")

    about = {
        "images": len(images),
        "captions": sum(image.captions for image in images),
        "lexicon": lexicon.name,
        "minimum": minimum,
        "left_out": left_out,
    }
    return Measured(rows, _DRAWING, about, notes)


def _rate(images: Sequence[ImageCaptions], name: str, words: Collection[str]) -> dict[str, Any]:
    hits = np.array([sum(image.counts[word] for word in words) for image in images])
    captions = np.array([image.captions for image in images])
    low, high = bootstrap_interval(
        (hits, captions),
        _per_1000,
        DRAWS,
        0,
        paired=True,
        batch=_DRAWS_AT_ONCE,
    )
    first = images[0]
    return {
        "condition": first.condition,
        "emotion": first.emotion,
        "intensity": first.intensity,
        "words": name,
        "count": int(hits.sum()),
        "captions": int(captions.sum()),
        "rate": float(_per_1000(hits, captions)),
        "low": low,
        "high": high,
        "images": len(images),
    }


def _per_1000(hits: Array, captions: Array, axis: int = -1) -> Array:
    return np.asarray(1000 * hits.sum(axis=axis) / captions.sum(axis=axis))
