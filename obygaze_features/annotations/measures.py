"""Measures of agreement between two sequences of levels: the paper's gamma, kappa and alpha.

gamma = 1 - d/e, where d is the mean distance between two annotators' levels over their common
clips, and e is that mean distance for random sequences. The paper does not say how it draws random
sequences, so there are two ways:

``shuffled``
    One annotator's levels in random order, so each level is as frequent as before.
``uniform``
    Two sequences of levels in which all levels are equally likely.

For both, the limit of e for many sequences has a closed form, which is also reported. A measure
that is undefined is None: for example, kappa if both annotators give every clip the same level.

To add a measure, write a function of `Ratings` at the end of this file and decorate it with a
`Measure`. The measure then appears in tables, JSON, CSV files and the documentation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.package import reference_json
from obygaze_features.errors import UsageError
from obygaze_features.manifests.labels import LabelScheme

GENERATORS = ("shuffled", "uniform")
SAMPLES = 62
"""The number of random sequences that the paper draws."""
#: The tolerance when comparing sums of the same distances in different orders.
SUM_TOLERANCE = 1e-9
NOT_SURE = "NS"


@dataclass(frozen=True, eq=False)
class Distances:
    """The distances, from 0 to 1, between levels; `name` is ``paper`` or ``even``."""

    name: str
    codes: tuple[str, ...]
    matrix: np.ndarray

    @cached_property
    def rank(self) -> dict[str, int]:
        """The row of each level in `matrix`."""
        return {code: row for row, code in enumerate(self.codes)}

    def without(self, code: str) -> Distances:
        """Return the distances without the level `code`."""
        rows = [row for row, level in enumerate(self.codes) if level != code]
        codes = tuple(self.codes[row] for row in rows)
        return Distances(self.name, codes, self.matrix[np.ix_(rows, rows)])


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
    paper = reference_json("scheme-obygaze.json")["distances"]
    if scheme.is_obygaze:
        order = [paper["levels"].index(code) for code in scheme.codes]
        return Distances("paper", scheme.codes, np.array(paper["matrix"])[np.ix_(order, order)])
    steps = np.arange(len(scheme.codes))
    matrix = np.abs(steps[:, None] - steps) / max(1, len(steps) - 1)
    return Distances("even", scheme.codes, matrix)


@dataclass(frozen=True)
class Chance:
    """The settings for drawing random sequences."""

    generator: str = "shuffled"
    samples: int = SAMPLES
    seed: int = 0

    def __post_init__(self) -> None:
        if self.generator not in GENERATORS:
            raise UsageError(f"the generator must be one of {GENERATORS} (got {self.generator!r})")


@dataclass(frozen=True)
class Gamma:
    """Gamma and the numbers that it is computed from; undefined numbers are None.

    `expected` is the mean distance over random sequences, and `closed` is its closed form. `p` is
    the share of sequences that agree at least as well as the annotators. The annotators' own levels
    count as one of the sequences.
    """

    clips: int
    distance: float | None = None
    expected: float | None = None
    gamma: float | None = None
    p: float | None = None
    closed: float | None = None
    closed_gamma: float | None = None


def gamma(
    a: Sequence[str],
    b: Sequence[str],
    distances: Distances,
    chance: Chance | None = None,
    *,
    stream: int = 0,
) -> Gamma:
    """Compute the paper's gamma; each `stream` draws different random sequences.

    Examples
    --------
    >>> from obygaze_features.manifests import obygaze_scheme
    >>> a = "EN EN HN S EN NS EN S HN EN".split()
    >>> b = "EN HN HN NS EN S EN S EN EN".split()
    >>> result = gamma(a, b, distances_of(obygaze_scheme()))
    >>> round(result.distance, 6), round(result.closed, 6), round(result.closed_gamma, 6)
    (0.12, 0.414, 0.710145)
    """
    chance = chance or Chance()
    if not a:
        return Gamma(0)
    left = np.array([distances.rank[level] for level in a])
    right = np.array([distances.rank[level] for level in b])
    levels, matrix = len(distances.codes), distances.matrix

    def mean_distance(x: NDArray[np.intp], y: NDArray[np.intp]) -> float:
        counts = np.bincount(x * levels + y, minlength=levels**2)
        return float(counts @ matrix.ravel() / len(x))

    random = np.random.default_rng([chance.seed, stream])
    if chance.generator == "shuffled":
        drawn = [mean_distance(left, random.permutation(right)) for _ in range(chance.samples)]
        shares = [np.bincount(ranks, minlength=levels) / len(ranks) for ranks in (left, right)]
        closed = float(shares[0] @ matrix @ shares[1])
    else:
        size = (2, len(left))
        drawn = [mean_distance(*random.integers(levels, size=size)) for _ in range(chance.samples)]
        closed = float(matrix.mean())
    distance, expected = mean_distance(left, right), fmean(drawn)
    as_close = sum(random_distance <= distance + SUM_TOLERANCE for random_distance in drawn)
    return Gamma(
        clips=len(left),
        distance=distance,
        expected=expected,
        gamma=gamma_ratio(distance, expected),
        p=(as_close + 1) / (chance.samples + 1),
        closed=closed,
        closed_gamma=gamma_ratio(distance, closed),
    )


def gamma_ratio(distance: float, expected: float) -> float | None:
    """Return 1 - distance / expected; 1 if `distance` is 0, or None if only `expected` is 0."""
    if distance == 0:
        return 1.0
    return 1 - distance / expected if expected else None


def random_stream(*names: str) -> int:
    """Hash names (of a film and two label sets) to a number that seeds independent sequences."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "big")


def confusion(
    a: Sequence[Hashable], b: Sequence[Hashable], codes: Sequence[Hashable]
) -> np.ndarray:
    """Count the clips for each pair of levels, with `a` in rows and `b` in columns.

    Examples
    --------
    >>> confusion(["EN", "S", "S"], ["EN", "EN", "S"], ["EN", "S"]).tolist()
    [[1, 0], [1, 1]]
    """
    rank = {code: number for number, code in enumerate(codes)}
    cells = [rank[x] * len(codes) + rank[y] for x, y in zip(a, b, strict=True)]
    counts = np.bincount(np.array(cells, dtype=int), minlength=len(codes) ** 2)
    return counts.reshape(len(codes), len(codes))


def cohen_kappa(counts: np.ndarray) -> float | None:
    """Return unweighted Cohen's kappa, or None if chance alone gives full agreement."""
    kappa = float(cohen_kappas(counts))
    return None if np.isnan(kappa) else kappa


def cohen_kappas(counts: np.ndarray) -> np.ndarray:
    """Return Cohen's kappa for each table of counts [..., K, K], or NaN where it is undefined."""
    total = counts.sum(axis=(-1, -2))
    expected = (counts.sum(axis=-1) * counts.sum(axis=-2)).sum(axis=-1)
    equal, largest = np.trace(counts, axis1=-2, axis2=-1) * total, total**2
    defined = expected != largest
    return np.where(defined, (equal - expected) / np.where(defined, largest - expected, 1), np.nan)


def krippendorff_alpha(counts: np.ndarray, differences: np.ndarray) -> float | None:
    """Return Krippendorff's alpha for two annotators who labelled every clip; None if undefined.

    Parameters
    ----------
    counts
        The table of counts from `confusion`.
    differences
        The weight of each pair of levels: Krippendorff's squared metric from `nominal` or
        `ordinal`, or a matrix of distances, which is used as it is.
    """
    coincidences = counts + counts.T
    margins = coincidences.sum(axis=1)
    expected = (np.outer(margins, margins) * differences).sum()
    if not expected:
        return None
    observed = (coincidences * differences).sum()
    return float(1 - (margins.sum() - 1) * observed / expected)


def nominal(counts: np.ndarray) -> np.ndarray:
    """Return the nominal difference of each pair of levels: 0 if they are equal, else 1."""
    return 1.0 - np.eye(len(counts))


def ordinal(counts: np.ndarray) -> np.ndarray:
    """Return squared ordinal differences: the number of labels between two levels, squared."""
    margins = (counts + counts.T).sum(axis=1)
    middles = np.cumsum(margins) - margins / 2
    squares: np.ndarray = (middles[:, None] - middles) ** 2
    return squares


@dataclass(frozen=True, eq=False)
class Ratings:
    """Two annotators' levels for their common clips, with results that several measures use."""

    a: Sequence[str]
    b: Sequence[str]
    distances: Distances
    chance: Chance = field(default_factory=Chance)
    stream: int = 0

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of clips for each pair of levels, from `confusion`."""
        return confusion(self.a, self.b, self.distances.codes)

    @cached_property
    def gamma(self) -> Gamma:
        """The paper's gamma over all levels."""
        return gamma(self.a, self.b, self.distances, self.chance, stream=self.stream)

    @cached_property
    def sure(self) -> Gamma | None:
        """Gamma without clips that either annotator calls Not Sure.

        It is None if the levels are not the paper's.
        """
        if self.distances.name != "paper":
            return None
        pairs = zip(self.a, self.b, strict=True)
        sure = [pair for pair in pairs if NOT_SURE not in pair]
        distances = self.distances.without(NOT_SURE)
        a, b = [x for x, _ in sure], [y for _, y in sure]
        return gamma(a, b, distances, self.chance, stream=self.stream)


#: The first words of each line of means in a report's summary, in order.
OVER_FILMS, ALPHA, WITHOUT_NOT_SURE = LINES = (
    "On average over films: ",
    "Krippendorff's alpha: ",
    "Without Not Sure: ",
)


@dataclass
class Measure:
    """A decorator that registers a function as a measure of two annotators' agreement in a film.

    Parameters
    ----------
    key
        The measure's name in JSON and CSV files.
    column
        The column title in the table of films; if empty, the table has no such column.
    about
        The description in the documentation.
    sentence
        The text in the summary. {} is replaced by the mean over films; a key in braces, such as
        {kappa}, by the mean of that measure.
    line
        The line of the summary that contains the sentence, one of `LINES`.
    paper_only
        True if the measure is shown only for the paper's levels.
    """

    key: str
    column: str
    about: str
    sentence: str = ""
    line: str = OVER_FILMS
    paper_only: bool = False
    compute: Callable[[Ratings], float | None] = field(init=False)

    def __call__(self, compute: Callable[[Ratings], float | None]) -> Measure:
        """Register the measure with the function that computes it."""
        self.compute = compute
        MEASURES[self.key] = self
        return self


#: All measures by key, in display order.
MEASURES: dict[str, Measure] = {}


@Measure(
    "gamma",
    "gamma",
    "1 - d/e, where e is d for random sequences; 1 is full agreement, 0 is chance",
    "gamma {} (closed {closed_gamma})",
)
def _gamma(ratings: Ratings) -> float | None:
    return ratings.gamma.gamma


@Measure("closed_gamma", "", "gamma with the closed form of e: the limit for many random sequences")
def _closed_gamma(ratings: Ratings) -> float | None:
    return ratings.gamma.closed_gamma


@Measure(
    "gamma_without_not_sure",
    "without NS",
    "gamma without the clips that either annotator calls Not Sure",
    "gamma {} (closed {closed_gamma_without_not_sure})",
    line=WITHOUT_NOT_SURE,
    paper_only=True,
)
def _gamma_without_not_sure(ratings: Ratings) -> float | None:
    return ratings.sure.gamma if ratings.sure else None


@Measure("closed_gamma_without_not_sure", "", "closed gamma without Not Sure", paper_only=True)
def _closed_gamma_without_not_sure(ratings: Ratings) -> float | None:
    return ratings.sure.closed_gamma if ratings.sure else None


@Measure("kappa", "kappa", "Cohen's kappa, unweighted", "kappa {}")
def _kappa(ratings: Ratings) -> float | None:
    return cohen_kappa(ratings.counts)


@Measure("alpha_nominal", "alpha", "Krippendorff's alpha, nominal", "{} nominal", ALPHA)
def _alpha_nominal(ratings: Ratings) -> float | None:
    return krippendorff_alpha(ratings.counts, nominal(ratings.counts))


@Measure("alpha_ordinal", "ordinal", "Krippendorff's alpha, ordinal", "{} ordinal", ALPHA)
def _alpha_ordinal(ratings: Ratings) -> float | None:
    return krippendorff_alpha(ratings.counts, ordinal(ratings.counts))


@Measure("alpha_distances", "distances", "alpha, weighted by distance", "{} by distances", ALPHA)
def _alpha_distances(ratings: Ratings) -> float | None:
    return krippendorff_alpha(ratings.counts, ratings.distances.matrix)
