"""A film's timelines, their projections onto clips and the merge, as in the paper's figure 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from obygaze_features.annotations.grids import clips_by_film
from obygaze_features.annotations.projection import check_levels
from obygaze_features.annotations.timelines import Timelines
from obygaze_features.common.text import counted, unknown_name
from obygaze_features.drawing.bands import Row, Span, bands, clock
from obygaze_features.drawing.levels import level_series
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests import Item, LabelScheme, LabelSet, Manifest

__all__ = ["film_figure", "films_drawn"]


def films_drawn(timelines: Timelines, manifest: Manifest) -> list[str]:
    """The films that there are both segments and clips of, in the timelines' order."""
    held = clips_by_film(manifest.items)
    return [film for film in timelines.films if film in held and film in timelines.by_film]


def film_figure(
    timelines: Timelines, manifest: Manifest, film: str, *, merged: str | None = "merged"
) -> str:
    """Each annotator's segments above their projection, and the merge below, as one SVG.

    Parameters
    ----------
    manifest
        Clips with start and end, of the timelines' levels; its label sets are named by the
        annotators.
    merged
        The label set that stands at the bottom, if the manifest has it.
    """
    check_levels(manifest.scheme, timelines.scheme)
    of_film = clips_by_film(manifest.items).get(film)
    if film not in timelines.by_film or of_film is None:
        raise AnnotationError(unknown_name("film", film, films_drawn(timelines, manifest)))
    clips = [manifest.items[row] for row in of_film.tolist()]
    scheme, rows = timelines.scheme, []
    rank = _rank(scheme)
    for annotator, segments in timelines.by_film[film].items():
        spans = [
            Span(
                one.start,
                one.end,
                rank[one.level],
                _tip(scheme, one.level, one.concepts, one.start, one.end),
            )
            for one in segments
        ]
        rows.append(Row(timelines.names.get(annotator, annotator), spans, key=annotator))
        if annotator in manifest.label_names:
            rows.append(
                Row(
                    "on clips",
                    _clips(clips, manifest.labels(annotator), manifest.scheme),
                    key=f"{annotator} on clips",
                    follows=True,
                )
            )
    if merged is not None and merged in manifest.label_names:
        spans = _clips(clips, manifest.labels(merged), manifest.scheme)
        rows.append(Row(merged, spans, key=merged, strong=True))
    title = timelines.films[film].title or film
    end = max(timelines.end_of(film), max(item.end or 0.0 for item in clips))
    levels = level_series({level.code: level.name for level in scheme.levels})
    who = counted(len(timelines.by_film[film]), "annotator")
    projected = [one for one in timelines.by_film[film] if one in manifest.label_names]
    what = f"segments as they cut them, and the levels of {counted(len(clips), 'clip')}"
    described = f"{who}: {what}{_rule(projected, manifest)}"
    return bands(rows, levels, end, title=title, description=described)


def _rule(names: Sequence[str], manifest: Manifest) -> str:
    """By which threshold the label sets were projected, and onto which grid."""
    about = [manifest.labels(name).about for name in names]
    shares = sorted({f"{one['threshold']:g}" for one in about if "threshold" in one})
    if not shares:
        return ""
    return f"; threshold {' and '.join(shares)}, grid {manifest.name}"


def _rank(scheme: LabelScheme) -> Mapping[str, int]:
    return {code: place for place, code in enumerate(scheme.codes)}


def _clips(clips: Sequence[Item], labels: LabelSet, scheme: LabelScheme) -> list[Span]:
    rank, found = _rank(scheme), []
    for item in clips:
        level = labels.level_of.get(item.id)
        if level is not None and item.start is not None and item.end is not None:
            tip = _tip(scheme, level, labels.concepts_of[item.id], item.start, item.end)
            found.append(Span(item.start, item.end, rank[level], f"{item.id}, {tip}"))
    return found


def _tip(scheme: LabelScheme, level: str, concepts: Sequence[str], start: float, end: float) -> str:
    name = next(one.name for one in scheme.levels if one.code == level)
    ticked = f": {', '.join(concepts)}" if concepts else ""
    return f"{clock(start)} to {clock(end)}, {name}{ticked}"
