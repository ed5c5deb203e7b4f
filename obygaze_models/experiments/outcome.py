"""What came of a plan's fits: predictions, models, and what went wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.data.warnings import RunWarning, origin_warnings
from obygaze_models.estimators.registry import ESTIMATORS
from obygaze_models.experiments.fit import Fit, FitResult, PlannedFit, test_predictions
from obygaze_models.experiments.plan import Plan, about_features
from obygaze_models.experiments.predictions import FitPredictions
from obygaze_models.experiments.record import Skipped
from obygaze_models.saved.about import footage_of

#: Of a saved model these are in its folder, not in ``models.jsonl``.
_LONG = ("features", "seen", "footage", "warnings")


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that came of training and testing.

    `models` are the lines of ``models.jsonl``, `saved` the results whose models were saved; `seen`
    has by task and fold the rows that some model of it looked at; `warnings` are those of other
    packages' estimators.
    """

    skipped: list[Skipped]
    predictions: list[FitPredictions] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)
    saved: list[FitResult] = field(default_factory=list)
    seen: dict[tuple[str, int], NDArray[Any]] = field(default_factory=dict)
    warnings: list[RunWarning] = field(default_factory=list)

    def add_failure(self, result: FitResult) -> None:
        """A fit without a model."""
        task, fold = result.planned.task.name, result.planned.fold
        what = f"{result.planned.model}, {fold.name}"
        self.skipped.append(Skipped(task=task, fit=fold.index, what=what, why=result.reason))

    def add(
        self, plan: Plan, planned: PlannedFit, fit: Fit, table: NDArray[Any], line: dict[str, Any]
    ) -> None:
        """A fit, the probabilities of its test rows, and its line of ``models.jsonl``."""
        name, task, fold = planned.model, planned.task.name, planned.fold
        self.models.append(line)
        if planned.spec.name not in ESTIMATORS:
            self.warnings.extend(
                RunWarning(note.code, name, f"{name}: {note.text}") for note in fit.warnings
            )
        key = {"model": name, "task": task, "fit": fold.index}
        self.history.extend({**key, **epoch} for epoch in fit.history)
        before = self.seen.get((task, fold.index), np.array([], dtype=np.intp))
        self.seen[task, fold.index] = np.union1d(before, fit.seen)
        self.predictions.extend(test_predictions(plan.data, planned.problem, name, fold, table))

    def add_outside(self, plan: Plan) -> None:
        """The predictions of models that were trained elsewhere."""
        for model in plan.outside:
            for problem in plan.problems:
                for fold in plan.folds[problem.train.name]:
                    ids = [plan.data.ids[row] for row in fold.test_rows.tolist()]
                    table = model.probabilities(problem.train, fold.index, ids)
                    if table is not None:
                        found = test_predictions(plan.data, problem, model.name, fold, table)
                        self.predictions.extend(found)
                        continue
                    task, what = problem.train.name, f"{model.name}, {fold.name}"
                    why = f"{model.path.name} has no predictions of fit {fold.index}"
                    self.skipped.append(Skipped(task=task, fit=fold.index, what=what, why=why))


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


def model_line(planned: PlannedFit, about: dict[str, Any], not_saved: str) -> dict[str, Any]:
    """The line of ``models.jsonl``."""
    brief = {key: value for key, value in about.items() if key not in _LONG}
    line = {"folder": f"models/{planned.place}", **brief, "fit": planned.fold.index}
    return line | {"seed": planned.fold.seed} | ({"not_saved": not_saved} if not_saved else {})
