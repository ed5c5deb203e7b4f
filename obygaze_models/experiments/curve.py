"""Learning curves: the scores of an experiment's models by the number of annotated films."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from obygaze_features.common.progress import progress
from obygaze_features.errors import ExperimentError
from obygaze_models.data.folds import Fold, balanced
from obygaze_models.data.splitters import Clips, DrawnSplitter, Parts, Splitter
from obygaze_models.experiments.cross_validate import compute_run
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.run import make_plan
from obygaze_models.scoring.intervals import estimate_mean, restrict
from obygaze_models.scoring.metrics import Array

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
    sizes = sorted({*(films or SIZES)})
    if sizes[0] < 1:
        raise ExperimentError(f"a number of films must be 1 or more (got {sizes[0]})")
    plan = replace(make_plan(experiment), outside=lambda _: ())
    rows: list[list[Any]] = []
    crossed = False
    for size, draw in progress([*product(sizes, range(draws))], "train", unit="draw"):
        cv = FewerFilms(cv=plan.cv, size=size, draw=draw, random_state=plan.cv.random_state)
        if not any(planned.fold.tests for planned in replace(plan, cv=cv).fits()):
            continue
        run = compute_run(replace(plan, cv=cv))
        metric = run.main_metric
        for scores in run.model_scores:
            crossed |= scores.folds > 1
            for film, values in scores.groups.items():
                rows.append([scores.model, scores.test, size, film, values[metric]])
    if not rows:
        raise ExperimentError(
            "no fit can be trained and tested with these numbers of films. Choose other numbers"
        )
    table = pd.DataFrame(rows, columns=["model", "test", "films", "film", "score"])
    means = []
    for key, own in table.groupby(["model", "test", "films"]):
        of_films = own.groupby("film")["score"].mean().to_numpy(dtype=np.float64)
        estimate = estimate_mean(of_films, cross_validated=crossed)
        estimate = restrict(estimate, metric, [len(plan.data)])
        means.append((*key, metric, estimate.value, *(estimate.interval or (None, None))))
    return pd.DataFrame(means, columns=["model", "test", "films", "metric", "mean", "low", "high"])


@dataclass(eq=False, repr=False, kw_only=True)
class FewerFilms(Splitter):
    """The folds of another splitter, with only some of the training films.

    Parameters
    ----------
    cv
        The splitter.
    size, draw
        The number of films, and the number of the draw.
    """

    cv: Any
    size: int
    draw: int

    @property
    def gap(self) -> float:
        """The gap of the splitter."""
        return float(getattr(self.cv, "gap", 0.0))

    def parts(self, clips: Clips) -> Iterator[Parts]:
        """Yield the parts of each fold of the splitter."""
        return self.cv.parts(clips)  # type: ignore[no-any-return]

    def folds(self, clips: Clips, tests: Mapping[str, Array]) -> Iterator[Fold]:
        """Yield the folds that have enough films. Training clips are balanced after the draw."""
        cv = replace(self.cv, random_state=self.random_state)
        balance = "none"
        if isinstance(cv, DrawnSplitter):
            balance = cv.balance
            cv = replace(cv, balance="none")
        groups = np.asarray(clips.groups)
        for fold in cv.folds(clips, tests):
            films = np.setdiff1d(groups[fold.train], [""])
            drawn = np.random.default_rng([fold.seed, self.draw]).permutation(films)[: self.size]
            if len(drawn) < self.size:
                continue
            train = fold.train[np.isin(groups[fold.train], drawn)]
            kept = [*drawn]
            if clips.validate:
                kept += groups[fold.validation].tolist()
            apart = np.union1d(fold.near, np.flatnonzero(~np.isin(groups, kept)))
            train = balanced(train, clips.y, fold.seed, balance)
            yield replace(fold, train=train, near=apart)
