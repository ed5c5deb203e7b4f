"""The annotators of a page: their agreement with each other, and their marks by film."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, groupby, pairwise
from statistics import fmean
from typing import NamedTuple

import numpy as np

from obygaze_features.annotations.agreement import (
    ConceptAgreement,
    Disagreement,
    LabelSetAgreement,
    Pair,
    compare_label_sets,
    find_disagreements,
    find_pairs,
)
from obygaze_features.annotations.figures import levels_by_film
from obygaze_features.annotations.film_shares import MarkedFilms, count_shares
from obygaze_features.annotations.measures import (
    Distances,
    cohen_kappas,
    confusion,
    distances_of,
    gamma,
    random_stream,
)
from obygaze_features.annotations.remarks import Remark
from obygaze_features.common.figures import inline_svg
from obygaze_features.manifests import LabelSet, Level, Manifest
from obygaze_features.page.html import Html
from obygaze_models.figures.dots import Line, Point, dot_plot
from obygaze_models.report.annotation import Source, labelled_by
from obygaze_models.scoring.intervals import (
    MIN_GROUPS,
    Estimate,
    clip_interval,
    jackknife,
    leave_each_out,
)

MAX_ANNOTATORS = 20
"""The maximum number of annotators that a page compares, because it compares every pair."""
MIN_MARKED = 20
"""The minimum number of clips for an agreement score to be meaningful."""
PARTS, MIN_PART = 10, 8
"""The number of parts in the jackknife of a film's gamma, and the minimum clips per part."""


@dataclass(frozen=True, eq=False)
class Annotators:
    """The annotators' labels, and their agreement.

    `levels` maps each annotator to levels by clip, and `pairs` compares each pair of annotators.
    `gammas` has the gamma of each film as in the paper, averaged over pairs. `marked` counts, by
    film and concept, the clips that several annotators labelled and that any of them marked.
    `differences` are the spans on which two annotators differ, longest first. `remarks` are about
    oddities in the labels. `merged` is True if the page's labels were merged from these
    annotators' labels.
    """

    levels: Mapping[str, Mapping[str, str]]
    pairs: tuple[LabelSetAgreement, ...]
    gammas: Mapping[str, float]
    marked: Counter[tuple[str, str]]
    differences: Sequence[Disagreement]
    remarks: Sequence[Remark]
    merged: bool
    agreement: Estimate
    """The mean kappa of the levels over all pairs of annotators, with its jackknife interval."""
    shared: Mapping[str, int]
    """The number of clips in each film that two or more annotators labelled."""
    kappa_intervals: Mapping[str, tuple[float, float]]
    """The interval of each concept's kappa, for concepts with enough films."""
    gamma_intervals: Mapping[str, tuple[float, float] | None]
    """The interval of each film's gamma; None if the film has too few clips."""

    @property
    def all_of_them(self) -> str:
        """A phrase for all annotators, such as "both" or "all 3 annotators"."""
        return "both" if len(self.levels) == 2 else f"all {len(self.levels)} annotators"

    @property
    def by_chance(self) -> float | None:
        """The share of clips to which two annotators would give equal levels by chance."""
        shares = []
        for pair in self.pairs:
            if not pair.clips:
                continue
            first, second = Counter[str](), Counter[str]()
            for (a, b), clips in pair.confusion.items():
                first[a] += clips
                second[b] += clips
            shares.append(sum(first[code] * second[code] for code in first) / pair.clips**2)
        return fmean(shares) if shares else None

    def few_clips(self, concept: str) -> bool:
        """Return True if a concept is marked in too few clips or films to judge agreement."""
        counts = [clips for (_, name), clips in self.marked.items() if name == concept]
        return len(counts) < MIN_GROUPS or sum(counts) < MIN_MARKED

    @cached_property
    def kappas(self) -> dict[str, float]:
        """The mean kappa of each concept, over the pairs of annotators who both marked it."""
        return self._mean_kappas([pair.concepts for pair in self.pairs])

    @cached_property
    def kappas_of_films(self) -> dict[str, dict[str, float]]:
        """The mean kappa of each concept in each film, over pairs of annotators."""
        films = dict.fromkeys(film for pair in self.pairs for film in pair.by_film_and_concept)
        return {
            film: self._mean_kappas([pair.by_film_and_concept.get(film, ()) for pair in self.pairs])
            for film in films
        }

    def _mean_kappas(self, of_pairs: Sequence[Sequence[ConceptAgreement]]) -> dict[str, float]:
        values: dict[str, list[float]] = {}
        for pair, concepts in zip(self.pairs, of_pairs, strict=True):
            for entry in concepts:
                if entry.kappa is not None and not pair.only_by(entry):
                    values.setdefault(entry.concept, []).append(entry.kappa)
        return {name: fmean(kappas) for name, kappas in values.items()}

    @cached_property
    def differ(self) -> dict[str, bool]:
        """The clips with several annotators, each mapped to True if its levels differ."""
        labels_of: dict[str, list[str]] = {}
        for levels in self.levels.values():
            for clip, level in levels.items():
                labels_of.setdefault(clip, []).append(level)
        return {clip: len({*own}) > 1 for clip, own in labels_of.items() if len(own) > 1}

    def equal_levels(self, clips: Collection[str]) -> float | None:
        """Return the share of clips with equal levels, among those with two or more annotators."""
        equal = [not self.differ[clip] for clip in clips if clip in self.differ]
        return fmean(equal) if equal else None

    def in_all(self, levels: Collection[str], clips: Collection[str]) -> int:
        """Return the number of clips to which all annotators gave one of these levels."""
        return sum(
            all(labels.get(clip) in levels for labels in self.levels.values()) for clip in clips
        )


def load_annotators(source: Source) -> Annotators | None:
    """Load the annotators' labels; None if there are fewer than two, too many, or no manifest."""
    manifest, names = source.manifest, source.annotators
    if manifest is None or not 2 <= len(names) <= MAX_ANNOTATORS:
        return None
    own = [*map(manifest.labels, names)]
    in_films, remarks = find_pairs(manifest, names)
    distances = distances_of(manifest.shared_scheme(own))
    gammas: dict[str, list[float]] = {}
    by_film = {film: [*same] for film, same in groupby(in_films, key=lambda pair: pair.film)}
    for pair in in_films:
        stream = random_stream(pair.film, pair.a, pair.b)
        value = gamma(*pair.common, distances, stream=stream).gamma
        if value is not None:
            gammas.setdefault(pair.film, []).append(value)
    sets_of = Counter(clip for labels in own for clip in labels.ids)
    pairs = tuple(compare_label_sets(manifest, *pair) for pair in combinations(names, 2))
    marks = {(c, name) for part in own for c, names in part.concepts_of.items() for name in names}
    return Annotators(
        {labels.name: labels.level_of for labels in own},
        pairs,
        {film: fmean(of_film) for film, of_film in gammas.items()},
        Counter((manifest[clip].film, name) for clip, name in marks if sets_of[clip] > 1),
        find_disagreements(in_films, manifest.items, distances),
        remarks,
        source.about.labels in manifest.label_names
        and bool(manifest.labels(source.about.labels).merged_annotators),
        _kappa_over_films([Rated(p.film, (p.a, p.b), *p.common) for p in in_films]),
        Counter(manifest[clip].film for clip, sets in sets_of.items() if sets > 1),
        _concept_intervals(manifest, in_films),
        {film: gamma_interval(of_film, distances) for film, of_film in by_film.items()},
    )


class Rated(NamedTuple):
    """Two annotators' labels on the clips that they share, in a film or in a part of a film."""

    group: str
    names: tuple[str, str]
    first: Sequence[Hashable]
    second: Sequence[Hashable]


def _count_without_each(rated: Sequence[Rated], codes: Sequence[Hashable]) -> np.ndarray:
    """Return the confusion counts of each pair of annotators, [1 + groups, pairs, K, K].

    The first entry counts all groups. Each further entry leaves out one group.
    """
    groups = list(dict.fromkeys(entry.group for entry in rated))
    names = list(dict.fromkeys(entry.names for entry in rated))
    tables = np.zeros((len(groups), len(names), len(codes), len(codes)))
    for entry in rated:
        table = confusion(entry.first, entry.second, codes)
        tables[groups.index(entry.group), names.index(entry.names)] += table
    counts: np.ndarray = np.einsum("dg,gpij->dpij", leave_each_out(len(groups)), tables)
    return counts


def _kappa_over_films(rated: Sequence[Rated]) -> Estimate:
    """Return the mean kappa over pairs of annotators, with its jackknife interval over films."""
    if not rated:
        return Estimate(None)
    codes = list(dict.fromkeys(code for part in rated for code in (*part.first, *part.second)))
    kappas = cohen_kappas(_count_without_each(rated, codes)).mean(axis=1)
    return clip_interval(jackknife(kappas), least=-1.0)


def _concept_intervals(
    manifest: Manifest, in_films: Sequence[Pair]
) -> dict[str, tuple[float, float]]:
    """Return the jackknife interval of each concept's mean kappa over pairs who both marked it."""
    marks = {name: manifest.labels(name).concepts_of for p in in_films for name in (p.a, p.b)}
    intervals = {}
    for concept in sorted(
        {name for own in marks.values() for names in own.values() for name in names}
    ):
        rated = []
        for pair in in_films:
            levels = zip(pair.rows, pair.levels_a, pair.levels_b, strict=True)
            ids = [manifest.ids[row] for row, a, b in levels if a is not None and b is not None]
            marked = [[concept in marks[name][clip] for clip in ids] for name in (pair.a, pair.b)]
            rated.append(Rated(pair.film, (pair.a, pair.b), *marked))
        marked_first = {r.names for r in rated if any(r.first)}
        marked_second = {r.names for r in rated if any(r.second)}
        marked_by_both = marked_first & marked_second
        if interval := _kappa_over_films([r for r in rated if r.names in marked_by_both]).interval:
            intervals[concept] = interval
    return intervals


def gamma_interval(pairs: Sequence[Pair], distances: Distances) -> tuple[float, float] | None:
    """Return the interval of a film's gamma, by the jackknife over ten parts of the film.

    Neighbouring clips are alike, so whole parts are left out instead of single clips. The interval
    is computed for log(1 - gamma), which is unbounded. Return None if there are too few clips, or
    if at most one part has any disagreement.
    """
    rated = []
    for pair in pairs:
        first, second = pair.common
        if len(first) < PARTS * MIN_PART:
            return None
        ends = np.linspace(0, len(first), PARTS + 1).round().astype(int).tolist()
        for number, (low, high) in enumerate(pairwise(ends)):
            part = first[low:high], second[low:high]
            rated.append(Rated(str(number), (pair.a, pair.b), *part))
    counts = _count_without_each(rated, distances.codes)
    totals = counts.sum(axis=(-1, -2))
    distance = (counts * distances.matrix).sum(axis=(-1, -2)) / totals
    margins = counts.sum(axis=-1), counts.sum(axis=-2)
    expected = np.einsum("dpi,ij,dpj->dp", margins[0], distances.matrix, margins[1]) / totals**2
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log((distance / expected).mean(axis=1))
    if not np.isfinite(logs).all() or (interval := jackknife(logs).interval) is None:
        return None
    low, high = interval
    return 1 - math.exp(high), 1 - math.exp(low)


def _title(title: str, clips: int) -> str:
    return f"{title} (few clips)" if clips < MIN_MARKED else title


def gamma_figure(annotators: Annotators, titles: Mapping[str, str]) -> Html | None:
    """Plot the gamma of each film in `titles`, highest first; None if no film has a gamma."""
    points = []
    for film, value in sorted(annotators.gammas.items(), key=lambda pair: -pair[1]):
        if film in titles:
            low, high = annotators.gamma_intervals.get(film) or (None, None)
            title = _title(titles[film], annotators.shared[film])
            points.append(Point(title, value, low, high, kind="annotators"))
    if not points:
        return None
    low = min(end for p in points for end in (p.value, p.low) if end is not None)
    figure = dot_plot(
        points,
        title="Agreement of annotators on each film",
        axis="gamma",
        description="; ".join(f"{point.label}: {point.value:.2f}" for point in points),
        lines=[Line(0.0, "random order")],
        limits=(min(0.0, low), 1.0),
    )
    return Html(inline_svg(figure))


def marked_films(source: Source, annotators: Annotators | None) -> MarkedFilms:
    """Count each film's marked clips for each annotator, or for the page's label set."""
    clips, names = source.clips.values(), source.about.levels
    own = [c.id for c in clips], [c.level for c in clips], [c.concepts for c in clips]
    label_sets = [LabelSet(labelled_by(source), *own)]
    if annotators is not None and source.manifest is not None:
        label_sets = [*map(source.manifest.labels, annotators.levels)]
    levels = [Level(code, names.get(code, code)) for code in source.positives]
    film_of = {clip.id: clip.film for clip in clips if clip.film}
    return count_shares(label_sets, levels, film_of, {clip.film: clip.title for clip in clips})


def levels_figure(marked: MarkedFilms) -> Html | None:
    """Draw each annotator's share of clips at the highest level, by film.

    Return None if there is a single annotator or film.
    """
    if len(marked.annotators) < 2 or len(marked.films) < 2:
        return None
    return Html(inline_svg(levels_by_film(marked)))


def overlap(source: Source, annotators: Annotators | None) -> list[tuple[int, str, str]]:
    """Count the clips with the highest level, by who gave it.

    Only clips with several annotators count. Each part is the number of clips, a phrase for the
    annotators, and a CSS class for the colour. If there are two annotators, the part for both is in
    the middle.
    """
    if annotators is None:
        return []
    names, levels = [*annotators.levels], source.positives
    gave = [
        tuple(annotators.levels[name].get(clip) in levels for name in names)
        for clip in annotators.differ
    ]
    if len(names) == 2:
        counts = Counter(gave)
        parts = [
            (counts[True, False], f"only {names[0]}", "s1"),
            (counts[True, True], "both", "both"),
            (counts[False, True], f"only {names[1]}", "s2"),
        ]
    else:
        by_number, all_of_them = Counter(map(sum, gave)), len(names)
        parts = [
            (by_number[n], f"by {n} of {all_of_them} annotators", f"n{min(n, 6)}")
            for n in range(all_of_them, 0, -1)
        ]
    return parts if any(clips for clips, *_ in parts) else []
