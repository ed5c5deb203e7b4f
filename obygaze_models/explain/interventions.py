"""Test-time interventions: how a bottleneck scores once people have corrected its concepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score
from sklearn.utils import check_random_state

from obygaze_features.errors import ExperimentError
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.estimators.bottlenecks import ConceptBottleneck, HybridBottleneck
from obygaze_models.estimators.classes import as_logits
from obygaze_models.estimators.concepts import project

Array = NDArray[Any]


@dataclass(frozen=True)
class Curve:
    """Scores with 0, 1 ... all concepts corrected.

    Parameters
    ----------
    order
        ``"random"``: the same order for all clips, drawn `draws` times. ``"uncertainty"``: for each
        clip first the concept with the nearest hyperplane.
    draws
        The number of orders.
    accuracy, f1
        The mean for each number of corrected concepts. F1 is that of the second of two classes, or
        the macro F1 of more; None where it is undefined.
    accuracy_std, f1_std
        Standard deviations over the orders; 0 for a single order.
    """

    order: str
    draws: int
    accuracy: tuple[float, ...]
    f1: tuple[float | None, ...]
    accuracy_std: tuple[float, ...]
    f1_std: tuple[float | None, ...]


@dataclass(frozen=True)
class Interventions:
    """A bottleneck's scores by the number of corrected concepts.

    Parameters
    ----------
    concepts
        In the bank's order.
    present, absent
        The corrected value of a concept for clips with and without it.
    clips
        The number of scored clips.
    curves
        By random order, and by uncertainty.
    """

    concepts: tuple[str, ...]
    present: tuple[float, ...]
    absent: tuple[float, ...]
    clips: int
    curves: tuple[Curve, Curve]


def intervene(
    model: ConceptBottleneck | HybridBottleneck,
    train: ClipDataset,
    test: ClipDataset,
    labels: Array,
    *,
    draws: int = 20,
    random_state: int = 0,
) -> Interventions:
    """Correct the concepts of test clips, one more each time, and score the model.

    The corrected value of a concept is its mean over the training clips with, or without, it.

    Parameters
    ----------
    model
        A fitted bottleneck over a bank of named concepts.
    train
        The training clips of the bottleneck. Annotated concepts that its bank lacks are ignored.
    test
        The clips to score.
    labels
        Their true labels, of ``model.classes_``.
    draws
        How many random orders.
    random_state
        Fixes them.
    """
    names = train.concept_names
    concepts = [str(name) for name in model.bank_.get_feature_names_out()]
    if missing := [name for name in concepts if name not in names]:
        raise ExperimentError(
            f"the annotations have no concept {missing[0]!r} of the bottleneck; "
            f"they have {', '.join(names) or 'none'}"
        )
    columns = [names.index(name) for name in concepts]
    measured = model.concept_scores(train.X)
    marks = np.asarray(train.concepts, dtype=bool)[:, columns]
    for name, marked in zip(concepts, marks.T, strict=True):
        if marked.all() or not marked.any():
            raise ExperimentError(
                f"all {len(marked)} training clips are {'' if marked.all() else 'not '}marked with "
                f"{name!r}, so it cannot be corrected; give training clips of both kinds"
            )
    present, absent = (
        np.array([column[rows].mean() for column, rows in zip(measured.T, chosen.T, strict=True)])
        for chosen in (marks, ~marks)
    )
    truth = np.asarray(test.concepts, dtype=bool)[:, columns]
    before = model.concept_scores(test.X)
    corrected = np.where(truth, present, absent)
    residual = np.zeros(1)
    if isinstance(model, HybridBottleneck):
        residual = model.residual_logits(test.X)

    def scores(ranks: Array) -> list[tuple[float, float | None]]:
        """With 0, 1 ... K corrections; `ranks` [N or 1, K] are positions in the order."""
        return [
            _score(model, np.where(ranks < count, corrected, before), residual, labels)
            for count in range(len(concepts) + 1)
        ]

    chance = check_random_state(random_state)
    orders = [chance.permutation(len(concepts)) for _ in range(draws)]
    random = [scores(order.argsort()[None]) for order in orders]
    nearness = np.abs(project(model.bank_, test.X, "distance"))
    uncertain = scores(nearness.argsort(axis=1, kind="stable").argsort(axis=1))
    return Interventions(
        tuple(concepts),
        tuple(present.tolist()),
        tuple(absent.tolist()),
        len(test.X),
        (_curve("random", random), _curve("uncertainty", [uncertain])),
    )


def _score(
    model: ConceptBottleneck | HybridBottleneck, measured: Array, residual: Array, labels: Array
) -> tuple[float, float | None]:
    if isinstance(model, HybridBottleneck):
        outputs = as_logits(model.head_.decision_function(measured)) + residual
    else:
        outputs = model.head_.predict_proba(measured)
    predicted = model.classes_[outputs.argmax(axis=1)]
    accuracy = float((predicted == labels).mean())
    if len(model.classes_) == 2:
        f1 = f1_score(labels, predicted, pos_label=model.classes_[1], zero_division=np.nan)
        return accuracy, None if np.isnan(f1) else float(f1)
    return accuracy, float(f1_score(labels, predicted, average="macro"))


def _curve(order: str, runs: Sequence[Sequence[tuple[float, float | None]]]) -> Curve:
    accuracy = np.array([[accuracy for accuracy, _ in run] for run in runs])
    f1 = [[f1 for _, f1 in run if f1 is not None] for run in zip(*runs, strict=True)]
    return Curve(
        order,
        len(runs),
        tuple(accuracy.mean(axis=0).tolist()),
        tuple(float(np.mean(values)) if values else None for values in f1),
        tuple(accuracy.std(axis=0).tolist()),
        tuple(float(np.std(values)) if values else None for values in f1),
    )
