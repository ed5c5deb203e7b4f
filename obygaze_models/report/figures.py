"""The page's figures: the annotations, the scores, a tree, and what goes with errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.trees import TreeArrays, as_tree
from obygaze_models.experiments.run_folder import saved_models
from obygaze_models.explain.error_factors import factors_of_clips
from obygaze_models.figures import (
    Bar,
    Line,
    Point,
    Share,
    dot_plot,
    error_factors,
    grouped_bars,
    inline_svg,
    level_series,
    numbered_series,
    stacked_shares,
    tree_outline,
)
from obygaze_models.metrics import METRICS
from obygaze_models.persistence import load_model
from obygaze_models.published import NETWORKS, estimator_of
from obygaze_models.report.html import Html, count, html
from obygaze_models.report.runs import ModelResults, ReportRun, default_model, default_run
from obygaze_models.report.score_tables import Cell, Column, ScoreTable

__all__ = [
    "PageFigure",
    "annotation_figures",
    "concept_figure",
    "error_figure",
    "score_figures",
    "tree_figure",
]

MAX_ROWS = 30
"""A dot plot of more rows is folded away until somebody opens it."""
MIN_CLIPS_A_FILM = 40
"""With fewer test clips a film, factors of errors are drawn for all films together only."""
_YEAR = re.compile(r" \(\d{4}\)$")


@dataclass(frozen=True)
class PageFigure:
    """A figure and its caption; a `folded` one has a title to open it by."""

    svg: Html
    caption: Html
    folded: str = ""


def annotation_figures(runs: Sequence[ReportRun]) -> list[PageFigure]:
    """The annotators' levels film by film, and the concepts they marked; by label scheme."""
    schemes: dict[tuple[str, ...], list[ReportRun]] = {}
    for run in runs:
        schemes.setdefault(tuple(run.record.manifest.levels), []).append(run)
    return [
        figure
        for same_scheme in schemes.values()
        for figure in _annotations(same_scheme, name_labels=len(schemes) > 1)
    ]


def _annotations(runs: Sequence[ReportRun], *, name_labels: bool) -> list[PageFigure]:
    run = max(runs, key=lambda run: len(run.clips))
    labels, names = run.record.manifest.labels, run.record.manifest.levels
    label_sets = dict.fromkeys(other.record.manifest.labels for other in runs)
    clips = list(run.clips.values())
    codes = [code for code in names if any(clip.level == code for clip in clips)]
    levels = level_series({code: names[code] for code in codes})
    films = [film for film in dict.fromkeys(clip.film for clip in clips) if film]
    rows = []
    for film in [None, *films]:
        chosen = [clip for clip in clips if film in (None, clip.film)]
        everything = "All films" if films else "All clips"
        rows.append(
            Share(
                everything if film is None else chosen[0].title,
                [sum(clip.level == code for clip in chosen) / len(chosen) for code in codes],
                len(chosen),
                overall=film is None,
            )
        )
    shares = [
        f"{level.label} {share:.0%}" for level, share in zip(levels, rows[0].parts, strict=True)
    ]
    figure = stacked_shares(
        rows,
        levels,
        title="Levels that the annotators gave" + (f": {labels}" if name_labels else ""),
        axis="share of a film’s clips" if films else "share of the clips",
        description=f"Of {len(clips)} clips in all: {', '.join(shares)}",
    )
    caption = html(
        "Levels of the {} annotated clips of label set {}{}.",
        count(len(clips)),
        labels,
        f", the largest on this page of {', '.join(label_sets)}" if len(label_sets) > 1 else "",
    )
    figures = [PageFigure(Html(inline_svg(figure)), caption)]
    concepts = sorted({name for clip in clips for name in clip.concepts})
    by_level = {code: [clip.concepts for clip in clips if clip.level == code] for code in codes}
    marked = [code for code in codes if any(by_level[code])]
    if concepts and marked:
        figure = grouped_bars(
            {
                name: [
                    Bar(sum(name in marks for marks in by_level[code]) / len(by_level[code]))
                    for code in marked
                ]
                for name in concepts
            },
            [levels[codes.index(code)] for code in marked],
            title="Concepts that the annotators marked",
            axis="share of a level’s clips that show the concept",
            description=f"{len(concepts)} concepts by level.",
            percent=True,
        )
        caption = html("How often each concept was marked, by level of the clip.")
        figures.append(PageFigure(Html(inline_svg(figure)), caption))
    return figures


def score_figures(table: ScoreTable) -> list[PageFigure]:
    """The scores of a table as points with intervals, beside chance and the paper; by average."""
    if table.kind == "concepts":
        return []
    return [_scores(table, metric, title) for metric, title in table.averages.items()]


def _scores(table: ScoreTable, metric: str, title: str) -> PageFigure:
    one_feature = len({row.feature for row in table.rows}) == 1
    points, lines = [], []
    for column in table.columns:
        name = column.test if column.train == column.test else f"{column.train} → {column.test}"
        for row in table.rows:
            if (cell := row.cells.get(column)) is None:
                continue
            low, high = cell.scores["interval"].get(metric) or (None, None)
            paper = cell.published.get(metric)
            points.append(
                Point(
                    row.model if one_feature else f"{row.model}, {row.feature}",
                    cell.scores["mean"][metric],
                    low,
                    high,
                    paper.mean if paper else None,
                    name,
                )
            )
        for baseline in ("random", "all positive"):
            cell = _first_row(table, baseline).get(column)
            if cell is not None and cell.scores["mean"].get(metric) is not None:
                lines.append(Line(cell.scores["mean"][metric], baseline, name))
    figure = dot_plot(
        points,
        title=f"{title}, {table.heading[0].lower()}{table.heading[1:]}",
        axis=title,
        description=f"{len(points)} scores of {title} with their intervals.",
        lines=lines,
        limits=(0.0, 1.0),
        interval="95% interval over draws of films",
    )
    transfer = any(column.train != column.test for column in table.columns)
    caption = html(
        "{} of each model{}.{}{}",
        title,
        "; train → test" if transfer else "",
        " Dashed: what guessing scores on the same clips." if lines else "",
        " Hollow diamonds: the paper, where it prints this average."
        if any(point.reference is not None for point in points)
        else "",
    )
    folded = f"{title} of all models as a figure" if len(points) > MAX_ROWS else ""
    return PageFigure(Html(inline_svg(figure)), caption, folded)


def _first_row(table: ScoreTable, baseline: str) -> dict[Column, Cell]:
    rows = [row for row in table.guesses if row.model == baseline]
    return dict(rows[0].cells) if rows else {}


def concept_figure(table: ScoreTable) -> PageFigure | None:
    """How well each concept is detected on its own."""
    if table.kind != "concepts":
        return None
    groups = {}
    for column in table.columns:
        bars = []
        for row in table.rows:
            cell = row.cells.get(column)
            low, high = (cell.scores["interval"].get("f1") if cell else None) or (None, None)
            bars.append(Bar(cell.scores["mean"]["f1"] if cell else None, low, high))
        groups[column.test] = bars
    name = METRICS["f1"].name
    figure = grouped_bars(
        groups,
        numbered_series([f"{row.model}, {row.feature}" for row in table.rows]),
        title="Each concept detected on its own",
        axis=name,
        description=f"{name} of {len(groups)} concepts.",
        limits=(0.0, 1.0),
    )
    intervals = " with 95% intervals over draws of films" if table.intervals else ""
    return PageFigure(Html(inline_svg(figure)), html("Positive-class F1{}.", intervals))


def tree_figure(runs: Sequence[ReportRun]) -> PageFigure | None:
    """The first levels of the first tree of the explorer's first run, or of another run."""
    main = default_run(runs)
    for run in [main, *(run for run in runs if run is not main)]:
        for entry in run.results.explained:
            if entry.kind != "path":
                continue
            saved = _saved_tree(run, entry.model, entry.task, entry.fit)
            if saved is None:
                continue
            head, concepts, classes = saved
            figure = tree_outline(
                head,
                concepts,
                level_series({name: name for name in classes}),
                title=f"The first questions of {entry.model}",
                description=f"A tree of {len(head.left)} nodes over {len(concepts)} concepts.",
            )
            caption = html(
                "{} of {}, fit {}: questions to what a clip measures along each concept; shares "
                "are of training clips. Each fit has a tree of its own.",
                entry.model,
                run.name,
                entry.fit,
            )
            return PageFigure(Html(inline_svg(figure)), caption)
    return None


def _saved_tree(
    run: ReportRun, model: str, task: str, fit: int
) -> tuple[TreeArrays, list[str], list[str]] | None:
    """A tree that was saved with the run; None if its folder was removed."""
    for saved in saved_models(run.results.run):
        if (saved["model"], saved["task"], saved["fit"]) == (model, task, fit):
            try:
                loaded, about = load_model(run.results.run.folder / saved["folder"])
            except ExperimentError:
                return None
            tree = as_tree(getattr(loaded, "head_", None))
            if tree is not None and hasattr(loaded, "concept_names"):
                return tree, list(loaded.concept_names()), list(about["classes"])
    return None


def error_figure(runs: Sequence[ReportRun]) -> PageFigure | None:
    """What goes with a model's errors, film by film."""
    run, results = _model_for_errors(runs)
    if run.record.experiment["concepts"]:
        return None
    predictions = results.predictions
    clips = [run.clips[clip] for clip in predictions.ids]
    films = factors_of_clips(clips, predictions.wrong, list(run.record.manifest.levels))
    too_few = len(clips) / len({clip.film for clip in clips}) < MIN_CLIPS_A_FILM
    figure = error_factors(
        films[:1] if too_few else films,
        {clip.film: _YEAR.sub("", clip.title) for clip in clips},
        title=f"What goes with the errors of {results.model}",
        description="Coefficients of a ridge logistic regression of wrong on concepts and levels.",
    )
    caption = html(
        "{} of {}, {} test clips, {} wrong. Each point: how much the log-odds of being wrong rise "
        "where a clip is marked so, others held; intervals by resampling clips, of all films by "
        "resampling films.{}",
        results.model,
        run.name,
        count(len(clips)),
        count(int(predictions.wrong.sum())),
        " A film has too few test clips here to be drawn on its own; leave films out for that."
        if too_few
        else "",
    )
    return PageFigure(Html(inline_svg(figure)), caption)


def _model_for_errors(runs: Sequence[ReportRun]) -> tuple[ReportRun, ModelResults]:
    """A network that never saw the film, as in the paper; else the explorer's first model."""
    for run in runs:
        for results in run.models if run.protocol == "leave-film-out" else ():
            if estimator_of(run.record, results.model) in NETWORKS:
                return run, results
    run = default_run(runs)
    return run, default_model(run)
