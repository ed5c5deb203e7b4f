"""Concepts: how often annotators mark them, how well models detect them, what goes with errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from obygaze_features.common.figures import INK, SERIES, inline_svg
from obygaze_models.explain.concept_quality import ConceptQuality, concept_quality
from obygaze_models.explain.error_factors import factors_of_clips
from obygaze_models.figures.dots import Panel, level_series, panel_plot, round_up
from obygaze_models.figures.sheet import Dot, Series
from obygaze_models.report.annotators import Annotators
from obygaze_models.report.findings import Headline
from obygaze_models.report.html import Html, html, number
from obygaze_models.report.runs import ReportRun, default_run


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


def concept_figures(head: Headline) -> list[tuple[Html, Html]]:
    """Figures with the same rows, and captions: marked, detected, agreed on, and wrong.

    Concepts are sorted by the highest level's share less the lowest's; levels follow them. Empty
    where no concept is marked.
    """
    run, levels = head.run, head.run.record.manifest.levels
    clips = list(run.clips.values())
    concepts = sorted({name for clip in clips for name in clip.concepts})
    by_level = {code: [clip.concepts for clip in clips if clip.level == code] for code in levels}
    marked = [code for code, marks in by_level.items() if any(marks)]
    if not concepts or not marked:
        return []
    shares = {
        name: [sum(name in marks for marks in by_level[code]) / len(by_level[code])
               for code in marked]
        for name in concepts
    }  # fmt: skip
    concepts.sort(key=lambda name: shares[name][0] - shares[name][-1])
    series = dict(zip(levels, level_series(levels), strict=True))
    panels = [
        (
            "Marked by annotators",
            Panel(
                [[Dot(share) for share in shares[name]] for name in concepts],
                [series[code] for code in marked],
                "share of the clips of a level",
                limits=(0.0, round_up(max(map(max, shares.values())))),
                percent=True,
            ),
            html(
                "How often annotators marked each concept, by level of the clip{}.",
                "" if run.counts_all else ", in the clips used here",
            ),
        )
    ]
    if detected := _detected(head):
        model, dots = detected
        panels.append(
            (
                "Detected by a model",
                Panel(
                    [[dots.get(name, Dot(None))] for name in concepts],
                    [Series("AUROC", SERIES[0])],
                    f"AUROC of what {model} measures",
                    line=0.5,
                ),
                html(
                    "How well what {} measures ranks the test clips that show the concept (Hard "
                    "Negative and Sure) above all others but Not Sure ones, plus and minus a "
                    "standard deviation of the fits. The line is chance.",
                    model,
                ),
            )
        )
    if head.annotators is not None:
        kappas = _kappas(head.annotators)
        low = min([0.0, *kappas.values()])
        panels.append(
            (
                "Agreed on by annotators",
                Panel(
                    [[Dot(kappas.get(name))] for name in concepts],
                    [Series("kappa", INK)],
                    "Cohen’s kappa",
                    limits=(0.0 if low > -0.05 else -1.0, 1.0),
                    line=0.0,
                ),
                html(
                    "How far annotators agree on the concept. 0 is chance; no dot: only one of "
                    "them marked it."
                ),
            )
        )
    figures = [_figure([concepts], panel, title, text) for title, panel, text in panels]
    errors = _errors(head, concepts)
    return [*figures, errors] if errors else figures


def _figure(
    groups: Sequence[Sequence[str]], panel: Panel, title: str, caption: Html
) -> tuple[Html, Html]:
    figure = panel_plot(groups, panel, title=title, description=f"{panel.axis}, a row a concept")
    return Html(inline_svg(figure)), caption


def _errors(head: Headline, concepts: Sequence[str]) -> tuple[Html, Html] | None:
    """What goes with the best model's errors over all films; None without any."""
    row = head.best
    if row.run.kind == "concepts":
        return None
    predictions = row.run.mean_predictions(row.model, row.entry.test).predictions
    wrong = int(predictions.wrong.sum())
    if not 0 < wrong < len(predictions.ids):
        return None
    clips = [row.run.clips[clip] for clip in predictions.ids]
    levels = row.run.record.manifest.levels
    (all_films,) = factors_of_clips(clips, predictions.wrong, list(levels), by_film=False)
    factors = {factor.name: factor for factor in all_films.factors}
    tested = [code for code in levels if code in factors]
    # An interval on one side of 0 fills the dot.
    dots = {
        name: Dot(factor.coefficient, factor.low, factor.high) for name, factor in factors.items()
    }
    has_intervals = any(dot.low is not None for dot in dots.values())  # not of a single film
    rows = []
    for name in [*concepts, *tested]:
        dot = dots.get(name, Dot(None))
        is_clear = dot.low is not None and dot.high is not None and dot.low * dot.high > 0
        pair = [Dot(None), dot] if is_clear else [dot, Dot(None)]
        rows.append(pair if has_intervals else [dot])
    ends = [abs(end) for dot in dots.values() for end in (dot.value, dot.low, dot.high) if end]
    reach = max(ends, default=1.0)
    panel = Panel(
        rows,
        [
            Series("interval includes 0", SERIES[0], hatched=True),
            Series("interval excludes 0", SERIES[0]),
        ]
        if has_intervals
        else [Series("log-odds", SERIES[0])],
        "more often right ← log-odds → more often wrong",
        limits=(-math.ceil(reach), math.ceil(reach)),
        line=0.0,
    )
    caption = html(
        "{} is wrong in {} of {} test clips. A dot to the right: clips marked so are more often "
        "wrong, others held{}. Each film on its own: obygaze reproduce fig6.",
        row.model,
        number(wrong, form=","),
        number(len(clips), form=","),
        " (95% of draws of films)" if has_intervals else "",
    )
    names = [f"{levels[code]} clips" for code in tested]
    return _figure([concepts, names], panel, f"When {row.model} is wrong", caption)


def _kappas(annotators: Annotators) -> dict[str, float]:
    """The mean kappa of each concept over each two annotators who both marked it."""
    values: dict[str, list[float]] = {}
    for pair in annotators.pairs:
        for entry in pair.concepts:
            if entry.kappa is not None and not pair.only_by(entry):
                values.setdefault(entry.concept, []).append(entry.kappa)
    return {name: sum(kappas) / len(kappas) for name, kappas in values.items()}


def _detected(head: Headline) -> tuple[str, dict[str, Dot]] | None:
    """The first bottleneck of the run: its AUROC a concept, less and plus a deviation of fits."""
    quality = concept_quality(head.run.run.explanations(), head.run.clips)
    if not quality:
        return None
    first = quality[0]
    dots = {}
    for entry in quality:
        if (entry.model, entry.task) == (first.model, first.task):
            std = entry.auroc_std or 0.0
            low, high = (
                (None, None)
                if entry.auroc is None or entry.runs < 2
                else (max(0.0, entry.auroc - std), min(1.0, entry.auroc + std))
            )
            dots[entry.concept] = Dot(entry.auroc, low, high)
    return _model(head.run, first), dots


def concept_tables(runs: Sequence[ReportRun]) -> ConceptTables | None:
    """None if no run has a model with concepts."""
    by_run = {
        run.number: quality
        for run in runs
        if (quality := concept_quality(run.run.explanations(), run.clips))
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
        cells = [
            html("{}", name),
            number(first.positives, form=","),
            number(first.clips - first.positives, form=","),
        ]
        for model in models:
            entry = by_model.get(model)
            cells += [_cell(entry, "auroc"), _cell(entry, "average_precision")]
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
        rows.append((title, *(_cell(by_concept.get(name), "auroc") for name in names)))
    return rows


def _cell(entry: ConceptQuality | None, metric: str) -> Html:
    """A mean and its deviation over the fits."""
    mean = None if entry is None else getattr(entry, metric)
    if entry is None or mean is None:
        return number(None)
    std = number(getattr(entry, f"{metric}_std"))
    return html("{} <small>({})</small>", number(mean), std)


def _model(run: ReportRun, entry: ConceptQuality) -> str:
    """The model; with its task, where each concept has a model of its own."""
    tasks = {fit.task for fit in run.record.fits}
    return entry.model if len(tasks) == 1 else f"{entry.model}, {entry.task}"
