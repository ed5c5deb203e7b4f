"""Whether the models' concepts are the annotators': a table, and one line for each other run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from obygaze_models.explain.concept_quality import ConceptQuality, concept_quality
from obygaze_models.report.explorer import default_run
from obygaze_models.report.numbers import Html, html, number
from obygaze_models.report.shown import Shown

__all__ = ["ConceptTables", "concept_tables"]


@dataclass(frozen=True)
class ConceptTables:
    """One run at length: rows of concept, with, without, then AUROC and AP a model; others' AUROC.

    `others` has rows of run and model, then a cell a concept of `names`.
    """

    run: str
    models: tuple[str, ...]
    rows: tuple[tuple[Html, ...], ...]
    names: tuple[str, ...]
    others: tuple[tuple[Html, ...], ...]


def concept_tables(runs: Sequence[Shown]) -> ConceptTables | None:
    """None where no run has a model with concepts."""
    found = {
        run.number: quality
        for run in runs
        if (quality := concept_quality(run.results.explained, run.clips))
    }
    if not found:
        return None
    main = default_run(runs)
    if main.number not in found:
        main = next(run for run in runs if run.number in found)
    others = [run for run in runs if run.number in found and run is not main]
    names = tuple(dict.fromkeys(one.concept for of in found.values() for one in of))
    return ConceptTables(
        main.name,
        tuple(dict.fromkeys(_model(main, one) for one in found[main.number])),
        tuple(_rows(main, found[main.number])),
        names,
        tuple(row for run in others for row in _lines(run, found[run.number], names)),
    )


def _rows(run: Shown, quality: Sequence[ConceptQuality]) -> list[tuple[Html, ...]]:
    models = list(dict.fromkeys((one.model, one.task) for one in quality))
    rows = []
    for name in dict.fromkeys(one.concept for one in quality):
        by_model = {(one.model, one.task): one for one in quality if one.concept == name}
        first = next(iter(by_model.values()))
        cells = [
            html("{}", name),
            number(first.positives, *_key(run, first), "positives", form=","),
            number(first.clips - first.positives, *_key(run, first), "negatives", form=","),
        ]
        for model in models:
            one = by_model.get(model)
            cells += [_auroc(run, one), _precision(run, one)]
        rows.append(tuple(cells))
    return rows


def _lines(
    run: Shown, quality: Sequence[ConceptQuality], names: Sequence[str]
) -> list[tuple[Html, ...]]:
    lines = []
    for model, task in dict.fromkeys((one.model, one.task) for one in quality):
        of = {one.concept: one for one in quality if (one.model, one.task) == (model, task)}
        title = html(
            "{}<small>{}, {}</small>", run.name, _model(run, next(iter(of.values()))), run.feature
        )
        lines.append((title, *(_auroc(run, of.get(name)) for name in names)))
    return lines


def _auroc(run: Shown, one: ConceptQuality | None) -> Html:
    if one is None or one.auroc is None:
        return number(None)
    return html(
        "{} <small>({})</small>",
        number(one.auroc, *_key(run, one), "auroc"),
        number(one.auroc_std, *_key(run, one), "auroc_std"),
    )


def _precision(run: Shown, one: ConceptQuality | None) -> Html:
    if one is None or one.average_precision is None:
        return number(None)
    return html(
        "{} <small>({})</small>",
        number(one.average_precision, *_key(run, one), "average_precision"),
        number(one.average_precision_std, *_key(run, one), "average_precision_std"),
    )


def _model(run: Shown, one: ConceptQuality) -> str:
    """The model; with its task, where each concept has one of its own."""
    tasks = {draw.task for draw in run.record.fits}
    return one.model if len(tasks) == 1 else f"{one.model}, {one.task}"


def _key(run: Shown, one: ConceptQuality) -> tuple[object, ...]:
    return "concept", run.number, one.model, one.task, one.concept
