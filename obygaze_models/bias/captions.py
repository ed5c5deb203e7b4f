"""Emotion words in captions of images, per thousand captions, by group.

A group consists of the images with the same condition, emotion and intensity. Captions of the same
image resemble each other, so intervals come from resampling images, not captions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import counted, format_number, group_by
from obygaze_features.errors import BiasError, translate
from obygaze_models.bias.association import bootstrap_interval
from obygaze_models.bias.inputs import Lexicon, check_cells, format_table, read_rows
from obygaze_models.figures.dots import grouped_dots, numbered_series
from obygaze_models.figures.sheet import Dot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_COUNT = 100
"""The minimum number of occurrences in all captions; rarer words are left out."""
DRAWS = 1000
INTENSITIES = {"1", "2"}
"""The intensities in the published file names. Their authors do not say which of them is high."""
# The maximum number of bootstrap samples in memory at a time.
_DRAWS_AT_ONCE = 100
_NAME = re.compile(r".+_(?P<emotion>[^_0-9]+)(?P<intensity>[12]?)_(?P<condition>[^_]+)_[^_]+")
_KEYS = ("image_id", "condition", "emotion")
Array = NDArray[Any]
# The origin of a row for messages, and its image, condition, emotion, intensity and captions.
_Row = tuple[str, str, str, str, str, Sequence[str]]


@dataclass
class ImageCaptions:
    """The number of an image's captions, and of each word's occurrences in them.

    `counts` has only words of the lexicon. `blank` counts the lines or cells without a caption.
    """

    condition: str
    emotion: str
    intensity: str
    captions: int = 0
    blank: int = 0
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Rates:
    """The rates of emotion words in all groups, and the counts behind them.

    Parameters
    ----------
    images, captions, blank
        The numbers of images with captions, of captions, and of blank lines or cells.
    lexicon
        The name of the lexicon.
    rates
        A row for each group and list of words. ``rate`` is 1000 ``count`` / ``captions``. ``low``
        and ``high`` are the ends of the 95% bootstrap interval over images; None if there is a
        single image.
    minimum
        The minimum number of occurrences of a word in all captions.
    counted, left_out
        For each list, a mapping from words to their numbers of occurrences in all captions.
        `counted` has the words that occur at least `minimum` times, and `left_out` all others.
    """

    images: int
    captions: int
    blank: int
    lexicon: str
    rates: tuple[dict[str, Any], ...]
    minimum: int
    counted: dict[str, dict[str, int]]
    left_out: dict[str, dict[str, int]]

    @property
    def lists(self) -> list[str]:
        """The names of the lists whose words are counted in any group."""
        return list(dict.fromkeys(rate["words"] for rate in self.rates))

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rates as rows of a table."""
        return list(self.rates)

    def describe(self) -> str:
        """Return a table of the rates, and the words that are too rare to count."""
        header = ["emotion", "intensity", "condition", "words of"]
        header += ["count", "captions", "per 1000", "95%"]
        cells = ["{emotion}", "{intensity}", "{condition}", "{words}"]
        cells += ["{count:,}", "{captions:,}", "{rate:.2f}", "{low:.2f} to {high:.2f}"]
        rows = []
        for rate in self.rates:
            row = rate | {"intensity": rate["intensity"] or "-"}
            if not self.counted[rate["words"]]:
                row |= dict.fromkeys(("count", "rate", "low"))
            rows.append(row)
        number = f"{counted(self.captions, 'caption')} of {counted(self.images, 'image')}"
        table = format_table(header, cells, rows, left=4)
        lines = [f"{number}, words of {self.lexicon}", table]
        for name in self.lists:
            rare = [f"{word} {count:,}" for word, count in self.left_out[name].items() if count]
            if rare:
                fewer = f"fewer than {self.minimum} occurrences"
                lines.append(f"left out of {name} ({fewer}): {', '.join(rare)}")
        return "\n".join(lines)

    def notes(self) -> Iterator[str]:
        """Yield warnings about missing captions, mixed intensities, and meaningless rates."""
        if self.blank:
            lines = counted(self.blank, "blank line or cell", "blank lines or cells")
            yield f"left out {lines}"
        names = dict.fromkeys(rate["intensity"] for rate in self.rates)
        if {"high", "low"} & names.keys() and INTENSITIES & names.keys():
            listed = ", ".join(names)
            yield (
                f"intensities are named in two ways ({listed}), so they are counted separately. "
                "Use only 1 and 2, or only low and high"
            )
        for name in self.lists:
            if not self.counted[name]:
                yield (
                    f"no word of {name} occurs {counted(self.minimum, 'time')}, so the rates of "
                    "this list mean nothing. Lower --minimum to count rarer words"
                )

    def figure(self) -> Figure:
        """Draw a dot for each condition, by emotion and intensity."""
        conditions = list(dict.fromkeys(rate["condition"] for rate in self.rates))
        groups: dict[str, dict[str, Dot]] = {}
        for rate in self.rates:
            name = f"{rate['emotion']} {rate['intensity']}".strip()
            if rate["words"] != rate["emotion"]:
                name += f": {rate['words']} words"
            dots = groups.setdefault(name, dict.fromkeys(conditions, Dot(None)))
            dots[rate["condition"]] = Dot(rate["rate"], rate["low"], rate["high"])
        return grouped_dots(
            {name: list(dots.values()) for name, dots in groups.items()},
            numbered_series(conditions),
            title=f"Emotion words in {counted(self.captions, 'caption')}",
            axis="emotion words per 1000 captions; lines: 95% bootstrap interval over images",
            description="The rate of emotion words in the captions of each group.",
            number_format=lambda rate: format_number(rate, digits=1),
        )


def read_captions(path: str | Path, lexicon: Lexicon) -> list[ImageCaptions]:
    """Count the words of a lexicon in captions.

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
    emotions = lexicon.groups.get("emotion", {})
    if "condition" not in lexicon.groups or not lexicon.words.keys() <= emotions.keys():
        raise BiasError(
            f'the lexicon {lexicon.name} does not fit captions. Add "condition" and "emotion" '
            'to "groups", and name each list in "words" after an emotion'
        )
    images: dict[tuple[str, ...], ImageCaptions] = {}
    rows = _folder_rows(path) if path.is_dir() else _table_rows(path)
    for where, image_id, condition, emotion, intensity, captions in rows:
        condition = lexicon.group("condition", condition, where)
        emotion = lexicon.group("emotion", emotion, where)
        group = condition, emotion, intensity
        image = images.setdefault((image_id, *group), ImageCaptions(*group))
        blank = sum(not caption.strip() for caption in captions)
        image.blank += blank
        image.captions += len(captions) - blank
        image.counts.update(lexicon.count(" ".join(captions)))
    if not any(image.captions for image in images.values()):
        raise BiasError(
            f"{path} has no captions. Pass a table with a 'caption' column, or a folder of .txt "
            "files with one caption per line, such as SUBJECT_AN1_NO_1.txt"
        )
    return list(images.values())


def _folder_rows(folder: Path) -> Iterator[_Row]:
    for path in sorted(folder.glob("[!.]*.txt")):
        if not (match := _NAME.fullmatch(path.stem)):
            raise BiasError(
                f"{path}: no group in the file name. Rename the file to a name such as "
                "SUBJECT_AN1_NO_1.txt: subject, emotion with intensity (1 or 2), condition, number"
            )
        with translate(BiasError, path, "is not UTF-8: {}", foreign=UnicodeDecodeError):
            text = path.read_text(encoding="utf-8-sig")
        group = match["condition"], match["emotion"], match["intensity"]
        # The last newline does not start another line.
        yield str(path), path.stem, *group, text.removesuffix("\n").split("\n")


def _table_rows(path: Path) -> Iterator[_Row]:
    with read_rows(path, [*_KEYS, "caption"]) as table:
        check_cells(table, "image_id")
        keys = zip(*map(table.get, (*_KEYS, "intensity", "caption")), strict=True)
        for line, (image, condition, emotion, intensity, caption) in zip(
            table.lines, keys, strict=True
        ):
            yield f"{path}, line {line}", image, condition, emotion, intensity, [caption]


def emotion_rates(
    images: Sequence[ImageCaptions],
    lexicon: Lexicon,
    *,
    minimum: int = MIN_COUNT,
    all_words: bool = False,
) -> Rates:
    """Return the rates of emotion words in each group.

    Parameters
    ----------
    images
        The result of `read_captions`.
    lexicon
        The lexicon whose words were counted.
    minimum
        The minimum number of occurrences in all captions; rarer words are left out.
    all_words
        Count the words of all lists in each group, not only the words for the group's emotion. If
        an emotion such as neutral has no list, the words of all lists are always counted.
    """
    total: Counter[str] = Counter()
    for image in images:
        total.update(image.counts)
    common: dict[str, dict[str, int]] = {name: {} for name in lexicon.words}
    rare: dict[str, dict[str, int]] = {name: {} for name in lexicon.words}
    for name, words in lexicon.words.items():
        for word in words:
            (common if total[word] >= minimum else rare)[name][word] = total[word]
    emotions, conditions = (list(lexicon.groups[column]) for column in ("emotion", "condition"))
    captioned = [image for image in images if image.captions]
    groups = group_by(captioned, lambda image: (image.emotion, image.intensity, image.condition))
    rates = []
    for key in sorted(groups, key=lambda k: (emotions.index(k[0]), k[1], conditions.index(k[2]))):
        own = [] if all_words else [name for name in lexicon.words if name == key[0]]
        rates += [_rate(groups[key], name, common[name]) for name in own or lexicon.words]
    return Rates(
        images=sum(map(len, groups.values())),
        captions=sum(image.captions for image in images),
        blank=sum(image.blank for image in images),
        lexicon=lexicon.name,
        rates=tuple(rates),
        minimum=minimum,
        counted=common,
        left_out=rare,
    )


def _rate(images: Sequence[ImageCaptions], name: str, words: Collection[str]) -> dict[str, Any]:
    hits = np.array([sum(image.counts[word] for word in words) for image in images])
    captions = np.array([image.captions for image in images])
    low = high = None
    if len(images) > 1:
        low, high = bootstrap_interval(
            (hits, captions), _per_1000, DRAWS, 0, paired=True, batch=_DRAWS_AT_ONCE
        )
    return {
        "condition": images[0].condition,
        "emotion": images[0].emotion,
        "intensity": images[0].intensity,
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
