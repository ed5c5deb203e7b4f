"""The annotators of a run compared with each other: what a model can be held against."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from obygaze_features.annotations.agreement import (
    LabelSetAgreement,
    compare_label_sets,
    find_pairs,
)
from obygaze_features.annotations.measures import distances_of, gamma, random_stream
from obygaze_features.common.figures import inline_svg
from obygaze_features.manifests import Manifest
from obygaze_features.page.html import Html
from obygaze_models.experiments.record import TestSet
from obygaze_models.figures.dots import Line, Point, dot_plot
from obygaze_models.report.runs import ReportRun


@dataclass(frozen=True, eq=False)
class Annotators:
    """Each annotator's levels (clip -> level), each two compared, and the paper's gamma of each
    film, the mean over each two.
    """

    levels: Mapping[str, Mapping[str, str]]
    pairs: tuple[LabelSetAgreement, ...]
    gammas: Mapping[str, float]

    def f1(self, test: TestSet) -> float | None:
        """The mean F1 of one annotator scored against another on a test set's task."""
        negatives, positives = (name.split("+") for name in test.classes)
        scores = [pair.f1(positives, negatives) for pair in self.pairs]
        defined = [score for score in scores if score == score]
        return fmean(defined) if defined else None

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


def load_annotators(run: ReportRun) -> Annotators | None:
    """The annotators' own label sets; None where the manifest is gone, changed, or has not two."""
    manifest = run.manifest
    if manifest is None:
        return None
    own = [labels for labels in map(manifest.labels, manifest.label_names)
           if labels.is_annotators_own]  # fmt: skip
    if len(own) < 2:
        return None
    pairs = [compare_label_sets(manifest, a.name, b.name) for a, b in combinations(own, 2)]
    return Annotators(
        {labels.name: labels.level_of for labels in own},
        tuple(pairs),
        _gammas(manifest, [labels.name for labels in own]),
    )


def _gammas(manifest: Manifest, names: Sequence[str]) -> dict[str, float]:
    """As `obygaze annotations agreement` computes them by default."""
    pairs, _ = find_pairs(manifest, names)
    distances = distances_of(manifest.shared_scheme([manifest.labels(name) for name in names]))
    values: dict[str, list[float]] = {}
    for pair in pairs:
        stream = random_stream(pair.film, pair.a, pair.b)
        value = gamma(*pair.common, distances, stream=stream).gamma
        if value is not None:
            values.setdefault(pair.film, []).append(value)
    return {film: fmean(of_film) for film, of_film in values.items()}


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
