"""The summary in words: what was reached where, beside the best guess and the paper."""

from __future__ import annotations

from collections.abc import Sequence

from obygaze_models.experiments.record import TestSet
from obygaze_models.intervals import too_few
from obygaze_models.metrics import METRICS, TREC
from obygaze_models.report.arrange import Cell, Column, Group, Row
from obygaze_models.report.numbers import Html, html, joined, number
from obygaze_models.report.shown import Shown

__all__ = ["findings", "score_key"]

FEW = 6
"""So many scores are told one by one; of more the best of each test set."""


def findings(groups: Sequence[Group], runs: Sequence[Shown]) -> list[Html]:
    """A sentence for each score; or, where there are many, for the best on each test set."""
    cells = [
        (group, column, row, cell)
        for group in groups
        for row in group.rows
        for column, cell in row.cells.items()
    ]
    if len(cells) <= FEW:
        return [_of_one(*one) for one in cells]
    return [_about_all(runs), *(line for group in groups for line in _of_best(group))]


def score_key(cell: Cell, metric: str, what: str) -> tuple[object, ...]:
    """The key of a number of a cell's scores."""
    return "score", cell.run, cell.of["model"], cell.of["test"], metric, what


def _about_all(runs: Sequence[Shown]) -> Html:
    clips = {one for run in runs for one in run.clips}
    films = {one.film for run in runs for one in run.clips.values()}
    features = list(dict.fromkeys(run.feature for run in runs))
    return html(
        "{} runs on {} and {}: {} models, {} of {}.",
        number(len(runs), "runs", form=","),
        html("{} sets of features", number(len(features), "features", form=","))
        if len(features) > 1
        else html("features of {}", features[0]),
        _protocols(len({run.protocol for run in runs})),
        number(sum(len(run.record.models) for run in runs), "models", form=","),
        html("{} annotated clips", number(len(clips), "clips", form=",")),
        html("{} films", number(len(films), "films", form=",")),
    )


def _protocols(count: int) -> Html:
    return html("{} protocol{}", number(count, "protocols", form=","), "" if count == 1 else "s")


def _of_one(group: Group, column: Column, row: Row, cell: Cell) -> Html:
    return html(
        "On {}, {}, {} {}.",
        column.test,
        _where(column, cell, group),
        row.model if len(group.runs) == 1 else f"{row.model} on {row.feature}",
        _reached(group, column, cell),
    )


def _of_best(group: Group) -> list[Html]:
    """For each test set the best of all that were tested on it."""
    sentences = []
    for test in dict.fromkeys(column.test for column in group.columns):
        found = [
            (cell.of["mean"][group.main], row, column, cell)
            for row in group.rows
            for column, cell in row.cells.items()
            if column.test == test and cell.of["mean"][group.main] is not None
        ]
        if not found:
            sentences.append(html("{}, {}: no score is defined.", group.named, test))
            continue
        _, row, column, cell = max(found, key=lambda one: one[0])
        trained = "" if column.train == test else html(", trained on {},", column.train)
        of = number(len(found), "among", group.runs[0].number, test, form=",")
        among = html(", the best of {},", of) if len(found) > 1 else ""
        sentences.append(
            html(
                "{}, {}, {}: {} on {}{}{} {}.",
                group.named,
                test,
                _where(column, cell, group),
                row.model,
                row.feature,
                trained,
                among,
                _reached(group, column, cell),
            )
        )
    # Where many concepts stand side by side, the table is the shorter summary.
    return sentences if len(sentences) <= FEW else []


def _test(column: Column, cell: Cell, group: Group) -> TestSet:
    """What the cell's run says of its test set."""
    run = next(one for one in group.runs if one.number == cell.run)
    return run.record.tests[column.test]


def _where(column: Column, cell: Cell, group: Group) -> Html:
    test = _test(column, cell, group)
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


def _reached(group: Group, column: Column, cell: Cell) -> Html:
    """What is spoken of, the last of it beside guesses and the paper."""
    test, last = _test(column, cell, group), group.spoken[-1]
    said = joined([_reached_one(cell, metric, test) for metric in group.spoken], "; it ")
    beside = [_beside_guess(group, column, cell, last), _beside_paper(cell, last)]
    return html("{}{}", said, joined(beside, ""))


def _reached_one(cell: Cell, metric: str, test: TestSet) -> Html:
    reached, name = cell.of["mean"][metric], METRICS[metric].name
    if reached is None:
        why = "no test clip is" if metric == TREC else "nothing was called"
        return html("has no {}: {} positive", name, why)
    return html(
        "reaches {} {} of {}{}",
        "an" if name[0] in "Aa" else "a",
        name,
        number(reached, *score_key(cell, metric, "mean")),
        _interval(cell, metric, test),
    )


def _interval(cell: Cell, metric: str, test: TestSet) -> Html | str:
    ends = cell.of["interval"].get(metric)
    if ends is None:
        return ""
    if few := too_few(test.classes.values(), cell.of["films"]):
        return html(" ({})", few)
    low, high = (
        number(end, *score_key(cell, metric, what))
        for end, what in zip(ends, ("low", "high"), strict=True)
    )
    films = number(cell.of["films"], *score_key(cell, metric, "films"), form=",")
    return html(" (95% interval over draws of {} films: {} to {})", films, low, high)


def _beside_guess(group: Group, column: Column, cell: Cell, metric: str) -> Html | str:
    """Beside the best guess on the test clips of the same run."""
    guesses = {
        name: scores[metric] or 0.0 for name, scores in _test(column, cell, group).baselines.items()
    }
    if not guesses:
        return ""
    best = max(guesses, key=guesses.__getitem__)
    reached = cell.of["mean"][metric]
    return html(
        ", {} the best guess ({}: {})",
        "above" if reached is not None and reached > guesses[best] else "not above",
        best,
        number(guesses[best], "guess", cell.run, column.test, best, metric),
    )


def _beside_paper(cell: Cell, metric: str) -> Html | str:
    ours, paper = cell.of["mean"][metric], cell.published.get(metric)
    if paper is None or ours is None:
        return ""
    return html(
        "; the paper has {} for {}",
        number(paper.mean, "published", paper.row, cell.run, cell.of["test"]),
        paper.row,
    )
