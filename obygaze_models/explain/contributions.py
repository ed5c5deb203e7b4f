"""Why a model says what it says of one clip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.directions import project
from obygaze_models.estimators.heads import LinearHead, TreeHead
from obygaze_models.estimators.mlp import MLPClassifier
from obygaze_models.estimators.pcbm import PCBMClassifier, PCBMHybrid
from obygaze_models.explain.gradients import logit_gradients, logits

__all__ = [
    "Contribution",
    "Explanation",
    "Neighbour",
    "Sensitivity",
    "Step",
    "TreePath",
    "WeightedSum",
    "explain_clip",
    "nearest_clips",
]

Array = NDArray[Any]


@dataclass(frozen=True)
class Contribution:
    """A concept's part: what the clip measures along it, its weight, and their product."""

    concept: str
    value: float
    weight: float
    amount: float


@dataclass(frozen=True)
class WeightedSum:
    """How a linear bottleneck comes to a class's logit.

    Of two classes the logit is that of the second against the first, whichever is predicted;
    of more, that of the predicted class.

    Parameters
    ----------
    label
        The class that the logit speaks for.
    contributions
        One a concept, in the bank's order.
    intercept
        What the logit is where all concepts measure 0.
    residual
        What the features add past the concepts in a `PCBMHybrid`; None in a plain bottleneck.
    logit
        The sum of all of these.
    """

    label: str
    contributions: tuple[Contribution, ...]
    intercept: float
    residual: float | None
    logit: float


@dataclass(frozen=True)
class Step:
    """A question on a tree's path; above the threshold a clip goes right, else left."""

    concept: str
    value: float
    threshold: float
    above: bool


@dataclass(frozen=True)
class TreePath:
    """A clip's way from the root, and the shares of the classes where it ends."""

    steps: tuple[Step, ...]
    leaf: int
    shares: dict[str, float]


@dataclass(frozen=True)
class Sensitivity:
    """How a network's logit depends on concepts, near one clip.

    Parameters
    ----------
    label, logit
        As in `WeightedSum`; before any temperature.
    contributions
        Gradient times input along each direction: the weight is the logit's derivative along
        it, the value is the clip's distance from its hyperplane. The amount is what the logit
        would lose, to first order, if the clip were moved onto that hyperplane. Directions
        overlap, so the amounts do not add up to the logit.
    """

    label: str
    contributions: tuple[Contribution, ...]
    logit: float


@dataclass(frozen=True)
class Neighbour:
    """A clip, and the cosine of its features with those of the clip that is explained."""

    id: str
    cosine: float


@dataclass(frozen=True)
class Explanation:
    """What a model says of a clip, and why.

    `why` is None for models that have no concepts, and for networks where no bank is given.
    """

    label: str
    probabilities: dict[str, float]
    why: WeightedSum | TreePath | Sensitivity | None


def explain_clip(
    model: Any, x: Array, *, classes: Sequence[str] | None = None, bank: Any = None
) -> Explanation:
    """Explain what a model says of one clip.

    Parameters
    ----------
    model
        A fitted estimator that reads features.
    x
        One clip's features [D].
    classes
        The name of each label from 0 on, where labels are numbers; by default the labels.
    bank
        Concepts by which to read a network: a fitted `ConceptBank`. Bottlenecks have their own.
    """
    X = np.asarray(x)[None]  # noqa: N806
    probabilities = model.predict_proba(X)[0]
    labels = [str(one) if classes is None else classes[one] for one in model.classes_.tolist()]
    predicted = int(probabilities.argmax())
    towards = 1 if len(labels) == 2 else predicted
    why: WeightedSum | TreePath | Sensitivity | None = None
    if isinstance(model, PCBMClassifier | PCBMHybrid):
        measured = project(model.bank_, X, model.output)[0]
        if isinstance(model.head_, TreeHead):
            why = _path(model.head_, measured, _names(model.bank_), labels)
        else:
            why = _sum(model, model.head_, measured, X, labels, towards)
    elif isinstance(model, MLPClassifier) and bank is not None:
        why = _sensitivity(model, X, bank, labels, towards)
    return Explanation(
        labels[predicted], dict(zip(labels, map(float, probabilities), strict=True)), why
    )


def nearest_clips(
    x: Array, ids: Sequence[str], features: Array, count: int = 5
) -> tuple[Neighbour, ...]:
    """The clips whose features point most nearly the same way, the nearest first.

    Parameters
    ----------
    x
        One clip's features [D].
    ids, features
        The clips to look among, and their features [N, D].
    count
        How many at most.
    """
    wanted = np.asarray(x, dtype=np.float64)
    lengths = np.linalg.norm(features, axis=1).astype(np.float64) * np.linalg.norm(wanted)
    cosines = np.divide(features @ wanted, lengths, out=np.zeros(len(ids)), where=lengths > 0)
    order = np.argsort(-cosines, kind="stable")[:count]
    return tuple(Neighbour(ids[row], float(cosines[row])) for row in order.tolist())


def _path(head: TreeHead, measured: Array, names: list[str], labels: list[str]) -> TreePath:
    columns = measured.astype(np.float32)  # as the tree compares
    steps, node = [], 0
    while head.left[node] != -1:
        column, threshold = int(head.feature[node]), float(head.threshold[node])
        above = bool(columns[column] > threshold)
        steps.append(Step(names[column], float(measured[column]), threshold, above))
        node = int(head.right[node] if above else head.left[node])
    shares = dict(zip(labels, map(float, head.value[node]), strict=True))
    return TreePath(tuple(steps), node, shares)


def _sum(
    model: PCBMClassifier | PCBMHybrid,
    head: LinearHead,
    measured: Array,
    X: Array,  # noqa: N803
    labels: list[str],
    towards: int,
) -> WeightedSum:
    row = 0 if len(head.coef) == 1 else towards  # two classes share a row
    weights, intercept = head.coef[row], float(head.intercept[row])
    amounts = weights * measured
    residual = None
    if isinstance(model, PCBMHybrid):
        # It has a row a class also where there are two, whose logit is their difference.
        left = model.residual_.logits(np.asarray(X, dtype=np.float64))[0]
        residual = float(left[1] - left[0] if len(labels) == 2 else left[towards])
    return WeightedSum(
        labels[towards],
        _contributions(_names(model.bank_), measured, weights),
        intercept,
        residual,
        float(amounts.sum()) + intercept + (residual or 0.0),
    )


def _sensitivity(
    model: MLPClassifier,
    X: Array,  # noqa: N803
    bank: Any,
    labels: list[str],
    towards: int,
) -> Sensitivity:
    if bank.cavs_.shape[1] != X.shape[1]:
        raise ExperimentError(
            f"the bank's directions have {bank.cavs_.shape[1]} numbers, the clip's features "
            f"{X.shape[1]}; take a bank of the same features"
        )
    gradient = logit_gradients(model, X, towards)[0]
    logit = logits(model, X)[0]
    against = 0.0
    if len(labels) == 2:
        gradient, against = gradient - logit_gradients(model, X, 0)[0], logit[0]
    measured = project(bank, X, "distance")[0]
    contributions = _contributions(_names(bank), measured, bank.cavs_ @ gradient)
    return Sensitivity(labels[towards], contributions, float(logit[towards] - against))


def _names(bank: Any) -> list[str]:
    return [str(name) for name in bank.get_feature_names_out()]


def _contributions(names: list[str], values: Array, weights: Array) -> tuple[Contribution, ...]:
    return tuple(
        Contribution(name, value, weight, value * weight)
        for name, value, weight in zip(names, values.tolist(), weights.tolist(), strict=True)
    )
