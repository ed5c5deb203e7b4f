"""Splits: a fold for each id. Made here, or read from files that others made."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from obygaze_features.common.tables import Table, format_table
from obygaze_features.common.text import counted, shorten
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests.items import Items
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.overlap import first_overlap

__all__ = ["Split", "leave_film_out", "problems", "stratified"]


@dataclass(frozen=True)
class Split:
    """A fold for each of some ids; `classes` keeps the class that a split's source gave them."""

    name: str
    ids: list[str]
    folds: list[int]
    classes: list[str] = field(default_factory=list)
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            twice = next(i for i, count in Counter(self.ids).items() if count > 1)
            raise ManifestError(f"the split {self.name!r} has the id {twice!r} twice")

    def __repr__(self) -> str:
        folds = counted(len(set(self.folds)), "fold")
        return f"Split({self.name!r}, {counted(len(self), 'item')} in {folds})"

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def fold_of(self) -> dict[str, int]:
        """Id -> fold."""
        return dict(zip(self.ids, self.folds, strict=True))

    @cached_property
    def class_of(self) -> dict[str, str]:
        """Id -> class, where the split's source named classes."""
        return dict(zip(self.ids, self.classes, strict=True)) if self.classes else {}

    @property
    def last_fold(self) -> int:
        """The highest fold: the test fold by convention."""
        if not self.folds:
            raise ManifestError(f"the split {self.name!r} is empty")
        return max(self.folds)

    def fold(self, number: int) -> list[str]:
        """The ids of one fold."""
        return [i for i, fold in zip(self.ids, self.folds, strict=True) if fold == number]

    @property
    def sizes(self) -> list[int]:
        """How many ids each fold has, from fold 0 on."""
        counts = Counter(self.folds)
        return [counts[number] for number in range(self.last_fold + 1)]

    def where(self, keep: Callable[[str], bool]) -> Split:
        """The split of the ids that `keep` accepts; folds keep their numbers."""
        rows = [row for row, identifier in enumerate(self.ids) if keep(identifier)]
        return Split(
            self.name,
            [self.ids[row] for row in rows],
            [self.folds[row] for row in rows],
            [self.classes[row] for row in rows] if self.classes else [],
            self.about,
        )

    @classmethod
    def from_table(cls, name: str, table: Table, about: Mapping[str, Any]) -> Split:
        """A split from a CSV table with ``id`` and ``fold``; raises on the first bad row."""
        for row, message in problems(table):
            raise table.problem(row, message)
        return cls(
            name,
            ids=table["id"],
            folds=[int(fold) for fold in table["fold"]],
            classes=table.columns.get("class", []),
            about=about,
        )

    def to_csv(self) -> str:
        """The table as it is saved in ``splits/NAME.csv``."""
        columns: dict[str, Sequence[str]] = {
            "id": self.ids,
            "fold": [str(fold) for fold in self.folds],
        }
        if self.classes:
            columns["class"] = self.classes
        return format_table(columns)


def stratified(
    name: str, items: Items, labels: LabelSet, *, folds: int = 10, seed: int = 0
) -> Split:
    """One fold for every labelled item, the levels spread evenly over the folds.

    Within a level the items are shuffled and dealt out in turn; the next level goes on where the
    last one stopped, so that neither a level's nor the folds' sizes differ by more than one.
    Shuffled means in the order of the SHA-256 of "seed:id": a split that a paper names by its
    seed comes out the same for everybody, whatever the release of any library.
    """
    if folds < 2:
        raise UsageError(f"a split needs at least 2 folds, not {folds}")
    if folds > len(labels):
        raise UsageError(
            f"there are {len(labels)} labelled items for {folds} folds; take fewer folds"
        )
    if overlap := first_overlap(items, labels.ids):
        raise UsageError(
            f"{overlap[0]} and {overlap[1]} show the same seconds of a film, so that folds of "
            "single items would leak; leave whole films out with --by-film"
        )
    fold_of: dict[str, int] = {}
    for level in sorted(set(labels.levels)):
        members = (i for i, other in zip(labels.ids, labels.levels, strict=True) if other == level)
        for identifier in sorted(
            members, key=lambda i: hashlib.sha256(f"{seed}:{i}".encode()).digest()
        ):
            fold_of[identifier] = len(fold_of) % folds
    about = {"method": "stratified by level", "labels": labels.name, "folds": folds, "seed": seed}
    return Split(name, labels.ids, [fold_of[identifier] for identifier in labels.ids], about=about)


def leave_film_out(name: str, items: Items, ids: Sequence[str] | None = None) -> Split:
    """One fold a film, films in ascending order of their id; of all items, or of some."""
    chosen = list(items.ids if ids is None else ids)
    film_of = {i: items.films[items.row(i)] for i in chosen}
    films = sorted(set(film_of.values()))
    if len(films) < 2:
        raise UsageError("leave-film-out needs items of at least two films")
    number = {film: fold for fold, film in enumerate(films)}
    about = {"method": "one fold a film", "films": films}
    return Split(name, chosen, [number[film_of[i]] for i in chosen], about=about)


def problems(table: Table) -> Iterator[tuple[int, str]]:
    """Every row of a split table that is not right, and why."""
    seen: set[str] = set()
    for row, (identifier, fold) in enumerate(zip(table["id"], table["fold"], strict=True)):
        if identifier in seen:
            yield row, f"duplicate id {identifier!r}"
        seen.add(identifier)
        if not (fold.isascii() and fold.isdecimal() and len(fold) < 7):
            yield row, f"fold {shorten(fold)} is not a whole number from 0 to 999999"
