"""Learning curves: the scores of an experiment's models by the number of annotated films."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from msgspec import structs
from threadpoolctl import threadpool_limits

from obygaze_features.common.progress import progress
from obygaze_features.errors import ExperimentError
from obygaze_models.data.folds import balanced
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import fit_planned, tabulate_tests
from obygaze_models.experiments.plan import Plan, PlannedFit, make_plan
from obygaze_models.experiments.scores import (
    is_cross_validated,
    read_labels,
    scored_clips,
    split_by,
)
from obygaze_models.scoring.intervals import estimate_mean, restrict, score_groups

DRAWS = 5
SIZES = (2, 5, 10, 15)
"""The default numbers of films."""


def learning_curve(
    experiment: Experiment | str | Path,
    films: Sequence[int] | None = None,
    *,
    draws: int = DRAWS,
) -> pd.DataFrame:
    """Score an experiment's models as if only some training films had been annotated.

    Test and validation clips are not changed.

    Parameters
    ----------
    experiment
        An `Experiment`, or the path of its TOML file.
    films
        The numbers of annotated films; by default 2, 5, 10 and 15.
    draws
        The number of random draws of films for each number. In each draw, smaller sets are subsets
        of larger ones.

    Returns
    -------
    A row for each ``model``, ``test`` and number of ``films``, with the ``mean`` of the ``metric``
    over tested films and draws, and the ends (``low``, ``high``) of its 95% interval.
    """
    plan = make_plan(experiment)
    balance = plan.balance or "none"
    if balance == "undersample":  # the clips of drawn films are balanced instead
        plan = replace(plan, experiment=structs.replace(plan.experiment, balance="none"))
    tables = []
    with threadpool_limits(1):
        for planned in progress([*plan.fits()], "train", unit="fit"):
            for size, draw in product(sorted({*(films or SIZES)}), range(draws)):
                part = _restrict(plan, planned, size, draw, balance)
                if part is not None:
                    outputs = fit_planned(plan, part).predict(plan.data, part.fold.test_rows)
                    for own in tabulate_tests(plan, part.problem, part.model, part.fold, outputs):
                        tables.append(own.assign(films=size, draw=draw))
    if not tables:
        raise ExperimentError(
            "no fit can be trained and tested with these numbers of films. Choose other numbers"
        )
    return _score(plan, pd.concat(tables, ignore_index=True))


def _restrict(
    plan: Plan,
    planned: PlannedFit,
    size: int,
    draw: int,
    balance: str,
) -> PlannedFit | None:
    """Restrict a fit to a number of films; return None if it then cannot be trained or tested."""
    fold = planned.fold
    groups = plan.data.groups
    task = planned.task
    films = np.setdiff1d(groups[fold.train], [""])
    drawn = np.random.default_rng([fold.seed, draw]).permutation(films)[:size]
    train = fold.train[np.isin(groups[fold.train], drawn)]
    if len(drawn) < size or not fold.tests or plan.missing(task, train):
        return None
    train = balanced(train, task.target.strata(plan.labels_of[task]), fold.seed, balance)
    kept = [*drawn]
    if planned.learner.uses_validation:
        kept += groups[fold.validation].tolist()
    apart = np.union1d(fold.near, np.flatnonzero(~np.isin(groups, kept)))
    return planned._replace(fold=replace(fold, train=train, near=apart))


def _score(plan: Plan, predictions: pd.DataFrame) -> pd.DataFrame:
    """Average each film's scores over the draws; return the means over films."""
    predictions = predictions.assign(label=read_labels(predictions, plan.tests))
    data = plan.data
    test = plan.tests[0]
    group_of = dict(zip(data.ids, data.groups.tolist(), strict=True))
    metric = plan.experiment.score or test.target.default_score(test)
    crossed = is_cross_validated(predictions)
    rows = []
    for key, own in predictions.groupby(["model", "test", "films"]):
        draws = []
        for table in split_by(own, "draw").values():
            draws.append(score_groups(scored_clips(table, group_of)).values[metric])
        means = pd.concat(draws).groupby(level=0).mean().to_numpy()
        estimate = restrict(estimate_mean(means, cross_validated=crossed), metric, [len(data)])
        rows.append((*key, metric, estimate.value, *(estimate.interval or (None, None))))
    return pd.DataFrame(rows, columns=["model", "test", "films", "metric", "mean", "low", "high"])
