"""Figures of scores, and of what the annotators gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from obygaze_models.figures import (
    Bar,
    Line,
    Point,
    Share,
    dot_plot,
    grouped_bars,
    inline_svg,
    level_series,
    numbered_series,
    stacked_shares,
)
from obygaze_models.metrics import METRICS
from obygaze_models.report.arrange import Group, Row
from obygaze_models.report.numbers import Html, html, number
from obygaze_models.report.shown import Shown

__all__ = ["Picture", "annotated", "concept_scores", "group_scores"]

MANY = 30
"""A forest of more rows is folded away until somebody asks for it."""


@dataclass(frozen=True)
class Picture:
    """A figure and what is said under it; `folded` ones have a title to open them by."""

    svg: Html
    caption: Html
    folded: str = ""


def annotated(runs: Sequence[Shown]) -> list[Picture]:
    """Figure 2: the annotators' levels film by film, and which concepts they marked; by scheme."""
    schemes: dict[tuple[str, ...], list[Shown]] = {}
    for run in runs:
        schemes.setdefault(tuple(run.record.manifest.levels), []).append(run)
    return [one for of in schemes.values() for one in _annotated(of, len(schemes) > 1)]


def _annotated(runs: Sequence[Shown], one_of_several: bool) -> list[Picture]:
    run = max(runs, key=lambda run: len(run.clips))
    sets = dict.fromkeys(one.record.manifest.labels for one in runs)
    title = "Levels that the annotators gave"
    if one_of_several:
        title += f": {run.record.manifest.labels}"
    names = run.record.manifest.levels
    clips = list(run.clips.values())
    codes = [code for code in names if any(one.level == code for one in clips)]
    levels = level_series({code: names[code] for code in codes})
    films = dict.fromkeys(one.film for one in clips)
    rows = []
    for film in [None, *filter(None, films)]:
        of = [one for one in clips if film in (None, one.film)]
        rows.append(
            Share(
                ("All films" if any(films) else "All clips") if film is None else of[0].title,
                [sum(one.level == code for one in of) / len(of) for code in codes],
                len(of),
                overall=film is None,
            )
        )
    pictures = [
        Picture(
            Html(
                inline_svg(
                    stacked_shares(
                        rows,
                        levels,
                        title=title,
                        axis="share of a film’s clips" if any(films) else "share of the clips",
                        description=f"Of {len(clips)} clips in all: "
                        + ", ".join(
                            f"{series.label} {share:.0%}"
                            for series, share in zip(levels, rows[0].parts, strict=True)
                        ),
                    )
                )
            ),
            html(
                "Levels of the {} annotated clips of label set {}{}.",
                number(len(clips), "annotated", run.number, form=","),
                run.record.manifest.labels,
                f", the largest on this page of {', '.join(sets)}" if len(sets) > 1 else "",
            ),
        )
    ]
    concepts = sorted({name for one in clips for name in one.concepts})
    marked = [code for code in codes if any(one.concepts for one in clips if one.level == code)]
    if concepts and marked:
        groups = {}
        for name in concepts:
            bars = []
            for code in marked:
                of = [one for one in clips if one.level == code]
                share = sum(name in one.concepts for one in of) / len(of)
                bars.append(Bar(share))
            groups[name] = bars
        figure = grouped_bars(
            groups,
            [levels[codes.index(code)] for code in marked],
            title="Concepts that the annotators marked",
            axis="share of a level’s clips that show the concept",
            description=f"{len(concepts)} concepts by level.",
            percent=True,
        )
        pictures.append(
            Picture(
                Html(inline_svg(figure)),
                html("How often each concept was marked, by level of the clip."),
            )
        )
    return pictures


def group_scores(group: Group) -> list[Picture]:
    """The scores of a table as points with intervals, beside guesses and the paper; by average."""
    if group.kind == "concepts":
        return []
    pictures = []
    for metric, title in group.averages.items():
        points, lines = [], []
        for column in group.columns:
            name = column.test if column.train == column.test else f"{column.train} → {column.test}"
            for row in group.rows:
                if (cell := row.cells.get(column)) is None:
                    continue
                low, high = cell.of["interval"].get(metric) or (None, None)
                paper = cell.published.get(metric)
                points.append(
                    Point(
                        row.model
                        if len({one.feature for one in group.rows}) == 1
                        else f"{row.model}, {row.feature}",
                        cell.of["mean"][metric],
                        low,
                        high,
                        paper.mean if paper else None,
                        name,
                    )
                )
            lines += [
                Line(
                    cell.of["mean"][metric],
                    row.model,
                    name,
                )
                for row in group.guesses
                if row.model in ("random", "all positive")
                and (cell := row.cells.get(column)) is not None
                and row is _first_of(group, row.model)
                and cell.of["mean"].get(metric) is not None
            ]
        figure = dot_plot(
            points,
            title=f"{title}, {group.named[0].lower()}{group.named[1:]}",
            axis=title,
            description=f"{len(points)} scores of {title} with their intervals.",
            lines=lines,
            limits=(0.0, 1.0),
            interval="95% interval over draws of films",
        )
        pictures.append(
            Picture(
                Html(inline_svg(figure)),
                html(
                    "{} of each model{}.{}{}",
                    title,
                    "; train → test" if any(one.train != one.test for one in group.columns) else "",
                    " Dashed: what guessing scores on the same clips." if lines else "",
                    " Hollow diamonds: the paper, where it prints this average."
                    if any(point.reference is not None for point in points)
                    else "",
                ),
                f"{title} of all models as a figure" if len(points) > MANY else "",
            )
        )
    return pictures


def concept_scores(group: Group) -> Picture | None:
    """Figure 3: how well each concept is detected on its own."""
    if group.kind != "concepts":
        return None
    series = numbered_series([f"{row.model}, {row.feature}" for row in group.rows])
    groups = {}
    for column in group.columns:
        bars = []
        for row in group.rows:
            cell = row.cells.get(column)
            low, high = (cell.of["interval"].get("f1") if cell else None) or (None, None)
            value = cell.of["mean"]["f1"] if cell else None
            bars.append(Bar(value, low, high))
        groups[column.test] = bars
    figure = grouped_bars(
        groups,
        series,
        title="Each concept detected on its own",
        axis=METRICS["f1"].name,
        description=f"{METRICS['f1'].name} of {len(groups)} concepts.",
        limits=(0.0, 1.0),
    )
    return Picture(
        Html(inline_svg(figure)),
        html(
            "Positive-class F1{}.",
            " with 95% intervals over draws of films" if group.intervals else "",
        ),
    )


def _first_of(group: Group, guess: str) -> Row:
    return next(row for row in group.guesses if row.model == guess)
