"""The annotators of a run compared with each other: what a model can be held against."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean

from obygaze_features.annotations.agreement import (
    Disagreement,
    LabelSetAgreement,
    compare_label_sets,
    find_disagreements,
    find_pairs,
)
from obygaze_features.annotations.measures import (
    cohen_kappa,
    confusion,
    distances_of,
    gamma,
    random_stream,
)
from obygaze_features.common.figures import inline_svg
from obygaze_features.manifests import LabelSet, Manifest
from obygaze_features.page.html import Html
from obygaze_models.experiments.record import TestSet
from obygaze_models.figures.dots import Line, Point, dot_plot
from obygaze_models.report.annotation import Source


@dataclass(frozen=True, eq=False)
class Annotators:
    """Each annotator's levels (clip -> level), each two compared, the paper's gamma of each film
    and the kappa of each concept in it (means over each two), and where two differ, the longest
    first. `merged`: the page's labels are made of theirs.
    """

    levels: Mapping[str, Mapping[str, str]]
    pairs: tuple[LabelSetAgreement, ...]
    gammas: Mapping[str, float]
    differences: Sequence[Disagreement]
    by_film_and_concept: Mapping[str, Mapping[str, float]]
    merged: bool

    @property
    def all_of_them(self) -> str:
        """Both of two annotators, or all."""
        return "both" if len(self.levels) == 2 else f"all {len(self.levels)} annotators"

    @cached_property
    def kappas(self) -> dict[str, float]:
        """The mean kappa of each concept over each two annotators who both marked it."""
        values: dict[str, list[float]] = {}
        for pair in self.pairs:
            for entry in pair.concepts:
                if entry.kappa is not None and not pair.only_by(entry):
                    values.setdefault(entry.concept, []).append(entry.kappa)
        return {name: fmean(kappas) for name, kappas in values.items()}

    def f1(self, test: TestSet) -> float | None:
        """The mean F1 of one annotator scored against another on a test set's task."""
        negatives, positives = (name.split("+") for name in test.classes)
        scores = [pair.f1(positives, negatives) for pair in self.pairs]
        defined = [score for score in scores if score == score]
        return fmean(defined) if defined else None

    @property
    def divided(self) -> list[str]:
        """The clips to which two of them gave different levels."""
        given: dict[str, set[str]] = {}
        for levels in self.levels.values():
            for clip, level in levels.items():
                given.setdefault(clip, set()).add(level)
        return [clip for clip, levels in given.items() if len(levels) > 1]

    def equal_levels(self, clips: Collection[str]) -> float | None:
        """The share of clips to which two annotators gave the same level."""
        equal = [
            first[clip] == second[clip]
            for first, second in combinations(self.levels.values(), 2)
            for clip in clips
            if clip in first and clip in second
        ]
        return fmean(equal) if equal else None

    def in_all(self, levels: Collection[str], clips: Collection[str]) -> int:
        """To how many of the clips all annotators gave one of these levels."""
        return sum(
            all(labels.get(clip) in levels for labels in self.levels.values()) for clip in clips
        )


def load_annotators(source: Source) -> Annotators | None:
    """The annotators' own label sets; None where the manifest is gone, changed, or has not two."""
    manifest, names = source.manifest, source.annotators
    if manifest is None or len(names) < 2:
        return None
    own = [*map(manifest.labels, names)]
    in_films, _ = find_pairs(manifest, names)
    distances = distances_of(manifest.shared_scheme(own))
    gammas: dict[str, list[float]] = {}
    for pair in in_films:
        stream = random_stream(pair.film, pair.a, pair.b)
        value = gamma(*pair.common, distances, stream=stream).gamma
        if value is not None:
            gammas.setdefault(pair.film, []).append(value)
    return Annotators(
        {labels.name: labels.level_of for labels in own},
        tuple(compare_label_sets(manifest, *pair) for pair in combinations(names, 2)),
        {film: fmean(of_film) for film, of_film in gammas.items()},
        find_disagreements(in_films, manifest.items, distances),
        _kappas_of_films(manifest, own),
        source.about.labels in manifest.label_names
        and bool(manifest.labels(source.about.labels).merged_from),
    )


def _kappas_of_films(manifest: Manifest, own: Sequence[LabelSet]) -> dict[str, dict[str, float]]:
    """Film -> concept -> kappa, the mean over each two of the annotators."""
    clips: dict[str, list[str]] = {}
    for identifier, film in zip(manifest.ids, manifest.items.films, strict=True):
        clips.setdefault(film, []).append(identifier)
    concepts = manifest.shared_scheme(own).concept_names
    table: dict[str, dict[str, float]] = {}
    for film, ids in clips.items():
        for concept in concepts:
            kappas = []
            for a, b in combinations(own, 2):
                both = [clip for clip in ids if clip in a.level_of and clip in b.level_of]
                first, second = ([concept in of.concepts_of[c] for c in both] for of in (a, b))
                counts = confusion(first, second, (False, True))
                kappas.append(cohen_kappa(counts) if both else None)
            defined = [kappa for kappa in kappas if kappa is not None]
            if defined:
                table.setdefault(film, {})[concept] = fmean(defined)
    return table


def gamma_figure(annotators: Annotators, titles: Mapping[str, str]) -> Html | None:
    """Gamma of each film as dots, in the order of `titles` (film -> title); None without films."""
    points = [
        Point(title, annotators.gammas[film], kind="annotators")
        for film, title in titles.items()
        if film in annotators.gammas
    ]
    if not points:
        return None
    low = min(point.value or 0.0 for point in points)
    figure = dot_plot(
        points,
        title="How far annotators agree on each film",
        axis="gamma",
        description="; ".join(f"{point.label}: {point.value:.2f}" for point in points),
        lines=[Line(0.0, "as in a random order")],
        limits=(min(0.0, low), 1.0),
    )
    return Html(inline_svg(figure))
