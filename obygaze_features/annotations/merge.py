"""Merge annotators' label sets by a rule, and save label sets in manifests."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.remarks import KEPT, Remark
from obygaze_features.common.files import refuse_to_overwrite, to_json, write_text
from obygaze_features.common.formatting import join_some
from obygaze_features.common.package import obygaze_version
from obygaze_features.common.tables import map_cells
from obygaze_features.errors import AnnotationError, ManifestError, UsageError, translate
from obygaze_features.items.items import Items, format_seconds
from obygaze_features.manifests.labels import LabelScheme, LabelSet
from obygaze_features.manifests.manifest import HEADER, Manifest

MERGED = "merged"
HIGHEST = "highest"
RULES = {
    HIGHEST: (
        "the highest level wins, with the concepts of all annotators who gave it and their largest "
        "ratio; a clip with one annotator keeps that annotator's level, concepts and ratio"
    ),
    "majority": (
        "the commonest level wins, and a tie is no label; with the concepts of more than half of "
        "the annotators who gave this level, and their largest ratio"
    ),
    "median": (
        "the highest level that more than half of the annotators reached, with the concepts of "
        "more than half of those who reached it, and their largest ratio"
    ),
}
"""The rules of a merge, as they are recorded."""
AT_LEAST = (
    "the highest level that at least K annotators reached, with the concepts of at least K of "
    "those who reached it, and their largest ratio; a clip with fewer annotators has no label"
)


def merge_labels(
    label_sets: Sequence[LabelSet],
    manifest: Manifest,
    name: str = MERGED,
    rule: str = HIGHEST,
) -> LabelSet:
    """Merge annotators' label sets, in any order; their schemes must be the same.

    Parameters
    ----------
    label_sets, manifest
        The label sets, and the manifest of their clips.
    name
        The name of the result. Its ``annotators`` column has the number of annotators of each clip.
    rule
        ``highest``, ``majority``, ``median``, or ``at-least-K`` such as ``at-least-3``; see
        `RULES`.
    """
    if name in [labels.name for labels in label_sets]:
        raise UsageError(f"{name!r} is one of the label sets to merge; choose another name")
    least = _least_votes(rule, len(label_sets))
    label_sets = sorted(label_sets, key=attrgetter("name"))
    scheme = manifest.shared_scheme(label_sets)
    levels, marks = votes_of(label_sets, manifest, scheme)
    ratios = np.full(levels.shape, np.nan)
    for shares, labels in zip(ratios, label_sets, strict=True):
        if labels.ratio:
            shares[manifest.items.find(labels.ids)] = _parse_ratios(labels)

    present = (levels >= 0).sum(axis=0)
    votes = np.array([(levels == rank).sum(axis=0) for rank in range(len(scheme.codes))])
    if rule == "majority":
        is_tied = (votes == votes.max(axis=0)).sum(axis=0) > 1
        chosen = np.where(is_tied | (present == 0), -1, votes.argmax(axis=0))
        voters = levels == chosen
    else:
        # How many reached each level, counted from the highest one down.
        reached = votes[::-1].cumsum(axis=0)[::-1]
        chosen = (reached >= _enough(present, least)).sum(axis=0) - 1
        voters = levels >= chosen
    voters &= (levels >= 0) & (chosen >= 0)
    enough = _enough(voters.sum(axis=0), least)[:, None]
    shown = (marks & voters[..., None]).sum(axis=0) >= enough
    ratio = np.fmax.reduce(np.where(voters, ratios, np.nan), axis=0)

    undecided = int(((present > 0) & (chosen < 0)).sum())
    about = {
        "origin": "merge",
        "merged_by": rule.replace(" ", "-"),
        "rule": RULES.get(rule, AT_LEAST),
        "undecided": undecided,
        "of": {labels.name: dict(labels.about) for labels in label_sets},
        "grid": {"name": manifest.name, "digest": manifest.digest},
        "obygaze": obygaze_version(),
    }
    if scheme != manifest.scheme:
        about["label_scheme"] = scheme.to_json()
    merged = labels_in_rows(name, manifest.items, scheme, chosen, shown, ratio, about)
    counts = present[chosen >= 0]
    return replace(merged, extra={"annotators": counts.astype(str).tolist()})


def _least_votes(rule: str, annotators: int) -> int:
    """Return how many annotators a rule needs, or 0 if it needs more than half of them."""
    if rule in RULES:
        return int(rule == HIGHEST)
    match = re.fullmatch("at-least[- ]([1-9][0-9]{0,3})", rule)
    if match is None:
        raise UsageError(f"no rule {rule!r}; use {', '.join(RULES)} or at-least-K (at-least-3)")
    if int(match[1]) > annotators:
        raise UsageError(f"{rule}: there are only {annotators} annotators; use a smaller K")
    return int(match[1])


def _enough(counts: NDArray[np.intp], least: int) -> NDArray[np.intp]:
    return np.full_like(counts, least) if least else counts // 2 + 1


def votes_of(
    label_sets: Sequence[LabelSet],
    manifest: Manifest,
    scheme: LabelScheme,
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the ranks of levels [sets, clips] and the marks [sets, clips, concepts].

    The rank is -1 where a set has no label of a clip.
    """
    ranks = np.full((len(label_sets), len(manifest)), -1)
    marks = np.zeros((*ranks.shape, len(scheme.concepts)), bool)
    for index, labels in enumerate(label_sets):
        rows = manifest.items.find(labels.ids)
        ranks[index, rows] = list(map(scheme.codes.index, labels.levels))
        marks[index, rows] = concept_marks(labels.concepts, scheme)
    return ranks, marks


def concept_marks(concepts: Sequence[tuple[str, ...]], scheme: LabelScheme) -> NDArray[np.bool_]:
    """Return a row for each cell of concepts: True in the columns of the concepts in the cell."""

    def marked(names: tuple[str, ...]) -> NDArray[np.bool_]:
        return np.isin(scheme.concept_names, list(map(scheme.concept, names)))

    marks = map_cells(marked, concepts)
    return np.array(marks, bool).reshape(len(concepts), len(scheme.concepts))


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

    ids = np.array(items.ids, object)
    codes = np.array(scheme.codes, object)
    return LabelSet(
        name,
        ids[rows].tolist(),
        codes[levels[rows]].tolist(),
        map_cells(read_concepts, [ticked.tobytes() for ticked in marks[rows]]),
        map_cells(format_ratio, ratios[rows].tolist()),
        about=about,
    )


def chosen_labels(manifest: Manifest, names: Sequence[str]) -> list[LabelSet]:
    """Return the label sets to merge or compare: those in `names`, or all annotators'."""
    chosen = list(map(manifest.labels, sorted(set(names or manifest.annotators))))
    sources = set[str]()
    for labels in chosen:
        sources |= {*labels.merged_from, *labels.merged_annotators}
    if len(chosen) < 2 or not sources.isdisjoint(labels.name for labels in chosen):
        present = [f"{s} ({manifest.labels(s).origin or 'unknown'})" for s in manifest.label_names]
        raise UsageError(
            f"{manifest.name}: no two annotators are chosen from {join_some(present) or 'none'}. "
            "Pass at least two label sets, none merged from another: --labels A --labels B"
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
            f"({', '.join(timelines.codes)}); import the clips again as another manifest, "
            "without labels (their stores fit both)"
        )


def common_scheme(grid: Manifest, timelines: LabelScheme) -> LabelScheme:
    """Return the grid's scheme plus the timelines' concepts.

    If the grid has different levels, but no label set uses them, return the timelines' scheme.
    """
    own = ["label_scheme" in grid.labels(name).about for name in grid.label_names]
    if all(own) and grid.scheme.codes != timelines.codes:
        return timelines
    check_levels(grid.scheme, timelines)
    return grid.scheme.with_concepts(timelines.concepts)


def save_labels(
    manifest: Manifest,
    label_sets: Sequence[LabelSet],
    output: Path,
    *,
    default: str | None = None,
    overwrite: bool,
) -> list[Remark]:
    """Save label sets to a folder, with `manifest` unless the folder has the same items.

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
