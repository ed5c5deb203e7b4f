"""Predictions of models from elsewhere, to be scored with a run's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from obygaze_features.common.plugins import one_line
from obygaze_features.errors import ExperimentError
from obygaze_models.data.tasks import Problem
from obygaze_models.experiments.fit import tabulate_tests
from obygaze_models.experiments.plan import Plan

TYPES = {"id": "str", "model": "str", "task": "str", "fit": "Int64"}


def outside_predictions(plan: Plan, path: Path) -> list[pd.DataFrame]:
    """Read predictions from a table; return a table for each model, fold and test set.

    ==================  =====================================================================
    ``id``              the clip
    ``probability``     of the positive class; for more classes, ``probability_NAME`` for each
    ``value``           for numbers, instead of probabilities
    ``fit``             the fold, numbered as in ``predictions.csv``; by default all folds
    ``model``           the model's name in the results; by default the name of the file
    ``task``            as in ``run.json``; required if an experiment learns several tasks
    ==================  =====================================================================
    """
    try:
        outside = pd.read_csv(path, dtype=TYPES, keep_default_na=False, na_values={"fit": [""]})
    except (OSError, ValueError) as reason:
        raise ExperimentError(f"{path} cannot be read: {one_line(reason)}") from None
    if "model" not in outside:
        outside["model"] = path.stem
    models = {}
    for model, own in outside.groupby("model", sort=False):
        if model in plan.experiment.learners:
            raise ExperimentError(f"{path}: an estimator is called {model!r}, too. Rename one")
        models[str(model)] = own
    tables: list[pd.DataFrame] = []
    for problem in plan.problems:
        for model, own in models.items():
            tables += _of_problem(plan, problem, model, own, path)
    return tables


def _of_problem(
    plan: Plan, problem: Problem, model: str, table: pd.DataFrame, path: Path
) -> Iterator[pd.DataFrame]:
    """Yield the predictions of a model for each fold and test set of a problem."""
    task = problem.train
    if "task" in table:
        table = table[table["task"].isin([task.key, ""])]
    columns = task.target.columns(task.class_titles)
    if not {*columns} <= {*table.columns}:
        columns = task.target.columns(task.class_keys)
    by_fit = "fit" in table and bool(table["fit"].notna().any())
    folds = list(plan.folds(problem, validate=False))
    if by_fit and table["fit"].nunique() > len(folds):
        folds = list(plan.folds(problem, validate=True))
    for fold in folds:
        fold, _ = plan.usable(problem, fold, validate=False)
        part = table[table["fit"] == fold.index] if by_fit else table
        ids = plan.data.ids_at(fold.test_rows)
        try:
            if part["id"].duplicated().any():
                raise ValueError("an id is listed twice")
            values = part.set_index("id").loc[ids, columns].to_numpy(dtype=np.float64)
        except (KeyError, ValueError) as reason:
            raise ExperimentError(
                f"{path}: {model} in fit {fold.index}: {one_line(reason)}. It needs the columns "
                f"id and {', '.join(columns)}, and a row for each test clip"
            ) from None
        if not task.target.allows(values).all():
            raise ExperimentError(f"{path}: {model} has values that are no {columns[0]}")
        outputs = task.target.from_columns(values)
        yield from tabulate_tests(plan, problem, model, fold, outputs)
