"""The gender score of captions, by object, beside how often object and gender occur together.

GS = P ** alpha, alpha = ((1 - sim) / (1 + sim)) ** (1 - P(c)): P is the caption's mean token
probability, sim its similarity to the object's label, P(c) the confidence of the object's
classifier. The score says how far the object in an image supports the gender in the caption.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from obygaze_features.common.tables import Table, align, map_columns
from obygaze_features.common.text import counted
from obygaze_features.errors import BiasError
from obygaze_models.bias.inputs import (
    Lexicon,
    check_cells,
    numbers,
    read_rows,
    require,
    shipped_lexicon,
    tokens,
)
from obygaze_models.figures.dots import grouped_dots, numbered_series
from obygaze_models.figures.sheet import Dot
from obygaze_models.scoring.metrics import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GENDERS = ("man", "woman")
BOTH, NEITHER, TIE = "both", "neither", "tie"
ALL_OBJECTS = "all objects"
MEASURES = {
    "said": ("gender score of the caption", "said: man", "woman"),
    "filled": ("gender score with either filled in", "filled in: man", "woman"),
    "assigned": ("assigned by the score", "assigned: man", "woman", "tied"),
    "cooccurrence": ("co-occurrence", "captions of: man", "woman", "neither"),
}
"""The measures of an object, fields of `ObjectScores`: titles in a figure, columns of a table.

A third column is for counts: of those that are neither's.
"""
MAX_OBJECTS = 20
"""Objects that are drawn and printed, those with most captions first."""
#: Cosines of 32-bit vectors can be a little over 1.
_ROUNDING = 1e-6
#: Columns, and their short names in the formula.
_COLUMNS = {
    "confidence": ["P(c)"],
    "group": ["gender"],
    "probability": ["P"],
    "similarity": ["sim"],
    "probability_man": ["P_man"],
    "similarity_man": ["sim_man"],
    "probability_woman": ["P_woman"],
    "similarity_woman": ["sim_woman"],
}
_VARIANTS = tuple(_COLUMNS)[4:]


@dataclass(frozen=True)
class GenderBalance:
    """A number for man and one for woman; `neither` counts the rest."""

    man: float | None
    woman: float | None
    neither: int = 0

    @property
    def man_share(self) -> float | None:
        """Man / (man + woman); None if both are 0 or one is unknown.

        Examples
        --------
        >>> truncate(GenderBalance(616, 217).man_share)
        '.73'
        """
        if self.man is None or self.woman is None or not self.man + self.woman:
            return None
        return self.man / (self.man + self.woman)


@dataclass(frozen=True, eq=False)
class ScoredCaptions:
    """Captions and their scores; a score is None where the table has nothing of its kind.

    `objects` is empty if the table names none. `genders` are the table's groups, else what the
    words of the captions say; None if no words say anything.
    """

    table: Table
    objects: tuple[str, ...]
    genders: tuple[str, ...] | None
    score: Array | None = None
    man: Array | None = None
    woman: Array | None = None

    def rows(self) -> list[dict[str, Any]]:
        """A row for each caption: the table's columns, and its scores."""
        columns: dict[str, Any] = {
            name: self.table[name] for name in ("id", "caption") if name in self.table.columns
        }
        if self.objects:
            columns["object"] = self.objects
        if self.genders is not None:
            columns["group"] = self.genders
        if self.score is not None:
            columns["score"] = self.score.tolist()
        if self.man is not None and self.woman is not None:
            columns["score_man"] = self.man.tolist()
            columns["score_woman"] = self.woman.tolist()
            columns["leans_to"] = _higher(self.man, self.woman)
            columns["to_man"] = [
                GenderBalance(*pair).man_share
                for pair in zip(columns["score_man"], columns["score_woman"], strict=True)
            ]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "all": all_objects(self).to_dict(),
            "objects": [scores.to_dict() for scores in by_object(self)],
            "captions": self.rows(),
        }

    def describe(self) -> str:
        """A table of the objects, and of all together."""
        objects, together = by_object(self), all_objects(self)
        measures = {
            name: columns
            for name, (_, *columns) in MEASURES.items()
            if getattr(together, name) is not None
        }
        header = ["object", "captions"]
        for columns in measures.values():
            header += [*columns, "to-m"]
        rows = []
        for scores in [*objects[:MAX_OBJECTS], together]:
            row = [scores.object, f"{scores.captions:,}"]
            for name, columns in measures.items():
                balance = getattr(scores, name)
                parts = (balance.man, balance.woman, balance.neither)[: len(columns)]
                row += [*map(_cell, parts), truncate(balance.man_share)]
            rows.append(row)
        lines = [align(header, rows)]
        if (more := len(objects) - MAX_OBJECTS) > 0:
            lines.append(f"and {more:,} more objects; all of them with: -o NAME.json")
        lines.append("to-m: man / (man + woman), cut to two decimals as in the published table.")
        return "\n".join(lines)

    def notes(self) -> list[str]:
        """Nothing is wrong with a table that can be read."""
        return []

    def figure(self) -> Figure:
        """How far each object leans to woman or to man, by each measure: .5 is neither."""
        objects = by_object(self) or [all_objects(self)]
        titles = {
            name: title
            for name, (title, *_) in MEASURES.items()
            if any(getattr(scores, name) for scores in objects)
        }
        dots = {
            scores.object: [
                Dot(getattr(getattr(scores, name), "man_share", None)) for name in titles
            ]
            for scores in objects[:MAX_OBJECTS]
        }
        title = f"Objects and gender, {counted(len(self.table), 'caption')}"
        if len(objects) > MAX_OBJECTS:
            title += f": the {MAX_OBJECTS} of {len(objects):,} objects that have most"
        return grouped_dots(
            dots,
            numbered_series([*titles.values()]),
            title=title,
            axis="man / (man + woman), cut to two decimals; .5 is neither",
            description="How far the captions of each object lean to woman or to man.",
            limits=(0, 1),
            number_format=truncate,
            origin=0.5,
            ends=("woman", "man"),
        )


@dataclass(frozen=True)
class ObjectScores:
    """An object's captions, and their balance by each measure.

    Parameters
    ----------
    object, captions
        Its label, and the number of captions.
    said
        The mean gender score of captions of men, and of women.
    filled
        The mean gender score of all captions with man filled in, and with woman.
    assigned
        How many captions score higher with man filled in, and how many with woman; ties are
        neither's.
    cooccurrence
        How many captions are of men, and of women.
    """

    object: str
    captions: int
    said: GenderBalance | None
    filled: GenderBalance | None
    assigned: GenderBalance | None
    cooccurrence: GenderBalance | None

    def to_dict(self) -> dict[str, Any]:
        """The scores as a row of a table."""
        row: dict[str, Any] = {"object": self.object, "captions": self.captions}
        for measure, (_, *columns) in MEASURES.items():
            balance: GenderBalance | None = getattr(self, measure)
            if balance is not None:
                row |= {f"{measure}_man": balance.man, f"{measure}_woman": balance.woman}
                if len(columns) == 3:
                    row[f"{measure}_neither"] = balance.neither
                row[f"{measure}_to_man"] = balance.man_share
        return row


def gender_score(probability: ArrayLike, similarity: ArrayLike, confidence: ArrayLike) -> Array:
    """The gender score of each caption.

    Parameters
    ----------
    probability
        P, from 0 to 1.
    similarity
        sim, over -1 and up to 1; at -1 there is no score.
    confidence
        P(c), from 0 to 1.

    Examples
    --------
    >>> round(float(gender_score(0.12759140133857727, 0.5452305674552917, 0.2183)), 12)
    0.453207141502
    """
    p, sim, sure = (
        np.asarray(values, dtype=float) for values in (probability, similarity, confidence)
    )
    for name, values in (("probability", p), ("confidence", sure)):
        _refuse(name, values, ~((values >= 0) & (values <= 1)), "is not from 0 to 1")
    _refuse("similarity", sim, ~((sim >= -1) & (sim <= 1 + _ROUNDING)), "is not from -1 to 1")
    _refuse("similarity", sim, sim == -1, "has no gender score: 1 + similarity is a divisor")
    sim = np.minimum(sim, 1)
    return np.asarray(p ** (((1 - sim) / (1 + sim)) ** (1 - sure)))


def truncate(ratio: float | None) -> str:
    """A ratio with two decimals, the rest cut off, as in the published table.

    Examples
    --------
    >>> truncate(0.7395), truncate(0.29), truncate(1.0), truncate(None)
    ('.73', '.29', '1.00', '-')
    """
    if ratio is None:
        return "-"
    cut = Decimal(repr(ratio)).quantize(Decimal("0.01"), rounding=ROUND_DOWN)
    return str(cut).removeprefix("0")


def gender_of(caption: str, lexicon: Lexicon) -> str:
    """The gender that a caption names: man, woman, both or neither.

    Examples
    --------
    >>> genders = shipped_lexicon("genders")
    >>> gender_of("A woman, riding a horse.", genders), gender_of("a horse", genders)
    ('woman', 'neither')
    """
    words = set(tokens(caption))
    named = [gender for gender in GENDERS if not words.isdisjoint(lexicon.words[gender])]
    return BOTH if len(named) == 2 else named[0] if named else NEITHER


def read_scored_captions(path: str | Path, *, baseline: bool = False) -> ScoredCaptions:
    """Read a table of captions and score them.

    Parameters
    ----------
    path
        A CSV table with ``confidence``, and with ``probability``, ``similarity`` and ``group``
        (man or woman; else the ``caption`` tells) for the score of the caption as it is; or with
        ``probability_man``, ``similarity_man``, ``probability_woman`` and ``similarity_woman``
        for that of both variants; or with all of these. ``id``, ``caption`` and ``object`` are
        kept.
    baseline
        Only count co-occurrence: ``object``, and ``group`` or ``caption``, are enough.
    """
    with read_rows(Path(path)) as source:
        table = map_columns(source, _COLUMNS)
        headers = dict(zip(table.columns, source.columns, strict=True))
        check_cells(table, "object", unique="id")
        objects = tuple(table.columns.get("object", ()))
        columns = set(table.columns)
        if baseline:
            require(table, ["object"], "which co-occurrence needs")
            genders = _genders(table, required=True)
            return ScoredCaptions(table, objects, genders)
        variants = not columns.isdisjoint(_VARIANTS)
        as_is = not variants or not columns.isdisjoint({"probability", "similarity"})
        scores: dict[str, Array] = {}
        if variants:
            require(table, [*_VARIANTS, "confidence"], "which the scores of both variants need")
            scores |= {gender: _score(table, headers, f"_{gender}") for gender in GENDERS}
        if as_is:
            required = ["probability", "similarity", "confidence"]
            if not variants and "caption" not in columns:
                required.append("group")
            require(table, required, "which the gender score needs")
            scores["score"] = _score(table, headers)
        genders = _genders(table, required=not variants)
        return ScoredCaptions(table, objects, genders, **scores)


def by_object(captions: ScoredCaptions) -> list[ObjectScores]:
    """The measures of each object, those with most captions first."""
    rows_of: dict[str, list[int]] = {}
    for row, name in enumerate(captions.objects):
        rows_of.setdefault(name, []).append(row)
    most_first = sorted(rows_of, key=lambda name: (-len(rows_of[name]), name))
    return [_measure(captions, name, rows_of[name]) for name in most_first]


def all_objects(captions: ScoredCaptions) -> ObjectScores:
    """The measures of all captions together."""
    return _measure(captions, ALL_OBJECTS, list(range(len(captions.table))))


def _refuse(name: str, values: Array, bad: Array, reason: str) -> None:
    if bad.any():
        raise BiasError(f"{name} {values[bad].flat[0]:g} {reason}")


def _higher(man: Array, woman: Array) -> list[str]:
    """The variant of each caption that scores higher, or `TIE`."""
    higher: list[str] = np.where(man > woman, "man", np.where(woman > man, "woman", TIE)).tolist()
    return higher


def _score(table: Table, headers: Mapping[str, str], variant: str = "") -> Array:
    def column(name: str, low: float, high: float) -> Array:
        return numbers(table, name, low, high, headers[name])

    header = headers[f"similarity{variant}"]
    similarity = column(f"similarity{variant}", -1, 1 + _ROUNDING)
    if opposite := np.flatnonzero(similarity == -1).tolist():
        reason = f"{header} -1 has no gender score, as 1 + {header} is a divisor"
        raise table.problem(opposite[0], reason)
    probability = column(f"probability{variant}", 0, 1)
    return gender_score(probability, similarity, column("confidence", 0, 1))


def _genders(table: Table, *, required: bool) -> tuple[str, ...] | None:
    """The gender of each caption, by the table's groups or else by its words."""
    lexicon = shipped_lexicon("genders")
    if "group" not in table.columns:
        if required:
            require(table, ["caption"], "nor a group")
        genders = tuple(gender_of(text, lexicon) for text in table.columns.get("caption", ()))
        if not set(genders).isdisjoint(GENDERS):
            return genders
        if required:
            raise BiasError(f"{table.path}: no caption names a man or a woman; give each a group")
        return None
    groups = []
    for row, text in enumerate(table["group"]):
        try:
            groups.append(lexicon.group("group", text))
        except BiasError as problem:
            raise table.problem(row, str(problem)) from None
    return tuple(groups)


def _measure(captions: ScoredCaptions, name: str, rows: list[int]) -> ObjectScores:
    said = filled = assigned = cooccurrence = None
    if captions.genders is not None:
        men, women = ([row for row in rows if captions.genders[row] == of] for of in GENDERS)
        cooccurrence = GenderBalance(len(men), len(women), len(rows) - len(men) - len(women))
        if captions.score is not None:
            said = GenderBalance(_mean(captions.score[men]), _mean(captions.score[women]))
    if captions.man is not None and captions.woman is not None:
        as_man, as_woman = captions.man[rows], captions.woman[rows]
        filled = GenderBalance(float(as_man.mean()), float(as_woman.mean()))
        counts = Counter(_higher(as_man, as_woman))
        assigned = GenderBalance(counts["man"], counts["woman"], counts[TIE])
    return ObjectScores(name, len(rows), said, filled, assigned, cooccurrence)


def _cell(value: int | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _mean(scores: Array) -> float | None:
    return math.fsum(scores.tolist()) / len(scores) if len(scores) else None
