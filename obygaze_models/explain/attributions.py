"""Explanations of predictions: the contributions of concepts, and the most similar clips."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import logit as log_odds

from obygaze_features.errors import ExperimentError
from obygaze_features.store import Store
from obygaze_models.data.stores import Stores
from obygaze_models.estimators.bottlenecks import ConceptBottleneck
from obygaze_models.estimators.classes import move_cut
from obygaze_models.estimators.concepts import RandomDirections
from obygaze_models.estimators.fusion import StoreFusion, unfuse
from obygaze_models.estimators.trees import TreeArrays, as_tree
from obygaze_models.saved.about import seen_in_training
from obygaze_models.saved.inference import (
    feature_blocks,
    features_of,
    open_for,
    require_clips,
)
from obygaze_models.saved.persistence import load_model
from obygaze_models.scoring.metrics import Array

Kind = Literal["sum", "path", "stores"]


@dataclass(frozen=True)
class Step:
    """A question on a path in a tree. A clip goes right if its value is above the threshold."""

    concept: str
    value: float
    threshold: float
    above: bool


@dataclass(frozen=True)
class Condition:
    """A condition that a tree's path sets on a concept, in percentiles of clips.

    Parameters
    ----------
    concept
        The name of the concept.
    percentile
        The percentage of clips that score lower than the explained clip; ties count half.
    low, high
        The lowest and the highest percentile that the path allows; None if there is no bound.
    """

    concept: str
    percentile: float
    low: float | None
    high: float | None

    @property
    def words(self) -> str:
        """A phrase such as "enough Body", which does not say if the threshold is high or low."""
        bounds = (("enough", self.low), ("not too much", self.high))
        return f"{', '.join(word for word, bound in bounds if bound is not None)} {self.concept}"

    @property
    def whole(self) -> tuple[int, int | None, int | None]:
        """The percentile, `low` and `high` as integers, with the bounds rounded outwards."""
        return (
            round(self.percentile),
            None if self.low is None else math.floor(self.low),
            None if self.high is None else math.ceil(self.high),
        )

    def sentence(self, clips: str) -> str:
        """Return a sentence with the condition's percentages. `clips` is a noun for the clips."""
        percentile, low, high = self.whole
        bounds = []
        if low is not None:
            bounds.append(f"{low}% or more")
        if high is not None:
            bounds.append(f"{high}% or less")
        return (
            f"{self.words}: more of it than in {percentile}% of {clips}; "
            f"the tree requires {' and '.join(bounds)}"
        )


@dataclass(frozen=True, eq=False)
class Attribution:
    """The contributions of K concepts to a model's predictions for N clips.

    Parameters
    ----------
    kind
        ``sum`` if weights times values, plus the intercept, add up to the logit. ``path`` if the
        model asks a tree's questions. ``stores`` for a late fusion, a sum of the log-odds from
        each store. There, stores take the place of concepts.
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
    """Attribute predictions for clips X [N, D] to concepts or stores; None for other models.

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
    if isinstance(model, StoreFusion) and len(names) == 2:
        logits, head = model.logits_of(model.models_, X), model.stacker_
        weights = np.where(model.lacks(X), 0, head.coef_[0])  # 0 if a store lacks the clip
        intercept = logits @ head.coef_[0] + head.intercept_[0] - log_odds(cut)
        total, stores = intercept.copy(), tuple(model.use or model.stores)
        intercept -= (weights * logits).sum(axis=1)
        labels = names[-1:] * len(X)
        return Attribution("stores", stores, labels, logits, weights, intercept, logit=total)
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


def join_steps(
    steps: Sequence[Step], concepts: Sequence[str], values: Array, row: int
) -> tuple[Condition, ...]:
    """Return a condition for each concept on a path, in the order of their first questions.

    Parameters
    ----------
    steps
        The path of a clip. Its answers are kept, even if rounded numbers in a file contradict them.
    concepts, values
        The names of the columns, and the scores [N, K] of the clips that the percentiles refer to.
        All scores must be computed together, because separate computations differ in the last bits.
    row
        The row of the clip.
    """
    conditions = []
    for concept in dict.fromkeys(step.concept for step in steps):
        scores = _as_compared(values[:, concepts.index(concept)])
        less, up_to = (scores < scores[row]).sum(), (scores <= scores[row]).sum()
        lows, highs = list[int](), list[int]()
        for step in steps:
            if step.concept == concept:
                count = (scores <= step.threshold).sum()
                (lows if step.above else highs).append(count)
        n, middle = len(scores), float((less + up_to) / 2)
        low = 100 * float(min(max(lows), less)) / n if lows else None
        high = 100 * float(max(min(highs), up_to)) / n if highs else None
        conditions.append(Condition(concept, 100 * middle / n, low, high))
    return tuple(conditions)


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


def explain_clips(
    folder: Path, store: Stores, ids: Sequence[str], *, nearest: int = 5
) -> list[dict[str, Any]]:
    """Explain a saved model's predictions for clips.

    Parameters
    ----------
    folder
        A folder that `save_model` wrote.
    store
        The store of the model's features, or several stores if the model was trained on several.
    ids
        The ids of the clips.
    nearest
        The number of similar clips to list, by the cosine of their features. The features of
        several stores are scaled to the same variance.

    Returns
    -------
    list of dict
        For each clip, its ``id``, its ``explanation`` from `explain_rows`, the ``nearest`` clips
        from `nearest_clips`, and ``seen_in_training`` from `seen_in_training`. If a clip's features
        are all zero, the ``why`` of its explanation is None.
    """
    fitted, about = load_model(folder)
    about.require_classes("an explanation")
    info = about.description
    if info.reads == "frames":
        raise ExperimentError(
            f"{folder} ({info.estimator}) reads sequences of frames, but concepts and nearest "
            "clips need one vector per clip. Use om.predict_frames to score frames"
        )
    opened = open_for(about, store)
    require_clips(opened, ids)
    ids = list(dict.fromkeys(ids))
    has_percentiles = tree_of(unfuse(fitted)[0]) is not None
    stored, features = features_of(about, opened, opened.ids if has_percentiles else ids)
    row_of = {clip: row for row, clip in enumerate(stored)}
    if lacking := [clip for clip in ids if clip not in row_of]:
        raise ExperimentError(f"{opened.where} has no features for {lacking[0]}. Omit this clip")
    rows = [row_of[clip] for clip in ids]
    explanations = explain_rows(fitted, features, rows, classes=info.classes or None, cut=info.cut)
    own = features[rows]
    explanations = [
        explanation if np.nan_to_num(vector).any() else explanation | {"why": None}
        for vector, explanation in zip(own, explanations, strict=True)
    ]
    similar: list[list[dict[str, Any]]] = [[] for _ in ids]
    if nearest:
        similar = _find_similar(fitted, about, opened, own, nearest + 1)
    seen = seen_in_training(about, opened.items, ids)
    columns = zip(ids, explanations, similar, seen, strict=True)
    return [
        {
            "id": clip,
            "explanation": explanation,
            "nearest": [match for match in matches if match["id"] != clip][:nearest],
            "seen_in_training": state,
        }
        for clip, explanation, matches, state in columns
    ]


def _find_similar(
    model: Any, about: Mapping[str, Any], store: Store, own: Array, count: int
) -> list[list[dict[str, Any]]]:
    """Find the clips of a store nearest to each feature vector, reading block by block."""
    is_fusion = isinstance(model, StoreFusion)
    targets = model.scaled(own) if is_fusion else own
    similar: list[list[dict[str, Any]]] = [[] for _ in own]
    for clips, features in feature_blocks(about, store, store.ids):
        features = model.scaled(features) if is_fusion else features
        near = nearest_clips(targets, clips, features, count)
        # Ties stay in row order.
        similar = [
            heapq.nsmallest(count, first + second, key=_by_cosine)
            for first, second in zip(similar, near, strict=True)
        ]
    return similar


def _by_cosine(match: Mapping[str, Any]) -> float:
    return -float(match["cosine"])


def explain_rows(
    model: Any,
    X: Array,
    rows: Sequence[int],
    *,
    classes: Sequence[str] | None = None,
    cut: float = 0.5,
) -> list[dict[str, Any]]:
    """Explain a model's predictions for some clips.

    Parameters
    ----------
    model
        A fitted estimator that reads features.
    X
        The features of all clips that a tree's percentiles refer to, [N, D].
    rows
        The rows of the clips to explain.
    classes
        The name of each class, if the labels are 0, 1, ...; by default, the labels themselves.
    cut
        The threshold for the second of two classes.

    Returns
    -------
    list of dict
        For each clip, the predicted ``label``, the ``probabilities`` of the classes, and ``why``.
        For a tree, ``why`` has the ``steps`` of the path from the root, the ``conditions`` that
        summarise them, the last node (``leaf``), and the ``shares`` of the classes in that node.
        For a sum over concepts or stores, ``why`` has the ``label`` of the logit (the second of two
        classes, or else the predicted class), the ``contributions``, largest first, the
        ``intercept``, and their sum, the ``logit``. For other models, such as networks, ``why`` is
        None.
    """
    model, X = unfuse(model, X)
    labels = _class_names(model, classes)
    if (tree := tree_of(model)) is None:  # a tree needs all rows at once for equal last bits
        X, rows = X[list(rows)], range(len(rows))
    probabilities = move_cut(model.predict_proba(X), cut)
    attribution = attribute(model, X, classes=classes, cut=cut)
    explanations = []
    for row in rows:
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
        conditions = join_steps(steps, parts.concepts, parts.values, row)
        shares = dict(zip(labels, tree.value[leaf].tolist(), strict=True))
        return {"steps": steps, "conditions": conditions, "leaf": leaf, "shares": shares}
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


def nearest_clips(
    x: Array, ids: Sequence[str], features: Array, count: int = 5
) -> list[list[dict[str, Any]]]:
    """Return the ``id`` and ``cosine`` of the clips with the most similar features, best first.

    Parameters
    ----------
    x
        The features of M clips, [M, D]. The result has a list for each of them.
    ids, features
        The ids of the clips to search, and their features [N, D].
    count
        The maximum number of clips in each list.
    """
    targets, wide = np.asarray(x, dtype=np.float64), np.asarray(features, dtype=np.float64)
    norms = np.linalg.norm(features, axis=1).astype(np.float64)
    nearest = []
    for target in targets:
        lengths = norms * np.linalg.norm(target)
        cosines = np.divide(wide @ target, lengths, out=np.zeros(len(ids)), where=lengths > 0)
        order = np.argsort(-cosines, kind="stable")[:count].tolist()
        nearest.append([{"id": ids[row], "cosine": float(cosines[row])} for row in order])
    return nearest
