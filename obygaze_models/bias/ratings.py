"""Shares of images that are labelled as sexualised, by group and rater, and how raters agree.

Labels only: no image is read or made here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from obygaze_features.common.tables import Table, align
from obygaze_features.common.text import counted, join_some, shorten, unknown_name
from obygaze_features.errors import BiasError
from obygaze_models.bias.inputs import check_cells, numbers, read_rows, require
from obygaze_models.figures.dots import grouped_dots, numbered_series
from obygaze_models.figures.sheet import Dot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES = ("drawings", "hentai", "neutral", "porn", "sexy")
SEXUALISED = ("hentai", "porn", "sexy")
CLASSIFIER = "classifier"
"""The name of the rater whose labels are the five probabilities."""
PROBABILITY_TOLERANCE = 0.01
"""How far the sum of the probabilities may be from 1, as they are often rounded."""
_LABELS = {name: name in SEXUALISED for name in CLASSES} | {
    "1": True, "0": False, "yes": True, "no": False,
}  # fmt: skip
_KEYS = ("image_id", "group")


@dataclass(frozen=True, eq=False)
class Ratings:
    """Whether each rater labels each image as sexualised, [images, raters].

    `uneven` counts the images whose probabilities do not sum to about 1.
    """

    images: tuple[str, ...]
    groups: tuple[str, ...]
    raters: tuple[str, ...]
    sexualised: NDArray[Any]
    uneven: int = 0

    @property
    def alpha(self) -> float | None:
        """Cronbach's alpha of all raters; None of a single one."""
        return cronbach_alpha(self.sexualised) if len(self.raters) > 1 else None

    def rows(self) -> list[dict[str, Any]]:
        """The shares as rows of a table."""
        return [asdict(share) for share in group_shares(self)]

    def to_dict(self) -> dict[str, Any]:
        """Shares and reliability as JSON values."""
        return {
            "images": len(self.images),
            "raters": list(self.raters),
            "shares": self.rows(),
            "alpha": self.alpha,
            "pairs": [asdict(pair) for pair in rater_pairs(self)],
        }

    def describe(self) -> str:
        """A table of the shares, and of two raters or more how reliable they are."""
        cells = [
            [
                *(s.group, s.rater, f"{s.count:,}", f"{s.images:,}"),
                *(f"{s.share:.1%}", f"{s.low:.1%} to {s.high:.1%}"),
            ]
            for s in group_shares(self)
        ]
        header = ["group", "rater", "sexualised", "images", "share", "95%"]
        text = align(header, cells, left=2)
        pairs = rater_pairs(self)
        rows = [
            (f"{pair.first}, {pair.second}", pair.alpha, f"{pair.agreement:.1%}") for pair in pairs
        ]
        if len(pairs) > 1:
            rows.insert(0, (f"all {len(self.raters)}", self.alpha, ""))
        if rows:
            cells = [
                [names, "-" if alpha is None else f"{alpha:.6f}", same]
                for names, alpha, same in rows
            ]
            text += "\n\n" + align(["raters", "Cronbach's alpha", "same label"], cells)
        return text

    def notes(self) -> list[str]:
        """What may be wrong with the probabilities."""
        if not self.uneven:
            return []
        images = counted(self.uneven, "image")
        return [
            f"the probabilities of {images} do not sum to about 1; the most probable class was "
            "taken anyway"
        ]

    def figure(self) -> Figure:
        """A dot a rater, for each group."""
        dots: dict[str, list[Dot]] = {}
        for share in group_shares(self):
            dots.setdefault(share.group, []).append(Dot(share.share, share.low, share.high))
        return grouped_dots(
            dots,
            numbered_series(self.raters),
            title=f"Images labelled as sexualised, of {len(self.images):,}",
            axis="share of the group's images; lines: Wilson's 95%",
            description="Which share of each group's images each rater labels as sexualised.",
            limits=(0, 1),
            percent=True,
        )


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


@dataclass(frozen=True)
class RaterPair:
    """Two raters: Cronbach's alpha of these two, and the share of images with the same label."""

    first: str
    second: str
    alpha: float | None
    agreement: float


def read_ratings(path: str | Path, raters: Sequence[str] = ()) -> Ratings:
    """Read a table of labels.

    Parameters
    ----------
    path
        A CSV table with ``image_id`` and ``group``. Five columns of probabilities (drawings,
        hentai, neutral, porn, sexy) are a classifier's, whose label is the most probable class;
        each other column has a rater's labels: one of the five classes, 1 or 0, yes or no.
    raters
        Only these columns; the probabilities are `CLASSIFIER`.
    """
    with read_rows(Path(path), _KEYS) as table:
        columns = [name for name in table.columns if name not in (*_KEYS, *CLASSES)]
        has_probabilities = any(name in table.columns for name in CLASSES)
        if has_probabilities:
            require(table, CLASSES, "one of the five classes")
            if CLASSIFIER in columns:
                raise BiasError(
                    f"{path}, line 1: the probabilities belong to the rater {CLASSIFIER}, and a "
                    "column has the same name; rename the column"
                )
            columns.append(CLASSIFIER)
        for name in raters:
            if name not in columns:
                raise BiasError(f"{path}: {unknown_name('rater', name, columns)}")
        names = tuple(dict.fromkeys(raters)) or tuple(columns)
        if not names:
            raise BiasError(
                f"{path} has no column of labels beside image_id and group, and no probabilities "
                f"({', '.join(CLASSES)}); add one of them"
            )
        check_cells(table, *_KEYS, unique="image_id")
        uneven, labels = 0, []
        for name in names:
            if has_probabilities and name == CLASSIFIER:
                probabilities = _probabilities(table)
                off = np.abs(probabilities.sum(axis=1) - 1)
                uneven = int((off > PROBABILITY_TOLERANCE).sum())
                most_probable = np.array(CLASSES)[probabilities.argmax(axis=1)]
                labels.append(np.isin(most_probable, SEXUALISED))
            else:
                labels.append(_labels(table, name))
    return Ratings(
        tuple(table["image_id"]), tuple(table["group"]), names, np.column_stack(labels), uneven
    )


def group_shares(ratings: Ratings) -> list[Share]:
    """A share for each group, in the table's order, and rater."""
    shares = []
    groups = np.array(ratings.groups)
    for group in dict.fromkeys(ratings.groups):
        labels = ratings.sexualised[groups == group]
        for rater, count in zip(ratings.raters, labels.sum(axis=0).tolist(), strict=True):
            low, high = wilson_interval(count, len(labels))
            share = count / len(labels)
            shares.append(Share(group, rater, count, len(labels), share, low, high))
    return shares


def wilson_interval(count: int, total: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share, by SciPy.

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
    """Cronbach's alpha of ratings [items, raters]; None if all items have the same sum.

    Examples
    --------
    >>> rows = ["111", "111", "110", "100", "000", "010", "000", "111"]
    >>> round(cronbach_alpha([[int(label) for label in row] for row in rows]), 6)
    0.789474
    """
    values: NDArray[Any] = np.asarray(ratings, dtype=float)
    if values.ndim != 2 or values.shape[1] < 2 or not len(values):
        raise BiasError(f"alpha needs ratings of items by at least two raters, not {values.shape}")
    if not np.isfinite(values).all():
        raise BiasError("alpha needs a number from each rater for each item; some are missing")
    raters = values.shape[1]
    total = float(values.sum(axis=1).var())
    if math.isclose(total, 0, abs_tol=1e-15):
        return None
    separate = float(values.var(axis=0).sum())
    return float(raters / (raters - 1) * (1 - separate / total))


def rater_pairs(ratings: Ratings) -> list[RaterPair]:
    """Every two raters."""
    labels = ratings.sexualised
    return [
        RaterPair(
            ratings.raters[first],
            ratings.raters[second],
            cronbach_alpha(labels[:, [first, second]]),
            float((labels[:, first] == labels[:, second]).mean()),
        )
        for first, second in combinations(range(len(ratings.raters)), 2)
    ]


def _probabilities(table: Table) -> NDArray[Any]:
    values = np.column_stack([numbers(table, name, 0, 1) for name in CLASSES])
    if empty := np.flatnonzero(values.sum(axis=1) == 0).tolist():
        raise table.problem(empty[0], "all probabilities are 0, so that no class is most probable")
    return values


def _labels(table: Table, rater: str) -> NDArray[Any]:
    labels = np.empty(len(table), dtype=bool)
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
                f"{join_some(list(_LABELS), 9)} (if {rater} is no rater, name the raters: "
                "--rater NAME)",
            )
        labels[row] = _LABELS[label]
    return labels
