"""Projection: from free segments to a level and concepts for each clip, by the paper's rule.

A segment counts for a clip if it covers at least a share of it, the threshold. Of the segments that
count the highest level wins, with the concepts of all that have it. Where none counts, the clip
has the lowest level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.cells import clock
from obygaze_features.annotations.grids import SLACK, clips_by_film, microseconds
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import Segment, Timelines, decimal
from obygaze_features.errors import AnnotationError, ManifestError, UsageError
from obygaze_features.manifests.items import Items
from obygaze_features.manifests.labels import LabelScheme, LabelSet
from obygaze_features.manifests.manifest import Manifest

__all__ = [
    "RULE",
    "THRESHOLD",
    "Projected",
    "check_levels",
    "common_scheme",
    "project",
    "stopped_early",
]

THRESHOLD = 0.2
RULE = (
    "a segment counts where it covers at least the threshold of a clip; the highest level wins; "
    "concepts are united at that level; the lowest level where no segment counts"
)


@dataclass(frozen=True)
class Projected:
    """A label set an annotator, called as the annotator is.

    `grid` is the grid that was given, its scheme with the concepts that only the timelines had.
    """

    label_sets: list[LabelSet]
    grid: Manifest
    remarks: list[Remark]


def project(timelines: Timelines, grid: Manifest, *, threshold: float = THRESHOLD) -> Projected:
    """Project each annotator's segments onto the clips of the films that they annotated.

    Parameters
    ----------
    timelines
        The segments.
    grid
        The clips; `read_grid` makes one.
    threshold
        The share of a clip, above 0 and up to 1, that a segment must cover to count. Exactly that
        counts; two microseconds less do, too, as times are rounded to one.
    """
    if not 0 < threshold <= 1:
        raise UsageError(f"a threshold is a share of a clip, above 0 and up to 1, not {threshold}")
    scheme = common_scheme(grid.scheme, timelines.scheme)
    by_film = clips_by_film(grid.items)
    about = {
        "rule": RULE,
        "threshold": threshold,
        "timelines": {
            "name": timelines.name,
            "source": timelines.source,
            "licence": timelines.licence,
            "sha256": timelines.sha256,
        },
        "grid": {"name": grid.name, "digest": grid.digest},
        "obygaze": version("obygaze"),
    }
    label_sets, remarks = [], []
    for annotator in timelines.annotators:
        segments = {
            film: of_film[annotator]
            for film, of_film in timelines.by_film.items()
            if annotator in of_film and film in by_film
        }
        if segments:
            clips = _Clips(grid.items, scheme, timelines.scheme)
            for film, of_film in segments.items():
                outside = clips.add(by_film[film], of_film, threshold)
                whole = max(timelines.end_of(film), float(grid.items.ends[by_film[film]].max()))
                reached = max(one.end for one in of_film)
                remarks += stopped_early(timelines.name, film, annotator, reached, whole, scheme)
                remarks += [_in_no_clip(of_film[place], timelines.name) for place in outside]
            label_sets.append(clips.labels(annotator, {**about, "annotator": annotator}))
    return Projected(label_sets, replace(grid, scheme=scheme), remarks)


class _Clips:
    """What one annotator's segments make of all clips of a grid."""

    def __init__(self, items: Items, scheme: LabelScheme, theirs: LabelScheme) -> None:
        self.items, self.scheme = items, scheme
        codes, names = scheme.codes, scheme.concept_names
        self.rank = {code: codes.index(scheme.level(code)) for code in theirs.codes}
        self.column = {name: names.index(scheme.concept(name)) for name in theirs.concept_names}
        self.labelled = np.zeros(len(items), bool)
        self.level = np.zeros(len(items), np.intp)
        self.ratio = np.zeros(len(items))
        self.shows = np.zeros((len(items), len(scheme.concepts)), bool)

    def add(
        self, rows: NDArray[np.intp], segments: Sequence[Segment], threshold: float
    ) -> list[int]:
        """Project a film's segments onto its clips; gives the segments that lie in no clip."""
        starts, ends = microseconds(self.items.starts[rows]), microseconds(self.items.ends[rows])
        begins = microseconds([one.start for one in segments])
        finishes = microseconds([one.end for one in segments])
        clip, segment = _meetings(starts, ends, begins, finishes)
        shared = np.minimum(ends[clip], finishes[segment]) - np.maximum(
            starts[clip], begins[segment]
        )
        meet = shared > 0
        touched = np.bincount(segment[meet], minlength=len(segments))
        lengths = (ends - starts)[clip]
        count = meet & (shared >= threshold * lengths - SLACK)
        clip, segment, shared, lengths = clip[count], segment[count], shared[count], lengths[count]

        levels = np.array([self.rank[one.level] for one in segments])[segment]
        row = rows[clip]
        self.labelled[rows] = True
        np.maximum.at(self.level, row, levels)
        wins = levels == self.level[row]
        np.maximum.at(self.ratio, row[wins], (shared / lengths)[wins])
        marks = np.zeros((len(segments), len(self.scheme.concepts)), bool)
        for place, one in enumerate(segments):
            marks[place, [self.column[name] for name in one.concepts]] = True
        winner, concept = np.nonzero(marks[segment[wins]])
        self.shows[row[wins][winner], concept] = True
        return np.flatnonzero(touched == 0).tolist()

    def labels(self, name: str, about: Mapping[str, Any]) -> LabelSet:
        """The label set of the clips of the films that were added."""
        rows = np.flatnonzero(self.labelled)
        codes, names = self.scheme.codes, np.array(self.scheme.concept_names, object)
        # Few sets of concepts and few ratios come again and again.
        shown = [marks.tobytes() for marks in self.shows[rows]]
        concepts = {key: tuple(names[np.frombuffer(key, bool)]) for key in set(shown)}
        ratios = self.ratio[rows].tolist()
        texts = {ratio: decimal(ratio) if ratio else "" for ratio in set(ratios)}
        return LabelSet(
            name,
            [self.items.ids[row] for row in rows.tolist()],
            [codes[level] for level in self.level[rows].tolist()],
            [concepts[key] for key in shown],
            [texts[ratio] for ratio in ratios],
            about=about,
        )


def _meetings(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    begins: NDArray[np.int64],
    finishes: NDArray[np.int64],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs of a clip and a segment, among them all that have some time in common.

    Clips are in order of their starts. Where they do not overlap one another, there are no others.
    """
    first = np.searchsorted(np.maximum.accumulate(ends), begins, side="right")
    counts = np.maximum(np.searchsorted(starts, finishes, side="left") - first, 0)
    segment = np.repeat(np.arange(len(begins)), counts)
    within = np.arange(len(segment)) - np.repeat(np.cumsum(counts) - counts, counts)
    return first[segment] + within, segment


def check_levels(grid: LabelScheme, timelines: LabelScheme) -> None:
    """Raise unless clips and timelines have the same levels, by whichever names."""
    try:
        same = tuple(map(grid.level, timelines.codes)) == grid.codes
    except ManifestError:
        same = False
    if not same:
        raise AnnotationError(
            f"the clips' levels ({', '.join(grid.codes)}) are not those of the timelines "
            f"({', '.join(timelines.codes)}); project these onto a grid without labels, such as "
            "60 (seconds)"
        )


def common_scheme(grid: LabelScheme, timelines: LabelScheme) -> LabelScheme:
    """The grid's scheme, and what concepts only the other has."""

    def knows(concept: str) -> bool:
        try:
            grid.concept(concept)
        except ManifestError:
            return False
        return True

    check_levels(grid, timelines)
    added = tuple(concept for concept in timelines.concepts if not knows(concept.name))
    return replace(grid, concepts=grid.concepts + added)


def stopped_early(
    where: str, film: str, annotator: str, reached: float, whole: float, scheme: LabelScheme
) -> list[Remark]:
    """A remark on an annotator who marked nothing in the second half of a film."""
    if reached >= whole / 2:
        return []
    what = (
        f"nothing is marked after {clock(reached)} of {clock(whole)}; did the annotator stop there?"
    )
    return [Remark(where, film, annotator, what, f"the rest counts as {scheme.levels[0].name}")]


def _in_no_clip(segment: Segment, name: str) -> Remark:
    what = (
        f"the segment from {decimal(segment.start)} to {decimal(segment.end)} s ({segment.level}) "
        "lies in no clip"
    )
    return Remark(name, segment.film, segment.annotator, what, LEFT_OUT)
