"""Compare models of one or several runs, on clips that both models were tested on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from obygaze_features.common.printer import align, fill
from obygaze_features.common.text import counted, format_signed, group_by, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.data.warnings import RunWarning, leak_warning, unique_warnings
from obygaze_models.experiments.scores import scored_clips, split_by
from obygaze_models.experiments.tables import AnyRun, Run, as_run
from obygaze_models.scoring.intervals import (
    CROSSED,
    Difference,
    Estimate,
    estimate_differences,
    holm,
    score_groups,
    too_few,
)
from obygaze_models.scoring.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGNIFICANT = 0.05


@dataclass(frozen=True, eq=False)
class Entrant:
    """A model of a run, with its predictions by test set. With several runs, `name` has the run."""

    run: Run
    place: str
    model: str
    name: str
    tables: Mapping[str, pd.DataFrame]


@dataclass(frozen=True, eq=False)
class Comparison:
    """A model compared with the reference, on the clips of a test set that both were tested on.

    Parameters
    ----------
    test, model, reference
        The test set, and the models.
    class_counts
        The number of compared clips of each class.
    scores
        A `Difference` for each metric: the model's score minus the reference's.
    warnings
        Notes on settings that differ and on clips that are left out, and warnings about leaks.
    cross_validated
        True if fits of a model are trained on clips that its other fits test.
    """

    test: str
    model: Entrant
    reference: Entrant
    class_counts: Sequence[int]
    scores: dict[str, Difference]
    warnings: Sequence[RunWarning]
    cross_validated: bool

    @property
    def clips(self) -> int:
        """The number of clips that both were scored on."""
        return sum(self.class_counts)

    @property
    def heading(self) -> str:
        """The test set and its number of clips, as the heading of a table."""
        return f"{self.test}: {counted(self.clips, 'clip')}"


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of models with a reference. `str` is a ranked table for each test set.

    `metric` is the score that ranks models. If `pooled` is True, all clips are scored together.
    """

    comparisons: list[Comparison]
    metric: str
    warnings: list[RunWarning]
    pooled: bool = False

    @property
    def noun(self) -> str:
        """The unit that clips are grouped by, such as "film"."""
        return self.comparisons[0].model.run.noun

    @property
    def by_test(self) -> dict[str, list[Comparison]]:
        """The comparisons on each test set."""
        return group_by(self.comparisons, lambda own: own.test)

    def frame(self) -> pd.DataFrame:
        """Return a row for each comparison and metric."""
        rows = []
        for own in self.comparisons:
            for key, score in own.scores.items():
                low, high = score.difference.interval or (None, None)
                rows.append(
                    {
                        "test": own.test,
                        "model": own.model.name,
                        "reference": own.reference.name,
                        "metric": key,
                        "score": score.model.value,
                        "score_reference": score.reference.value,
                        "difference": score.difference.value,
                        "low": low,
                        "high": high,
                        "p_value": score.p_value,
                        "films": score.difference.groups,
                    }
                )
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        tables = [self._ranked_table(pairs) for pairs in self.by_test.values()]
        return "\n\n".join([*tables, fill(self._legend())])

    def _ranked_table(self, pairs: Sequence[Comparison]) -> str:
        """Return the table of a test set's models and the reference, best first."""
        first = pairs[0]
        metric = METRICS[self.metric]
        if self.metric not in first.scores:
            return f"{first.test}: {metric.title} is undefined for its classes"

        name = first.reference.name
        reference = first.scores[self.metric].reference
        rows = []
        for own in pairs:
            score = own.scores[self.metric]
            value, certainty = _cells(score.difference, partial(format_signed, digits=3))
            if certainty == "-":
                groups = score.difference.groups
                lack = too_few(own.class_counts, groups, self.metric, noun=self.noun)
                certainty = lack or "-"
            cells = [own.model.name, *_cells(score.model), value, certainty]
            rows.append((score.model.value, [*cells, _format_p(score.p_value)]))
        rows.append((reference.value, [name, *_cells(reference), "-", "-", "-"]))
        sign = 1 if metric.lower_is_better else -1
        rows.sort(key=lambda row: math.inf if row[0] is None else sign * row[0])

        header = ["", metric.title, "95%", f"minus {name}", "95%", "p"]
        table = align(header, [cells for _, cells in rows])
        return f"{first.heading}\n{table}"

    def _legend(self) -> str:
        """Return an explanation of the columns, which names the test that p is from."""
        noun = self.noun
        test = f"a paired t-test over {noun}s"
        text = f"Scores are means over {noun}s, and differences are paired by {noun}."
        if self.pooled:
            test = f"a t-test over a jackknife of {noun}s"
            text = f"All clips are scored together, also clips of different {noun}s and fits."
        if any(own.cross_validated for own in self.comparisons):
            test += f" with {CROSSED}"
        return (
            f"{text} p is from {test}, adjusted by Holm's method for all comparisons. Intervals "
            "are from the same test, and not adjusted."
        )

    def figure(self) -> Figure:
        """Draw the differences and their intervals."""
        from obygaze_models.figures.dots import Dot, Series, dot_plot

        title = METRICS[self.metric].title
        rows: list[tuple[str, list[Dot]]] = []
        for pairs in self.by_test.values():
            rows.append((pairs[0].heading, []))
            for own in pairs:
                if self.metric in own.scores:
                    score = own.scores[self.metric].difference
                    dot = Dot(score.value, *(score.interval or ()))
                    rows.append((own.model.name, [dot]))
        reference = self.comparisons[0].reference.name
        return dot_plot(
            rows,
            [Series("difference")],
            title=f"Differences in {title}",
            axis=f"difference in {title}, model minus {reference}, with its 95% "
            f"interval over {self.noun}s",
            description=str(self),
            lines={"no difference": 0.0},
            signed=True,
        )


def compare(
    *runs: AnyRun,
    models: Sequence[str] = (),
    metric: str | None = None,
    pooled: bool = False,
) -> Comparisons:
    """Compare models with a reference, on the clips that both were tested on.

    The reference is the first model of the first run, or the first of `models`.

    Parameters
    ----------
    runs
        Runs or run folders. All must have the same items.
    models
        Compare only models with these names, in all runs.
    metric
        The score that ranks models; by default the main metric of the first run.
    pooled
        Score all clips together instead of film by film. Probabilities from different fits are
        then ranked together, although their scales may differ.
    """
    opened = [*{run.folder: run for run in map(as_run, runs)}.values()]
    first = opened[0]
    if len({run.header.manifest.digest for run in opened}) > 1:
        raise ExperimentError("the runs have different items. Run all on the same manifest")
    entrants = _entrants(opened, models)
    names = [entrant.model for entrant in entrants]
    reference = entrants[names.index(models[0] if models else first.main_model)]

    compared: list[Comparison] = []
    left_out: list[RunWarning] = []
    for model in entrants:
        if model is reference:
            continue
        for test in {**reference.tables, **model.tables}:
            try:
                compared.append(compare_pair(model, reference, test, pooled=pooled))
            except ExperimentError as reason:
                left_out.append(RunWarning("left-out", test, str(reason)))
    if not compared:
        nothing = f"no model to compare with {reference.name}. Add a run or a model"
        raise ExperimentError(left_out[0].text if left_out else nothing)
    metric = metric or first.main_metric
    if metric not in compared[0].scores:
        raise ExperimentError(unknown_name("metric", metric, compared[0].scores))
    _adjust(compared)

    warnings = [note for run in opened for note in run.warnings if note.voids_scores]
    for own in compared:
        warnings += own.warnings
    return Comparisons(compared, metric, unique_warnings([*warnings, *left_out]), pooled)


def _entrants(runs: Sequence[Run], models: Sequence[str]) -> list[Entrant]:
    """Return the named models, or all. With several runs, names have the run's folder or path."""
    places = [run.folder.name for run in runs]
    if len({*places}) < len(places):
        places = [run.folder.as_posix() for run in runs]
    entrants = []
    for run, place in zip(runs, places, strict=True):
        for model, table in split_by(run.predictions, "model").items():
            name = f"{place}: {model}" if len(runs) > 1 else model
            if not models or model in models:
                entrants.append(Entrant(run, place, model, name, split_by(table, "test")))
    for model in models:
        if model not in [entrant.model for entrant in entrants]:
            raise ExperimentError(unknown_name("model", model, runs[0].models))
    return entrants


def compare_pair(
    model: Entrant, reference: Entrant, test: str, *, pooled: bool = False
) -> Comparison:
    """Compare a model with a reference on a test set.

    Raise `ExperimentError` if they have no clips with the same classes and labels in common.
    """
    names = f"{model.name} and {reference.name}"
    sides = [model, reference]
    if any(test not in side.tables for side in sides):
        raise ExperimentError(f"{test} is not a test set of both {names}")
    classes = [side.run.task(test).classes for side in sides]
    if classes[0] != classes[1] or model.run.by != reference.run.by:
        raise ExperimentError(f"{names} cannot be compared on {test}: other classes or groups")
    tables = [side.tables[test] for side in sides]
    labels = [table.groupby("id")["label"].first() for table in tables]
    same = labels[0].eq(labels[1])  # False for clips of only one table
    ids = same.index[same]
    if not len(ids):
        raise ExperimentError(f"{names} have no clips of {test} with the same label in common")

    scored = []
    warnings = _differences(*sides)
    for side, table in zip(sides, tables, strict=True):
        run = side.run
        own = table[table["id"].isin(ids)]
        clips = scored_clips(own, run.group_of, run.header.measure)
        scored.append(score_groups(clips, pooled=pooled))
        leaked = int(run.clips.loc[run.clips["leaked"], "id"].isin(ids).sum())
        if leaked:
            used = f"{leaked} of these {len(ids)} clips"
            warnings.append(leak_warning(test, used, side.place))
    rest = len(same) - len(ids)
    if rest:
        text = f"left out: {counted(rest, 'clip')} of {test} that are not in both, or differ"
        warnings.append(RunWarning("left-out", test, text))
    return Comparison(
        test=test,
        model=model,
        reference=reference,
        class_counts=scored[0].class_counts,
        scores=estimate_differences(*scored),
        warnings=warnings,
        cross_validated=any(own.cross_validated for own in scored),
    )


def _differences(model: Entrant, reference: Entrant) -> list[RunWarning]:
    """Return a note for each setting of the data or protocol that differs between two runs."""
    settings = []
    for side in (model, reference):
        header = side.run.header
        settings.append(
            {
                "labels": header.manifest.labels,
                "protocol": header.protocol,
                "options": header.experiment.protocol_options,
                "split": header.split,
                "balance": header.balance,
                "learned": header.learned,
            }
        )
    notes = []
    for key, value in settings[0].items():
        other = settings[1][key]
        if value != other:
            here = f"{value or 'none'} in {model.place}"
            there = f"{other or 'none'} in {reference.place}"
            notes.append(RunWarning("different", "", f"different {key}: {here}, {there}"))
    return notes


def _adjust(comparisons: Sequence[Comparison]) -> None:
    """Adjust the p-values of each metric for the number of comparisons, by Holm's method."""
    for key in {key for own in comparisons for key in own.scores}:
        scores = [own.scores for own in comparisons if key in own.scores]
        adjusted = holm([own[key].p_value for own in scores])
        for own, p_value in zip(scores, adjusted, strict=True):
            own[key] = replace(own[key], p_value=p_value)


def _cells(estimate: Estimate, show: Callable[[float], str] = "{:.3f}".format) -> tuple[str, str]:
    """Return an estimate's value and interval as text."""
    value = "-" if estimate.value is None else show(estimate.value)
    return value, " to ".join(map(show, estimate.interval or ())) or "-"


def _format_p(value: float | None) -> str:
    if value is None:
        return "-"
    return "< .001" if value < 0.0005 else f"{value:.3f}"
