"""Project segments onto clips, by the paper's rule.

A segment counts for a clip if it covers at least a given share of the clip (the threshold). The
highest level among these segments wins, with the concepts of all segments that have it. A clip
without such a segment gets the lowest level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.grid import ROUNDING_US, microseconds, read_grid
from obygaze_features.annotations.merge import (
    HIGHEST,
    MERGED,
    common_scheme,
    concept_marks,
    labels_in_rows,
    merge_labels,
    save_labels,
)
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import Segment, Timelines
from obygaze_features.common.formatting import format_time
from obygaze_features.common.package import obygaze_version
from obygaze_features.errors import UsageError
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

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest of the clips with the label sets."""
        return self.grid.with_parts(*self.label_sets)

    def merge_labels(self, name: str = MERGED, rule: str = HIGHEST) -> LabelSet:
        """Merge the annotators' label sets into one, by a rule such as ``majority``."""
        return merge_labels(self.label_sets, self.grid, name, rule)

    def save(self, folder: Path | str | None = None, *, overwrite: bool = False) -> list[Remark]:
        """Save the label sets with their clips to a folder (default: the grid's own manifest).

        Returns a remark on each label set that was merged from labels that have now been replaced.
        """
        folder = folder or self.grid.folder
        if folder is None:
            raise UsageError(
                f"the grid {self.grid.name!r} is not a manifest on disk; pass a folder "
                "(-o MANIFEST)"
            )
        return save_labels(self.grid, self.label_sets, Path(folder), overwrite=overwrite)


def project(
    timelines: Timelines,
    grid: float | str | Path | Manifest,
    threshold: float = 0.2,
) -> ProjectedLabels:
    """Label clips by the segments that cover them; return one label set per annotator.

    An annotator's label set covers all clips of the films that the annotator marked. Annotators
    without such clips get none.

    Parameters
    ----------
    timelines
        The segments.
    grid
        The clips: a length in seconds, or a manifest (or its folder) whose items have spans.
    threshold
        The share of a clip, above 0 and up to 1, that a segment must cover to count. A shortfall of
        up to two microseconds is ignored, because times are rounded.
    """
    if not 0 < threshold <= 1:
        raise UsageError(f"threshold must be a share above 0 and at most 1 (got {threshold})")

    clips, remarks = read_grid(grid, timelines)
    scheme = common_scheme(clips, timelines.scheme)
    by_film = clips.items.spans_by_film
    about = {
        "origin": "annotator",
        "rule": PROJECTION_RULE,
        "threshold": threshold,
        "timelines": {
            "name": timelines.name,
            "source": timelines.source,
            "licence": timelines.licence,
            "sha256": timelines.sha256,
        },
        "grid": {"name": clips.name, "digest": clips.digest},
        "obygaze": obygaze_version(),
    }
    label_sets = []
    for annotator in timelines.annotators:
        projection = _Projection(clips.items, scheme, timelines.scheme)
        for film, of_film in timelines.by_film.items():
            if annotator not in of_film or film not in by_film:
                continue
            for segment in projection.add(by_film[film], of_film[annotator], threshold):
                where = (
                    f"{timelines.name} ({format_time(segment.start)} to {format_time(segment.end)})"
                )
                remarks.append(Remark(where, film, annotator, "is in no clip", LEFT_OUT))
        if (projection.level >= 0).any():
            name = timelines.names.get(annotator, annotator)
            labels = labels_in_rows(
                annotator,
                clips.items,
                scheme,
                projection.level,
                projection.concepts,
                projection.ratio,
                {**about, "annotator": name},
            )
            label_sets.append(labels)
    return ProjectedLabels(label_sets, replace(clips, scheme=scheme), remarks)


class _Projection:
    """An annotator's labels for all clips of a grid, filled film by film."""

    def __init__(self, items: Items, scheme: LabelScheme, source_scheme: LabelScheme) -> None:
        self.items = items
        self.scheme = scheme
        codes = map(scheme.level, source_scheme.codes)
        self.rank = dict(zip(source_scheme.codes, map(scheme.codes.index, codes), strict=True))
        self.level = np.full(len(items), -1)
        self.ratio = np.full(len(items), np.nan)
        self.concepts = np.zeros((len(items), len(scheme.concepts)), bool)

    def add(
        self,
        rows: NDArray[np.intp],
        segments: Sequence[Segment],
        threshold: float,
    ) -> list[Segment]:
        """Project a film's segments onto its clips; return the segments in no clip."""
        starts = microseconds(self.items.starts[rows])
        ends = microseconds(self.items.ends[rows])
        lengths = ends - starts
        self.level[rows] = 0
        in_no_clip = []
        for segment in segments:
            start, end = microseconds([segment.start, segment.end])
            shared = np.minimum(ends, end) - np.maximum(starts, start)
            if not (shared > 0).any():
                in_no_clip.append(segment)

            rank = self.rank[segment.level]
            wins = (shared > 0) & (shared >= threshold * lengths - ROUNDING_US)
            wins &= self.level[rows] <= rank
            won = rows[wins]
            raised = won[self.level[won] < rank]
            self.level[raised] = rank
            self.ratio[raised] = np.nan
            self.concepts[raised] = False
            self.ratio[won] = np.fmax(self.ratio[won], (shared / lengths)[wins])
            self.concepts[won] |= concept_marks([segment.concepts], self.scheme)
        return in_no_clip
