"""Measures of agreement of two annotators, as functions of the table of counts of their levels.

The paper's gamma is 1 - d/e, where d is the mean distance between two annotators' levels over their
common clips, and e is that mean distance for random sequences. The paper draws 62 sequences and
does not say how. Here, e is the limit for many sequences: of one annotator's levels in random order
(`gamma`), or of levels that are all equally likely (``gamma_uniform``). A measure that is undefined
is None.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from obygaze_features.common.package import reference_json
from obygaze_features.manifests.labels import LabelScheme

NOT_SURE = "NS"


@dataclass(frozen=True, eq=False)
class Distances:
    """The distances, from 0 to 1, between levels; `name` is ``paper`` or ``even``."""

    name: str
    codes: tuple[str, ...]
    matrix: np.ndarray


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


def confusion(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    codes: Sequence[Hashable],
) -> np.ndarray:
    """Count the clips for each pair of levels, with `a` in rows and `b` in columns.

    Examples
    --------
    >>> confusion(["EN", "S", "S"], ["EN", "EN", "S"], ["EN", "S"]).tolist()
    [[1, 0], [1, 1]]
    """
    counts = np.zeros((len(codes), len(codes)), int)
    np.add.at(counts, (list(map(codes.index, a)), list(map(codes.index, b))), 1)
    return counts


def measures(counts: np.ndarray, distances: Distances) -> dict[str, float | None]:
    """Return all measures of a table of counts by name.

    ``gamma_without_not_sure`` leaves out clips that either annotator calls Not Sure. It is
    returned only for the paper's levels.

    Examples
    --------
    >>> from obygaze_features.manifests import obygaze_scheme
    >>> distances = distances_of(obygaze_scheme())
    >>> a = "EN EN HN S EN NS EN S HN EN".split()
    >>> b = "EN HN HN NS EN S EN S EN EN".split()
    >>> values = measures(confusion(a, b, distances.codes), distances)
    >>> [round(values[name], 6) for name in ("distance", "gamma", "gamma_uniform", "kappa")]
    [0.12, 0.710145, 0.717647, 0.393939]
    """
    matrix = distances.matrix
    values: dict[str, float | None] = {
        "distance": _mean(counts, matrix),
        "gamma": gamma(counts, matrix),
        "gamma_uniform": gamma(counts, matrix, uniform=True),
    }
    if distances.name == "paper":
        rows = [row for row, code in enumerate(distances.codes) if code != NOT_SURE]
        sure = np.ix_(rows, rows)
        values["gamma_without_not_sure"] = gamma(counts[sure], matrix[sure])

    values["kappa"] = cohen_kappa(counts)
    values["alpha_nominal"] = krippendorff_alpha(counts, 1.0 - np.eye(len(counts)))
    values["alpha_ordinal"] = krippendorff_alpha(counts, ordinal(counts))
    return values


def _mean(counts: np.ndarray, matrix: np.ndarray) -> float | None:
    clips = counts.sum()
    if not clips:
        return None
    return float((counts * matrix).sum() / clips)


def gamma(counts: np.ndarray, matrix: np.ndarray, *, uniform: bool = False) -> float | None:
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


def cohen_kappa(counts: np.ndarray) -> float | None:
    """Return unweighted Cohen's kappa, or None if chance alone gives full agreement."""
    kappa = float(cohen_kappas(counts))
    return None if np.isnan(kappa) else kappa


def cohen_kappas(counts: np.ndarray) -> np.ndarray:
    """Return Cohen's kappa for each table of counts [..., K, K], or NaN where it is undefined."""
    total = counts.sum(axis=(-1, -2))
    expected = (counts.sum(axis=-1) * counts.sum(axis=-2)).sum(axis=-1)
    equal = np.trace(counts, axis1=-2, axis2=-1) * total
    largest = total**2
    defined = expected != largest
    possible = np.where(defined, largest - expected, 1)
    return np.where(defined, (equal - expected) / possible, np.nan)


def krippendorff_alpha(counts: np.ndarray, differences: np.ndarray) -> float | None:
    """Return Krippendorff's alpha for squared differences of levels; None if undefined."""
    coincidences = counts + counts.T
    margins = coincidences.sum(axis=1)
    expected = (np.outer(margins, margins) * differences).sum()
    if not expected:
        return None
    observed = (coincidences * differences).sum()
    return float(1 - (margins.sum() - 1) * observed / expected)


def ordinal(counts: np.ndarray) -> np.ndarray:
    """Return the squared number of labels between each two levels.

    Labels at either of the two levels count half.
    """
    margins = (counts + counts.T).sum(axis=1)
    middles = np.cumsum(margins) - margins / 2
    squares: np.ndarray = (middles[:, None] - middles) ** 2
    return squares
