"""Compare models with each of several annotators, by agreement beyond chance.

Models and annotators are compared on the clips that all annotators labelled and all models
predicted. The difference between a model's agreement with the annotators and the annotators'
agreement with each other has an interval over films.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np

from obygaze_features.annotations.measures import cohen_kappas
from obygaze_features.common.text import counted, format_signed
from obygaze_models.scoring.intervals import (
    estimate_weighted,
    group_columns,
    shortage,
    weigh_groups,
)
from obygaze_models.scoring.values import Array, none_if_nan


class Rater(msgspec.Struct, frozen=True, kw_only=True):
    """A model or an annotator.

    Parameters
    ----------
    name, kind
        The name, and the kind: ``model`` or ``annotator``.
    kappa
        The kappa with each annotator, or with each other annotator.
    difference, interval
        For models: the mean kappa with the annotators, minus the annotators' mean kappa with each
        other; and the interval of this difference.
    """

    name: str
    kind: str
    kappa: dict[str, float | None]
    difference: float | None = None
    interval: tuple[float, float] | None = None


class AnnotatorComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of models and annotators on a test set; see `compare_with_annotators`.

    `clips` is the number of compared clips, which all annotators assigned to one of the `classes`,
    and `films` the number of their films. `too_few` is the reason why nothing can be concluded, or
    "". `agreement` is the annotators' mean kappa with each other.
    """

    annotators: list[str]
    classes: list[str]
    clips: int
    films: int
    too_few: str
    agreement: float | None
    raters: list[Rater]

    @property
    def which_clips(self) -> str:
        """A description of the compared clips."""
        clips = counted(self.clips, "clip")
        classes = " or ".join(self.classes)
        return f"{clips} that all annotators called {classes}"

    def sentence(self, model: str, *, name: str = "", minus: str = "-") -> str:
        """Describe a model's agreement with annotators next to their agreement with each other.

        `name` replaces the model's name, and `minus` the minus sign of numbers. The result is "" if
        kappa is undefined.
        """
        [rater] = [own for own in self.raters if (own.name, own.kind) == (model, "model")]
        if self.agreement is None or rater.difference is None or None in rater.kappa.values():
            return ""

        annotators = [_with_kappa(who, rater.kappa[who], minus) for who in self.annotators]
        others = _with_kappa("each other", self.agreement, minus)

        difference = format_signed(rater.difference)
        if rater.interval is not None and not self.too_few:
            low, high = map(format_signed, rater.interval)
            difference += f" (95% {low} to {high})"
        difference = difference.replace("-", minus)

        return (
            f"{name or model} agrees with {' and '.join(annotators)}, and they agree with "
            f"{others}, on {self.which_clips}. "
            f"Mean difference {difference}: {self._conclusion(rater)}."
        )

    def _conclusion(self, rater: Rater) -> str:
        if self.too_few:
            return self.too_few
        if rater.interval is None:
            return "no interval, because kappa is undefined without one of the films"

        low, high = rater.interval
        if high < 0:
            return "the model agrees less"
        if low > 0:
            return "the model agrees more"
        return "inconclusive"


def _with_kappa(who: str, kappa: float | None, minus: str) -> str:
    number = f"{kappa:.2f}".replace("-", minus)
    return f"{who} (kappa {number})"


def compare_with_annotators(
    votes: Mapping[str, Array],
    predictions: Mapping[str, Array],
    films: Sequence[str],
    classes: Sequence[str],
    *,
    cross_validated: bool = False,
) -> AnnotatorComparison | None:
    """Compare models with each annotator, and annotators with each other.

    Parameters
    ----------
    votes
        Each annotator's class code for each of N clips, from 0; -1 if unlabelled.
    predictions
        Each model's class codes [N]; NaN for clips without a prediction.
    films
        The film of each clip, or "". Clips without a film do not count in intervals.
    classes
        The names of the classes.
    cross_validated
        True if fits of the models are trained on clips that other fits test; see `estimate_mean`.

    Returns
    -------
    The comparison on clips that all annotators labelled and all models predicted, or None if there
    are no such clips or fewer than two annotators.
    """
    answered = [codes >= 0 for codes in votes.values()]
    answered += [np.isfinite(values) for values in predictions.values()]
    rows = np.flatnonzero(np.logical_and.reduce(answered))
    if not len(rows) or len(votes) < 2:
        return None

    film, count = group_columns([films[row] for row in rows.tolist()])
    weights = weigh_groups(count)[:, film]
    labels = {name: codes[rows] for name, codes in votes.items()}

    pairs = []
    with_others: dict[str, dict[str, float | None]] = {name: {} for name in labels}
    for first, second in combinations(labels, 2):
        kappas = nominal_kappa(labels[first], labels[second], weights)
        pairs.append(kappas)
        with_others[first][second] = none_if_nan(kappas[0])
        with_others[second][first] = none_if_nan(kappas[0])
    agreement = np.mean(pairs, axis=0)

    raters = []
    for name, values in predictions.items():
        own = {who: nominal_kappa(codes, values[rows], weights) for who, codes in labels.items()}
        differences = np.mean([*own.values()], axis=0) - agreement
        estimate = estimate_weighted(differences, cross_validated=cross_validated)
        raters.append(
            Rater(
                name=name,
                kind="model",
                kappa={who: none_if_nan(kappas[0]) for who, kappas in own.items()},
                difference=estimate.value,
                interval=estimate.interval,
            )
        )
    for name, kappa in with_others.items():
        raters.append(Rater(name=name, kind="annotator", kappa=kappa))

    counts = [np.bincount(codes, minlength=len(classes)) for codes in labels.values()]
    return AnnotatorComparison(
        annotators=[*votes],
        classes=[*classes],
        clips=len(rows),
        films=count,
        too_few=shortage(np.min(counts, axis=0).tolist(), count),
        agreement=none_if_nan(agreement[0]),
        raters=raters,
    )


def nominal_kappa(labels: Array, predictions: Array, weights: Array) -> Array:
    """Return Cohen's kappa of two raters' class codes [N], for each row of weights [draws, N].

    Examples
    --------
    >>> nominal_kappa(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), np.ones((1, 4)))
    array([0.5])
    """
    classes = 1 + int(max(labels.max(), predictions.max()))
    cells = labels * classes + predictions.astype(np.int64)
    counts = weights @ np.eye(classes**2)[cells]
    return cohen_kappas(counts.reshape(-1, classes, classes))
