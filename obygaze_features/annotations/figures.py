"""Draw a film's segments, projected labels and merged labels, like the paper's figure 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from obygaze_features.annotations.merge import check_levels
from obygaze_features.annotations.timelines import Timelines
from obygaze_features.common.figures import (
    Bar,
    caption,
    draw_level_bars,
    figure_style,
    figure_width,
    name_rows,
    show_time,
)
from obygaze_features.manifests import Item, LabelScheme, LabelSet, Manifest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Band:
    """A named row of bars, each with its start, its end and the rank of its level."""

    name: str
    bars: Sequence[Bar]


def film_bands(timelines: Timelines, manifest: Manifest, film: str) -> list[Band]:
    """Return bands of each annotator's segments and projected labels, then of merged labels.

    An annotator's projected labels are in the label set named after the annotator. Projected and
    merged labels may be missing.
    """
    check_levels(manifest.scheme, timelines.scheme)
    clips = list(map(manifest.items.__getitem__, manifest.items.spans_by_film[film].tolist()))
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

        width = figure_width(11)
        figure = Figure(figsize=(width, 1.6 + 0.55 * len(bands)), layout="constrained")
        axes = figure.add_subplot()
        name_rows(axes, [band.name for band in bands], width)
        ends = [end for band in bands for _, end, _ in band.bars]
        show_time(axes, max([timelines.end_of(film), *ends]), width)
        for row, band in enumerate(bands):
            draw_level_bars(axes, -row, band.bars, levels)
        text = f"Segments as annotated, and the levels of clips of {manifest.name}"
        caption(figure, timelines.titles[film], text, levels)
    return figure


def _clip_bars(clips: Sequence[Item], labels: LabelSet, scheme: LabelScheme) -> list[Bar]:
    bars = []
    for item in clips:
        level = labels.level_of.get(item.id)
        if level is not None and item.start is not None and item.end is not None:
            bars.append((item.start, item.end, scheme.codes.index(level)))
    return bars
