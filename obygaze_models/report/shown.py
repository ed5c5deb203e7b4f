"""The runs of a page: how each is called, and what each of its models said of each clip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from obygaze_models.experiments.record import RunRecord
from obygaze_models.experiments.run_folder import (
    Clip,
    Explained,
    FitPredictions,
    MeanPredictions,
    Results,
    average_over_fits,
)

__all__ = ["Shown", "View", "shown_runs"]


@dataclass(frozen=True, eq=False)
class View:
    """What one model of a run said of each clip that it was tested on: the mean over its fits.

    Parameters
    ----------
    model, task
        The model; and the test set, where each test set has a model of its own (concepts).
    classes
        The name of each label; of two the second is the positive one.
    said
        Means over the fits that tested a clip.
    explained
        Why, one for each fit; may be empty.
    each
        Fit -> clip -> what it said alone.
    """

    model: str
    task: str
    classes: tuple[str, ...]
    said: MeanPredictions
    explained: tuple[Explained, ...]
    each: Mapping[int, Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Shown:
    """A run of the page.

    `number` is its place among the runs, `name` is unique there; `feature` names backbone and
    array.
    """

    number: int
    name: str
    feature: str
    results: Results
    views: tuple[View, ...]

    @property
    def record(self) -> RunRecord:
        """What ``run.json`` says."""
        return self.results.run.record

    @property
    def clips(self) -> Mapping[str, Clip]:
        """The labelled clips by id."""
        return self.results.clips

    @property
    def protocol(self) -> str:
        """How clips were divided."""
        return str(self.record.protocol)

    @property
    def tested(self) -> int:
        """How many clips some model of the run was tested on."""
        return len({one for said in self.results.said for one in said.ids})

    def train_of(self, test: str) -> str:
        """What was told apart in training by the models that were tested on `test`."""
        return self.record.trained_on(test)


def shown_runs(runs: Sequence[Results]) -> list[Shown]:
    """Name the runs so that each can be told from the others."""
    records = [one.run.record for one in runs]
    names = _told_apart(
        [str(record.experiment["name"]) for record in records],
        [one.run.folder.name for one in runs],
    )
    features = [_feature(record) for record in records]
    stores = [str(record.store.name) for record in records]
    of_feature: dict[str, set[str]] = {}
    for feature, record in zip(features, records, strict=True):
        of_feature.setdefault(feature, set()).add(str(record.store.fingerprint))
    return [
        Shown(
            number,
            names[number],
            features[number]
            + (f" ({stores[number]})" if len(of_feature[features[number]]) > 1 else ""),
            results,
            tuple(_views(results)),
        )
        for number, results in enumerate(runs)
    ]


def _feature(record: RunRecord) -> str:
    experiment = record.experiment
    pooling = f", {experiment['pooling']}" if experiment["pooling"] else ""
    return f"{record.store.backbone['name']} {experiment['array']}{pooling}"


def _told_apart(names: list[str], others: list[str]) -> list[str]:
    """Names, with something else in brackets, and at last a number, where two are the same."""
    for more in (others, [str(place + 1) for place in range(len(names))]):
        counts = Counter(names)
        names = [
            f"{name} ({other})" if counts[name] > 1 else name
            for name, other in zip(names, more, strict=True)
        ]
    return names


def _views(results: Results) -> list[View]:
    tasks = {draw.task for draw in results.run.record.fits}
    grouped: dict[tuple[str, str], list[FitPredictions]] = {}
    for said in results.said:
        # Where a test set has no model of its own, the same fit spoke of a clip in each of them.
        own = said.test if len(tasks) > 1 else ""
        grouped.setdefault((said.model, own), []).append(said)
    return [_view(results, model, task, of) for (model, task), of in grouped.items()]


def _view(results: Results, model: str, task: str, of: list[FitPredictions]) -> View:
    tests = results.run.record.tests
    largest = max({said.test for said in of}, key=lambda test: tests[test].clips)
    each: dict[int, dict[str, Any]] = {}
    for said in of:
        each.setdefault(said.fit, {}).update(zip(said.ids, said.probabilities, strict=True))
    return View(
        model,
        task,
        tuple(tests[largest].classes),
        average_over_fits(of),
        tuple(one for one in results.explained if one.model == model and task in ("", one.task)),
        each,
    )
