"""Shares of images labelled as sexualised, by group and rater, and the raters' agreement.

Only labels are used. No image is read or generated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from obygaze_features.common.tables import Table
from obygaze_features.common.text import shorten, unknown_name
from obygaze_features.errors import BiasError
from obygaze_models.bias.inputs import check_cells, numbers, read_rows
from obygaze_models.bias.measured import Drawing, Measured

CLASSES = ("drawings", "hentai", "neutral", "porn", "sexy")
SEXUALISED = ("hentai", "porn", "sexy")
CLASSIFIER = "classifier"
"""The name of the rater whose labels come from the five probabilities."""
_LABELS = {name: name in SEXUALISED for name in CLASSES} | {
    "1": True, "0": False, "yes": True, "no": False,
}  # fmt: skip
_KEYS = ("image_id", "group")
_DRAWING = Drawing(
    title="Images labelled as sexualised",
    axis="share of the group's images; lines: Wilson's 95% interval",
    groups=["group"],
    series="rater",
    value="share",
    limits=(0, 1),
)
Array = NDArray[Any]


def ratings(path: str | Path, raters: Sequence[str] = ()) -> Measured:
    """Return the share of sexualised images by group and rater, and the raters' agreement.

    ``about`` has ``alpha``, Cronbach's alpha of all raters, and for each pair of raters, their
    alpha and the share of equal labels. An alpha is None if it is undefined.

    Parameters
    ----------
    path, raters
        As for `read_labels`.
    """
    groups, labels = read_labels(path, raters)
    rows = []
    for group in dict.fromkeys(groups):
        in_group = np.array(groups) == group
        for rater, own in labels.items():
            count = int(own[in_group].sum())
            images = int(in_group.sum())
            low, high = wilson_interval(count, images)
            row = {"group": group, "rater": rater, "count": count, "images": images}
            rows.append({**row, "share": count / images, "low": low, "high": high})

    table = np.column_stack(list(labels.values()))
    names = list(labels)
    pairs = []
    for first, second in combinations(range(len(names)), 2):
        pair = table[:, [first, second]]
        agreement = float((pair[:, 0] == pair[:, 1]).mean())
        both = {"raters": f"{names[first]}, {names[second]}", "alpha": cronbach_alpha(pair)}
        pairs.append({**both, "agreement": agreement})

    alpha = cronbach_alpha(table) if pairs else None
    return Measured(rows, _DRAWING, {"images": len(groups), "alpha": alpha, "pairs": pairs})


def read_labels(path: str | Path, raters: Sequence[str] = ()) -> tuple[list[str], dict[str, Array]]:
    """Return each image's group, and each rater's labels: True if an image is sexualised.

    Parameters
    ----------
    path
        A CSV table with the columns ``image_id`` and ``group``. If there are columns of class
        probabilities (drawings, hentai, neutral, porn, sexy), they are treated as a rater named
        ``classifier``, whose label for each image is the most probable class. Each further column
        has a rater's labels: one of the five classes, 1 or 0, yes or no.
    raters
        The names of the raters to use (default: all).
    """
    table = read_rows(path, _KEYS)
    check_cells(table, *_KEYS, unique="image_id")
    columns = [name for name in table.columns if name not in (*_KEYS, *CLASSES)]
    if not table.columns.keys().isdisjoint(CLASSES):
        if CLASSIFIER in columns:
            raise BiasError(f"{path}: the column {CLASSIFIER} beside probabilities. Rename it")
        table.columns[CLASSIFIER] = _most_probable(table)
        columns.append(CLASSIFIER)
    if not columns:
        raise BiasError(f"{path} has no labels. Add a column for each rater")

    labels: dict[str, Array] = {}
    for name in raters or columns:
        if name not in columns:
            raise BiasError(f"{path}: {unknown_name('rater', name, columns)}")
        labels[name] = _labels(table, name)
    return table["group"], labels


def wilson_interval(count: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of the share `count` / `total`.

    Examples
    --------
    >>> low, high = wilson_interval(5, 8)
    >>> round(low, 4), round(high, 4)
    (0.3057, 0.8632)
    """
    from scipy.stats import binomtest

    interval = binomtest(count, total).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


def cronbach_alpha(ratings: ArrayLike) -> float | None:
    """Return Cronbach's alpha of ratings [items, raters], or None if all items have the same sum.

    Examples
    --------
    >>> rows = ["111", "111", "110", "100", "000", "010", "000", "111"]
    >>> round(cronbach_alpha([[int(label) for label in row] for row in rows]), 6)
    0.789474
    """
    values: Array = np.asarray(ratings, dtype=float)
    is_table = values.ndim == 2 and len(values) > 0 and values.shape[1] > 1
    if not is_table or not np.isfinite(values).all():
        raise BiasError("alpha needs a table of finite numbers, of two raters or more")
    raters = values.shape[1]
    total = float(values.sum(axis=1).var())
    if math.isclose(total, 0, abs_tol=1e-15):
        return None
    separate = float(values.var(axis=0).sum())
    return float(raters / (raters - 1) * (1 - separate / total))


def _most_probable(table: Table) -> list[str]:
    """Return the most probable class of each image."""
    probabilities = np.column_stack([numbers(table, name, 0, 1) for name in CLASSES])
    empty = np.flatnonzero(probabilities.sum(axis=1) == 0)
    if len(empty):
        raise table.problem(int(empty[0]), "all probabilities are 0")
    return [CLASSES[column] for column in probabilities.argmax(axis=1)]


def _labels(table: Table, rater: str) -> Array:
    labels = np.empty(len(table), dtype=bool)
    for row, cell in enumerate(table[rater]):
        label = _LABELS.get(cell.strip().casefold())
        if label is None:
            raise table.problem(
                row,
                f"unknown label {shorten(cell)} of {rater}. Use a class, 1 or 0, yes or no; or "
                "name the raters to use: --rater NAME",
            )
        labels[row] = label
    return labels
