"""The embedding association test: whether X are nearer to A than to B, more so than Y are.

s(w) is the mean cosine of w with A less that with B. The effect size d is the mean of s over X less
that over Y, in standard deviations of s over both; T is the sum of s over X less that over Y.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from obygaze_features.common.text import unknown_name
from obygaze_features.errors import BiasError, UsageError
from obygaze_models.bias.partitions import exact_p, normal_p, sampled_p

__all__ = ["Association", "P", "Settings", "associate", "associations", "each_alone"]

Array = NDArray[Any]
#: Scores are means of cosines: a deviation below this is their rounding.
_ROUNDING = 1e-14
P = Literal["auto", "exact", "sampled", "normal"]


@dataclass(frozen=True)
class Settings:
    """How an association is tested.

    Parameters
    ----------
    ddof
        1: the standard deviation of a sample; 0: of a population.
    p
        ``"exact"``: over all partitions. ``"sampled"``: over `samples` that are drawn.
        ``"normal"``: from a normal distribution. ``"auto"``: exact up to `exact_up_to`
        partitions, else sampled.
    exact_up_to, samples
        Numbers of partitions.
    draws
        For the interval of d, how often X and Y are drawn anew, each from itself; 0 for none.
    seed
        Fixes what is drawn.
    """

    ddof: Literal[0, 1] = 1
    p: P = "auto"
    exact_up_to: int = 200_000
    samples: int = 100_000
    draws: int = 2_000
    seed: int = 0


@dataclass(frozen=True)
class Association:
    """What an association test finds: d, the statistic T, and p.

    `p_is` says how p was found: exact, sampled or normal, and `partitions` how many were looked
    at (None: normal). `low` and `high` are the ends of a 95% interval of d over draws of items;
    None where there was no drawing, or too little to draw from.
    """

    d: float
    statistic: float
    p: float
    p_is: str
    partitions: int | None
    low: float | None
    high: float | None


def associate(
    x: ArrayLike,
    y: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    settings: Settings = Settings(),
) -> Association:
    """Test whether X are nearer to A than to B, more so than Y are.

    Parameters
    ----------
    x, y, a, b
        Embeddings, a row each, of any length but zero.

    Examples
    --------
    >>> x, y = [[1, 0], [2, 1], [1, 1]], [[0, 1], [1, 2], [1, 1.5]]
    >>> found = associate(x, y, [[1, 0], [1, 0.5]], [[0, 1], [0.5, 1]])
    >>> round(found.d, 6), round(found.statistic, 6), found.p
    (1.506042, 2.29512, 0.05)
    """
    units = _units({"X": x, "Y": y, "A": a, "B": b})
    towards = units["A"].mean(axis=0) - units["B"].mean(axis=0)
    return _tested(units["X"] @ towards, units["Y"] @ towards, "X and Y", settings)


def associations(w: ArrayLike, a: ArrayLike, b: ArrayLike) -> Array:
    """S of each row of W: its mean cosine with A less that with B."""
    units = _units({"W": w, "A": a, "B": b})
    return np.asarray(units["W"] @ (units["A"].mean(axis=0) - units["B"].mean(axis=0)))


def each_alone(
    x: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    settings: Settings = Settings(),
) -> list[Association]:
    """Test of each row of X alone whether it is nearer to A than to B.

    Here it is A and B that are parted anew: d is the mean cosine with A less that with B, in
    standard deviations over both, and T the sums' difference.
    """
    units = _units({"X": x, "A": a, "B": b})
    return [_tested(units["A"] @ one, units["B"] @ one, "A and B", settings) for one in units["X"]]


def _tested(first: Array, second: Array, which: str, settings: Settings) -> Association:
    d = float(_effects(first[None], second[None], settings.ddof)[0])
    if not math.isfinite(d):
        raise BiasError(f"all of {which} are associated alike, so there is no effect size")
    p, p_is, partitions = _p(first, second, settings)
    return Association(
        d,
        float(first.sum() - second.sum()),
        p,
        p_is,
        partitions,
        *_interval(first, second, settings),
    )


def _effects(first: Array, second: Array, ddof: int) -> Array:
    """The effect size of each row of scores; NaN where all scores of a row are the same."""
    both = np.concatenate([first, second], axis=1)
    deviation = both.std(axis=1, ddof=ddof)
    deviation[deviation <= _ROUNDING] = np.nan
    return np.asarray((first.mean(axis=1) - second.mean(axis=1)) / deviation)


def _p(first: Array, second: Array, settings: Settings) -> tuple[float, str, int | None]:
    if settings.p not in get_args(P):
        raise UsageError(unknown_name("p", settings.p, get_args(P)))
    if settings.p == "normal":
        return normal_p(first, second), "normal", None
    every = math.comb(len(first) + len(second), len(first))
    if settings.p == "exact" or (settings.p == "auto" and every <= settings.exact_up_to):
        return exact_p(first, second), "exact", every
    p = sampled_p(first, second, settings.samples, settings.seed)
    return p, "sampled", settings.samples


def _interval(first: Array, second: Array, settings: Settings) -> tuple[float | None, float | None]:
    """The middle 95% of d, where both groups are drawn from themselves with replacement."""
    if not settings.draws or min(len(first), len(second)) < 2:
        return None, None
    chance = np.random.default_rng(settings.seed)
    drawn = [
        group[chance.integers(len(group), size=(settings.draws, len(group)))]
        for group in (first, second)
    ]
    effects = _effects(drawn[0], drawn[1], settings.ddof)
    low, high = np.nanquantile(effects, [0.025, 0.975]).tolist()
    return low, high


def _units(sets: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """The sets' rows at length 1; `BiasError` if one of them is no set of embeddings."""
    units: dict[str, Array] = {}
    width = None
    for name, rows in sets.items():
        try:
            values = np.asarray(rows, dtype=np.float64)
        except (TypeError, ValueError):
            raise BiasError(
                f"the set {name} is no table of numbers: a row an item is meant, all of one length"
            ) from None
        if not values.size:
            raise BiasError(f"the set {name} is empty")
        if values.ndim != 2:
            raise BiasError(f"the set {name} is of shape {values.shape}; a row an item is meant")
        width = width or values.shape[1]
        if values.shape[1] != width:
            raise BiasError(
                f"the embeddings of {next(iter(sets))} have {width} numbers, those of {name} "
                f"{values.shape[1]}; take both from one model"
            )
        lengths = np.sqrt(np.einsum("nd,nd->n", values, values))
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            row = int(np.argmin(np.isfinite(lengths) & (lengths > 0)))
            why = "length zero" if lengths[row] == 0 else "a number that is not finite"
            raise BiasError(f"the set {name}: embedding {row + 1} has {why}, and so no direction")
        units[name] = values / lengths[:, None]
    return units
