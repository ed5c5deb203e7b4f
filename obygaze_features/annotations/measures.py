"""What is usually said of two annotators beside gamma: confusion, kappa, alpha.

All are computed from the table of counts, levels of the one in rows, of the other in columns.
A measure that is not defined, as where both only ever say one level, is None.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["cohen_kappa", "confusion", "krippendorff_alpha", "nominal", "ordinal"]


def confusion(a: Sequence[str], b: Sequence[str], codes: Sequence[str]) -> np.ndarray:
    """How many clips got which two levels.

    Examples
    --------
    >>> confusion(["EN", "S", "S"], ["EN", "EN", "S"], ["EN", "S"]).tolist()
    [[1, 0], [1, 1]]
    """
    rank = {code: place for place, code in enumerate(codes)}
    pairs = [rank[one] * len(codes) + rank[other] for one, other in zip(a, b, strict=True)]
    counts = np.bincount(np.array(pairs, dtype=int), minlength=len(codes) ** 2)
    return counts.reshape(len(codes), len(codes))


def cohen_kappa(counts: np.ndarray) -> float | None:
    """Cohen's kappa, every difference weighing the same."""
    total = counts.sum()
    expected = (counts.sum(axis=1) * counts.sum(axis=0)).sum()
    if expected == total**2:
        return None
    return float((np.trace(counts) * total - expected) / (total**2 - expected))


def krippendorff_alpha(counts: np.ndarray, differences: np.ndarray) -> float | None:
    """Krippendorff's alpha for two annotators who both labelled every clip.

    Parameters
    ----------
    counts
        The table of `confusion`.
    differences
        How much it weighs that two levels differ: Krippendorff's squared metric, of `nominal` or
        `ordinal`, or a matrix of distances, which is taken as it is.
    """
    coincidences = counts + counts.T
    margins = coincidences.sum(axis=1)
    expected = (np.outer(margins, margins) * differences).sum()
    if not expected:
        return None
    observed = (coincidences * differences).sum()
    return float(1 - (margins.sum() - 1) * observed / expected)


def nominal(counts: np.ndarray) -> np.ndarray:
    """Two levels differ or they do not."""
    return 1.0 - np.eye(len(counts))


def ordinal(counts: np.ndarray) -> np.ndarray:
    """Two levels differ by as many labels as lie between them, half of their own included."""
    margins = (counts + counts.T).sum(axis=1)
    middles = np.cumsum(margins) - margins / 2
    squares: np.ndarray = (middles[:, None] - middles) ** 2
    return squares
