"""The reasons of predictions, as columns of small whole numbers that a script of the page reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.experiments.explanations import Explained
from obygaze_models.explain.attributions import join_steps
from obygaze_models.explain.parts import average_parts, name_log_odds
from obygaze_models.report.runs import ModelResults

Array = NDArray[Any]


def explanations(results: ModelResults, ids: list[str]) -> dict[str, Any]:
    """Sums as means over the fits, which add up as well; a tree's conditions of one fit."""
    if results.explained[0].kind == "path":
        return _paths(results, ids)
    parts = average_parts(results.explained, results.classes, ids)
    data: dict[str, Any] = {
        "kind": "sum",
        "of": name_log_odds(results.classes),
        "concepts": list(parts.concepts),
        "values": [number_column(column) for column in parts.values.T],
        "amounts": [number_column(column, like=parts.amounts) for column in parts.amounts.T],
        "order": parts.order.tolist(),
    }
    for name in ("intercept", "residual"):
        if (column := getattr(parts, name)) is not None:
            data[name] = number_column(column, like=parts.amounts)
    return data


def _paths(results: ModelResults, ids: list[str]) -> dict[str, Any]:
    """For each clip the conditions of the fit whose probability is nearest to the mean.

    Percentiles are among the clips that this fit tested.
    """
    concepts = list(dict.fromkeys(name for entry in results.explained for name in entry.concepts))
    row_of = {clip: row for row, clip in enumerate(ids)}
    means = results.predictions
    mean = dict(zip(means.ids, means.probabilities.tolist(), strict=True))
    nearest: dict[str, tuple[float, Explained, int]] = {}
    for entry in results.explained:
        probabilities = results.by_fit.get(entry.fit, {})
        for row, clip in enumerate(entry.ids):
            if clip in probabilities:
                distance = float(np.abs(np.subtract(probabilities[clip], mean[clip])).max())
                if clip not in nearest or distance < nearest[clip][0]:
                    nearest[clip] = distance, entry, row
    conditions: dict[tuple[int, int | None, int | None], int] = {}
    paths: list[list[tuple[int, int]]] = [[] for _ in ids]
    fit = [-1] * len(ids)
    probability = np.full(len(ids), np.nan)
    for clip, (_, entry, row) in nearest.items():
        target = row_of[clip]
        fit[target] = entry.fit
        probability[target] = np.atleast_1d(results.by_fit[entry.fit][clip])[-1]
        steps = (entry.steps or [])[row]
        for condition in join_steps(steps, entry.concepts, entry.values, row):
            percentile, low, high = condition.whole
            key = concepts.index(condition.concept), low, high
            number = conditions.setdefault(key, len(conditions))
            paths[target].append((number, percentile))
    return {
        "kind": "path",
        "concepts": concepts,
        "conditions": [list(key) for key in conditions],
        "paths": paths,
        "fit": fit,
        "own": number_column(probability, unit=0.001),
    }


def number_column(
    values: Array, *, unit: float | None = None, like: Array | None = None
) -> dict[str, Any]:
    """Whole numbers in a unit that leaves three digits to the largest value (of `like`)."""
    if unit is None:
        finite = np.abs(values if like is None else like)
        finite = finite[np.isfinite(finite)]
        largest = float(finite.max()) if finite.size else 0.0
        unit = 10.0 ** (math.floor(math.log10(largest)) - 2) if largest > 0 else 1.0
    return {
        "unit": float(f"{unit:.1g}"),
        "of": [None if math.isnan(value) else round(value / unit) for value in values.tolist()],
    }
