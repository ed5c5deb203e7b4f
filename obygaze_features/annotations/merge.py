"""Merge annotators' label sets by the highest level, and save label sets in manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.remarks import KEPT, Remark
from obygaze_features.common.files import refuse_to_overwrite, to_json, write_text
from obygaze_features.common.package import obygaze_version
from obygaze_features.common.text import join_some
from obygaze_features.errors import AnnotationError, ManifestError, UsageError
from obygaze_features.items.items import format_seconds
from obygaze_features.manifests.labels import LabelScheme, LabelSet
from obygaze_features.manifests.manifest import HEADER, Manifest

MERGED = "merged"
MERGE_RULE = (
    "the highest level wins, with the concepts of all annotators who gave it and their largest "
    "ratio; a clip with one annotator keeps that annotator's level, concepts and ratio"
)


def merge_labels(
    label_sets: Sequence[LabelSet], manifest: Manifest, name: str = MERGED
) -> LabelSet:
    """Merge annotators' label sets, in any order; their schemes must be the same.

    The ``annotators`` column of the result has the number of annotators of each clip.
    """
    if name in [labels.name for labels in label_sets]:
        raise UsageError(f"{name!r} is one of the label sets to merge; choose another name")
    label_sets = sorted(label_sets, key=lambda labels: labels.name)
    scheme = manifest.shared_scheme(label_sets)
    codes = scheme.codes
    rank = {code: number for number, code in enumerate(codes)}
    row_of = manifest.items.row_of
    levels = np.full((len(label_sets), len(manifest)), -1)
    ratios = np.full(levels.shape, np.nan)
    for index, labels in enumerate(label_sets):
        rows = np.array([row_of[identifier] for identifier in labels.ids], np.intp)
        levels[index, rows] = [rank[level] for level in labels.levels]
        if labels.ratio:
            ratios[index, rows] = _parse_ratios(labels)
    best = levels.max(axis=0, initial=-1)
    ratio = np.fmax.reduce(np.where(levels == best, ratios, np.nan), axis=0)
    rows = np.flatnonzero(best >= 0)
    united: dict[int, tuple[str, ...]] = {}
    for wins, labels in zip((levels == best).tolist(), label_sets, strict=True):
        for identifier, names in zip(labels.ids, labels.concepts, strict=True):
            row = row_of[identifier]
            if names and wins[row]:
                united[row] = united.get(row, ()) + names
    # Convert each distinct set of concepts and each distinct ratio once, because there are few.
    in_order = {names: scheme.in_order(names) for names in {*united.values()}}
    largest = ratio[rows].tolist()
    texts = {value: format_seconds(value) for value in set(largest) if value == value}
    about = {
        "origin": "merge",
        "rule": MERGE_RULE,
        "of": {labels.name: dict(labels.about) for labels in label_sets},
        "grid": {"name": manifest.name, "digest": manifest.digest},
        "obygaze": obygaze_version(),
    }
    if scheme != manifest.scheme:
        about["label_scheme"] = scheme.to_json()
    return LabelSet(
        name,
        [manifest.ids[row] for row in rows.tolist()],
        [codes[level] for level in best[rows].tolist()],
        [in_order[united[row]] if row in united else () for row in rows.tolist()],
        [texts.get(value, "") for value in largest],
        {"annotators": [str(count) for count in (levels >= 0).sum(axis=0)[rows].tolist()]},
        about,
    )


def chosen_labels(manifest: Manifest, names: Sequence[str] = ()) -> list[LabelSet]:
    """Return the label sets to merge or compare: those in `names`, or all annotators'."""
    chosen = [manifest.labels(name) for name in sorted({*(names or manifest.annotators)})]
    sources = set[str]()
    for labels in chosen:
        sources |= {*labels.merged_from, *labels.merged_annotators}
    if len(chosen) < 2 or not sources.isdisjoint(labels.name for labels in chosen):
        present = [f"{s} ({manifest.labels(s).origin or 'unknown'})" for s in manifest.label_names]
        raise UsageError(
            f"{manifest.name}: pass the label sets of at least two annotators, none merged from "
            f"another (it has {join_some(present) or 'none'}): --labels A --labels B"
        )
    return chosen


def _parse_ratios(labels: LabelSet) -> NDArray[np.float64]:
    try:
        return np.array([float(text or "nan") for text in labels.ratio])
    except ValueError as error:
        raise ManifestError(f"label set {labels.name!r} has an invalid ratio: {error}") from None


def check_levels(grid: LabelScheme, timelines: LabelScheme) -> None:
    """Raise unless clips and timelines have the same levels (codes, names or aliases)."""
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
    """Save label sets in a folder, with their manifest if the folder has none of the same items.

    `default` becomes the default label set of a manifest that has none. Returns a remark on each
    merge of labels that were replaced.
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
            problem = "was merged from labels that are replaced; merge again"
            remarks.append(Remark(name, "", "", problem, KEPT))
    for labels in label_sets:
        existing.add(labels, overwrite=True)
    return remarks
