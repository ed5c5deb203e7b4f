"""The measure by which the task that a label set comes from is officially scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import LabelScheme, LabelSet
from obygaze_models.experiments.record import RunRecord
from obygaze_models.metrics import ACCURACY, METRICS, TREC
from obygaze_models.tasks import LevelsTask, LevelTask, Task

__all__ = [
    "measure_of",
    "official_in_words",
    "official_measure",
    "uses_external_data",
]


def measure_of(labels: LabelSet) -> str | None:
    """The measure that a label set names in its JSON file, if any."""
    measure = labels.about.get("measure")
    official = [key for key, metric in METRICS.items() if metric.official]
    if measure is not None and measure not in official:
        raise ExperimentError(
            f"labels/{labels.name}.json: {unknown_name('measure', str(measure), official)}"
        )
    return measure


def official_measure(labels: LabelSet, scheme: LabelScheme, tasks: Sequence[Task]) -> str | None:
    """The label set's measure, if the tasks are what it is officially scored on.

    Average precision is of the highest level against all others, accuracy is over all levels.
    """
    measure = measure_of(labels)
    highest, others = scheme.codes[-1:], set(scheme.codes[:-1])
    for task in tasks:
        match task:
            case LevelTask():
                fits = measure == TREC and task.positives == highest
                fits = fits and set(task.negatives) == others
            case LevelsTask():
                fits = measure == ACCURACY and set(task.classes) == set(scheme.codes)
            case _:
                fits = False
        if not fits:
            return None
    return measure


def official_in_words(record: RunRecord) -> str:
    """The measure of a run that has one, and how the run is to be marked."""
    assert record.official is not None
    measure, name = METRICS[record.official.measure].title, record.store.backbone["name"]
    mark = (
        f"using external data, which {name} was trained on"
        if record.official.external_data
        else f"using no external data, for {name} has random weights"
    )
    return f"Official measure: {measure}; such a run is marked as {mark}."


def uses_external_data(backbone: Mapping[str, Any]) -> bool:
    """Whether features are of a network that learnt from other data than the task gives out.

    All but random weights did; MediaEval asks that such runs be marked.
    """
    return not backbone.get("config", {}).get("synthetic")
