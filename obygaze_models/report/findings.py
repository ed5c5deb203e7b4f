"""The summary of a page: the scores in sentences, beside chance and the paper."""

from __future__ import annotations

from collections.abc import Sequence

from obygaze_features.common.text import counted
from obygaze_models.experiments.record import TestSet
from obygaze_models.intervals import too_few
from obygaze_models.metrics import METRICS, TREC
from obygaze_models.report.html import Html, count, html, joined, number
from obygaze_models.report.runs import ReportRun
from obygaze_models.report.score_tables import Cell, Column, Row, ScoreTable

__all__ = ["findings", "score_key"]

MAX_SENTENCES = 6
"""With more scores, only the best of each test set has a sentence."""


def findings(tables: Sequence[ScoreTable], runs: Sequence[ReportRun]) -> list[Html]:
    """A sentence for each score; or, with many scores, for the best on each test set."""
    cells = [
        (table, column, row, cell)
        for table in tables
        for row in table.rows
        for column, cell in row.cells.items()
    ]
    if len(cells) <= MAX_SENTENCES:
        return [_score(*parts) for parts in cells]
    return [_overview(runs), *(line for table in tables for line in _best_scores(table))]


def score_key(cell: Cell, metric: str, part: str) -> tuple[object, ...]:
    """The key of a number of a cell's scores."""
    return "score", cell.run, cell.scores["model"], cell.scores["test"], metric, part


def _overview(runs: Sequence[ReportRun]) -> Html:
    clips = {clip for run in runs for clip in run.clips}
    films = {clip.film for run in runs for clip in run.clips.values()}
    features = list(dict.fromkeys(run.feature for run in runs))
    protocols = len({run.protocol for run in runs})
    return html(
        "{} on {} and {}: {} models, {} annotated clips of {}.",
        counted(len(runs), "run"),
        html("{} sets of features", count(len(features)))
        if len(features) > 1
        else html("features of {}", features[0]),
        counted(protocols, "protocol"),
        count(sum(len(run.record.models) for run in runs)),
        count(len(clips)),
        counted(len(films), "film"),
    )


def _score(table: ScoreTable, column: Column, row: Row, cell: Cell) -> Html:
    return html(
        "On {}, {}, {} {}.",
        column.test,
        _test_set(table, column, cell),
        row.model if len(table.runs) == 1 else f"{row.model} on {row.feature}",
        _scores(table, column, cell),
    )


def _best_scores(table: ScoreTable) -> list[Html]:
    """For each test set the best of all models that were tested on it."""
    sentences = []
    for test in dict.fromkeys(column.test for column in table.columns):
        scored = [
            (cell.scores["mean"][table.main_metric], row, column, cell)
            for row in table.rows
            for column, cell in row.cells.items()
            if column.test == test and cell.scores["mean"][table.main_metric] is not None
        ]
        if not scored:
            sentences.append(html("{}, {}: no score is defined.", table.heading, test))
            continue
        _, row, column, cell = max(scored, key=lambda parts: parts[0])
        trained = "" if column.train == test else html(", trained on {}", column.train)
        among = html(", the best of {},", count(len(scored))) if len(scored) > 1 else ""
        sentences.append(
            html(
                "{}, {}, {}: {} on {}{}{}{} {}.",
                table.heading,
                test,
                _test_set(table, column, cell),
                row.model,
                row.feature,
                trained,
                among,
                "," if trained and not among else "",
                _scores(table, column, cell),
            )
        )
    # With many concepts side by side, the table is the shorter summary.
    return sentences if len(sentences) <= MAX_SENTENCES else []


def _record(table: ScoreTable, column: Column, cell: Cell) -> TestSet:
    run = next(run for run in table.runs if run.number == cell.run)
    return run.record.tests[column.test]


def _test_set(table: ScoreTable, column: Column, cell: Cell) -> Html:
    test = _record(table, column, cell)
    key = "test", cell.run, column.test
    if test.positives is None:
        parts = [
            html("{} are {}", number(size, *key, "class", name, form=","), name)
            for name, size in test.classes.items()
        ]
        return html("where {}", joined(parts))
    return html(
        "where {} of {} clips are positive",
        number(test.positives, *key, "positives", form=","),
        number(test.clips, *key, "clips", form=","),
    )


def _scores(table: ScoreTable, column: Column, cell: Cell) -> Html:
    """The headline metrics, the last of them beside chance and the paper."""
    test, last = _record(table, column, cell), table.headline_metrics[-1]
    scores = joined([_metric(cell, metric, test) for metric in table.headline_metrics], "; it ")
    return html("{}{}{}", scores, _beside_chance(cell, column, test, last), _published(cell, last))


def _metric(cell: Cell, metric: str, test: TestSet) -> Html:
    mean, name = cell.scores["mean"][metric], METRICS[metric].name
    if mean is None:
        reason = "no test clip is" if metric == TREC else "nothing was called"
        return html("has no {}: {} positive", name, reason)
    return html(
        "reaches {} {} of {}{}",
        "an" if name[0] in "Aa" else "a",
        name,
        number(mean, *score_key(cell, metric, "mean")),
        _interval(cell, metric, test),
    )


def _interval(cell: Cell, metric: str, test: TestSet) -> Html | str:
    ends = cell.scores["interval"].get(metric)
    if ends is None:
        return ""
    if reason := too_few(test.classes.values(), cell.scores["films"]):
        return html(" ({})", reason)
    low, high = (
        number(end, *score_key(cell, metric, part))
        for end, part in zip(ends, ("low", "high"), strict=True)
    )
    films = number(cell.scores["films"], *score_key(cell, metric, "films"), form=",")
    return html(" (95% interval over draws of {} films: {} to {})", films, low, high)


def _beside_chance(cell: Cell, column: Column, test: TestSet, metric: str) -> Html | str:
    """The best chance baseline on the test clips of the same run."""
    baselines = {name: scores[metric] or 0.0 for name, scores in test.baselines.items()}
    if not baselines:
        return ""
    best = max(baselines, key=baselines.__getitem__)
    mean = cell.scores["mean"][metric]
    return html(
        ", {} the best guess ({}: {})",
        "above" if mean is not None and mean > baselines[best] else "not above",
        best,
        number(baselines[best], "guess", cell.run, column.test, best, metric),
    )


def _published(cell: Cell, metric: str) -> Html | str:
    mean, paper = cell.scores["mean"][metric], cell.published.get(metric)
    if paper is None or mean is None:
        return ""
    return html(
        "; the paper has {} for {}",
        number(paper.mean, "published", paper.row, cell.run, cell.scores["test"]),
        paper.row,
    )
