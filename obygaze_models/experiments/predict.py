"""Predictions of a run or a saved model as files and text."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from obygaze_features.common.printer import align
from obygaze_features.common.text import counted
from obygaze_models.data.stores import Stores
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments import exports
from obygaze_models.experiments.exports import Outputs
from obygaze_models.experiments.run_folder import Run
from obygaze_models.saved.about import describe_seen, read_about
from obygaze_models.saved.inference import Predictions, open_for, predict
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
    predicted = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return [*lines, f"{counted(total, 'clip')}: {predicted}"]
