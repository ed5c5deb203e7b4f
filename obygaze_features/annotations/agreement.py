"""Compare annotators: agreement by film and by concept, and the stretches where they differ.

An annotator's score against another annotator is a rough guide to what a model can reach, but not
a limit.
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
    "annotator": "by an annotator",
    "merge": "by merging",
    "rule": "by a rule",
    "": "in an unknown way",
}


@dataclass(frozen=True, eq=False)
class Pair:
    """The levels of a film's clips in two label sets.

    `rows` are the rows of the film's clips in the manifest, sorted by time if all clips have spans.
    A level is None if the label set does not include the clip.
    """

    film: str
    a: str
    b: str
    rows: Sequence[int]
    levels_a: Sequence[str | None]
    levels_b: Sequence[str | None]

    @cached_property
    def common(self) -> tuple[list[str], list[str]]:
        """The levels in each label set, for clips that are in both."""
        levels = zip(self.levels_a, self.levels_b, strict=True)
        level_pairs = [(x, y) for x, y in levels if x is not None and y is not None]
        return [x for x, _ in level_pairs], [y for _, y in level_pairs]

    @property
    def unpaired(self) -> int:
        """The number of clips that are in only one of the label sets."""
        levels = zip(self.levels_a, self.levels_b, strict=True)
        return sum((x is None) != (y is None) for x, y in levels)


def find_pairs(manifest: Manifest, names: Sequence[str] = ()) -> tuple[list[Pair], list[Remark]]:
    """Find pairs of label sets that share clips of a film, with remarks on anything unusual.

    Parameters
    ----------
    manifest
        The clips and label sets.
    names
        The label sets, in any order (default: all annotators'). Label sets made by a rule cannot
        be compared.
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
    """Explain that only one label set was named, and suggest others to compare it with."""
    text = f"agreement needs two label sets, but only {name!r} was named"
    others = [candidate for candidate in manifest.annotators if candidate != name]
    if not others:
        return f"{text}; the manifest has no labels from another annotator"
    options = f"--labels {name} --labels {others[0]}"
    if len(others) == 1:
        return f"{text}; add the other annotator's label set: {options}"
    return f"{text}; add another annotator's label set ({join_some(others)}): {options}"


def _describe_lack(label_sets: Sequence[LabelSet]) -> str:
    """Explain why these label sets cannot be compared, and what to do about it."""
    makers: dict[Origin, list[str]] = {}
    for labels in label_sets:
        makers.setdefault(labels.origin, []).append(labels.name)
    parts = [f"{MAKERS[origin]} ({join_some(names)})" for origin, names in makers.items()]
    text = f"agreement compares two annotators, but these labels were made {', '.join(parts)}"
    if not makers:
        return "agreement needs two annotators, but there are no labels"
    if "" in makers:
        text += "; choose annotators' label sets: --labels A --labels B"
    return text


def _rows_of_films(manifest: Manifest) -> dict[str, list[int]]:
    """Return each film's rows, sorted by time if all clips have spans, else in manifest order."""
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
    """The agreement of two label sets on the clips of a film that are in both.

    `unpaired` is the number of clips that are in only one of the label sets.
    """

    film: str
    a: str
    b: str
    unpaired: int
    ratings: Ratings

    @cached_property
    def values(self) -> dict[str, float | None]:
        """The values of all `MEASURES` by key."""
        return {key: measure.compute(self.ratings) for key, measure in MEASURES.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
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
    """Compute all measures for a pair.

    The random sequences are seeded with the seed, the film and the names of the label sets, so they
    do not depend on other pairs.
    """
    stream = random_stream(pair.film, pair.a, pair.b)
    ratings = Ratings(*pair.common, distances, chance or Chance(), stream)
    return PairAgreement(pair.film, pair.a, pair.b, pair.unpaired, ratings)


@dataclass(frozen=True)
class Disagreement:
    """Consecutive clips of a film on which two annotators' levels differ.

    `levels_a` and `levels_b` are the levels in the order of the clips, without consecutive repeats.
    `distance` is the mean distance between the two levels over the clips. `seconds` is the total
    duration of the clips, or 0 if the clips have no spans.
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
    """Return every run of consecutive clips on which two label sets differ, longest first.

    Runs of equal duration are ordered by number of clips, then by distance, largest first. A run
    ends at a clip that either label set lacks, at a clip on which both agree, or at a gap.
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
        position = run.film, run.start or 0.0, run.first, run.a, run.b
        return -run.seconds, -run.clips, -run.distance, *position

    return sorted(runs, key=key)


def _disagreement(
    pair: Pair, clips: Sequence[tuple[int, Any, Any]], items: Items, distances: Distances
) -> Disagreement:
    """Summarise a run of clips, each given by its row and two levels."""
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
    """Cohen's kappa for a concept in two label sets, and the share of clips that have it in each.

    `kappa` is undefined (None) if both label sets give the concept to every clip.
    """

    concept: str
    kappa: float | None
    share_first: float
    share_second: float


@dataclass(frozen=True)
class LabelSetAgreement:
    """The agreement of two label sets on the clips that are in both.

    `confusion` maps each pair of levels (in the first set, in the second set) to a number of clips.
    `equal_levels` is the share of clips with the same level in both, or NaN if no clip is in both.
    `concepts` has every concept that either set gives to a clip, in the scheme's order, and
    `by_film_and_concept` has the same for each film. `kappa` is Cohen's kappa of the levels
    over all films.
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
        """Return the F1 score of the first label set, taking the second as the truth.

        Only clips with a positive or negative level in both sets count. The score is the same in
        both directions, and NaN if neither set has a positive clip.
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
        """Count the clips whose levels in both label sets are among `levels`."""
        pairs = self.confusion.items()
        return sum(clips for (a, b), clips in pairs if a in levels and b in levels)

    def counts(self, level: str) -> tuple[int, int, int]:
        """Count the clips that have a level in the first label set, in the second, and in both."""
        first = sum(clips for (a, _), clips in self.confusion.items() if a == level)
        second = sum(clips for (_, b), clips in self.confusion.items() if b == level)
        return first, second, self.confusion.get((level, level), 0)

    def only_by(self, concept: ConceptAgreement) -> str:
        """Return the name of the only label set that uses a concept; "" if both or neither do."""
        if bool(concept.share_first) == bool(concept.share_second):
            return ""
        return self.first if concept.share_first else self.second

    def concepts_by_kappa(self) -> list[ConceptAgreement]:
        """Return the concepts sorted by kappa, highest first; undefined kappas come last."""
        return sorted(
            self.concepts, key=lambda entry: math.inf if entry.kappa is None else -entry.kappa
        )

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
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
    """Compare two label sets of a manifest, given their names."""
    a, b = manifest.labels(first), manifest.labels(second)
    scheme = manifest.shared_scheme([a, b])
    names = scheme.concept_names
    pairs: Counter[tuple[str, str]] = Counter()
    counts = {}
    for film, rows in _rows_of_films(manifest).items():
        in_a = (manifest.ids[row] for row in rows if manifest.ids[row] in a.level_of)
        ids = [identifier for identifier in in_a if identifier in b.level_of]
        pairs.update((a.level_of[identifier], b.level_of[identifier]) for identifier in ids)
        counts[film] = _count_concepts(_concept_marks(a, ids, names), _concept_marks(b, ids, names))
    by_film = {film: _concept_agreements(names, of_film) for film, of_film in counts.items()}
    concepts = _concept_agreements(names, np.sum([*counts.values()], axis=0))
    clips = pairs.total()
    equal = sum(number for (x, y), number in pairs.items() if x == y)
    share = equal / clips if clips else math.nan
    kappa = cohen_kappa(np.array([[pairs[x, y] for y in scheme.codes] for x in scheme.codes]))
    return LabelSetAgreement(first, second, clips, share, dict(pairs), concepts, by_film, kappa)


def _concept_marks(labels: LabelSet, ids: Sequence[str], names: Sequence[str]) -> NDArray[np.bool_]:
    """Return the concepts of a label set as a Boolean array, one row per clip."""
    concepts = [tuple(labels.concepts_of[identifier]) for identifier in ids]
    marks = {own: [name in own for name in names] for own in {*concepts}}
    return np.array([marks[own] for own in concepts], bool).reshape(len(ids), len(names))


def _count_concepts(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> NDArray[np.int_]:
    """Return a table for each concept: the number of clips without or with it in `a` and in `b`."""
    counts: NDArray[np.int_] = np.array([[~a & ~b, ~a & b], [a & ~b, a & b]]).sum(axis=2)
    return np.moveaxis(counts, -1, 0)


def _concept_agreements(
    names: Sequence[str], counts: NDArray[np.int_]
) -> tuple[ConceptAgreement, ...]:
    """Compute the agreement on each concept that is marked in either label set."""
    kappas = cohen_kappas(counts).tolist()
    return tuple(
        ConceptAgreement(name, None if math.isnan(kappa) else kappa, first / clips, second / clips)
        for name, kappa, clips, first, second in zip(
            names,
            kappas,
            counts.sum(axis=(1, 2)).tolist(),
            counts[:, 1].sum(axis=1).tolist(),
            counts[:, :, 1].sum(axis=1).tolist(),
            strict=True,
        )
        if first or second
    )


def sure_task(scheme: LabelScheme) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the positive and negative levels of the paper's task (Sure against EN and HN).

    The positive level is the highest. The negative levels are all others except Not Sure.
    """
    *below, top = scheme.codes
    is_sure = name_key(scheme.name_of.get(NOT_SURE, "")) != name_key("Not Sure")
    return (top,), tuple(code for code in below if code != NOT_SURE or is_sure)
