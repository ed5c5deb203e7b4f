"""Shares of images that are labelled as sexualised, by group and by rater, from label tables.

Labels only: no image is looked at here, and none is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import Table
from obygaze_features.common.text import join_some, shorten, unknown_name
from obygaze_features.errors import BiasError
from obygaze_models.bias.reliability import wilson_interval
from obygaze_models.bias.tables import numbers, read_rows, require, table_errors

__all__ = ["CLASSIFIER", "Ratings", "Share", "read_ratings", "shares_of"]

CLASSES = ("drawings", "hentai", "neutral", "porn", "sexy")
SEXUALISED = ("hentai", "porn", "sexy")
CLASSIFIER = "classifier"
"""The rater that the five probabilities are of."""
ROUNDING = 0.01
"""What probabilities may be off 1 together, as they are often given with few digits."""
_LABELS = {name: name in SEXUALISED for name in CLASSES} | {
    "1": True, "0": False, "yes": True, "no": False,
}  # fmt: skip
_KEYS = ("image_id", "group")


@dataclass(frozen=True, eq=False)
class Ratings:
    """Whether each rater labels each image as sexualised, [images, raters].

    Of `uneven` images the classifier's probabilities do not sum to about 1.
    """

    images: tuple[str, ...]
    groups: tuple[str, ...]
    raters: tuple[str, ...]
    sexualised: NDArray[Any]
    uneven: int = 0


@dataclass(frozen=True)
class Share:
    """The share of a group's images that a rater labels as sexualised, with Wilson's 95%."""

    group: str
    rater: str
    count: int
    images: int
    share: float
    low: float
    high: float


def read_ratings(path: Path, raters: Sequence[str] = ()) -> Ratings:
    """Read a table of labels.

    Parameters
    ----------
    path
        A CSV table with ``image_id`` and ``group``. Five columns of probabilities (drawings,
        hentai, neutral, porn, sexy) are a classifier's, whose label is the most probable class;
        each other column is a rater's labels: one of the five classes, 1 or 0, yes or no.
    raters
        Only these columns; the probabilities are `CLASSIFIER`.
    """
    with table_errors():
        table = read_rows(path, _KEYS)
        found = [name for name in table.columns if name not in (*_KEYS, *CLASSES)]
        if probable := any(name in table.columns for name in CLASSES):
            require(table, CLASSES, "one of the five classes")
            if CLASSIFIER in found:
                raise BiasError(
                    f"{path}, line 1: the probabilities' rater is called {CLASSIFIER}, and so is a "
                    "column; rename that"
                )
            found.append(CLASSIFIER)
        if strange := [name for name in raters if name not in found]:
            raise BiasError(f"{path}: {unknown_name('rater', strange[0], found)}")
        names = tuple(dict.fromkeys(raters)) or tuple(found)
        if not names:
            raise BiasError(
                f"{path} has no column of labels beside image_id and group, and no probabilities "
                f"({', '.join(CLASSES)})"
            )
        seen: set[str] = set()
        for row, (image, group) in enumerate(zip(table["image_id"], table["group"], strict=True)):
            if not image or not group:
                raise table.problem(row, f"the {'group' if image else 'image_id'} is missing")
            if image in seen:
                raise table.problem(row, f"duplicate image_id {shorten(image)}")
            seen.add(image)
        said = _probabilities(table) if probable and CLASSIFIER in names else None
        columns = [
            _labels(table, name) if said is None or name != CLASSIFIER else _most_probable(said)
            for name in names
        ]
    return Ratings(
        tuple(table["image_id"]),
        tuple(table["group"]),
        names,
        np.column_stack(columns),
        0 if said is None else int((np.abs(said.sum(axis=1) - 1) > ROUNDING).sum()),
    )


def shares_of(ratings: Ratings) -> list[Share]:
    """A share a group, in the table's order, and a rater."""
    found = []
    groups = np.array(ratings.groups)
    for group in dict.fromkeys(ratings.groups):
        of = ratings.sexualised[groups == group]
        for rater, count in zip(ratings.raters, of.sum(axis=0).tolist(), strict=True):
            low, high = wilson_interval(count, len(of))
            found.append(Share(group, rater, count, len(of), count / len(of), low, high))
    return found


def _probabilities(table: Table) -> NDArray[Any]:
    said = np.column_stack([numbers(table, name, 0, 1) for name in CLASSES])
    # Rows sum to 1 where they are a classifier's: all zeros say nothing, and are no label.
    if empty := np.flatnonzero(said.sum(axis=1) == 0).tolist():
        raise table.problem(empty[0], "all probabilities are 0, so that no class is most probable")
    return said


def _most_probable(said: NDArray[Any]) -> NDArray[Any]:
    return np.isin(np.array(CLASSES)[said.argmax(axis=1)], SEXUALISED)


def _labels(table: Table, rater: str) -> NDArray[Any]:
    said = np.empty(len(table), dtype=bool)
    for row, cell in enumerate(table[rater]):
        label = cell.strip().casefold()
        if not label:
            raise table.problem(
                row, f"no label of {rater}; fill it in, or name the raters to use: --rater NAME"
            )
        if label not in _LABELS:
            raise table.problem(
                row,
                f"unknown label {shorten(cell)} of {rater}; known are "
                f"{join_some(list(_LABELS), 9)} (if {rater} is no rater, "
                f"name those who are: --rater NAME)",
            )
        said[row] = _LABELS[label]
    return said
