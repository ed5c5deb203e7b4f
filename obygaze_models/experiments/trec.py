"""Runs on a benchmark's test set: run files of trec_eval, and scores by the official measure.

A run file has a line a clip, such as ``violence Q0 ACCEDE00001 1 0.913 mlp-external-data``: the
topic, a constant, the clip, its rank, its score, and the run's tag. The end of a tag that we write
says whether external data was used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
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
from obygaze_models.data.tasks import learned_task, measure_of, official_measure, uses_external_data
from obygaze_models.experiments.spec import folder_name
from obygaze_models.saved.about import read_about
from obygaze_models.saved.inference import Predictions, predict
from obygaze_models.scoring.metrics import METRICS, TREC, trec_average_precision, trec_ranks

SPLIT = "official"
"""The fold column whose last fold is the test set."""
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_TAG_ENDS = {True: "-external-data", False: "-own-data"}


@dataclass(frozen=True, eq=False)
class RunFile:
    """The content of a run file: the names that it gives clips, and their scores."""

    topic: str
    tag: str
    names: list[str]
    scores: NDArray[Any]

    @property
    def external_data(self) -> bool | None:
        """Whether external data was used; None where the tag does not say."""
        return next((used for used, end in _TAG_ENDS.items() if self.tag.endswith(end)), None)


@dataclass(frozen=True)
class WrittenRun:
    """A model's ranking of the test clips.

    Parameters
    ----------
    text
        Of the run file.
    tag
        The run's name, and whether it used external data.
    predictions
        Of the clips that it ranks.
    missing
        Test clips without features: those that are positive count against the run.
    """

    text: str
    tag: str
    predictions: Predictions
    missing: list[str]


@dataclass(frozen=True, kw_only=True)
class RunScore:
    """A run's score on the labelled clips of a test set.

    Parameters
    ----------
    labels, measure, value
        The label set, its official measure, and the score.
    clips, positives
        Labelled test clips, and those of the highest level where the measure ranks.
    missing
        Those of the clips that the run does not return; they count against it.
    outside
        What it returns besides. In a ranking they count as negative, as trec_eval has it.
    tag, external_data
        From the run file; None where it does not say.
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
        """The measure as people write it."""
        return METRICS[self.measure].title


def write_run(
    model: str | Path,
    store: Stores,
    manifest: Manifest | str | Path,
    *,
    labels: str | None = None,
    split: str = SPLIT,
    name: str | None = None,
) -> WrittenRun:
    """Rank the test clips by a saved model.

    Parameters
    ----------
    model, store
        As in `obygaze_models.saved.inference.predict`.
    manifest
        The manifest of the clips, or its folder; labels are not looked at.
    labels
        The label set that the model is for; it names the topic.
    split
        The fold column whose last fold is the test set.
    name
        The run's name; by default the model's.
    """
    manifest = manifest if isinstance(manifest, Manifest) else Manifest.load(Path(manifest))
    opened = open_stores(store)
    truth, scheme = manifest.labels(labels), manifest.label_scheme(labels)
    about = read_about(Path(model))
    if official_measure(truth, scheme, [learned_task(about)]) != TREC:
        raise ExperimentError(
            f"the model tells {about['task']}, but a run file ranks clips by the highest level of "
            f"a label set against all others; {truth.name} has levels {', '.join(scheme.codes)}. "
            "For classes use: obygaze models predict MODEL STORE -o FILE"
        )
    folds = manifest.split(split)
    tested = folds.fold(folds.test_fold)
    predictions = predict(model, opened, ids=[clip for clip in tested if clip in opened])
    if not predictions.ids:
        raise ExperimentError(
            f"none of the {len(tested)} test clips, such as {join_some(tested, 2)}, has features "
            f"in {opened.where}"
        )
    external = uses_external_data(about["features"]["backbone"])
    tag = run_tag(name or about["model"], external_data=external)
    text = format_run(truth.name, predictions.ids, predictions.probabilities[:, 1], tag)
    return WrittenRun(text, tag, predictions, missing_from(predictions.ids, tested))


def run_tag(name: str, *, external_data: bool) -> str:
    """A tag that says whether external data was used.

    Examples
    --------
    >>> run_tag("mlp, deep", external_data=True)
    'mlp-deep-external-data'
    """
    return folder_name(name) + _TAG_ENDS[external_data]


def format_run(topic: str, ids: Sequence[str], scores: NDArray[Any], tag: str) -> str:
    """The text of a run file, best clips first; scores are written in full."""
    order = np.argsort(-trec_ranks(ids, scores))
    return "".join(
        f"{topic} Q0 {ids[row]} {rank} {float(scores[row])!r} {tag}\n"
        for rank, row in enumerate(order.tolist(), start=1)
    )


def read_run_file(path: Path) -> RunFile:
    """Read a run file of one topic; `ExperimentError` names the first line that is wrong.

    As in trec_eval, scores order the clips; ranks are ignored.
    """
    with translate(ExperimentError, path, "is not UTF-8 ({}); give a run file"):
        lines = read_bytes(path, ExperimentError).decode().splitlines()
    scores: dict[str, float] = {}
    topic = tag = None
    for number, line in enumerate(lines, start=1):
        if not (cells := line.split()):
            continue
        where = f"{path}, line {number}"
        if len(cells) != 6:
            raise ExperimentError(
                f"{where}: {counted(len(cells), 'word')}, where a run file has six: topic, Q0, "
                "clip, rank, score, tag"
            )
        topic, tag = topic or cells[0], tag or cells[5]
        for column, text, first in (("topic", cells[0], topic), ("tag", cells[5], tag)):
            if text != first:
                raise ExperimentError(
                    f"{where}: {column} {shorten(text)} after {shorten(first)}; write each to "
                    "a separate file"
                )
        name, value = cells[2], cells[4]
        if name in scores:
            raise ExperimentError(f"{where}: duplicate id {shorten(name)}")
        scores[name] = float(value) if _NUMBER.fullmatch(value) else math.nan
        if not math.isfinite(scores[name]):
            raise ExperimentError(f"{where}: score {shorten(value)} is not a number")
    if topic is None or tag is None:
        raise ExperimentError(f"{path} is empty; a run file has a line a clip")
    return RunFile(topic, tag, list(scores), np.array(list(scores.values())))


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
        A run file; where the measure is accuracy, a CSV table with the columns ``id`` and
        ``prediction``, as `predict` writes. Clips are named by their ids or files.
    manifest
        The manifest or its folder; its labels are the truth.
    labels
        Which of its label sets; by default its default one.
    split
        The fold column whose last fold is the test set.
    """
    path = Path(path)
    manifest = manifest if isinstance(manifest, Manifest) else Manifest.load(Path(manifest))
    truth = manifest.labels(labels)
    measure = measure_of(truth)
    if measure is None:
        raise ExperimentError(
            f"the labels {truth.name!r} of {manifest.name} name no official measure: add one to "
            f'labels/{truth.name}.json, such as "measure": "{TREC}"'
        )
    folds = manifest.split(split)
    tested = set(folds.fold(folds.test_fold))
    level_of = {clip: level for clip, level in truth.level_of.items() if clip in tested}
    if not level_of:
        raise ExperimentError(
            f"no clip of the test set (fold {folds.last_fold} of {split}) has a label in "
            f"{truth.name}, so there is nothing to score"
        )
    about: dict[str, Any] = {}
    if measure == TREC:
        run = read_run_file(path)
        ids = _clip_ids(path, run.names, manifest)
        highest = manifest.label_scheme(truth.name).codes[-1]
        positives = {clip for clip, level in level_of.items() if level == highest}
        # Ties are ordered by the names in the file; a clip that is not in it has no name there.
        name_of = dict(zip(ids, run.names, strict=True))
        names = [name_of.get(clip, clip) for clip in positives]
        value = trec_average_precision(run.names, run.scores, names)
        about = {"positives": len(positives), "tag": run.tag, "external_data": run.external_data}
    else:
        levels = _read_levels(path, manifest.label_scheme(truth.name))
        ids = _clip_ids(path, list(levels), manifest)
        predicted = dict(zip(ids, levels.values(), strict=True))
        correct = sum(predicted.get(clip) == level for clip, level in level_of.items())
        value = correct / len(level_of)
    return RunScore(
        labels=truth.name,
        measure=measure,
        value=value,
        clips=len(level_of),
        missing=missing_from(ids, level_of),
        outside=missing_from(level_of, ids),
        **about,
    )


def _read_levels(path: Path, scheme: LabelScheme) -> dict[str, str]:
    """The level that a table predicts for each clip, by the name that it gives the clip."""
    levels: dict[str, str] = {}
    with errors_as(ExperimentError):
        table = read_table(path, required=["id"])
        column = "prediction" if "prediction" in table.columns else "said"  # version 0.2 wrote it
        if column not in table.columns:
            raise ExperimentError(f"{path}: no column 'prediction'; give a table id, prediction")
        for row, (name, text) in enumerate(zip(table["id"], table[column], strict=True)):
            if name in levels:
                raise table.problem(row, f"duplicate id {name!r}")
            with at_row(table, row):
                levels[name] = scheme.level(text)
    return levels


def _clip_ids(path: Path, names: Sequence[str], manifest: Manifest) -> list[str]:
    """The id of each clip that a run names by its id or file; no clip twice."""
    id_of = {item.media: item.id for item in manifest if item.media}
    id_of.update(zip(manifest.ids, manifest.ids, strict=True))
    name_of: dict[str, str] = {}
    for name in names:
        if name not in id_of:
            near = find_closest(name, id_of)
            hint = f"did you mean {near}?" if near else f"it has {join_some(manifest.ids, 2)}"
            raise ExperimentError(f"{path}: {manifest.name} has no clip {name}; {hint}")
        if (earlier := name_of.setdefault(id_of[name], name)) != name:
            raise ExperimentError(f"{path}: duplicate id: {earlier} and {name} are the same clip")
    return list(name_of)
