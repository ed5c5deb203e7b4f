"""The annotators of a page: what each marked, and how far they agree, over films."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from obygaze_features.annotations.agreement import (
    ABSENT,
    lowest_and_highest,
)
from obygaze_features.annotations.agreement_measures import (
    Alpha,
    alpha,
    estimate_alpha,
    meetings,
)
from obygaze_models.report.scores import Axis
from obygaze_models.report.sources import Labels
from obygaze_models.scoring.annotators import AnnotatorComparison, compare_with_annotators

Codes = NDArray[np.int64]
MAX_LANES = 4
"""The maximum number of annotators with lanes and colours of their own."""
MIN_MARKED = 20
"""The minimum number of marked clips for an alpha's interval."""
MAX_SHARES = 3
"""The maximum number of levels for which the shares of concepts are shown."""
ALPHA_AXIS = Axis(-0.2, 1.0, (0.0, 0.5, 1.0))


@dataclass(frozen=True, eq=False)
class Marked:
    """The numbers of clips that annotators marked with a level or a concept, and their agreement.

    `counts` has the numbers of clips that only the first, both, and only the second of two
    annotators marked; if there are more, of clips that one, two and so on up to all of them marked.
    `shares` has, for some levels, the share of the level's clips that are marked.
    """

    name: str
    counts: Sequence[int]
    alpha: Alpha
    sense: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class MarkedTable:
    """Levels or concepts as rows, and the names of levels in `shares`."""

    rows: Sequence[Marked]
    levels: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class People:
    """Two or more annotators' levels of the page's clips.

    `names` are display names. `codes` has the rank of each annotator's level of each clip, or
    `ABSENT`.
    """

    labels: Labels
    names: Sequence[str]
    codes: Codes

    @property
    def is_many(self) -> bool:
        """True if there are too many annotators for a lane and a colour each."""
        return len(self.names) > MAX_LANES

    @property
    def ramp(self) -> list[str]:
        """The CSS classes of how many annotators marked a clip, from none to all."""
        everyone = len(self.names)
        return [f"both v{round(10 * votes / everyone)}" for votes in range(everyone + 1)]

    @cached_property
    def shared(self) -> NDArray[np.bool_]:
        """The clips that two or more annotators labelled."""
        return np.asarray((self.codes != ABSENT).sum(axis=0) > 1)

    @cached_property
    def differ(self) -> NDArray[np.bool_]:
        """The clips to which annotators gave different levels."""
        lowest, highest = lowest_and_highest(self.codes)
        return lowest < highest

    def given(self, levels: Sequence[str]) -> NDArray[np.bool_]:
        """Return where annotators gave one of some levels [annotators, clips]."""
        ranks = [[*self.labels.levels].index(code) for code in levels]
        return np.isin(self.codes, ranks)

    @property
    def votes(self) -> Codes:
        """How many annotators gave each clip a level that the page counts, or `ABSENT`."""
        labelled = (self.codes != ABSENT).any(axis=0)
        counted = self.given(self.labels.positives)
        return np.where(labelled, counted.sum(axis=0), ABSENT)

    def alpha(self, codes: Codes, size: int) -> Alpha:
        """Return the alpha of the annotators' codes of all clips, with its interval over films."""
        ends = np.cumsum([len(clips) for clips in self.labels.films.values()])
        films = [meetings(of_film, size) for of_film in np.split(codes, ends[:-1], axis=1)]
        return estimate_alpha(np.array(films))

    def agreement(self, clips: slice) -> float | None:
        """Return the alpha of the levels of some clips."""
        return alpha(meetings(self.codes[:, clips], len(self.labels.levels)))

    def marked(self, marks: NDArray[np.bool_]) -> tuple[list[int], Alpha]:
        """Return the counts of marked clips, and the alpha of the `marks` [annotators, clips]."""
        marked = np.where(self.codes == ABSENT, ABSENT, marks.astype(np.int64))
        votes = (marked == 1)[:, self.shared]
        everyone = len(self.names)
        by = np.bincount(votes.sum(axis=0), minlength=everyone + 1)
        counts = by[1:].tolist()
        if everyone == 2:
            both = counts[1]
            first, second = votes.sum(axis=1).tolist()
            counts = [first - both, both, second - both]
        agreed = self.alpha(marked, 2)
        if sum(counts) < MIN_MARKED:
            agreed = Alpha(agreed.value)
        return counts, agreed

    @property
    def same(self) -> tuple[float | None, float | None, Alpha]:
        """The share of equal levels of two annotators, that share by chance, and alpha."""
        size = len(self.labels.levels)
        counts = meetings(self.codes, size)
        margins = counts.sum(axis=0)
        total = margins.sum()
        if not total:
            return None, None, Alpha(None)
        chance = (margins * (margins - 1)).sum() / (total * (total - 1))
        return float(counts.trace() / total), float(chance), self.alpha(self.codes, size)

    def share(self, clips: slice) -> list[float | None]:
        """Return the share of each annotator's clips at the levels that the page counts."""
        shares = []
        for codes, counted in zip(self.codes, self.given(self.labels.positives), strict=True):
            present = codes[clips] != ABSENT
            share = None
            if present.any():
                share = float(counted[clips][present].mean())
            shares.append(share)
        return shares


def people_of(labels: Labels) -> People | None:
    """Return a page's annotators, or None if there are fewer than two."""
    sets = labels.annotators.values()
    if len(sets) < 2:
        return None
    rank = {code: number for number, code in enumerate(labels.levels)}
    ids = labels.clips["id"]
    codes = []
    for label_set in sets:
        ranks = ids.map(label_set.level_of).map(rank)
        codes.append(ranks.fillna(ABSENT).to_numpy(int))
    return People(labels, [label_set.display_name for label_set in sets], np.array(codes))


def compare_people(people: People) -> AnnotatorComparison | None:
    """Return the kappa of each two annotators' levels."""
    votes = dict(zip(people.labels.annotators, people.codes, strict=True))
    films = [""] * people.codes.shape[1]  # there are no intervals
    return compare_with_annotators(votes, {}, films, len(people.labels.levels))


def level_table(people: People, groups: Mapping[str, Sequence[str]]) -> MarkedTable:
    """Return a row for each group of levels, by name."""
    rows = []
    for name, levels in groups.items():
        counts, alpha = people.marked(people.given(levels))
        rows.append(Marked(name, counts, alpha))
    return MarkedTable(rows, {})


def concept_table(labels: Labels, people: People | None) -> MarkedTable:
    """Return a row for each concept, with its share of the clips at each level.

    Only the highest levels with concepts have shares, at most `MAX_SHARES`. Rows are sorted by the
    share at the highest of these levels.
    """
    names = labels.concepts
    marks = _marks(labels.clips["concepts"], names)
    of_level = marks.groupby(labels.clips["level"]).mean()
    of_level = of_level[of_level.any(axis=1)].reindex([*labels.levels]).dropna()
    of_level = of_level[-MAX_SHARES:]
    codes = of_level.index.tolist()
    rows = []
    ids = labels.clips["id"]
    by_people = []
    for annotator in labels.annotators.values():
        by_people.append(_marks(ids.map(annotator.concepts_of), names))
    for name in names:
        counts = [int(marks[name].sum())]
        agreed = Alpha(None)
        if people is not None:
            counts, agreed = people.marked(np.array([marks_of[name] for marks_of in by_people]))
        shares = dict(zip(codes, of_level[name].tolist(), strict=True))
        rows.append(Marked(name, counts, agreed, labels.senses.get(name, ""), shares))
    if codes:
        rows.sort(key=lambda row: row.shares[codes[-1]], reverse=True)
    return MarkedTable(rows, {code: labels.levels[code] for code in codes})


def _marks(concepts: pd.Series, names: Sequence[str]) -> pd.DataFrame:
    """Return whether each clip has each concept; a missing cell has none."""
    columns = {}
    for name in names:
        columns[name] = [isinstance(cell, tuple) and name in cell for cell in concepts]
    return pd.DataFrame(columns, index=concepts.index)
