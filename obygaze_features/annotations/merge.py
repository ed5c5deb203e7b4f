"""Merging: one label set of several annotators' label sets, by the paper's rule."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.grids import films_of
from obygaze_features.annotations.remarks import Remark
from obygaze_features.annotations.timelines import decimal
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.manifest import Manifest

__all__ = [
    "MERGED",
    "RULE",
    "Merged",
    "made_of",
    "merge",
    "other_timelines",
    "timelines_of",
    "to_merge",
]

MERGED = "merged"
RULE = (
    "the highest level wins; concepts are united among those who gave it; the ratio is the largest "
    "among them; a clip that only one annotator has is taken from that one"
)


@dataclass(frozen=True)
class Merged:
    """The merged label set, and which clips had only one annotator.

    The column ``annotators`` says of each clip how many had it.
    """

    labels: LabelSet
    remarks: list[Remark]


def merge(label_sets: Sequence[LabelSet], manifest: Manifest, name: str = MERGED) -> Merged:
    """Merge label sets of a manifest; their order does not matter.

    Parameters
    ----------
    label_sets
        One for each annotator, all of one scheme.
    manifest
        The clips, in whose order the merged ones come.
    name
        The merged label set's name.
    """
    if name in [labels.name for labels in label_sets]:
        raise UsageError(f"{name!r} is one of those that are merged; give the result a new name")
    scheme = manifest.shared_scheme(label_sets)
    codes = scheme.codes
    rank = {code: place for place, code in enumerate(codes)}
    row_of = manifest.items.row_of
    levels = np.full((len(label_sets), len(manifest)), -1)
    ratios = np.full(levels.shape, np.nan)
    concepts: list[dict[int, tuple[str, ...]]] = []
    for place, labels in enumerate(label_sets):
        rows = np.array([row_of[identifier] for identifier in labels.ids], np.intp)
        levels[place, rows] = [rank[level] for level in labels.levels]
        if labels.ratio:
            ratios[place, rows] = _numbers(labels)
        named = zip(rows.tolist(), labels.concepts, strict=True)
        concepts.append({row: names for row, names in named if names})
    best = levels.max(axis=0, initial=-1)
    ratio = np.fmax.reduce(np.where(levels == best, ratios, np.nan), axis=0)
    rows = np.flatnonzero(best >= 0)
    united: dict[int, tuple[str, ...]] = {}
    for gives, named_by in zip((levels == best).tolist(), concepts, strict=True):
        for row, names in named_by.items():
            if gives[row]:
                united[row] = united.get(row, ()) + names
    # Few sets of concepts and few ratios come again and again.
    in_order = {names: scheme.in_order(map(scheme.concept, names)) for names in {*united.values()}}
    largest = ratio[rows].tolist()
    texts = {value: decimal(value) for value in set(largest) if value == value}
    merged = LabelSet(
        name,
        [manifest.ids[row] for row in rows.tolist()],
        [codes[level] for level in best[rows].tolist()],
        [in_order[united[row]] if row in united else () for row in rows.tolist()],
        [texts.get(value, "") for value in largest],
        {"annotators": [str(count) for count in (levels >= 0).sum(axis=0)[rows].tolist()]},
        {
            "rule": RULE,
            "of": {
                labels.name: dict(labels.about)
                for labels in sorted(label_sets, key=attrgetter("name"))
            },
            "grid": {"name": manifest.name, "digest": manifest.digest},
            "obygaze": version("obygaze"),
            **({} if scheme == manifest.scheme else {"label_scheme": scheme.to_json()}),
        },
    )
    remarks = [*other_timelines(label_sets, manifest), *_alone(label_sets, levels >= 0, manifest)]
    return Merged(merged, remarks)


def other_timelines(label_sets: Sequence[LabelSet], manifest: Manifest) -> list[Remark]:
    """A remark if label sets were projected from several timelines."""
    of: dict[str, list[str]] = {}
    for labels in sorted(label_sets, key=attrgetter("name")):
        if (known := timelines_of(labels)) is not None:
            of.setdefault(known, []).append(labels.name)
    if len(of) < 2:
        return []
    groups = "; ".join(join_some(names) for names in of.values())
    what = f"projected from {len(of)} different timelines: {groups}"
    return [Remark(manifest.name, "", "", what, "taken together")]


def timelines_of(labels: LabelSet) -> str | None:
    """The SHA-256 of the timelines that a label set was projected from, if it says so."""
    timelines = labels.about.get("timelines")
    sha256 = timelines.get("sha256") if isinstance(timelines, Mapping) else None
    return sha256 if isinstance(sha256, str) else None


def to_merge(manifest: Manifest, names: Sequence[str] = ()) -> list[LabelSet]:
    """The label sets to merge: the named ones, or all that were projected onto a manifest."""
    chosen = [manifest.labels(name) for name in dict.fromkeys(names or manifest.label_names)]
    if not names:
        chosen = [labels for labels in chosen if {"timelines", "threshold"} <= set(labels.about)]
    if len(chosen) < 2:
        have = ", ".join(labels.name for labels in chosen) or "none"
        raise UsageError(
            f"merging takes the label sets of two annotators or more, and there is {have}; name "
            "them: --labels A --labels B"
        )
    for one in chosen:
        if both := sorted({other.name for other in chosen} & set(_parts(one))):
            raise UsageError(
                f"{one.name!r} was merged from {both[0]!r}, which would count twice; merge "
                "annotators' label sets"
            )
    thresholds = {str(one.about["threshold"]): one.name for one in chosen if not names}
    if len(thresholds) > 1:
        at = ", ".join(f"{name} at {threshold}" for threshold, name in thresholds.items())
        raise UsageError(
            f"label sets of different thresholds ({at}); project all at one, or name those to "
            "merge: --labels A --labels B"
        )
    return chosen


def made_of(manifest: Manifest, names: Collection[str]) -> dict[str, list[str]]:
    """The merged label sets that hold one of these, itself or by another merge -> all they hold."""
    of = {name: _parts(manifest.labels(name)) for name in manifest.label_names}
    found: dict[str, list[str]] = {}
    while more := {
        name: parts
        for name, parts in of.items()
        if name not in {*names, *found} and not {*names, *found}.isdisjoint(parts)
    }:
        found |= more
    return found


def _parts(labels: LabelSet) -> list[str]:
    """What a label set was merged from, if it was."""
    of = labels.about.get("of")
    return list(of) if isinstance(of, Mapping) else []


def _numbers(labels: LabelSet) -> NDArray[np.float64]:
    try:
        return np.array([float(text or "nan") for text in labels.ratio])
    except ValueError as error:
        raise ManifestError(f"the label set {labels.name!r} has a bad ratio: {error}") from None


def _alone(
    label_sets: Sequence[LabelSet], has: NDArray[np.bool_], manifest: Manifest
) -> list[Remark]:
    """Films that have, in whole or in part, one annotator only."""
    clips: dict[str, int] = {}
    single: dict[tuple[str, str], int] = {}
    films = films_of(manifest.items)
    numbers = has.sum(axis=0)
    for row in np.flatnonzero(numbers).tolist():
        film = films[row]
        clips[film] = clips.get(film, 0) + 1
        if numbers[row] == 1:
            who = label_sets[int(has[:, row].argmax())].name
            single[film, who] = single.get((film, who), 0) + 1
    found = []
    for (film, who), count in single.items():
        share = "" if count == clips[film] else f"{count:,} of its "
        what = f"no second annotator for {share}{counted(clips[film], 'clip')}"
        found.append(Remark(manifest.name, film, who, what, f"taken from {who}"))
    return found
