"""Explanations of predictions: the contributions of concepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import logit as log_odds

from obygaze_features.common.arrays import Array
from obygaze_features.errors import ExperimentError
from obygaze_models.data.stores import Stores
from obygaze_models.estimators.bottlenecks import ConceptBottleneck
from obygaze_models.estimators.concepts import RandomDirections
from obygaze_models.estimators.fusion import open_pipeline
from obygaze_models.estimators.trees import TreeArrays, as_tree
from obygaze_models.saved.about import seen_in_training
from obygaze_models.saved.model import Model, as_model, prediction_errors
from obygaze_models.saved.predict import open_for, predict_features, read_stored


@dataclass(frozen=True)
class Step:
    """A question on a path in a tree. A clip goes right if its value is above the threshold."""

    concept: str
    value: float
    threshold: float
    above: bool


@dataclass(frozen=True, eq=False)
class Attribution:
    """The contributions of K concepts to a model's predictions for N clips.

    Parameters
    ----------
    kind
        ``sum`` if weights times values, plus the intercept, add up to the logit. ``path`` if a
        tree decides.
    concepts
        The names of the concepts.
    labels
        The class that each clip's logit is for. If there are two classes, it is always the second;
        if there are more, it is the predicted class. For a tree, it is the last class.
    values
        The score of each clip on each concept, [N, K].
    weights
        The increase of the logit with each concept, [N, K]; None for a tree.
    intercept, logit
        The logit without the concepts and the logit with them, each [N]; None for a tree.
    steps
        The questions on each clip's path in a tree; None if the model is not a tree.
    """

    kind: Literal["sum", "path"]
    concepts: Sequence[str]
    labels: Sequence[str]
    values: Array
    weights: Any = None
    intercept: Any = None
    logit: Any = None
    steps: Sequence[Sequence[Step]] | None = None

    def of_clip(self, row: int) -> dict[str, Any]:
        """Return a clip's attribution as a dict.

        For a tree, it has the ``steps`` of the path from the root. For a sum over concepts, it has
        the ``label`` of the logit (the second of two classes, or else the predicted class), the
        ``contributions``, largest first, the ``intercept``, and their sum, the ``logit``.
        """
        if self.steps is not None:
            return {"steps": self.steps[row]}
        values = self.values[row].tolist()
        weights = self.weights[row].tolist()
        contributions = []
        for concept, value, weight in zip(self.concepts, values, weights, strict=True):
            contributions.append(
                {
                    "concept": concept,
                    "value": value,
                    "weight": weight,
                    "amount": value * weight,
                }
            )
        contributions.sort(key=lambda part: -abs(part["amount"]))
        return {
            "label": self.labels[row],
            "contributions": contributions,
            "intercept": float(self.intercept[row]),
            "logit": float(self.logit[row]),
        }


def bank_of(model: Any) -> Any:
    """Return the concept bank of a bottleneck, or None if the model has no named concepts."""
    bank = getattr(open_pipeline(model)[0], "bank_", None)
    return None if isinstance(bank, RandomDirections) or not hasattr(bank, "cavs_") else bank


def attribute(
    model: Any,
    X: Array,
    *,
    classes: Sequence[str] | None = None,
) -> Attribution | None:
    """Attribute predictions for clips X [N, D] to concepts.

    Return None unless the model is a bottleneck, or a pipeline that ends in one, whose head is
    linear or a tree.

    Parameters
    ----------
    model
        A `Model` that reads features, the folder of a saved one, or a fitted estimator. The
        log-odds of the model's ``about.cut`` are subtracted from the intercept.
    X
        The features of the clips.
    classes
        The name of each class, if the labels are 0, 1, ...; by default, those of the model's task,
        or else the labels themselves.
    """
    model = as_model(model)
    if classes is None and model.about.task is not None:
        classes = model.about.task.class_titles
    bottleneck, X = open_pipeline(model.estimator, X)
    if not isinstance(bottleneck, ConceptBottleneck):
        return None
    names = bottleneck.classes_.tolist()
    names = [str(code) if classes is None else classes[code] for code in names]
    concepts = bottleneck.concept_names()
    measured = bottleneck.concept_scores(X)
    head = bottleneck.head_
    tree = as_tree(head)
    if tree is not None:
        steps = [_trace(tree, scores, concepts) for scores in measured]
        return Attribution("path", concepts, names[-1:] * len(X), measured, steps=steps)
    if not hasattr(head, "coef_"):  # other kinds of heads have no contributions to show
        return None

    towards = np.ones(len(X), dtype=np.int64)
    if len(names) > 2:
        towards = bottleneck.predict_proba(X).argmax(axis=1)
    rows = np.minimum(towards, len(head.coef_) - 1)  # two classes share a row
    scale = getattr(head, "temperature_", 1.0)
    weights = head.coef_[rows] / scale
    intercept = head.intercept_[rows] / scale - log_odds(model.about.cut)
    logit = (weights * measured).sum(axis=1) + intercept
    labels = [names[code] for code in towards.tolist()]
    return Attribution("sum", concepts, labels, measured, weights, intercept, logit)


def _trace(tree: TreeArrays, scores: Array, concepts: Sequence[str]) -> list[Step]:
    """Return the questions on the path of a clip with these scores [K]."""
    compared = scores.astype(np.float32)  # as trees round them before they compare
    steps = []
    node = 0
    while tree.left[node] != -1:
        column = int(tree.feature[node])
        threshold = float(tree.threshold[node])
        above = float(compared[column]) > threshold
        steps.append(Step(concepts[column], float(scores[column]), threshold, above))
        node = int(tree.right[node] if above else tree.left[node])
    return steps


def explain_clips(
    model: Model | str | Path,
    store: Stores,
    ids: Sequence[str],
) -> list[dict[str, Any]]:
    """Explain a model's predictions for clips.

    Parameters
    ----------
    model
        A `Model`, or the folder of a saved one.
    store
        The store of the model's features, or several stores if the model was trained on several.
    ids
        The ids of the clips.

    Returns
    -------
    list of dict
        For each clip, its ``id``, its ``explanation``, and ``seen`` from `seen_in_training`. An
        explanation has the predicted ``label``, the ``probabilities`` of the classes, and ``why``:
        the `Attribution` of the clip, or None for other models, such as networks, and if a clip's
        features are all zero.
    """
    model = as_model(model)
    about = model.about
    if about.reads == "frames" or about.learned.target.is_numeric:
        raise ExperimentError(
            f"{model.where} ({about.estimator}) predicts numbers, or reads sequences of frames, "
            "but an explanation needs classes and one vector per clip. Use another model"
        )
    ids = list(dict.fromkeys(ids))
    opened = open_for(about, store, ids)
    have, features = read_stored(about, opened, ids)
    if missing := [clip for clip in ids if clip not in have]:
        raise ExperimentError(f"{opened.where} has no features for {missing[0]}. Omit this clip")
    titles = about.learned.class_titles
    with prediction_errors(model):
        shares = predict_features(model.estimator, about, features)
        attribution = attribute(model, features)
    seen = seen_in_training(about, opened.items, ids)
    explained = []
    for row, (clip, vector) in enumerate(zip(ids, features, strict=True)):
        why = None
        if attribution is not None and np.nan_to_num(vector).any():
            why = attribution.of_clip(row)
        explanation = {
            "label": titles[shares[row].argmax()],
            "probabilities": dict(zip(titles, shares[row].tolist(), strict=True)),
            "why": why,
        }
        explained.append({"id": clip, "explanation": explanation, "seen": seen[row]})
    return explained
