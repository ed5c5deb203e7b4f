"""Concepts: how often annotators mark them, how well models detect them, what goes with errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from obygaze_features.common.figures import INK, SERIES
from obygaze_models.explain.concept_quality import ConceptQuality, concept_quality
from obygaze_models.explain.error_factors import factors_of_clips
from obygaze_models.figures import (
    Dot,
    Panel,
    Series,
    error_factors,
    inline_svg,
    level_series,
    panel_plot,
    round_up,
)
from obygaze_models.report.annotators import Annotators
from obygaze_models.report.findings import Headline
from obygaze_models.report.html import Html, html, number
from obygaze_models.report.runs import ReportRun, default_run
from obygaze_models.report.score_tables import kind_of

__all__ = ["ConceptTables", "concept_figure", "concept_tables", "error_figure"]


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


def concept_figure(head: Headline) -> tuple[Html, str] | None:
    """Each concept's share in each level, a model's AUROC, annotators' kappa; and its caption.

    None where no concept is marked. Sorted by the highest level's share less the lowest's.
    """
    run, levels = head.run, head.run.record.manifest.levels
    clips = list(run.clips.values())
    concepts = sorted({name for clip in clips for name in clip.concepts})
    by_level = {code: [clip.concepts for clip in clips if clip.level == code] for code in levels}
    marked = [code for code, marks in by_level.items() if any(marks)]
    if not concepts or not marked:
        return None
    shares = {
        name: [sum(name in marks for marks in by_level[code]) / len(by_level[code])
               for code in marked]
        for name in concepts
    }  # fmt: skip
    concepts.sort(key=lambda name: shares[name][0] - shares[name][-1])
    series = dict(zip(levels, level_series(levels), strict=True))
    captions = ["How often annotators marked each concept, by level of the clip"]
    panels = [
        Panel(
            "marked, share of a level’s clips",
            [[Dot(share) for share in shares[name]] for name in concepts],
            [series[code] for code in marked],
            limits=(0.0, round_up(max(map(max, shares.values())))),
            percent=True,
        )
    ]
    if detected := _detected(head):
        model, dots = detected
        captions.append(
            f"how well what {model} measures ranks the test clips that show it (Hard Negative and "
            "Sure) above all others but Not Sure ones, plus and minus a standard deviation of the "
            "fits (line: chance)"
        )
        panels.append(
            Panel(
                f"detected by {model} (AUROC)",
                [[dots.get(name, Dot(None))] for name in concepts],
                [Series(model, SERIES[0])],
                line=0.5,
            )
        )
    if head.annotators is not None:
        kappas = _kappas(head.annotators)
        low = min([0.0, *kappas.values()])
        captions.append("how far annotators agree on it (line: chance)")
        panels.append(
            Panel(
                "annotators agree (kappa)",
                [[Dot(kappas.get(name))] for name in concepts],
                [Series("kappa", INK)],
                limits=(0.0 if low > -0.05 else -1.0, 1.0),
                line=0.0,
            )
        )
    figure = panel_plot(
        concepts,
        panels,
        title="Concepts by level of the clip",
        description="; ".join(
            f"{name}: {', '.join(f'{share:.0%}' for share in shares[name])}" for name in concepts
        ),
    )
    return Html(inline_svg(figure)), f"{'; '.join(captions)}."


def _kappas(annotators: Annotators) -> dict[str, float]:
    """The mean kappa of each concept over each two annotators."""
    values: dict[str, list[float]] = {}
    for pair in annotators.pairs:
        for entry in pair.concepts:
            if entry.kappa is not None:
                values.setdefault(entry.concept, []).append(entry.kappa)
    return {name: sum(kappas) / len(kappas) for name, kappas in values.items()}


def _detected(head: Headline) -> tuple[str, dict[str, Dot]] | None:
    """The first bottleneck of the run: its AUROC a concept, less and plus a deviation of fits."""
    quality = concept_quality(head.run.results.explained, head.run.clips)
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


def error_figure(head: Headline) -> tuple[Html, Html] | None:
    """What goes with the best model's errors over all films, and its caption; None without any."""
    row = head.best
    if kind_of(row.run) == "concepts":
        return None
    predictions = row.run.mean_predictions(row.model, row.entry.test).predictions
    wrong = int(predictions.wrong.sum())
    if not 0 < wrong < len(predictions.ids):
        return None
    clips = [row.run.clips[clip] for clip in predictions.ids]
    factors = factors_of_clips(clips, predictions.wrong, list(row.run.record.manifest.levels))
    figure = error_factors(
        factors[:1],
        {},
        title=f"When {row.model} is wrong",
        description="Coefficients of a ridge logistic regression of wrong on concepts and levels.",
    )
    key = "errors", row.run.number, row.model
    caption = html(
        "{} is wrong in {} of {} test clips. A dot to the right: clips marked so are more often "
        "wrong, others held (log-odds; 95% of draws of films). Each film on its own: obygaze "
        "reproduce fig6.",
        row.model,
        number(wrong, *key, "wrong", form=","),
        number(len(clips), *key, "clips", form=","),
    )
    return Html(inline_svg(figure)), caption


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
