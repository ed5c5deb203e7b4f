"""From free segments to labels of clips: project, merge, sweep, save; by the paper's rules.

A segment counts for a clip if it covers at least a share of it, the threshold. Of the segments that
count the highest level wins, with the concepts of all that have it. Where none counts, the clip
has the lowest level. Annotators' label sets are merged by the highest level, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.grid import (
    ROUNDING_US,
    clips_by_film,
    films_of,
    microseconds,
    read_grid,
)
from obygaze_features.annotations.issues import LEFT_OUT, Issue, different_timelines, stopped_early
from obygaze_features.common.files import refuse_to_overwrite, to_json, write_text
from obygaze_features.common.tables import format_table
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import AnnotationError, ManifestError, UsageError
from obygaze_features.manifests.format import HEADER, read_header
from obygaze_features.manifests.items import Items, format_seconds
from obygaze_features.manifests.labels import LabelScheme, LabelSet
from obygaze_features.manifests.manifest import Manifest, save_parts

if TYPE_CHECKING:
    from obygaze_features.annotations.agreement import Chance
    from obygaze_features.annotations.agreement_report import AgreementReport
    from obygaze_features.annotations.timelines import Segment, Timelines

THRESHOLD = 0.2
MERGED = "merged"
PROJECTION_RULE = (
    "a segment counts where it covers at least the threshold of a clip; the highest level wins; "
    "concepts are united at that level; the lowest level where no segment counts"
)
MERGE_RULE = (
    "the highest level wins; concepts are united among those who gave it; the ratio is the largest "
    "among them; a clip that only one annotator has is taken from that one"
)


@dataclass(frozen=True)
class ProjectedLabels:
    """A label set for each annotator, named after the annotator.

    `grid` are the clips, their scheme with the concepts that only the timelines had.
    """

    label_sets: list[LabelSet]
    grid: Manifest
    issues: list[Issue]

    def __repr__(self) -> str:
        names = join_some([labels.name for labels in self.label_sets])
        return f"ProjectedLabels({names}: {counted(len(self.grid), 'clip')})"

    @cached_property
    def manifest(self) -> Manifest:
        """The clips with the label sets."""
        return self.grid.with_parts(labels=self.label_sets)

    def merge_labels(self, name: str = MERGED) -> MergedLabels:
        """One label set of the annotators' label sets."""
        return merge_labels(self.label_sets, self.grid, name)

    def agreement(self, chance: Chance | None = None) -> AgreementReport:
        """How far the annotators agree."""
        from obygaze_features.annotations.agreement_report import agreement_report

        names = [labels.name for labels in self.label_sets]
        return agreement_report(self.manifest, names, chance)

    def save(self, folder: Path | str | None = None, *, overwrite: bool = False) -> SavedLabels:
        """Save the label sets with their clips, or into the grid's own manifest."""
        folder = folder or self.grid.folder
        if folder is None:
            raise UsageError(
                f"the grid {self.grid.name!r} is not a manifest on disk; name a folder"
            )
        return save_labels(self.grid, self.label_sets, Path(folder), overwrite=overwrite)


@dataclass(frozen=True)
class MergedLabels:
    """The merged label set, and which films had only one annotator.

    The column ``annotators`` counts those of each clip.
    """

    labels: LabelSet
    issues: list[Issue]


@dataclass(frozen=True)
class SavedLabels:
    """A manifest's default label set after saving, and the merges that were removed.

    `removed`: name -> of which label sets it was merged.
    """

    default: str | None
    removed: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class ThresholdCounts:
    """The merged labels at one threshold: clips by level, and the number of concepts in all."""

    threshold: float
    levels: dict[str, int]
    concepts: int

    @property
    def clips(self) -> int:
        """How many clips have labels."""
        return sum(self.levels.values())

    @property
    def shares(self) -> dict[str, float]:
        """Level -> its share of the clips."""
        return {level: count / self.clips for level, count in self.levels.items()}

    @property
    def concepts_per_clip(self) -> float:
        """The mean number of concepts over all clips."""
        return self.concepts / self.clips

    def to_json(self) -> dict[str, Any]:
        """Counts, shares and concepts per clip."""
        return {
            "threshold": self.threshold,
            "clips": self.clips,
            "levels": self.levels,
            "shares": self.shares,
            "concepts_per_clip": self.concepts_per_clip,
        }


def project(
    timelines: Timelines, grid: float | str | Path | Manifest, *, threshold: float = THRESHOLD
) -> ProjectedLabels:
    """Project each annotator's segments onto the clips of the films that they annotated.

    Parameters
    ----------
    timelines
        The segments.
    grid
        The clips, as for `read_grid`.
    threshold
        The share of a clip, above 0 and up to 1, that a segment must cover to count. Exactly that
        counts; so do two microseconds less, as times are rounded to one.
    """
    if not 0 < threshold <= 1:
        raise UsageError(f"a threshold is a share of a clip, above 0 and up to 1, not {threshold}")
    clips, issues = read_grid(grid, timelines)
    scheme = common_scheme(clips.scheme, timelines.scheme)
    by_film = clips_by_film(clips.items)
    about = {
        "rule": PROJECTION_RULE,
        "threshold": threshold,
        "timelines": {
            "name": timelines.name,
            "source": timelines.source,
            "licence": timelines.licence,
            "sha256": timelines.sha256,
        },
        "grid": {"name": clips.name, "digest": clips.digest},
        "obygaze": version("obygaze"),
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
            issues += stopped_early(timelines.name, film, annotator, reached, end, scheme)
            issues += [_outside_issue(segments[index], timelines.name) for index in outside]
        label_sets.append(projection.labels(annotator, {**about, "annotator": annotator}))
    return ProjectedLabels(label_sets, replace(clips, scheme=scheme), issues)


class _Projection:
    """One annotator's labels of all clips of a grid."""

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
        """Project a film's segments onto its clips; gives the segments outside all clips."""
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
        """The label set of the clips of the films that were added."""
        rows = np.flatnonzero(self.labelled)
        codes, names = self.scheme.codes, np.array(self.scheme.concept_names, object)
        # There are few distinct sets of concepts and few distinct ratios.
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
    """Pairs of a clip and a segment, among them all that have time in common.

    Clips are in order of their starts. Where they do not overlap one another, all pairs do.
    """
    first = np.searchsorted(np.maximum.accumulate(ends), segment_starts, side="right")
    counts = np.maximum(np.searchsorted(starts, segment_ends, side="left") - first, 0)
    segment = np.repeat(np.arange(len(segment_starts)), counts)
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
    """The grid's scheme, and the concepts that only the other has."""
    check_levels(grid, timelines)
    added = tuple(c for c in timelines.concepts if not grid.has_concept(c.name))
    return replace(grid, concepts=grid.concepts + added)


def _outside_issue(segment: Segment, name: str) -> Issue:
    span = f"{format_seconds(segment.start)} to {format_seconds(segment.end)} s"
    problem = f"the segment from {span} ({segment.level}) is in no clip"
    return Issue(name, segment.film, segment.annotator, problem, LEFT_OUT)


def merge_labels(
    label_sets: Sequence[LabelSet], manifest: Manifest, name: str = MERGED
) -> MergedLabels:
    """Merge label sets of a manifest; their order does not matter.

    Parameters
    ----------
    label_sets
        One for each annotator, all of one scheme.
    manifest
        The clips, in whose order the merged labels come.
    name
        The merged label set's name.
    """
    if name in [labels.name for labels in label_sets]:
        raise UsageError(f"{name!r} is one of the label sets to merge; give the result a new name")
    scheme = manifest.shared_scheme(label_sets)
    codes = scheme.codes
    rank = {code: number for number, code in enumerate(codes)}
    row_of = manifest.items.row_of
    levels = np.full((len(label_sets), len(manifest)), -1)
    ratios = np.full(levels.shape, np.nan)
    concepts: list[dict[int, tuple[str, ...]]] = []
    for index, labels in enumerate(label_sets):
        rows = np.array([row_of[identifier] for identifier in labels.ids], np.intp)
        levels[index, rows] = [rank[level] for level in labels.levels]
        if labels.ratio:
            ratios[index, rows] = _parse_ratios(labels)
        pairs = zip(rows.tolist(), labels.concepts, strict=True)
        concepts.append({row: names for row, names in pairs if names})
    best = levels.max(axis=0, initial=-1)
    ratio = np.fmax.reduce(np.where(levels == best, ratios, np.nan), axis=0)
    rows = np.flatnonzero(best >= 0)
    united: dict[int, tuple[str, ...]] = {}
    for wins, concepts_of_row in zip((levels == best).tolist(), concepts, strict=True):
        for row, names in concepts_of_row.items():
            if wins[row]:
                united[row] = united.get(row, ()) + names
    # There are few distinct sets of concepts and few distinct ratios.
    in_order = {names: scheme.in_order(map(scheme.concept, names)) for names in {*united.values()}}
    largest = ratio[rows].tolist()
    texts = {value: format_seconds(value) for value in set(largest) if value == value}
    by_name = sorted(label_sets, key=attrgetter("name"))
    merged = LabelSet(
        name,
        [manifest.ids[row] for row in rows.tolist()],
        [codes[level] for level in best[rows].tolist()],
        [in_order[united[row]] if row in united else () for row in rows.tolist()],
        [texts.get(value, "") for value in largest],
        {"annotators": [str(count) for count in (levels >= 0).sum(axis=0)[rows].tolist()]},
        {
            "rule": MERGE_RULE,
            "of": {labels.name: dict(labels.about) for labels in by_name},
            "grid": {"name": manifest.name, "digest": manifest.digest},
            "obygaze": version("obygaze"),
            **({} if scheme == manifest.scheme else {"label_scheme": scheme.to_json()}),
        },
    )
    issues = different_timelines(label_sets, manifest)
    return MergedLabels(merged, [*issues, *_single_annotator(label_sets, levels >= 0, manifest)])


def labels_to_merge(manifest: Manifest, names: Sequence[str] = ()) -> list[LabelSet]:
    """The label sets to merge: the named ones, or all that were projected onto a manifest."""
    chosen = [manifest.labels(name) for name in dict.fromkeys(names or manifest.label_names)]
    if not names:
        chosen = [labels for labels in chosen if {"timelines", "threshold"} <= set(labels.about)]
    if len(chosen) < 2:
        present = ", ".join(labels.name for labels in chosen) or "none"
        raise UsageError(
            f"merging needs the label sets of two annotators or more (got {present}); name "
            "them: --labels A --labels B"
        )
    for labels in chosen:
        if repeated := sorted({other.name for other in chosen} & set(_merged_from(labels))):
            raise UsageError(
                f"{labels.name!r} was merged from {repeated[0]!r}, which would count twice; merge "
                "annotators' label sets"
            )
    thresholds = {str(labels.about["threshold"]): labels.name for labels in chosen if not names}
    if len(thresholds) > 1:
        pairs = ", ".join(f"{name} at {threshold}" for threshold, name in thresholds.items())
        raise UsageError(
            f"label sets of different thresholds ({pairs}); project all at the same, or name those "
            "to merge: --labels A --labels B"
        )
    return chosen


def merges_of(manifest: Manifest, names: Collection[str]) -> dict[str, list[str]]:
    """The merged label sets that hold one of these, directly or by another merge -> all sources."""
    sources = {name: _merged_from(manifest.labels(name)) for name in manifest.label_names}
    merges: dict[str, list[str]] = {}
    while more := {
        name: parts
        for name, parts in sources.items()
        if name not in {*names, *merges} and not {*names, *merges}.isdisjoint(parts)
    }:
        merges |= more
    return merges


def _merged_from(labels: LabelSet) -> list[str]:
    """The label sets that one was merged from, if it was."""
    sources = labels.about.get("of")
    return list(sources) if isinstance(sources, Mapping) else []


def _parse_ratios(labels: LabelSet) -> NDArray[np.float64]:
    try:
        return np.array([float(text or "nan") for text in labels.ratio])
    except ValueError as error:
        raise ManifestError(f"the label set {labels.name!r} has a bad ratio: {error}") from None


def _single_annotator(
    label_sets: Sequence[LabelSet], has: NDArray[np.bool_], manifest: Manifest
) -> list[Issue]:
    """Films that have, in whole or in part, one annotator only."""
    clips: Counter[str] = Counter()
    single: Counter[tuple[str, str]] = Counter()
    films = films_of(manifest.items)
    annotators = has.sum(axis=0)
    for row in np.flatnonzero(annotators).tolist():
        clips[films[row]] += 1
        if annotators[row] == 1:
            single[films[row], label_sets[int(has[:, row].argmax())].name] += 1
    issues = []
    for (film, annotator), count in single.items():
        share = "" if count == clips[film] else f"{count:,} of its "
        problem = f"no second annotator for {share}{counted(clips[film], 'clip')}"
        issues.append(Issue(manifest.name, film, annotator, problem, f"taken from {annotator}"))
    return issues


def sweep(
    timelines: Timelines, grid: float | str | Path | Manifest, thresholds: Iterable[float]
) -> tuple[list[ThresholdCounts], list[Issue]]:
    """Project and merge at each threshold, in ascending order; also what was odd about it."""
    rows: list[ThresholdCounts] = []
    issues: list[Issue] = []
    for threshold in sorted(set(thresholds)):
        projected = project(timelines, grid, threshold=threshold)
        merged = projected.merge_labels()
        counts = Counter(merged.labels.levels)
        levels = {code: counts[code] for code in projected.grid.scheme.codes}
        rows.append(ThresholdCounts(threshold, levels, sum(map(len, merged.labels.concepts))))
        issues = [*projected.issues, *merged.issues]  # the same at each threshold
    return rows, issues


def sweep_csv(rows: Sequence[ThresholdCounts]) -> str:
    """The sweep as a table: a row a threshold."""
    levels = list(rows[0].levels)
    return format_table(
        {
            "threshold": [f"{row.threshold:g}" for row in rows],
            "clips": [str(row.clips) for row in rows],
            **{level: [str(row.levels[level]) for row in rows] for level in levels},
            **{f"{level}_share": [f"{row.shares[level]:.6f}" for row in rows] for level in levels},
            "concepts_per_clip": [f"{row.concepts_per_clip:.6f}" for row in rows],
        }
    )


def save_labels(
    manifest: Manifest,
    label_sets: Sequence[LabelSet],
    output: Path,
    *,
    default: str | None = None,
    overwrite: bool = False,
) -> SavedLabels:
    """Save label sets with a manifest.

    Merges of a label set that is replaced are removed, as they are out of date.

    Parameters
    ----------
    manifest
        The clips, and the scheme of the labels.
    label_sets
        What is saved with it.
    output
        The manifest's own folder, which gets the label sets; or another one, for a new manifest.
    default
        The new default label set where the manifest has none.
    overwrite
        Replace label sets of the same name, or the manifest at `output`.
    """
    in_place = manifest.folder is not None and output.resolve() == manifest.folder.resolve()
    if in_place:
        for labels in label_sets:
            refuse_to_overwrite(output / "labels" / f"{labels.name}.csv", overwrite=overwrite)
    else:
        refuse_to_overwrite(output, overwrite=overwrite)
    existing: Manifest | None = manifest
    if not in_place:
        existing = Manifest.load(output) if (output / HEADER).is_file() else None
    if existing is None or existing.digest != manifest.digest:
        default = manifest.default_labels or default
        whole = manifest.with_parts(labels=label_sets)
        replace(whole, default_labels=default).save(output, overwrite=overwrite)
        return SavedLabels(default, {})
    stale = merges_of(existing, [labels.name for labels in label_sets])
    removed = dict(sorted(stale.items(), key=lambda merge: merge[0] != existing.default_labels))
    candidates = (existing.default_labels, manifest.default_labels, default)
    default = next((name for name in candidates if name is not None and name not in removed), None)
    scheme = common_scheme(existing.scheme, manifest.scheme)
    # The header first: a scheme may have concepts that no label has, but not the reverse.
    old = read_header(output)
    header = {**old, "default_labels": default, "label_scheme": scheme.to_json()}
    if header != old:
        write_text(output / HEADER, to_json(header))
    for name in removed:
        for suffix in (".csv", ".json"):
            (output / "labels" / f"{name}{suffix}").unlink(missing_ok=True)
    if in_place:
        save_parts(output, label_sets, overwrite=True)
    else:
        whole = replace(manifest.with_parts(labels=label_sets), scheme=scheme)
        replace(whole, default_labels=default).save(output, overwrite=True)
    return SavedLabels(default, removed)
