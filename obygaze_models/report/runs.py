"""The runs of a page: their unique names, and each model's mean predictions of each clip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from obygaze_features.errors import ObygazeError
from obygaze_features.manifests import Manifest
from obygaze_models.experiments.explanations import Explained
from obygaze_models.experiments.predictions import (
    FitPredictions,
    MeanPredictions,
    average_over_fits,
)
from obygaze_models.experiments.record import RunRecord
from obygaze_models.experiments.run_folder import Clip, Run, annotated_clips, is_remote
from obygaze_models.experiments.summary import main_metric


@dataclass(frozen=True, eq=False)
class ModelResults:
    """A model's predictions and explanations of the clips that it was tested on.

    Parameters
    ----------
    model, task
        The model; and the test set, where each test set has a model of its own (concepts).
    classes
        The name of each label; of two the second is the positive class.
    predictions
        Means over the fits that tested a clip.
    explained
        The explanations, one for each fit; may be empty.
    by_fit
        Fit -> clip -> its probability.
    """

    model: str
    task: str
    classes: tuple[str, ...]
    predictions: MeanPredictions
    explained: tuple[Explained, ...]
    by_fit: Mapping[int, Mapping[str, Any]]

    @property
    def gives_reasons(self) -> bool:
        """Whether its explanations lead to the prediction; a network's sensitivities do not."""
        return any(entry.kind != "sensitivity" for entry in self.explained)


@dataclass(frozen=True, eq=False)
class ReportRun:
    """A run of the page; `number` counts the runs, `name` is unique, `feature` names backbone
    and array.
    """

    number: int
    name: str
    feature: str
    run: Run
    models: tuple[ModelResults, ...]

    @property
    def record(self) -> RunRecord:
        """The content of ``run.json``."""
        return self.run.record

    @property
    def clips(self) -> Mapping[str, Clip]:
        """The annotated clips by id: all of the label set, where the manifest is there."""
        return self._label_set or self.run.clips()

    @property
    def counts_all(self) -> bool:
        """Whether `clips` are all of the label set, rather than those that the run had."""
        return self._label_set is not None

    @cached_property
    def _label_set(self) -> dict[str, Clip] | None:
        """All clips of the manifest's default label set, where the run's labels are a part of it;
        else those of the run's own set. None where the manifest is gone, or has other labels.
        """
        own, name = self.run.clips(), self.record.manifest.labels
        if self.manifest is None or name not in self.manifest.label_names:
            return None
        for labels in (self.manifest.labels(), self.manifest.labels(name)):
            clips = annotated_clips(self.manifest, labels)
            same = (
                key in clips
                and (clip.level, clip.concepts) == (clips[key].level, clips[key].concepts)
                for key, clip in own.items()
            )
            if all(same):
                absent = f"not in the label set {name}"
                return {key: own.get(key) or replace(clips[key], used=absent) for key in clips}
        return None

    @property
    def protocol(self) -> str:
        """How clips were split."""
        return str(self.record.protocol)

    @cached_property
    def tested_clips(self) -> frozenset[str]:
        """The clips that any model of the run was tested on."""
        return frozenset(clip for fit in self.run.predictions() for clip in fit.ids)

    @property
    def tested_films(self) -> list[str]:
        """The titles of the films with a tested clip, in order."""
        clips = [clip for clip in self.clips.values() if clip.id in self.tested_clips]
        return list(dict.fromkeys(clip.title for clip in clips if clip.film))

    @property
    def films(self) -> list[str]:
        """The titles of all films, in order."""
        return list(dict.fromkeys(clip.title for clip in self.clips.values() if clip.film))

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest with its other label sets; None where it is gone, is another by now, or is
        on another machine, which a file must not choose.
        """
        path = self.record.experiment["manifest"]
        try:
            manifest = None if is_remote(path) else Manifest.load(path)
        except (ObygazeError, OSError):
            return None
        return manifest if manifest and manifest.digest == self.record.manifest.digest else None

    def mean_predictions(self, model: str, test: str) -> ModelResults:
        """A model's results on a test set, or on those that share its fits."""
        return next(
            entry for entry in self.models if entry.model == model and entry.task in ("", test)
        )

    def train_of(self, test: str) -> str:
        """The training task of the models that were tested on `test`."""
        return self.record.trained_on(test)


def prepare_runs(runs: Sequence[Run]) -> list[ReportRun]:
    """Name the runs uniquely and average their predictions."""
    records = [run.record for run in runs]
    names = _unique_names(
        [str(record.experiment["name"]) for record in records],
        [run.folder.name for run in runs],
    )
    features = [_feature(record) for record in records]
    fingerprints: dict[str, set[str]] = {}
    for feature, record in zip(features, records, strict=True):
        fingerprints.setdefault(feature, set()).add(str(record.store.fingerprint))
    titles = [
        f"{feature} ({record.store.name})" if len(fingerprints[feature]) > 1 else feature
        for feature, record in zip(features, records, strict=True)
    ]
    return [
        ReportRun(number, names[number], titles[number], run, tuple(_models(run)))
        for number, run in enumerate(runs)
    ]


def default_run(runs: Sequence[ReportRun]) -> ReportRun:
    """The run that tested the most clips; of levels rather than concepts, and without leaks."""
    return max(
        runs,
        key=lambda run: (
            not run.record.experiment["concepts"],
            not run.record.leaked,
            len(run.tested_clips),
        ),
    )


def default_model(run: ReportRun) -> ModelResults:
    """The model with the best main score, among those that give reasons if there are any."""
    metric = main_metric(run.record)
    scores = {entry.model: entry.mean[metric] or 0.0 for entry in reversed(run.record.scores)}
    return max(run.models, key=lambda results: (results.gives_reasons, scores[results.model]))


def _feature(record: RunRecord) -> str:
    experiment = record.experiment
    pooling = f", {experiment['pooling']}" if experiment["pooling"] else ""
    frames = f" and {record.features.frames}" if record.features.frames else ""
    return f"{record.store.backbone['name']} {experiment['array']}{pooling}{frames}"


def _unique_names(names: list[str], folders: list[str]) -> list[str]:
    """Names; where two are equal, with the folder in brackets, and at last a number."""
    for suffixes in (folders, [str(number + 1) for number in range(len(names))]):
        counts = Counter(names)
        names = [
            f"{name} ({suffix})" if counts[name] > 1 else name
            for name, suffix in zip(names, suffixes, strict=True)
        ]
    return names


def _models(run: Run) -> list[ModelResults]:
    tasks = {fit.task for fit in run.record.fits}
    grouped: dict[tuple[str, str], list[FitPredictions]] = {}
    for fit in run.predictions():
        # Where a test set has no model of its own, the same fit predicts it in each of them.
        task = fit.test if len(tasks) > 1 else ""
        grouped.setdefault((fit.model, task), []).append(fit)
    return [_model(run, model, task, fits) for (model, task), fits in grouped.items()]


def _model(run: Run, model: str, task: str, fits: list[FitPredictions]) -> ModelResults:
    tests = run.record.tests
    largest = max({fit.test for fit in fits}, key=lambda test: tests[test].clips)
    by_fit: dict[int, dict[str, Any]] = {}
    for fit in fits:
        by_fit.setdefault(fit.fit, {}).update(zip(fit.ids, fit.probabilities, strict=True))
    explained = tuple(
        entry for entry in run.explanations() if entry.model == model and task in ("", entry.task)
    )
    classes = tuple(tests[largest].classes)
    return ModelResults(model, task, classes, average_over_fits(fits), explained, by_fit)
