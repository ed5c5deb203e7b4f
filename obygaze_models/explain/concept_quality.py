"""Whether what a model measures along a concept is the concept: against the annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from obygaze_models.metrics import auroc, average_precision
from obygaze_models.tasks import concept_targets

if TYPE_CHECKING:
    from obygaze_models.experiments.explanations import Explained
    from obygaze_models.experiments.run_folder import Clip

__all__ = ["ConceptQuality", "concept_quality"]


@dataclass(frozen=True)
class ConceptQuality:
    """How well a model's measure of a concept ranks test clips with it above those without.

    Parameters
    ----------
    model, task, concept
        Of what.
    clips, positives
        How many test clips of all runs together count, and how many of them show the concept.
    share
        Of positives, in the mean over runs: the average precision of a guess.
    auroc, auroc_std, average_precision, average_precision_std
        Mean and standard deviation over runs; None where no run has clips of both kinds.
    runs
        How many have.
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
    """Score what bottlenecks measure on test clips, a row a model, task and concept.

    Hard Negative and Sure clips that show a concept are held against all that do not; Not Sure
    clips take no part. Networks are left out: they are read by a bottleneck's concepts.
    """
    groups: dict[tuple[str, str, tuple[str, ...]], list[Explained]] = {}
    for one in explained:
        if one.kind != "sensitivity":
            groups.setdefault((one.model, one.task, one.concepts), []).append(one)
    return [
        _quality(model, task, concept, place, runs, clips)
        for (model, task, concepts), runs in groups.items()
        for place, concept in enumerate(concepts)
    ]


def _quality(
    model: str,
    task: str,
    concept: str,
    place: int,
    runs: Sequence[Explained],
    clips: Mapping[str, Clip],
) -> ConceptQuality:
    shown: dict[str, bool] = {}
    scores = []
    for run in runs:
        of = [clips[one] for one in run.ids]
        marks = np.array([[concept in clip.concepts] for clip in of], dtype=bool).reshape(-1, 1)
        targets = concept_targets([clip.level for clip in of], marks, "b")[:, 0]
        counts = targets >= 0
        truth, values = targets[counts], run.values[counts, place]
        shown |= {
            one: bool(target) for one, target in zip(run.ids, targets, strict=True) if target >= 0
        }
        if 0 < truth.sum() < len(truth):
            area, precision = auroc(truth, values), average_precision(truth, values)
            scores.append((area, precision, truth.mean()))
    table = np.array(scores, dtype=np.float64).reshape(-1, 3)
    means = table.mean(axis=0).tolist() if len(table) else [None] * 3
    deviations = table.std(axis=0).tolist() if len(table) else [None] * 3
    return ConceptQuality(
        model,
        task,
        concept,
        clips=len(shown),
        positives=sum(shown.values()),
        share=means[2],
        auroc=means[0],
        auroc_std=deviations[0],
        average_precision=means[1],
        average_precision_std=deviations[1],
        runs=len(table),
    )
