"""Compare two manifests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from obygaze_features.common.text import counted, join_some
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.splits import Split

P = TypeVar("P", LabelSet, Split)

MAX_CHANGES_SHOWN = 5


@dataclass(frozen=True)
class ManifestDiff:
    """The items, labels and splits in which two manifests differ."""

    same_digest: bool
    only_left: list[str]
    only_right: list[str]
    same_order: bool
    changed: dict[str, dict[str, tuple[Any, Any]]]
    labels: dict[str, dict[str, tuple[str, str]]]
    splits: dict[str, dict[str, tuple[str, str]]]

    @property
    def same(self) -> bool:
        """True if items, label sets and splits are the same."""
        parts = (*self.labels.values(), *self.splits.values())
        return self.same_digest and not (self.changed or any(parts))

    def to_json(self) -> dict[str, Any]:
        """Return the difference as JSON."""
        return {"same": self.same, **vars(self)}

    def describe(self, left: str, right: str) -> str:
        """Return the difference as text, with the first few ids of each kind."""
        if self.same:
            return "No difference: items, order, labels and splits are the same."
        lines = [
            "the digests are equal, so both manifests fit the same stores"
            if self.same_digest
            else "the digests differ, so the manifests cannot share stores"
        ]
        fields = dict.fromkeys(name for changes in self.changed.values() for name in changes)
        for ids, text in (
            (self.only_left, f"only in {left}"),
            (self.only_right, f"only in {right}"),
            (list(self.changed), f"with a different {', '.join(fields)}"),
        ):
            if ids:
                lines.append(f"{counted(len(ids), 'item')} {text}: {join_some(ids)}")
        if not self.same_order:
            lines.append("the common items are in a different order")
        for kind, parts in (("labels", self.labels), ("split", self.splits)):
            for name, changes in parts.items():
                if changes:
                    lines.append(f"{kind} {name!r}: {counted(len(changes), 'item')} changed")
                    first = list(changes.items())[:MAX_CHANGES_SHOWN]
                    lines += [f"  {i}: {before} | {after}" for i, (before, after) in first]
        return "\n".join(lines)


def diff(left: Manifest, right: Manifest) -> ManifestDiff:
    """Compare items by id, and label sets and splits by name."""
    same_digest = left.digest == right.digest
    is_same = same_digest and _columns(left) == _columns(right)
    common = left.ids if same_digest else [i for i in left.ids if i in right]
    common_right = right.ids if same_digest else [i for i in right.ids if i in left]
    changed: dict[str, dict[str, tuple[Any, Any]]] = {}
    for identifier in [] if is_same else common:
        before, after = vars(left[identifier]), vars(right[identifier])
        if fields := {k: (before[k], after[k]) for k in before if before[k] != after[k]}:
            changed[identifier] = fields
    return ManifestDiff(
        same_digest=same_digest,
        only_left=[] if same_digest else [i for i in left.ids if i not in right],
        only_right=[] if same_digest else [i for i in right.ids if i not in left],
        same_order=common == common_right,
        changed=changed,
        labels=_changes(_label_sets(left), _label_sets(right), _label_texts),
        splits=_changes(_splits(left), _splits(right), _fold_texts),
    )


def _columns(manifest: Manifest) -> list[object]:
    """Return the columns to compare, in a form that is fast to compare."""
    items = manifest.items
    times = np.nan_to_num([items.starts, items.ends], nan=-1.0).tobytes()
    return [items.ids, items.kinds, items.films, items.media, items.texts, times]


def _label_sets(manifest: Manifest) -> dict[str, LabelSet]:
    return {name: manifest.labels(name) for name in manifest.label_names}


def _splits(manifest: Manifest) -> dict[str, Split]:
    return {name: manifest.split(name) for name in manifest.split_names}


def _label_texts(labels: LabelSet) -> dict[str, str]:
    """Return each id's level and concepts as text."""
    return {i: " ".join([labels.level_of[i], *sorted(labels.concepts_of[i])]) for i in labels.ids}


def _fold_texts(split: Split) -> dict[str, str]:
    return {i: f"fold {fold}" for i, fold in split.fold_of.items()}


def _changes(
    left: Mapping[str, P], right: Mapping[str, P], describe: Callable[[P], Mapping[str, str]]
) -> dict[str, dict[str, tuple[str, str]]]:
    """Return both texts of each difference by name and id, left first; missing texts are "none"."""
    changes: dict[str, dict[str, tuple[str, str]]] = {}
    for name in dict.fromkeys([*left, *right]):
        part, other_part = left.get(name), right.get(name)
        if part == other_part:
            changes[name] = {}
            continue
        a: Mapping[str, str] = {} if part is None else describe(part)
        b: Mapping[str, str] = {} if other_part is None else describe(other_part)
        pairs = {i: (a.get(i, "none"), b.get(i, "none")) for i in dict.fromkeys([*a, *b])}
        changes[name] = {i: texts for i, texts in pairs.items() if texts[0] != texts[1]}
    return changes
