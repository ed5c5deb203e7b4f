"""What two manifests do not have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from obygaze_features.manifests.manifest import Manifest

__all__ = ["Difference", "difference"]


@dataclass(frozen=True)
class Difference:
    """Items of one side only, items that differ, and labels that differ."""

    same_digest: bool
    only_left: list[str]
    only_right: list[str]
    same_order: bool
    changed: dict[str, dict[str, tuple[Any, Any]]]
    labels: dict[str, dict[str, tuple[str, str]]]

    @property
    def none(self) -> bool:
        """Whether the manifests are the same."""
        return self.same_digest and not (self.changed or any(self.labels.values()))

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON."""
        return {**vars(self), "none": self.none}


def difference(left: Manifest, right: Manifest) -> Difference:
    """Compare items by id, and the label sets that both have by name."""
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
            name: _labels(left, right, name)
            for name in left.label_names
            if name in right.label_names
        },
    )


def describe_difference(found: Difference, left: str, right: str) -> str:
    """The difference in words, with the first few ids of each kind."""
    if found.none:
        return "No difference: the same items, in the same order, with the same labels."
    lines = [
        "the items are the same (equal digests): stores of one fit the other"
        if found.same_digest
        else "the items differ (other digests): stores of one do not fit the other"
    ]
    for ids, text in (
        (found.only_left, f"only in {left}"),
        (found.only_right, f"only in {right}"),
        (list(found.changed), "differ in " + ", ".join(_fields(found))),
    ):
        if ids:
            lines.append(f"{len(ids):,} items {text}: {_some(ids)}")
    if not found.same_order:
        lines.append("the common items are in another order")
    for name, changes in found.labels.items():
        if changes:
            lines.append(f"labels {name!r}: {len(changes):,} items differ")
            lines += [f"  {i}: {a} | {b}" for i, (a, b) in list(changes.items())[:5]]
    return "\n".join(lines)


def _labels(left: Manifest, right: Manifest, name: str) -> dict[str, tuple[str, str]]:
    sides = []
    for manifest in (left, right):
        labels = manifest.labels(name)
        sides.append(
            {
                i: " ".join([level, *sorted(concepts)])
                for i, level, concepts in zip(
                    labels.ids, labels.levels, labels.concepts, strict=True
                )
            }
        )
    mine, theirs = sides
    return {
        identifier: (mine.get(identifier, "no label"), theirs.get(identifier, "no label"))
        for identifier in dict.fromkeys([*mine, *theirs])
        if mine.get(identifier) != theirs.get(identifier)
    }


def _fields(found: Difference) -> list[str]:
    return list(dict.fromkeys(name for fields in found.changed.values() for name in fields))


def _some(ids: list[str], most: int = 5) -> str:
    more = f" and {len(ids) - most:,} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more
