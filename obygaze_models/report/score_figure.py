"""The first figure of a page: the best models beside guesses, or level shares."""

from __future__ import annotations

from collections import Counter

from obygaze_features.common.figures import inline_svg
from obygaze_features.common.text import group_by
from obygaze_features.page.html import Html, html, number
from obygaze_models.figures.dots import (
    Line,
    Panel,
    Point,
    dot_plot,
    numbered_series,
    panel_plot,
    round_up,
    start_of_axis,
)
from obygaze_models.figures.sheet import Dot
from obygaze_models.report.headline import Headline
from obygaze_models.scoring.metrics import METRICS

MAX_MODELS = 12
"""The maximum number of models in the first chart."""


def score_figure(head: Headline) -> Html:
    """Draw the best models and the best guess on one axis.

    Each kind of average has a separate heading.
    """
    if not head.rows:
        return _level_figure(head)
    points, lines = _model_points(head)
    title = METRICS[head.metric].title
    if head.run.kind != "concepts":
        title += f", {head.row.task.title}"
    low = 0.0
    if head.metric == "auroc":  # nearly all scores are above chance
        low = start_of_axis((Dot(p.value, p.low, p.high) for p in points), 0.5)
    figure = dot_plot(
        points,
        title=title,
        axis="",
        description="; ".join(f"{p.label}: {p.value:.2f}" for p in points if p.value is not None),
        lines=lines,
        limits=(low, 1.0),
        interval="95% interval",
        value="model",
        reference="the paper",
    )
    if len(head.rows) <= MAX_MODELS:
        return Html(inline_svg(figure))
    text = 'The {} best of {} scores. <a href="#methods">Methods</a> lists all.'
    note = html(text, MAX_MODELS, number(len(head.rows), form=","))
    return html("{}<figcaption>{}</figcaption>", Html(inline_svg(figure)), note)


def _level_figure(head: Headline) -> Html:
    """Draw the share of clips to which each annotator gave each level."""
    names = head.source.about.levels
    levels_of = head.levels_by_annotator
    counts = {name: Counter(levels.values()) for name, levels in levels_of.items()}
    rows = [[Dot(n[code] / n.total()) for n in counts.values()] for code in names]
    largest = max(dot.value or 0.0 for dots in rows for dot in dots)
    series, axis = numbered_series([*counts]), f"share of the {head.source.noun}"
    panel = Panel(rows, series, axis, limits=(0.0, round_up(largest)), percent=True)
    figure = panel_plot(
        [[*names.values()]], panel, title="How often each level was given",
        description="share of clips, one row per level",
    )  # fmt: skip
    return Html(inline_svg(figure))


def _model_points(head: Headline) -> tuple[list[Point], list[Line]]:
    """Return the points of the best models and the best guess, and the lines to compare with."""
    differ = {
        name: len({getattr(row, name) for row in head.rows}) > 1 for name in ("title", "told_apart")
    }
    features = len({row.run.feature for row in head.rows}) > 1
    # Runs may differ in a setting that is not shown, such as balance.
    alike = Counter((row.title, row.told_apart, row.run.feature) for row in head.rows)
    points = []
    for row in head.rows[:MAX_MODELS]:
        parts = [row.title] if differ["title"] else []
        if differ["told_apart"]:  # all are tested on the same clips, so only training differs
            parts.append(row.trained)
        if features or not parts:
            parts.append(row.run.reads)
        if alike[row.title, row.told_apart, row.run.feature] > 1:
            parts.append(row.run.name)
        low, high = row.interval(head.metric) or (None, None)
        paper = row.published.get(head.metric)
        mean, reference = row.entry.mean[head.metric], paper.mean if paper else None
        points.append(Point(", ".join(parts), mean, low, high, reference, group=row.average))
    lines = []
    group = head.row.average
    if head.metric == "auroc":
        lines.append(Line(0.5, "chance"))
    elif head.run.kind != "concepts" and (guess := head.row.best_guess(head.metric)):
        points.append(Point(f"guess: {guess[0]}", guess[1], group=group, kind="guess"))
        lines.append(Line(guess[1], "best guess", group))
    by_group = group_by(points, lambda point: point.group)
    return [point for same in by_group.values() for point in same], lines
