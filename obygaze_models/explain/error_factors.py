"""What goes with a model's errors: a regression of wrong or right on what clips are marked with.

A film has few wrong clips and many factors, so coefficients are pulled towards 0 by a ridge
penalty, and their intervals come from drawing clips anew; of all films together, from drawing
films, since one film's clips stand or fall together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from obygaze_features.errors import ExperimentError

if TYPE_CHECKING:
    from obygaze_models.experiments.run_folder import Clip

__all__ = ["Factor", "FilmFactors", "error_factors", "factors_of_clips"]

LEVEL = 0.95
STEPS = 60
Array = NDArray[Any]


@dataclass(frozen=True)
class Factor:
    """A factor's coefficient in the log-odds of being wrong: above 0, errors go with it.

    None where the film's clips all have it, or none does. The interval is None where fewer than
    half of the draws hold both wrong and right clips.
    """

    name: str
    coefficient: float | None
    low: float | None
    high: float | None
    clips: int


@dataclass(frozen=True)
class FilmFactors:
    """A film's factors, or why there are none; `film` is None for all films together."""

    film: str | None
    clips: int
    wrong: int
    factors: tuple[Factor, ...]
    too_few: str = ""


def error_factors(
    wrong: Array,
    factors: Array,
    names: Sequence[str],
    films: Sequence[str],
    *,
    penalty: float = 1.0,
    draws: int = 500,
    seed: int = 0,
) -> list[FilmFactors]:
    """Regress errors on factors, for all films together and then for each.

    Parameters
    ----------
    wrong
        Whether the model was wrong of each clip [N].
    factors
        What each clip is marked with, such as concepts and levels [N, F].
    names
        The factors'.
    films
        Each clip's.
    penalty
        Half of this times the squared length of the coefficients is what they cost; the
        intercept costs nothing.
    draws
        How many draws intervals are of.
    seed
        Fixes them.
    """
    wrong, factors = np.asarray(wrong, dtype=bool), np.asarray(factors, dtype=bool)
    if factors.shape != (len(wrong), len(names)) or len(films) != len(wrong):
        raise ExperimentError(
            f"{len(wrong)} clips, {len(films)} films and {len(names)} names do not fit factors of "
            f"{factors.shape}; each clip has a film and a mark for each name"
        )
    if not len(wrong):
        raise ExperimentError("there are no clips whose errors could be looked at")
    if penalty <= 0:
        raise ExperimentError(f"a penalty of {penalty:g} keeps no coefficient finite; give 1")
    chance = np.random.default_rng(seed)
    known, of_film = np.unique(np.array(films, dtype=str), return_inverse=True)
    by_film = chance.multinomial(len(known), np.full(len(known), 1 / len(known)), size=draws)
    found = [_film(None, wrong, factors, names, by_film[:, of_film], penalty)]
    for place, film in enumerate(known.tolist()):
        mine = of_film == place
        count = int(mine.sum())
        drawn = chance.multinomial(count, np.full(count, 1 / count), size=draws)
        found.append(_film(film, wrong[mine], factors[mine], names, drawn, penalty))
    return found


def factors_of_clips(
    clips: Sequence[Clip], wrong: Array, levels: Sequence[str]
) -> list[FilmFactors]:
    """`error_factors` by the concepts and levels that clips are annotated with.

    Parameters
    ----------
    clips
        The test clips, each once.
    wrong
        Whether the model was wrong of each.
    levels
        The levels' codes, in their order; those that no clip has are left out.
    """
    concepts = sorted({name for clip in clips for name in clip.concepts})
    codes = [code for code in levels if any(clip.level == code for clip in clips)]
    marks = [
        [*(name in clip.concepts for name in concepts), *(clip.level == code for code in codes)]
        for clip in clips
    ]
    return error_factors(
        wrong,
        np.array(marks, dtype=bool).reshape(len(clips), len(concepts) + len(codes)),
        [*concepts, *codes],
        [clip.film for clip in clips],
    )


def _film(
    film: str | None,
    wrong: Array,
    factors: Array,
    names: Sequence[str],
    drawn: Array,
    penalty: float,
) -> FilmFactors:
    """Of one film's clips, each counted in each draw as often as `drawn` [draws, N] says."""
    clips, errors = len(wrong), int(wrong.sum())
    if errors in (0, clips):
        which = "wrong" if errors == 0 else "right"
        return FilmFactors(film, clips, errors, (), f"no {which} clip to compare with")
    have = factors.sum(axis=0)
    varies = (have > 0) & (have < clips)
    X = np.column_stack([np.ones(clips), factors[:, varies]])
    both = (drawn[:, wrong].sum(axis=1) > 0) & (drawn[:, ~wrong].sum(axis=1) > 0)
    weights = np.vstack([np.ones((1, clips)), drawn[both]])
    fitted = _fit(X, wrong, weights, penalty)[:, 1:]
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    # One film drawn again and again is always the same, and says nothing of others.
    enough = both.sum() > len(drawn) / 2 and bool((drawn != drawn[0]).any())
    low, high = np.quantile(fitted[1:], ends, axis=0) if enough else (None, None)
    place = np.cumsum(varies) - 1
    return FilmFactors(
        film,
        clips,
        errors,
        tuple(
            Factor(
                name,
                float(fitted[0, place[at]]) if varies[at] else None,
                float(low[place[at]]) if varies[at] and low is not None else None,
                float(high[place[at]]) if varies[at] and high is not None else None,
                int(have[at]),
            )
            for at, name in enumerate(names)
        ),
    )


def _fit(X: Array, y: Array, weights: Array, penalty: float) -> Array:
    """Ridge logistic regressions, one for each row of weights, by Newton's method; [B, F]."""
    products = (X[:, :, None] * X[:, None]).reshape(len(X), -1)
    cost = np.full(X.shape[1], penalty)
    cost[0] = 0.0
    beta = np.zeros((len(weights), X.shape[1]))
    share = weights @ y / weights.sum(axis=1)
    beta[:, 0] = np.log(share / (1 - share))
    now = _loss(X, y, weights, cost, beta)
    for _ in range(STEPS):
        said = expit(beta @ X.T)
        slope = (weights * (said - y)) @ X + cost * beta
        if np.abs(slope).max() < 1e-6:
            break
        curve = ((weights * said * (1 - said)) @ products).reshape(-1, X.shape[1], X.shape[1])
        step = np.linalg.solve(curve + np.diag(cost), slope[:, :, None])[:, :, 0]
        length = np.ones(len(beta))
        for _ in range(STEPS):
            there = _loss(X, y, weights, cost, beta - length[:, None] * step)
            worse = there > now + 1e-12 * (1 + np.abs(now))
            if not worse.any():
                break
            length[worse] /= 2
        beta, now = beta - length[:, None] * step, there
    return beta


def _loss(X: Array, y: Array, weights: Array, cost: Array, beta: Array) -> Array:
    """What each fit minimises."""
    logits = beta @ X.T
    each = np.logaddexp(0, logits) - logits * y
    return np.asarray((weights * each).sum(axis=1) + (cost * beta**2).sum(axis=1) / 2)
