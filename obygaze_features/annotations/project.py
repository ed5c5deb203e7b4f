"""Project free segments onto clips, by the paper's rule.

A segment counts for a clip if it covers at least a given share of the clip (the threshold). The
highest level among these segments wins, with the concepts of all segments that have it. A clip
without such a segment gets the lowest level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.grid import ROUNDING_US, microseconds, read_grid
from obygaze_features.annotations.merge import (
    MERGED,
    MergedLabels,
    SavedLabels,
    common_scheme,
    merge_labels,
    save_labels,
)
from obygaze_features.annotations.remarks import (
    LEFT_OUT,
    Remark,
    import_remarks,
    label_set_remarks,
)
from obygaze_features.annotations.timelines import Segment, Timelines
from obygaze_features.common.package import obygaze_version
from obygaze_features.common.text import counted, format_time, join_some
from obygaze_features.errors import UsageError
from obygaze_features.items.items import format_seconds
from obygaze_features.manifests import Items, LabelScheme, LabelSet, Manifest

PROJECTION_RULE = (
    "a segment counts if it covers at least the threshold of a clip; the highest level among these "
    "segments wins, with their concepts at that level; a clip without one gets the lowest level"
)


@dataclass(frozen=True)
class ProjectedLabels:
    """One label set per annotator, named after the annotator.

    `grid` is the manifest of the clips; its scheme includes the timelines' concepts.
    """

    label_sets: list[LabelSet]
    grid: Manifest
    remarks: list[Remark]

    def __repr__(self) -> str:
        names = join_some([labels.name for labels in self.label_sets])
        return f"ProjectedLabels({names}: {counted(len(self.grid), 'clip')})"

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest of the clips with the label sets."""
        return self.grid.with_parts(labels=self.label_sets)

    def merge_labels(self, name: str = MERGED) -> MergedLabels:
        """Merge the annotators' label sets into one."""
        return merge_labels(self.label_sets, self.grid, name)

    def save(self, folder: Path | str | None = None, *, overwrite: bool = False) -> SavedLabels:
        """Save the label sets with their clips to a folder (default: the grid's own manifest)."""
        folder = folder or self.grid.folder
        if folder is None:
            raise UsageError(
                f"the grid {self.grid.name!r} is not a manifest on disk; pass a folder "
                "(-o MANIFEST)"
            )
        return save_labels(self.grid, self.label_sets, Path(folder), overwrite=overwrite)


def project(
    timelines: Timelines, grid: float | str | Path | Manifest, threshold: float = 0.2
) -> ProjectedLabels:
    """Project segments onto clips; see `Timelines.project`."""
    if not 0 < threshold <= 1:
        raise UsageError(f"threshold must be a share above 0 and at most 1 (got {threshold})")
    clips, remarks = read_grid(grid, timelines)
    scheme = common_scheme(clips, timelines.scheme)
    by_film = clips.items.spans_by_film
    origin = {key: getattr(timelines, key) for key in ("name", "source", "licence", "sha256")}
    lowest = scheme.levels[0].name
    if of_import := import_remarks(timelines.name, timelines.remarks, lowest):
        origin["remarks"] = [remark.to_json() for remark in of_import]
    about = {
        "origin": "annotator",
        "rule": PROJECTION_RULE,
        "threshold": threshold,
        "timelines": origin,
        "grid": {"name": clips.name, "digest": clips.digest},
        "obygaze": obygaze_version(),
    }
    label_sets = []
    for annotator in timelines.annotators:
        segments_of = {
            film: of_film[annotator]
            for film, of_film in timelines.by_film.items()
            if annotator in of_film and film in by_film
        }
        if not segments_of:
            continue
        projection = _Projection(clips.items, scheme, timelines.scheme)
        for film, segments in segments_of.items():
            outside = projection.add(by_film[film], segments, threshold)
            end = max(timelines.end_of(film), float(clips.items.ends[by_film[film]].max()))
            reached = max(segment.end for segment in segments)
            if reached < end / 2:
                problem = (
                    f"nothing is marked after {format_time(reached)} of {format_time(end)}; "
                    "please check whether the annotator stopped there"
                )
                done = f"the rest counts as {scheme.levels[0].name}"
                remark = Remark(timelines.name, film, annotator, problem, done, "stopped-early")
                remarks.append(remark)
            for segment in map(segments.__getitem__, outside):
                span = f"{format_seconds(segment.start)} to {format_seconds(segment.end)} s"
                problem = f"the segment from {span} ({segment.level}) is in no clip"
                remark = Remark(timelines.name, film, annotator, problem, LEFT_OUT, "in-no-clip")
                remarks.append(remark)
        label_sets.append(projection.labels(annotator, {**about, "annotator": annotator}))
    clips = replace(clips, scheme=scheme)
    return ProjectedLabels(label_sets, clips, remarks + label_set_remarks(label_sets, clips))


class _Projection:
    """An annotator's labels for all clips of a grid, filled film by film."""

    def __init__(self, items: Items, scheme: LabelScheme, source_scheme: LabelScheme) -> None:
        self.items, self.scheme = items, scheme
        codes, names = scheme.codes, scheme.concept_names
        self.rank = {code: codes.index(scheme.level(code)) for code in source_scheme.codes}
        self.column = {n: names.index(scheme.concept(n)) for n in source_scheme.concept_names}
        self.labelled = np.zeros(len(items), bool)
        self.level = np.zeros(len(items), np.intp)
        self.ratio = np.zeros(len(items))
        self.concepts = np.zeros((len(items), len(scheme.concepts)), bool)

    def add(
        self, rows: NDArray[np.intp], segments: Sequence[Segment], threshold: float
    ) -> list[int]:
        """Project a film's segments onto its clips; return the indices of segments in no clip."""
        starts, ends = microseconds(self.items.starts[rows]), microseconds(self.items.ends[rows])
        segment_starts = microseconds([segment.start for segment in segments])
        segment_ends = microseconds([segment.end for segment in segments])
        clip, segment = _overlapping_pairs(starts, ends, segment_starts, segment_ends)
        shared = np.minimum(ends[clip], segment_ends[segment]) - np.maximum(
            starts[clip], segment_starts[segment]
        )
        overlaps = shared > 0
        touched = np.bincount(segment[overlaps], minlength=len(segments))
        lengths = (ends - starts)[clip]
        count = overlaps & (shared >= threshold * lengths - ROUNDING_US)
        clip, segment, shared, lengths = clip[count], segment[count], shared[count], lengths[count]

        levels = np.array([self.rank[s.level] for s in segments])[segment]
        row = rows[clip]
        self.labelled[rows] = True
        np.maximum.at(self.level, row, levels)
        wins = levels == self.level[row]
        np.maximum.at(self.ratio, row[wins], (shared / lengths)[wins])
        ticked = np.zeros((len(segments), len(self.scheme.concepts)), bool)
        for index, s in enumerate(segments):
            ticked[index, [self.column[name] for name in s.concepts]] = True
        winner, concept = np.nonzero(ticked[segment[wins]])
        self.concepts[row[wins][winner], concept] = True
        return np.flatnonzero(touched == 0).tolist()

    def labels(self, name: str, about: Mapping[str, Any]) -> LabelSet:
        """Return a label set of all clips in the films that were added."""
        rows = np.flatnonzero(self.labelled)
        codes, names = self.scheme.codes, np.array(self.scheme.concept_names, object)
        # Convert each distinct set of concepts and each distinct ratio once, because there are few.
        keys = [ticked.tobytes() for ticked in self.concepts[rows]]
        concepts = {key: tuple(names[np.frombuffer(key, bool)]) for key in set(keys)}
        ratios = self.ratio[rows].tolist()
        texts = {ratio: format_seconds(ratio) if ratio else "" for ratio in set(ratios)}
        return LabelSet(
            name,
            [self.items.ids[row] for row in rows.tolist()],
            [codes[level] for level in self.level[rows].tolist()],
            [concepts[key] for key in keys],
            [texts[ratio] for ratio in ratios],
            about=about,
        )


def _overlapping_pairs(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    segment_starts: NDArray[np.int64],
    segment_ends: NDArray[np.int64],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return pairs of a clip and a segment, including all pairs that overlap in time.

    Clips must be sorted by start. If no clips overlap each other, every returned pair overlaps.
    """
    first = np.searchsorted(np.maximum.accumulate(ends), segment_starts, side="right")
    counts = np.maximum(np.searchsorted(starts, segment_ends, side="left") - first, 0)
    segment = np.repeat(np.arange(len(segment_starts)), counts)
    within = np.arange(len(segment)) - np.repeat(np.cumsum(counts) - counts, counts)
    return first[segment] + within, segment
