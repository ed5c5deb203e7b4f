"""Predict clips of a store with a saved model, and evaluate it on annotated clips.

A model records the features it was trained on, and other features raise an error. It also records
the clips and the parts of files it has seen, so that these are not mistaken for test clips.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import msgspec
import numpy as np

from obygaze_features.common.files import write_files
from obygaze_features.common.tables import format_spreadsheet
from obygaze_features.common.text import counted, find_closest, join_some, shorten_digest
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import require_same_clips
from obygaze_features.manifests import LabelScheme, Manifest
from obygaze_features.manifests.labels import name_key
from obygaze_features.store import Store
from obygaze_models.data.dataset import label_clips, with_numbers
from obygaze_models.data.stores import (
    Stores,
    describe_missing,
    open_stores,
    read_features,
    read_frame_times,
    read_frames,
)
from obygaze_models.data.targets import TARGETS, Target
from obygaze_models.data.tasks import official_measure
from obygaze_models.data.warnings import RunWarning, origin_warnings
from obygaze_models.estimators.classes import move_cut
from obygaze_models.estimators.outputs import predict_outputs
from obygaze_models.estimators.registry import modules_of, plugin_errors
from obygaze_models.saved.about import (
    About,
    Backbone,
    Description,
    description_of,
    read_about,
    seen_in_training,
)
from obygaze_models.saved.persistence import load_model
from obygaze_models.scoring.metrics import (
    TREC,
    Array,
    Scores,
    baselines,
    score,
    trec_ranks,
)
from obygaze_models.scoring.values import NUMBER

BLOCK_VALUES = 2**22
"""The approximate number of feature values to process at a time, 32 MiB in float64."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """A model's predictions for clips.

    Parameters
    ----------
    about
        The model's description.
    ids
        The clips.
    probabilities
        The probabilities ``[n, classes]``, or the predictions ``[n, 1]`` for numbers and ordered
        levels.
    predicted
        The class of each clip. For numbers, the number as
        text.
    seen
        Whether the model has seen each clip in training: ``yes``, `SEEN_RENAMED` or ``no``.
    warnings
        Warnings about the predictions.
    """

    about: About
    ids: list[str]
    probabilities: Array
    predicted: list[str]
    seen: list[str]
    warnings: list[RunWarning]

    @property
    def classes(self) -> list[str]:
        """The names of the classes, or of the column with predicted numbers."""
        if self.about.is_numeric:
            return TARGETS[self.about.target_key].columns([])
        return self.about.description.classes

    @property
    def columns(self) -> list[str]:
        """The names of the columns with probabilities or numbers."""
        if self.about.is_numeric:
            return self.classes
        return [f"probability_{name}" for name in self.classes]

    def __repr__(self) -> str:
        info = self.about.description
        clips = counted(len(self.ids), "clip")
        return f"Predictions({info.model or info.estimator}, {clips}: {join_some(self.classes)})"

    @overload
    def to_csv(self, path: None = None, *, overwrite: bool = False) -> str: ...
    @overload
    def to_csv(self, path: str | Path, *, overwrite: bool = False) -> None: ...
    def to_csv(self, path: str | Path | None = None, *, overwrite: bool = False) -> str | None:
        """Write or return a CSV table of predictions, probabilities and ``seen_in_training``.

        Parameters
        ----------
        path
            The file to write. If None, the table is returned as text.
        overwrite
            Replace the file if it exists.
        """
        shares = {
            name: [f"{value:.6f}" for value in values]
            for name, values in zip(self.columns, self.probabilities.T.tolist(), strict=True)
        }
        first = {"id": self.ids, "prediction": self.predicted}
        table = format_spreadsheet(first | shares | {"seen_in_training": self.seen})
        if path is None:
            return table
        write_files({Path(path): table}, overwrite=overwrite)
        return None


@dataclass(frozen=True, eq=False)
class FramePredictions:
    """A model's predictions for each frame of some clips.

    Parameters
    ----------
    about
        The model's description.
    ids
        The clips.
    times
        The time of each frame [N, T] in seconds, from the store's ``frame_time`` array. It is NaN
        for missing frames, or if the store has no times.
    probabilities
        The probabilities of the second of two classes [N, T], or of all classes [N, T, classes].
        They are NaN for missing frames.
    threshold
        The lowest probability at which a frame counts as the second class: a number, or a number
        per clip [N].
    seen, warnings
        See `Predictions`.
    loudness
        The loudness at each time [N, T], in dB relative to full scale; None if it is unknown.
    """

    about: Mapping[str, Any]
    ids: list[str]
    times: Array
    probabilities: Array
    threshold: float | Array
    seen: list[str]
    warnings: list[RunWarning]
    loudness: Array | None = None

    def __repr__(self) -> str:
        frames = np.isfinite(self.probabilities).reshape(*self.times.shape, -1).all(axis=2).sum()
        return (
            f"FramePredictions({counted(len(self.ids), 'clip')}, {counted(int(frames), 'frame')})"
        )


@dataclass(frozen=True)
class PartScore:
    """A model's scores on a set of clips.

    Parameters
    ----------
    clips, positives
        The number of scored clips, and of clips with the last class.
    classes
        The number of classes that the clips have.
    scores
        The scores; None for undefined scores.
    baselines
        The scores of each kind of guess. With two classes, guesses have the clips' share of
        positives. With numbers, they are the clips' mean. With more classes,
        there are none.
    """

    clips: int
    positives: int
    classes: int
    scores: Scores
    baselines: dict[str, Scores]


@dataclass(frozen=True)
class ModelScore:
    """A model's scores on annotated clips.

    Parameters
    ----------
    task
        The model's task.
    every
        The scores on all clips.
    unseen
        The scores on clips that the model has not seen in training.
    apart
        The scores on clips of films (or other groups) that the model has not seen. Only these
        scores show how well the model works on a new film.
    seen
        The clips that the model has seen in training.
    grouped_by
        The column that clips are grouped by: ``film``, unless the experiment names another.
    missing
        The annotated clips that the store lacks.
    warnings
        Warnings about the scores.
    measure
        The task's official measure, which is among the scores, or None.
    """

    task: str
    every: PartScore
    unseen: PartScore
    apart: PartScore
    seen: list[str]
    grouped_by: str
    missing: list[str]
    warnings: list[RunWarning]
    measure: str | None


def predict(
    folder: str | Path,
    store: Stores,
    *,
    ids: Sequence[str] | None = None,
) -> Predictions:
    """Predict clips of a store with a saved model.

    Parameters
    ----------
    folder
        The model's folder.
    store
        The store, or its folder or URL; several stores if the model was trained on several. It must
        have the features that the model was trained on.
    ids
        The clips to predict; by default all finished clips of the store.
    """
    estimator, about = load_model(Path(folder))
    info = about.require("classes", "seen")
    classes = info.classes
    opened = open_for(about, store)
    ids = opened.done_ids() if ids is None else ids
    require_clips(opened, ids)
    clips, blocks = list[str](), [np.zeros((0, 1 if about.is_numeric else len(classes)))]
    for block_ids, features in feature_blocks(about, opened, ids):
        clips += block_ids
        if block_ids:
            kind = about.target_key
            with plugin_errors(modules_of(estimator)):
                blocks.append(predict_outputs(estimator, features, kind, len(classes), str(folder)))
    probabilities = move_cut(np.concatenate(blocks), info.cut)
    predicted = name_predictions(about, probabilities).tolist()
    seen, warnings = _describe_clips(about, opened, clips)
    return Predictions(about, clips, probabilities, predicted, seen, warnings)


def name_predictions(about: About, table: Array) -> Array:
    """Return the predicted class or number of each clip, as text."""
    if about.is_numeric:
        return np.array([f"{value:.4g}" for value in table[:, 0]], dtype=object)
    classes = np.array(about.description.classes, dtype=object)
    return np.asarray(classes[table.argmax(axis=1)])


def predict_frames(
    folder: str | Path, store: Stores, ids: Sequence[str] | None = None
) -> FramePredictions:
    """Predict each frame of clips with a saved model that reads frame sequences.

    Parameters
    ----------
    folder, store, ids
        See `predict`. Clips without frames are left out.
    """
    estimator, about = load_model(Path(folder))
    about.require_classes("a prediction of each frame")
    info = about.description
    if info.reads not in ("", "frames") or not hasattr(estimator, "predict_frames"):
        raise ExperimentError(
            f"{folder} ({info.estimator or type(estimator).__name__}) does not predict "
            "frames. Train a model that reads frames, such as frame-mil"
        )
    opened = open_for(about, store)
    ids = opened.done_ids() if ids is None else ids
    require_clips(opened, ids)
    clips, features = features_of(about, opened, ids)
    seen, warnings = _describe_clips(about, opened, clips)
    shape = *features.shape[:2], len(estimator.classes_)
    table = np.zeros((*shape[:2], len(info.classes)))
    if clips:
        with plugin_errors(modules_of(estimator)):
            frames = np.asarray(estimator.predict_frames(features), dtype=np.float64)
        if frames.shape != shape:
            raise ExperimentError(
                f"{folder} ({info.estimator}): predict_frames returned {frames.shape}, not {shape} "
                "(one probability per clip, frame and class)"
            )
        table[..., estimator.classes_] = frames
        table[np.isnan(frames).any(axis=2)] = np.nan
    times = read_frame_times(opened, clips, shape[1])
    times[np.isnan(table).any(axis=2)] = np.nan
    loudness = read_frame_times(opened, clips, shape[1], "loudness")
    probabilities = table[..., 1] if table.shape[2] == 2 else table
    threshold = float(getattr(estimator, "threshold_", 0.5))
    return FramePredictions(
        about, clips, times, probabilities, threshold, seen, warnings,
        None if np.isnan(loudness).all() else loudness,
    )  # fmt: skip


def evaluate(
    folder: str | Path, store: Stores, manifest: Manifest | str | Path, *, labels: str | None = None
) -> ModelScore:
    """Score a saved model on the annotated clips of a manifest.

    Parameters
    ----------
    folder, store
        See `predict`.
    manifest
        The manifest or its folder. Its labels are taken as the truth. Clips of levels that are not
        in the model's task are left out.
    labels
        The label set; by default the manifest's default.
    """
    about = read_about(Path(folder))
    manifest = manifest if isinstance(manifest, Manifest) else Manifest.load(Path(manifest))
    opened = open_for(about, store)
    require_same_clips(opened.items, manifest.items)
    task = about.learned_task
    if task.target_key == NUMBER:
        manifest = with_numbers(manifest, task.key)
    truth, scheme = manifest.labels(labels), manifest.label_scheme(labels)
    measure = official_measure(truth, scheme, [task])
    no_features = np.empty((len(truth.ids), 0), np.float32)
    clips = label_clips(manifest, truth.ids, no_features, scheme.concept_names, labels=labels)
    own = task.labels(clips)
    rows = np.flatnonzero(task.target.takes_part(own)).tolist()
    code_of = {clips.ids[row]: own[row] for row in rows}
    if not code_of:
        raise ExperimentError(f"{manifest.name} has no labels for {about.description.task}")
    predictions = predict(folder, opened, ids=[clip for clip in code_of if clip in opened])
    if not predictions.ids:
        raise ExperimentError(
            f"none of the {len(code_of)} clips of {manifest.name} that are labelled for "
            f"{about.description.task} is in {opened.where}"
        )
    codes = np.array([code_of[clip] for clip in predictions.ids])
    probabilities = predictions.probabilities
    ranks = trec_ranks(predictions.ids, probabilities[:, 1]) if measure == TREC else None
    seen = np.array(predictions.seen) != "no"

    def score_rows(rows: Array) -> PartScore:
        own = None if ranks is None else ranks[rows]
        return _score_part(task.target, codes[rows], probabilities[rows], own)

    grouped_by, shared = _in_seen_groups(about, manifest, predictions.ids, seen)
    return ModelScore(
        task=about.description.task,
        every=score_rows(np.arange(len(codes))),
        unseen=score_rows(np.flatnonzero(~seen)),
        apart=score_rows(np.flatnonzero(~seen & ~shared)),
        seen=np.array(predictions.ids)[seen].tolist(),
        grouped_by=grouped_by,
        missing=sorted(set(code_of) - set(predictions.ids)),
        warnings=[*predictions.warnings, *_level_warnings(about, scheme)],
        measure=measure,
    )


def _in_seen_groups(
    about: Mapping[str, Any], manifest: Manifest, clips: Sequence[str], seen: Array
) -> tuple[str, Array]:
    """Return the column that groups a model's clips, and mark the clips of groups it has seen.

    A group is seen if the model records it, or if it has a `seen` clip. (Models saved by earlier
    versions record no groups.) No clips are marked if the manifest lacks the column.
    """
    [(column, recorded)] = [*description_of(about).seen_groups.items()][:1] or [("film", [])]
    if column not in manifest.items.columns:
        return column, np.zeros(len(clips), dtype=bool)
    cells = manifest.items.column(column)
    groups = np.array([cells[manifest.items.row(clip)] for clip in clips])
    return column, np.isin(groups, [*recorded, *groups[seen]]) & (groups != "")


def _level_warnings(about: About, scheme: LabelScheme) -> Iterator[RunWarning]:
    """Yield warnings about levels of a model's task that have another name in the scored labels."""
    names = scheme.name_of
    used = about.learned_task.levels
    for code, name in about.description.levels.items():
        if code in used and name_key(names.get(code, name)) != name_key(name):
            text = f"level {code} is {name!r} for the model, but {names[code]!r} in these labels."
            yield RunWarning("levels", code, text)


def _score_part(
    target: Target, labels: Array, probabilities: Array, ranks: Array | None
) -> PartScore:
    clips, classes, positives = len(labels), probabilities.shape[1], 0
    guesses: dict[str, Scores] = {}
    if target.is_numeric:
        guesses = target.guesses(labels, np.array([]))
    else:
        positives = int((labels == classes - 1).sum())
        if classes == 2 and 0 < positives < clips:
            guesses = baselines(positives / clips)
    table = probabilities if classes > 2 else probabilities[:, -1]
    scores = score(labels, table, ranks, kind=target.key)
    return PartScore(clips, positives, len(np.unique(labels)), scores, guesses)


def check_features(about: Mapping[str, Any], store: Store) -> None:
    """Raise `ExperimentError` if a store's features differ from the features a model needs.

    Parameters
    ----------
    about
        The model's description, from `load_model`.
    store
        The store, from `open_store`.
    """
    info = description_of(about)
    features = info.features
    if features.backbone is None:
        raise ExperimentError(
            "the model does not record its features. Train it again: obygaze models run"
        )
    if info.reads == "groups":
        raise ExperimentError(
            f"the model ({info.estimator}) predicts from the film of a clip, not from features, so "
            "it cannot be used with a store"
        )
    backbones = features.backbone, msgspec.convert(store.attributes["backbone"], Backbone)
    needed, actual = ([part.name for part in backbone.each] for backbone in backbones)
    if len(needed) > 1 and needed != actual:
        raise ExperimentError(
            f"the model needs {len(needed)} stores: {', '.join(needed)} (got {', '.join(actual)}). "
            "Pass them in this order"
        )
    if differences := _differences(info, backbones, store):
        raise ExperimentError(
            f"the model does not fit {store.where}: {'; '.join(differences)}. "
            "Use a store with the same features: extracted with the same --frames, --sampling, "
            "sound track and other options, or imported with the same --backbone and "
            "--preprocessing"
        )


def _describe_clips(
    about: Mapping[str, Any], store: Store, clips: Sequence[str]
) -> tuple[list[str], list[RunWarning]]:
    """Return whether each clip was seen in training, and the warnings about the clips."""
    seen = seen_in_training(about, store.items, clips)
    warnings = origin_warnings(store.items, store.attributes, description_of(about).warnings)
    if missing := describe_missing(store, clips):
        warnings.append(RunWarning("missing", "", f"{missing}."))
    return seen, warnings


def require_clips(store: Store, ids: Sequence[str]) -> None:
    """Raise `ExperimentError` if a store lacks any of the clips."""
    if unknown := [clip for clip in ids if clip not in store]:
        more = f" (nor {counted(len(unknown) - 1, 'other', 'others')})" if len(unknown) > 1 else ""
        near = find_closest(unknown[0], store.ids)
        hint = f"did you mean {near}?" if near else f"it has clips such as {store.ids[0]}"
        raise ExperimentError(f"{store.where} has no clip {unknown[0]}{more}; {hint}")


def open_for(about: Mapping[str, Any], store: Stores) -> Store:
    """Open the store or stores for a model, treating clips that a store lacks as in training."""
    return open_stores(store)


def features_of(
    about: Mapping[str, Any], store: Store, ids: Sequence[str]
) -> tuple[list[str], Array]:
    """Read a model's input; return the ids that the store has, and their features.

    The features are float32 [N, D], or frames [N, T, D] in the store's data type.

    Parameters
    ----------
    about
        The model's description, from `load_model`. It is passed to `check_features` first.
    store
        The store, from `open_store`.
    ids
        The clips. Clips that the store lacks are left out.
    """
    check_features(about, store)
    info = description_of(about)
    features = info.features
    if info.reads == "frames":
        return read_frames(store, ids, features.array)
    return read_features(store, ids, features.array)


def feature_blocks(
    about: Mapping[str, Any], store: Store, ids: Sequence[str]
) -> Iterator[tuple[list[str], Array]]:
    """Yield the results of `features_of` block by block, or a single block if there are few clips.

    Frame sequences are always a single block.
    """
    check_features(about, store)
    info = description_of(about)
    spec = next(spec for spec in store.specs if spec.name == info.features.array)
    step = max(1, len(ids))
    if info.reads != "frames":
        step = max(1, BLOCK_VALUES // spec.shape[-1])
    for start in range(0, max(1, len(ids)), step):
        yield features_of(about, store, ids[start : start + step])


def _settings(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a recipe's settings. For several stores, keys start with the number of the store."""
    parts = list(enumerate(recipe.get("parts", ()), 1))
    named = {f"{number}: {key}": part[key] for number, part in parts for key in part}
    return named if parts else recipe


def _differences(
    info: Description, backbones: tuple[Backbone, Backbone], store: Store
) -> list[str]:
    features = info.features
    names, others = ((b.name, shorten_digest(b.weights_sha256)) for b in backbones)
    if len({backbone.weights_sha256 for backbone in backbones}) > 1:  # then all else differs too
        text = "the model needs {} with weights {}, but the store has {} with weights {}"
        return [text.format(*names, *others)]
    preprocessing = _settings(features.preprocessing)
    stored = _settings(store.attributes["preprocessing"])
    differences = [
        f"preprocessing {key} is {stored.get(key)!r} in the store, but "
        f"{preprocessing.get(key)!r} for the model"
        for key in sorted({*preprocessing, *stored})
        if preprocessing.get(key) != stored.get(key)
    ]
    array, shape = features.array, features.shape
    spec = next((spec for spec in store.specs if spec.name == array), None)
    if spec is None:
        differences.append(f"the store has no array {array!r} (it has {', '.join(store.arrays)})")
    elif info.reads != "frames" and len(spec.shape) != 1:
        differences.append(f"{array!r} has shape {list(spec.shape)} per clip, not one vector")
    elif shape is not None and shape != list(spec.shape):
        differences.append(f"{array!r} has shape {list(spec.shape)} per clip, not {list(shape)}")
    return differences
