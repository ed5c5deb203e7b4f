"""What two manifests do not have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from obygaze_features.common.text import counted, join_some
from obygaze_features.manifests.manifest import Manifest

__all__ = ["Difference", "describe_difference", "difference"]


@dataclass(frozen=True)
class Difference:
    """Items of one side only, items that differ, and labels that differ."""

    same_digest: bool
    only_left: list[str]
    only_right: list[str]
    same_order: bool
    changed: dict[str, dict[str, tuple[Any, Any]]]
    labels: dict[str, dict[str, tuple[str, str]]]
    splits: dict[str, dict[str, tuple[str, str]]]

    @property
    def same(self) -> bool:
        """Whether items, label sets and splits are the same."""
        parts = (*self.labels.values(), *self.splits.values())
        return self.same_digest and not (self.changed or any(parts))

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON."""
        return {"same": self.same, **vars(self)}


def difference(left: Manifest, right: Manifest) -> Difference:
    """Compare items by id, and label sets and splits by name."""
    both = [identifier for identifier in left.ids if identifier in right]
    common = set(both)
    changed: dict[str, dict[str, tuple[Any, Any]]] = {}
    for identifier in both:
        mine, theirs = vars(left[identifier]), vars(right[identifier])
        if fields := {k: (mine[k], theirs[k]) for k in mine if mine[k] != theirs[k]}:
            changed[identifier] = fields
    return Difference(
        same_digest=left.digest == right.digest,
        only_left=[identifier for identifier in left.ids if identifier not in right],
        only_right=[identifier for identifier in right.ids if identifier not in left],
        same_order=both == [identifier for identifier in right.ids if identifier in common],
        changed=changed,
        labels={
            name: _changes(_labels(left, name), _labels(right, name))
            for name in dict.fromkeys([*left.label_names, *right.label_names])
        },
        splits={
            name: _changes(_folds(left, name), _folds(right, name))
            for name in dict.fromkeys([*left.split_names, *right.split_names])
        },
    )


def describe_difference(found: Difference, left: str, right: str) -> str:
    """The difference in words, with the first few ids of each kind."""
    if found.same:
        return "No difference: the same items in the same order, the same labels and splits."
    lines = [
        "the items are the same (equal digests): stores of one fit the other"
        if found.same_digest
        else "the items differ (other digests): stores of one do not fit the other"
    ]
    for ids, text in (
        (found.only_left, f"only in {left}"),
        (found.only_right, f"only in {right}"),
        (list(found.changed), "not alike in " + ", ".join(_fields(found))),
    ):
        if ids:
            lines.append(f"{counted(len(ids), 'item')} {text}: {join_some(ids)}")
    if not found.same_order:
        lines.append("the common items are in another order")
    for what, parts in (("labels", found.labels), ("split", found.splits)):
        for name, changes in parts.items():
            if changes:
                lines.append(f"{what} {name!r}: {counted(len(changes), 'item')} not alike")
                lines += [f"  {i}: {a} | {b}" for i, (a, b) in list(changes.items())[:5]]
    return "\n".join(lines)


def _labels(manifest: Manifest, name: str) -> dict[str, str]:
    """Id -> level and concepts, as text; nothing where there is no such label set."""
    if name not in manifest.label_names:
        return {}
    labels = manifest.labels(name)
    return {
        identifier: " ".join([level, *sorted(concepts)])
        for identifier, level, concepts in zip(
            labels.ids, labels.levels, labels.concepts, strict=True
        )
    }


def _folds(manifest: Manifest, name: str) -> dict[str, str]:
    """Id -> fold, as text; nothing where there is no such split."""
    if name not in manifest.split_names:
        return {}
    return {i: f"fold {fold}" for i, fold in manifest.split(name).fold_of.items()}


def _changes(mine: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {
        identifier: (mine.get(identifier, "none"), theirs.get(identifier, "none"))
        for identifier in dict.fromkeys([*mine, *theirs])
        if mine.get(identifier) != theirs.get(identifier)
    }


def _fields(found: Difference) -> list[str]:
    return list(dict.fromkeys(name for fields in found.changed.values() for name in fields))
