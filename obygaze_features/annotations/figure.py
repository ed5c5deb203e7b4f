"""A film's timelines, their projections onto clips and the merge, as in the paper's figure 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from obygaze_features.annotations.grid import clips_by_film
from obygaze_features.annotations.merge import check_levels
from obygaze_features.annotations.timelines import Timelines
from obygaze_features.common.figures import (
    SOFT,
    Bar,
    describe,
    draw_level_bars,
    figure_style,
    level_keys,
    plain,
    show_time,
)
from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests import Item, LabelScheme, LabelSet, Manifest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    timelines: Timelines, manifest: Manifest, film: str, *, merged: str | None = "merged"
) -> list[Band]:
    """Each annotator's segments above their projection, and the merge last.

    The manifest's label sets are named by the annotators; it may lack projections and `merged`.
    """
    check_levels(manifest.scheme, timelines.scheme)
    rows = clips_by_film(manifest.items).get(film)
    if film not in timelines.by_film or rows is None:
        raise AnnotationError(unknown_name("film", film, films_with_clips(timelines, manifest)))
    clips = [manifest.items[row] for row in rows.tolist()]
    codes = timelines.scheme.codes
    bands = []
    for annotator, segments in timelines.by_film[film].items():
        bars = [(s.start, s.end, codes.index(s.level)) for s in segments]
        bands.append(Band(timelines.names.get(annotator, annotator), bars))
        if annotator in manifest.label_names:
            bars = _clip_bars(clips, manifest.labels(annotator), manifest.scheme)
            bands.append(Band(f"{annotator} on clips", bars))
    if merged is not None and merged in manifest.label_names:
        bands.append(Band(merged, _clip_bars(clips, manifest.labels(merged), manifest.scheme)))
    return bands


def film_figure(
    timelines: Timelines, manifest: Manifest, film: str, *, merged: str | None = "merged"
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
        title, text = timelines.films[film].title or film, _describe(timelines, manifest, film)
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
