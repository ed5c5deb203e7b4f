"""What models make of many clips' concepts at once, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.bottlenecks import ConceptBottleneck, HybridBottleneck
from obygaze_models.estimators.concepts import RandomDirections, project
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.estimators.trees import TreeArrays, as_tree
from obygaze_models.explain.gradients import logit_gradients, logits

__all__ = ["Kind", "Reading", "Step", "bank_of", "read_clips"]

Array = NDArray[Any]
Kind = Literal["sum", "path", "sensitivity"]


@dataclass(frozen=True)
class Step:
    """A question on a tree's path; above the threshold a clip goes right, else left."""

    concept: str
    value: float
    threshold: float
    above: bool


@dataclass(frozen=True, eq=False)
class Reading:
    """How a model comes to what it says of N clips, by K concepts.

    Parameters
    ----------
    kind
        ``sum``: weights times values, intercept and residual add up to the logit. ``path``: a
        tree's questions. ``sensitivity``: the same products of a network's derivatives, which
        do not add up.
    concepts
        Their names.
    labels
        For each clip the class whose logit it is: of two classes the second against the first,
        whichever is predicted; of more, the predicted one.
    values
        What each clip measures along each concept, [N, K].
    weights
        What a logit gains with a concept, [N, K]; None for a tree.
    intercept, residual, logit
        [N]; what is at no concept's account, what a `HybridBottleneck` adds past its concepts, and
        the whole; None where there is no such thing.
    steps, leaves
        A tree's questions to each clip, and the node where it ends; None for others.
    """

    kind: Kind
    concepts: tuple[str, ...]
    labels: list[str]
    values: Array
    weights: Array | None = None
    intercept: Array | None = None
    residual: Array | None = None
    logit: Array | None = None
    steps: list[list[Step]] | None = None
    leaves: list[int] | None = None

    @property
    def amounts(self) -> Array | None:
        """Each concept's part, [N, K]."""
        return None if self.weights is None else np.asarray(self.weights * self.values)


def bank_of(model: Any) -> Any:
    """The concepts that a model decides by; None if it has none that mean something."""
    bank = getattr(model, "bank_", None)
    return None if isinstance(bank, RandomDirections) else bank


def read_clips(
    model: Any,
    X: Array,
    *,
    classes: Sequence[str] | None = None,
    bank: Any = None,
) -> Reading | None:
    """Read what a model makes of clips X [N, D]; None where no concepts are to be had.

    Parameters
    ----------
    model
        A fitted estimator that reads features.
    X
        The clips' features.
    classes
        The name of each label from 0 on, where labels are numbers; by default the labels.
    bank
        Concepts by which to read a network: a fitted `ConceptBank`. Bottlenecks have their own.
    """
    names = [str(one) if classes is None else classes[one] for one in model.classes_.tolist()]
    if isinstance(model, ConceptBottleneck | HybridBottleneck):
        measured = model.concept_scores(X)
        tree = as_tree(model.head_)
        if tree is not None:
            return _paths(tree, measured, model.concept_names(), names[-1:] * len(X))
        if not hasattr(model.head_, "coef_"):
            return None  # another kind of head has no parts to show
        return _sums(model, measured, X, names)
    if isinstance(model, MLPProbe) and bank is not None:
        return _sensitivities(model, X, bank, names)
    return None


def _names(bank: Any) -> tuple[str, ...]:
    return tuple(str(name) for name in bank.get_feature_names_out())


def _paths(head: TreeArrays, measured: Array, names: tuple[str, ...], labels: list[str]) -> Reading:
    columns = measured.astype(np.float32)  # as the tree compares
    every, leaves = [], []
    for row in range(len(columns)):
        steps, node = [], 0
        while head.left[node] != -1:
            column, threshold = int(head.feature[node]), float(head.threshold[node])
            above = bool(columns[row, column] > threshold)
            steps.append(Step(names[column], float(measured[row, column]), threshold, above))
            node = int(head.right[node] if above else head.left[node])
        every.append(steps)
        leaves.append(node)
    return Reading("path", names, labels, measured, steps=every, leaves=leaves)


def _sums(
    model: ConceptBottleneck | HybridBottleneck,
    measured: Array,
    X: Array,
    names: list[str],
) -> Reading:
    towards = _towards(model, X)
    head = model.head_
    rows = np.zeros_like(towards) if len(head.coef_) == 1 else towards  # two classes share a row
    weights, intercept = head.coef_[rows], head.intercept_[rows]
    residual = None
    logit = (weights * measured).sum(axis=1) + intercept
    if isinstance(model, HybridBottleneck):
        # It has a row a class also where there are two, whose logit is their difference.
        left = model.residual_logits(X)
        residual = left[np.arange(len(X)), towards] - (left[:, 0] if len(names) == 2 else 0)
        logit = logit + residual
    labels = [names[one] for one in towards.tolist()]
    return Reading(
        "sum", model.concept_names(), labels, measured, weights, intercept, residual, logit
    )


def _sensitivities(
    model: MLPProbe,
    X: Array,
    bank: Any,
    names: list[str],
) -> Reading:
    if bank.cavs_.shape[1] != X.shape[1]:
        raise ExperimentError(
            f"the bank's directions have {bank.cavs_.shape[1]} numbers, the clip's features "
            f"{X.shape[1]}; take a bank of the same features"
        )
    towards, rows = _towards(model, X), np.arange(len(X))
    gradients = np.stack([logit_gradients(model, X, code) for code in range(len(names))])
    gradient, said = gradients[towards, rows], logits(model, X)
    logit = said[rows, towards]
    if len(names) == 2:
        gradient, logit = gradient - gradients[0], logit - said[:, 0]
    weights = gradient @ bank.cavs_.T
    labels = [names[one] for one in towards.tolist()]
    measured = project(bank, X, "distance")
    return Reading("sensitivity", _names(bank), labels, measured, weights, logit=logit)


def _towards(model: Any, X: Array) -> Array:
    """The class that each logit speaks for."""
    if len(model.classes_) == 2:
        return np.ones(len(X), dtype=np.int64)
    return np.asarray(model.predict_proba(X).argmax(axis=1))
