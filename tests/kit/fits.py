"""Fits of one estimator on given rows, as in a run."""

from types import SimpleNamespace
from typing import Any

from obygaze_models.data.folds import Fold
from obygaze_models.data.tasks import Class, Problem, Task
from obygaze_models.experiments.experiment import Experiment, Learner
from obygaze_models.experiments.fit import fit_planned, rows_of
from obygaze_models.experiments.plan import Division, Plan, PlannedFit


def fit_on(
    learner: Learner, data: Any, train: Any, validation: Any, labels: Any, memo: Any = None
) -> Any:
    """Return the ``estimator``, ``facts``, ``warnings``, rows ``seen`` and ``probabilities``."""
    names = [f"level:{code}" for code in range(int(labels.max()) + 1)]
    task = Task("task", "task", tuple(Class(name, name, name) for name in names))
    fold = Fold(0, "fold", 0, train, validation, {})
    nothing: Any = None
    experiment = Experiment(name="e", manifest="m", store="s")
    problem = Problem(task, ())
    plan = Plan(
        experiment, nothing, nothing, [problem], Division("split"), data, [task], nothing, nothing
    )
    vars(plan)["labels_of"] = {task: labels}
    planned = PlannedFit(learner.name, learner, problem, fold)
    fit = fit_planned(plan, planned, memo)
    seen = rows_of(plan, planned).seen
    return SimpleNamespace(
        estimator=fit.estimator, reads=fit.about.reads, cut=fit.about.cut, facts=fit.about.facts,
        warnings=fit.about.notes, seen=seen, probabilities=fit.predict,
    )  # fmt: skip
