"""What models predict, in a run and from outside: written and read, averaged and scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from obygaze_features.common.plugins import one_line
from obygaze_features.common.tables import format_table, read_table
from obygaze_features.common.text import group_by
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_models.data.tasks import Task
from obygaze_models.estimators.baselines import baselines, simulated
from obygaze_models.experiments.record import (
    MAKE,
    ClassCounts,
    FitScores,
    ModelScores,
    RunRecord,
    Simulated,
    TestSet,
)
from obygaze_models.scoring.intervals import ScoredClips, estimate_scores, mean_scores, score_parts
from obygaze_models.scoring.metrics import TREC, Scores, score, trec_ranks

ANY_FIT = -1
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
        What the clips share, such as the film that was left out; read back only of such films.
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


def probability_columns(task: Task) -> list[str]:
    """Return the columns of the probabilities, of which two classes have one."""
    if task.is_binary:
        return ["probability"]
    return [f"probability_{title}" for title in task.class_titles]


def format_predictions(task: Task, fits: Iterable[FitPredictions]) -> str:
    """``predictions.csv``. Of two classes: the label as 0 or 1, and the probability of 1.

    Of more, the label by its name and the probability of each.
    """
    labels, names = np.array(_labels(task)), probability_columns(task)
    tables = [
        pd.DataFrame(
            {"id": fit.ids, "model": fit.model, "fit": fit.fit, "test": fit.test}
            | {"label": labels[fit.labels]}
            | dict(zip(names, fit.probabilities.reshape(len(fit.ids), -1).T, strict=True))
        )
        for fit in fits
    ]
    cells = pd.concat(tables).astype(str)
    return format_table({str(name): cells[name].tolist() for name in cells})


def read_predictions(path: Path, record: RunRecord) -> list[FitPredictions]:
    """In the file's order, which is that of models, then fits, then tests."""
    fits = []
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        for key, rows in table.groupby(["model", "fit", "test"], sort=False):
            model, fit, test = map(str, key)
            task = record.task(test)
            codes = pd.Index(_labels(task)).get_indexer(pd.Index(rows["label"]))
            given = rows[probability_columns(task)].to_numpy(dtype=np.float64)
            if codes.min() < 0 or not ((given >= -1e-6) & (given <= 1 + 1e-6)).all():
                raise ValueError(f"fit {fit} of {model} has other labels or probabilities")
            probabilities = given[:, 0] if task.is_binary else given
            labels = codes.astype(np.int64)
            ids = rows["id"].tolist()
            fits.append(FitPredictions(model, int(fit), test, ids, labels, probabilities))
    except (ValueError, KeyError) as problem:
        raise ExperimentError(
            f"{path} does not fit run.json ({one_line(problem)}); run it again with: {MAKE}"
        ) from None
    return fits


def _labels(task: Task) -> list[str]:
    """Return what the file calls the classes."""
    return ["0", "1"] if task.is_binary else task.class_titles


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
    counts, labels = np.bincount(clip_of), np.concatenate([fit.labels for fit in fits])[first]
    mean = fits[0].model, -1, fits[0].test, ids.tolist(), labels, (total.T / counts).T
    return MeanPredictions(*mean, low=low, high=high, fits=counts)


def join_fits(
    fits: Sequence[FitPredictions], group_of: Mapping[str, str], measure: str = ""
) -> ScoredClips:
    """Return the predictions of one model on one test set as they are scored.

    Parameters
    ----------
    fits
        All fits of the model.
    group_of
        The film of each clip, or what else was kept together.
    measure
        The official measure, if any.
    """
    ids = [clip for fit in fits for clip in fit.ids]
    probabilities = np.concatenate([fit.probabilities for fit in fits])
    return ScoredClips(
        ids,
        np.concatenate([fit.labels for fit in fits]),
        probabilities,
        [group_of[clip] for clip in ids],
        2 if probabilities.ndim == 1 else probabilities.shape[1],
        measure,
    )


def score_models(
    predictions: Sequence[FitPredictions], group_of: Mapping[str, str], *, measure: str = ""
) -> list[ModelScores]:
    """Score each model on each test set: each group, their mean and its interval, and each fit.

    Parameters
    ----------
    predictions
        Of all fits.
    group_of, measure
        As in `join_fits`.
    """
    models = []
    for (model, test), fits in group_by(predictions, lambda fit: (fit.model, fit.test)).items():
        by_fit = [score_fit(fit, trec=measure == TREC) for fit in fits]
        parts = score_parts(join_fits(fits, group_of, measure))
        estimates, groups = estimate_scores(parts), parts.groups
        models.append(
            ModelScores(
                model=model,
                test=test,
                mean={key: made.value for key, made in estimates.items()},
                interval={key: made.interval for key, made in estimates.items()},
                groups={} if groups.pooled else groups.by_name(),
                left_out=groups.left_out,
                unnamed=groups.unnamed,
                pooled=groups.pooled,
                over_fits=score_over_fits(by_fit),
                fits=[fit.fit for fit in fits],
                by_fit=by_fit,
            )
        )
    return models


def score_over_fits(by_fit: Sequence[Scores]) -> FitScores:
    """Return the mean and deviation over fits."""
    return FitScores(mean=over_fits(np.mean, by_fit), std=over_fits(np.std, by_fit))


def score_fit(fit: FitPredictions, *, trec: bool) -> Scores:
    """The scores of one fit on one test set."""
    # Clips without features are in a warning of the run.
    ranks = trec_ranks(fit.ids, fit.probabilities) if trec else None
    return score(fit.labels, fit.probabilities, ranks)


def score_test_sets(
    predictions: Sequence[FitPredictions],
    tasks: Iterable[Task],
    scores: Sequence[ModelScores],
    group_of: Mapping[str, str],
    *,
    seed: int,
) -> dict[str, TestSet]:
    """Return each test set's size, and what guessing scores there.

    A guess is scored as the models are: in each group that counts, at its own share of positives,
    and the mean over these. A coin is also thrown many times for each fit's test clips; its mean
    and deviation are averaged over the fits.
    """
    sets, task_of = {}, {task.key: task for task in tasks}
    for name, of_test in group_by(predictions, lambda fit: fit.test).items():
        labels = {
            clip: label
            for fit in of_test
            for clip, label in zip(fit.ids, fit.labels.tolist(), strict=True)
        }
        counts = class_counts(np.array([*labels.values()]), task_of[name])
        guesses: dict[str, Scores] = {}
        coin = None
        if counts.positives is not None:
            groups = [group for own in scores if own.test == name for group in own.groups]
            guesses = score_guesses(labels, group_of, list(dict.fromkeys(groups)))
            coin = _throw_coins({fit.fit: fit.labels for fit in of_test}.values(), seed)
        sets[name] = TestSet(
            clips=counts.clips,
            positives=counts.positives,
            classes=counts.classes,
            share=None if counts.positives is None else counts.positives / counts.clips,
            baselines=guesses,
            simulated=coin,
        )
    return sets


def score_guesses(
    labels: Mapping[str, int], group_of: Mapping[str, str], groups: Sequence[str]
) -> dict[str, Scores]:
    """Return what each way of guessing scores: the mean over groups, or of all clips together."""
    by_group = group_by(labels, lambda clip: group_of[clip])
    parts = [by_group[group] for group in groups] or [[*labels]]
    forms = [baselines(float(np.mean([labels[clip] for clip in part]))) for part in parts]
    return {name: mean_scores([form[name] for form in forms]) for name in forms[0]}


#: Many fits have test sets of the same size.
_throw_coin = cache(simulated)


def _throw_coins(labels_of_fits: Iterable[Array], seed: int) -> Simulated:
    """Return the mean over fits of what a coin scores, and of its deviation."""
    throws = [_throw_coin(len(labels), int(labels.sum()), seed=seed) for labels in labels_of_fits]
    mean, std = ([throw[key] for throw in throws] for key in ("mean", "std"))
    return Simulated(mean=over_fits(np.mean, mean), std=over_fits(np.mean, std))


def class_counts(labels: NDArray[Any], task: Task) -> ClassCounts:
    """Count all clips, those of each class, and the positives of two classes."""
    count = Counter(labels.tolist())
    return ClassCounts(
        clips=len(labels),
        positives=count[1] if task.is_binary else None,
        classes={key: count[code] for code, key in enumerate(task.class_keys)},
    )


def over_fits(statistic: Callable[[list[float]], Any], fits: Sequence[Scores]) -> Scores:
    """A statistic of each metric over the fits in which it is defined; None if in none."""
    result: Scores = {}
    for key in fits[0]:
        values = [value for scores in fits if (value := scores[key]) is not None]
        result[key] = float(statistic(values)) if values else None
    return result


@dataclass(frozen=True)
class OutsideModel:
    """The predictions of one model from outside: by task and fold, the probabilities of clips."""

    name: str
    path: Path
    columns: list[str]
    table: dict[tuple[str, int], dict[str, tuple[float, ...]]] = field(default_factory=dict)

    def probabilities(self, task: Task, fit: int, ids: Sequence[str]) -> Array | None:
        """[n, classes] for some clips of a fold; None where the file has nothing of the fold."""
        names = probability_columns(task)
        if self.columns != names:
            raise ExperimentError(
                f"{self.path}: the columns are {', '.join(self.columns)}, and {task.key} needs "
                f"{', '.join(names)}"
            )
        key = task.key if any(name for name, _ in self.table) else ""
        clips = self.table.get((key, fit), self.table.get((key, ANY_FIT)))
        if clips is None:
            return None
        if missing := [clip for clip in ids if clip not in clips]:
            raise ExperimentError(
                f"{self.path}: {self.name} has no prediction of {missing[0]} in fit {fit}, which "
                f"is a test clip there ({len(missing)} of {len(ids)} are missing)"
            )
        values = np.array([clips[clip] for clip in ids], dtype=np.float64)
        return np.column_stack([1 - values, values]) if len(names) == 1 else values


def read_outside(path: Path) -> list[OutsideModel]:
    """The models of a table of predictions; `ExperimentError` names what is wrong, and its line.

    ==================  =====================================================================
    ``id``              the clip
    ``probability``     of the positive class; of more classes ``probability_NAME`` of each
    ``fit``             the fold, numbered as in ``predictions.csv``; without it, for all folds
    ``model``           the name under which it is listed; without it, the name of the file
    ``task``            as in ``run.json``; needed where an experiment learns several tasks
    ==================  =====================================================================
    """
    models: dict[str, OutsideModel] = {}
    try:
        table = read_table(path, required=("id",))
        columns = [name for name in table.columns if name.startswith("probability")]
        if not columns:
            raise ValueError(f"it has no column probability; it has {', '.join(table.columns)}")
        for line, row in zip(table.lines, table.rows(), strict=True):
            name = row.get("model") or path.stem
            model = models.setdefault(name, OutsideModel(name, path, columns))
            fit = int(row["fit"]) if row.get("fit") else ANY_FIT
            values = tuple(float(row[column]) for column in columns)
            if not all(0 <= value <= 1 for value in values):  # nor is nan
                given = row[columns[0]]
                raise ValueError(f"line {line}: a probability is {given}, not from 0 to 1")
            clips = model.table.setdefault((row.get("task", ""), fit), {})
            if row["id"] in clips:
                raise ValueError(f"line {line}: {row['id']} is twice in fit {row.get('fit', '')}")
            clips[row["id"]] = values
    except (ManifestError, ValueError) as problem:
        raise ExperimentError(f"{path} cannot be read: {problem}") from None
    return list(models.values())
