"""Read, write, average and score the predictions of a run's models and of external models.

A table of predictions has a row for each model, test set, fit and clip. Its columns are ``model``,
``test``, ``fit``, ``id``, ``label`` (the number of the clip's class, or its key in files), and the
``probability`` of the second of two classes, or a ``probability_KEY`` for each class. Instead of
probabilities, numbers have a ``value``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from obygaze_features.common.tables import read_table
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_models.data.targets import Target, target_of_columns
from obygaze_models.data.tasks import Task
from obygaze_models.experiments.record import (
    FitScores,
    ModelScores,
    RunRecord,
    TestSet,
)
from obygaze_models.experiments.tables import format_frame, read_frame
from obygaze_models.scoring.intervals import ScoredClips, estimate_scores, mean_scores, score_groups
from obygaze_models.scoring.metrics import TREC, Scores, score, trec_ranks

if TYPE_CHECKING:
    from obygaze_models.experiments.record import ModelScores
    from obygaze_models.experiments.run_folder import Run

ANY_FIT = -1
Array = NDArray[Any]


def tabulate(
    task: Task, model: str, fit: int, ids: Sequence[str], labels: Array, probabilities: Array
) -> pd.DataFrame:
    """Return a fit's table of predictions for a test set, from class probabilities [N, C]."""
    columns = {"id": ids, "model": model, "fit": fit, "test": task.key, "label": labels}
    names, values = task.target.columns(task.class_keys), task.target.to_columns(probabilities)
    return pd.DataFrame(columns | dict(zip(names, values.T, strict=True)))


def join_tables(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate tables of predictions."""
    empty = pd.DataFrame(columns=["model", "test", "fit", "id", "label"])
    joined = pd.concat(list(tables) or [empty], ignore_index=True)
    return joined.astype({"model": "category", "test": "category"})


def target_of(table: pd.DataFrame) -> Target:
    """Return the target that a table's predictions are for."""
    return target_of_columns(table.columns)


def probabilities_of(table: pd.DataFrame) -> Array:
    """Return the probabilities of the second of two classes [N], or of all classes [N, C].

    For numbers, return the predictions [N].
    """
    columns = target_of(table).columns_in(table.columns)
    values = table[columns].to_numpy(dtype=np.float64)
    return values[:, 0] if len(columns) == 1 else values


def called_of(table: pd.DataFrame) -> Array:
    """Return the predicted class or number of each row."""
    return target_of(table).called(probabilities_of(table))


def split_by(table: pd.DataFrame, *columns: str) -> dict[Any, pd.DataFrame]:
    """Split a table by the values in some columns, in the table's order."""
    by = list(columns) if len(columns) > 1 else columns[0]
    return dict(iter(table.groupby(by, sort=False, observed=True)))


def format_predictions(tests: Sequence[Task], table: pd.DataFrame) -> str:
    """Format a table of predictions as ``predictions.csv``."""
    task_of = {task.key: task for task in tests}
    labels = np.empty(len(table), dtype=object)
    for test, rows in table.groupby("test", observed=True).indices.items():
        task = task_of[str(test)]
        labels[rows] = task.target.format_labels(task, table["label"].to_numpy()[rows])
    return format_frame(table.assign(label=labels)[[*_columns(tests[0])]])


def read_predictions(path: Path, record: RunRecord) -> pd.DataFrame:
    """Read ``predictions.csv``; raise `ExperimentError` if it does not match the record."""
    task = record.task(next(iter(record.tests)))
    columns = task.target.columns(task.class_keys)

    def check(table: pd.DataFrame) -> None:
        if unknown := {*table["test"].unique()} - {*record.tests}:
            raise ValueError(f"the record has no test set {min(unknown)!r}")
        codes: Array = np.empty(len(table), dtype=task.target.label_type)
        for test, rows in table.groupby("test", observed=True).indices.items():
            own = record.task(str(test))
            codes[rows] = own.target.read_labels(own, table["label"].to_numpy()[rows])
        table["label"] = codes
        # Numbers are read as text first, because pandas' parser rounds some of them.
        table[columns] = table[columns].astype(np.float64)
        allowed = np.all(task.target.allows(table[columns].to_numpy()), axis=1)
        is_wrong = ~(task.target.takes_part(codes) & allowed)
        for row in table[is_wrong].itertuples():
            raise ValueError(f"fit {row.fit} of {row.model} has invalid labels or predictions")

    return read_frame(path, _columns(task), check)


def _columns(task: Task) -> dict[str, str]:
    """Return the columns of ``predictions.csv`` and their types."""
    columns = {"id": "str", "model": "category", "fit": "int64", "test": "category"}
    return columns | dict.fromkeys(["label", *task.target.columns(task.class_keys)], "str")


def average_over_fits(table: pd.DataFrame) -> pd.DataFrame:
    """Return each clip's probabilities averaged over the fits of a model, sorted by id.

    If a fit tested a clip in several test sets, its prediction counts once. The table has ``id``,
    ``label``, the probabilities, the predicted class (``called``), the number of ``fits``, and the
    lowest and highest value of the last probability (``low``, ``high``).
    """
    columns = target_of(table).columns_in(table.columns)
    once = table.drop_duplicates(["fit", "id"]).groupby("id", sort=True)
    means = once[columns].mean()
    last = once[columns[-1]]
    means = means.assign(
        label=once["label"].first(), low=last.min(), high=last.max(), fits=last.size()
    )
    return means.assign(called=called_of(means)).reset_index()


def most_fits_per_clip(table: pd.DataFrame) -> int:
    """Return the largest number of fits of a model that tested the same clip."""
    return int(table.groupby(["model", "test", "id"], observed=True).size().max())


def join_fits(
    table: pd.DataFrame, group_of: Mapping[str, str], classes: int, measure: str = ""
) -> ScoredClips:
    """Convert a model's predictions on a test set to `ScoredClips`.

    Parameters
    ----------
    table
        The predictions of all fits of the model.
    group_of
        The film (or other group) of each clip.
    classes
        The number of classes in the test set.
    measure
        The official measure, if any.
    """
    ids = table["id"].tolist()
    labels, groups = table["label"].to_numpy(), [group_of[clip] for clip in ids]
    values, kind = probabilities_of(table), target_of(table).key
    crossed = is_cross_validated(table)
    return ScoredClips(ids, labels, values, groups, classes, measure, kind, crossed)


def is_cross_validated(table: pd.DataFrame) -> bool:
    """Return True if no single fit of a model tested all its test clips.

    In that case, fits are trained on clips that other fits test.
    """
    by_fit = table.groupby("fit")["id"].nunique()
    return bool(by_fit.max() < table["id"].nunique())


def score_models(
    table: pd.DataFrame, group_of: Mapping[str, str], *, measure: str = ""
) -> list[ModelScores]:
    """Score each model on each test set: by group, as a mean with its interval, and by fit.

    Parameters
    ----------
    table
        The predictions of all fits.
    group_of, measure
        See `join_fits`.
    """
    models, classes = [], max(2, len(target_of(table).columns_in(table.columns)))
    for (model, test), own in split_by(table, "model", "test").items():
        fits = split_by(own, "fit")
        by_fit = [score_fit(fit, trec=measure == TREC) for fit in fits.values()]
        groups = score_groups(join_fits(own, group_of, classes, measure))
        estimates = estimate_scores(groups)
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
                over_fits=score_over_fits(by_fit),
                fits=list(fits),
                by_fit=by_fit,
            )
        )
    return models


def score_over_fits(by_fit: Sequence[Scores]) -> FitScores:
    """Return the mean and standard deviation of the scores over fits."""
    return FitScores(mean=mean_scores(by_fit), std=mean_scores(by_fit, np.std))


def score_fit(table: pd.DataFrame, *, trec: bool) -> Scores:
    """Return the scores of a fit on a test set."""
    probabilities = probabilities_of(table)
    # Clips without features are counted in a warning of the run.
    ranks = trec_ranks(table["id"].tolist(), probabilities) if trec else None
    return score(table["label"].to_numpy(), probabilities, ranks, target_of(table).key)


def score_test_sets(
    table: pd.DataFrame,
    tasks: Iterable[Task],
    scores: Sequence[ModelScores],
    group_of: Mapping[str, str],
) -> dict[str, TestSet]:
    """Return each test set's size, and the scores of guesses on it.

    Guesses are scored like the models: in each scored group, with the group's share of positives,
    and then averaged over groups.
    """
    sets, task_of = {}, {task.key: task for task in tasks}
    for name, own in split_by(table, "test").items():
        clips, task = own.drop_duplicates("id"), task_of[name]
        counts = task.target.count(task, clips["label"].to_numpy())
        guesses: dict[str, Scores] = {}
        if counts.positives is not None or task.target.is_numeric:
            groups = [group for scored in scores if scored.test == name for group in scored.groups]
            by_group = clips.groupby(clips["id"].map(group_of))["label"]
            parts = [by_group.get_group(group) for group in dict.fromkeys(groups)]
            guesses = score_guesses(task.target, parts or [clips["label"]], clips["label"])
        sets[name] = TestSet(
            clips=counts.clips,
            positives=counts.positives,
            classes=counts.classes,
            share=None if counts.positives is None else counts.positives / counts.clips,
            baselines=guesses,
        )
    return sets


def score_guesses(
    target: Target, parts: Iterable[pd.Series[Any]], every: pd.Series[Any]
) -> dict[str, Scores]:
    """Return the scores of each kind of guess, as means over groups of labels."""
    forms = [
        target.guesses(labels.to_numpy(), every.drop(labels.index).to_numpy()) for labels in parts
    ]
    return {name: mean_scores([form[name] for form in forms]) for name in forms[0]}


@dataclass(frozen=True)
class OutsideModel:
    """The predictions of an external model; `table` has them by task and fold, then by clip."""

    name: str
    path: Path
    columns: list[str]
    table: dict[tuple[str, int], dict[str, tuple[float, ...]]] = field(default_factory=dict)

    def probabilities(self, task: Task, fit: int, ids: Sequence[str]) -> Array | None:
        """Return the probabilities [n, classes] for a fold's clips, or None for a missing fold."""
        target = task.target
        names = target.columns(task.class_titles)
        if self.columns not in (names, target.columns(task.class_keys)):
            raise ExperimentError(
                f"{self.path}: {task.key} needs the columns {', '.join(names)} (got "
                f"{', '.join(self.columns)})"
            )
        key = task.key if any(name for name, _ in self.table) else ""
        clips = self.table.get((key, fit), self.table.get((key, ANY_FIT)))
        if clips is None:
            return None
        if missing := [clip for clip in ids if clip not in clips]:
            raise ExperimentError(
                f"{self.path}: {self.name} has no prediction for the test clip {missing[0]} in fit "
                f"{fit} ({len(missing)} of {len(ids)} clips are missing)"
            )
        values = np.array([clips[clip] for clip in ids], dtype=np.float64)
        return target.from_columns(values)


def read_outside(path: Path) -> list[OutsideModel]:
    """Read external models from a table of predictions with these columns.

    ==================  =====================================================================
    ``id``              the clip
    ``probability``     of the positive class; for more classes, ``probability_NAME`` for each
    ``value``           for numbers, instead of probabilities
    ``fit``             the fold, numbered as in ``predictions.csv``; by default all folds
    ``model``           the model's name in the results; by default the name of the file
    ``task``            as in ``run.json``; required if an experiment learns several tasks
    ==================  =====================================================================

    Raise `ExperimentError` with the line number if the table is invalid.
    """
    models: dict[str, OutsideModel] = {}
    try:
        table = read_table(path, required=("id",))
        target = target_of_columns(table.columns)
        columns, is_numeric = target.columns_in(table.columns), target.is_numeric
        if not columns:
            raise ValueError(f"no 'probability' column (got {', '.join(table.columns)})")
        for line, row in zip(table.lines, table.rows(), strict=True):
            name = row.get("model") or path.stem
            model = models.setdefault(name, OutsideModel(name, path, columns))
            fit = int(row["fit"]) if row.get("fit") else ANY_FIT
            values = tuple(float(row[column]) for column in columns)
            if is_numeric:
                allowed = all(map(math.isfinite, values))
            else:
                allowed = all(0 <= value <= 1 for value in values)  # False for nan
            if not allowed:
                kind = "value" if is_numeric else "probability"
                limits = "a finite number" if is_numeric else "from 0 to 1"
                raise ValueError(f"line {line}: {kind} must be {limits} (got {row[columns[0]]})")
            clips = model.table.setdefault((row.get("task", ""), fit), {})
            if row["id"] in clips:
                within = f" in fit {fit}" if row.get("fit") else ""
                raise ValueError(f"line {line}: duplicate {row['id']}{within}")
            clips[row["id"]] = values
    except (ManifestError, ValueError) as problem:
        raise ExperimentError(f"{path} cannot be read: {problem}") from None
    return list(models.values())


TOLERANCE = 1e-6
"""The tolerance for scores computed with other library versions."""


def differing_scores(run: Run) -> list[str]:
    """Recompute the scores of a run and of guessing, and describe each value that differs."""
    record, predictions = run.record, run.predictions()
    clips = run.clips()
    group_of = dict(zip(clips["id"], clips["group"], strict=True))
    scores = score_models(predictions, group_of, measure=record.measure)
    tasks = [record.task(name) for name in record.tests]
    tests = score_test_sets(predictions, tasks, scores, group_of)
    pairs = (_by_model(record.scores), _by_model(scores)), (record.tests, tests)
    return [
        difference
        for written, computed in pairs
        for difference in _differences("", *map(msgspec.to_builtins, (written, computed)))
    ]


def _by_model(scores: Sequence[ModelScores]) -> dict[str, dict[str, ModelScores]]:
    models: dict[str, dict[str, ModelScores]] = {}
    for own in scores:
        models.setdefault(own.model, {})[own.test] = own
    return models


def _differences(where: str, written: Any, computed: Any) -> Iterator[str]:
    """Yield a sentence for each value that differs."""
    if isinstance(written, Mapping) and isinstance(computed, Mapping):
        for key in dict.fromkeys([*computed, *written]):
            if key in written and key in computed:
                yield from _differences(f"{where}{key}: ", written[key], computed[key])
            else:
                yield f"{where}{key}: only in {'run.json' if key in written else 'the new scores'}"
    elif isinstance(written, list) and isinstance(computed, list) and len(written) == len(computed):
        for number, (old, new) in enumerate(zip(written, computed, strict=True)):
            yield from _differences(f"{where}{number}: ", old, new)
    elif not _is_same(written, computed):
        yield f"{where}{_shown(written)} in run.json, {_shown(computed)} from predictions.csv"


def _is_same(written: Any, computed: Any) -> bool:
    if isinstance(written, float | int) and isinstance(computed, float | int):
        return bool(np.isclose(written, computed, rtol=TOLERANCE, atol=TOLERANCE))
    return bool(written == computed)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)[:60]
