"""The concepts and levels that are associated with a model's errors, by logistic regression.

A film has few wrong clips and many factors, so a ridge penalty shrinks the coefficients. Their
intervals come from resampling clips, or, for all films together, from the jackknife over films.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from sklearn import config_context
from sklearn.linear_model import LogisticRegression

from obygaze_features.manifests.labels import SEPARATOR
from obygaze_models.figures.dots import Dot
from obygaze_models.scoring.intervals import LEVEL, estimate_weighted, group_columns, weigh_groups
from obygaze_models.scoring.metrics import Array

TOLERANCE = 1e-10
"""The solver stops if no slope of the mean loss is above this."""
ENDS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
"""The quantiles at the ends of an interval."""


@dataclass(frozen=True)
class FilmFactors:
    """The factors of a film, or of all films (`film` is None).

    `factors` has each factor's coefficient in the log-odds of an error, with its interval; it is
    empty if all or none of the clips are wrong. A coefficient above 0 means that errors are
    likelier with the factor. It is None if all or none of the clips have the factor. The interval
    is None if at most half of the bootstrap samples have both wrong and right clips. For all films
    together, it is None if there are fewer than five films, or if leaving out some film leaves only
    wrong or only right clips.
    """

    film: str | None
    clips: int
    wrong: int
    factors: Mapping[str, Dot] = field(default_factory=dict)


def error_factors(
    clips: pd.DataFrame,
    wrong: Array,
    levels: Sequence[str],
    *,
    penalty: float = 1.0,
    draws: int = 500,
    cross_validated: bool = False,
) -> list[FilmFactors]:
    """Regress errors on concepts and levels, for all films together and then for each film.

    Parameters
    ----------
    clips
        The test clips, with the columns ``film``, ``level`` and ``concepts`` of `Run.clips`.
    wrong
        True for each clip that the model got wrong.
    levels
        The codes of the levels, in order. Levels without clips are left out.
    penalty
        The ridge penalty on the coefficients; the intercept has no penalty.
    draws
        The number of bootstrap samples for the intervals of single films.
    cross_validated
        See `estimate_mean`. It widens the intervals for all films together.
    """
    # As objects, because strings of PyArrow would get a column for clips without concepts.
    concepts = clips["concepts"].astype(object).str.get_dummies(SEPARATOR)
    own_levels = pd.get_dummies(clips["level"]).reindex(columns=[*levels]).dropna(axis=1)
    names = [*concepts, *own_levels]
    factors = np.hstack([concepts, own_levels]).astype(bool)

    films = clips["film"].tolist()
    column, count = group_columns(films)
    without_one = weigh_groups(count)[1:, column]
    results = [_film(None, wrong, factors, names, without_one, penalty, cross_validated)]
    chance = np.random.default_rng(0)
    for film in sorted({*films} - {""}):
        rows = clips["film"].to_numpy() == film
        size = int(rows.sum())
        drawn = chance.multinomial(size, np.full(size, 1 / size), size=draws)
        results.append(_film(film, wrong[rows], factors[rows], names, drawn, penalty))
    return results


def _film(
    film: str | None,
    wrong: Array,
    factors: Array,
    names: Sequence[str],
    drawn: Array,
    penalty: float,
    cross_validated: bool = False,
) -> FilmFactors:
    """Return the factors of a film, or of all films.

    `drawn` [draws, N] has the number of times that each clip is in each sample. For all films, it
    has all rows of `weigh_groups` but the first.
    """
    clips = len(wrong)
    errors = int(wrong.sum())
    if errors in (0, clips):
        return FilmFactors(film, clips, errors)

    have = factors.sum(axis=0)
    varies = (have > 0) & (have < clips)
    has_errors = drawn[:, wrong].sum(axis=1) > 0
    has_others = drawn[:, ~wrong].sum(axis=1) > 0
    usable = has_errors & has_others
    weights = np.vstack([np.ones((1, clips)), drawn[usable]])
    fitted = _fit(factors[:, varies].astype(float), wrong, weights, penalty)

    described = dict.fromkeys(names, Dot(None))
    for place, values in zip(np.flatnonzero(varies).tolist(), fitted.T, strict=True):
        interval = None
        if film is not None and usable.sum() > len(drawn) / 2:
            interval = np.quantile(values[1:], ENDS).tolist()
        elif film is None and usable.all():
            folds = len(drawn) - 1 if cross_validated else 1
            interval = estimate_weighted(values, folds=folds).interval
        described[names[place]] = Dot(float(values[0]), *(interval or ()))
    return FilmFactors(film, clips, errors, described)


def _fit(X: Array, y: Array, weights: Array, penalty: float) -> Array:
    """Return the coefficients of a ridge logistic regression for each row of weights, [B, F].

    The intercept has no penalty.
    """
    model = LogisticRegression(C=1 / penalty, solver="newton-cholesky", tol=TOLERANCE)
    with config_context(skip_parameter_validation=True, assume_finite=True):
        return np.array([model.fit(X, y, row).coef_[0] for row in weights])
