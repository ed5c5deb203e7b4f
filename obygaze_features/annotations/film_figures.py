"""Figures of films side by side: who marks more in each, and which concepts are marked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from obygaze_features.annotations.film_shares import FilmShares, MarkedFilms
from obygaze_features.common.figures import (
    EDGE,
    INK,
    LINE,
    NAMES,
    SERIES,
    caption,
    describe,
    figure_style,
    figure_width,
    paper,
    text_width,
    wrap,
)
from obygaze_features.common.text import counted
from obygaze_features.errors import AnnotationError
from obygaze_features.items.films import without_year

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

USUAL_IN = 312 / 72
"""The width of a figure of rows, so narrow that no text is below 11 px on a phone."""
ABOUT = "% of a film’s clips that have the concept, the mean over the annotators"
TEXT, BOLD = 9.4, 1.2
ROW, NEXT_LINE = 16.0, 11.0
"""The height of a row of one line, and what each further line adds, in points."""
HEAD = 130.0
"""The longest head of a column, in points."""
MAX_FILMS = 30
"""Of more films only those where annotators differ most."""


def levels_by_film(marked: MarkedFilms) -> Figure:
    """Draw how often each annotator gives the highest level: a row a film, a dot an annotator."""
    names, films = marked.annotators, marked.by_difference
    if len(names) < 2:
        raise AnnotationError("who marks more needs two annotators of a film; add another one's")
    widest = sorted(films, key=lambda film: -abs(marked.difference(film)))[:MAX_FILMS]
    titles = _short_titles(widest)
    shown = [film for film in films if film.film in titles]
    with figure_style():
        figure, axes = _new_figure()
        y, ticks = 0.0, dict[float, str]()
        for leader, same in groupby(shown, key=lambda film: _leader(marked, film)):
            rows = [*same]
            if leader:
                y += ROW + 3
                _write_heading(axes, y - ROW / 2, leader, len(rows), names)
            for film in rows:
                lines = wrap(titles[film.film], NAMES * 72 * figure.get_figwidth(), TEXT, 2)
                height = ROW + NEXT_LINE * (len(lines) - 1)
                ticks[y + height / 2] = "\n".join(lines)
                _draw_film(axes, y + height / 2, film, names)
                y += height
        around = 66 + 14 * _add_legend(axes, names)
        _finish_rows(figure, axes, y, around, ticks)
        left_out = f" ({len(shown)} of {len(films)} films, where they differ most)"
        axes.set_xlabel(f"share of a film’s clips{left_out if len(shown) < len(films) else ''}")
        title = f"Who marks {marked.level} more, film by film"
        caption(figure, title)
    numbers = [f"{film.title}: {_in_words(film.level)}" for film in shown]
    describe(figure, title, "; ".join(numbers))
    return figure


def _short_titles(films: Sequence[FilmShares]) -> dict[str, str]:
    """Return titles by film, without years where they are not needed to tell films apart."""
    times = Counter(without_year(film.title) for film in films)
    return {
        film.film: short if times[short := without_year(film.title)] == 1 else film.title
        for film in films
    }


def _in_words(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


def _new_figure(width: float = USUAL_IN) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(figure_width(width), 4), layout="constrained")
    return figure, figure.add_subplot()


def _leader(marked: MarkedFilms, film: FilmShares) -> str:
    """Return which of two annotators marks more; empty if neither does, or of three or more."""
    difference = marked.difference(film)
    if len(marked.annotators) != 2 or not difference:
        return ""
    return marked.annotators[0 if difference > 0 else 1]


def _write_heading(axes: Axes, y: float, leader: str, films: int, names: Sequence[str]) -> None:
    width = 72 * figure_width(USUAL_IN) - 2 * EDGE
    text = "".join(wrap(f"{leader} marks more: {counted(films, 'film')}", width, BOLD * TEXT, 1))
    style: Any = {"weight": "bold", "fontsize": TEXT, "va": "center"}
    style |= {"color": _colour(leader, names), "xycoords": ("figure points", "data")}
    axes.annotate(
        text, (EDGE, y), bbox={"facecolor": paper(), "edgecolor": "none", "pad": 1}, **style
    )


def _colour(name: str, names: Sequence[str]) -> str:
    return SERIES[names.index(name) % len(SERIES)]


def _draw_film(axes: Axes, y: float, film: FilmShares, names: Sequence[str]) -> None:
    shares = film.level.values()
    axes.plot([min(shares), max(shares)], [y, y], color=LINE, linewidth=3, zorder=2)
    for name, share in film.level.items():
        colour = _colour(name, names)
        axes.plot(share, y, "o", color=colour, markersize=6, clip_on=False, zorder=3)


def _finish_rows(
    figure: Figure, axes: Axes, height: float, around: float, ticks: Mapping[float, str]
) -> None:
    """Name the rows, let the axis be percentages, and fit the figure to their height in points."""
    from matplotlib.ticker import PercentFormatter

    axes.set_ylim(height, 0)
    axes.set_yticks([*ticks], [*ticks.values()], fontsize=TEXT, linespacing=0.95)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(axis="x")
    figure.set_figheight((height + around) / 72)


def _room() -> float:
    """Return how wide a text may be that begins at the left end of the axes, in points."""
    return (1 - NAMES) * 72 * figure_width(USUAL_IN) - EDGE


def _add_legend(axes: Axes, names: Sequence[str]) -> int:
    """Say whose each colour is, and return in how many lines."""
    from matplotlib.lines import Line2D

    style: Any = {"marker": "o", "linestyle": "none", "markersize": 6}
    labels = ["".join(wrap(name, _room() - 24, TEXT, 1)) for name in names]
    keys = [
        Line2D([], [], color=_colour(name, names), label=label, **style)
        for name, label in zip(names, labels, strict=True)
    ]
    widest = max(text_width(label, TEXT) for label in labels) + 36
    columns = max(1, min(len(names), int(_room() / widest)))
    place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    axes.legend(handles=keys, ncols=columns, handletextpad=0.1, **place)
    return math.ceil(len(names) / columns)


def concepts_by_film(marked: MarkedFilms) -> Figure:
    """Draw the share of each film's clips that have each concept, as a table of shaded cells."""
    concepts, films = marked.concepts, marked.by_marks
    if not concepts:
        raise AnnotationError("no clip of a film has a concept, so that there is nothing to draw")
    titles = _short_titles(films)
    with figure_style():
        from matplotlib.colors import LinearSegmentedColormap

        figure, axes = _new_figure(9)
        shares = [[film.concepts.get(name, 0.0) for name in concepts] for film in films]
        colours = LinearSegmentedColormap.from_list("shares", [paper(), SERIES[0]])
        axes.pcolormesh(shares, cmap=colours, vmin=0, vmax=1.3 * marked.most)
        cell = (1 - NAMES) * 72 * figure.get_figwidth() / len(concepts)
        style: Any = {"fontsize": max(7.0, min(9.0, cell / 2.2)), "color": INK}
        for row, of_film in enumerate(shares):
            for column, share in enumerate(of_film):
                middle = column + 0.5, row + 0.5
                axes.text(*middle, f"{100 * share:.0f}", ha="center", va="center", **style)
        room = NAMES * 72 * figure.get_figwidth()
        names = ["".join(wrap(titles[film.film], room, TEXT, 1)) for film in films]
        axes.set_yticks([row + 0.5 for row in range(len(films))], names)
        axes.set_ylim(len(films), 0)
        columns = [column + 0.5 for column in range(len(concepts))]
        heads = ["".join(wrap(name, HEAD, TEXT, 1)) for name in concepts]
        axes.set_xticks(columns, heads, rotation=90)
        axes.tick_params(axis="x", top=False, labeltop=True, labelbottom=False, labelcolor=INK)
        axes.spines["bottom"].set_visible(False)
        highest = max(text_width(name, TEXT) for name in heads)
        figure.set_figheight((ROW * len(films) + highest + 72) / 72)
        title = "What is marked in which film"
        caption(figure, title, ABOUT)
    rows = [f"{film.title}: {_in_words(film.concepts)}" for film in films]
    describe(figure, title, "; ".join(rows))
    return figure
