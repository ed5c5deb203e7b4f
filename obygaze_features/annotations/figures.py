"""Figures: a film's timelines, projections and merge (the paper's figure 4); agreement as dots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obygaze_features.annotations.agreement import LabelSetAgreement
from obygaze_features.annotations.agreement_report import AgreementReport
from obygaze_features.annotations.merge import check_levels
from obygaze_features.annotations.timelines import Timelines
from obygaze_features.common.figures import (
    EDGE,
    INK,
    LINE,
    SOFT,
    Bar,
    add_heading,
    caption,
    describe,
    draw_level_bars,
    figure_style,
    figure_width,
    level_keys,
    name_rows,
    paper,
    show_time,
    wrap,
)
from obygaze_features.common.text import counted, format_number
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests import Item, LabelScheme, LabelSet, Manifest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE_HEIGHT = 9.0
"""Inches: at most so high is a figure of a page's width."""


@dataclass(frozen=True)
class Band:
    """A row of bars: start, end and the level's rank of each."""

    name: str
    bars: Sequence[Bar]


def films_with_clips(timelines: Timelines, manifest: Manifest) -> list[str]:
    """The films that have both segments and clips, in the timelines' order."""
    by_film = manifest.items.spans_by_film
    return [film for film in timelines.films if film in by_film and film in timelines.by_film]


def film_bands(timelines: Timelines, manifest: Manifest, film: str) -> list[Band]:
    """Each annotator's segments above their projection, and merges last.

    The manifest's label sets are named by the annotators; it may lack projections and merges.
    """
    check_levels(manifest.scheme, timelines.scheme)
    clips = [manifest.items[row] for row in manifest.items.spans_by_film[film].tolist()]
    codes = timelines.scheme.codes
    bands = []
    for annotator, segments in timelines.by_film[film].items():
        bars = [(s.start, s.end, codes.index(s.level)) for s in segments]
        bands.append(Band(timelines.names.get(annotator, annotator), bars))
        if annotator in manifest.label_names:
            bars = _clip_bars(clips, manifest.labels(annotator), manifest.scheme)
            bands.append(Band(f"{annotator} on clips", bars))
    for labels in map(manifest.labels, manifest.label_names):
        if labels.merged_from:
            bands.append(Band(labels.name, _clip_bars(clips, labels, manifest.scheme)))
    return bands


def film_figure(timelines: Timelines, manifest: Manifest, film: str) -> Figure:
    """Draw the bands of `film_bands`; the higher the level, the taller the bar."""
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
    """How many annotators and clips; by which threshold, and onto which grid."""
    annotators = timelines.by_film[film]
    clips = len(manifest.items.spans_by_film[film])
    text = (
        f"{counted(len(annotators), 'annotator')}: segments as they cut them, and the levels of "
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


def agreement_figure(report: AgreementReport) -> Figure:
    """Draw two label sets: by concept (kappa beside how often each marks it), and by film.

    The first two of the report, where it compares more.
    """
    if not report.overall:
        raise AnnotationError(
            f"{report.manifest}: no two annotators have a film in common; if they do, the film has "
            "two names: name each ELAN file after its film and import again"
        )
    agreement = report.overall[0]
    names = agreement.first, agreement.second
    films = [pair for pair in report.pairs if (pair.a, pair.b) == names]
    gammas = {
        report.titles.get(pair.film, pair.film) or "-": value
        for pair in sorted(films, key=lambda pair: pair.values["gamma"] or 0.0, reverse=True)
        if (value := pair.values["gamma"]) is not None
    }
    with figure_style():
        from matplotlib.figure import Figure

        concepts = agreement.concepts_by_kappa()
        width = figure_width(9.5)
        # The shares of concepts are beside their kappa, or below.
        rows, columns = (["ks", "ff"], [1.25, 1]) if width >= 6 else (["k", "s", "f"], [1])
        heights = [max(1, len(gammas if row[0] == "f" else concepts)) for row in rows]
        around = 0.7 * len(rows) + 1
        fitting = max(0.16, (PAGE_HEIGHT - around) / sum(heights))
        height = min(0.3, fitting if width >= 6 else 0.3)
        size = width, height * sum(heights) + around
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplot_mosaic(
            [list(row) for row in rows], height_ratios=heights, width_ratios=columns
        )
        kappas = [None if agreement.only_by(c) else c.kappa for c in concepts]
        film_room = _dots(panels["f"], list(gammas), list(gammas.values()), height)
        names_of = [concept.concept for concept in concepts]
        room = min(film_room, _dots(panels["k"], names_of, kappas, height))
        room = room / sum(columns) - EDGE  # of a panel of width 1
        for row, concept in enumerate(concepts):
            if alone := agreement.only_by(concept):
                [text] = wrap(f"marked by {alone} alone", room, 8.5, 1)
                panels["k"].text(0.02, -row, text, fontsize=8.5, color=SOFT, va="center")
        _shares(panels["s"], agreement, height)
        panels["s"].tick_params(labelleft=len(columns) == 1)
        about = "Cohen’s kappa, all films together: 0 by chance, 1 always the same"
        marks = f"% of clips: ●={names[0]}, ○={names[1]}"
        lines = max(len(wrap(text, room, 8.5, 4)) for text in (about, marks))
        add_heading(
            panels["k"], "Agreement by concept", about, width=room * columns[0], lines=lines
        )
        add_heading(panels["s"], "How often each marks it", marks, width=room, lines=lines)
        about = "gamma: 0 as in a random order, 1 always the same level"
        add_heading(panels["f"], "Agreement by film", about, width=film_room)
        title = f"How far {names[0]} and {names[1]} agree"
        text = f"Levels: the same on {agreement.equal_levels:.0%} of "
        text += f"{counted(agreement.clips, 'clip')}; kappa, all films together: "
        text += "-" if agreement.kappa is None else format_number(agreement.kappa)
        caption(figure, title, text)
    describe(figure, title, f"{text}. Dots: kappa of each concept, gamma of each film.")
    return figure


def _dots(axes: Axes, names: Sequence[str], values: Sequence[float | None], height: float) -> float:
    """One dot per row, the first on top, on an axis that has 0 and 1; gives its width."""
    for row, value in enumerate(values):
        if value is not None:
            axes.plot(value, -row, "o", color=INK, markersize=6)
            offset: dict[str, Any] = {
                "xytext": (8, 0),
                "textcoords": "offset points",
                "va": "center",
            }
            axes.annotate(format_number(value), (value, -row), fontsize=8.5, color=SOFT, **offset)
    lowest = min([0.0, *(value for value in values if value is not None)])
    axes.set_xlim(lowest - 0.05, 1.05)
    axes.axvline(0, color=LINE, linewidth=1.4, zorder=0)
    axes.grid(axis="x")
    return name_rows(axes, names, height)


def _shares(axes: Axes, agreement: LabelSetAgreement, height: float) -> None:
    """The share of clips that each gives a concept: a filled and an open dot, joined by a line."""
    concepts = agreement.concepts_by_kappa()
    for row, concept in enumerate(concepts):
        shares = 100 * concept.share_first, 100 * concept.share_second
        axes.plot(shares, [-row, -row], "-", color=SOFT, linewidth=1)
        # The open dot is the larger one, so that both are seen where they meet.
        for share, fill, size in zip(shares[::-1], (paper(), INK), (9, 5), strict=True):
            style: dict[str, Any] = {"markerfacecolor": fill, "markeredgecolor": INK}
            axes.plot(share, -row, "o", markersize=size, **style)
    name_rows(axes, [concept.concept for concept in concepts], height)
    axes.set_xlim(left=-0.02 * axes.get_xlim()[1])
    axes.grid(axis="x")
