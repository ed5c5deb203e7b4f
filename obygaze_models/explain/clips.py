"""Explanations of single clips, and those of a saved model on a store's clips."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_features.store import open_store
from obygaze_models.explain.attributions import Attribution, attribute, join_steps, tree_of
from obygaze_models.saved.inference import check_features, features_of
from obygaze_models.saved.persistence import load_model

Array = NDArray[Any]


def explain_clips(
    model: Path, store: Path | str, ids: Sequence[str], *, nearest: int = 5
) -> list[dict[str, Any]]:
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

    Returns
    -------
    list of dict
        Of each clip its ``id``, its ``explanation`` as `explain_rows` has it, and the ``nearest``
        clips as `nearest_clips` has them.
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
        others = [other for other in similar if other["id"] != clip][:nearest]
        explained.append({"id": clip, "explanation": explanation, "nearest": others})
    return explained


def explain_rows(
    model: Any, X: Array, rows: Sequence[int], *, classes: Sequence[str] | None = None
) -> list[dict[str, Any]]:
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

    Returns
    -------
    list of dict
        Of each clip the predicted ``label``, the ``probabilities`` of the classes, and ``why``:
        None for models whose parts do not add up to the prediction, such as networks. Of a tree
        the ``steps`` of the path from the root, the ``conditions`` that they join to, the last
        node (``leaf``), and the ``shares`` of the classes in it. Else the ``label`` of the logit
        (with two classes the second's against the first, whichever is predicted), the
        ``contributions`` of the concepts, the largest first, the ``intercept``, the ``residual``
        of a `HybridBottleneck`, and the ``logit``, their sum.
    """
    labels = [str(c) if classes is None else classes[c] for c in model.classes_.tolist()]
    if (tree := tree_of(model)) is None:  # else in one computation: others differ in the last bits
        X, rows = X[list(rows)], range(len(rows))
    probabilities, attribution = model.predict_proba(X), attribute(model, X, classes=classes)
    explanations = []
    for row in rows:
        why = None
        if tree is not None and attribution and attribution.steps and attribution.leaves:
            steps, leaf = attribution.steps[row], attribution.leaves[row]
            conditions = join_steps(steps, attribution.concepts, attribution.values, row)
            shares = dict(zip(labels, tree.value[leaf].tolist(), strict=True))
            why = {"steps": steps, "conditions": conditions, "leaf": leaf, "shares": shares}
        elif attribution:
            why = _weighted_sum(attribution, row)
        own = dict(zip(labels, probabilities[row].tolist(), strict=True))
        label = labels[int(probabilities[row].argmax())]
        explanations.append({"label": label, "probabilities": own, "why": why})
    return explanations


def nearest_clips(
    x: Array, ids: Sequence[str], features: Array, count: int = 5
) -> list[dict[str, Any]]:
    """The ``id`` and ``cosine`` of the clips with the most similar features, the nearest first.

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
    return [{"id": ids[row], "cosine": float(cosines[row])} for row in order.tolist()]


def _weighted_sum(parts: Attribution, row: int) -> dict[str, Any]:
    own: dict[str, Any] = {
        name: None if (column := getattr(parts, name)) is None else column[row].tolist()
        for name in ("values", "weights", "intercept", "residual", "logit")
    }
    contributions = [
        {"concept": name, "value": value, "weight": weight, "amount": value * weight}
        for name, value, weight in zip(
            parts.concepts, own.pop("values"), own.pop("weights"), strict=True
        )
    ]
    contributions.sort(key=lambda part: -abs(part["amount"]))
    return {"label": parts.labels[row], "contributions": contributions, **own}
