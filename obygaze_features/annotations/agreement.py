"""How far two annotators agree: film by film, where they differ, and by concept over all films.

What one annotator scores against the other is a rough guide to what a model can reach, and no
limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations, groupby
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.grid import number_stretches
from obygaze_features.annotations.measures import (
    MEASURES,
    NOT_SURE,
    Chance,
    Distances,
    Ratings,
    cohen_kappa,
    cohen_kappas,
    random_stream,
)
from obygaze_features.annotations.remarks import LEFT_OUT, Remark, label_set_remarks
from obygaze_features.common.text import join_some
from obygaze_features.errors import UsageError
from obygaze_features.manifests import Items, LabelScheme, LabelSet, Manifest
from obygaze_features.manifests.labels import Origin, name_key

MAKERS: dict[Origin, str] = {
    "annotator": "by one annotator",
    "merge": "by merging",
    "rule": "by a rule",
    "": "by nobody who is named",
}


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


def find_pairs(manifest: Manifest, names: Sequence[str] = ()) -> tuple[list[Pair], list[Remark]]:
    """Every two label sets in every film in which both have clips; films that lack a second one.

    Parameters
    ----------
    manifest
        The clips and label sets.
    names
        The label sets, in any order; by default those of the manifest's annotators. A rule's
        cannot be compared.
    """
    label_sets = [manifest.labels(name) for name in sorted({*(names or manifest.annotators)})]
    if names and len(label_sets) == 1:
        raise UsageError(f"{manifest.name}: {_describe_second(label_sets[0].name, manifest)}")
    if len(label_sets) < 2 or any(labels.origin == "rule" for labels in label_sets):
        named = [manifest.labels(name) for name in names or manifest.label_names]
        raise UsageError(f"{manifest.name}: {_describe_lack(named)}")
    pairs, remarks = [], label_set_remarks(label_sets, manifest)
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
            who, problem = present_sets[0], "no second annotator"
            remarks.append(Remark(manifest.name, film, who, problem, LEFT_OUT, "single-annotator"))
        elif present_sets and not of_film:
            problem = f"{join_some(present_sets)} have no clip in common"
            remarks.append(Remark(manifest.name, film, "", problem, LEFT_OUT))
        pairs += of_film
    return pairs, remarks


def _describe_second(name: str, manifest: Manifest) -> str:
    """Say that one label set was named, and which others can be compared with it."""
    text = f"agreement needs two label sets, and {name!r} is the only one named"
    others = [other for other in manifest.annotators if other != name]
    if not others:
        return f"{text}; the manifest has no other annotator's labels to compare it with"
    options = f"--labels {name} --labels {others[0]}"
    if len(others) == 1:
        return f"{text}; name the other annotator's too: {options}"
    return f"{text}; name another annotator's too ({join_some(others)}): {options}"


def _describe_lack(label_sets: Sequence[LabelSet]) -> str:
    """Say why these label sets are not two annotators', and what to do if they are."""
    made: dict[Origin, list[str]] = {}
    for labels in label_sets:
        made.setdefault(labels.origin, []).append(labels.name)
    parts = [f"{MAKERS[origin]} ({join_some(names)})" for origin, names in made.items()]
    text = f"agreement needs two annotators, and these labels were made {', '.join(parts)}"
    if not made:
        return "agreement needs two annotators, and it has no labels"
    if "" in made:
        text += "; name label sets that are annotators': --labels A --labels B"
    return text


def _rows_of_films(manifest: Manifest) -> dict[str, list[int]]:
    """Film -> rows, in time where the clips are spans, else in the manifest's order."""
    starts, ends = manifest.items.starts, manifest.items.ends
    films: dict[str, list[int]] = {}
    for row, film in enumerate(manifest.items.span_films):
        films.setdefault(film, []).append(row)
    for film, rows in films.items():
        if not np.isnan(starts[rows]).any():
            order = np.lexsort((ends[rows], starts[rows]))
            films[film] = [rows[index] for index in order]
    return films


@dataclass(frozen=True, eq=False)
class PairAgreement:
    """Two label sets in one film; `unpaired` clips, which only one of them has, are not counted."""

    film: str
    a: str
    b: str
    unpaired: int
    ratings: Ratings

    @cached_property
    def values(self) -> dict[str, float | None]:
        """The number of each of `MEASURES`, by key."""
        return {key: measure.compute(self.ratings) for key, measure in MEASURES.items()}

    def to_json(self) -> dict[str, Any]:
        """The numbers as JSON."""
        sure = self.ratings.sure
        return {
            "film": self.film,
            "a": self.a,
            "b": self.b,
            "unpaired": self.unpaired,
            **self.values,
            "gamma": asdict(self.ratings.gamma),
            "sure": None if sure is None else asdict(sure),
            "confusion": self.ratings.counts.tolist(),
        }


def pair_agreement(pair: Pair, distances: Distances, chance: Chance | None = None) -> PairAgreement:
    """All measures of a pair.

    Its random sequences depend on the seed, the film and the two names only.
    """
    stream = random_stream(pair.film, pair.a, pair.b)
    ratings = Ratings(*pair.common, distances, chance or Chance(), stream)
    return PairAgreement(pair.film, pair.a, pair.b, pair.unpaired, ratings)


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

    A clip that only one of the two has ends a run, as does one on which they agree, or a gap.
    """
    runs = []
    for pair in pairs:
        clips = zip(pair.rows, pair.levels_a, pair.levels_b, strict=True)
        stretches = number_stretches(items.starts[pair.rows], items.ends[pair.rows])
        runs += [
            _disagreement(pair, [clip for clip, _ in run], items, distances)
            for (differs, _), run in groupby(
                zip(clips, stretches, strict=True),
                lambda part: (None not in part[0][1:] and part[0][1] != part[0][2], part[1]),
            )
            if differs
        ]

    def key(run: Disagreement) -> tuple[Any, ...]:
        place = run.film, run.start or 0.0, run.first, run.a, run.b
        return -run.seconds, -run.clips, -run.distance, *place

    return sorted(runs, key=key)


def _disagreement(
    pair: Pair, clips: Sequence[tuple[int, Any, Any]], items: Items, distances: Distances
) -> Disagreement:
    """A run of clips: of each its row and the two levels."""
    rows = [row for row, _, _ in clips]
    times = np.array([items.starts[rows], items.ends[rows]])
    times = times[:, ~np.isnan(times[0])]
    rank = distances.rank
    return Disagreement(
        film=pair.film,
        a=pair.a,
        b=pair.b,
        first=items.ids[rows[0]],
        last=items.ids[rows[-1]],
        clips=len(rows),
        seconds=math.fsum(times[1] - times[0]),
        start=min(times[0].tolist(), default=None),
        end=max(times[1].tolist(), default=None),
        levels_a=tuple(level for level, _ in groupby(a for _, a, _ in clips)),
        levels_b=tuple(level for level, _ in groupby(b for _, _, b in clips)),
        distance=fmean(float(distances.matrix[rank[a], rank[b]]) for _, a, b in clips),
    )


@dataclass(frozen=True)
class ConceptAgreement:
    """A concept in two label sets: Cohen's kappa, and the share of clips that have it in each.

    `kappa` is None where both give it to every clip.
    """

    concept: str
    kappa: float | None
    share_first: float
    share_second: float


@dataclass(frozen=True)
class LabelSetAgreement:
    """Two label sets on the clips that both have.

    `confusion` maps each two levels (of the first, of the second) to a number of clips;
    `equal_levels` is the share of clips with one level, NaN without clips. `concepts` are those
    that either gives to a clip, in the scheme's order, over all films and in each; `kappa` is of
    the levels, all films together.
    """

    first: str
    second: str
    clips: int
    equal_levels: float
    confusion: Mapping[tuple[str, str], int]
    concepts: tuple[ConceptAgreement, ...]
    by_film_and_concept: Mapping[str, tuple[ConceptAgreement, ...]]
    kappa: float | None

    def f1(self, positives: Collection[str], negatives: Collection[str]) -> float:
        """F1 of the first scored against the second, on clips that both give a level of the task.

        The same with the two exchanged; NaN where neither has a positive clip.
        """
        task = {*positives, *negatives}
        shared = first = second = 0
        for (a, b), clips in self.confusion.items():
            if {a, b} <= task:
                shared += clips * (a in positives and b in positives)
                first += clips * (a in positives)
                second += clips * (b in positives)
        return 2 * shared / (first + second) if first + second else float("nan")

    def in_both(self, levels: Collection[str]) -> int:
        """How many clips have one of these levels in both."""
        pairs = self.confusion.items()
        return sum(clips for (a, b), clips in pairs if a in levels and b in levels)

    def counts(self, level: str) -> tuple[int, int, int]:
        """How many clips have a level in the first, in the second, and in both."""
        first = sum(clips for (a, _), clips in self.confusion.items() if a == level)
        second = sum(clips for (_, b), clips in self.confusion.items() if b == level)
        return first, second, self.confusion.get((level, level), 0)

    def only_by(self, concept: ConceptAgreement) -> str:
        """The label set that alone has a concept; empty where both or neither do."""
        if bool(concept.share_first) == bool(concept.share_second):
            return ""
        return self.first if concept.share_first else self.second

    def concepts_by_kappa(self) -> list[ConceptAgreement]:
        """The best agreed on first, those without kappa last."""
        return sorted(
            self.concepts, key=lambda entry: math.inf if entry.kappa is None else -entry.kappa
        )

    def to_json(self) -> dict[str, Any]:
        """The numbers as JSON."""
        return {
            "a": self.first,
            "b": self.second,
            "clips": self.clips,
            "equal_levels": None if np.isnan(self.equal_levels) else self.equal_levels,
            "kappa": self.kappa,
            "concepts": [vars(concept) for concept in self.concepts],
            "by_film_and_concept": {
                film: list(map(vars, parts)) for film, parts in self.by_film_and_concept.items()
            },
        }


def compare_label_sets(manifest: Manifest, first: str, second: str) -> LabelSetAgreement:
    """Compare two label sets of a manifest, by name."""
    a, b = manifest.labels(first), manifest.labels(second)
    scheme = manifest.shared_scheme([a, b])
    ids = [identifier for identifier in a.ids if identifier in b.level_of]
    pairs = Counter((a.level_of[identifier], b.level_of[identifier]) for identifier in ids)

    marks = _concept_marks(a, ids, scheme), _concept_marks(b, ids, scheme)
    row_of = {identifier: row for row, identifier in enumerate(ids)}

    def concepts(rows: Sequence[int]) -> tuple[ConceptAgreement, ...]:
        return _concept_agreements(scheme.concept_names, marks[0][rows], marks[1][rows])

    by_film = {}
    for film, rows in _rows_of_films(manifest).items():
        in_both = (row_of.get(manifest.ids[row]) for row in rows)
        by_film[film] = concepts([row for row in in_both if row is not None])
    equal = sum(number for (x, y), number in pairs.items() if x == y)
    share = equal / len(ids) if ids else math.nan
    kappa = cohen_kappa(np.array([[pairs[x, y] for y in scheme.codes] for x in scheme.codes]))
    parts = dict(pairs), concepts(range(len(ids))), by_film, kappa
    return LabelSetAgreement(first, second, len(ids), share, *parts)


def _concept_marks(labels: LabelSet, ids: Sequence[str], scheme: LabelScheme) -> NDArray[np.bool_]:
    """Mark the concepts that a label set gives: a row for each clip, a column for each concept."""
    names = scheme.concept_names
    concepts = [tuple(labels.concepts_of[identifier]) for identifier in ids]
    marks = {given: [name in given for name in names] for given in {*concepts}}
    return np.array([marks[given] for given in concepts], bool).reshape(len(ids), len(names))


def _concept_agreements(
    names: Sequence[str], a: NDArray[np.bool_], b: NDArray[np.bool_]
) -> tuple[ConceptAgreement, ...]:
    """Compare the concepts that either gives to a clip, by their marks."""
    counts = np.array([[~a & ~b, ~a & b], [a & ~b, a & b]]).sum(axis=2)
    kappas = cohen_kappas(np.moveaxis(counts, -1, 0)).tolist()
    clips = max(1, len(a))
    return tuple(
        ConceptAgreement(name, None if math.isnan(kappa) else kappa, first / clips, second / clips)
        for name, kappa, first, second in zip(
            names, kappas, a.sum(axis=0).tolist(), b.sum(axis=0).tolist(), strict=True
        )
        if first or second
    )


def sure_task(scheme: LabelScheme) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The highest level, and the levels below it without Not Sure: the paper's EN+HN against S."""
    *below, top = scheme.codes
    is_sure = name_key(scheme.name_of.get(NOT_SURE, "")) != name_key("Not Sure")
    return (top,), tuple(code for code in below if code != NOT_SURE or is_sure)
