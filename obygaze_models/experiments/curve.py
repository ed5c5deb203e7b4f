"""Learning curves: the scores of an experiment's models by the number of annotated films."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from obygaze_features.common.printer import align
from obygaze_features.common.progress import progress
from obygaze_features.common.text import counted, group_by
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import group_noun
from obygaze_models.data.folds import balanced
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import fit_planned, tabulate_tests
from obygaze_models.experiments.plan import Plan, PlannedFit, make_plan
from obygaze_models.experiments.scores import score_models
from obygaze_models.scoring.intervals import Estimate, estimate_mean, restrict
from obygaze_models.scoring.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWS = 5
SIZES = (2, 5, 10, 15)
"""The default numbers of films."""


@dataclass(frozen=True)
class CurvePoint:
    """A model's mean score on a test set, for a number of annotated films."""

    model: str
    test: str
    films: int
    score: Estimate


@dataclass(frozen=True)
class Curve:
    """The points of all models and test sets. `str` returns them as a table."""

    points: list[CurvePoint]
    metric: str
    draws: int
    noun: str = "film"

    def __str__(self) -> str:
        rows = []
        for point in self.points:
            ends = point.score.interval
            interval = "{:.3f} to {:.3f}".format(*ends) if ends else "-"
            value = "-" if point.score.value is None else f"{point.score.value:.3f}"
            rows.append([point.model, point.test, point.films, value, interval])
        title = METRICS[self.metric].title
        note = (
            f"Each score is the mean {title} over tested {self.noun}s and "
            f"{counted(self.draws, 'draw')} of annotated {self.noun}s."
        )
        head = ["model", "test", f"{self.noun}s", title, "95%"]
        return f"{align(head, rows, left=2)}\n{note}"

    def figure(self) -> Figure:
        """Draw the points and their intervals, with a row for each number of films."""
        from obygaze_models.figures.dots import Dot, Series, dot_plot

        title = METRICS[self.metric].title
        rows: list[tuple[str, list[Dot]]] = []
        names = group_by(self.points, lambda point: f"{point.model}: {point.test}")
        for name, points in names.items():
            rows.append((name, []))
            for point in points:
                dot = Dot(point.score.value, *(point.score.interval or ()))
                rows.append((counted(point.films, self.noun), [dot]))
        return dot_plot(
            rows,
            [Series(title)],
            title=f"{title} by the number of annotated {self.noun}s",
            axis=f"{title}, with its 95% interval over tested {self.noun}s",
            description=str(self),
        )


def learning_curve(
    experiment: Experiment | str | Path,
    films: Sequence[int] | None = None,
    *,
    draws: int = DRAWS,
) -> Curve:
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
    """
    plan = make_plan(experiment)
    sizes = sorted({*(films or SIZES)})
    unbalanced = plan
    if plan.balance == "undersample":  # the clips of drawn films are balanced below
        unbalanced = make_plan(_without_balance(plan.experiment))
    parts: dict[tuple[int, int], list[pd.DataFrame]] = {}
    todo = [
        (fit, draw, size) for fit in unbalanced.fits() for draw in range(draws) for size in sizes
    ]
    with threadpool_limits(1):
        for planned, draw, size in progress(todo, "train", unit="fit"):
            part = _restrict(plan, planned, size, draw)
            if part is not None:
                outputs = fit_planned(unbalanced, part).predict(plan.data, part.fold.test_rows)
                own = tabulate_tests(plan, part.problem, part.model, part.fold, outputs)
                parts.setdefault((size, draw), []).extend(own)
    if not parts:
        raise ExperimentError(f"no fit has {sizes[0]} training films with clips of every class")
    return _score(plan, parts, draws)


def _without_balance(experiment: Experiment) -> Experiment:
    import msgspec

    return msgspec.structs.replace(experiment, balance="none")


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


def _score(plan: Plan, parts: dict[tuple[int, int], list[pd.DataFrame]], draws: int) -> Curve:
    """Return the curve: average each film's scores over the draws, then take means over films."""
    data, test = plan.data, plan.tests[0]
    group_of = dict(zip(data.ids, data.groups.tolist(), strict=True))
    metric = plan.experiment.score or test.target.default_score(test)
    by_film: dict[tuple[str, str, int], list[dict[str, float | None]]] = {}
    crossed = False
    for (size, _), tables in parts.items():
        for scores in score_models(pd.concat(tables, ignore_index=True), group_of):
            crossed |= scores.cross_validated
            own = {film: values[metric] for film, values in scores.groups.items()}
            key = (scores.model, scores.test, size)
            by_film.setdefault(key, []).append(own or {"": scores.mean[metric]})
    points = []
    for (model, name, size), values in sorted(by_film.items()):
        means = pd.DataFrame(values, dtype=np.float64).mean().to_numpy()
        estimate = estimate_mean(means, cross_validated=crossed)
        score = replace(restrict(estimate, metric, [len(data)]), p_value=None)
        points.append(CurvePoint(model, name, size, score))
    return Curve(points, metric, draws, group_noun(data.grouped_by))
