"""The reasons of predictions, as columns of small whole numbers that a script of the page reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.experiments.run_folder import Explained
from obygaze_models.explain.attributions import join_steps
from obygaze_models.report.runs import ModelResults

__all__ = ["explanations", "number_column"]

Array = NDArray[Any]


def explanations(results: ModelResults, ids: list[str]) -> dict[str, Any]:
    """Sums as means over the fits, which add up as well; a tree's conditions of one fit."""
    kind = results.explained[0].kind
    concepts = list(dict.fromkeys(name for entry in results.explained for name in entry.concepts))
    row_of = {clip: row for row, clip in enumerate(ids)}
    if kind == "path":
        return _paths(results, concepts, ids, row_of)
    shape = (len(ids), len(concepts))
    fits = np.zeros(len(ids))
    values, amounts, measured = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    rest = {name: np.zeros(len(ids)) for name in ("intercept", "residual")}
    labels = [""] * len(ids)
    for entry in results.explained:
        rows = np.array([row_of[clip] for clip in entry.ids], dtype=np.intp)
        columns = np.array([concepts.index(name) for name in entry.concepts], dtype=np.intp)
        fits[rows] += 1
        measured[np.ix_(rows, columns)] += 1
        values[np.ix_(rows, columns)] += entry.values
        if entry.amounts is not None:
            amounts[np.ix_(rows, columns)] += entry.amounts
        for name, total in rest.items():
            if (part := getattr(entry, name)) is not None:
                total[rows] += part
        for row, label in zip(rows.tolist(), entry.labels, strict=True):
            labels[row] = label
    fits = np.maximum(fits, 1)
    names = sorted(set(labels))
    means = amounts / fits[:, None]
    data: dict[str, Any] = {
        "kind": kind,
        "concepts": concepts,
        "labels": names,
        "speaks": [names.index(label) for label in labels] if len(names) > 1 else [],
        "values": [
            number_column(total / np.maximum(number, 1))
            for total, number in zip(values.T, measured.T, strict=True)
        ],
        "amounts": [number_column(column, like=means) for column in means.T],
    }
    for name, total in rest.items():
        if any(getattr(entry, name) is not None for entry in results.explained):
            data[name] = number_column(total / fits, like=means)
    return data


def _paths(
    results: ModelResults, concepts: list[str], ids: list[str], row_of: Mapping[str, int]
) -> dict[str, Any]:
    """For each clip the conditions of the fit whose probability is nearest to the mean.

    Percentiles are among the clips that this fit tested.
    """
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
        for condition in join_steps((entry.steps or [])[row], entry.concepts, entry.values):
            # Outwards, so that a rounded percentile never seems to break its own condition.
            low, high = (
                None if bound is None else int(turn(bound))
                for bound, turn in ((condition.low, math.floor), (condition.high, math.ceil))
            )
            key = concepts.index(condition.concept), low, high
            number = conditions.setdefault(key, len(conditions))
            paths[target].append((number, round(condition.percentile)))
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
