"""Learning curves: the scores of an experiment's models by the number of annotated films."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from obygaze_features.common.progress import progress
from obygaze_features.errors import ExperimentError
from obygaze_models.data.folds import balanced
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import fit_planned, tabulate_tests
from obygaze_models.experiments.plan import Plan, PlannedFit, make_plan
from obygaze_models.experiments.scores import (
    is_cross_validated,
    score_models,
    scores_table,
    split_by,
)
from obygaze_models.scoring.intervals import estimate_mean, restrict

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

    Parameters
    ----------
    experiment
        An `Experiment`, or the path of its TOML file. Test and validation clips are not changed.
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
    unbalanced = plan
    if plan.balance == "undersample":  # the clips of drawn films are balanced below
        unbalanced = make_plan(msgspec.structs.replace(plan.experiment, balance="none"))
    tables = []
    with threadpool_limits(1):
        for planned in progress([*unbalanced.fits()], "train", unit="fit"):
            for size in sorted({*(films or SIZES)}):
                for draw in range(draws):
                    part = _restrict(plan, planned, size, draw)
                    if part is None:
                        continue
                    outputs = fit_planned(unbalanced, part).predict(plan.data, part.fold.test_rows)
                    for own in tabulate_tests(plan, part.problem, part.model, part.fold, outputs):
                        tables.append(own.assign(films=size, draw=draw))
    if not tables:
        raise ExperimentError("no fit has this many training films with clips of every class")
    return _score(plan, pd.concat(tables, ignore_index=True))


def _restrict(plan: Plan, planned: PlannedFit, size: int, draw: int) -> PlannedFit | None:
    """Restrict a fit to a number of films; return None if these lack clips of a class."""
    fold, groups, task = planned.fold, plan.data.groups, planned.task
    films = np.setdiff1d(groups[fold.train], [""])
    drawn = np.random.default_rng([fold.seed, draw]).permutation(films)[:size]
    train = fold.train[np.isin(groups[fold.train], drawn)]
    if len(drawn) < size or not fold.tests or plan.missing(task, train):
        return None
    if plan.balance == "undersample":
        train = balanced(train, task.target.strata(plan.labels_of(task)), fold.seed)
    kept = [*drawn]
    if planned.learner.uses_validation:
        kept += groups[fold.validation].tolist()
    apart = np.union1d(fold.near, np.flatnonzero(~np.isin(groups, kept)))
    return replace(planned, fold=replace(fold, train=train, near=apart))


def _score(plan: Plan, predictions: pd.DataFrame) -> pd.DataFrame:
    """Average each film's scores over the draws; return the means over films."""
    data, test = plan.data, plan.tests[0]
    group_of = dict(zip(data.ids, data.groups.tolist(), strict=True))
    metric = plan.experiment.score or test.target.default_score(test)
    parts = []
    for (size, _), table in split_by(predictions, "films", "draw").items():
        parts.append(scores_table(score_models(table, group_of)).assign(films=size))
    scores = pd.concat(parts)
    scores = scores[scores["metric"] == metric]
    crossed = is_cross_validated(predictions)
    rows = []
    for key, own in scores.groupby(["model", "test", "films"]):
        is_film = own["group"] != ""
        if is_film.any():  # otherwise all clips are scored together
            own = own[is_film]
        means = own.groupby("group")["mean"].mean().to_numpy()
        estimate = restrict(estimate_mean(means, cross_validated=crossed), metric, [len(data)])
        rows.append((*key, metric, estimate.value, *(estimate.interval or (None, None))))
    return pd.DataFrame(rows, columns=["model", "test", "films", "metric", "mean", "low", "high"])
