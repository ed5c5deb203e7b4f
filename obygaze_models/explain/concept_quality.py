"""Whether a model's concept scores are the concept: compared with the annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from obygaze_models.data.tasks import concept_targets
from obygaze_models.scoring.metrics import auroc, average_precision

if TYPE_CHECKING:
    from obygaze_models.experiments.explanations import Explained
    from obygaze_models.experiments.run_folder import Clip


@dataclass(frozen=True)
class ConceptQuality:
    """How well a model's scores of a concept rank test clips with it above those without.

    Parameters
    ----------
    model, task, concept
        The model, its task, and the concept.
    clips, positives
        The number of test clips over all fits, and how many of them show the concept.
    share
        The mean share of positives over fits: the average precision of chance.
    auroc, auroc_std, average_precision, average_precision_std
        Mean and standard deviation over fits; None if no fit has clips of both kinds.
    runs
        The number of fits with clips of both kinds.
    """

    model: str
    task: str
    concept: str
    clips: int
    positives: int
    share: float | None
    auroc: float | None
    auroc_std: float | None
    average_precision: float | None
    average_precision_std: float | None
    runs: int


def concept_quality(
    explained: Sequence[Explained], clips: Mapping[str, Clip]
) -> list[ConceptQuality]:
    """Score the concepts of bottlenecks on test clips: a row for each model, task and concept.

    Hard Negative and Sure clips with a concept are compared with all clips without it; Not Sure
    clips are ignored. Networks are left out: they are explained by a bottleneck's concepts.
    """
    groups: dict[tuple[str, str, tuple[str, ...]], list[Explained]] = {}
    for entry in explained:
        if entry.kind != "sensitivity":
            groups.setdefault((entry.model, entry.task, entry.concepts), []).append(entry)
    return [
        _quality(fits, column, clips)
        for (_, _, concepts), fits in groups.items()
        for column in range(len(concepts))
    ]


def _quality(fits: Sequence[Explained], column: int, clips: Mapping[str, Clip]) -> ConceptQuality:
    concept = fits[0].concepts[column]
    all_levels = {clip.level for clip in clips.values()}
    positive: dict[str, int] = {}
    scores = []
    for fit in fits:
        tested = [clips[clip] for clip in fit.ids]
        marks = np.array([[concept in clip.concepts] for clip in tested], dtype=bool).reshape(-1, 1)
        levels = [clip.level for clip in tested]
        targets = concept_targets(levels, marks, "b", all_levels=all_levels)[:, 0]
        counts = targets >= 0
        truth, values = targets[counts], fit.values[counts, column]
        tested_ids = np.array(fit.ids)[counts].tolist()
        positive |= dict(zip(tested_ids, truth.tolist(), strict=True))
        if 0 < truth.sum() < len(truth):
            area, precision = auroc(truth, values), average_precision(truth, values)
            scores.append((area, precision, truth.mean()))
    table = np.array(scores, dtype=np.float64).reshape(-1, 3)
    means = table.mean(axis=0).tolist() if len(table) else [None] * 3
    deviations = table.std(axis=0).tolist() if len(table) else [None] * 3
    return ConceptQuality(
        fits[0].model,
        fits[0].task,
        concept,
        clips=len(positive),
        positives=sum(positive.values()),
        share=means[2],
        auroc=means[0],
        auroc_std=deviations[0],
        average_precision=means[1],
        average_precision_std=deviations[1],
        runs=len(table),
    )
