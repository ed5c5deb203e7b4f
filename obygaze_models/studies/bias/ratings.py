"""Shares of images labelled as sexualised, by group and rater, and the raters' agreement.

The input is a table. No image is read or generated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from pandas import DataFrame

from obygaze_features.common.formatting import shorten
from obygaze_features.common.names import unknown_name
from obygaze_features.common.tables import Table, read_table
from obygaze_features.errors import BiasError
from obygaze_features.manifests.labels import read_ids
from obygaze_models.studies.bias.inputs import numbers
from obygaze_models.studies.bias.measured import Drawing, Measured

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


def ratings(path: str | Path, raters: Sequence[str] = ()) -> Measured:
    """Return the share of sexualised images by group and rater, and the raters' agreement.

    ``about`` has ``alpha``, Cronbach's alpha of all raters, and for each pair of raters, their
    alpha and the share of equal labels. An alpha is None if it is undefined.

    Parameters
    ----------
    path, raters
        As for `read_labels`.
    """
    from scipy.stats import binomtest

    labels = read_labels(path, raters)
    rows = []
    for group, of_group in labels.groupby(level="group", sort=False):
        images = len(of_group)
        for rater, count in of_group.sum().items():
            low, high = map(float, binomtest(count, images).proportion_ci(method="wilson"))
            row = {"group": group, "rater": rater, "count": count, "images": images}
            rows.append({**row, "share": count / images, "low": low, "high": high})

    pairs = []
    for first, second in combinations(labels, 2):
        agreement = float((labels[first] == labels[second]).mean())
        alpha = cronbach_alpha(labels[[first, second]])
        pairs.append({"raters": f"{first}, {second}", "alpha": alpha, "agreement": agreement})

    # The order in memory decides the last bit of a sum.
    alpha = cronbach_alpha(np.ascontiguousarray(labels)) if pairs else None
    return Measured(rows, _DRAWING, {"images": len(labels), "alpha": alpha, "pairs": pairs})


def read_labels(path: str | Path, raters: Sequence[str] = ()) -> DataFrame:
    """Return each rater's labels, True if an image is sexualised, with the groups as the index.

    Parameters
    ----------
    path
        A CSV table with the columns ``image_id`` and ``group``. Columns of class
        probabilities (drawings, hentai, neutral, porn, sexy) stand for a rater named
        ``classifier``, whose label for each image is the most probable class. Each further column
        has a rater's labels: one of the five classes, 1 or 0, yes or no.
    raters
        The names of the raters to use (default: all).
    """
    import pandas as pd

    table = read_table(Path(path), delimiter=None, required=_KEYS)
    table.check_cells(*_KEYS)
    read_ids(table, "image_id")
    columns = [name for name in table.columns if name not in (*_KEYS, *CLASSES)]
    if not table.columns.keys().isdisjoint(CLASSES):
        if CLASSIFIER in columns:
            raise BiasError(
                f"{path}: the column {CLASSIFIER} clashes with the probabilities. Rename it"
            )
        probabilities = np.column_stack([numbers(table, name, 0, 1) for name in CLASSES])
        empty = np.flatnonzero(probabilities.sum(axis=1) == 0)
        if len(empty):
            raise table.problem(int(empty[0]), "all probabilities are 0")
        table.columns[CLASSIFIER] = [CLASSES[place] for place in probabilities.argmax(axis=1)]
        columns.append(CLASSIFIER)
    if not columns or not table.lines:
        raise BiasError(f"{path} has no labels. Add a row per image and a column per rater")

    labels = {}
    for name in raters or columns:
        if name not in columns:
            raise BiasError(f"{path}: {unknown_name('rater', name, columns)}")
        labels[name] = _labels(table, name)
    return pd.DataFrame(labels, index=pd.Index(table["group"], name="group"))


def cronbach_alpha(ratings: ArrayLike) -> float | None:
    """Return Cronbach's alpha of ratings [items, raters], or None if all items have the same sum.

    Examples
    --------
    >>> rows = ["111", "111", "110", "100", "000", "010", "000", "111"]
    >>> round(cronbach_alpha([[int(label) for label in row] for row in rows]), 6)
    0.789474
    """
    values = np.asarray(ratings, dtype=float)
    raters = values.shape[1]
    total = float(values.sum(axis=1).var())
    if math.isclose(total, 0, abs_tol=1e-15):
        return None
    separate = float(values.var(axis=0).sum())
    return float(raters / (raters - 1) * (1 - separate / total))


def _labels(table: Table, rater: str) -> list[bool]:
    labels = []
    for row, cell in enumerate(table[rater]):
        label = _LABELS.get(cell.strip().casefold())
        if label is None:
            raise table.problem(
                row,
                f"unknown label {shorten(cell)} of {rater}. Use a class, 1 or 0, yes or no; or "
                "name the raters to use",
            )
        labels.append(label)
    return labels
