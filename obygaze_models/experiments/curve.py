"""Learning curves: the scores of an experiment's models by the number of annotated films."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from msgspec import structs
from threadpoolctl import threadpool_limits

from obygaze_features.common.printer import align
from obygaze_features.common.progress import progress
from obygaze_features.common.text import counted, format_signed
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import group_noun
from obygaze_models.data.folds import balanced
from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.experiments.experiment import Experiment, load_experiment
from obygaze_models.experiments.fit import PlannedFit, test_predictions
from obygaze_models.experiments.plan import Plan, make_plan
from obygaze_models.experiments.predictions import join_tables, score_models
from obygaze_models.scoring.intervals import Estimate, estimate_mean, restrict
from obygaze_models.scoring.metrics import METRICS, Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWS = 5
SIZES = (2, 5, 10, 15)
"""The default numbers of films. The largest possible number replaces larger numbers."""
WIDTH = 100


@dataclass(frozen=True)
class CurvePoint:
    """A model's score on a test set, for a number of annotated films.

    Parameters
    ----------
    model, test, films
        The model, the test set and the number of annotated films.
    score
        The mean over the tested films, after averaging each film over the draws.
    change
        The difference from the previous point, paired by film; None for the first point.
    """

    model: str
    test: str
    films: int
    score: Estimate
    change: Estimate | None = None


@dataclass(frozen=True)
class Curve:
    """The points of all models and test sets. `str` returns them as a table."""

    points: list[CurvePoint]
    metric: str
    draws: int
    noun: str = "film"

    def __str__(self) -> str:
        title = METRICS[self.metric].title
        rows = [
            [
                point.model, point.test, point.films,
                _number(point.score.value), _ends(point.score),
                "-" if point.change is None else format_signed(point.change.value or 0.0, 3),
                "-" if point.change is None else _ends(point.change),
            ]
            for point in self.points
        ]  # fmt: skip
        head = ["model", "test", f"{self.noun}s", title, "95%", "change", "95%"]
        note = (
            f"Each score is the mean {title} over tested {self.noun}s and "
            f"{counted(self.draws, 'draw')} of annotated {self.noun}s. Each change is from the "
            f"previous row, paired by {self.noun}."
        )
        return f"{align(head, rows, left=2)}\n{note}"

    def figure(self) -> Figure:
        """Draw the points and their intervals, with a row for each number of films."""
        from obygaze_models.figures.dots import Point, dot_plot

        title = METRICS[self.metric].title
        points = []
        for point in self.points:
            low, high = point.score.interval or (None, None)
            label = counted(point.films, self.noun)
            group = f"{point.model}: {point.test}"
            points.append(Point(label, point.score.value, low, high, group=group))
        return dot_plot(
            points,
            title=f"{title} by the number of annotated {self.noun}s",
            axis=title,
            description=str(self),
            interval=f"95% interval over tested {self.noun}s",
            value=title,
        )


def learning_curve(
    experiment: Experiment | str | Path,
    films: Sequence[int] | None = None,
    *,
    draws: int = DRAWS,
    log: Callable[[str], None] = lambda _: None,
) -> Curve:
    """Score an experiment's models as if only some training films had been annotated.

    Parameters
    ----------
    experiment
        An `Experiment`, or the path of its TOML file. The test sets are not changed.
    films
        The numbers of annotated films; by default 2, 5, 10 and 15, with numbers that are too large
        replaced by the largest possible number. If a model uses validation clips, some of these
        films are used for validation.
    draws
        The number of random draws of films for each number. In each draw, smaller sets are subsets
        of larger ones.
    log
        A function that is called with a line about fits that were left out.
    """
    experiment = experiment if isinstance(experiment, Experiment) else load_experiment(experiment)
    plan = make_plan(experiment)
    balance = plan.experiment.balance or PROTOCOLS[plan.division.protocol].default_balance
    if balance == "undersample":  # `_restrict` balances the clips of drawn films
        plan = make_plan(structs.replace(experiment, balance="none"))
    sizes = _default_sizes(plan) if films is None else sorted({*films})
    failed = 0
    tables: dict[tuple[int, int], list[pd.DataFrame]] = {}
    todo = [(fit, draw, size) for fit in plan.fits() for draw in range(draws) for size in sizes]
    with threadpool_limits(1):
        for planned, draw, size in progress(todo, "train", unit="fit"):
            part = _restrict(plan, planned, size, draw, balance)
            result = None if part is None else part.compute(plan.data)
            if part is None or result is None or result.table is None:
                failed += 1
                continue
            own = tables.setdefault((size, draw), [])
            what = plan.data, planned.problem, planned.name, planned.fold, result.table
            own += test_predictions(*what)
    if failed:
        log(f"left out {counted(failed, 'fit')} of {len(todo):,}, which failed or lacked a class")
    return _score(plan, tables, draws)


def _default_sizes(plan: Plan) -> list[int]:
    """Return `SIZES`, with numbers that are too large replaced by the largest possible number."""
    largest = min((_largest_size(plan, planned) for planned in plan.fits()), default=max(SIZES))
    return sorted({min(size, largest) for size in SIZES})


def _largest_size(plan: Plan, planned: PlannedFit) -> int:
    """Return the largest number of films that a fit can use to train and validate."""
    trains, validates = _films_of(plan, planned)
    size = len(trains) + len(validates)
    while size and not _is_possible(planned, size, len(trains), len(validates)):
        size -= 1
    return size


def _films_of(plan: Plan, planned: PlannedFit) -> tuple[Array, Array]:
    """Return the films of a fit's training clips and of its validation clips."""
    fold, groups = planned.fold, plan.data.groups
    trains, validates = (
        np.setdiff1d(np.unique(groups[rows]), [""]) for rows in (fold.train, fold.validation)
    )
    return trains, validates


def _validating_films(planned: PlannedFit, size: int, trains: int, validates: int) -> int:
    """Return how many of `size` films are used for validation."""
    if not (planned.spec.uses_validation and validates):
        return 0
    return max(1, round(size * validates / (trains + validates)))


def _is_possible(planned: PlannedFit, size: int, trains: int, validates: int) -> bool:
    """Return True if a fit has enough films to train and validate with `size` films."""
    held = _validating_films(planned, size, trains, validates)
    return 0 < size - held <= trains and held <= validates


def _restrict(
    plan: Plan, planned: PlannedFit, size: int, draw: int, balance: str
) -> PlannedFit | None:
    """Restrict a fit to a number of films; return None if these lack clips of a class."""
    fold, groups = planned.fold, plan.data.groups
    chance = np.random.default_rng([fold.seed, draw])
    trains, validates = (chance.permutation(films) for films in _films_of(plan, planned))
    if not _is_possible(planned, size, len(trains), len(validates)):
        raise ExperimentError(
            f"{plan.experiment.name!r}: {planned.name} cannot learn from {size} films (there are "
            f"{len(trains)} to train on and {len(validates)} to validate on). Choose from 2 to "
            f"{_largest_size(plan, planned)} films."
        )
    held = _validating_films(planned, size, len(trains), len(validates))
    train = fold.train[np.isin(groups[fold.train], trains[: size - held])]
    validation = fold.validation[np.isin(groups[fold.validation], validates[:held])]
    task, labels = planned.task, plan.labels_of(planned.task)
    if task.target.missing(task, labels[train]):
        return None
    strata = task.target.strata(labels)
    if balance == "undersample":
        train = balanced(train, strata, fold.seed)
    annotated = np.concatenate([trains[: size - held], validates[:held]])
    apart = np.union1d(fold.near, np.flatnonzero(~np.isin(groups, annotated)))
    return replace(planned, fold=replace(fold, train=train, validation=validation, near=apart))


def _score(
    plan: Plan,
    tables: dict[tuple[int, int], list[pd.DataFrame]],
    draws: int,
) -> Curve:
    """Return the curve: average each film's scores over the draws, then take means over films."""
    data = plan.data
    group_of = dict(zip(data.ids, data.groups.tolist(), strict=True))
    metric = plan.experiment.score or plan.tests[0].target.default_score(plan.tests[0])
    films: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = {}
    crossed = False
    for (size, _), parts in tables.items():
        for scores in score_models(join_tables(parts), group_of):
            crossed |= scores.cross_validated
            own = {film: values[metric] for film, values in scores.groups.items()}
            by_size = films.setdefault((scores.model, scores.test), {})
            by_size.setdefault(size, []).append(own or {"": scores.mean[metric]})
    points = []
    for (model, test), by_size in films.items():
        before: pd.Series[Any] | None = None
        for size, values in sorted(by_size.items()):
            means = pd.DataFrame(values, dtype=np.float64).mean()
            change = None
            if before is not None:
                change = estimate_mean(_array(means - before), cross_validated=crossed)
            estimate = estimate_mean(_array(means), cross_validated=crossed)
            score = replace(restrict(estimate, metric, [len(data)]), p_value=None)
            title = plan.experiment.title_of(model)
            points.append(CurvePoint(title, test, size, score, change))
            before = means
    return Curve(points, metric, draws, group_noun(data.grouped_by))


def _array(values: pd.Series[Any]) -> Array:
    return values.to_numpy(dtype=np.float64)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _ends(estimate: Estimate) -> str:
    return "-" if estimate.interval is None else "{:.3f} to {:.3f}".format(*estimate.interval)
