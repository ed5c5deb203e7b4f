"""Predictions as files and text: by a run, by a saved model, or for clips to annotate next."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import entr

from obygaze_features.common.tables import align
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError
from obygaze_models.data.stores import Stores
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments import exports
from obygaze_models.experiments.exports import Outputs, export_files, model_rows
from obygaze_models.experiments.record import RECORD
from obygaze_models.experiments.run_folder import Run, load_run
from obygaze_models.saved.about import describe_seen, read_about
from obygaze_models.saved.inference import (
    Predictions,
    feature_blocks,
    name_predictions,
    open_for,
    predict,
)
from obygaze_models.scoring.metrics import CONCEPTS, Array
from obygaze_models.scoring.values import NUMBER


@dataclass(frozen=True)
class WrittenPredictions:
    """Predictions as files and as text.

    Parameters
    ----------
    rows
        The predictions as JSON objects, possibly as an iterator.
    files
        The content of each file.
    text
        Lines to print about the predictions and the files.
    warnings
        Warnings about the predictions.
    seen
        Warnings about clips that the model was trained on.
    """

    rows: Iterable[dict[str, Any]]
    files: dict[Path, str]
    text: list[str]
    warnings: Sequence[RunWarning]
    seen: Sequence[str] = ()


def predict_run(
    run: Run,
    outputs: Outputs,
    *,
    estimator: str | None = None,
    ids: Sequence[str] | None = None,
) -> WrittenPredictions:
    """Return a run's held-out predictions."""
    rows = exports.held_out(run, model=estimator, ids=ids)
    warnings = [
        warning for warning in run.warnings if warning.voids_scores or warning.code == "leak"
    ]
    files, lines = exports.export_files(
        rows,
        exports.HELD_OUT,
        outputs,
        warnings=warnings,
        levels=run.record.manifest.levels,
        concepts=run.record.manifest.senses,
        run=None if ids else run,
    )
    text = [*exports.describe_held_out(rows, outputs.max_rows), *lines]
    return WrittenPredictions([dict(row.cells) for row in rows], files, text, warnings)


def predict_model(
    folder: Path,
    stores: Stores,
    outputs: Outputs,
    *,
    ids: Sequence[str] | None = None,
) -> WrittenPredictions:
    """Return a saved model's predictions for the clips of a store."""
    opened = open_for(read_about(folder), stores)
    predictions = predict(folder, opened, ids=ids)
    files, lines = exports.export_files(
        exports.model_rows(predictions, opened.items) if outputs.elan else [],
        "prediction",
        replace(outputs, table=None),
        warnings=predictions.warnings,
        levels=predictions.about.description.levels,
        concepts=predictions.about.description.senses,
    )
    if outputs.table:
        files[outputs.table] = predictions.to_csv()
        lines.insert(0, f"one row per clip -> {outputs.table}")
    first_rows = list(itertools.islice(_as_json(predictions), outputs.max_rows))
    text = [*_describe_rows(first_rows, predictions), *lines]
    seen = describe_seen(dict(zip(predictions.ids, predictions.seen, strict=True)))
    return WrittenPredictions(_as_json(predictions), files, text, predictions.warnings, [*seen])


def _as_json(predictions: Predictions) -> Iterator[dict[str, Any]]:
    columns = predictions.ids, predictions.predicted, predictions.probabilities, predictions.seen
    for clip, predicted, probabilities, seen in zip(*columns, strict=True):
        yield {
            "id": clip,
            "prediction": predicted,
            "probabilities": dict(zip(predictions.classes, probabilities.tolist(), strict=True)),
            "seen_in_training": seen,
        }


def _describe_rows(rows: list[dict[str, Any]], predictions: Predictions) -> list[str]:
    """Return lines with the first rows, and the number of clips for each prediction."""
    lines, total = [], len(predictions.ids)
    if rows:
        cells = [
            [row["id"], row["prediction"], *(f"{p:.3f}" for p in row["probabilities"].values())]
            for row in rows
        ]
        lines.append(align(["clip", "prediction", *predictions.classes], cells, left=2))
        if (more := total - len(rows)) > 0:
            lines.append(f"and {counted(more, 'more clip', 'more clips')}; -o writes all to a file")
    kind = predictions.about.target_key
    if kind == NUMBER and total:
        values = predictions.probabilities
        return [*lines, f"{counted(total, 'clip')}: from {values.min():.4g} to {values.max():.4g}"]
    counts = Counter(predictions.predicted)
    if kind == CONCEPTS:
        counts = Counter(name for text in predictions.predicted for name in text.split("|") if name)
    predicted = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return [*lines, f"{counted(total, 'clip')}: {predicted}"]


TIER = "to annotate next"
"""The linguistic type of the ELAN tier."""


def predict_next(
    source: Path, stores: Stores, count: int, outputs: Outputs, *, estimator: str | None = None
) -> WrittenPredictions:
    """Return the clips of a store that should be annotated next, chosen by a model or a run's fits.

    Clips that a fit has seen, or that a run has annotations for, are excluded. With several fits,
    clips are chosen by the mean probabilities, which are uncertain if the fits disagree. For
    numbers and ordered levels, clips are chosen by the standard deviation over the fits.
    """
    folders, annotated = _models_of(source, estimator)
    about = read_about(folders[0])
    opened = open_for(about, stores)
    parts = [predict(folder, opened) for folder in folders]
    seen = [np.array(part.seen) != "no" for part in parts]
    rows = np.flatnonzero(~np.any([*seen, np.isin(parts[0].ids, annotated)], axis=0))
    if not len(rows):
        raise ExperimentError(
            f"{opened.where}: all clips are annotated or were used in training. Pass a store with "
            "other clips."
        )
    table = np.stack([part.probabilities for part in parts])[:, rows]
    gains = expected_gain(table, parts[0])
    ids = [parts[0].ids[row] for row in rows.tolist()]
    blocks = [features for _, features in feature_blocks(about, opened, ids)]
    items = opened.items
    films = np.array([items.films[items.row(clip)] for clip in ids])
    X = np.nan_to_num(np.concatenate(blocks)).reshape(len(ids), -1)
    chosen = choose_next(gains, X, films, count)
    mean, names = table.mean(axis=0)[chosen], [ids[row] for row in chosen]
    predicted = name_predictions(about, mean).tolist()
    unseen = ["no"] * len(chosen)
    first = replace(parts[0], ids=names, probabilities=mean, predicted=predicted, seen=unseen)
    by_clip = {row.cells["clip"]: row for row in model_rows(first, items)}
    written = []
    for rank, row in enumerate(chosen, start=1):
        own = by_clip[ids[row]]
        cells = {"rank": rank, **own.cells, "gain": f"{gains[row]:.6f}"}
        written.append(replace(own, tier=f"{TIER} (by {own.tier})", cells=cells))
    files, lines = export_files(
        written, TIER, outputs, warnings=first.warnings,
        levels=about.description.levels, concepts=about.description.senses,
    )  # fmt: skip
    clips, of_films = counted(len(chosen), "clip"), counted(len(set(films[chosen])), "film")
    text = [f"{clips} of {of_films}, chosen by {counted(len(folders), 'fit')}"]
    first_rows = itertools.islice(written, outputs.max_rows)
    text += [f"  {row.cells['rank']}. {row.cells['clip']}" for row in first_rows]
    as_json = [dict(row.cells) for row in written]
    return WrittenPredictions(as_json, files, [*text, *lines], first.warnings)


def _models_of(source: Path, estimator: str | None) -> tuple[list[Path], list[str]]:
    """Return the folders of a model's fits, and the annotated clips of its run (if any)."""
    if not (source / RECORD).is_file():
        return [source], []
    run = load_run(source)
    name = estimator or run.record.headline_model
    folders = [
        row["folder"]
        for row in run.models()
        if row["model"] == name and row["task"] == run.record.learned[0]
    ]
    if not folders:
        raise ExperimentError(
            f"{source} has no saved model named {name}. Choose another: --estimator NAME."
        )
    return folders, run.clips()["id"].tolist()


def expected_gain(table: Array, predictions: Predictions) -> Array:
    """Estimate how informative each clip is, from 0 to 1, from the fits' predictions [F, N, C].

    The estimate is the entropy of the mean prediction. It is high if fits are uncertain or
    disagree. For several concepts, it is the mean entropy. For numbers and ordered levels, it is
    the standard deviation over the fits, as a share of the largest deviation.
    """
    about = predictions.about
    if about.is_numeric:
        if len(table) < 2:
            raise ExperimentError(
                f'--next needs several fits for target = "{about.target_key}", because uncertainty '
                "is measured by how the fits differ. Pass a run instead of a model"
            )
        spread = table.std(axis=0)[:, 0]
        return np.asarray(spread / max(float(spread.max()), np.finfo(float).tiny))
    mean = table.mean(axis=0)
    if about.target_key == CONCEPTS:
        return np.asarray((entr(mean) + entr(1 - mean)).mean(axis=1) / np.log(2))
    return np.asarray(entr(mean).sum(axis=1) / np.log(mean.shape[1]))


def choose_next(gains: Array, X: Array, films: Array, count: int) -> list[int]:
    """Return the rows of informative clips that are dissimilar and from many films.

    Clips are chosen one by one, each time the clip with the highest score. A clip's score is its
    gain, times its distance to the nearest chosen clip, divided by one plus the number of chosen
    clips of its film.
    """
    scaled = X - X.mean(axis=0)
    scaled = scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1e-12)
    _, film = np.unique(films, return_inverse=True)
    distance, chosen_of_film = np.ones(len(X)), np.zeros(film.max() + 1)
    worth = gains + 1e-9
    chosen: list[int] = []
    for _ in range(min(count, len(X))):
        score = worth * distance / (1 + chosen_of_film[film])
        score[chosen] = -1.0
        best = int(score.argmax())
        chosen.append(best)
        chosen_of_film[film[best]] += 1
        distance = np.minimum(distance, (1 - scaled @ scaled[best]) / 2)
    return chosen
