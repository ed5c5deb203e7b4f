"""Runs on a benchmark's test set: files for trec_eval, and scores by the official measure.

A run file has a line per clip, such as ``violence Q0 ACCEDE00001 1 0.913 mlp-external-data``: the
topic, a constant, the clip, its rank, its score, and the run's tag. Tags that obygaze writes end in
``-external-data`` or ``-own-data``. The test set is the last fold of the split ``official``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.arrays import Array
from obygaze_features.common.files import read_bytes, refuse_to_overwrite, write_text
from obygaze_features.common.formatting import shorten
from obygaze_features.common.names import unknown_name
from obygaze_features.common.tables import Table, read_table
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.labels import map_column
from obygaze_models.data.stores import Stores, open_stores
from obygaze_models.data.tasks import measure_of, official_measure
from obygaze_models.experiments.learner import folder_name
from obygaze_models.saved.predict import predict
from obygaze_models.scoring.metrics import TREC, ranking_scores, trec_ranks

COLUMNS = ("topic", "Q0", "id", "rank", "score", "tag")


def write_run(
    folder: Path,
    store: Stores,
    manifest: Manifest,
    output: Path,
    *,
    labels: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Rank the test clips of a manifest with a saved model, and write the run file.

    Parameters
    ----------
    folder, store
        See `obygaze_models.saved.predict.predict`.
    manifest
        The manifest of the clips. Their labels do not affect the ranking.
    output
        The run file.
    labels
        The label set that the model learned, whose name is the topic; by default, the manifest's
        default.

    Returns
    -------
    dict
        The number of ranked ``clips``, the run's ``tag``, the test clips without features
        (``missing``; positive clips among them lower the score), how many of the clips the model
        was ``trained_on``, and ``warnings``.
    """
    refuse_to_overwrite(output, overwrite=overwrite)
    truth = manifest.labels(labels)
    split = manifest.split("official")
    tested = split.fold(split.last_fold)
    opened = open_stores(store)
    predictions = predict(folder, opened, ids=[clip for clip in tested if clip in opened])
    task = predictions.about.learned
    if official_measure(truth, manifest.label_scheme(labels), [task]) != TREC:
        raise ExperimentError(
            f"the model predicts {task.title}, but a run file needs labels scored by average "
            f"precision, and a model of the highest level of {truth.name} against all others"
        )
    ids = predictions.table["id"].tolist()
    ranked = {*ids}
    origin = "own-data"
    # A backbone has learned from data unless it, or a part of it, has random weights.
    if not predictions.about.needs.backbone.get("config", {}).get("synthetic"):
        origin = "external-data"
    tag = f"{folder_name(predictions.about.model)}-{origin}"
    write_text(output, format_run(truth.name, ids, predictions.values[:, 1], tag))
    return {
        "clips": len(ids),
        "tag": tag,
        "missing": [clip for clip in tested if clip not in ranked],
        "trained_on": predictions.table["seen"].tolist().count("clip"),
        "warnings": list(map(str, predictions.warnings)),
    }


def format_run(topic: str, ids: Sequence[str], scores: Array, tag: str) -> str:
    """Return the text of a run file. The clips with the highest scores come first."""
    order = np.argsort(-trec_ranks(ids, scores))
    text = ""
    for rank, row in enumerate(order.tolist(), 1):
        text += f"{topic} Q0 {ids[row]} {rank} {float(scores[row])!r} {tag}\n"
    return text


def read_run_file(path: Path) -> Table:
    """Read a run file of a single topic as a table with `COLUMNS`.

    The rows are in the file's order. As in trec_eval, the scores count, not the file's ranks.
    """
    text = read_bytes(path, ExperimentError).decode(errors="replace")
    rows = []
    numbers = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.split()
        if not cells:
            continue
        try:
            _, _, _, _, score, _ = cells
            if not math.isfinite(float(score)):
                raise ValueError
        except ValueError:
            raise ExperimentError(
                f"{path}, line {number}: a line of a run file has six columns (topic, Q0, id, "
                f"rank, score, tag) and a finite score (got {shorten(line)})"
            ) from None
        rows.append(cells)
        numbers.append(number)
    if len({cells[0] for cells in rows}) != 1:
        raise ExperimentError(f"{path}: a run file needs lines of one and the same topic")
    columns = zip(COLUMNS, np.array(rows).T.tolist(), strict=True)
    return Table(path, " ", dict(columns), numbers)


def trec_average_precision(
    ids: Sequence[str],
    scores: Array,
    positives: Sequence[str],
) -> float | None:
    """Return the average precision as trec_eval computes it; None if there are no positive clips.

    Positive clips that are not among `ids` lower the average precision. In `ranking_scores`,
    clips with the same score share a rank, so the two results can differ widely if many scores are
    equal.

    Parameters
    ----------
    ids, scores
        The ranked clips, in any order, without duplicate ids.
    positives
        The ids of the positive clips, without duplicates; the other ids are negative.

    Examples
    --------
    >>> scores = np.array([0.9, 0.5, 0.5, 0.5, 0.1])
    >>> round(trec_average_precision(["v1", "v2", "v3", "v4", "v5"], scores, ["v1", "v3"]), 4)
    0.8333
    """
    if not positives:
        return None
    labels = np.isin(ids, [*positives])
    found = ranking_scores(labels, trec_ranks(ids, scores), np.ones((1, len(labels))))
    precision = float(np.nan_to_num(found["average_precision"][0]))
    return precision * int(labels.sum()) / len(positives)


def score_run(path: Path, manifest: Manifest, *, labels: str | None = None) -> dict[str, Any]:
    """Score a run by the official measure of a label set.

    Parameters
    ----------
    path
        A run file; or, if the measure is accuracy, a CSV table with the columns ``id`` and
        ``prediction``, as written by ``obygaze models predict``. Clips are named by ids or files.
    manifest
        The manifest with the true labels.
    labels
        The label set to score against; by default, the manifest's default.

    Returns
    -------
    dict
        The ``labels``, their official ``measure``, its ``value``, and the number of labelled test
        ``clips``. For a ranking, also the number of ``positives`` and the run's ``tag``.
        ``missing`` are the labelled test clips that are not in the run: they lower the score,
        except negative clips in a ranking. ``outside`` are the clips in the run that are not
        labelled test clips: a ranking counts them as negative, as in trec_eval.
    """
    truth = manifest.labels(labels)
    measure = measure_of(truth)
    if not measure:
        raise ExperimentError(
            f'{truth.name} has no official measure; add "measure" to labels/{truth.name}.json'
        )
    split = manifest.split("official")
    tested = set(split.fold(split.last_fold))
    level_of = truth.where(tested.__contains__).level_of
    if not level_of:
        raise ExperimentError(
            f"nothing to score: no test clip has a label in {truth.name}. Choose other labels"
        )

    scheme = manifest.label_scheme(labels)
    facts: dict[str, Any] = {"labels": truth.name, "measure": measure}
    if measure == TREC:
        run = read_run_file(path)
        row_of = _rows_by_clip(run, manifest)
        positives = [clip for clip, level in level_of.items() if level == scheme.codes[-1]]
        # Ties are ordered by the names in the file. Missing clips have no name there.
        names = [run["id"][row_of[clip]] if clip in row_of else clip for clip in positives]
        scores = np.array(run["score"], dtype=float)
        facts["value"] = trec_average_precision(run["id"], scores, names)
        facts["positives"] = len(positives)
        facts["tag"] = run["tag"][0]
    else:
        run = read_table(path, required=["id", "prediction"])
        row_of = _rows_by_clip(run, manifest)
        predicted = map_column(run, "prediction", scheme.level)
        is_correct = [predicted[row] == level_of.get(clip) for clip, row in row_of.items()]
        facts["value"] = sum(is_correct) / len(level_of)
    return facts | {
        "clips": len(level_of),
        "missing": [clip for clip in level_of if clip not in row_of],
        "outside": [clip for clip in row_of if clip not in level_of],
    }


def _rows_by_clip(run: Table, manifest: Manifest) -> dict[str, int]:
    """Return the row of each clip of a run; raise for unknown and for duplicate clips."""
    id_of = {item.media: item.id for item in manifest if item.media}
    id_of |= {item.id: item.id for item in manifest}
    row_of = {}
    for row, name in enumerate(run["id"]):
        clip = id_of.get(name)
        if clip is None:
            raise run.problem(row, unknown_name("clip", name, id_of))
        if clip in row_of:
            raise run.problem(row, f"duplicate clip {shorten(name)}")
        row_of[clip] = row
    return row_of
