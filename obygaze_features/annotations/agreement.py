"""Agreement of two annotators' levels: the paper's gamma, kappa, alpha, and where they differ.

gamma = 1 - d/e: d is the mean distance of the two annotators' levels over their common clips, e
the same for random sequences. The paper does not say how it draws them, so there are two ways:

``shuffled``
    The levels of one annotator in random order: as many of each level as there are.
``uniform``
    Two sequences whose levels are drawn with equal chances.

Both have a closed form, the limit of e with ever more sequences, which is reported beside it. A
measure that is not defined is None, as kappa is where both annotators give every unit one level.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations, groupby
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.grid import films_of
from obygaze_features.annotations.issues import (
    LEFT_OUT,
    Issue,
    different_timelines,
    stopped_early,
    timelines_sha256,
)
from obygaze_features.common.package import reference_json
from obygaze_features.common.text import join_some
from obygaze_features.errors import UsageError
from obygaze_features.manifests.items import Items
from obygaze_features.manifests.labels import LabelScheme, LabelSet
from obygaze_features.manifests.manifest import Manifest

GENERATORS = ("shuffled", "uniform")
SAMPLES = 62
"""As many random sequences as the paper draws."""
NOT_SURE = "NS"
#: Sums of the same distances in another order differ by less.
SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Distances:
    """A distance from 0 to 1 for each two levels; `name` is ``paper`` or ``even``."""

    name: str
    codes: tuple[str, ...]
    matrix: np.ndarray

    @cached_property
    def rank(self) -> dict[str, int]:
        """Level -> row of the matrix."""
        return {code: row for row, code in enumerate(self.codes)}

    def without(self, code: str) -> Distances:
        """The distances among the other levels."""
        rows = [row for row, other in enumerate(self.codes) if other != code]
        codes = tuple(self.codes[row] for row in rows)
        return Distances(self.name, codes, self.matrix[np.ix_(rows, rows)])


def distances_of(scheme: LabelScheme) -> Distances:
    """The paper's distances for its four levels; for other levels, even steps.

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
    if set(scheme.codes) == set(paper["levels"]):
        order = [paper["levels"].index(code) for code in scheme.codes]
        return Distances("paper", scheme.codes, np.array(paper["matrix"])[np.ix_(order, order)])
    steps = np.arange(len(scheme.codes))
    matrix = np.abs(steps[:, None] - steps) / max(1, len(steps) - 1)
    return Distances("even", scheme.codes, matrix)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two label sets in one film.

    `rows` are the manifest's rows of all clips of the film, in the film's order; a level is None
    where the label set lacks the clip.
    """

    film: str
    a: str
    b: str
    rows: Sequence[int]
    levels_a: Sequence[str | None]
    levels_b: Sequence[str | None]

    @cached_property
    def common(self) -> tuple[list[str], list[str]]:
        """The levels of the clips that both have."""
        levels = zip(self.levels_a, self.levels_b, strict=True)
        both = [(x, y) for x, y in levels if x is not None and y is not None]
        return [x for x, _ in both], [y for _, y in both]

    @property
    def unpaired(self) -> int:
        """How many clips only one of the two has."""
        levels = zip(self.levels_a, self.levels_b, strict=True)
        return sum((x is None) != (y is None) for x, y in levels)


def find_pairs(manifest: Manifest, names: Sequence[str] = ()) -> tuple[list[Pair], list[Issue]]:
    """Every two label sets in every film in which both have clips; films that lack a second one.

    Parameters
    ----------
    manifest
        The clips and label sets.
    names
        The label sets, in any order; by default those projected from annotators' timelines, or
        where there are none, all that are not merged from others.
    """
    if not names:
        all_sets = [manifest.labels(name) for name in manifest.label_names]
        projected = [labels.name for labels in all_sets if "annotator" in labels.about]
        names = projected or [labels.name for labels in all_sets if "of" not in labels.about]
    label_sets = [manifest.labels(name) for name in sorted(set(names))]
    if len(label_sets) < 2:
        present = join_some(manifest.label_names) or "none"
        raise UsageError(
            f"agreement needs two label sets or more (got {len(label_sets)}); "
            f"the manifest {manifest.name!r} has {present}"
        )
    pairs, issues = [], different_timelines(label_sets, manifest)
    for film, rows in _rows_of_films(manifest).items():
        ids = [manifest.ids[row] for row in rows]
        levels_of = {s.name: [s.level_of.get(identifier) for identifier in ids] for s in label_sets}
        present_sets = [name for name, levels in levels_of.items() if any(levels)]
        of_film = [
            Pair(film, a, b, rows, levels_of[a], levels_of[b])
            for a, b in combinations(present_sets, 2)
        ]
        of_film = [pair for pair in of_film if pair.common[0]]
        if len(present_sets) == 1:
            problem = "no second annotator"
            issues.append(Issue(manifest.name, film, present_sets[0], problem, LEFT_OUT))
        elif present_sets and not of_film:
            problem = f"{join_some(present_sets)} have no clip in common"
            issues.append(Issue(manifest.name, film, "", problem, LEFT_OUT))
        if of_film:
            issues += [i for labels in label_sets for i in _stopped(labels, film, rows, manifest)]
        pairs += of_film
    return pairs, issues


def _stopped(labels: LabelSet, film: str, rows: Sequence[int], manifest: Manifest) -> list[Issue]:
    """An issue if no projected segment of an annotator is in the second half of the film."""
    if timelines_sha256(labels) is None or not labels.ratio:
        return []
    ratio = dict(zip(labels.ids, labels.ratio, strict=True))
    ids, ends = manifest.ids, manifest.items.ends
    labelled = [row for row in rows if ids[row] in ratio]
    if not labelled:
        return []
    reached = max((float(ends[row]) for row in labelled if ratio[ids[row]]), default=0.0)
    end = float(ends[labelled].max())
    return stopped_early(manifest.name, film, labels.name, reached, end, manifest.scheme)


def _rows_of_films(manifest: Manifest) -> dict[str, list[int]]:
    """Film -> rows, in time where the clips are spans, else in the manifest's order."""
    starts, ends = manifest.items.starts, manifest.items.ends
    films: dict[str, list[int]] = {}
    for row, film in enumerate(films_of(manifest.items)):
        films.setdefault(film, []).append(row)
    for film, rows in films.items():
        if not np.isnan(starts[rows]).any():
            order = np.lexsort((ends[rows], starts[rows]))
            films[film] = [rows[index] for index in order]
    return films


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
    """gamma and its parts; None where it is not defined.

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
class PairAgreement:
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
        """The numbers as JSON."""
        return {
            **{key: value for key, value in vars(self).items() if key != "counts"},
            "gamma": asdict(self.gamma),
            "sure": None if self.sure is None else asdict(self.sure),
            "confusion": self.counts.tolist(),
        }


def pair_agreement(pair: Pair, distances: Distances, chance: Chance | None = None) -> PairAgreement:
    """All measures of a pair.

    Its random sequences depend on the seed, the film and the two names only.
    """
    a, b = pair.common
    stream = random_stream(pair.film, pair.a, pair.b)
    counts = confusion(a, b, distances.codes)
    sure = None
    if NOT_SURE in distances.codes:
        both_sure = [(x, y) for x, y in zip(a, b, strict=True) if NOT_SURE not in (x, y)]
        sure_a, sure_b = [x for x, _ in both_sure], [y for _, y in both_sure]
        sure = gamma(sure_a, sure_b, distances.without(NOT_SURE), chance, stream=stream)
    return PairAgreement(
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
    as_close = sum(other <= distance + SUM_TOLERANCE for other in drawn)
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
    """1 - distance / expected; 1 where the distance is 0, whatever is expected."""
    if distance == 0:
        return 1.0
    return 1 - distance / expected if expected else None


def random_stream(*names: str) -> int:
    """A number for each film and pair, so that their random sequences are independent."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "big")


def confusion(a: Sequence[str], b: Sequence[str], codes: Sequence[str]) -> np.ndarray:
    """How many clips got which two levels: `a` in rows, `b` in columns.

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
        The weight of each two levels: Krippendorff's squared metric, of `nominal` or `ordinal`,
        or a matrix of distances, which is taken as it is.
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
    """Two levels differ by the number of labels between them, half of their own included."""
    margins = (counts + counts.T).sum(axis=1)
    middles = np.cumsum(margins) - margins / 2
    squares: np.ndarray = (middles[:, None] - middles) ** 2
    return squares


@dataclass(frozen=True)
class Disagreement:
    """Consecutive clips of a film in which two annotators' levels differ.

    `levels_a` and `levels_b` are the levels in the order of the clips, without repeats;
    `distance` is the mean over the clips. `seconds` is how long the clips are together: 0 without
    spans, where the times are None.
    """

    film: str
    a: str
    b: str
    first: str
    last: str
    clips: int
    seconds: float
    start: float | None
    end: float | None
    levels_a: tuple[str, ...]
    levels_b: tuple[str, ...]
    distance: float


def find_disagreements(
    pairs: Iterable[Pair], items: Items, distances: Distances
) -> list[Disagreement]:
    """Every run of clips that differ, the longest first, then the farthest apart.

    A clip that only one of the two has ends a run, as does one on which they agree.
    """
    runs = [
        _disagreement(pair, indices, items, distances)
        for pair in pairs
        for indices in _differing_runs(pair)
    ]
    return sorted(
        runs,
        key=lambda run: (
            -run.seconds,
            -run.clips,
            -run.distance,
            run.film,
            run.start or 0.0,
            run.first,
            run.a,
            run.b,
        ),
    )


def _differing_runs(pair: Pair) -> list[list[int]]:
    """The indices in the pair's rows at which it differs, consecutive ones together."""
    runs: list[list[int]] = []
    for index, (x, y) in enumerate(zip(pair.levels_a, pair.levels_b, strict=True)):
        if x is None or y is None or x == y:
            continue
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs


def _disagreement(
    pair: Pair, indices: Sequence[int], items: Items, distances: Distances
) -> Disagreement:
    rows = [pair.rows[index] for index in indices]
    a = [str(pair.levels_a[index]) for index in indices]
    b = [str(pair.levels_b[index]) for index in indices]
    spans = [(item.start, item.end) for item in map(items.__getitem__, rows)]
    times = [(start, end) for start, end in spans if start is not None and end is not None]
    rank: Mapping[str, int] = distances.rank
    return Disagreement(
        film=pair.film,
        a=pair.a,
        b=pair.b,
        first=items.ids[rows[0]],
        last=items.ids[rows[-1]],
        clips=len(rows),
        seconds=sum(end - start for start, end in times),
        start=min((start for start, _ in times), default=None),
        end=max((end for _, end in times), default=None),
        levels_a=tuple(level for level, _ in groupby(a)),
        levels_b=tuple(level for level, _ in groupby(b)),
        distance=fmean(
            float(distances.matrix[rank[x], rank[y]]) for x, y in zip(a, b, strict=True)
        ),
    )
