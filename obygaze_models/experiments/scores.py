"""The scores of a table of predictions: by group, as a mean with its interval, and by fit.

A table of predictions has a row for each model, test set, fit and clip. Its columns are ``id``,
``model``, ``fit``, ``test``, ``label`` (the number of the clip's class; its key in files), and the
``probability`` of the second of two classes, or a ``probability_KEY`` for each class. Instead of
probabilities, numbers have a ``value``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from obygaze_models.data.targets import Target, target_of_columns
from obygaze_models.data.tasks import Task
from obygaze_models.scoring.intervals import (
    ScoredClips,
    estimate_scores,
    mean_scores,
    score_groups,
)
from obygaze_models.scoring.metrics import TREC, Array, Scores, score, trec_ranks


@dataclass(frozen=True, eq=False)
class ModelScores:
    """A model's scores on a test set.

    Parameters
    ----------
    model, test
        The model and the test set.
    mean, interval
        The mean of each score over groups, and its 95% interval or None. Official measures, and all
        scores if `pooled`, are computed on all clips together instead.
    groups
        The scores of each group; {} if all clips are scored together.
    left_out, unnamed
        The groups that lack clips of a class, and the number of clips that are in no group.
    pooled
        True if all clips are scored together, because fewer than two groups can be scored.
    cross_validated
        True if fits are trained on clips that other fits test.
    by_fit
        The scores of each fit, by its number.
    """

    model: str
    test: str
    mean: Scores
    interval: dict[str, tuple[float, float] | None]
    groups: dict[str, Scores]
    left_out: list[str]
    unnamed: int
    pooled: bool
    cross_validated: bool
    by_fit: dict[int, Scores]

    @property
    def films(self) -> int:
        """The number of groups that scores are averaged over; 1 if clips are scored together."""
        return max(1, len(self.groups))

    @property
    def mean_of_fits(self) -> Scores:
        """The mean over fits, each scored on all its test clips, as in the paper's tables."""
        return mean_scores([*self.by_fit.values()])

    @property
    def std_of_fits(self) -> Scores:
        """The standard deviation over fits, each scored on all its test clips."""
        return mean_scores([*self.by_fit.values()], np.std)


@dataclass(frozen=True, eq=False)
class TestSet:
    """The size of a test set, and the scores of each kind of guess on it.

    `positives` is None unless there are two classes.
    """

    clips: int
    positives: int | None
    classes: dict[str, int]
    guesses: dict[str, Scores]

    @property
    def share(self) -> float | None:
        """The share of positives; None unless there are two classes."""
        return None if self.positives is None else self.positives / self.clips


def split_by(table: pd.DataFrame, *columns: str) -> dict[Any, pd.DataFrame]:
    """Split a table by the values in some columns, in the table's order."""
    by = list(columns) if len(columns) > 1 else columns[0]
    return dict(iter(table.groupby(by, sort=False, observed=True)))


def target_of(table: pd.DataFrame) -> Target:
    """Return the target that a table's predictions are for."""
    return target_of_columns(table.columns)


def values_of(table: pd.DataFrame) -> Array:
    """Return the probabilities of the second of two classes [N], of all [N, C], or numbers [N]."""
    columns = target_of(table).columns_in(table.columns)
    values = table[columns].to_numpy(dtype=np.float64)
    return values[:, 0] if len(columns) == 1 else values


def called_of(table: pd.DataFrame) -> Array:
    """Return the predicted class or number of each row."""
    return target_of(table).called(values_of(table))


def tabulate(
    task: Task, model: str, fit: int, ids: Sequence[str], labels: Array, table: Array
) -> pd.DataFrame:
    """Return a fit's table of predictions for a test set, from class probabilities [N, C]."""
    names, values = task.target.columns(task.class_keys), task.target.to_columns(table)
    columns = {"id": ids, "model": model, "fit": fit, "test": task.key, "label": labels}
    return pd.DataFrame(columns | dict(zip(names, values.T, strict=True)))


def average_over_fits(table: pd.DataFrame) -> pd.DataFrame:
    """Return each clip's label and prediction, averaged over the fits of a model, by id.

    If a fit tested a clip in several test sets, its prediction counts once. `called` is the
    predicted class, `fits` the number of fits; `low` and `high` are the lowest and highest last
    probability.
    """
    columns = target_of(table).columns_in(table.columns)
    once = table.drop_duplicates(["fit", "id"]).groupby("id", sort=True)
    means = once[columns].mean()
    last = once[columns[-1]]
    means = means.assign(
        label=once["label"].first(), low=last.min(), high=last.max(), fits=last.size()
    )
    return means.assign(called=called_of(means)).reset_index()


def is_cross_validated(table: pd.DataFrame) -> bool:
    """Return True if no single fit of a model tested all its test clips.

    In that case, fits are trained on clips that other fits test.
    """
    by_fit = table.groupby("fit")["id"].nunique()
    return bool(by_fit.max() < table["id"].nunique())


def scored_clips(
    table: pd.DataFrame, group_of: Mapping[str, str], measure: str = ""
) -> ScoredClips:
    """Convert a model's predictions on a test set to `ScoredClips`."""
    ids, target = table["id"].tolist(), target_of(table)
    return ScoredClips(
        ids=ids,
        labels=table["label"].to_numpy(),
        probabilities=values_of(table),
        groups=[group_of[clip] for clip in ids],
        classes=max(2, len(target.columns_in(table.columns))),
        measure=measure,
        kind=target.key,
        cross_validated=is_cross_validated(table),
    )


def score_models(
    table: pd.DataFrame, group_of: Mapping[str, str], measure: str = ""
) -> list[ModelScores]:
    """Score each model on each test set."""
    models = []
    for (model, test), own in split_by(table, "model", "test").items():
        groups = score_groups(scored_clips(own, group_of, measure))
        estimates = estimate_scores(groups)
        by_fit = {}
        for fit, part in split_by(own, "fit").items():
            by_fit[fit] = score_fit(part, measure)
        models.append(
            ModelScores(
                model=model,
                test=test,
                mean={key: estimate.value for key, estimate in estimates.items()},
                interval={key: estimate.interval for key, estimate in estimates.items()},
                groups={} if groups.pooled else groups.by_name(),
                left_out=groups.left_out,
                unnamed=groups.unnamed,
                pooled=groups.pooled,
                cross_validated=groups.cross_validated,
                by_fit=by_fit,
            )
        )
    return models


def scores_table(models: Sequence[ModelScores]) -> pd.DataFrame:
    """Return the scores of models, with a row for each metric, over all groups and for each.

    Rows without a group have the mean over groups, and its 95% interval.
    """
    rows = []
    for own in models:
        for metric, mean in own.mean.items():
            low, high = own.interval[metric] or (None, None)
            row: dict[str, Any] = {"model": own.model, "test": own.test, "metric": metric}
            rows.append(row | {"group": "", "mean": mean, "low": low, "high": high})
            for group, scores in own.groups.items():
                rows.append(row | {"group": group, "mean": scores.get(metric)})
    return pd.DataFrame(rows)


def score_fit(table: pd.DataFrame, measure: str = "") -> Scores:
    """Return the scores of a fit on a test set, with all its clips together."""
    values = values_of(table)
    ranks = trec_ranks(table["id"].tolist(), values) if measure == TREC else None
    return score(table["label"].to_numpy(), values, ranks, target_of(table).key)


def score_test_sets(
    table: pd.DataFrame,
    tasks: Sequence[Task],
    scores: Sequence[ModelScores],
    group_of: Mapping[str, str],
) -> dict[str, TestSet]:
    """Return each test set's size, and the scores of guesses on it.

    Guesses are scored like the models: in each scored group, with the group's share of positives,
    and then averaged over groups.
    """
    task_of = {task.key: task for task in tasks}
    sets = {}
    for test, own in split_by(table, "test").items():
        task, clips = task_of[test], own.drop_duplicates("id")
        labels = pd.Series(clips["label"].to_numpy(), clips["id"].to_numpy())
        counts = task.target.count(task, labels.to_numpy())
        guesses: dict[str, Scores] = {}
        if counts.positives is not None or task.target.is_numeric:
            scored = [group for each in scores if each.test == test for group in each.groups]
            by_group = labels.groupby([group_of[clip] for clip in labels.index])
            parts = [by_group.get_group(name) for name in dict.fromkeys(scored)] or [labels]
            guesses = score_guesses(task.target, parts, labels)
        sets[test] = TestSet(counts.clips, counts.positives, counts.classes, guesses)
    return sets


def score_guesses(
    target: Target, parts: Sequence[pd.Series[Any]], every: pd.Series[Any]
) -> dict[str, Scores]:
    """Return the scores of each kind of guess, as means over groups of labels."""
    forms = []
    for labels in parts:
        others = every.drop(labels.index)
        forms.append(target.guesses(labels.to_numpy(), others.to_numpy()))
    return {name: mean_scores([form[name] for form in forms]) for name in forms[0]}
