"""Predict clips of a store with a saved model, and score the model on annotated clips.

A model records the features it was trained on, and other features raise an error. It also records
the footage and the films it has seen, so that scores on them are not mistaken for a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from obygaze_features.common.arrays import Array
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import require_same_clips
from obygaze_features.manifests import LabelScheme, Manifest
from obygaze_models.data.dataset import Record, label_clips, with_numbers
from obygaze_models.data.run_warning import RunWarning, origin_warnings
from obygaze_models.data.stores import (
    Sources,
    Stores,
    open_stores,
    read_features,
    read_frame_times,
    read_frames,
)
from obygaze_models.estimators.classes import move_cut
from obygaze_models.saved.about import CLIP, NO, About, seen_in_training
from obygaze_models.saved.model import Model, as_model, prediction_errors
from obygaze_models.scoring.metrics import score

TOLERANCE = 1e-3
"""The tolerance for probabilities below 0, and for the distance of their sums from 1."""
BLOCK_VALUES = 2**22
"""The approximate number of feature values to process at a time, 32 MiB in float64."""


@dataclass(frozen=True)
class Predictions:
    """A model's predictions for clips of a store.

    Parameters
    ----------
    about
        The model's description.
    table
        A row for each clip: ``id``, ``prediction``, a ``probability_NAME`` for each class (or a
        ``value``), and ``seen``: ``clip`` if the clip's footage was used in training, ``film`` if
        only other clips of its film were, otherwise ``no``.
    values
        The probabilities [N, classes], or the predicted numbers [N, 1].
    warnings
        Warnings about the predictions.
    """

    about: About
    table: pd.DataFrame
    values: Array
    warnings: list[RunWarning]


@dataclass(frozen=True)
class FramePredictions:
    """A model's predictions for each frame of some clips.

    Parameters
    ----------
    about
        The model's description.
    ids
        The clips.
    times
        The time of each frame [N, T] in seconds, from the store's ``frame_time`` array; NaN if the
        store has no times.
    probabilities
        The probabilities of the second of two classes [N, T], or of all classes [N, T, classes].
        They are NaN for missing frames.
    threshold
        The lowest probability at which a frame of each clip counts as the second class, [N].
    seen
        What the model has seen of each clip; see `Predictions`.
    warnings
        Warnings about the predictions.
    loudness
        The loudness at each time [N, T], in dB relative to full scale; NaN if it is unknown.
    """

    about: About
    ids: list[str]
    times: Array
    probabilities: Array
    threshold: Array
    seen: list[str]
    warnings: list[RunWarning]
    loudness: Array


def predict(
    model: Model | str | Path,
    store: Stores,
    *,
    ids: Sequence[str] | None = None,
) -> Predictions:
    """Predict clips of a store, by default all finished clips, with a `Model` or a saved one."""
    model = as_model(model)
    about = model.about
    opened = open_for(about, store, ids)
    task = about.learned
    wanted = opened.done_ids(ids)
    if not wanted:
        raise ExperimentError(
            f"{opened.where} has no features of the clips to predict. Extract the clips first"
        )
    step = BLOCK_VALUES // about.needs.shape[-1]
    if about.reads == "frames":  # all at once
        step = len(wanted)
    clips = []
    blocks = []
    for start in range(0, len(wanted), step):
        block_ids, features = read_stored(about, opened, wanted[start : start + step])
        with prediction_errors(model):
            blocks.append(predict_features(model.estimator, about, features))
        clips += block_ids
    values = np.concatenate(blocks)
    called = values[:, 0]
    names = ["value"]
    if not task.target.is_numeric:
        called = np.array(task.class_titles, dtype=object)[values.argmax(axis=1)]
        names = [f"probability_{title}" for title in task.class_titles]
    predicted = pd.DataFrame({"id": clips, "prediction": called})
    table = predicted.join(pd.DataFrame(values, columns=names))
    table["seen"] = seen_in_training(about, opened.items, clips)
    return Predictions(
        about,
        table,
        values,
        origin_warnings(opened.items, opened.attributes, about.warnings),
    )


def predict_features(estimator: Any, about: About, X: Array, **arguments: Any) -> Array:
    """Return class probabilities [N, classes], moved by the model's cut, or numbers [N, 1]."""
    task = about.learned
    if task.target.is_numeric:
        values = np.asarray(estimator.predict(X), dtype=np.float64).reshape(-1, 1)
        if len(values) != len(X) or not np.isfinite(values).all():
            raise ExperimentError("predict must return a finite number for each clip")
        return values

    shares = np.asarray(estimator.predict_proba(X, **arguments), dtype=np.float64)
    shape = (len(X), len(estimator.classes_))
    if shares.shape != shape:
        raise ExperimentError(f"predict_proba returned shape {shares.shape}, not {shape}")
    sums_to_1 = abs(shares.sum(axis=1) - 1) < TOLERANCE
    if not (shares >= -TOLERANCE).all() or not sums_to_1.all():
        raise ExperimentError(
            "predict_proba must return probabilities that sum to 1 for each clip "
            f"(got {shares.min():.3g} to {shares.max():.3g})"
        )
    table = np.zeros((len(X), len(task.classes)))
    table[:, estimator.classes_] = shares
    return move_cut(table, about.cut)


def predict_frames(
    model: Model | str | Path,
    store: Stores,
    ids: Sequence[str] | None = None,
) -> FramePredictions:
    """Predict each frame of clips with a `Model`, or a saved one, that reads frame sequences.

    Clips without frames are left out.
    """
    model = as_model(model)
    about = model.about
    estimator = model.estimator
    if not hasattr(estimator, "predict_frames"):
        raise ExperimentError(f"{model.where} does not predict frames. Use a frame-mil model")
    opened = open_for(about, store, ids, for_frames=True)
    clips, X = read_stored(about, opened, opened.done_ids(ids))
    table = np.zeros((*X.shape[:2], len(about.learned.classes)))
    if clips:
        with prediction_errors(model):
            frames = estimator.predict_frames(X)
            table[..., estimator.classes_] = frames
            table[np.isnan(frames).any(axis=2)] = np.nan
    if len(about.learned.classes) == 2:
        table = table[..., 1]

    first = opened.stores[0]
    count = X.shape[1]
    return FramePredictions(
        about=about,
        ids=clips,
        times=read_frame_times(first, clips, count),
        probabilities=table,
        threshold=np.full(len(clips), getattr(estimator, "threshold_", 0.5)),
        seen=seen_in_training(about, opened.items, clips),
        warnings=origin_warnings(opened.items, opened.attributes, about.warnings),
        loudness=read_frame_times(first, clips, count, "loudness"),
    )


def evaluate(
    model: Model | str | Path,
    store: Stores,
    manifest: Manifest | str | Path,
    *,
    labels: str | None = None,
) -> pd.DataFrame:
    """Score a `Model` or a saved one, and guesses, on a manifest's clips.

    The table has rows for three sets of clips (``on``): ``all clips``, ``unseen clips``, and
    ``clips of unseen films``. Only the last shows how well the model works on a new film. Each set
    that has clips has a row for the model. It also has a row for each kind of guess if the model
    predicts numbers, or two classes that both have clips.
    """
    predictions = predict(model, store)
    about = predictions.about
    task = about.learned
    manifest = Manifest.load(manifest)
    require_same_clips(open_stores(store).items, manifest.items)
    if task.target.is_numeric:
        manifest = with_numbers(manifest, task.key)
    scheme = manifest.label_scheme(labels)
    _require_labels(about, manifest, scheme)
    known = predictions.table["id"].isin(manifest.labels(labels).ids)
    table = predictions.table[known]
    values = predictions.values[known]
    record = Record(manifest=manifest, label_set=manifest.labels(labels))
    clips = label_clips(record, table["id"].tolist(), values, scheme.concept_names)
    codes = clips.with_tasks([task]).labels[task]
    is_labelled = task.target.takes_part(codes)
    if not is_labelled.any():
        raise ExperimentError(
            f"the store has no clip of {manifest.name} that is labelled for {task.key}. Use "
            "another store or label set"
        )
    if values.shape[1] <= 2:
        values = values[:, -1]
    groups = {
        "all clips": is_labelled,
        "unseen clips": is_labelled & (table["seen"] != CLIP),
        "clips of unseen films": is_labelled & (table["seen"] == NO),
    }
    rows = []
    for name, chosen in groups.items():
        if not chosen.any():
            continue
        own_codes = codes[chosen]
        counts = task.count(own_codes)
        scores = {"the model": score(own_codes, values[chosen], target_key=task.target_key)}
        if task.target.is_numeric or counts.positives not in (None, 0, counts.clips):
            scores |= task.target.guesses(own_codes, np.array([]))
        for by, scored in scores.items():
            rows.append(
                {
                    "on": name,
                    "clips": counts.clips,
                    "positives": counts.positives,
                    "by": by,
                    **scored,
                }
            )
    return pd.DataFrame(rows)


def _require_labels(about: About, manifest: Manifest, scheme: LabelScheme) -> None:
    """Raise if a label scheme lacks a model's concept or gives its level another name."""
    task = about.learned
    if task.concept not in ("", *scheme.concept_names):
        raise ExperimentError(
            f"{manifest.name} has no concept {task.concept!r}, which the model detects. Evaluate "
            "the model on a manifest with this concept"
        )
    for level, name in about.levels.items():
        own_name = scheme.name_of.get(level, name)
        if level in task.levels and name.casefold() != own_name.casefold():
            raise ExperimentError(
                f"the level {level} is {name!r} for the model, but {own_name!r} in "
                f"{manifest.name}. Rename one of the levels"
            )


def open_for(
    about: About,
    store: Stores,
    ids: Sequence[str] | None,
    *,
    for_frames: bool = False,
) -> Sources:
    """Open a store; raise an error if a model cannot read its features, or a clip is unknown.

    With `for_frames`, each frame is rated alone, so films may be sampled in another way than the
    clips from which the model learned, and have more frames.
    """
    opened = open_stores(store)
    needed = about.needs
    if about.reads == "groups":
        raise ExperimentError(
            "the model predicts from a clip's film, not its features. Use another model"
        )
    shapes = {spec.name: list(spec.shape) for spec in opened.specs}
    shape = f"shape of {needed.array}"
    actual = {
        "weights": opened.attributes["backbone"]["weights_sha256"],
        shape: shapes.get(needed.array),
        **opened.attributes["preprocessing"],
    }
    wanted = {
        "weights": needed.backbone["weights_sha256"],
        shape: needed.shape,
        **needed.preprocessing,
    }
    if for_frames and actual[shape]:
        actual[shape] = actual[shape][1:]
        wanted[shape] = needed.shape[1:]
        wanted["sampling"] = actual.get("sampling")
    for key in wanted | actual:
        if wanted.get(key) != actual.get(key):
            raise ExperimentError(
                f"the model does not fit {opened.where}: {key} is {actual.get(key)!r}, but "
                f"{wanted.get(key)!r} for the model. Use a store extracted with the same settings "
                "(several stores in the same order)"
            )
    opened.items.find(ids or ())  # raises an error for an unknown clip
    return opened


def read_stored(about: About, store: Sources, ids: Sequence[str]) -> tuple[list[str], Array]:
    """Read a model's input; return the ids that the store has, and their vectors or frames."""
    read = read_frames if about.reads == "frames" else read_features
    return read(store, ids, about.needs.array)
