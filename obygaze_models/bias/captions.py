"""Emotion words in captions of images: how many per thousand captions, by group.

A group is the images of one condition, emotion and intensity. The captions of one image resemble
each other, so intervals are over draws of images, not of captions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import BiasError
from obygaze_models.bias.inputs import read_rows
from obygaze_models.bias.lexicon import Lexicon

MIN_COUNT = 100
"""Words that occur less often in all captions together are left out."""
DRAWS = 1000
INTENSITIES = ("1", "2")
"""As file names have them. Nobody has published which is high, so 2 is not called high."""
#: How many numbers the draws of an interval hold at a time.
_NUMBERS_AT_ONCE = 4_000_000
_NAME = re.compile(r".+_(?P<emotion>[^_0-9]+)(?P<intensity>[0-9]*)_(?P<condition>[^_]+)_[^_]+")
Array = NDArray[Any]
#: Image, condition, emotion and intensity.
_Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class ImageCaptions:
    """The number of an image's captions, and how often each word of a lexicon occurs in them.

    `blank` counts lines or cells without a caption.
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
    draws of images, None if there is only one.
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
    """Rates, and which words they count: for each list, word -> how often it occurs in all."""

    rates: tuple[Rate, ...]
    minimum: int
    counted: dict[str, dict[str, int]]
    left_out: dict[str, dict[str, int]]

    @property
    def several_lists(self) -> bool:
        """Whether any group is counted with words of another emotion than its own."""
        return any(rate.words != rate.emotion for rate in self.rates)

    @property
    def captions(self) -> int:
        """The captions of all groups; each group is counted once, with however many lists."""
        groups = {
            (rate.condition, rate.emotion, rate.intensity): rate.captions for rate in self.rates
        }
        return sum(groups.values())


def read_captions(path: str | Path, lexicon: Lexicon) -> list[ImageCaptions]:
    """Count the words of a lexicon in captions.

    Parameters
    ----------
    path
        A CSV table with ``image_id``, ``condition``, ``emotion``, ``caption`` and, if there is
        more than one, ``intensity``. Or a folder of files such as ``ann_AN1_NO_3.txt``: subject,
        emotion and intensity (none for neutral: ``ann_NE_NO_3.txt``), condition, number; each file
        is an image, and each line a caption.
    lexicon
        The words to count, and the names of the groups.
    """
    path = Path(path)
    emotions = lexicon.groups.get("emotion", {})
    if "condition" not in lexicon.groups or not lexicon.words.keys() <= emotions.keys():
        raise BiasError(
            f'the lexicon {lexicon.name} is not for captions; give it "groups" with "condition" '
            'and "emotion", and name each list of "words" after an emotion'
        )
    return [
        ImageCaptions(*key, len(captions) - blank, lexicon.count(" ".join(captions)), blank)
        for key, captions in (_of_folder if path.is_dir() else _of_table)(path, lexicon)
        for blank in [sum(not caption.strip() for caption in captions)]
    ]


def _of_folder(folder: Path, lexicon: Lexicon) -> Iterator[tuple[_Key, list[str]]]:
    path = None
    for path in sorted(folder.glob("[!.]*.txt")):
        if not (match := _NAME.fullmatch(path.stem)):
            raise BiasError(
                f"{path}: the name gives no group; name it as SUBJECT_AN1_NO_1.txt or "
                "SUBJECT_NE_NO_1.txt: subject, emotion and intensity, condition, number"
            )
        try:
            groups = _groups(lexicon, match["condition"], match["emotion"])
        except BiasError as problem:
            raise BiasError(f"{path}: {problem}") from None
        if match["intensity"] not in ("", *INTENSITIES):
            raise BiasError(
                f"{path}: the intensity {match['intensity']} is not one of {', '.join(INTENSITIES)}"
            )
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as problem:
            raise BiasError(
                f"{path} is not UTF-8 (byte {problem.start}); save it as UTF-8"
            ) from None
        if not text.strip():
            raise BiasError(f"{path} has no captions; write one in each line")
        # The end of the last line does not begin another one.
        yield (path.stem, *groups, match["intensity"]), text.removesuffix("\n").split("\n")
    if path is None:
        raise BiasError(f"{folder} has no .txt files of captions, such as SUBJECT_AN1_NO_1.txt")


def _of_table(path: Path, lexicon: Lexicon) -> Iterator[tuple[_Key, list[str]]]:
    images: dict[_Key, list[str]] = {}
    with read_rows(path, ["image_id", "condition", "emotion", "caption"]) as table:
        names = (table[name] for name in ("image_id", "condition", "emotion"))
        rows = zip(*names, table.get("intensity"), table["caption"], strict=True)
        for row, (image, condition, emotion, intensity, caption) in enumerate(rows):
            if not image:
                raise table.problem(row, "the image_id is missing")
            try:
                key = (image, *_groups(lexicon, condition, emotion), intensity)
            except BiasError as problem:
                raise table.problem(row, str(problem)) from None
            images.setdefault(key, []).append(caption)
        if not any(map(str.strip, table["caption"])):
            raise BiasError(f"{path}: the column caption is empty")
    yield from images.items()


def _groups(lexicon: Lexicon, condition: str, emotion: str) -> tuple[str, str]:
    return lexicon.group("condition", condition), lexicon.group("emotion", emotion)


def emotion_rates(
    images: Sequence[ImageCaptions],
    lexicon: Lexicon,
    *,
    minimum: int = MIN_COUNT,
    all_words: bool = False,
) -> Rates:
    """The rates of emotion words in each group.

    Parameters
    ----------
    images
        From `read_captions`.
    lexicon
        The same as there.
    minimum
        Words that occur less often in all captions together are left out.
    all_words
        Count the words of each list in each group, not only of the group's own emotion. A group
        whose emotion has no list, such as neutral, is always counted with each list.
    """
    total: Counter[str] = Counter()
    for image in images:
        total.update(image.counts)
    counted: dict[str, dict[str, int]] = {name: {} for name in lexicon.words}
    left_out: dict[str, dict[str, int]] = {name: {} for name in lexicon.words}
    for name, words in lexicon.words.items():
        for word in words:
            (counted if total[word] >= minimum else left_out)[name][word] = total[word]
    groups: dict[tuple[str, str, str], list[ImageCaptions]] = {}
    for image in images:
        if image.captions:
            key = image.emotion, image.intensity, image.condition
            groups.setdefault(key, []).append(image)
    emotions, conditions = (list(lexicon.groups[column]) for column in ("emotion", "condition"))
    ordered = sorted(
        groups, key=lambda key: (emotions.index(key[0]), key[1], conditions.index(key[2]))
    )
    rates = [
        _rate(groups[key], name, counted[name])
        for key in ordered
        for name in lexicon.words
        if all_words or name == key[0] or key[0] not in lexicon.words
    ]
    return Rates(tuple(rates), minimum, counted, left_out)


def _rate(images: Sequence[ImageCaptions], name: str, words: Iterable[str]) -> Rate:
    words = list(words)
    hits = np.array([sum(image.counts[word] for word in words) for image in images])
    captions = np.array([image.captions for image in images])
    count, total = int(hits.sum()), int(captions.sum())
    low, high = _interval(hits, captions) if len(images) > 1 else (None, None)
    first = images[0]
    return Rate(
        first.condition, first.emotion, first.intensity, name, count, total, 1000 * count / total,
        low, high, len(images),
    )  # fmt: skip


def _interval(hits: Array, captions: Array) -> tuple[float, float]:
    """The middle 95% of rates over draws of as many images, with replacement."""
    from scipy.stats import bootstrap

    drawn = bootstrap(
        (hits, captions),
        lambda hits, captions, axis: 1000 * hits.sum(axis=axis) / captions.sum(axis=axis),
        paired=True,
        n_resamples=DRAWS,
        batch=max(1, _NUMBERS_AT_ONCE // len(hits)),
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = np.quantile(drawn.bootstrap_distribution, [0.025, 0.975])
    return float(low), float(high)
