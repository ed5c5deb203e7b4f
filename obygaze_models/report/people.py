"""The annotators of a page: what each marked, and how far they agree, over films."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, groupby, pairwise
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from obygaze_features.annotations.agreement_measures import cohen_kappas, distances_of, gamma
from obygaze_features.errors import UsageError
from obygaze_models.report.scores import Axis, axis_of
from obygaze_models.report.sources import Clip, Labels
from obygaze_models.scoring.intervals import Estimate, clip_interval, jackknife, leave_each_out

Codes = NDArray[np.int64]
ABSENT = -1
MAX_ANNOTATORS = 20
"""The maximum number of annotators on a page, because every pair is compared."""
MIN_MARKED = 20
"""The minimum number of marked clips for a kappa's interval."""
MAX_SHARES = 3
"""The maximum number of levels for which the shares of concepts are shown."""


@dataclass(frozen=True, eq=False)
class Marked:
    """The numbers of clips that annotators marked with a level or a concept, and their agreement.

    `counts` has the numbers of clips that only the first, both, and only the second of two
    annotators marked; if there are more, of clips that one, several (but not all) and all
    annotators marked. `shares` has, for some levels, the share of the level's clips that are
    marked.
    """

    name: str
    counts: Sequence[int]
    kappa: Estimate
    sense: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class MarkedTable:
    """Levels or concepts as rows, the axis of their kappas, and the names of levels in `shares`."""

    rows: Sequence[Marked]
    axis: Axis
    levels: Mapping[str, str]


@dataclass(frozen=True)
class Stretch:
    """Consecutive clips of a film on which two annotators differ.

    `levels` has each annotator's levels in order, without consecutive repeats.
    """

    clip: Clip
    clips: int
    annotators: tuple[str, str]
    levels: Sequence[Sequence[str]]


@dataclass(frozen=True, eq=False)
class People:
    """Two or more annotators' levels of the page's clips.

    `codes` has the rank of each annotator's level of each clip, or `ABSENT`.
    """

    labels: Labels
    names: Sequence[str]
    codes: Codes

    @cached_property
    def film(self) -> Codes:
        """The number of each clip's film."""
        sizes = [len(clips) for clips in self.labels.films.values()]
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def shared(self) -> NDArray[np.bool_]:
        """The clips that two or more annotators labelled."""
        return np.asarray((self.codes != ABSENT).sum(axis=0) > 1)

    @cached_property
    def differ(self) -> NDArray[np.bool_]:
        """The clips to which annotators gave different levels."""
        present = np.ma.masked_equal(self.codes, ABSENT)
        return np.asarray(self.shared & (present.max(axis=0) != present.min(axis=0)).filled(False))

    @cached_property
    def counts(self) -> NDArray[Any]:
        """The table of two annotators' levels, for each film and each pair of annotators."""
        return self.tables(self.codes, len(self.labels.levels))

    @property
    def parts(self) -> tuple[str, str, str]:
        """The names of the three parts of the clips that any annotator marked."""
        if len(self.names) == 2:
            return f"only {self.names[0]}", "both", f"only {self.names[1]}"
        return "by one", "by several", "by all"

    def tables(self, codes: Codes, size: int) -> NDArray[Any]:
        """Count the common clips of each pair by their two codes, [films, pairs, size, size]."""
        pairs = [*combinations(range(len(codes)), 2)]
        counts = np.zeros((len(self.labels.films), len(pairs), size, size))
        for number, (a, b) in enumerate(pairs):
            common = (codes[a] != ABSENT) & (codes[b] != ABSENT)
            cells = self.film[common], number, codes[a, common], codes[b, common]
            np.add.at(counts, cells, 1)
        return counts

    def kappa(self, counts: NDArray[Any]) -> Estimate:
        """Return the mean kappa, with its interval, of pairs who both use several codes."""
        counts = counts[counts.any(axis=(1, 2, 3))]
        totals = counts.sum(axis=0)
        by_first = np.count_nonzero(totals.sum(axis=2), axis=1)
        by_second = np.count_nonzero(totals.sum(axis=1), axis=1)
        used = (by_first > 1) & (by_second > 1)
        if not used.any():
            return Estimate(None)
        left_out = np.tensordot(leave_each_out(len(counts)), counts[:, used], axes=1)
        return clip_interval(jackknife(cohen_kappas(left_out).mean(axis=1)), least=-1.0)

    def marked(self, marks: NDArray[np.bool_]) -> tuple[list[int], Estimate]:
        """Return the counts of marked clips, and the kappa of the `marks` [annotators, clips]."""
        own = np.where(self.codes == ABSENT, ABSENT, marks.astype(np.int64))
        votes = (own == 1)[:, self.shared]
        by = votes.sum(axis=0)
        everyone = len(self.names)
        parts = [by == 1, (by > 1) & (by < everyone), by == everyone]
        if everyone == 2:
            parts = [votes[0] & (by == 1), by == 2, votes[1] & (by == 1)]
        counts = [int(part.sum()) for part in parts]
        kappa = self.kappa(self.tables(own, 2))
        if sum(counts) < MIN_MARKED:
            kappa = replace(kappa, interval=None)
        return counts, kappa

    @property
    def same(self) -> tuple[float, float, Estimate]:
        """The share of clips with equal levels, the share by chance, and kappa: means of pairs."""
        pairs = self.counts.sum(axis=0)
        pairs = pairs[pairs.any(axis=(1, 2))]
        if not len(pairs):
            return 0.0, 0.0, Estimate(None)
        totals = pairs.sum(axis=(1, 2))
        equal = np.trace(pairs, axis1=1, axis2=2) / totals
        chance = (pairs.sum(axis=1) * pairs.sum(axis=2)).sum(axis=1) / totals**2
        return float(equal.mean()), float(chance.mean()), self.kappa(self.counts)

    def gamma(self, film: int) -> float | None:
        """Return the gamma of a film, averaged over pairs; None if undefined."""
        matrix = distances_of(self.labels.scheme).matrix
        values = [gamma(counts, matrix) for counts in self.counts[film]]
        defined = [value for value in values if value is not None]
        return fmean(defined) if defined else None

    def share(self, clips: slice) -> list[float | None]:
        """Return the share of each annotator's clips at the levels that the page counts."""
        ranks = [[*self.labels.levels].index(code) for code in self.labels.positives]
        shares: list[float | None] = []
        for codes in self.codes[:, clips]:
            present = codes[codes != ABSENT]
            share = None
            if len(present):
                share = float(np.isin(present, ranks).mean())
            shares.append(share)
        return shares


def people_of(labels: Labels) -> People | None:
    """Return a page's annotators, or None if there are fewer than two."""
    names = [*labels.annotators]
    if len(names) < 2:
        return None
    if len(names) > MAX_ANNOTATORS:
        raise UsageError(
            f"{len(names)} annotators: a page compares at most {MAX_ANNOTATORS}. For any number "
            "use: obygaze annotations agreement"
        )
    rank = {code: number for number, code in enumerate(labels.levels)}
    codes = []
    for own in labels.annotators.values():
        levels = [own.level_of.get(clip.id, "") for clip in labels.clips]
        codes.append([rank.get(level, ABSENT) for level in levels])
    return People(labels, names, np.array(codes))


def level_table(people: People, groups: Mapping[str, Sequence[str]]) -> MarkedTable:
    """Return a row for each group of levels, by name."""
    codes = [*people.labels.levels]
    rows = []
    for name, levels in groups.items():
        ranks = [codes.index(code) for code in levels]
        counts, kappa = people.marked(np.isin(people.codes, ranks))
        rows.append(Marked(name, counts, kappa))
    return MarkedTable(rows, kappa_axis(rows, people.same[2]), {})


def concept_table(labels: Labels, people: People | None) -> MarkedTable:
    """Return a row for each concept, with its share of the clips at each level.

    Only the highest levels with concepts have shares, at most `MAX_SHARES`. Rows are sorted by the
    share at the highest of these levels.
    """
    names = sorted({name for clip in labels.clips for name in clip.concepts})
    marks = {name: [name in clip.concepts for clip in labels.clips] for name in names}
    levels = [clip.level for clip in labels.clips]
    of_level = pd.DataFrame(marks, index=levels).groupby(level=0).mean()
    of_level = of_level[of_level.any(axis=1)].reindex([*labels.levels]).dropna()
    of_level = of_level[-MAX_SHARES:]
    codes = of_level.index.tolist()
    rows = []
    for name in names:
        counts = [sum(marks[name]), 0, 0]
        kappa = Estimate(None)
        if people is not None:
            marked = []
            for annotator in people.names:
                shown = labels.annotators[annotator].concepts_of
                marked.append([name in shown.get(clip.id, ()) for clip in labels.clips])
            counts, kappa = people.marked(np.array(marked))
        shares = dict(zip(codes, of_level[name].tolist(), strict=True))
        rows.append(Marked(name, counts, kappa, labels.senses.get(name, ""), shares))
    if codes:
        rows.sort(key=lambda row: row.shares[codes[-1]], reverse=True)
    return MarkedTable(rows, kappa_axis(rows), {code: labels.levels[code] for code in codes})


def concepts_by_film(
    labels: Labels,
    people: People | None,
    names: Sequence[str],
) -> dict[str, list[float]]:
    """Return the share of each film's clips that have each concept, by the film's title.

    If there are several annotators, the shares are means over annotators.
    """
    sets = [{clip.id: clip.concepts for clip in labels.clips}]
    if people is not None:
        sets = [own.concepts_of for own in labels.annotators.values()]
    tables = []
    for concepts_of in sets:
        clips = [clip for clip in labels.clips if clip.id in concepts_of]
        marks = {name: [name in concepts_of[clip.id] for clip in clips] for name in names}
        films = [clip.film or clip.media for clip in clips]
        tables.append(pd.DataFrame(marks, index=films).groupby(level=0).mean())
    shares = pd.concat(tables).groupby(level=0).mean().reindex([*labels.films])
    titles = [clips[0].title or film for film, clips in labels.films.items()]
    return dict(zip(titles, shares.to_numpy().tolist(), strict=True))


def stretches(people: People) -> list[Stretch]:
    """Return the stretches on which two annotators differ, longest first."""
    found = []
    clips = people.labels.clips
    levels = [*people.labels.levels]
    follows = [False]
    for before, clip in pairwise(clips):  # in the same film, with no known gap
        is_same = (before.film or before.media) == (clip.film or clip.media)
        touches = clip.start is None or before.end is None or clip.start <= before.end + 0.05
        follows.append(is_same and touches)
    for a, b in combinations(range(len(people.names)), 2):
        first, second = people.codes[[a, b]]
        differ = (first != second) & (first != ABSENT) & (second != ABSENT)
        differed = np.append(False, differ[:-1])
        number = np.cumsum(~(np.array(follows) & differed))
        for _, group in groupby(np.flatnonzero(differ).tolist(), key=number.__getitem__):
            rows = [*group]
            pair = []
            for codes in (first, second):
                pair.append([levels[code] for code, _ in groupby(codes[rows])])
            names = people.names[a], people.names[b]
            found.append(Stretch(clips[rows[0]], len(rows), names, pair))
    return sorted(found, key=lambda stretch: -stretch.clips)


def kappa_axis(rows: Sequence[Marked], *others: Estimate) -> Axis:
    """Return an axis for some kappas and the values 0 and 0.4."""
    return axis_of([*(row.kappa for row in rows), *others], [0.0, 0.4], guess=0.0, ticks=6)
