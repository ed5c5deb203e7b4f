"""Draw a film's timelines, and who marks more in each film.

A film's figure shows segments, projected labels and merged labels, like the paper's figure 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from obygaze_features.annotations.film_shares import FilmShares, MarkedFilms
from obygaze_features.annotations.merge import check_levels
from obygaze_features.annotations.timelines import Timelines
from obygaze_features.common.figures import (
    EDGE,
    INK,
    LINE,
    NAMES,
    PAPER,
    SERIES,
    Bar,
    caption,
    describe,
    draw_level_bars,
    figure_style,
    figure_width,
    level_keys,
    name_rows,
    show_time,
    wrap,
)
from obygaze_features.common.text import counted
from obygaze_features.errors import AnnotationError
from obygaze_features.items.films import without_year
from obygaze_features.manifests import Item, LabelScheme, LabelSet, Manifest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

USUAL_IN = 312 / 72
"""The width, in inches, at which a figure's text is at least 11 px high on a phone."""
TEXT, BOLD = 9.4, 1.2
ROW, NEXT_LINE = 16.0, 11.0
"""The height, in points, of a row with one line, and of each further line."""
MAX_FILMS = 30
"""The maximum number of films that `levels_by_film` draws: those with the largest differences."""


@dataclass(frozen=True)
class Band:
    """A named row of bars, each with its start, its end and the rank of its level."""

    name: str
    bars: Sequence[Bar]


def films_with_clips(timelines: Timelines, manifest: Manifest) -> list[str]:
    """Return the films that have both segments and clips, in the order of the timelines."""
    by_film = manifest.items.spans_by_film
    return [film for film in timelines.films if film in by_film and film in timelines.by_film]


def film_bands(timelines: Timelines, manifest: Manifest, film: str) -> list[Band]:
    """Return a band for each annotator's segments and projected labels, then for merged labels.

    An annotator's projected labels are in the label set named after the annotator. Projected and
    merged labels may be missing.
    """
    check_levels(manifest.scheme, timelines.scheme)
    clips = [manifest.items[row] for row in manifest.items.spans_by_film[film].tolist()]
    codes = timelines.scheme.codes
    bands = []
    for annotator, segments in timelines.by_film[film].items():
        bars = [(s.start, s.end, codes.index(s.level)) for s in segments]
        name = timelines.names.get(annotator, annotator)
        bands.append(Band(name, bars))
        if annotator in manifest.label_names:
            bars = _clip_bars(clips, manifest.labels(annotator), manifest.scheme)
            bands.append(Band(f"{name} on clips", bars))
    for labels in map(manifest.labels, manifest.label_names):
        if labels.merged_from:
            bands.append(Band(labels.name, _clip_bars(clips, labels, manifest.scheme)))
    return bands


def film_figure(timelines: Timelines, manifest: Manifest, film: str) -> Figure:
    """Draw the bands of a film; the higher the level, the taller the bar."""
    bands = film_bands(timelines, manifest, film)
    levels = timelines.scheme.name_of
    with figure_style():
        from matplotlib.figure import Figure

        size = figure_width(11), 1.6 + 0.55 * len(bands)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        name_rows(axes, [band.name for band in bands])
        ends = [end for band in bands for _, end, _ in band.bars]
        show_time(axes, max([timelines.end_of(film), *ends]))
        for row, band in enumerate(bands):
            draw_level_bars(axes, -row, band.bars, levels)
        title, text = timelines.titles[film], _describe(timelines, manifest, film)
        caption(figure, title, text, level_keys(levels))
    return figure


def _describe(timelines: Timelines, manifest: Manifest, film: str) -> str:
    """Return a caption with the film's annotators and clips, the threshold and the grid."""
    annotators = timelines.by_film[film]
    clips = len(manifest.items.spans_by_film[film])
    text = (
        f"{counted(len(annotators), 'annotator')}: segments as annotated, and the levels of "
        f"{counted(clips, 'clip')}"
    )
    about = [manifest.labels(name).about for name in annotators if name in manifest.label_names]
    thresholds = sorted({f"{a['threshold']:g}" for a in about if "threshold" in a})
    if thresholds:
        text += f"; threshold {' and '.join(thresholds)}, grid {manifest.name}"
    return text


def _clip_bars(clips: Sequence[Item], labels: LabelSet, scheme: LabelScheme) -> list[Bar]:
    bars = []
    for item in clips:
        level = labels.level_of.get(item.id)
        if level is not None and item.start is not None and item.end is not None:
            bars.append((item.start, item.end, scheme.codes.index(level)))
    return bars


def levels_by_film(marked: MarkedFilms) -> Figure:
    """Draw the share of clips that each annotator gives the highest level, one row per film."""
    names, films = marked.annotators, marked.by_difference
    if len(names) < 2:
        raise AnnotationError("no film has two annotators to compare; add a second label set")
    widest = sorted(films, key=lambda film: -abs(marked.difference(film)))[:MAX_FILMS]
    titles = _short_titles(widest)
    drawn = [film for film in films if film.film in titles]
    with figure_style():
        from matplotlib.ticker import PercentFormatter

        figure, axes = _new_figure()
        y, ticks = 0.0, dict[float, str]()
        for leader, same in groupby(drawn, key=lambda film: _leader(marked, film)):
            rows = [*same]
            if len(names) == 2:
                y += ROW + 3
                _write_heading(axes, y - ROW / 2, leader, len(rows), names)
            for film in rows:
                lines = wrap(titles[film.film], NAMES * 72 * figure.get_figwidth(), TEXT, 2)
                height = ROW + NEXT_LINE * (len(lines) - 1)
                ticks[y + height / 2] = "\n".join(lines)
                _draw_film(axes, y + height / 2, film, names)
                y += height
        _add_legend(axes, names)
        axes.set_ylim(y, 0)
        axes.set_yticks([*ticks], [*ticks.values()], fontsize=TEXT, linespacing=0.95)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.grid(axis="x")
        figure.set_figheight((y + 66 + 14 * len(names)) / 72)
        left_out = f" ({len(drawn)} of {len(films)} films: largest differences)"
        axes.set_xlabel(f"share of a film’s clips{left_out if len(drawn) < len(films) else ''}")
        title = f"Who marks {marked.level} more, film by film"
        caption(figure, title)
    numbers = [f"{film.title}: {_in_words(film.level)}" for film in drawn]
    describe(figure, title, "; ".join(numbers))
    return figure


def _short_titles(films: Sequence[FilmShares]) -> dict[str, str]:
    """Return the title of each film, with the year only if it distinguishes two films."""
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
    """Return which of two annotators marks more; "" for a tie or another number of annotators."""
    difference = marked.difference(film)
    if len(marked.annotators) != 2 or not difference:
        return ""
    return marked.annotators[0 if difference > 0 else 1]


def _write_heading(axes: Axes, y: float, leader: str, films: int, names: Sequence[str]) -> None:
    width = 72 * figure_width(USUAL_IN) - 2 * EDGE
    who, colour = "both mark equally often", INK
    if leader:
        who, colour = f"{leader} marks more", _colour(leader, names)
    text = "".join(wrap(f"{who}: {counted(films, 'film')}", width, BOLD * TEXT, 1))
    style: Any = {"weight": "bold", "fontsize": TEXT, "va": "center"}
    style |= {"color": colour, "xycoords": ("figure points", "data")}
    axes.annotate(
        text, (EDGE, y), bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1}, **style
    )


def _colour(name: str, names: Sequence[str]) -> str:
    return SERIES[names.index(name) % len(SERIES)]


def _draw_film(axes: Axes, y: float, film: FilmShares, names: Sequence[str]) -> None:
    shares = film.level.values()
    axes.plot([min(shares), max(shares)], [y, y], color=LINE, linewidth=3, zorder=2)
    hidden = {share for share, dots in Counter(shares).items() if dots > 1}
    for name, share in film.level.items():
        style: Any = {"color": _colour(name, names), "clip_on": False, "zorder": 3}
        # The first of several dots at one place is larger, so that it is visible behind the others.
        size = 10 if share in hidden else 6
        hidden.discard(share)
        axes.plot(share, y, "o", markersize=size, **style)


def _add_legend(axes: Axes, names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    style: Any = {"marker": "o", "linestyle": "none", "markersize": 6}
    room = (1 - NAMES) * 72 * figure_width(USUAL_IN) - 5 * EDGE
    for name in names:
        label = "".join(wrap(name, room, TEXT, 1))
        axes.add_line(Line2D([], [], color=_colour(name, names), label=label, **style))
    position: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    axes.legend(handletextpad=0.1, **position)
