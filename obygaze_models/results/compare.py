"""Compare pairs of models of one or more runs on clips that both were tested on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import pandas as pd

from obygaze_features.common.formatting import counted
from obygaze_features.common.grouping import group_by
from obygaze_features.common.names import unknown_name
from obygaze_features.common.printer import align_rows, fill
from obygaze_features.errors import ExperimentError
from obygaze_models.data.run_warning import RunWarning, leak_warning, unique_warnings
from obygaze_models.results.run import AnyRun, Run, load_run
from obygaze_models.results.scores import records, scored_clips, split_by
from obygaze_models.scoring.intervals import (
    CROSSED,
    MIN_CLIPS,
    MIN_GROUPS,
    Difference,
    estimate_differences,
    holm,
    lead_first,
    score_groups,
)
from obygaze_models.scoring.metrics import METRICS

SIGNIFICANT = 0.05
SETTINGS = (
    "manifest.labels",
    "grouped_by",
    "protocol",
    "options",
    "split",
    "balance",
    "learned",
)
"""The parts of the headers that should be the same in two runs that are compared."""


class Entrant(NamedTuple):
    """A model of a run, with its predictions by test set. `name` is its name in results."""

    run: Run
    place: str
    model: str
    name: str
    tables: Mapping[str, pd.DataFrame]


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Comparisons of models with a reference. `str` gives a table ranked by `metric`.

    Parameters
    ----------
    table
        A row for each test set, model, metric and question; with `by`, also for each ``value``.
    metric
        The score that ranks models.
    legend
        What the columns are, and which test p is from.
    warnings
        What limits the comparison.
    """

    table: pd.DataFrame
    metric: str
    legend: str
    warnings: Sequence[RunWarning]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of `metric`, best first within each test set, value and question."""
        rows = self.table[self.table["metric"] == self.metric]
        rows = rows.sort_values("score", ascending=METRICS[self.metric].lower_is_better)
        groups = [name for name in ("test", "value") if name in rows]
        rows = rows.assign(rest=rows["over"] != self.table["over"].iloc[0])
        rows = rows.sort_values([*groups, "rest"], kind="stable")
        return records(rows.drop(columns="rest"))

    def __str__(self) -> str:
        names = {
            "score": METRICS[self.metric].title,
            "score_reference": "reference",
            "p_value": "p",
        }
        rows = pd.DataFrame(self.rows).drop(columns=["metric", "reference"]).rename(columns=names)
        texts = [*map(fill, map(str, self.warnings)), align_rows(records(rows)), fill(self.legend)]
        return "\n\n".join(texts)


def compare(
    *runs: AnyRun | Sequence[AnyRun],
    models: Sequence[str] = (),
    metric: str | None = None,
    by: str | None = None,
) -> Comparisons:
    """Compare each model with a reference, on the clips that both were tested on.

    The reference is the first model of the first run, or the first of `models`.

    Parameters
    ----------
    runs
        Runs or run folders, or a list of them. All must have the same items.
    models
        Compare only models with these names, in all runs.
    metric
        The score that ranks models; by default the main metric of the first run.
    by
        A column of `Run.clips`, such as "film": compare separately on the clips of each value.
    """
    opened = _open_runs(runs)
    first = opened[0]
    if len({run.header.manifest.digest for run in opened}) > 1:
        raise ExperimentError("the runs have different items. Run all on the same clips")
    entrants = _entrants(opened, models)
    names = [entrant.model for entrant in entrants]
    for name in models:
        if name not in names:
            raise ExperimentError(unknown_name("model", name, first.models))
    reference = entrants.pop(names.index(models[0] if models else first.main_model))

    rows: list[dict[str, Any]] = []
    warnings = [RunWarning("mixed", "", run.limit) for run in opened if run.is_mixed]
    warnings += [note for run in opened for note in run.warnings if note.is_about_origin]
    for model in entrants:
        for test in {**reference.tables, **model.tables}:
            try:
                ids, notes = shared_clips(model, reference, test)
            except ExperimentError as reason:
                warnings.append(RunWarning("left-out", test, str(reason)))
                continue
            rows += _rows(model, reference, test, ids, by)
            warnings += notes
    if not rows:
        reasons = [f"no model to compare with {reference.name}: name another run or more models"]
        reasons += [note.text for note in warnings if note.code == "left-out"]
        raise ExperimentError("; ".join(reasons))

    table = pd.DataFrame(rows)
    table["p_value"] = table.groupby("metric")["p_value"].transform(holm)
    metric = metric or first.main_metric
    known = table["metric"].unique()
    if metric not in known:
        raise ExperimentError(unknown_name("metric", metric, known))
    if by is None:
        table = table.drop(columns="value")
    return Comparisons(
        table=table,
        metric=metric,
        legend=_legend([reference, *entrants]),
        warnings=unique_warnings(warnings),
    )


def _open_runs(runs: Sequence[Any]) -> list[Run]:
    """Open runs, and those of lists."""
    opened = []
    for run in runs:
        if isinstance(run, list | tuple):
            opened += _open_runs(run)
        else:
            opened.append(run if isinstance(run, Run) else load_run(run))
    if not opened:
        raise ExperimentError("there are no runs. Pass one or more")
    return opened


def _entrants(runs: Sequence[Run], models: Sequence[str]) -> list[Entrant]:
    """Return the named models, or all. With several runs, names start with the run's folder."""
    run_names = [run.place for run in runs]
    if len({*run_names}) < len(run_names):
        run_names = [str(run.folder or f"{run.name} {n}") for n, run in enumerate(runs, 1)]
    entrants = []
    for run, place in zip(runs, run_names, strict=True):
        for model, table in split_by(run.predictions, "model").items():
            name = f"{place}: {model}" if len(runs) > 1 else model
            if not models or model in models:
                entrants.append(Entrant(run, place, model, name, split_by(table, "test")))
    return entrants


def shared_clips(
    model: Entrant,
    reference: Entrant,
    test: str,
) -> tuple[list[str], list[RunWarning]]:
    """Return the clips of equal labels and groups that both models were tested on, and warnings.

    The warnings are about different settings, leaks, and clips that are left out. Raise
    `ExperimentError` if no clips are left, if only one model was tested on this test set, or if the
    classes are different.
    """
    names = f"{model.name} and {reference.name}"
    sides = (model, reference)
    classes = [side.run.task(test).classes for side in sides if test in side.tables]
    if len(classes) < 2 or classes[0] != classes[1]:
        raise ExperimentError(f"{names} have different test sets or classes ({test})")
    labels = [side.tables[test].groupby("id")["label"].first() for side in sides]
    same = labels[0].eq(labels[1])  # False for clips of only one table
    ids = []
    for clip in same.index[same]:
        if model.run.group_of[clip] == reference.run.group_of[clip]:
            ids.append(clip)
    if not ids:
        raise ExperimentError(f"{names} share no clips of {test} with equal labels and groups")

    warnings = []
    for path in SETTINGS:
        value, other = (attrgetter(path)(side.run.header) for side in sides)
        if value != other:
            text = (
                f"different {path.rpartition('.')[2]}: {value or 'none'} in {model.place}, "
                f"{other or 'none'} in {reference.place}"
            )
            warnings.append(RunWarning("different", "", text))
    for side in sides:
        clips = side.run.clips
        leaked = int(clips.loc[clips["leaked"], "id"].isin(ids).sum())
        if leaked:
            used = f"{leaked} of the {len(ids)} shared clips"
            warnings.append(leak_warning(test, used, side.place))
    rest = len(same) - len(ids)
    if rest:
        text = (
            f"left out {counted(rest, 'clip')} of {test}: in only one test set, or with different "
            "labels or groups"
        )
        warnings.append(RunWarning("left-out", test, text))
    return ids, warnings


def paired_scores(
    model: Entrant,
    reference: Entrant,
    test: str,
    ids: Sequence[str],
) -> dict[str, dict[str, Difference]]:
    """Return the scores of two models and their difference on some clips, by question and score."""
    scored = []
    for side in (model, reference):
        table = side.tables[test]
        shared = table[table["id"].isin(ids)]
        run = side.run
        clips = scored_clips(shared, run.group_of, run.header.measure, is_mixed=run.is_mixed)
        scored.append(score_groups(clips))
    # Both means are over the same films: those in which both models have the score.
    defined = scored[0].values.notna() & scored[1].values.notna()
    first, second = (replace(each, values=each.values.where(defined)) for each in scored)
    return estimate_differences(first, second)


def _rows(
    model: Entrant,
    reference: Entrant,
    test: str,
    ids: list[str],
    by: str | None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each metric and question, on all clips or on those of each value."""
    ids_of = {"": ids}
    if by:
        ids_of = group_by(ids, reference.run.column(by).__getitem__)
    for value, same_value in ids_of.items():
        pairs = paired_scores(model, reference, test, same_value)
        lead = scored_clips(model.tables[test], model.run.group_of).lead
        for over in lead_first(lead):
            for key, score in pairs[over].items():
                low, high = score.difference.interval or (None, None)
                yield {
                    "test": test,
                    "value": value,
                    "model": model.name,
                    "reference": reference.name,
                    "metric": key,
                    "over": over,
                    "score": score.model.value,
                    "score_reference": score.reference.value,
                    "difference": score.difference.value,
                    "low": low,
                    "high": high,
                    "p_value": score.difference.p_value if over == lead else None,
                    "clips": score.difference.clips,
                    "films": score.difference.groups,
                }


def _legend(entrants: Sequence[Entrant]) -> str:
    """Explain the columns, and name the test that p is from."""
    noun = entrants[0].run.noun
    text = (
        f"Within: the mean over {noun}s. Across: all clips together; ratings are only compared if "
        f"the same fit made them. The reference is {entrants[0].name}."
    )
    if any(entrant.run.is_mixed for entrant in entrants):
        return text
    return (
        f"{text} p is from a paired t-test over {noun}s, or a jackknife that leaves out one {noun} "
        f"at a time, with {CROSSED}; it is only of the question that the protocol asks, and "
        "adjusted by Holm's method for all comparisons. Intervals are from the same tests, and not "
        f"adjusted. They need {MIN_GROUPS} {noun}s (across: that weigh like {MIN_GROUPS}), and "
        f"{MIN_CLIPS} clips of each class (for numbers, in all)."
    )
