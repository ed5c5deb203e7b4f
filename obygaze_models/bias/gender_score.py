"""The gender score of captions by object, beside the co-occurrence of object and gender.

GS = P ** alpha, where alpha = ((1 - sim) / (1 + sim)) ** (1 - P(c)). P is the mean probability of
the caption's tokens, sim is the caption's similarity to the object's label, and P(c) is the
confidence of the object's classifier. The score measures how strongly the object in an image
supports the gender in the caption.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from obygaze_features.common.tables import Table, map_columns
from obygaze_features.common.text import counted, group_by
from obygaze_features.errors import BiasError
from obygaze_models.bias.inputs import (
    Lexicon,
    check_cells,
    format_table,
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
    "said": ("gender score of the caption", "said", ""),
    "filled": ("gender score with either filled in", "filled in", ""),
    "assigned": ("assigned by the score", "assigned", "tied"),
    "cooccurrence": ("co-occurrence", "captions of", "neither"),
}
"""Each measure's titles in a figure and in a table, and its word for captions of neither gender.

``said`` is the mean gender score of captions that name a man, and of captions that name a woman.
``filled`` is the mean score of all captions with "man" filled in, and with "woman" filled in.
``assigned`` counts captions by the variant that scores higher: with "man", or with "woman".
``cooccurrence`` counts captions that name a man, and captions that name a woman.
"""
MAX_OBJECTS = 20
"""The maximum number of objects in a figure or table. Objects with the most captions come first."""
# Cosines of 32-bit vectors can be slightly above 1.
_ROUNDING = 1e-6
# Columns, and their short names in the formula.
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


@dataclass(frozen=True, eq=False)
class ScoredCaptions:
    """Captions and their scores.

    Parameters
    ----------
    table
        The table of captions.
    genders
        The gender of each caption, from the table's groups or else from the caption's words; None
        if the table has no groups and no caption names exactly one gender.
    scores
        The ``score`` of each original caption, and the ``score_man`` and ``score_woman`` of its
        variants.
    """

    table: Table
    genders: tuple[str, ...] | None
    scores: Mapping[str, Array]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each caption with its id, text, object, group and scores."""
        copied = ("id", "caption", "object")
        columns: dict[str, Sequence[Any]] = {
            name: self.table[name] for name in copied if name in self.table.columns
        }
        if self.genders is not None:
            columns["group"] = self.genders
        columns |= {name: scores.tolist() for name, scores in self.scores.items()}
        if "score_man" in columns:
            pairs = list(zip(columns["score_man"], columns["score_woman"], strict=True))
            columns["leans_to"] = [_higher(*pair) for pair in pairs]
            columns["to_man"] = [share_of_man(*pair) for pair in pairs]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {
            "all": all_objects(self),
            "objects": by_object(self),
            "captions": self.rows(),
        }

    def describe(self) -> str:
        """Return a table of the objects, and of all objects together."""
        objects, together = by_object(self), all_objects(self)
        header, cells = ["object", "captions"], ["{object}", "{captions:,}"]
        for measure, (_, title, rest) in MEASURES.items():
            if f"{measure}_man" not in together:
                continue
            number = ":," if rest else ":.4f"
            header += [f"{title}: man", "woman"]
            cells += [f"{{{measure}_{gender}{number}}}" for gender in GENDERS]
            if rest:
                header.append(rest)
                cells.append(f"{{{measure}_neither:,}}")
            header.append("to-m")
            cells.append(f"{{{measure}_to_man}}")
        rows = [
            {name: truncate(v) if name.endswith("_to_man") else v for name, v in row.items()}
            for row in [*objects[:MAX_OBJECTS], together]
        ]
        lines = [format_table(header, cells, rows)]
        if (more := len(objects) - MAX_OBJECTS) > 0:
            lines.append(f"and {more:,} more objects. To get all of them: -o NAME.json")
        lines.append("to-m: man / (man + woman), cut to two decimals as in the published table.")
        return "\n".join(lines)

    def notes(self) -> list[str]:
        """Return no notes."""
        return []

    def figure(self) -> Figure:
        """Draw each object's lean towards woman or man on each measure; .5 leans to neither."""
        objects = by_object(self) or [all_objects(self)]
        measures = [name for name in MEASURES if f"{name}_to_man" in objects[0]]
        title = f"Objects and gender, {counted(len(self.table), 'caption')}"
        if len(objects) > MAX_OBJECTS:
            title += f": the {MAX_OBJECTS} most frequent of {len(objects):,} objects"
        return grouped_dots(
            {
                row["object"]: [Dot(row[f"{name}_to_man"]) for name in measures]
                for row in objects[:MAX_OBJECTS]
            },
            numbered_series([MEASURES[name][0] for name in measures]),
            title=title,
            axis="man / (man + woman), cut to two decimals; .5 is neither",
            description="The lean of each object's captions towards woman or man.",
            limits=(0, 1),
            number_format=truncate,
            origin=0.5,
            ends=("woman", "man"),
        )


def gender_score(probability: ArrayLike, similarity: ArrayLike, confidence: ArrayLike) -> Array:
    """Return the gender score of each caption.

    Parameters
    ----------
    probability
        P: the mean probability of each caption's tokens, from 0 to 1.
    similarity
        sim: each caption's similarity to the object's label, above -1 and at most 1.
    confidence
        P(c): the confidence of the object's classifier, from 0 to 1.

    Examples
    --------
    >>> round(float(gender_score(0.12759140133857727, 0.5452305674552917, 0.2183)), 12)
    0.453207141502
    """
    p, sim, sure = (
        np.asarray(values, dtype=float) for values in (probability, similarity, confidence)
    )
    for name, values in (("probability", p), ("confidence", sure)):
        _refuse(name, values, ~((values >= 0) & (values <= 1)), "must be between 0 and 1")
    _refuse("similarity", sim, ~((sim >= -1) & (sim <= 1 + _ROUNDING)), "must be between -1 and 1")
    _refuse("similarity", sim, sim == -1, "must be above -1, because 1 + similarity is a divisor")
    sim = np.minimum(sim, 1)
    return np.asarray(p ** (((1 - sim) / (1 + sim)) ** (1 - sure)))


def share_of_man(man: float | None, woman: float | None) -> float | None:
    """Return man / (man + woman), or None if both are 0 or either is unknown.

    Examples
    --------
    >>> truncate(share_of_man(616, 217))
    '.73'
    """
    if man is None or woman is None or not man + woman:
        return None
    return man / (man + woman)


def truncate(ratio: float | None) -> str:
    """Format a ratio with two decimals, truncated as in the published table.

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
    """Return the gender that a caption names: man, woman, both or neither.

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
        A CSV table with a ``confidence`` column. To score original captions, it needs
        ``probability``, ``similarity``, and ``group`` (man or woman) or ``caption``. To score both
        variants, it needs ``probability_man``, ``similarity_man``, ``probability_woman`` and
        ``similarity_woman``. ``id``, ``caption`` and ``object`` are kept.
    baseline
        Only count co-occurrence, from ``object`` and either ``group`` or ``caption``.
    """
    with read_rows(Path(path)) as source:
        table = map_columns(source, _COLUMNS)
        check_cells(table, "object", unique="id")
        has_variants = not baseline and not table.columns.keys().isdisjoint(_VARIANTS)
        scores: dict[str, Array] = {}
        if baseline:
            require(table, ["object"], "which co-occurrence requires")
        elif not has_variants or not table.columns.keys().isdisjoint({"probability", "similarity"}):
            scores["score"] = _score(table)
        if has_variants:
            scores |= {f"score_{gender}": _score(table, f"_{gender}") for gender in GENDERS}
        genders = _genders(table)
        if genders is None and not has_variants:
            raise BiasError(f"{path}: no caption mentions a man or a woman. Add a 'group' column")
        return ScoredCaptions(table, genders, scores)


def by_object(captions: ScoredCaptions) -> list[dict[str, Any]]:
    """Return the measures of each object. The objects with the most captions come first."""
    names = captions.table.columns.get("object", ())
    rows_of = group_by(range(len(names)), names.__getitem__)
    most_first = sorted(rows_of, key=lambda name: (-len(rows_of[name]), name))
    return [_measure(captions, name, rows_of[name]) for name in most_first]


def all_objects(captions: ScoredCaptions) -> dict[str, Any]:
    """Return the measures of all captions together."""
    return _measure(captions, ALL_OBJECTS, list(range(len(captions.table))))


def _refuse(name: str, values: Array, bad: Array, rule: str) -> None:
    if bad.any():
        raise BiasError(f"{name} {rule} (got {values[bad].flat[0]:g})")


def _higher(man: float, woman: float) -> str:
    """Return the variant of a caption that scores higher, or `TIE`."""
    if man == woman:
        return TIE
    return "man" if man > woman else "woman"


def _score(table: Table, variant: str = "") -> Array:
    names = f"probability{variant}", f"similarity{variant}", "confidence"
    require(table, names, "which the gender score needs")
    probability, confidence = (numbers(table, name, 0, 1) for name in names[::2])
    similarity = numbers(table, names[1], -1, 1 + _ROUNDING)
    if opposite := np.flatnonzero(similarity == -1).tolist():
        reason = f"{names[1]} must be above -1, because 1 + similarity is a divisor"
        raise table.problem(opposite[0], reason)
    return gender_score(probability, similarity, confidence)


def _genders(table: Table) -> tuple[str, ...] | None:
    """Return each caption's gender, from groups or words; None if no caption names just one."""
    lexicon = shipped_lexicon("genders")
    if "group" in table.columns:
        cells = zip(table.lines, table["group"], strict=True)
        return tuple(lexicon.group("group", t, f"{table.path}, line {line}") for line, t in cells)
    genders = tuple(gender_of(text, lexicon) for text in table.columns.get("caption", ()))
    return None if set(genders).isdisjoint(GENDERS) else genders


def _measure(captions: ScoredCaptions, name: str, rows: list[int]) -> dict[str, Any]:
    """Return a row of measures for some captions. Measures without columns are left out."""
    scores = {key: values[rows].tolist() for key, values in captions.scores.items()}
    genders = [] if captions.genders is None else [captions.genders[row] for row in rows]
    measured: dict[str, dict[str, float | None]] = {}
    if "score" in scores:
        scored = list(zip(genders, scores["score"], strict=True))
        measured["said"] = {g: _mean([s for gender, s in scored if gender == g]) for g in GENDERS}
    if "score_man" in scores:
        measured["filled"] = {g: _mean(scores[f"score_{g}"]) for g in GENDERS}
        measured["assigned"] = _count(map(_higher, scores["score_man"], scores["score_woman"]))
    if genders:
        measured["cooccurrence"] = _count(genders)
    row: dict[str, Any] = {"object": name, "captions": len(rows)}
    for measure, numbers_of in measured.items():
        row |= {f"{measure}_{key}": number for key, number in numbers_of.items()}
        row[f"{measure}_to_man"] = share_of_man(numbers_of["man"], numbers_of["woman"])
    return row


def _count(genders: Iterable[str]) -> dict[str, float | None]:
    counts = Counter(genders)
    men, women = counts["man"], counts["woman"]
    return {"man": men, "woman": women, "neither": counts.total() - men - women}


def _mean(scores: Sequence[float]) -> float | None:
    return math.fsum(scores) / len(scores) if scores else None
