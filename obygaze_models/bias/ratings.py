"""Shares of images labelled as sexualised, by group and rater, and the raters' agreement.

Only labels are used. No image is read or generated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from obygaze_features.common.tables import Table
from obygaze_features.common.text import counted, join_some, shorten, unknown_name
from obygaze_features.errors import BiasError
from obygaze_models.bias.inputs import check_cells, format_table, numbers, read_rows, require
from obygaze_models.figures.dots import grouped_dots, numbered_series
from obygaze_models.figures.sheet import Dot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES = ("drawings", "hentai", "neutral", "porn", "sexy")
SEXUALISED = ("hentai", "porn", "sexy")
CLASSIFIER = "classifier"
"""The name of the rater whose labels come from the five probabilities."""
PROBABILITY_TOLERANCE = 0.01
"""The tolerance for the sum of the probabilities, because they are often rounded."""
_LABELS = {name: name in SEXUALISED for name in CLASSES} | {
    "1": True, "0": False, "yes": True, "no": False,
}  # fmt: skip
_KEYS = ("image_id", "group")


@dataclass(frozen=True, eq=False)
class Ratings:
    """The labels of all raters [images, raters]: True if the image is labelled as sexualised.

    `groups` has the group of each image. `uneven` is the number of images whose probabilities do
    not sum to about 1.
    """

    groups: tuple[str, ...]
    raters: tuple[str, ...]
    sexualised: NDArray[Any]
    uneven: int = 0

    @property
    def alpha(self) -> float | None:
        """Cronbach's alpha of all raters; None if undefined, as for a single rater."""
        return cronbach_alpha(self.sexualised) if len(self.raters) > 1 else None

    def rows(self) -> list[dict[str, Any]]:
        """Return the share of sexualised images by group, in the table's order, and by rater."""
        shares = []
        groups = np.array(self.groups)
        for group in dict.fromkeys(self.groups):
            labels = self.sexualised[groups == group]
            for rater, count in zip(self.raters, labels.sum(axis=0).tolist(), strict=True):
                low, high = wilson_interval(count, len(labels))
                share = {"count": count, "images": len(labels), "share": count / len(labels)}
                shares.append({"group": group, "rater": rater, **share, "low": low, "high": high})
        return shares

    def pairs(self) -> list[dict[str, Any]]:
        """Return Cronbach's alpha and the share of equal labels for each pair of raters."""
        pairs = []
        for first, second in combinations(range(len(self.raters)), 2):
            labels = self.sexualised[:, [first, second]]
            pair = {"first": self.raters[first], "second": self.raters[second]}
            agreement = float((labels[:, 0] == labels[:, 1]).mean())
            pairs.append({**pair, "alpha": cronbach_alpha(labels), "agreement": agreement})
        return pairs

    def to_dict(self) -> dict[str, Any]:
        """Return the shares and the raters' agreement as JSON values."""
        return {
            "images": len(self.groups),
            "raters": list(self.raters),
            "shares": self.rows(),
            "alpha": self.alpha,
            "pairs": self.pairs(),
        }

    def describe(self) -> str:
        """Return a table of the shares and, if there are several raters, of their agreement."""
        header = ["group", "rater", "sexualised", "images", "share", "95%"]
        cells = ["{group}", "{rater}", "{count:,}", "{images:,}", "{share:.1%}"]
        text = format_table(header, [*cells, "{low:.1%} to {high:.1%}"], self.rows(), left=2)
        pairs = [
            {
                "raters": f"{pair['first']}, {pair['second']}",
                "same": f"{pair['agreement']:.1%}",
                **pair,
            }
            for pair in self.pairs()
        ]
        if len(pairs) > 1:
            pairs.insert(0, {"raters": f"all {len(self.raters)}", "alpha": self.alpha, "same": ""})
        header = ["raters", "Cronbach's alpha", "same label"]
        cells = ["{raters}", "{alpha:.6f}", "{same}"]
        return f"{text}\n\n{format_table(header, cells, pairs)}" if pairs else text

    def notes(self) -> list[str]:
        """Return warnings about the probabilities."""
        images = counted(self.uneven, "image")
        uneven = f"the probabilities of {images} do not sum to about 1; the largest was used"
        return [uneven] if self.uneven else []

    def figure(self) -> Figure:
        """Draw a dot for each rater, by group."""
        dots: dict[str, list[Dot]] = {}
        for share in self.rows():
            dot = Dot(share["share"], share["low"], share["high"])
            dots.setdefault(share["group"], []).append(dot)
        return grouped_dots(
            dots,
            numbered_series(self.raters),
            title=f"Images labelled as sexualised, of {len(self.groups):,}",
            axis="share of the group's images; lines: Wilson's 95% interval",
            description="The share of each group's images that each rater labels as sexualised.",
            limits=(0, 1),
            percent=True,
        )


def read_ratings(path: str | Path, raters: Sequence[str] = ()) -> Ratings:
    """Read a table of labels.

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
    uneven = 0
    with read_rows(Path(path), _KEYS) as table:
        check_cells(table, *_KEYS, unique="image_id")
        if not table.columns.keys().isdisjoint(CLASSES):
            table, uneven = _classify(table)
        columns = [name for name in table.columns if name not in _KEYS]
        for name in raters:
            if name not in columns:
                raise BiasError(f"{path}: {unknown_name('rater', name, columns)}")
        names = tuple(dict.fromkeys(raters or columns))
        if not names:
            raise BiasError(
                f"{path} has no labels. Add a column of labels, or columns of the probabilities "
                f"{', '.join(CLASSES)}"
            )
        labels = np.column_stack([_labels(table, name) for name in names])
    return Ratings(tuple(table["group"]), names, labels, uneven if CLASSIFIER in names else 0)


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
    values: NDArray[Any] = np.asarray(ratings, dtype=float)
    is_table = values.ndim == 2 and len(values) > 0 and values.shape[1] >= 2
    if not is_table or not np.isfinite(values).all():
        raise BiasError(
            f"alpha needs finite numbers [items, raters] of two raters or more (got {values.shape})"
        )
    raters = values.shape[1]
    total = float(values.sum(axis=1).var())
    if math.isclose(total, 0, abs_tol=1e-15):
        return None
    separate = float(values.var(axis=0).sum())
    return float(raters / (raters - 1) * (1 - separate / total))


def _classify(table: Table) -> tuple[Table, int]:
    """Turn probabilities into labels, and count the images where they do not sum to about 1."""
    require(table, CLASSES, "but the probabilities of all five classes are needed")
    if CLASSIFIER in table.columns:
        raise BiasError(
            f"{table.path}, line 1: a column has the reserved name {CLASSIFIER}, which is for "
            "the labels from the probabilities. Rename the column"
        )
    probabilities = np.column_stack([numbers(table, name, 0, 1) for name in CLASSES])
    sums = probabilities.sum(axis=1)
    if empty := np.flatnonzero(sums == 0).tolist():
        raise table.problem(empty[0], "all probabilities are 0, so no class is the most probable")
    columns = {name: cells for name, cells in table.columns.items() if name not in CLASSES}
    columns[CLASSIFIER] = np.array(CLASSES)[probabilities.argmax(axis=1)].tolist()
    uneven = int((np.abs(sums - 1) > PROBABILITY_TOLERANCE).sum())
    return replace(table, columns=columns), uneven


def _labels(table: Table, rater: str) -> list[bool]:
    labels = []
    for row, cell in enumerate(table[rater]):
        label = _LABELS.get(cell.strip().casefold())
        if label is None:
            raise table.problem(
                row,
                f"unknown label {shorten(cell)} of {rater}. Use one of "
                f"{join_some(list(_LABELS), 9)} (to leave {rater} out, name the raters to use: "
                "--rater NAME)",
            )
        labels.append(label)
    return labels
