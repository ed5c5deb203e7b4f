"""Whether the models' concepts are the annotators': a table, and a line for each other run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from obygaze_models.explain.concept_quality import ConceptQuality, concept_quality
from obygaze_models.report.html import Html, html, number
from obygaze_models.report.runs import ReportRun, default_run

__all__ = ["ConceptTables", "concept_tables"]


@dataclass(frozen=True)
class ConceptTables:
    """The table of a run, and the AUROC of the others.

    `rows` have a concept, the clips with and without it, then AUROC and AP of each of `models`.
    `others` have a run and model, then a cell for each concept of `names`.
    """

    run: str
    models: tuple[str, ...]
    rows: tuple[tuple[Html, ...], ...]
    names: tuple[str, ...]
    others: tuple[tuple[Html, ...], ...]


def concept_tables(runs: Sequence[ReportRun]) -> ConceptTables | None:
    """None if no run has a model with concepts."""
    by_run = {
        run.number: quality
        for run in runs
        if (quality := concept_quality(run.results.explained, run.clips))
    }
    if not by_run:
        return None
    main = default_run(runs)
    if main.number not in by_run:
        main = next(run for run in runs if run.number in by_run)
    names = tuple(dict.fromkeys(entry.concept for rows in by_run.values() for entry in rows))
    others = [
        row
        for run in runs
        if run.number in by_run and run is not main
        for row in _other_rows(run, by_run[run.number], names)
    ]
    models = dict.fromkeys(_model(main, entry) for entry in by_run[main.number])
    rows = _main_rows(main, by_run[main.number])
    return ConceptTables(main.name, tuple(models), tuple(rows), names, tuple(others))


def _main_rows(run: ReportRun, quality: Sequence[ConceptQuality]) -> list[tuple[Html, ...]]:
    models = list(dict.fromkeys((entry.model, entry.task) for entry in quality))
    rows = []
    for name in dict.fromkeys(entry.concept for entry in quality):
        by_model = {(e.model, e.task): e for e in quality if e.concept == name}
        first = next(iter(by_model.values()))
        key = _key(run, first)
        cells = [
            html("{}", name),
            number(first.positives, *key, "positives", form=","),
            number(first.clips - first.positives, *key, "negatives", form=","),
        ]
        for model in models:
            entry = by_model.get(model)
            cells += [_cell(run, entry, "auroc"), _cell(run, entry, "average_precision")]
        rows.append(tuple(cells))
    return rows


def _other_rows(
    run: ReportRun, quality: Sequence[ConceptQuality], names: Sequence[str]
) -> list[tuple[Html, ...]]:
    rows = []
    for model, task in dict.fromkeys((entry.model, entry.task) for entry in quality):
        by_concept = {e.concept: e for e in quality if (e.model, e.task) == (model, task)}
        first = next(iter(by_concept.values()))
        title = html("{}<small>{}, {}</small>", run.name, _model(run, first), run.feature)
        rows.append((title, *(_cell(run, by_concept.get(name), "auroc") for name in names)))
    return rows


def _cell(run: ReportRun, entry: ConceptQuality | None, metric: str) -> Html:
    """A mean and its deviation over the fits."""
    mean = None if entry is None else getattr(entry, metric)
    if entry is None or mean is None:
        return number(None)
    key = _key(run, entry)
    std = number(getattr(entry, f"{metric}_std"), *key, f"{metric}_std")
    return html("{} <small>({})</small>", number(mean, *key, metric), std)


def _model(run: ReportRun, entry: ConceptQuality) -> str:
    """The model; with its task, where each concept has a model of its own."""
    tasks = {fit.task for fit in run.record.fits}
    return entry.model if len(tasks) == 1 else f"{entry.model}, {entry.task}"


def _key(run: ReportRun, entry: ConceptQuality) -> tuple[object, ...]:
    return "concept", run.number, entry.model, entry.task, entry.concept
