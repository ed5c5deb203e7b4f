"""Runs on a benchmark's test set, as files of trec_eval.

A run file has a line per clip, such as ``violence Q0 ACCEDE00001 1 0.913 mlp-external-data``: the
topic, a constant, the clip, its rank, its score, and the run's tag. Tags of this project end with a
statement on external data.
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
from obygaze_features.common.text import counted, join_some, shorten
from obygaze_features.errors import ExperimentError, translate
from obygaze_features.manifests import Manifest
from obygaze_models.data.dataset import missing_from
from obygaze_models.data.stores import Stores, open_stores
from obygaze_models.data.tasks import learned_task, official_measure, uses_external_data
from obygaze_models.experiments.spec import folder_name
from obygaze_models.saved.about import read_about
from obygaze_models.saved.inference import Predictions, predict
from obygaze_models.scoring.metrics import TREC, trec_ranks

SPLIT = "official"
"""The fold column whose last fold is the test set."""
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_TAG_ENDS = {True: "-external-data", False: "-own-data"}


@dataclass(frozen=True, eq=False)
class RunFile:
    """The content of a run file: the names of clips, and their scores."""

    topic: str
    tag: str
    names: list[str]
    scores: NDArray[Any]

    @property
    def external_data(self) -> bool | None:
        """True if external data was used; None if the tag does not say."""
        return next((used for used, end in _TAG_ENDS.items() if self.tag.endswith(end)), None)


@dataclass(frozen=True)
class WrittenRun:
    """A model's ranking of the test clips.

    Parameters
    ----------
    text
        The text of the run file.
    tag
        The run's name, and whether it used external data.
    predictions
        The predictions of the ranked clips.
    missing
        Test clips without features. Positive clips among them count against the run.
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
    about = read_about(Path(folder))
    if official_measure(truth, scheme, [learned_task(about)]) != TREC:
        raise ExperimentError(
            f"the model is for {about.description.task}, but a run file ranks clips by the highest "
            f"level of a label set against all others ({truth.name} has "
            f"{', '.join(scheme.codes)}). For classes: obygaze models predict MODEL STORE -o FILE"
        )
    folds = manifest.split(split)
    tested = folds.fold(folds.test_fold)
    predictions = predict(folder, opened, ids=[clip for clip in tested if clip in opened])
    if not predictions.ids:
        raise ExperimentError(
            f"none of the {len(tested)} test clips, such as {join_some(tested, 2)}, has features "
            f"in {opened.where}"
        )
    external = uses_external_data(about["features"]["backbone"])
    tag = run_tag(name or about.description.model, external_data=external)
    text = format_run(truth.name, predictions.ids, predictions.probabilities[:, 1], tag)
    return WrittenRun(text, tag, predictions, missing_from(predictions.ids, tested))


def run_tag(name: str, *, external_data: bool) -> str:
    """Return a tag that says if external data was used.

    Examples
    --------
    >>> run_tag("mlp, deep", external_data=True)
    'mlp-deep-external-data'
    """
    return folder_name(name) + _TAG_ENDS[external_data]


def format_run(topic: str, ids: Sequence[str], scores: NDArray[Any], tag: str) -> str:
    """Return the text of a run file, best clips first, with scores in full precision."""
    order = np.argsort(-trec_ranks(ids, scores))
    return "".join(
        f"{topic} Q0 {ids[row]} {rank} {float(scores[row])!r} {tag}\n"
        for rank, row in enumerate(order.tolist(), start=1)
    )


def read_run_file(path: Path) -> RunFile:
    """Read a run file of a single topic; raise `ExperimentError` with the first bad line.

    As in trec_eval, scores order the clips, and ranks are ignored.
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
                f"{where}: {counted(len(cells), 'word')}, but a run file has six: topic, Q0, "
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
        raise ExperimentError(f"{path} is empty. A run file has a line per clip")
    return RunFile(topic, tag, list(scores), np.array(list(scores.values())))
