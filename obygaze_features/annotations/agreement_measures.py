"""Measures of agreement: of two annotators, from the counts of their levels, and of any number.

Gamma is that of labelled clips, in closed form: the paper's 1 - d/e, where d is the mean distance
between two annotators' levels over their common clips, and e is that mean distance for random
sequences. The paper draws 62 sequences and does not say how. Here, e is the limit for many
sequences: of one annotator's levels in random order (`gamma`), or of levels that are all equally
likely (``gamma_uniform``). It is not the gamma of Mathet and others, which compares intervals and
aligns them first. A measure that is undefined is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from obygaze_features.common.arrays import Array
from obygaze_features.common.package import reference_json
from obygaze_features.manifests.labels import LabelScheme

NOT_SURE = "NS"
MIN_FILMS = 5
"""The minimum number of films for an interval over films."""


class Alpha(NamedTuple):
    """Krippendorff's alpha, or None, and its 95% interval over films, if there are enough."""

    value: float | None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Distances:
    """The distances, from 0 to 1, between levels; `name` is ``paper`` or ``even``."""

    name: str
    codes: tuple[str, ...]
    matrix: Array


def distances_of(scheme: LabelScheme) -> Distances:
    """Return the paper's distances for its four levels, and even steps for other levels.

    Examples
    --------
    >>> from obygaze_features.manifests import Level, obygaze_scheme
    >>> distances_of(obygaze_scheme()).matrix[0].tolist()
    [0.0, 0.3, 0.7, 1.0]
    >>> scheme = LabelScheme("tension", tuple(Level(code, code) for code in ("low", "mid", "high")))
    >>> distances_of(scheme).matrix[0].tolist()
    [0.0, 0.5, 1.0]
    """
    if scheme.is_obygaze:
        paper = reference_json("scheme-obygaze.json")["distances"]
        order = list(map(paper["levels"].index, scheme.codes))
        return Distances("paper", scheme.codes, np.array(paper["matrix"])[np.ix_(order, order)])

    steps = np.arange(len(scheme.codes))
    matrix = np.abs(steps[:, None] - steps) / max(1, len(steps) - 1)
    return Distances("even", scheme.codes, matrix)


def confusion(a: Array, b: Array, size: int) -> Array:
    """Count the clips for each pair of levels, with `a` in rows and `b` in columns.

    Levels are ranks; a clip with a rank below 0 is left out.

    Examples
    --------
    >>> confusion(np.array([0, 1, 1, -1]), np.array([0, 0, 1, 1]), 2).tolist()
    [[1, 0], [1, 1]]
    """
    common = (a >= 0) & (b >= 0)
    cells = a[common] * size + b[common]
    return np.bincount(cells, minlength=size**2).reshape(size, size)


def measures(counts: Array, distances: Distances) -> dict[str, float | None]:
    """Return all measures of a table of counts by name.

    ``gamma_without_not_sure`` leaves out clips that either annotator calls Not Sure. It is
    returned only for the paper's levels.

    Examples
    --------
    >>> from obygaze_features.manifests import obygaze_scheme
    >>> distances = distances_of(obygaze_scheme())
    >>> a = np.array([0, 0, 1, 3, 0, 2, 0, 3, 1, 0])
    >>> b = np.array([0, 1, 1, 2, 0, 3, 0, 3, 0, 0])
    >>> values = measures(confusion(a, b, 4), distances)
    >>> [round(values[name], 6) for name in ("distance", "gamma", "gamma_uniform", "kappa")]
    [0.12, 0.710145, 0.717647, 0.393939]
    """
    matrix = distances.matrix
    values = {
        "distance": _mean(counts, matrix),
        "gamma": gamma(counts, matrix),
        "gamma_uniform": gamma(counts, matrix, uniform=True),
    }
    if distances.name == "paper":
        rows = [row for row, code in enumerate(distances.codes) if code != NOT_SURE]
        sure = np.ix_(rows, rows)
        values["gamma_without_not_sure"] = gamma(counts[sure], matrix[sure])

    values["kappa"] = cohen_kappa(counts)
    return values


def _mean(counts: Array, matrix: Array) -> float | None:
    clips = counts.sum()
    if not clips:
        return None
    return float((counts * matrix).sum() / clips)


def gamma(counts: Array, matrix: Array, *, uniform: bool = False) -> float | None:
    """Return the paper's gamma: 1 if the annotators never differ, None if there are no clips."""
    distance = _mean(counts, matrix)
    if distance is None:
        return None
    if distance == 0:
        return 1.0

    expected = matrix.mean()
    if not uniform:
        expected = counts.sum(axis=1) @ matrix @ counts.sum(axis=0) / counts.sum() ** 2
    return float(1 - distance / expected)


def cohen_kappa(counts: Array) -> float | None:
    """Return unweighted Cohen's kappa, or None if chance alone gives full agreement."""
    kappa = float(cohen_kappas(counts))
    return None if np.isnan(kappa) else kappa


def cohen_kappas(counts: Array) -> Array:
    """Return Cohen's kappa for each table of counts [..., K, K], or NaN where it is undefined."""
    total = counts.sum(axis=(-1, -2))
    expected = (counts.sum(axis=-1) * counts.sum(axis=-2)).sum(axis=-1)
    equal = np.trace(counts, axis1=-2, axis2=-1) * total
    largest = total**2
    defined = expected != largest
    possible = np.where(defined, largest - expected, 1)
    return np.where(defined, (equal - expected) / possible, np.nan)


def meetings(codes: Array, size: int) -> Array:
    """Count how often two levels meet in a clip, for Krippendorff's alpha.

    `codes` has the rank of each annotator's level of each clip [annotators, clips], or -1. Every
    clip with two labels or more counts as often as it has labels.

    Examples
    --------
    >>> meetings(np.array([[0, 1, 1], [0, 1, -1], [1, 1, -1]]), 2).tolist()
    [[1.0, 1.0], [1.0, 3.0]]
    """
    votes = (codes[..., None] == np.arange(size)).sum(axis=0)
    labels = votes.sum(axis=1)
    votes = votes[labels > 1]
    shares = votes / (labels[labels > 1, None] - 1)
    counts: Array = votes.T @ shares - np.diag(shares.sum(axis=0))
    return counts


def alpha(counts: Array, *, is_ordinal: bool = False) -> float | None:
    """Return Krippendorff's alpha for a table of `meetings` [K, K]; None if undefined.

    For ordered levels, the difference of two levels is the number of labels between them, with
    half of the labels at either.
    """
    margins = counts.sum(axis=0)
    differences = 1.0 - np.eye(len(counts))
    if is_ordinal:
        middles = np.cumsum(margins) - margins / 2
        differences = np.subtract.outer(middles, middles) ** 2
    expected = (np.outer(margins, margins) * differences).sum()
    if not expected:
        return None
    return float(1 - (margins.sum() - 1) * (counts * differences).sum() / expected)


def estimate_alpha(films: Array, *, is_ordinal: bool = False) -> Alpha:
    """Return alpha over all films, with its interval, from each film's `meetings` [films, K, K].

    The interval is a jackknife over the films that have labels to compare: Student's t with the
    deviation of the alphas that each leave out one of these films.
    """
    films = films[films.any(axis=(1, 2))]
    total = films.sum(axis=0)
    whole = alpha(total, is_ordinal=is_ordinal)
    others = []
    for film in films:
        without = alpha(total - film, is_ordinal=is_ordinal)
        if without is not None:
            others.append(without)
    count = len(films)
    if whole is None or len(others) < max(count, MIN_FILMS):
        return Alpha(whole)
    half = float(np.std(others) * (count - 1) ** 0.5 * t_quantile(count - 1))
    return Alpha(whole, (max(-1.0, whole - half), min(1.0, whole + half)))


def t_quantile(freedom: int) -> float:
    """Return the 97.5% quantile of Student's t for some degrees of freedom.

    It is computed by adding up the density, because the smallest installation has no scipy.

    Examples
    --------
    >>> round(t_quantile(4), 4), round(t_quantile(50), 4)
    (2.7764, 2.0086)
    """
    ends = np.linspace(0.0, 200.0, 200_001)[1:]
    middles = ends - ends[0] / 2
    area = np.cumsum((1 + middles**2 / freedom) ** (-(freedom + 1) / 2))
    return float(np.interp(0.95, area / area[-1], ends))
