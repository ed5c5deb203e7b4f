"""Explanations of predictions: the contributions of concepts, and the most similar clips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import logit as log_odds

from obygaze_features.errors import ExperimentError
from obygaze_features.store.nearest import Match, find_nearest
from obygaze_models.data.stores import Sources, Stores
from obygaze_models.estimators.bottlenecks import ConceptBottleneck
from obygaze_models.estimators.classes import move_cut
from obygaze_models.estimators.concepts import RandomDirections
from obygaze_models.estimators.fusion import unfuse
from obygaze_models.estimators.trees import TreeArrays, as_tree
from obygaze_models.saved.about import seen_in_training
from obygaze_models.saved.model import load_model, prediction_errors
from obygaze_models.saved.predict import clips_of, open_for, read_input
from obygaze_models.scoring.metrics import Array

Kind = Literal["sum", "path"]
NEAREST = 5
"""The number of most similar clips that are listed for a clip."""


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
        ``sum`` if weights times values, plus the intercept, add up to the logit. ``path`` if the
        model asks a tree's questions.
    concepts
        The names of the concepts.
    labels
        The class that each clip's logit is for. If there are two classes, it is always the second;
        if there are more, it is the predicted class.
    values
        The score of each clip on each concept, [N, K].
    weights
        The increase of the logit with each concept, [N, K]; None for a tree.
    intercept, logit
        The logit without the concepts and the logit with them, each [N]; None for a tree.
    steps, leaves
        The questions on each clip's path in a tree, and the path's last node; None if the model is
        not a tree.
    """

    kind: Kind
    concepts: tuple[str, ...]
    labels: list[str]
    values: Array
    weights: Array | None = None
    intercept: Array | None = None
    logit: Array | None = None
    steps: Sequence[Sequence[Step]] | None = None
    leaves: list[int] | None = None

    @property
    def amounts(self) -> Array | None:
        """The contribution of each concept, [N, K]."""
        return None if self.weights is None else np.asarray(self.weights * self.values)


def bank_of(model: Any) -> Any:
    """Return the concept bank of a bottleneck, or None if the model has no named concepts."""
    bank = getattr(unfuse(model)[0], "bank_", None)
    return None if isinstance(bank, RandomDirections) or not hasattr(bank, "cavs_") else bank


def attribute(
    model: Any,
    X: Array,
    *,
    classes: Sequence[str] | None = None,
    cut: float = 0.5,
) -> Attribution | None:
    """Attribute predictions for clips X [N, D] to concepts; None for models without concepts.

    Parameters
    ----------
    model
        A fitted estimator that reads features.
    X
        The features of the clips.
    classes
        The name of each class, if the labels are 0, 1, ...; by default, the labels themselves.
    cut
        The threshold for the second of two classes. Its log-odds are subtracted from the intercept.
    """
    model, X = unfuse(model, X)
    names = _class_names(model, classes)
    if isinstance(model, ConceptBottleneck):
        measured = model.concept_scores(X)
        if (tree := tree_of(model)) is not None:
            concepts, labels = model.concept_names(), names[-1:] * len(X)
            steps = [_trace(tree, scores, concepts) for scores in measured]
            leaves = tree.apply(measured).tolist()
            return Attribution("path", concepts, labels, measured, steps=steps, leaves=leaves)
        if hasattr(model.head_, "coef_"):  # other kinds of heads have no contributions to show
            return _sums(model, measured, X, names, cut)
    return None


def _class_names(model: Any, classes: Sequence[str] | None) -> list[str]:
    return [str(c) if classes is None else classes[c] for c in model.classes_.tolist()]


def tree_of(model: Any) -> TreeArrays | None:
    """Return the tree of a bottleneck, or None if the model is not a bottleneck with a tree."""
    is_bottleneck = isinstance(model, ConceptBottleneck)
    return as_tree(model.head_) if is_bottleneck else None


def _trace(tree: TreeArrays, scores: Array, concepts: Sequence[str]) -> tuple[Step, ...]:
    """Return the questions on the path of a clip with these scores [K]."""
    compared = _as_compared(scores)
    steps, node = [], 0
    while tree.left[node] != -1:
        column, threshold = int(tree.feature[node]), float(tree.threshold[node])
        above = bool(compared[column] > threshold)
        steps.append(Step(concepts[column], float(scores[column]), threshold, above))
        node = int(tree.right[node] if above else tree.left[node])
    return tuple(steps)


def _as_compared(scores: Array) -> Array:
    """Return the scores rounded to float32, as trees round them before they compare."""
    return scores.astype(np.float32).astype(np.float64)


def _sums(
    model: ConceptBottleneck, measured: Array, X: Array, names: list[str], cut: float
) -> Attribution:
    towards = _towards(model, X)
    head = model.head_
    rows = np.zeros_like(towards) if len(head.coef_) == 1 else towards  # two classes share a row
    scale = getattr(head, "temperature_", 1.0)
    weights, intercept = head.coef_[rows] / scale, head.intercept_[rows] / scale - log_odds(cut)
    logit = (weights * measured).sum(axis=1) + intercept
    labels = [names[code] for code in towards.tolist()]
    return Attribution("sum", model.concept_names(), labels, measured, weights, intercept, logit)


def _towards(model: Any, X: Array) -> Array:
    """Return the class that each clip's logit is for: the second of two, else the predicted."""
    if len(model.classes_) == 2:
        return np.ones(len(X), dtype=np.int64)
    return np.asarray(model.predict_proba(X).argmax(axis=1))


def explain_clips(folder: Path, store: Stores, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Explain a saved model's predictions for clips.

    Parameters
    ----------
    folder
        A folder that `save_model` wrote.
    store
        The store of the model's features, or several stores if the model was trained on several.
    ids
        The ids of the clips.

    Returns
    -------
    list of dict
        For each clip, its ``id``, its ``explanation`` from `explain_rows`, the ``nearest`` clips
        from `find_nearest`, and ``seen`` from `seen_in_training`. If a clip's features
        are all zero, the ``why`` of its explanation is None.
    """
    fitted, about = load_model(folder)
    if about.reads == "frames" or about.learned.target.is_numeric:
        raise ExperimentError(
            f"{folder} ({about.estimator}) predicts numbers, or reads sequences of frames, but "
            "an explanation needs classes and one vector per clip"
        )
    opened, array = open_for(about, store), about.needs.array
    ids = clips_of(opened, list(dict.fromkeys(ids)))
    have, features = read_input(about, opened, ids)
    if missing := [clip for clip in ids if clip not in have]:
        raise ExperimentError(f"{opened.where} has no features for {missing[0]}. Omit this clip")
    titles = about.learned.class_titles
    with prediction_errors(folder, fitted):
        explanations = explain_rows(fitted, features, classes=titles, cut=about.cut)
    seen = seen_in_training(about, opened.items, ids)
    is_one = "parts" not in about.needs.backbone
    lists_nearest = is_one and _has_vectors(opened, array)
    explained = []
    for clip, vector, explanation, state in zip(ids, features, explanations, seen, strict=True):
        is_silent = not np.nan_to_num(vector).any()
        matches = list[Match]()
        if lists_nearest and not is_silent:
            matches = find_nearest(opened.stores, vector, array=array, exclude=[clip], top=NEAREST)
        explained.append(
            {
                "id": clip,
                "explanation": explanation | {"why": None} if is_silent else explanation,
                "nearest": [{"id": match.id, "cosine": match.cosine} for match in matches],
                "seen": state,
            }
        )
    return explained


def _has_vectors(store: Sources, array: str) -> bool:
    """Return True if the store has one vector per row in an array."""
    return any(spec.name == array and len(spec.shape) == 1 for spec in store.specs)


def explain_rows(
    model: Any,
    X: Array,
    *,
    classes: Sequence[str] | None = None,
    cut: float = 0.5,
) -> list[dict[str, Any]]:
    """Explain a model's predictions for clips.

    Parameters
    ----------
    model
        A fitted estimator that reads features.
    X
        The features of the clips, [N, D].
    classes
        The name of each class, if the labels are 0, 1, ...; by default, the labels themselves.
    cut
        The threshold for the second of two classes.

    Returns
    -------
    list of dict
        For each clip, the predicted ``label``, the ``probabilities`` of the classes, and ``why``.
        For a tree, ``why`` has the ``steps`` of the path from the root, the last node (``leaf``),
        and the ``shares`` of the classes in that node. For a sum over concepts, ``why`` has the
        ``label`` of the logit (the second of two classes, or else the predicted class), the
        ``contributions``, largest first, the ``intercept``, and their sum, the ``logit``. For other
        models, such as networks, ``why`` is None.
    """
    model, X = unfuse(model, X)
    labels = _class_names(model, classes)
    tree = tree_of(model)
    probabilities = move_cut(model.predict_proba(X), cut)
    attribution = attribute(model, X, classes=classes, cut=cut)
    explanations = []
    for row in range(len(X)):
        own = dict(zip(labels, probabilities[row].tolist(), strict=True))
        reasons = None if attribution is None else _why(attribution, row, tree, labels)
        label = labels[int(probabilities[row].argmax())]
        explanations.append({"label": label, "probabilities": own, "why": reasons})
    return explanations


def _why(
    parts: Attribution, row: int, tree: TreeArrays | None, labels: Sequence[str]
) -> dict[str, Any]:
    if tree is not None and parts.steps is not None and parts.leaves is not None:
        steps, leaf = parts.steps[row], parts.leaves[row]
        shares = dict(zip(labels, tree.value[leaf].tolist(), strict=True))
        return {"steps": steps, "leaf": leaf, "shares": shares}
    own: dict[str, Any] = {
        name: None if (column := getattr(parts, name)) is None else column[row].tolist()
        for name in ("values", "weights", "intercept", "logit")
    }
    contributions = [
        {"concept": name, "value": value, "weight": weight, "amount": value * weight}
        for name, value, weight in zip(
            parts.concepts, own.pop("values"), own.pop("weights"), strict=True
        )
    ]
    contributions.sort(key=lambda part: -abs(part["amount"]))
    return {"label": parts.labels[row], "contributions": contributions, **own}
