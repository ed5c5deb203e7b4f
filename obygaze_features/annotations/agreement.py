"""Agreement of two annotators' levels: the paper's gamma, beside kappa and alpha.

gamma = 1 - d/e: d is the mean distance of the two annotators' levels over their common clips, e
what it is for random sequences. The paper does not say how it draws them, so the way is named:

``shuffled``
    The levels of the one annotator in random order: as many of each level as there are.
``uniform``
    Two sequences whose levels are drawn with equal chances.

Both have a closed form, what e comes to with ever more sequences, which stands beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from obygaze_features.annotations.distances import Distances
from obygaze_features.annotations.measures import (
    cohen_kappa,
    confusion,
    krippendorff_alpha,
    nominal,
    ordinal,
)
from obygaze_features.annotations.pairs import Pair
from obygaze_features.errors import UsageError

__all__ = [
    "GENERATORS",
    "SAMPLES",
    "SLACK",
    "Agreement",
    "Chance",
    "Gamma",
    "agreement",
    "gamma",
    "gamma_of",
    "mean",
    "stream_of",
]

GENERATORS = ("shuffled", "uniform")
SAMPLES = 62
"""As many random sequences as the paper draws."""
NOT_SURE = "NS"
#: Sums of the same distances in another order differ by less.
SLACK = 1e-9


@dataclass(frozen=True)
class Chance:
    """How random sequences are drawn."""

    generator: str = "shuffled"
    samples: int = SAMPLES
    seed: int = 0

    def __post_init__(self) -> None:
        if self.generator not in GENERATORS:
            raise UsageError(f"the generator is one of {GENERATORS}, not {self.generator!r}")
        if self.samples < 1 or self.seed < 0:
            raise UsageError("samples start at 1, and seeds at 0")


@dataclass(frozen=True)
class Gamma:
    """gamma and what it is made of; None where it is not defined.

    `expected` is the mean over random sequences, `closed` its closed form; `p` is the share of
    random sequences that agree at least as well, the observed one counted among them.
    """

    clips: int
    distance: float | None = None
    expected: float | None = None
    gamma: float | None = None
    p: float | None = None
    closed: float | None = None
    closed_gamma: float | None = None


@dataclass(frozen=True, eq=False)
class Agreement:
    """Two label sets in one film.

    `unpaired` clips, which only one of them has, are not counted; `sure` is gamma without the
    clips that either calls Not Sure, None where the scheme has no such level.
    """

    film: str
    a: str
    b: str
    unpaired: int
    gamma: Gamma
    sure: Gamma | None
    counts: np.ndarray
    kappa: float | None
    alpha_nominal: float | None
    alpha_ordinal: float | None
    alpha_distances: float | None

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON."""
        return {
            **{key: value for key, value in vars(self).items() if key != "counts"},
            "gamma": asdict(self.gamma),
            "sure": None if self.sure is None else asdict(self.sure),
            "confusion": self.counts.tolist(),
        }


def agreement(pair: Pair, distances: Distances, chance: Chance | None = None) -> Agreement:
    """All measures of a pair.

    Its random sequences depend on the seed, the film and the two names, and on nothing else.
    """
    chance = chance or Chance()
    a, b = pair.common
    stream = stream_of(pair.film, pair.a, pair.b)
    counts = confusion(a, b, distances.codes)
    sure = None
    if NOT_SURE in distances.codes:
        kept = [(x, y) for x, y in zip(a, b, strict=True) if NOT_SURE not in (x, y)]
        left, right = [x for x, _ in kept], [y for _, y in kept]
        sure = gamma(left, right, distances.without(NOT_SURE), chance, stream=stream)
    return Agreement(
        film=pair.film,
        a=pair.a,
        b=pair.b,
        unpaired=pair.unpaired,
        gamma=gamma(a, b, distances, chance, stream=stream),
        sure=sure,
        counts=counts,
        kappa=cohen_kappa(counts),
        alpha_nominal=krippendorff_alpha(counts, nominal(counts)),
        alpha_ordinal=krippendorff_alpha(counts, ordinal(counts)),
        alpha_distances=krippendorff_alpha(counts, distances.matrix),
    )


def gamma(
    a: Sequence[str],
    b: Sequence[str],
    distances: Distances,
    chance: Chance | None = None,
    *,
    stream: int = 0,
) -> Gamma:
    """The paper's gamma of two sequences of levels; another `stream`, other random sequences.

    Examples
    --------
    >>> from obygaze_features.manifests import obygaze_scheme
    >>> from obygaze_features.annotations.distances import distances_of
    >>> a = "EN EN HN S EN NS EN S HN EN".split()
    >>> b = "EN HN HN NS EN S EN S EN EN".split()
    >>> found = gamma(a, b, distances_of(obygaze_scheme()))
    >>> round(found.distance, 6), round(found.closed, 6), round(found.closed_gamma, 6)
    (0.12, 0.414, 0.710145)
    """
    chance = chance or Chance()
    if not a:
        return Gamma(0)
    left = np.array([distances.rank[level] for level in a])
    right = np.array([distances.rank[level] for level in b])
    levels, matrix = len(distances.codes), distances.matrix

    def apart(one: np.ndarray, other: np.ndarray) -> float:
        counts = np.bincount(one * levels + other, minlength=levels**2)
        return float(counts @ matrix.ravel() / len(one))

    random = np.random.default_rng([chance.seed, stream])
    if chance.generator == "shuffled":
        drawn = [apart(left, random.permutation(right)) for _ in range(chance.samples)]
        shares = [np.bincount(one, minlength=levels) / len(one) for one in (left, right)]
        closed = float(shares[0] @ matrix @ shares[1])
    else:
        size = (2, len(left))
        drawn = [apart(*random.integers(levels, size=size)) for _ in range(chance.samples)]
        closed = float(matrix.mean())
    distance, expected = apart(left, right), fmean(drawn)
    as_close = sum(one <= distance + SLACK for one in drawn)
    return Gamma(
        clips=len(left),
        distance=distance,
        expected=expected,
        gamma=gamma_of(distance, expected),
        p=(as_close + 1) / (chance.samples + 1),
        closed=closed,
        closed_gamma=gamma_of(distance, closed),
    )


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of those that are defined, if any is."""
    defined = [value for value in values if value is not None]
    return fmean(defined) if defined else None


def stream_of(*names: str) -> int:
    """A number of its own for each film and pair, so that it is drawn for alone."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "big")


def gamma_of(distance: float, expected: float) -> float | None:
    """1 - distance / expected; 1 where nothing is apart, whatever is expected."""
    if distance == 0:
        return 1.0
    return 1 - distance / expected if expected else None
