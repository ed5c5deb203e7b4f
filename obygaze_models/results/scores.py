"""The scores of a table of predictions: by group, as a mean with its interval, and by fit.

A table of predictions has a row for each model, test set, fit and clip. Its columns are ``id``,
``model``, ``fit``, ``test``, ``label`` (the number of the clip's class; in files, the class's key),
and the ``probability`` of the second of two classes, or a ``probability_KEY`` for each class. If a
task predicts numbers, there is a ``value`` instead of probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from obygaze_features.common.arrays import Array
from obygaze_models.data.targets import target_of_columns
from obygaze_models.data.tasks import Task
from obygaze_models.scoring.intervals import (
    ACROSS,
    WITHIN,
    Estimate,
    ScoredClips,
    estimate_scores,
    lead_first,
    mean_scores,
    score_groups,
)
from obygaze_models.scoring.metrics import Scores, score


class ModelScores(NamedTuple):
    """A model's scores on a test set.

    Parameters
    ----------
    model, test
        The model and the test set.
    within, across
        The estimate of each score within groups, and across groups.
    lead
        The question that the protocol asks: ``within`` or ``across``.
    measure
        The benchmark's official measure, which is always of all clips; or "".
    groups
        The scores of each group.
    left_out
        The groups that are not scored on their own; see `GroupScores`.
    by_fit
        The scores of each fit on all its test clips together, by the number of the fit.
    folds
        The number of folds that were tested in turn; 1 if a fit tested all clips.
    """

    model: str
    test: str
    within: dict[str, Estimate]
    across: dict[str, Estimate]
    lead: str
    measure: str
    groups: dict[str, Scores]
    left_out: list[str]
    by_fit: dict[int, Scores]
    folds: int

    def estimate(self, metric: str, over: str = "") -> Estimate:
        """Return the estimate of a score, by default of the question that the protocol asks."""
        if not over:
            over = ACROSS if metric == self.measure else self.lead
        estimates = self.across
        if over == WITHIN:
            estimates = self.within
        return estimates.get(metric, Estimate(None))

    @property
    def metrics(self) -> list[str]:
        """The keys of the scores."""
        return [*dict.fromkeys([*self.within, *self.across])]

    @property
    def mean_of_fits(self) -> Scores:
        """The mean over fits, each scored on all its test clips, as in the paper's tables."""
        return mean_scores([*self.by_fit.values()])

    @property
    def std_of_fits(self) -> Scores:
        """The standard deviation over fits, each scored on all its test clips."""
        return mean_scores([*self.by_fit.values()], np.std)


class TestSet(NamedTuple):
    """The size of a test set, and by question, the scores of each kind of guess on it.

    `positives` is None unless there are two classes.
    """

    clips: int
    positives: int | None
    classes: dict[str, int]
    guesses: dict[str, dict[str, Scores]]


def split_by(table: pd.DataFrame, *columns: str) -> dict[Any, pd.DataFrame]:
    """Split a table by the values in some columns, in the table's order."""
    by = list(columns) if len(columns) > 1 else columns[0]
    return dict(iter(table.groupby(by, sort=False, observed=True)))


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, with None for missing values."""
    rows: list[Any] = table.astype(object).where(table.notna(), None).to_dict("records")
    return rows


def values_of(table: pd.DataFrame) -> Array:
    """Return probabilities of the second of two classes [N] or of all [N, C], or numbers [N]."""
    columns = target_of_columns(table.columns).columns_in(table.columns)
    values = table[columns].to_numpy(dtype=np.float64)
    return values[:, 0] if len(columns) == 1 else values


def read_labels(table: pd.DataFrame, tasks: Sequence[Task]) -> Array:
    """Return the labels of a table of predictions as numbers; `UNUSED` for unknown classes."""
    task_of = {task.key: task for task in tasks}
    codes: Array = np.empty(len(table), dtype=tasks[0].target.label_type)
    for test, rows in table.groupby("test", observed=True).indices.items():
        task = task_of[str(test)]
        codes[rows] = task.read_labels(table["label"].to_numpy()[rows])
    return codes


def average_over_fits(table: pd.DataFrame) -> pd.DataFrame:
    """Return each clip's label and its mean prediction over the fits of a model, sorted by id.

    If a fit tested a clip in several test sets, its prediction counts once. `called` is the
    predicted class (or number), and `fits` the number of fits.
    """
    target = target_of_columns(table.columns)
    columns = target.columns_in(table.columns)
    once = table.drop_duplicates(["fit", "id"]).groupby("id", sort=True)
    means = once[columns].mean().assign(label=once["label"].first(), fits=once.size())
    return means.assign(called=target.called(values_of(means))).reset_index()


def scored_clips(
    table: pd.DataFrame,
    group_of: Mapping[str, str],
    measure: str = "",
    *,
    is_mixed: bool = False,
) -> ScoredClips:
    """Convert a model's predictions on a test set to `ScoredClips`."""
    ids = table["id"].tolist()
    target = target_of_columns(table.columns)
    return ScoredClips(
        ids=ids,
        labels=table["label"].to_numpy(),
        probabilities=values_of(table),
        groups=[group_of[clip] for clip in ids],
        classes=max(2, len(target.columns_in(table.columns))),
        measure=measure,
        target_key=target.key,
        fits=table["fit"].to_numpy(),
        is_mixed=is_mixed,
    )


def score_models(
    table: pd.DataFrame,
    group_of: Mapping[str, str],
    measure: str,
    *,
    is_mixed: bool,
) -> list[ModelScores]:
    """Score each model on each test set."""
    models = []
    for (model, test), predictions in split_by(table, "model", "test").items():
        scored = score_groups(scored_clips(predictions, group_of, measure, is_mixed=is_mixed))
        estimates = estimate_scores(scored)
        target_key = target_of_columns(predictions.columns).key
        by_fit = {}
        for fit, part in split_by(predictions, "fit").items():
            by_fit[fit] = score(part["label"].to_numpy(), values_of(part), target_key=target_key)
        models.append(
            ModelScores(
                model=model,
                test=test,
                within=estimates.within,
                across=estimates.across,
                lead=scored.clips.lead,
                measure=measure,
                groups=scored.by_name(),
                left_out=scored.left_out,
                by_fit=by_fit,
                folds=scored.clips.folds,
            )
        )
    return models


def scores_table(models: Sequence[ModelScores]) -> pd.DataFrame:
    """Return a row for each model, test set, metric and question, and one for each group.

    Rows without a group also have the 95% interval and the numbers of clips and films (or other
    groups). ``over`` says whether a score is within or across groups; the protocol's choice is
    first.
    """
    rows = []
    for of_model in models:
        for metric in of_model.metrics:
            row: dict[str, Any] = {"model": of_model.model, "test": of_model.test, "metric": metric}
            for over in lead_first(of_model.lead):
                estimate = of_model.estimate(metric, over)
                low, high = estimate.interval or [np.nan] * 2
                whole = {
                    "group": "",
                    "mean": estimate.value,
                    "low": low,
                    "high": high,
                    "clips": estimate.clips,
                    "films": estimate.groups,
                    "over": over,
                    "effective": estimate.effective,
                }
                rows.append(row | whole)
            for group, scores in of_model.groups.items():
                alone = {"group": group, "mean": scores.get(metric), "over": WITHIN}
                rows.append(row | alone)
    return pd.DataFrame(rows).astype({"clips": "Int64", "films": "Int64"})
