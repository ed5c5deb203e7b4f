"""What the fits of a run say of concepts: their mean parts in predictions, and their quality.

Parts are of log-odds, with one sign wherever they are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import group_by
from obygaze_models.data.tasks import concept_targets
from obygaze_models.scoring.metrics import auroc, average_precision

if TYPE_CHECKING:
    from obygaze_models.experiments.explanations import Explained
    from obygaze_models.experiments.run_folder import Clip


Array = NDArray[Any]

#: What a clip has before any concept counts.
AT_REST = "at rest (intercept)"


def name_log_odds(classes: Sequence[str]) -> str:
    """What parts add up to: of two classes always the second's, whichever is predicted."""
    return f"log-odds of {classes[1]}" if len(classes) == 2 else "logit of the predicted class"


@dataclass(frozen=True, eq=False)
class MeanParts:
    """Parts of N clips, as means over the fits that tested each.

    Parameters
    ----------
    concepts
        Their names.
    values, amounts
        What each clip measures, and each concept's part, [N, K]. The parts are NaN for clips
        without a fit, and for those whose fits predict different ones of several classes: they
        are of different sums.
    intercept
        [N], where there is such a part.
    """

    concepts: tuple[str, ...]
    values: Array
    amounts: Array
    intercept: Array | None

    @property
    def order(self) -> Array:
        """The columns by the size of the clip's part, the largest first, [N, K]."""
        return np.argsort(-np.abs(self.amounts), axis=1, kind="stable")

    @property
    def total(self) -> Array:
        """What the parts of each clip add up to, [N]."""
        rest = 0 if self.intercept is None else self.intercept
        return np.asarray(self.amounts.sum(axis=1) + rest)

    def of_clip(self, row: int) -> tuple[tuple[str, float], ...]:
        """The concepts' parts, the largest first, then the others: they add up."""
        amounts = self.amounts[row]
        if np.isnan(amounts).any():
            return ()
        parts = [(self.concepts[place], float(amounts[place])) for place in self.order[row]]
        if self.intercept is not None:
            parts.append((AT_REST, float(self.intercept[row])))
        return tuple(parts)


def average_parts(explained: Iterable[Explained], ids: Sequence[str]) -> MeanParts:
    """The mean parts of a model's fits; none of clips without a label, or that do not add up.

    Parameters
    ----------
    explained
        The fits' explanations.
    ids
        The clips, in the order of the rows.
    """
    entries = [entry for entry in explained if entry.kind in ("sum", "stores")]
    concepts = tuple(dict.fromkeys(name for entry in entries for name in entry.concepts))
    row_of = {clip: row for row, clip in enumerate(ids)}
    labels: list[set[str]] = [set() for _ in ids]
    fits, shape = np.zeros(len(ids)), (len(ids), len(concepts))
    values, amounts, measured = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    intercepts: Array | None = None
    for entry in entries:
        pairs = zip(entry.ids, entry.labels, strict=True)
        own = [place for place, (clip, label) in enumerate(pairs) if label and clip in row_of]
        rows = np.array([row_of[entry.ids[place]] for place in own], dtype=np.intp)
        columns = np.array([concepts.index(name) for name in entry.concepts], dtype=np.intp)
        cells = np.ix_(rows, columns)
        for row, place in zip(rows.tolist(), own, strict=True):
            labels[row].add(entry.labels[place])
        fits[rows] += 1
        measured[cells] += 1
        values[cells] += entry.values[own]
        if entry.amounts is not None:
            amounts[cells] += entry.amounts[own]
        if entry.intercept is not None:
            intercepts = np.zeros(len(ids)) if intercepts is None else intercepts
            intercepts[rows] += entry.intercept[own]
    number = np.where([len(names) == 1 for names in labels], fits, np.nan)
    return MeanParts(
        concepts,
        values / np.maximum(measured, 1),
        amounts / number[:, None],
        None if intercepts is None else intercepts / number,
    )


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
    explained: Sequence[Explained], clips: Mapping[str, Clip], *, is_obygaze: bool = True
) -> list[ConceptQuality]:
    """Score the concepts of bottlenecks on test clips: a row for each model, task and concept.

    Hard Negative and Sure clips with a concept are compared with all clips without it; Not Sure
    clips are ignored. Where the levels are not ObyGaze's, all clips count. Networks are left out:
    they are explained by a bottleneck's concepts.
    """
    own = [entry for entry in explained if entry.kind in ("sum", "path")]
    return [
        _quality(fits, column, clips, is_obygaze)
        for fits in group_by(own, lambda fit: (fit.model, fit.task, fit.concepts)).values()
        for column in range(len(fits[0].concepts))
    ]


def _quality(
    fits: Sequence[Explained], column: int, clips: Mapping[str, Clip], is_obygaze: bool
) -> ConceptQuality:
    concept = fits[0].concepts[column]
    positive: dict[str, int] = {}
    scores = []
    for fit in fits:
        tested = [clips[clip] for clip in fit.ids]
        marks = np.array([concept in clip.concepts for clip in tested], dtype=bool)[:, None]
        levels = [clip.level for clip in tested]
        targets = concept_targets(levels, marks, "b", is_obygaze=is_obygaze)[:, 0]
        counts = targets >= 0
        truth, values = targets[counts], fit.values[counts, column]
        tested_ids = np.array(fit.ids)[counts].tolist()
        positive |= dict(zip(tested_ids, truth.tolist(), strict=True))
        if 0 < truth.sum() < len(truth):
            area, precision = auroc(truth, values), average_precision(truth, values)
            scores.append((area, precision, truth.mean()))
    means: list[float | None] = [None] * 3
    stds = means
    if scores:
        table = np.array(scores, dtype=np.float64)
        means, stds = table.mean(axis=0).tolist(), table.std(axis=0).tolist()
    return ConceptQuality(
        fits[0].model,
        fits[0].task,
        concept,
        clips=len(positive),
        positives=sum(positive.values()),
        share=means[2],
        auroc=means[0],
        auroc_std=stds[0],
        average_precision=means[1],
        average_precision_std=stds[1],
        runs=len(scores),
    )
