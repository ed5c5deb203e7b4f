"""Label sets: levels and concepts that hang on items' ids. One manifest can have many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from obygaze_features.common.tables import Table, format_table
from obygaze_features.common.text import counted
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.scheme import LabelScheme

__all__ = ["LabelSet", "problems", "split_concepts"]

COLUMNS = ("id", "level", "concepts", "ratio")
SEPARATOR = "|"


@dataclass(frozen=True)
class LabelSet:
    """Levels and concepts of some of a manifest's items.

    `ratio` is the share of the item that its annotation covers, as text, where the source had
    one. `about` says where the labels come from and by which rule.
    """

    name: str
    ids: list[str]
    levels: list[str]
    concepts: list[tuple[str, ...]]
    ratio: list[str] = field(default_factory=list)
    extra: Mapping[str, list[str]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        often = Counter(self.levels)
        levels = ", ".join(f"{level} {often[level]:,}" for level in sorted(often))
        return f"LabelSet({self.name!r}, {counted(len(self), 'item')}: {levels})"

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def level_of(self) -> dict[str, str]:
        """Id -> level code."""
        return dict(zip(self.ids, self.levels, strict=True))

    @cached_property
    def concepts_of(self) -> dict[str, tuple[str, ...]]:
        """Id -> concepts."""
        return dict(zip(self.ids, self.concepts, strict=True))

    def where(self, keep: Callable[[str], bool]) -> LabelSet:
        """The labels of the ids that `keep` accepts."""
        rows = [row for row, identifier in enumerate(self.ids) if keep(identifier)]

        def pick(values: Sequence[Any]) -> list[Any]:
            return [values[row] for row in rows] if values else []

        return LabelSet(
            self.name,
            pick(self.ids),
            pick(self.levels),
            pick(self.concepts),
            pick(self.ratio),
            {name: pick(values) for name, values in self.extra.items()},
            self.about,
        )

    @classmethod
    def from_table(
        cls, name: str, table: Table, scheme: LabelScheme, about: Mapping[str, Any]
    ) -> LabelSet:
        """Labels from a CSV table; raises on the first row that does not fit the scheme."""
        for row, message in problems(table, scheme):
            raise table.problem(row, message)
        return cls(
            name,
            ids=table["id"],
            levels=[scheme.level(text) for text in table["level"]],
            concepts=[
                tuple(map(scheme.concept, split_concepts(text)))
                for text in table.columns.get("concepts", [""] * len(table))
            ],
            ratio=table.columns.get("ratio", []),
            extra={k: v for k, v in table.columns.items() if k not in COLUMNS},
            about=about,
        )

    def to_csv(self) -> str:
        """The table as it is saved in ``labels/NAME.csv``."""
        columns: dict[str, Sequence[str]] = {
            "id": self.ids,
            "level": self.levels,
            "concepts": [SEPARATOR.join(concepts) for concepts in self.concepts],
        }
        if self.ratio:
            columns["ratio"] = self.ratio
        return format_table({**columns, **self.extra})


def split_concepts(text: str) -> list[str]:
    """The concepts of a cell, which ``|`` separates."""
    return [part.strip() for part in text.split(SEPARATOR) if part.strip()]


def problems(table: Table, scheme: LabelScheme) -> Iterator[tuple[int, str]]:
    """Every row of a label table that is not right, and why."""
    seen: set[str] = set()
    concepts = table.columns.get("concepts", [""] * len(table))
    for row, (identifier, level, names) in enumerate(
        zip(table["id"], table["level"], concepts, strict=True)
    ):
        if identifier in seen:
            yield row, f"duplicate id {identifier!r}"
        seen.add(identifier)
        known = [(scheme.level, level), *((scheme.concept, n) for n in split_concepts(names))]
        for look_up, text in known:
            try:
                look_up(text)
            except ManifestError as error:
                yield row, str(error)
