"""How far shares can be trusted, and how far raters say the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from obygaze_features.errors import BiasError

__all__ = ["Pair", "cronbach_alpha", "pairs_of", "wilson_interval"]

Z = 1.959963984540054
"""Between plus and minus this lie 95% of a normal distribution."""


@dataclass(frozen=True)
class Pair:
    """Two raters: Cronbach's alpha of just these, and the share of items they say the same of."""

    first: str
    second: str
    alpha: float | None
    agreement: float


def wilson_interval(count: int, total: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share.

    Examples
    --------
    >>> low, high = wilson_interval(5, 8)
    >>> round(low, 4), round(high, 4)
    (0.3057, 0.8632)
    """
    if not 0 <= count <= total or not total:
        raise BiasError(f"{count} of {total} is no share")
    share, spread = count / total, Z * Z / total
    middle = share + spread / 2
    half = Z * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    # None and all are the very ends; rounding puts them beside these.
    low = 0.0 if count == 0 else (middle - half) / (1 + spread)
    return low, 1.0 if count == total else (middle + half) / (1 + spread)


def cronbach_alpha(ratings: ArrayLike) -> float | None:
    """Cronbach's alpha of ratings [items, raters]; None where all items are rated alike in sum.

    Examples
    --------
    >>> said = ["111", "111", "110", "100", "000", "010", "000", "111"]
    >>> round(cronbach_alpha([[int(one) for one in row] for row in said]), 6)
    0.789474
    """
    rated: NDArray[Any] = np.asarray(ratings, dtype=float)
    if rated.ndim != 2 or rated.shape[1] < 2 or not len(rated):
        raise BiasError(f"alpha takes ratings of items by two raters or more, not {rated.shape}")
    if not np.isfinite(rated).all():
        raise BiasError("alpha takes a number from each rater for each item; some are missing")
    raters = rated.shape[1]
    total = float(rated.sum(axis=1).var())
    if math.isclose(total, 0, abs_tol=1e-15):
        return None
    alone = float(rated.var(axis=0).sum())
    return float(raters / (raters - 1) * (1 - alone / total))


def pairs_of(names: tuple[str, ...], ratings: NDArray[Any]) -> list[Pair]:
    """Each two raters, of ratings [items, raters]."""
    return [
        Pair(
            names[one],
            names[other],
            cronbach_alpha(ratings[:, [one, other]]),
            float((ratings[:, one] == ratings[:, other]).mean()),
        )
        for one, other in combinations(range(len(names)), 2)
    ]
