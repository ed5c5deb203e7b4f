"""Models of ordered levels beside each of several annotators, by weighted kappa."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from obygaze_models.scoring.annotators import AnnotatorComparison, Rater
from obygaze_models.scoring.intervals import (
    estimate_weighted,
    group_columns,
    too_few,
    weigh_groups,
)
from obygaze_models.scoring.metrics import Array
from obygaze_models.scoring.values import weighted_kappa


def compare_ordered(
    votes: Mapping[str, Array],
    models: Mapping[str, Array],
    films: Sequence[str],
    classes: Sequence[str],
) -> AnnotatorComparison | None:
    """Compare models with each annotator, and these with each other, by the same weighted kappa.

    Parameters and result are as of `compare_with_annotators`; a model's predictions [N] are
    positions on the scale of the levels.
    """
    labelled = np.logical_and.reduce([labels >= 0 for labels in votes.values()])
    asked = np.logical_or.reduce([np.isfinite(values) for values in models.values()])
    rows = np.flatnonzero(labelled & asked)
    if not len(rows) or len(votes) < 2:
        return None
    columns, count = group_columns([films[row] for row in rows.tolist()])
    weights = weigh_groups(count)[:, columns]
    own = {name: labels[rows].astype(np.float64) for name, labels in votes.items()}

    def agreement(part: Array) -> Array:
        """Return the annotators' mean kappa with each other on a part of the clips."""
        pairs = combinations(own.values(), 2)
        kappas = [weighted_kappa(a[part], b[part], weights[:, part]) for a, b in pairs]
        return np.asarray(np.mean(kappas, axis=0))

    raters = []
    for name, values in models.items():
        part = np.isfinite(values[rows])
        if part.any():
            kappas = _kappas(own, values[rows], weights, part)
            differences = np.mean([*kappas.values()], axis=0) - agreement(part)
            estimate = estimate_weighted(differences)
            raters.append(
                Rater(
                    name=name, kind="model", clips=int(part.sum()), kappa=_firsts(kappas),
                    difference=estimate.value, interval=estimate.interval,
                )
            )  # fmt: skip
    every = np.ones(len(rows), dtype=bool)
    for name, labels in own.items():
        others = {other: values for other, values in own.items() if other != name}
        mutual = _firsts(_kappas(others, labels, weights, every))
        raters.append(Rater(name=name, kind="annotator", clips=len(rows), kappa=mutual))
    counts = [np.bincount(labels[rows], minlength=len(classes)) for labels in votes.values()]
    return AnnotatorComparison(
        annotators=[*votes],
        classes=[*classes],
        clips=len(rows),
        films=count,
        too_few=too_few(np.min(counts, axis=0).tolist(), count),
        agreement=estimate_weighted(agreement(every)).value,
        raters=raters,
    )


def _kappas(
    truths: Mapping[str, Array], values: Array, weights: Array, part: Array
) -> dict[str, Array]:
    """Return the kappa with each annotator, by each row of weights."""
    return {
        name: weighted_kappa(truth[part], values[part], weights[:, part])
        for name, truth in truths.items()
    }


def _firsts(kappas: Mapping[str, Array]) -> dict[str, float | None]:
    """Return the kappas of all clips; None where one is not defined."""
    return {name: None if np.isnan(own[0]) else float(own[0]) for name, own in kappas.items()}
