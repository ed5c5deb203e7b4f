"""What came of a plan's fits: predictions, models, what went wrong; and the record of all of it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.manifests.splits import overlapping
from obygaze_models.data.leaks import Leak, find_leaks, footage_of
from obygaze_models.data.protocols import PROTOCOLS, Fold
from obygaze_models.data.stores import store_fingerprint
from obygaze_models.data.tasks import Task, uses_external_data
from obygaze_models.data.warnings import RunWarning, origin_warnings
from obygaze_models.estimators.registry import ESTIMATORS
from obygaze_models.experiments.finished_fits import FinishedFits
from obygaze_models.experiments.fit import Fit, FitResult, PlannedFit, test_predictions
from obygaze_models.experiments.plan import Plan, about_features, describe_experiment
from obygaze_models.experiments.predictions import FitPredictions
from obygaze_models.experiments.record import (
    Features,
    FitRecord,
    Intervals,
    LeakCount,
    Machine,
    ManifestRecord,
    Official,
    RunRecord,
    Skipped,
    StoreRecord,
)
from obygaze_models.experiments.scores import class_counts, score_models, score_test_sets
from obygaze_models.scoring.intervals import LEVEL, REPLICATES
from obygaze_models.scoring.metrics import TREC

#: Of a saved model these are in its folder, not in ``models.jsonl``.
_LONG = ("features", "seen", "footage", "warnings")


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that came of training and testing.

    `models` are the lines of ``models.jsonl``, `saved` the results whose models were saved; `seen`
    has by task and fold the rows that some model of it looked at; `warnings` are those of other
    packages' estimators.
    """

    plan: Plan
    skipped: list[Skipped]
    predictions: list[FitPredictions] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)
    saved: list[FitResult] = field(default_factory=list)
    seen: dict[tuple[str, int], NDArray[Any]] = field(default_factory=dict)
    warnings: list[RunWarning] = field(default_factory=list)

    def add(self, result: FitResult, finished: FinishedFits) -> None:
        """A fit, which is kept; or one that failed."""
        planned, fit = result.planned, result.fit
        name, task, fold = planned.model, planned.task, planned.fold
        if fit is None or result.table is None:
            self._skip(name, task, fold, result.reason)
            return
        about = about_model(self.plan, planned, fit) | {"fit": fold.index}
        not_saved = finished.keep(result, about)
        if not not_saved:
            self.saved.append(result)
        brief = {key: value for key, value in about.items() if key not in _LONG}
        line = {"folder": f"models/{planned.place}", **brief, "seed": fold.seed}
        self.models.append(line | ({"not_saved": not_saved} if not_saved else {}))
        if planned.spec.name not in ESTIMATORS:
            self.warnings.extend(
                RunWarning(note.code, name, f"{name}: {note.text}") for note in fit.warnings
            )
        key = {"model": name, "task": task.name, "fit": fold.index}
        self.history.extend({**key, **epoch} for epoch in fit.history)
        before = self.seen.get((task.name, fold.index), np.array([], dtype=np.intp))
        self.seen[task.name, fold.index] = np.union1d(before, fit.seen)
        data, problem = self.plan.data, planned.problem
        self.predictions.extend(test_predictions(data, problem, name, fold, result.table))

    def add_outside(self) -> None:
        """The predictions of models that were trained elsewhere."""
        data = self.plan.data
        for model in self.plan.outside:
            for problem in self.plan.problems:
                for fold in self.plan.folds[problem.train.name]:
                    ids = [data.ids[row] for row in fold.test_rows.tolist()]
                    table = model.probabilities(problem.train, fold.index, ids)
                    if table is None:
                        why = f"{model.path.name} has no predictions of fit {fold.index}"
                        self._skip(model.name, problem.train, fold, why)
                        continue
                    found = test_predictions(data, problem, model.name, fold, table)
                    self.predictions.extend(found)

    def _skip(self, model: str, task: Task, fold: Fold, why: str) -> None:
        what = f"{model}, {fold.name}"
        self.skipped.append(Skipped(task=task.name, fit=fold.index, what=what, why=why))

    @cached_property
    def leaks(self) -> dict[str, list[Leak]]:
        """By training task the leaks of its fits."""
        return {
            task: find_leaks(
                folds,
                self.plan.data.ids,
                seen={fit: rows for (of, fit), rows in self.seen.items() if of == task},
                meet=partial(overlapping, self.plan.manifest.items),
            )
            for task, folds in self.plan.folds.items()
        }

    def record(
        self,
        warnings: list[RunWarning],
        *,
        files: dict[str, str],
        started: str,
        seconds: float,
    ) -> RunRecord:
        """All of ``run.json``."""
        plan, experiment, data = self.plan, self.plan.experiment, self.plan.data
        manifest, attributes = plan.manifest, plan.store.attributes
        tests = {task.name: task.classes for problem in plan.problems for task in problem.tests}
        leaked, official = self.leaks.values(), None
        if plan.measure:
            external = uses_external_data(attributes["backbone"])
            official = Official(measure=plan.measure, external_data=external)
        return RunRecord(
            experiment=describe_experiment(experiment),
            goal=experiment.goal,
            models=[*experiment.learners, *(model.name for model in plan.outside)],
            protocol=plan.division.protocol,
            split=plan.division.split,
            warnings=warnings,
            ablated=self._ablated(),
            manifest=ManifestRecord(
                name=manifest.name,
                version=manifest.version,
                digest=manifest.digest,
                labels=plan.labels.name,
                levels={level.code: level.name for level in plan.scheme.levels},
                licence=manifest.licence,
                citation=manifest.citation,
            ),
            official=official,
            store=msgspec.convert(
                attributes | {"fingerprint": store_fingerprint(plan.store)}, StoreRecord
            ),
            features=Features(
                **about_features(experiment, plan.store), frames=experiment.frame_array
            ),
            join=plan.join,
            fits=[
                FitRecord(
                    task=problem.train.name,
                    fit=fold.index,
                    name=fold.name,
                    seed=fold.seed,
                    train=class_counts(codes[fold.train], problem.train.classes),
                    validation=class_counts(codes[fold.validation], problem.train.classes),
                    drawn_from=fold.drawn_from,
                )
                for problem in plan.problems
                for codes in [problem.train.labels(data)]
                for fold in plan.folds[problem.train.name]
            ],
            skipped=self.skipped,
            leaked=sorted({clip for leaks in leaked for leak in leaks for clip in leak.ids}),
            leaks=[
                LeakCount(
                    task,
                    leak.fold,
                    leak.test,
                    leak.clips,
                    *map(len, (leak.train, leak.validation, leak.otherwise)),
                )
                for task, leaks in self.leaks.items()
                for leak in leaks
            ],
            films=plan.films,
            tests=score_test_sets(self.predictions, tests, seed=experiment.seed),
            scores=score_models(
                self.predictions,
                dict(zip(data.ids, data.groups.tolist(), strict=True)),
                seed=experiment.seed,
                trec=plan.measure == TREC,
            ),
            intervals=Intervals(level=LEVEL, draws_of_films=REPLICATES, seed=experiment.seed),
            versions=plan.versions,
            machine=Machine(system=platform.platform(), cores=os.cpu_count()),
            files=files,
            started=started,
            seconds=seconds,
            balance=experiment.balance or PROTOCOLS[plan.division.protocol].default_balance,
        )

    def _ablated(self) -> dict[str, dict[str, float]]:
        """For each hybrid its mean accuracy on validation, with and without its concepts."""
        accuracies: dict[str, list[Mapping[str, float]]] = {}
        for model in self.models:
            if isinstance(values := model["facts"].get("accuracy"), dict):
                parts = {key: value for key, value in values.items() if isinstance(value, float)}
                accuracies.setdefault(model["model"], []).append(parts)
        return {
            name: {
                key: float(np.mean([fit[key] for fit in fits]))
                for key in fits[0]
                if all(key in fit for fit in fits)
            }
            for name, fits in accuracies.items()
        }


def about_model(plan: Plan, planned: PlannedFit, fit: Fit) -> dict[str, Any]:
    """What is kept with a saved model: what it tells apart, by what, and from which clips."""
    seen = sorted(plan.data.ids[row] for row in fit.seen.tolist())
    items = plan.manifest.items
    return {
        "model": planned.model,
        "estimator": planned.spec.name,
        "options": planned.spec.table,
        "reads": fit.reads,
        "task": planned.task.name,
        "learns": dict(vars(planned.task)),
        "classes": list(planned.task.classes),
        "facts": fit.facts,
        "features": about_features(plan.experiment, plan.store, frames=fit.reads == "frames"),
        # Whoever scores it again can see which clips it has seen, also under other ids.
        "seen": seen,
        "footage": footage_of(items, seen),
        "warnings": [asdict(warning) for warning in origin_warnings(items, plan.store.attributes)],
    }
