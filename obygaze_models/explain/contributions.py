"""Why a model says what it says of one clip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.estimators.trees import as_tree
from obygaze_models.explain.readings import Reading, Step, read_clips

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
    X = np.asarray(x)[None]
    probabilities = model.predict_proba(X)[0]
    labels = [str(one) if classes is None else classes[one] for one in model.classes_.tolist()]
    reading = read_clips(model, X, classes=classes, bank=bank)
    return Explanation(
        labels[int(probabilities.argmax())],
        dict(zip(labels, map(float, probabilities), strict=True)),
        None if reading is None else _why(reading, model, labels),
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


def _why(reading: Reading, model: Any, labels: list[str]) -> WeightedSum | TreePath | Sensitivity:
    """The first clip of a reading."""
    if reading.steps is not None and reading.leaves is not None:
        leaf, tree = reading.leaves[0], as_tree(model.head_)
        assert tree is not None
        shares = dict(zip(labels, map(float, tree.value[leaf]), strict=True))
        return TreePath(tuple(reading.steps[0]), leaf, shares)
    assert reading.weights is not None
    assert reading.logit is not None
    contributions = tuple(
        Contribution(name, value, weight, value * weight)
        for name, value, weight in zip(
            reading.concepts, reading.values[0].tolist(), reading.weights[0].tolist(), strict=True
        )
    )
    label, logit = reading.labels[0], float(reading.logit[0])
    if reading.intercept is None:
        return Sensitivity(label, contributions, logit)
    residual = None if reading.residual is None else float(reading.residual[0])
    return WeightedSum(label, contributions, float(reading.intercept[0]), residual, logit)
