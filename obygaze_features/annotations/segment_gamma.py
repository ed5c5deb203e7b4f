"""gamma on free segments, through the library pygamma-agreement.

Free segments can differ in where they are, how many there are, and how they are labelled. Mathet's
gamma finds the best alignment of two annotators' segments, and compares the rest with random
timelines. It is another measure than the paper's, which compares clips.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from obygaze_features.annotations.issues import LEFT_OUT, Issue
from obygaze_features.annotations.measures import (
    SUM_TOLERANCE,
    distances_of,
    gamma_ratio,
    random_stream,
)
from obygaze_features.annotations.timelines import Segment, Timelines
from obygaze_features.common.package import need
from obygaze_features.manifests.labels import LabelScheme

#: The library ignores segments of a microsecond or less.
MIN_SEGMENT_S = 2e-6


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
) -> tuple[list[SegmentGamma], list[Issue]]:
    """Gamma of every two annotators in every film; films that lack a second one.

    Every segment counts, Easy Negative ones too; levels differ by `distances_of` the scheme,
    and times and levels weigh the same, the library's default. Random timelines are drawn
    by its statistical sampler: on average as many segments, as long, as far apart and of such
    levels as the annotators' are.
    """
    need("pygamma_agreement", extra="agreement")
    gammas, issues = [], []
    for film, by_annotator in timelines.by_film.items():
        present = {
            name: long_enough
            for name, segments in by_annotator.items()
            if (long_enough := [s for s in segments if s.end - s.start >= MIN_SEGMENT_S])
        }
        for a, b in combinations(sorted(present), 2):
            pair = {a: present[a], b: present[b]}
            disorder, drawn = _disorders(timelines.scheme, film, pair, samples, seed)
            expected = fmean(drawn)
            as_good = sum(other <= disorder + SUM_TOLERANCE for other in drawn)
            p = (as_good + 1) / (samples + 1)
            numbers = (disorder, expected, gamma_ratio(disorder, expected), p)
            gammas.append(SegmentGamma(film, a, b, len(pair[a]), len(pair[b]), *numbers))
        if len(present) < 2:
            problem = "no second annotator"
            issues.append(Issue(timelines.name, film, "".join(present), problem, LEFT_OUT))
    return gammas, issues


def _disorders(
    scheme: LabelScheme, film: str, pair: Mapping[str, Sequence[Segment]], samples: int, seed: int
) -> tuple[float, list[float]]:
    """The disorder of two annotators' segments, and of random timelines.

    The library's loop runs its solver in threads, which sometimes print.
    """
    library = need("pygamma_agreement", extra="agreement")
    core = need("pyannote.core", extra="agreement")
    distances = distances_of(scheme)
    codes = sorted(distances.codes)  # the library's order
    order = [distances.rank[code] for code in codes]
    continuum = library.Continuum()
    for name, segments in pair.items():
        for segment in segments:
            continuum.add(name, core.Segment(segment.start, segment.end), segment.level)
    dissimilarity = library.CombinedCategoricalDissimilarity(
        cat_dissim=library.PrecomputedCategoricalDissimilarity(
            continuum.categories.__class__(codes), distances.matrix[np.ix_(order, order)]
        )
    )
    with _quiet(), _seeded([seed, random_stream(film, *pair)]):
        sampler = library.StatisticalContinuumSampler()
        sampler.init_sampling(continuum)
        drawn = [sampler.sample_from_continuum for _ in range(samples)]
        disorder, *others = (
            float(c.get_best_alignment(dissimilarity).disorder) for c in (continuum, *drawn)
        )
    return disorder, others


@contextmanager
def _seeded(seed: Sequence[int]) -> Iterator[None]:
    """Seed numpy's global generator, which the library draws from; then restore it."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(np.random.SeedSequence(seed).generate_state(4))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the library's warning, at every alignment, that its faster solver is missing."""
    root, silent = logging.getLogger(), logging.NullHandler()

    def keep(record: logging.LogRecord) -> bool:
        return "pygamma_agreement" not in record.pathname

    root.addHandler(silent)  # without any handler, the warning would install one
    root.addFilter(keep)
    try:
        yield
    finally:
        root.removeFilter(keep)
        root.removeHandler(silent)
