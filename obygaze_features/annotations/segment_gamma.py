"""gamma on free segments, through the library pygamma-agreement.

Where annotators cut as they like, they can differ in where, how often and how they mark. Mathet's
gamma looks for the best alignment of their segments, and weighs what is left against random
timelines. It is another measure than the paper's, which knows clips only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from obygaze_features.annotations.agreement import SLACK, gamma_of, stream_of
from obygaze_features.annotations.distances import distances_of
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import Segment, Timelines
from obygaze_features.common.package import need
from obygaze_features.manifests.labels import LabelScheme

__all__ = ["SegmentGamma", "segment_gammas"]

SHORTEST = 2e-6
"""What is not longer than a microsecond is no segment to the library."""


@dataclass(frozen=True)
class SegmentGamma:
    """gamma of two annotators' segments of a film; None where it is not defined.

    `disorder` is that of the best alignment, `expected` the mean over random timelines; `p` is
    the share of them that are as well aligned, the observed one counted among them.
    """

    film: str
    a: str
    b: str
    segments_a: int
    segments_b: int
    disorder: float
    expected: float
    gamma: float | None
    p: float


def segment_gammas(
    timelines: Timelines, *, samples: int, seed: int
) -> tuple[list[SegmentGamma], list[Remark]]:
    """Gamma of every two annotators in every film; films that lack a second one.

    Every segment counts, Easy Negative ones too; levels are apart by `distances_of` the scheme,
    and times and levels weigh the same, as is the library's default. Random timelines are drawn
    by its statistical sampler: as many segments, as long, as far apart and of such levels as the
    annotators' are in the mean.
    """
    need("pygamma_agreement", extra="agreement")
    found, remarks = [], []
    for film, by_annotator in timelines.by_film.items():
        there = {
            name: kept
            for name, segments in by_annotator.items()
            if (kept := [one for one in segments if one.end - one.start >= SHORTEST])
        }
        for a, b in combinations(sorted(there), 2):
            pair = {a: there[a], b: there[b]}
            disorder, drawn = _disorders(timelines.scheme, film, pair, samples, seed)
            expected = fmean(drawn)
            as_good = sum(one <= disorder + SLACK for one in drawn)
            found.append(
                SegmentGamma(
                    film=film,
                    a=a,
                    b=b,
                    segments_a=len(pair[a]),
                    segments_b=len(pair[b]),
                    disorder=disorder,
                    expected=expected,
                    gamma=gamma_of(disorder, expected),
                    p=(as_good + 1) / (samples + 1),
                )
            )
        if len(there) < 2:
            who = "".join(there)
            remarks.append(Remark(timelines.name, film, who, "no second annotator", LEFT_OUT))
    return found, remarks


def _disorders(
    scheme: LabelScheme, film: str, pair: Mapping[str, Sequence[Segment]], samples: int, seed: int
) -> tuple[float, list[float]]:
    """The disorder of two annotators' segments, and of random timelines.

    The library's own loop runs its solver in threads, which then now and then prints.
    """
    library, core = (
        need("pygamma_agreement", extra="agreement"),
        need("pyannote.core", extra="agreement"),
    )
    distances = distances_of(scheme)
    codes = sorted(distances.codes)  # the library's order
    order = [distances.rank[code] for code in codes]
    continuum = library.Continuum()
    for name, segments in pair.items():
        for one in segments:
            continuum.add(name, core.Segment(one.start, one.end), one.level)
    dissimilarity = library.CombinedCategoricalDissimilarity(
        cat_dissim=library.PrecomputedCategoricalDissimilarity(
            continuum.categories.__class__(codes), distances.matrix[np.ix_(order, order)]
        )
    )
    with _quiet(), _seeded([seed, stream_of(film, *pair)]):
        sampler = library.StatisticalContinuumSampler()
        sampler.init_sampling(continuum)
        drawn = [sampler.sample_from_continuum for _ in range(samples)]
        disorder, *others = (
            float(one.get_best_alignment(dissimilarity).disorder) for one in (continuum, *drawn)
        )
    return disorder, others


@contextmanager
def _seeded(seed: Sequence[int]) -> Iterator[None]:
    """Numpy's global generator, which the library draws from, seeded; then as it was before."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(np.random.SeedSequence(seed).generate_state(4))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


@contextmanager
def _quiet() -> Iterator[None]:
    """The library warns at every alignment that its faster solver is not there."""
    root, silent = logging.getLogger(), logging.NullHandler()

    def others(record: logging.LogRecord) -> bool:
        return "pygamma_agreement" not in record.pathname

    root.addHandler(silent)  # without any, the library's warning would add one that stays
    root.addFilter(others)
    try:
        yield
    finally:
        root.removeFilter(others)
        root.removeHandler(silent)
