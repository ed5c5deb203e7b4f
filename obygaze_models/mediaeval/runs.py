"""Runs on a benchmark's test set: files for trec_eval, and scores by the official measure.

A run file has a line per clip, such as ``violence Q0 ACCEDE00001 1 0.913 mlp-external-data``: the
topic, a constant, the clip, its rank, its score, and the run's tag. Tags that obygaze writes end in
``-external-data`` or ``-own-data``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import read_bytes
from obygaze_features.common.tables import read_table
from obygaze_features.common.text import counted, find_closest, join_some, shorten
from obygaze_features.errors import ExperimentError, errors_as, translate
from obygaze_features.manifests import LabelScheme, Manifest
from obygaze_features.manifests.importers.reading import at_row
from obygaze_models.data.dataset import missing_from
from obygaze_models.data.stores import Stores, open_stores
from obygaze_models.data.tasks import measure_of, official_measure, uses_external_data
from obygaze_models.experiments.spec import folder_name
from obygaze_models.saved.about import read_about
from obygaze_models.saved.inference import Predictions, predict
from obygaze_models.scoring.metrics import METRICS, TREC, average_precision, trec_ranks

SPLIT = "official"
"""The fold column whose last fold is the test set."""
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_TAG_ENDS = {True: "-external-data", False: "-own-data"}


@dataclass(frozen=True, eq=False)
class RunFile:
    """The content of a run file: topic, tag, and the names and scores of clips."""

    topic: str
    tag: str
    names: list[str]
    scores: NDArray[Any]

    @property
    def external_data(self) -> bool | None:
        """True if external data was used; None if the tag does not say so either way."""
        return next((used for used, end in _TAG_ENDS.items() if self.tag.endswith(end)), None)


@dataclass(frozen=True)
class WrittenRun:
    """A model's ranking of the test clips.

    Parameters
    ----------
    text
        The text of the run file.
    tag
        The run's name, followed by ``-external-data`` or ``-own-data``.
    predictions
        The predictions of the ranked clips.
    missing
        The test clips without features. Positive clips among them lower the run's score.
    """

    text: str
    tag: str
    predictions: Predictions
    missing: list[str]


def write_run(
    folder: str | Path,
    store: Stores,
    manifest: Manifest | str | Path,
    *,
    labels: str | None = None,
    split: str = SPLIT,
    name: str | None = None,
) -> WrittenRun:
    """Rank the test clips with a saved model.

    Parameters
    ----------
    folder, store
        See `obygaze_models.saved.inference.predict`.
    manifest
        The manifest of the clips, or its folder. The clips' labels are not used.
    labels
        The label set that the model learned, which is also the topic; by default, the manifest's
        default.
    split
        The fold column whose last fold is the test set.
    name
        The run's name; by default the model's.
    """
    manifest = manifest if isinstance(manifest, Manifest) else Manifest.load(Path(manifest))
    opened = open_stores(store)
    truth, scheme = manifest.labels(labels), manifest.label_scheme(labels)
    about = read_about(Path(folder))
    if official_measure(truth, scheme, [about.learned_task]) != TREC:
        raise ExperimentError(
            f"the model predicts {about.description.task}, but for a run file it must separate the "
            f"highest level from all others (levels of {truth.name}: {', '.join(scheme.codes)}). "
            "To predict classes, use: obygaze models predict MODEL STORE -o FILE"
        )
    folds = manifest.split(split)
    tested = folds.fold(folds.test_fold)
    predictions = predict(folder, opened, ids=[clip for clip in tested if clip in opened])
    if not predictions.ids:
        raise ExperimentError(
            f"none of the {len(tested)} test clips (such as {join_some(tested, 2)}) has features "
            f"in {opened.where}"
        )
    external = uses_external_data(about["features"]["backbone"])
    tag = run_tag(name or about.description.model, external_data=external)
    text = format_run(truth.name, predictions.ids, predictions.probabilities[:, 1], tag)
    return WrittenRun(text, tag, predictions, missing_from(predictions.ids, tested))


def run_tag(name: str, *, external_data: bool) -> str:
    """Return a run's tag: its name, and whether external data was used.

    Examples
    --------
    >>> run_tag("mlp, deep", external_data=True)
    'mlp-deep-external-data'
    """
    return folder_name(name) + _TAG_ENDS[external_data]


def format_run(topic: str, ids: Sequence[str], scores: NDArray[Any], tag: str) -> str:
    """Return the text of a run file. The clips with the highest scores come first."""
    order = np.argsort(-trec_ranks(ids, scores))
    return "".join(
        f"{topic} Q0 {ids[row]} {rank} {float(scores[row])!r} {tag}\n"
        for rank, row in enumerate(order.tolist(), start=1)
    )


def read_run_file(path: Path) -> RunFile:
    """Read a run file of a single topic; raise `ExperimentError` if a line is invalid.

    Clips are ordered by their scores, as in trec_eval; the ranks in the file are ignored.
    """
    with translate(ExperimentError, path, "is not UTF-8 ({}). Pass a run file"):
        lines = read_bytes(path, ExperimentError).decode().splitlines()
    scores: dict[str, float] = {}
    topic = tag = None
    for number, line in enumerate(lines, start=1):
        if not (cells := line.split()):
            continue
        where = f"{path}, line {number}"
        if len(cells) != 6:
            raise ExperimentError(
                f"{where}: got {counted(len(cells), 'column')}, but a run file has six: topic, Q0, "
                "clip, rank, score, tag"
            )
        topic, tag = topic or cells[0], tag or cells[5]
        for column, text, first in (("topic", cells[0], topic), ("tag", cells[5], tag)):
            if text != first:
                raise ExperimentError(
                    f"{where}: {column} {shorten(text)} differs from {shorten(first)}. Use a "
                    "separate file for each topic and tag"
                )
        name, value = cells[2], cells[4]
        if name in scores:
            raise ExperimentError(f"{where}: duplicate id {shorten(name)}")
        scores[name] = float(value) if _NUMBER.fullmatch(value) else math.nan
        if not math.isfinite(scores[name]):
            raise ExperimentError(f"{where}: score {shorten(value)} is not a finite number")
    if topic is None or tag is None:
        raise ExperimentError(f"{path} is empty. A run file has a line per clip")
    return RunFile(topic, tag, list(scores), np.array(list(scores.values())))


@dataclass(frozen=True, kw_only=True)
class RunScore:
    """A run's score on the labelled clips of a test set.

    Parameters
    ----------
    labels, measure, value
        The label set, its official measure, and the score.
    clips, positives
        The numbers of labelled test clips and, if the measure is a ranking, of positive clips.
    missing
        The labelled test clips that are not in the run. They lower the score, except negative clips
        in a ranking.
    outside
        The clips in the run that are not labelled test clips. A ranking counts them as negative,
        as in trec_eval.
    tag, external_data
        The run's tag, and whether external data was used; None if unknown.
    """

    labels: str
    measure: str
    value: float | None
    clips: int
    positives: int | None = None
    missing: list[str]
    outside: list[str]
    tag: str | None = None
    external_data: bool | None = None

    @property
    def title(self) -> str:
        """The title of the measure."""
        return METRICS[self.measure].title


def trec_average_precision(
    ids: Sequence[str], scores: NDArray[Any], positives: Collection[str]
) -> float | None:
    """Return the average precision as trec_eval computes it; None if there are no positive clips.

    Positive clips that are not among `ids` lower the average precision. In `average_precision`,
    clips with the same score share a rank, so the two results can differ widely if many scores are
    equal.

    Parameters
    ----------
    ids, scores
        The ranked clips, in any order, without duplicate ids.
    positives
        The ids of the positive clips; the other ids are negative.

    Examples
    --------
    >>> scores = np.array([0.9, 0.5, 0.5, 0.5, 0.1])
    >>> round(trec_average_precision(["v1", "v2", "v3", "v4", "v5"], scores, ["v1", "v3"]), 4)
    0.8333
    """
    positive_ids = set(positives)
    if not positive_ids:
        return None
    labels = np.array([clip in positive_ids for clip in ids], dtype=np.int64)
    precision = average_precision(labels, trec_ranks(ids, scores))
    return 0.0 if precision is None else precision * int(labels.sum()) / len(positive_ids)


def score_run(
    path: str | Path,
    manifest: Manifest | str | Path,
    *,
    labels: str | None = None,
    split: str = SPLIT,
) -> RunScore:
    """Score a run by the official measure of a label set.

    Parameters
    ----------
    path
        A run file; or, if the measure is accuracy, a CSV table with the columns ``id`` and
        ``prediction``, as written by ``obygaze models predict``. Clips are named by ids or files.
    manifest
        The manifest with the true labels, or its folder.
    labels
        The label set to score against; by default, the manifest's default.
    split
        The fold column whose last fold is the test set.
    """
    path = Path(path)
    manifest = manifest if isinstance(manifest, Manifest) else Manifest.load(Path(manifest))
    truth = manifest.labels(labels)
    measure = measure_of(truth)
    if measure is None:
        raise ExperimentError(
            f"the labels {truth.name!r} of {manifest.name} have no official measure. Add one to "
            f'labels/{truth.name}.json, such as "measure": "{TREC}"'
        )
    folds = manifest.split(split)
    tested = set(folds.fold(folds.test_fold))
    level_of = {clip: level for clip, level in truth.level_of.items() if clip in tested}
    if not level_of:
        raise ExperimentError(
            f"nothing to score: no clip of the test set (fold {folds.last_fold} of {split}) has a "
            f"label in {truth.name}"
        )
    about: dict[str, Any] = {}
    if measure == TREC:
        run = read_run_file(path)
        name_of = _names_by_clip(path, run.names, manifest)
        highest = manifest.label_scheme(truth.name).codes[-1]
        positives = [clip for clip, level in level_of.items() if level == highest]
        # Ties are ordered by the names in the file. Missing clips have no name there.
        names = [name_of.get(clip, clip) for clip in positives]
        value = trec_average_precision(run.names, run.scores, names)
        about = {"positives": len(positives), "tag": run.tag, "external_data": run.external_data}
    else:
        levels = _read_levels(path, manifest.label_scheme(truth.name))
        name_of = _names_by_clip(path, [*levels], manifest)
        predicted = {clip: levels[name] for clip, name in name_of.items()}
        correct = sum(predicted.get(clip) == level for clip, level in level_of.items())
        value = correct / len(level_of)
    return RunScore(
        labels=truth.name,
        measure=measure,
        value=value,
        clips=len(level_of),
        missing=missing_from(name_of, level_of),
        outside=missing_from(level_of, name_of),
        **about,
    )


def _read_levels(path: Path, scheme: LabelScheme) -> dict[str, str]:
    """Return the predicted level of each clip, by the clip's name in the table."""
    levels: dict[str, str] = {}
    with errors_as(ExperimentError):
        table = read_table(path, required=["id"])
        column = "prediction" if "prediction" in table.columns else "said"  # as in version 0.2
        if column not in table.columns:
            raise ExperimentError(f"{path}: no 'prediction' column. Add one next to 'id'")
        for row, (name, text) in enumerate(zip(table["id"], table[column], strict=True)):
            if name in levels:
                raise table.problem(row, f"duplicate id {name!r}")
            with at_row(table, row):
                levels[name] = scheme.level(text)
    return levels


def _names_by_clip(path: Path, names: Sequence[str], manifest: Manifest) -> dict[str, str]:
    """Map each clip's id to its name in a run; raise for unknown and for duplicate clips."""
    id_of = {item.media: item.id for item in manifest if item.media}
    id_of.update(zip(manifest.ids, manifest.ids, strict=True))
    name_of: dict[str, str] = {}
    for name in names:
        if name not in id_of:
            near = find_closest(name, id_of)
            hint = f"did you mean {near}?" if near else f"its clips: {join_some(manifest.ids, 2)}"
            raise ExperimentError(f"{path}: {manifest.name} has no clip {name}; {hint}")
        if (earlier := name_of.setdefault(id_of[name], name)) != name:
            raise ExperimentError(f"{path}: duplicate clip: {earlier} and {name} are the same clip")
    return name_of
