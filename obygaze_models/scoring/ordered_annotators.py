"""Models of ordered levels beside each of several annotators, by weighted kappa."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec
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

    Parameters and result are those of `compare_with_annotators`; a model's predictions [N] are
    positions on the scale of the levels. The clips are those that every annotator labelled and
    every model was asked about.
    """
    answered = [labels >= 0 for labels in votes.values()]
    answered += [np.isfinite(values) for values in models.values()]
    rows = np.flatnonzero(np.logical_and.reduce(answered))
    if not len(rows) or len(votes) < 2:
        return None
    columns, count = group_columns([films[row] for row in rows.tolist()])
    weights = weigh_groups(count)[:, columns]
    own = {name: labels[rows].astype(np.float64) for name, labels in votes.items()}
    ratings = {("model", name): values[rows] for name, values in models.items()}
    ratings |= {("annotator", name): values for name, values in own.items()}
    kappas = {
        rater: {who: weighted_kappa(truth, values, weights) for who, truth in own.items()}
        for rater, values in ratings.items()
    }
    pairs = [kappas["annotator", first][second] for first, second in combinations(own, 2)]
    agreement = np.mean(pairs, axis=0)
    raters = []
    for name in models:
        own_kappas = kappas["model", name]
        estimate = estimate_weighted(np.mean([*own_kappas.values()], axis=0) - agreement)
        beside, interval = _firsts(own_kappas), estimate.interval
        rater = Rater(name=name, kind="model", clips=len(rows), kappa=beside, interval=interval)
        raters.append(msgspec.structs.replace(rater, difference=estimate.value))
    for name in own:
        mutual = {who: kappa for who, kappa in kappas["annotator", name].items() if who != name}
        rater = Rater(name=name, kind="annotator", clips=len(rows), kappa=_firsts(mutual))
        raters.append(rater)
    counts = [np.bincount(labels[rows], minlength=len(classes)) for labels in votes.values()]
    return AnnotatorComparison(
        annotators=[*votes],
        classes=[*classes],
        clips=len(rows),
        films=count,
        too_few=too_few(np.min(counts, axis=0).tolist(), count),
        agreement=estimate_weighted(agreement).value,
        raters=raters,
    )


def _firsts(kappas: Mapping[str, Array]) -> dict[str, float | None]:
    """Return the kappas of all clips, with None for undefined ones."""
    return {name: None if np.isnan(own[0]) else float(own[0]) for name, own in kappas.items()}
