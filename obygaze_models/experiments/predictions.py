"""``predictions.csv``: the predictions of each fit on each test set, and their means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import Table, format_table, read_table
from obygaze_features.errors import ExperimentError
from obygaze_models.experiments.record import RunRecord

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class FitPredictions:
    """The predictions of one fit of a model on one test set.

    Parameters
    ----------
    model, fit, test
        Whose, and of which clips.
    ids, labels
        The clips, and the class of each from 0 on.
    probabilities
        [N] of the positive class, or [N, classes] where there are more than two.
    group
        What the clips share, such as the film that was left out; only before it is written.
    """

    model: str
    fit: int
    test: str
    ids: list[str]
    labels: Array
    probabilities: Array
    group: str = ""

    @property
    def called(self) -> Array:
        """The class that each clip is given: the likeliest; of two the second above one half."""
        if self.probabilities.ndim == 2:
            return np.asarray(self.probabilities.argmax(axis=1))
        return (self.probabilities > 0.5).astype(np.int64)

    @property
    def wrong(self) -> Array:
        """Which clips are given another class than the annotators'."""
        return np.asarray(self.called != self.labels)


@dataclass(frozen=True, eq=False)
class MeanPredictions(FitPredictions):
    """The mean predictions of a model over its fits; see `average_over_fits`.

    `low` and `high` are the lowest and highest probability of a clip over its `fits`: of the last
    class, if there are many.
    """

    low: Array = field(kw_only=True)
    high: Array = field(kw_only=True)
    fits: Array = field(kw_only=True)


def format_predictions(classes: Sequence[str], fits: Iterable[FitPredictions]) -> str:
    """``predictions.csv``. Of two classes: the label as 0 or 1, and the probability of 1.

    Of more, the label by its name and the probability of each.
    """
    two = len(classes) == 2
    names = ["probability"] if two else [f"probability_{name}" for name in classes]
    columns: dict[str, list[Any]] = {
        name: [] for name in ("id", "model", "fit", "test", "label", *names)
    }
    for fit in fits:
        count = len(fit.ids)
        columns["id"] += fit.ids
        columns["model"] += [fit.model] * count
        columns["fit"] += [str(fit.fit)] * count
        columns["test"] += [fit.test] * count
        labels = fit.labels.tolist()
        columns["label"] += [str(label) if two else classes[label] for label in labels]
        table = fit.probabilities.reshape(count, -1)
        for name, column in zip(names, table.T.tolist(), strict=True):
            columns[name] += map(repr, column)
    return format_table({**columns})


def read_predictions(path: Path, record: RunRecord) -> list[FitPredictions]:
    """In the file's order, which is that of models, then fits, then tests."""
    table = read_table(path, required=("id", "model", "fit", "test", "label"))
    rows: dict[tuple[str, str, str], list[int]] = {}
    keys = zip(table["model"], table["fit"], table["test"], strict=True)
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    fits = []
    for key, numbers in rows.items():
        try:
            fits.append(_fit_predictions(table, key, numbers, [*record.tests[key[2]].classes]))
        except (ValueError, KeyError) as problem:
            text = f"of this row or the next ones of its fit {problem} does not fit run.json"
            raise table.problem(numbers[0], text) from None
    return fits


def _fit_predictions(
    table: Table, key: tuple[str, str, str], rows: list[int], classes: list[str]
) -> FitPredictions:
    model, fit, test = key
    two = len(classes) == 2
    names = ["probability"] if two else [f"probability_{name}" for name in classes]
    codes = ["0", "1"] if two else classes
    probabilities = np.array([[float(table[name][row]) for name in names] for row in rows])
    if not ((probabilities >= -1e-6) & (probabilities <= 1 + 1e-6)).all():
        raise ValueError("a probability that is not from 0 to 1")
    return FitPredictions(
        model,
        int(fit),
        test,
        [table["id"][row] for row in rows],
        np.array([codes.index(table["label"][row]) for row in rows], dtype=np.int64),
        probabilities[:, 0] if two else probabilities,
    )


def average_over_fits(fits: Sequence[FitPredictions]) -> MeanPredictions:
    """The mean probability of each clip over the fits of one model that tested it, ids in order.

    Where a fit tested a clip in several test sets, with the same prediction, it counts once.
    """
    if len({fit.model for fit in fits}) != 1:
        raise ExperimentError("give the fits of one model to average them")
    ids, first, clip_of = np.unique(
        [clip for fit in fits for clip in fit.ids], return_index=True, return_inverse=True
    )
    numbers = np.concatenate([np.full(len(fit.ids), fit.fit) for fit in fits])
    _, once = np.unique(np.stack([numbers, clip_of]), axis=1, return_index=True)
    clip_of = clip_of[once]
    probabilities = np.concatenate([fit.probabilities for fit in fits])[once]
    last = probabilities if probabilities.ndim == 1 else probabilities[:, -1]
    total = np.zeros((len(ids), *probabilities.shape[1:]))
    np.add.at(total, clip_of, probabilities)
    low, high = np.full(len(ids), np.inf), np.full(len(ids), -np.inf)
    np.minimum.at(low, clip_of, last)
    np.maximum.at(high, clip_of, last)
    counts = np.bincount(clip_of)
    return MeanPredictions(
        fits[0].model,
        -1,
        fits[0].test,
        ids.tolist(),
        np.concatenate([fit.labels for fit in fits])[first],
        (total.T / counts).T,
        low=low,
        high=high,
        fits=counts,
    )
