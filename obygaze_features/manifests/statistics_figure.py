"""A label set as a figure: the levels' shares, the concepts within them, and film by film."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.common.figures import (
    INK,
    PAPER,
    SOFT,
    add_number,
    check_figure_path,
    describe,
    figure_style,
    level_colours,
    level_keys,
    plain,
    save_figure,
)
from obygaze_features.common.text import counted
from obygaze_features.manifests.statistics import Counts, Statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_IN = 0.3
#: A part of a bar that is narrower, in percent, has no number in it.
MIN_LABELLED = 6.0


def draw_statistics(
    stats: Statistics,
    path: Path,
    titles: Mapping[str, str],
    *,
    by_film: bool = False,
    overwrite: bool = False,
) -> None:
    """Draw a label set into a PNG, PDF or SVG file; with `by_film`, each film's levels too."""
    check_figure_path(path, overwrite=overwrite)
    with figure_style():
        from matplotlib.figure import Figure

        rows = [1.2, max(1, len(stats.concepts)), *([len(stats.films)] if by_film else [])]
        size = 8.5, ROW_IN * sum(rows) + 0.75 * len(rows) + 0.7
        figure = Figure(figsize=size, layout="constrained")
        title = (
            f"{stats.manifest}, labels “{stats.labels}”: "
            f"{counted(stats.all.total, 'clip')} of {counted(len(stats.films), 'film')}"
        )
        describe(figure, title, "Shares of the levels, and the concepts within each level.")
        levels, concepts, *films = figure.subplots(
            len(rows), 1, gridspec_kw={"height_ratios": rows}, squeeze=False
        )[:, 0]
        _draw_shares(levels, {"all clips": stats.all}, stats)
        levels.set_title("Share of each level", loc="left", fontsize=10)
        _draw_concepts(concepts, stats)
        for axes in films:
            order = sorted(stats.films, key=lambda film: _sure_share(stats, film), reverse=True)
            names = {titles.get(film, film) or "-": stats.films[film] for film in order}
            _draw_shares(axes, names, stats)
            top = stats.scheme.levels[-1].name
            axes.set_title(f"Films, by their share of {top}", loc="left", fontsize=10)
        figure.suptitle(plain(title), x=0.01, ha="left", fontsize=12, weight="bold")
        keys = level_keys(stats.scheme.name_of)
        figure.legend(handles=keys, loc="outside lower left", ncols=len(keys))
        save_figure(figure, path, overwrite=overwrite)


def _sure_share(stats: Statistics, film: str) -> float:
    return stats.films[film].share(stats.scheme.codes[-1])


def _draw_shares(axes: Axes, rows: Mapping[str, Counts], stats: Statistics) -> None:
    """A bar a row, divided by level, with percentages in it and the clips behind it."""
    colours = level_colours(stats.scheme.codes)
    for row, (name, counts) in enumerate(rows.items()):
        left = 0.0
        for level, colour in zip(stats.scheme.levels, colours, strict=True):
            share = 100 * counts.share(level.code)
            axes.barh(-row, share, 0.72, left=left, color=colour, edgecolor=PAPER)
            clips = counted(counts.levels[level.code], "clip")
            concepts = f"{counts.concepts_per_item(level.code):.2f} concepts a clip"
            add_number(axes, f"{name}, {level.name}: {share:.1f}%, {clips}, {concepts}")
            if share >= MIN_LABELLED:
                centre: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5}
                axes.text(left + share / 2, -row, f"{share:.0f}%", color=_ink_on(colour), **centre)
            left += share
        axes.text(101, -row, counted(counts.total, "clip"), va="center", fontsize=8.5, color=SOFT)
    axes.set_yticks([-row for row in range(len(rows))], [plain(name) for name in rows])
    axes.set_ylim(0.6 - len(rows), 0.6)
    axes.set_xlim(0, 112)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _draw_concepts(axes: Axes, stats: Statistics) -> None:
    """A dot a level for each concept, those that tell the highest level best on top."""
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
    axes.set_yticks([-row for row in range(len(concepts))], [plain(name) for name in concepts])
    axes.set_ylim(0.6 - max(1, len(concepts)), 0.6)
    axes.set_xlim(-1, 1.02 * axes.get_xlim()[1])
    axes.set_xlabel("% of the level’s clips", loc="left")
    axes.set_title("Clips of a level that have each concept", loc="left", fontsize=10)
    axes.grid(axis="x")


def _ink_on(colour: str) -> str:
    """Dark text on a light colour, light text on a dark one."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER
