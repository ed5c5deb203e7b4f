"""Emotion words in captions of images: how many per thousand captions, by group.

A group is the images of one condition, emotion and intensity. The captions of one image resemble
each other, so intervals are over draws of images, not of captions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.common.tables import align
from obygaze_features.common.text import counted, format_number
from obygaze_features.errors import BiasError
from obygaze_models.bias.association import bootstrap_interval
from obygaze_models.bias.inputs import Lexicon, read_rows
from obygaze_models.figures.dots import grouped_dots, numbered_series
from obygaze_models.figures.sheet import Dot
from obygaze_models.scoring.metrics import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_COUNT = 100
"""Words that occur less often in all captions together are left out."""
DRAWS = 1000
INTENSITIES = ("1", "2")
"""As file names have them. Nobody has published which is high, so 2 is not called high."""
#: How many numbers the draws of an interval hold at a time.
_NUMBERS_AT_ONCE = 4_000_000
_NAME = re.compile(r".+_(?P<emotion>[^_0-9]+)(?P<intensity>[0-9]*)_(?P<condition>[^_]+)_[^_]+")
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
    """The rates of all groups, and what was counted.

    Parameters
    ----------
    images, captions, blank
        Numbers of images with captions, of captions, and of lines or cells without one.
    lexicon
        The name of the lists of words.
    rates
        A rate for each group and list.
    minimum, counted, left_out
        For each list, word -> how often it occurs in all captions: at least `minimum` times, or
        less often.
    """

    images: int
    captions: int
    blank: int
    lexicon: str
    rates: tuple[Rate, ...]
    minimum: int
    counted: dict[str, dict[str, int]]
    left_out: dict[str, dict[str, int]]

    @property
    def several_lists(self) -> bool:
        """Whether any group is counted with words of another emotion than its own."""
        return any(rate.words != rate.emotion for rate in self.rates)

    @property
    def lists(self) -> list[str]:
        """The lists that any group is counted with."""
        return list(dict.fromkeys(rate.words for rate in self.rates))

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """The rates as rows of a table."""
        rows = [asdict(rate) for rate in self.rates]
        if not self.several_lists:
            for row in rows:
                del row["words"]
        return rows

    def describe(self) -> str:
        """A table of the rates, and the words that are too rare to count."""
        header = ["emotion", "intensity", "condition", "words of"]
        cells = [
            [rate.emotion, rate.intensity or "-", rate.condition, rate.words] for rate in self.rates
        ]
        for row in (header, *cells) if not self.several_lists else ():
            row.pop()
        left = len(header)
        header += ["count", "captions", "per 1000", "95%"]
        for row, rate in zip(cells, self.rates, strict=True):
            if self.counted[rate.words]:
                row += [f"{rate.count:,}", f"{rate.captions:,}", f"{rate.rate:.2f}"]
                row.append("-" if rate.low is None else f"{rate.low:.2f} to {rate.high:.2f}")
            else:
                row += ["-", f"{rate.captions:,}", "-", "-"]
        number = f"{counted(self.captions, 'caption')} of {counted(self.images, 'image')}"
        lines = [f"{number}, words of {self.lexicon}", align(header, cells, left=left)]
        for name in self.lists:
            rare = [f"{word} {count:,}" for word, count in self.left_out[name].items() if count]
            if rare:
                fewer = f"fewer than {self.minimum} times"
                lines.append(f"left out of {name}, {fewer}: {', '.join(rare)}")
        return "\n".join(lines)

    def notes(self) -> Iterator[str]:
        """What may be wrong with the captions, or hides rates."""
        if self.blank:
            lines = counted(self.blank, "blank line or cell", "blank lines or cells")
            yield f"{lines} left out: no caption"
        names = dict.fromkeys(rate.intensity for rate in self.rates)
        if not {"high", "low"}.isdisjoint(names) and not set(INTENSITIES).isdisjoint(names):
            listed = ", ".join(names)
            yield f"intensities are called {listed} and counted as different; write them alike"
        for name in self.lists:
            if not self.counted[name]:
                yield (
                    f"no word of {name} occurs {counted(self.minimum, 'time')}, so its rates say "
                    "nothing; lower --minimum to count them"
                )

    def figure(self) -> Figure:
        """A dot a condition, for each emotion and intensity."""
        conditions = list(dict.fromkeys(rate.condition for rate in self.rates))
        dots: dict[str, dict[str, Dot]] = {}
        for rate in self.rates:
            name = f"{rate.emotion} {rate.intensity}".strip()
            if self.several_lists:
                name += f": {rate.words} words"
            dots.setdefault(name, {})[rate.condition] = Dot(rate.rate, rate.low, rate.high)
        groups = {
            name: [row.get(condition, Dot(None)) for condition in conditions]
            for name, row in dots.items()
        }
        drawn = {name: row for name, row in groups.items() if any(dot.value for dot in row)}
        if not self.several_lists or not drawn:
            drawn = groups
        axis = "emotion words per 1000 captions"
        if any(dot.low is not None for row in drawn.values() for dot in row):
            axis += "; lines: 95% over draws of images"
        if empty := len(groups) - len(drawn):
            axis += f"; {counted(empty, 'group')} without such words not drawn"
        return grouped_dots(
            drawn,
            numbered_series(conditions),
            title=f"Emotion words in {counted(self.captions, 'caption')}",
            axis=axis,
            description="How often the captions of each group have words of an emotion.",
            number_format=lambda rate: format_number(rate, digits=1),
        )


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
    common: dict[str, dict[str, int]] = {name: {} for name in lexicon.words}
    rare: dict[str, dict[str, int]] = {name: {} for name in lexicon.words}
    for name, words in lexicon.words.items():
        for word in words:
            (common if total[word] >= minimum else rare)[name][word] = total[word]
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
        _rate(groups[key], name, common[name])
        for key in ordered
        for name in lexicon.words
        if all_words or name == key[0] or key[0] not in lexicon.words
    ]
    captions, blank = (
        sum(getattr(image, name) for image in images) for name in ("captions", "blank")
    )
    with_captions = sum(map(len, groups.values()))
    return Rates(with_captions, captions, blank, lexicon.name, tuple(rates), minimum, common, rare)


def _rate(images: Sequence[ImageCaptions], name: str, words: Iterable[str]) -> Rate:
    words = list(words)
    hits = np.array([sum(image.counts[word] for word in words) for image in images])
    captions = np.array([image.captions for image in images])
    count, total = int(hits.sum()), int(captions.sum())
    low = high = None
    if len(images) > 1:
        batch = max(1, _NUMBERS_AT_ONCE // len(hits))
        samples = hits, captions
        low, high = bootstrap_interval(samples, _per_1000, DRAWS, 0, paired=True, batch=batch)
    first = images[0]
    return Rate(
        first.condition, first.emotion, first.intensity, name, count, total, 1000 * count / total,
        low, high, len(images),
    )  # fmt: skip


def _per_1000(hits: Array, captions: Array, axis: int) -> Array:
    return np.asarray(1000 * hits.sum(axis=axis) / captions.sum(axis=axis))
