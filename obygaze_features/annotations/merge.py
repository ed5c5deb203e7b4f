"""Merge annotators' label sets by the highest level, and save label sets in manifests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.remarks import KEPT, Remark
from obygaze_features.common.files import refuse_to_overwrite, to_json, write_text
from obygaze_features.common.package import obygaze_version
from obygaze_features.common.tables import map_cells
from obygaze_features.common.text import join_some
from obygaze_features.errors import AnnotationError, ManifestError, UsageError, translate
from obygaze_features.items.items import Items, format_seconds
from obygaze_features.manifests.labels import LabelScheme, LabelSet
from obygaze_features.manifests.manifest import HEADER, Manifest

MERGED = "merged"
MERGE_RULE = (
    "the highest level wins, with the concepts of all annotators who gave it and their largest "
    "ratio; a clip with one annotator keeps that annotator's level, concepts and ratio"
)


def merge_labels(
    label_sets: Sequence[LabelSet],
    manifest: Manifest,
    name: str = MERGED,
) -> LabelSet:
    """Merge annotators' label sets, in any order; their schemes must be the same.

    The ``annotators`` column of the result has the number of annotators of each clip.
    """
    if name in [labels.name for labels in label_sets]:
        raise UsageError(f"{name!r} is one of the label sets to merge; choose another name")
    label_sets = sorted(label_sets, key=attrgetter("name"))
    scheme = manifest.shared_scheme(label_sets)
    levels = np.full((len(label_sets), len(manifest)), -1)
    ratios = np.full(levels.shape, np.nan)
    for index, labels in enumerate(label_sets):
        rows = manifest.items.find(labels.ids)
        levels[index, rows] = list(map(scheme.codes.index, labels.levels))
        if labels.ratio:
            ratios[index, rows] = _parse_ratios(labels)

    best = levels.max(axis=0, initial=-1)
    wins = levels == best
    ratio = np.fmax.reduce(np.where(wins, ratios, np.nan), axis=0)
    marks = np.zeros((len(manifest), len(scheme.concepts)), bool)
    for own_wins, labels in zip(wins, label_sets, strict=True):
        rows = manifest.items.find(labels.ids)
        marks[rows] |= concept_marks(labels.concepts, scheme) & own_wins[rows, None]

    about = {
        "origin": "merge",
        "rule": MERGE_RULE,
        "of": {labels.name: dict(labels.about) for labels in label_sets},
        "grid": {"name": manifest.name, "digest": manifest.digest},
        "obygaze": obygaze_version(),
    }
    if scheme != manifest.scheme:
        about["label_scheme"] = scheme.to_json()
    merged = labels_in_rows(name, manifest.items, scheme, best, marks, ratio, about)
    counts = (levels >= 0).sum(axis=0)[best >= 0]
    return replace(merged, extra={"annotators": counts.astype(str).tolist()})


def concept_marks(concepts: Sequence[tuple[str, ...]], scheme: LabelScheme) -> NDArray[np.bool_]:
    """Return a row for each cell of concepts: True in the columns of the concepts in the cell."""

    def columns_of(names: tuple[str, ...]) -> list[int]:
        return list(map(scheme.concept_names.index, map(scheme.concept, names)))

    columns = map_cells(columns_of, concepts)
    rows = np.repeat(np.arange(len(concepts)), list(map(len, concepts)))
    marks = np.zeros((len(concepts), len(scheme.concepts)), bool)
    marks[rows, list(chain.from_iterable(columns))] = True
    return marks


def labels_in_rows(
    name: str,
    items: Items,
    scheme: LabelScheme,
    levels: NDArray[np.intp],
    marks: NDArray[np.bool_],
    ratios: NDArray[np.float64],
    about: Mapping[str, Any],
) -> LabelSet:
    """Return a label set, given each item's level (-1 if it has none), marks and ratio (or NaN)."""
    rows = np.flatnonzero(levels >= 0)
    concept_names = np.array(scheme.concept_names, object)

    def read_concepts(ticked: bytes) -> tuple[str, ...]:
        return tuple(concept_names[np.frombuffer(ticked, bool)])

    def format_ratio(ratio: float) -> str:
        return "" if math.isnan(ratio) else format_seconds(ratio)

    return LabelSet(
        name,
        np.array(items.ids, object)[rows].tolist(),
        np.array(scheme.codes, object)[levels[rows]].tolist(),
        map_cells(read_concepts, [ticked.tobytes() for ticked in marks[rows]]),
        map_cells(format_ratio, ratios[rows].tolist()),
        about=about,
    )


def chosen_labels(manifest: Manifest, names: Sequence[str] = ()) -> list[LabelSet]:
    """Return the label sets to merge or compare: those in `names`, or all annotators'."""
    chosen = list(map(manifest.labels, sorted(set(names or manifest.annotators))))
    sources = set[str]()
    for labels in chosen:
        sources |= {*labels.merged_from, *labels.merged_annotators}
    if len(chosen) < 2 or not sources.isdisjoint(labels.name for labels in chosen):
        present = [f"{s} ({manifest.labels(s).origin or 'unknown'})" for s in manifest.label_names]
        raise UsageError(
            f"{manifest.name}: pass the label sets of at least two annotators, none merged from "
            f"another (the manifest has {join_some(present) or 'none'}): --labels A --labels B"
        )
    return chosen


def _parse_ratios(labels: LabelSet) -> NDArray[np.float64]:
    reason = "has an invalid ratio ({}); write a number or nothing"
    with translate(ManifestError, f"label set {labels.name!r}", reason):
        return np.array([float(text or "nan") for text in labels.ratio])


def check_levels(grid: LabelScheme, timelines: LabelScheme) -> None:
    """Raise unless the timelines and the grid have the same levels, in the same order."""
    known = all(map(grid.has_level, timelines.codes))
    if not known or tuple(map(grid.level, timelines.codes)) != grid.codes:
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
) -> list[Remark]:
    """Save label sets to a folder, with `manifest` if the folder has other items or none.

    `default` becomes the default label set of a manifest that has none. Returns a remark on each
    label set that was merged from labels that have now been replaced.
    """
    existing = manifest
    if (output / HEADER).is_file():
        existing = Manifest.load(output)
    default = existing.default_labels or default
    if existing is manifest or existing.digest != manifest.digest:
        whole = replace(manifest.with_parts(*label_sets), default_labels=default)
        whole.save(output, overwrite=overwrite)
        return []

    for labels in label_sets:
        refuse_to_overwrite(output / "labels" / f"{labels.name}.csv", overwrite=overwrite)
    # Write the header first: a scheme may have unused concepts, but labels need their concepts.
    scheme = common_scheme(existing, manifest.scheme)
    existing = replace(existing, scheme=scheme, default_labels=default)
    write_text(output / HEADER, to_json(existing.header()))

    remarks = []
    saved = {labels.name for labels in label_sets}
    for name in existing.label_names:
        labels = existing.labels(name)
        if saved & {*labels.merged_from, *labels.merged_annotators}:
            problem = "was merged from labels that have been replaced; merge again"
            remarks.append(Remark(name, "", "", problem, KEPT))
    for labels in label_sets:
        existing.add(labels, overwrite=True)
    return remarks
