"""Merge annotators' label sets by the highest level, and save label sets in manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.remarks import Remark, label_set_remarks
from obygaze_features.common.files import refuse_to_overwrite, to_json, write_text
from obygaze_features.common.package import obygaze_version
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import AnnotationError, ManifestError, UsageError
from obygaze_features.items.items import format_seconds
from obygaze_features.manifests.labels import LabelScheme, LabelSet
from obygaze_features.manifests.manifest import HEADER, Manifest, read_header, save_parts

MERGED = "merged"
MERGE_RULE = (
    "the highest level wins, with the concepts of all annotators who gave it and their largest "
    "ratio; a clip with one annotator keeps that annotator's level, concepts and ratio"
)


@dataclass(frozen=True)
class MergedLabels:
    """A merged label set, with remarks, for example on films that have only one annotator.

    The label set's ``annotators`` column has the number of annotators of each clip. `of_all` maps
    each level to the number of clips that have it in all label sets. `sources` is the number of
    label sets that were merged.
    """

    labels: LabelSet
    remarks: list[Remark]
    of_all: Mapping[str, int]
    sources: int


@dataclass(frozen=True)
class SavedLabels:
    """The manifest's default label set after saving, and remarks on merges that were removed."""

    default: str | None
    remarks: list[Remark]


def merge_labels(
    label_sets: Sequence[LabelSet], manifest: Manifest, name: str = MERGED
) -> MergedLabels:
    """Merge annotators' label sets, in any order; their schemes must be the same."""
    if name in [labels.name for labels in label_sets]:
        raise UsageError(f"{name!r} is one of the label sets to merge; choose another name")
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
    # Convert each distinct set of concepts and each distinct ratio once, because there are few.
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
            "origin": "merge",
            "rule": MERGE_RULE,
            "of": {labels.name: dict(labels.about) for labels in by_name},
            "grid": {"name": manifest.name, "digest": manifest.digest},
            "obygaze": obygaze_version(),
            **({} if scheme == manifest.scheme else {"label_scheme": scheme.to_json()}),
        },
    )
    remarks = label_set_remarks(label_sets, manifest)
    remarks += _single_annotator(label_sets, levels >= 0, manifest)
    of_all = {code: int((levels == row).all(axis=0).sum()) for row, code in enumerate(codes)}
    return MergedLabels(merged, remarks, of_all, len(label_sets))


def labels_to_merge(manifest: Manifest, names: Sequence[str] = ()) -> list[LabelSet]:
    """Return the label sets to merge: those in `names`, or all annotators' label sets."""
    chosen = [manifest.labels(name) for name in dict.fromkeys(names or manifest.annotators)]
    if len(chosen) < 2:
        present = ", ".join(labels.name for labels in chosen) or "none"
        raise UsageError(
            f"merging needs label sets from at least two annotators (got {present}); choose "
            "label sets: --labels A --labels B"
        )
    for labels in chosen:
        if repeated := sorted({label_set.name for label_set in chosen} & set(labels.merged_from)):
            raise UsageError(
                f"{labels.name!r} was merged from {repeated[0]!r}, which would count twice; merge "
                "only annotators' label sets"
            )
    projected = [] if names else [labels for labels in chosen if "threshold" in labels.about]
    thresholds = {str(labels.about["threshold"]): labels.name for labels in projected}
    if len(thresholds) > 1:
        pairs = ", ".join(f"{name} at {threshold}" for threshold, name in thresholds.items())
        raise UsageError(
            f"label sets have different thresholds ({pairs}); project again with one threshold, or "
            "choose the sets to merge: --labels A --labels B"
        )
    return chosen


def merges_of(manifest: Manifest, names: Collection[str]) -> dict[str, list[str]]:
    """Return the sources of each merge that includes one of these label sets, even indirectly."""
    sources = {name: manifest.labels(name).merged_from for name in manifest.label_names}
    merges: dict[str, list[str]] = {}
    while more := {
        name: parts
        for name, parts in sources.items()
        if name not in {*names, *merges} and not {*names, *merges}.isdisjoint(parts)
    }:
        merges |= more
    return merges


def _parse_ratios(labels: LabelSet) -> NDArray[np.float64]:
    try:
        return np.array([float(text or "nan") for text in labels.ratio])
    except ValueError as error:
        raise ManifestError(f"label set {labels.name!r} has an invalid ratio: {error}") from None


def _single_annotator(
    label_sets: Sequence[LabelSet], has_clip: NDArray[np.bool_], manifest: Manifest
) -> list[Remark]:
    """Return remarks on films that have only one annotator for some or all clips."""
    clips: Counter[str] = Counter()
    single: Counter[tuple[str, str]] = Counter()
    films = manifest.items.span_films
    annotators = has_clip.sum(axis=0)
    for row in np.flatnonzero(annotators).tolist():
        clips[films[row]] += 1
        if annotators[row] == 1:
            single[films[row], label_sets[int(has_clip[:, row].argmax())].name] += 1
    remarks = []
    for (film, annotator), count in single.items():
        share = "" if count == clips[film] else f"{count:,} of "
        problem = f"no second annotator for {share}{counted(clips[film], 'clip')}"
        done = f"taken from {annotator}"
        remarks.append(Remark(manifest.name, film, annotator, problem, done, "single-annotator"))
    return remarks


def check_levels(grid: LabelScheme, timelines: LabelScheme) -> None:
    """Raise unless clips and timelines have the same levels (codes, names or aliases)."""
    same_levels = all(map(grid.has_level, timelines.codes))
    if not same_levels or tuple(map(grid.level, timelines.codes)) != grid.codes:
        raise AnnotationError(
            f"the clips' levels ({', '.join(grid.codes)}) differ from the timelines' levels "
            f"({', '.join(timelines.codes)}); project the timelines onto a grid without labels, "
            "such as 60 (seconds)"
        )


def common_scheme(grid: Manifest, timelines: LabelScheme) -> LabelScheme:
    """Return the grid's scheme plus the timelines' concepts.

    If the grid has different levels but no labels, return the timelines' scheme.
    """
    if not grid.label_names and grid.scheme.codes != timelines.codes:
        return timelines
    check_levels(grid.scheme, timelines)
    return grid.scheme.with_concepts(timelines.concepts)


def save_labels(
    manifest: Manifest,
    label_sets: Sequence[LabelSet],
    output: Path,
    *,
    default: str | None = None,
    overwrite: bool = False,
) -> SavedLabels:
    """Save label sets in their manifest's folder, or with the whole manifest in another folder.

    If a label set is replaced, merges that include it are outdated and are removed. `default`
    becomes the default label set of a manifest that has none.
    """
    in_place = manifest.folder is not None and output.resolve() == manifest.folder.resolve()
    tables = [output / "labels" / f"{labels.name}.csv" for labels in label_sets]
    for path in tables if in_place else [output]:
        refuse_to_overwrite(path, overwrite=overwrite)
    existing = manifest if in_place else None
    if not in_place and (output / HEADER).is_file():
        existing = Manifest.load(output)
    if existing is None or existing.digest != manifest.digest:
        default = manifest.default_labels or default
        extended = manifest.with_parts(labels=label_sets)
        replace(extended, default_labels=default).save(output, overwrite=overwrite)
        return SavedLabels(default, [])
    stale = merges_of(existing, [labels.name for labels in label_sets])
    removed = dict(sorted(stale.items(), key=lambda merge: merge[0] != existing.default_labels))
    candidates = (existing.default_labels, manifest.default_labels, default)
    default = next((name for name in candidates if name is not None and name not in removed), None)
    scheme = common_scheme(existing, manifest.scheme)
    # Write the header first: a scheme may have unused concepts, but labels need their concepts.
    old = read_header(output)
    header = {**old, "default_labels": default, "label_scheme": scheme.to_json()}
    if header != old:
        write_text(output / HEADER, to_json(header))
    remarks = []
    for name, sources in removed.items():
        problem = f"was merged from {join_some(sources)} before labels changed"
        remarks.append(Remark(name, "", "", problem, "removed; merge again"))
        for suffix in (".csv", ".json"):
            (output / "labels" / f"{name}{suffix}").unlink(missing_ok=True)
    if in_place:
        save_parts(output, label_sets, overwrite=True)
    else:
        merged = replace(manifest.with_parts(labels=label_sets), scheme=scheme)
        replace(merged, default_labels=default).save(output, overwrite=True)
    return SavedLabels(default, remarks)
