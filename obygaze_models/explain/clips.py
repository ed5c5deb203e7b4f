"""Explanations of single clips, and those of a saved model on a store's clips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_features.store import open_store
from obygaze_models.explain.attributions import (
    Attribution,
    Condition,
    Step,
    attribute,
    join_steps,
    tree_of,
)
from obygaze_models.saved.inference import check_features, features_of
from obygaze_models.saved.persistence import load_model

Array = NDArray[Any]


@dataclass(frozen=True)
class Contribution:
    """A concept's part: the clip's score on it, its weight, and their product."""

    concept: str
    value: float
    weight: float
    amount: float


@dataclass(frozen=True)
class WeightedSum:
    """The parts of a linear bottleneck's logit.

    With two classes the logit is that of the second against the first, whichever is predicted;
    with more, that of the predicted class.

    Parameters
    ----------
    label
        The class of the logit.
    contributions
        One for each concept, the largest first.
    intercept
        The logit of a clip with 0 on all concepts.
    residual
        What the features add past the concepts in a `HybridBottleneck`; else None.
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
    """A clip's path from the root, and the shares of the classes in its last node.

    `conditions` are the same questions joined by concept.
    """

    steps: tuple[Step, ...]
    conditions: tuple[Condition, ...]
    leaf: int
    shares: dict[str, float]


@dataclass(frozen=True)
class Neighbour:
    """A clip, and the cosine of its features with those of the explained clip."""

    id: str
    cosine: float


@dataclass(frozen=True)
class Explanation:
    """A model's prediction of a clip and its reasons.

    `why` is None for models whose parts do not add up to the prediction, such as networks.
    """

    label: str
    probabilities: dict[str, float]
    why: WeightedSum | TreePath | None


def explain_clip(model: Any, x: Array, *, classes: Sequence[str] | None = None) -> Explanation:
    """Explain a model's prediction of a clip x [D] alone; see `explain_rows`."""
    return explain_rows(model, np.asarray(x)[None], [0], classes=classes)[0]


def explain_rows(
    model: Any, X: Array, rows: Sequence[int], *, classes: Sequence[str] | None = None
) -> list[Explanation]:
    """Explain a model's predictions of some clips.

    Parameters
    ----------
    model
        A fitted estimator that reads features.
    X
        The features of all clips that a tree's percentiles are of, [N, D].
    rows
        The clips to explain.
    classes
        The name of each label from 0 on, where labels are numbers; by default the labels.
    """
    labels = [str(c) if classes is None else classes[c] for c in model.classes_.tolist()]
    if (tree := tree_of(model)) is None:  # else in one computation: others differ in the last bits
        X, rows = X[list(rows)], range(len(rows))
    probabilities, attribution = model.predict_proba(X), attribute(model, X, classes=classes)
    explanations = []
    for row in rows:
        reasons: WeightedSum | TreePath | None = None
        if tree is not None and attribution and attribution.steps and attribution.leaves:
            steps, leaf = attribution.steps[row], attribution.leaves[row]
            shares = dict(zip(labels, map(float, tree.value[leaf]), strict=True))
            conditions = join_steps(steps, attribution.concepts, attribution.values, row)
            reasons = TreePath(tuple(steps), conditions, leaf, shares)
        elif attribution:
            reasons = _weighted_sum(attribution, row)
        own = probabilities[row]
        shares = dict(zip(labels, map(float, own), strict=True))
        explanations.append(Explanation(labels[int(own.argmax())], shares, reasons))
    return explanations


def nearest_clips(
    x: Array, ids: Sequence[str], features: Array, count: int = 5
) -> tuple[Neighbour, ...]:
    """The clips with the most similar features by cosine, the nearest first.

    Parameters
    ----------
    x
        The features of a clip [D].
    ids, features
        The clips to search, and their features [N, D].
    count
        The largest number to return.
    """
    target = np.asarray(x, dtype=np.float64)
    lengths = np.linalg.norm(features, axis=1).astype(np.float64) * np.linalg.norm(target)
    cosines = np.divide(features @ target, lengths, out=np.zeros(len(ids)), where=lengths > 0)
    order = np.argsort(-cosines, kind="stable")[:count]
    return tuple(Neighbour(ids[row], float(cosines[row])) for row in order.tolist())


@dataclass(frozen=True)
class ExplainedClip:
    """A clip, its explanation, and the most similar clips of the store."""

    id: str
    explanation: Explanation
    nearest: tuple[Neighbour, ...]


def explain_clips(
    model: Path,
    store: Path | str,
    ids: Sequence[str],
    *,
    nearest: int = 5,
) -> list[ExplainedClip]:
    """Explain a saved model's predictions of clips.

    Parameters
    ----------
    model
        A folder that `save_model` wrote.
    store
        The store of the model's features.
    ids
        The clips.
    nearest
        How many similar clips to list, by the cosine of their features.
    """
    fitted, about = load_model(model)
    opened = open_store(store)
    check_features(about, opened)
    if about.get("reads") == "frames":
        raise ExperimentError(
            f"{model} ({about['estimator']}) reads sequences of frames, and concepts and nearest "
            "clips are of one vector a clip; om.predict_frames says which frames count"
        )
    opened.rows_of(ids)  # an unknown id is an error
    everything = nearest or tree_of(fitted) is not None
    stored, features = features_of(about, opened, opened.ids if everything else ids)
    row_of = {clip: row for row, clip in enumerate(stored)}
    rows = {clip: row_of[clip] for clip in ids}
    explanations = explain_rows(fitted, features, [*rows.values()], classes=about.get("classes"))
    explained = []
    for (clip, row), explanation in zip(rows.items(), explanations, strict=True):
        similar = nearest_clips(features[row], stored, features, nearest + 1)
        others = tuple(neighbour for neighbour in similar if neighbour.id != clip)
        explained.append(ExplainedClip(clip, explanation, others[:nearest]))
    return explained


def load_bank(folder: Path, about: dict[str, Any]) -> Any:
    """The concepts of a saved bottleneck, or a saved bank, of the same features as a model's."""
    loaded, bank_about = load_model(folder)
    bank = getattr(loaded, "bank_", loaded)
    if not hasattr(bank, "cavs_"):
        raise ExperimentError(
            f"{folder} is a {type(loaded).__name__}, which has no concepts; use a bottleneck"
        )
    if bank_about.get("features") != about["features"]:
        raise ExperimentError(f"the concepts of {folder} are of other features than the model's")
    return bank


def _weighted_sum(attribution: Attribution, row: int) -> WeightedSum:
    assert attribution.weights is not None
    assert attribution.logit is not None
    assert attribution.intercept is not None
    contributions = [
        Contribution(name, value, weight, value * weight)
        for name, value, weight in zip(
            attribution.concepts,
            attribution.values[row].tolist(),
            attribution.weights[row].tolist(),
            strict=True,
        )
    ]
    contributions.sort(key=lambda part: -abs(part.amount))
    label, logit = attribution.labels[row], float(attribution.logit[row])
    intercept = float(attribution.intercept[row])
    residual = None if attribution.residual is None else float(attribution.residual[row])
    return WeightedSum(label, tuple(contributions), intercept, residual, logit)
