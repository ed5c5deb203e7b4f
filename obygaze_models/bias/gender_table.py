"""Gender scores of a table of captions, summed up by object beside co-occurrence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import Table, map_columns
from obygaze_features.common.text import shorten, unknown_name
from obygaze_features.errors import BiasError
from obygaze_models.bias.cooccurrence import GENDERS, Leaning, cooccurrences, gender_of
from obygaze_models.bias.gender_score import ROUNDING, TIE, gender_score, leanings
from obygaze_models.bias.lexicon import shipped_lexicon
from obygaze_models.bias.tables import numbers, read_rows, require, table_errors

__all__ = [
    "MEASURES",
    "Captions",
    "ObjectScores",
    "all_objects",
    "by_object",
    "read_caption_scores",
]

Array = NDArray[Any]
ALL = "all objects"
MEASURES = ("said", "filled", "assigned", "cooccurrence")
_COUNTS = MEASURES[2:]
#: Columns, and their short names in the formula.
_COLUMNS = {
    "confidence": ["P(c)"],
    "group": ["gender"],
    **{
        f"{name}{variant}": [f"{short}{variant}"]
        for short, name in (("P", "probability"), ("sim", "similarity"))
        for variant in ("", *(f"_{gender}" for gender in GENDERS))
    },
}
_VARIANTS = tuple(f"{what}_{who}" for who in GENDERS for what in ("probability", "similarity"))


@dataclass(frozen=True, eq=False)
class Captions:
    """Captions and their scores; each of the scores is None where the table has none of its kind.

    `objects` is empty where the table names none. `genders` are what the captions are of: the
    table's groups, else what their words say; None where no words say anything.
    """

    table: Table
    objects: tuple[str, ...]
    genders: tuple[str, ...] | None
    score: Array | None = None
    man: Array | None = None
    woman: Array | None = None

    def rows(self) -> list[dict[str, Any]]:
        """A row a caption: what the table says of it, and its scores."""
        of: dict[str, Any] = {
            name: self.table[name] for name in ("id", "caption") if name in self.table.columns
        }
        if self.objects:
            of["object"] = self.objects
        if self.genders is not None:
            of["group"] = self.genders
        if self.score is not None:
            of["score"] = self.score.tolist()
        if self.man is not None and self.woman is not None:
            of["score_man"], of["score_woman"] = self.man.tolist(), self.woman.tolist()
            of["leans_to"], ratios = leanings(self.man, self.woman)
            of["to_man"] = [None if math.isnan(one) else one for one in ratios.tolist()]
        return [dict(zip(of, row, strict=True)) for row in zip(*of.values(), strict=True)]


@dataclass(frozen=True)
class ObjectScores:
    """An object's captions, and how they lean by each measure.

    Parameters
    ----------
    object, captions
        Its label, and how many captions there are.
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
    said: Leaning | None
    filled: Leaning | None
    assigned: Leaning | None
    cooccurrence: Leaning | None

    def flat(self) -> dict[str, Any]:
        """As a row of a table."""
        row: dict[str, Any] = {"object": self.object, "captions": self.captions}
        for name in MEASURES:
            if (one := getattr(self, name)) is not None:
                row |= {f"{name}_man": one.man, f"{name}_woman": one.woman}
                row |= {f"{name}_neither": one.neither} if name in _COUNTS else {}
                row[f"{name}_to_man"] = one.to_man
        return row


def read_caption_scores(path: Path, *, baseline: bool = False) -> Captions:
    """Read a table of captions and score them.

    Parameters
    ----------
    path
        A CSV table with ``confidence``, and with ``probability``, ``similarity`` and ``group``
        (man or woman; else the ``caption`` tells) for the score of what is said; or with
        ``probability_man``, ``similarity_man``, ``probability_woman`` and ``similarity_woman``
        for that of both variants; or with all of these. ``id``, ``caption`` and ``object`` are
        kept.
    baseline
        Only co-occurrence is asked for: ``object``, and ``group`` or ``caption``, will do.
    """
    with table_errors():
        source = read_rows(path)
        table = map_columns(source, _COLUMNS)
        called = dict(zip(table.columns, source.columns, strict=True))
        _refuse_duplicates(table)
        has = set(table.columns)
        if baseline:
            require(table, ["object"], "which co-occurrence is of")
            return Captions(table, _objects(table), _genders(table, called, needed=True))
        variants = not has.isdisjoint(_VARIANTS)
        said = not variants or not has.isdisjoint({"probability", "similarity"})
        scores: dict[str, Array] = {}
        if variants:
            require(table, [*_VARIANTS, "confidence"], "which the scores of both variants take")
            scores |= {who: _score(table, called, f"_{who}") for who in GENDERS}
        if said:
            needed = ["probability", "similarity", "confidence"]
            if not variants and "caption" not in has:
                needed.append("group")
            require(table, needed, "which the gender score takes")
            scores["score"] = _score(table, called)
        genders = _genders(table, called, needed=not variants)
        return Captions(table, _objects(table), genders, **scores)


def _refuse_duplicates(table: Table) -> None:
    seen: set[str] = set()
    for row, one in enumerate(table.columns.get("id", ())):
        if one in seen:
            raise table.problem(row, f"duplicate id {shorten(one)}")
        seen.add(one)


def _score(table: Table, called: Mapping[str, str], variant: str = "") -> Array:
    near, likely = f"similarity{variant}", f"probability{variant}"
    similarity = numbers(table, near, -1, 1 + ROUNDING, called[near])
    if opposite := np.flatnonzero(similarity == -1).tolist():
        raise table.problem(
            opposite[0],
            f"{called[near]} -1 has no gender score, as 1 + {called[near]} is divided by",
        )
    probability = numbers(table, likely, 0, 1, called[likely])
    confidence = numbers(table, "confidence", 0, 1, called["confidence"])
    return gender_score(probability, similarity, confidence)


def _objects(table: Table) -> tuple[str, ...]:
    objects = tuple(table.columns.get("object", ()))
    if "" in objects:
        raise table.problem(objects.index(""), "the object is missing")
    return objects


def _genders(table: Table, called: Mapping[str, str], *, needed: bool) -> tuple[str, ...] | None:
    """Of each caption, by the table's groups or else by its words; None where nothing tells."""
    lexicon = shipped_lexicon("genders")
    if "group" not in table.columns:
        if needed:
            require(table, ["caption"], "nor a group")
        found = tuple(gender_of(one, lexicon) for one in table.columns.get("caption", ()))
        if not set(found).isdisjoint(GENDERS):
            return found
        if needed:
            raise BiasError(f"{table.path}: no caption names a man or a woman; give each a group")
        return None
    known: dict[str, str] = {}
    for row, said in enumerate(table["group"]):
        if said not in known:
            try:
                known[said] = lexicon.group("group", said)
            except BiasError:
                raise table.problem(
                    row, unknown_name(called["group"], said, lexicon.groups["group"])
                ) from None
    return tuple(known[said] for said in table["group"])


def by_object(captions: Captions) -> list[ObjectScores]:
    """The measures of each object, those with most captions first."""
    if not captions.objects:
        return []
    return _summed(captions, captions.objects)


def all_objects(captions: Captions) -> ObjectScores:
    """The measures of all captions together."""
    return _summed(captions, [ALL] * len(captions.table))[0]


def _summed(captions: Captions, objects: tuple[str, ...] | list[str]) -> list[ObjectScores]:
    rows_of: dict[str, list[int]] = {}
    for row, name in enumerate(objects):
        rows_of.setdefault(name, []).append(row)
    together = {} if captions.genders is None else cooccurrences(objects, captions.genders)
    return [
        ObjectScores(
            name,
            len(rows),
            _means(captions, rows),
            _filled(captions, rows),
            _assigned(captions, rows),
            together.get(name),
        )
        for name, rows in sorted(rows_of.items(), key=lambda of: (-len(of[1]), of[0]))
    ]


def _means(captions: Captions, rows: list[int]) -> Leaning | None:
    if captions.score is None or captions.genders is None:
        return None
    found: Mapping[str, list[float]] = {gender: [] for gender in GENDERS}
    for row in rows:
        if (gender := captions.genders[row]) in found:
            found[gender].append(float(captions.score[row]))
    man, woman = (math.fsum(of) / len(of) if of else None for of in found.values())
    return Leaning(man, woman)


def _filled(captions: Captions, rows: list[int]) -> Leaning | None:
    if captions.man is None or captions.woman is None:
        return None
    return Leaning(float(captions.man[rows].mean()), float(captions.woman[rows].mean()))


def _assigned(captions: Captions, rows: list[int]) -> Leaning | None:
    if captions.man is None or captions.woman is None:
        return None
    counts = Counter(leanings(captions.man[rows], captions.woman[rows])[0])
    return Leaning(counts["man"], counts["woman"], counts[TIE])
