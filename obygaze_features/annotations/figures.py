"""Figures: a film's timelines, projections and merge (the paper's figure 4); agreement as dots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obygaze_features.annotations.agreement import LabelSetAgreement
from obygaze_features.annotations.agreement_report import AgreementReport
from obygaze_features.annotations.grid import clips_by_film
from obygaze_features.annotations.merge import check_levels
from obygaze_features.annotations.timelines import Timelines
from obygaze_features.common.figures import (
    INK,
    LINE,
    PAPER,
    SOFT,
    Bar,
    describe,
    draw_level_bars,
    figure_style,
    level_keys,
    plain,
    show_time,
)
from obygaze_features.common.text import counted
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests import Item, LabelScheme, LabelSet, Manifest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The height of a row of dots.
ROW_IN = 0.27


@dataclass(frozen=True)
class Band:
    """A row of bars: start, end and the level's rank of each."""

    name: str
    bars: Sequence[Bar]


def films_with_clips(timelines: Timelines, manifest: Manifest) -> list[str]:
    """The films that have both segments and clips, in the timelines' order."""
    by_film = clips_by_film(manifest.items)
    return [film for film in timelines.films if film in by_film and film in timelines.by_film]


def film_bands(
    timelines: Timelines, manifest: Manifest, film: str, *, merged: str = "merged"
) -> list[Band]:
    """Each annotator's segments above their projection, and the merge last.

    The manifest's label sets are named by the annotators; it may lack projections and `merged`.
    """
    check_levels(manifest.scheme, timelines.scheme)
    clips = [manifest.items[row] for row in clips_by_film(manifest.items)[film].tolist()]
    codes = timelines.scheme.codes
    bands = []
    for annotator, segments in timelines.by_film[film].items():
        bars = [(s.start, s.end, codes.index(s.level)) for s in segments]
        bands.append(Band(timelines.names.get(annotator, annotator), bars))
        if annotator in manifest.label_names:
            bars = _clip_bars(clips, manifest.labels(annotator), manifest.scheme)
            bands.append(Band(f"{annotator} on clips", bars))
    if merged in manifest.label_names:
        bands.append(Band(merged, _clip_bars(clips, manifest.labels(merged), manifest.scheme)))
    return bands


def film_figure(
    timelines: Timelines, manifest: Manifest, film: str, *, merged: str = "merged"
) -> Figure:
    """Draw the bands of `film_bands`; the higher the level, the taller the bar."""
    bands = film_bands(timelines, manifest, film, merged=merged)
    levels = timelines.scheme.name_of
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 1.6 + 0.55 * len(bands)), layout="constrained")
        axes = figure.add_subplot()
        for row, band in enumerate(bands):
            draw_level_bars(axes, -row, band.bars, levels)
        axes.set_yticks([-row for row in range(len(bands))], [plain(band.name) for band in bands])
        axes.set_ylim(-len(bands) + 0.4, 0.6)
        ends = [end for band in bands for _, end, _ in band.bars]
        show_time(axes, max([timelines.end_of(film), *ends]))
        title, text = timelines.titles[film], _describe(timelines, manifest, film)
        axes.set_title(plain(title), loc="left", weight="bold")
        figure.supxlabel(plain(text), x=0.01, ha="left", fontsize=8, color=SOFT)
        figure.legend(handles=level_keys(levels), loc="outside upper right", ncols=len(levels))
    describe(figure, title, text)
    return figure


def _describe(timelines: Timelines, manifest: Manifest, film: str) -> str:
    """How many annotators and clips; by which threshold, and onto which grid."""
    annotators = timelines.by_film[film]
    clips = len(clips_by_film(manifest.items)[film])
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
        report.titles.get(pair.film, pair.film) or "-": pair.gamma.gamma
        for pair in sorted(films, key=lambda pair: pair.gamma.gamma or 0.0, reverse=True)
        if pair.gamma.gamma is not None
    }
    with figure_style():
        from matplotlib.figure import Figure

        rows = max(1, len(agreement.concepts)), max(1, len(gammas))
        size = 9.5, ROW_IN * sum(rows) + 2.6
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=rows, width_ratios=[1.25, 1])
        concepts = agreement.concepts_by_kappa()
        kappa_axes = figure.add_subplot(grid[0, 0])
        kappas = [None if agreement.only_by(c) else c.kappa for c in concepts]
        _dots(kappa_axes, [c.concept for c in concepts], kappas)
        for row, concept in enumerate(concepts):
            if alone := agreement.only_by(concept):
                text = f"marked by {plain(alone)} alone"
                kappa_axes.text(0.02, -row, text, fontsize=8.5, color=SOFT, va="center")
        kappa_axes.set_title("Agreement by concept", loc="left", fontsize=10)
        _ends(kappa_axes, "Cohen’s kappa:  0 by chance", "1 always the same")
        _shares(figure.add_subplot(grid[0, 1], sharey=kappa_axes), agreement)
        film_axes = figure.add_subplot(grid[1, :])
        _dots(film_axes, list(gammas), list(gammas.values()))
        film_axes.set_title("Agreement by film", loc="left", fontsize=10)
        _ends(film_axes, "gamma:  0 as in a random order", "1 always the same level")
        title = f"How far {names[0]} and {names[1]} agree"
        text = (
            f"The same level on {agreement.equal_levels:.0%} of {counted(agreement.clips, 'clip')}"
        )
        figure.suptitle(plain(title), x=0.01, ha="left", fontsize=12, weight="bold")
        figure.supxlabel(plain(text), x=0.01, ha="left", fontsize=8.5, color=SOFT)
    describe(figure, title, f"{text}. Dots: kappa of each concept, gamma of each film.")
    return figure


def _dots(axes: Axes, names: Sequence[str], values: Sequence[float | None]) -> None:
    """One dot per row, the first on top, on an axis that has 0 and 1."""
    for row, value in enumerate(values):
        if value is not None:
            axes.plot(value, -row, "o", color=INK, markersize=6)
            offset: dict[str, Any] = {
                "xytext": (8, 0),
                "textcoords": "offset points",
                "va": "center",
            }
            axes.annotate(f"{value:.2f}", (value, -row), fontsize=8.5, color=SOFT, **offset)
    axes.set_yticks([-row for row in range(len(names))], [plain(name) for name in names])
    axes.set_ylim(0.6 - max(1, len(names)), 0.6)
    lowest = min([0.0, *(value for value in values if value is not None)])
    axes.set_xlim(lowest - 0.05, 1.05)
    axes.axvline(0, color=LINE, linewidth=1.4, zorder=0)
    axes.grid(axis="x")


def _shares(axes: Axes, agreement: LabelSetAgreement) -> None:
    """The share of clips that each gives a concept: a filled and an open dot, joined by a line."""
    concepts = agreement.concepts_by_kappa()
    for row, concept in enumerate(concepts):
        shares = 100 * concept.share_first, 100 * concept.share_second
        axes.plot(shares, [-row, -row], "-", color=SOFT, linewidth=1)
        # The open dot is the larger one, so that both are seen where they meet.
        for name, share, fill, size in zip(
            (agreement.second, agreement.first), shares[::-1], (PAPER, INK), (9, 5), strict=True
        ):
            style: dict[str, Any] = {"markerfacecolor": fill, "markeredgecolor": INK}
            label = plain(name) if row == 0 else None
            axes.plot(share, -row, "o", markersize=size, label=label, **style)
    axes.tick_params(labelleft=False)
    axes.set_xlim(left=-0.02 * axes.get_xlim()[1])
    axes.set_xlabel("% of clips")
    axes.set_title("How often each marks it", loc="left", fontsize=10)
    axes.grid(axis="x")
    if concepts:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)


def _ends(axes: Axes, low: str, high: str) -> None:
    """Label what the ends of an axis mean."""
    axes.set_xlabel(f"{low}   –   {high}", loc="left")
