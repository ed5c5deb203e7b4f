"""Figures of a manifest: its levels and concepts, as in the paper's figure 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from obygaze_features.common.figures import (
    INK,
    SOFT,
    add_heading,
    add_number,
    caption,
    describe,
    figure_style,
    figure_width,
    ink_on,
    level_colours,
    level_keys,
    name_rows,
    paper,
    text_width,
)
from obygaze_features.common.text import counted
from obygaze_features.manifests.statistics import Counts, Statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The height of a figure's row.
ROW_IN = 0.3


def statistics_figure(
    stats: Statistics, titles: Mapping[str, str], *, by_film: bool = False, title: str = ""
) -> Figure:
    """Draw a label set as in the paper's figure 2; with `by_film`, each film's levels, too."""
    with figure_style():
        from matplotlib.figure import Figure

        rows = [1.2, max(1, len(stats.concepts)), *([len(stats.films)] if by_film else [])]
        size = figure_width(8.5), ROW_IN * sum(rows) + 0.75 * len(rows) + 0.9
        figure = Figure(figsize=size, layout="constrained")
        title = title or (
            f"{stats.manifest}, labels “{stats.labels}”: "
            f"{counted(stats.all.total, 'clip')} of {counted(len(stats.films), 'film')}"
        )
        levels, concepts, *films = figure.subplots(
            len(rows), 1, gridspec_kw={"height_ratios": rows}, squeeze=False
        )[:, 0]
        lines = caption(figure, title, keys=level_keys(stats.scheme.name_of))
        describe(figure, title, "Shares of the levels, and the concepts within each level.")
        _draw_shares(levels, {"all clips": stats.all}, stats, "Share of each level", lines)
        _draw_concepts(concepts, stats)
        for axes in films:
            order = sorted(stats.films, key=lambda film: _sure_share(stats, film), reverse=True)
            names = {titles.get(film, film) or "-": stats.films[film] for film in order}
            top = stats.scheme.levels[-1].name
            _draw_shares(axes, names, stats, f"Films, by their share of {top}")
    return figure


def _sure_share(stats: Statistics, film: str) -> float:
    return stats.films[film].share(stats.scheme.codes[-1])


def _draw_shares(
    axes: Axes, rows: Mapping[str, Counts], stats: Statistics, title: str, lines: int = 0
) -> None:
    """Draw one bar per row, divided by level, with percentages inside and the clips behind."""
    colours = level_colours(stats.scheme.codes)
    counts_of = {name: counted(counts.total, "clip") for name, counts in rows.items()}
    room = name_rows(axes, list(rows))
    add_heading(axes, title, width=room, lines=lines)
    room -= max((text_width(text, 8.5) for text in counts_of.values()), default=0.0)
    for row, (name, counts) in enumerate(rows.items()):
        left = 0.0
        for level, colour in zip(stats.scheme.levels, colours, strict=True):
            share = 100 * counts.share(level.code)
            axes.barh(-row, share, 0.72, left=left, color=colour, edgecolor=paper())
            clips = counted(counts.levels[level.code], "clip")
            concepts = f"{counts.concepts_per_item(level.code):.2f} concepts per clip"
            add_number(axes, f"{name}, {level.name}: {share:.1f}%, {clips}, {concepts}")
            text = f"{share:.0f}%"
            if share / 100 * room >= text_width(text, 8.5) + 4:
                centre: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5}
                axes.text(left + share / 2, -row, text, color=ink_on(colour), **centre)
            left += share
        axes.text(101, -row, counts_of[name], va="center", fontsize=8.5, color=SOFT)
    axes.set_xlim(0, 101)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _draw_concepts(axes: Axes, stats: Statistics) -> None:
    """Draw one dot per level for each concept; those that best tell the highest level on top."""
    codes = [code for code in stats.scheme.codes if any(stats.all.concepts[code].values())]
    colours = dict(zip(stats.scheme.codes, level_colours(stats.scheme.codes), strict=True))

    def tells(name: str) -> float:
        *below, top = [stats.all.concept_rate(code, name) for code in codes]
        return top - max(below, default=0.0)

    concepts = sorted(stats.concepts, key=tells, reverse=True)
    for row, name in enumerate(concepts):
        rates = [100 * stats.all.concept_rate(code, name) for code in codes]
        axes.plot([min(rates), max(rates)], [-row, -row], "-", color=SOFT, linewidth=1, zorder=1)
        for code, rate in zip(codes, rates, strict=True):
            style: dict[str, Any] = {
                "markerfacecolor": colours[code],
                "markeredgecolor": INK,
                "markersize": 7,
            }
            axes.plot(rate, -row, "o", markeredgewidth=0.6, **style)
            add_number(axes, f"{name}, {stats.scheme.name_of[code]}: {rate:.1f}%")
    axes.set_xlim(-1, 1.02 * axes.get_xlim()[1])
    axes.grid(axis="x")
    title, about = "Clips of a level that have each concept", "% of the level’s clips"
    add_heading(axes, title, about, width=name_rows(axes, concepts))
