"""Items: what a store has a row for, in a fixed order, each under a stable id.

Held in columns, so that a million items load about as fast as their CSV file is read.
"""

from __future__ import annotations

import hashlib
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from itertools import islice

import numpy as np

from obygaze_features.common.tables import Table, format_table
from obygaze_features.common.text import join_some, shorten
from obygaze_features.errors import ManifestError, UnknownItem

__all__ = [
    "KINDS",
    "Item",
    "ItemProblem",
    "Items",
    "id_problem",
    "media_problem",
    "media_stem",
    "seconds_problems",
]

KINDS = ("clip", "image", "text")
COLUMNS = ("id", "kind", "film", "media", "text", "start", "end")
MAX_ID = 128
#: Spans are kept to the microsecond; a span is not shorter than two, nor longer than 30 years.
SHORTEST, LONGEST = 2e-6, 1e9
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*+")
_IDS = re.compile(rf"(?:[A-Za-z0-9][A-Za-z0-9._+-]{{0,{MAX_ID - 1}}}+\n)*+")
_NO_NAME = frozenset("/\\\r\n\0")


@dataclass(frozen=True)
class Item:
    """One clip, image or text.

    `media` is a file's name, or its path below the film's folder; `start` and `end` are seconds
    where the item is a span of a longer film.
    """

    id: str
    kind: str = "clip"
    film: str = ""
    media: str = ""
    text: str = ""
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, eq=False)
class Items:
    """All items in columns. `extra` keeps columns of the source that obygaze does not use."""

    ids: list[str]
    kinds: list[str]
    films: list[str]
    media: list[str]
    texts: list[str]
    starts: np.ndarray
    ends: np.ndarray
    extra: Mapping[str, list[str]] = field(default_factory=dict)
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        if check:
            self._check()

    def __repr__(self) -> str:
        return f"Items({join_some(self.ids, 3)})"

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> Item:
        start, end = float(self.starts[row]), float(self.ends[row])
        return Item(
            self.ids[row],
            self.kinds[row],
            self.films[row],
            self.media[row],
            self.texts[row],
            None if math.isnan(start) else start,
            None if math.isnan(end) else end,
        )

    def __iter__(self) -> Iterator[Item]:
        return map(self.__getitem__, range(len(self)))

    @classmethod
    def of(cls, items: Sequence[Item], extra: Mapping[str, list[str]] | None = None) -> Items:
        """Columns from single items."""
        return cls(
            ids=[item.id for item in items],
            kinds=[item.kind for item in items],
            films=[item.film for item in items],
            media=[item.media for item in items],
            texts=[item.text for item in items],
            starts=np.array([math.nan if i.start is None else i.start for i in items], dtype=float),
            ends=np.array([math.nan if i.end is None else i.end for i in items], dtype=float),
            extra=extra or {},
        )

    @classmethod
    def from_table(cls, table: Table, *, check: bool = True) -> Items:
        """Items from a CSV table that has at least the column ``id``.

        Without `check` rows may be wrong; ask `problems` and `seconds_problems` for them.
        """
        rows = len(table)
        if check:
            for row, message in seconds_problems(table):
                raise table.problem(row, message)

        def column(name: str, default: str = "") -> list[str]:
            return table[name] if name in table.columns else [default] * rows

        return cls(
            ids=table["id"],
            kinds=column("kind", "clip"),
            films=column("film"),
            media=column("media"),
            texts=column("text"),
            starts=_seconds(column("start")),
            ends=_seconds(column("end")),
            extra={name: values for name, values in table.columns.items() if name not in COLUMNS},
            check=check,
        )

    def to_csv(self) -> str:
        """The table as it is saved in ``items.csv``."""
        return format_table(
            {
                "id": self.ids,
                "kind": self.kinds,
                "film": self.films,
                "media": self.media,
                "text": self.texts,
                "start": _decimals(self.starts),
                "end": _decimals(self.ends),
                **self.extra,
            }
        )

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Id -> row."""
        return dict(zip(self.ids, range(len(self)), strict=True))

    def row(self, identifier: str) -> int:
        """The row of an id."""
        try:
            return self.row_of[identifier]
        except KeyError:
            raise UnknownItem(f"there is no item {identifier!r} in this manifest") from None

    def take(self, rows: Sequence[int]) -> Items:
        """The items of some rows, in that order."""
        index = np.asarray(rows, dtype=int)

        def pick(values: list[str]) -> list[str]:
            return [values[row] for row in rows]

        return Items(
            pick(self.ids),
            pick(self.kinds),
            pick(self.films),
            pick(self.media),
            pick(self.texts),
            self.starts[index],
            self.ends[index],
            {name: pick(values) for name, values in self.extra.items()},
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over what makes rows the same rows (manifests/README.md specifies it).

        Ids, order, kind, media stem (for texts: the text) and span; not the extension, so that a
        lab whose clips are .mp4 and one whose clips are .mkv mean the same items.
        """
        digest = hashlib.sha256(b"obygaze-items-1\n")
        # As `media_stem`, which would be a million calls.
        sources = [name.rpartition(".")[0] or name for name in self.media]
        if "text" in self.kinds:
            for row, kind in enumerate(self.kinds):
                if kind == "text":
                    sources[row] = hashlib.sha256(self.texts[row].encode()).hexdigest()
        digest.update(self._joined_ids.encode() + b"\0")
        for column in (self.kinds, sources, _micro(self.starts), _micro(self.ends)):
            digest.update("\n".join(column).encode() + b"\0")
        return digest.hexdigest()

    @cached_property
    def _joined_ids(self) -> str:
        return "\n".join(self.ids)

    def problems(self) -> Iterator[tuple[int, str]]:
        """Every row that is not right, and why."""
        seen: dict[str, int] = {}
        for row, item in enumerate(self):
            if problem := id_problem(item.id):
                yield row, problem
            if (first := seen.setdefault(item.id.lower(), row)) != row:
                other = self.ids[first]
                yield (
                    row,
                    (
                        f"duplicate id {item.id!r}"
                        if other == item.id
                        else f"id {item.id!r} differs from {other!r} by case only"
                    ),
                )
            if item.kind not in KINDS:
                yield row, f"unknown kind {item.kind!r} (known: {', '.join(KINDS)})"
            if item.film in (".", "..") or _NO_NAME & set(item.film):
                yield row, f"film {item.film!r} is a path, and a plain name is meant"
            if problem := media_problem(item.media):
                yield row, problem
            if (item.start is None) != (item.end is None):
                yield row, "a span needs both start and end"
            elif not _is_span(item):
                yield row, f"a span from {item.start:g} to {item.end:g} seconds does not go forward"

    def _check(self) -> None:
        """Look at all rows at once; only where something may be wrong, row by row."""
        ids, media = self._joined_ids, "\n".join(self.media)
        lower = ids.lower()
        folded = self.ids if lower == ids else lower.split("\n")
        ascending = all(map(operator.lt, folded, islice(folded, 1, None)))
        films, blank = set(self.films), np.isnan(self.starts)
        fine = (
            (ascending or len(set(folded)) == len(self.ids))
            and _IDS.fullmatch(ids + "\n" if self.ids else "") is not None
            and ".." not in ids
            and set(self.kinds) <= set(KINDS)
            and _NO_NAME.isdisjoint("".join(films))
            and films.isdisjoint([".", ".."])
            and not any(mark in media for mark in _NO_NAME - {"\n", "/"})
            and ("/" not in media or not any(map(media_problem, set(self.media))))
            and media.count("\n") == max(len(self.ids) - 1, 0)
            and bool(np.array_equal(blank, np.isnan(self.ends)))
            and bool(np.all(blank | ((self.starts >= 0) & (self.starts + SHORTEST <= self.ends))))
            and bool(np.all(blank | (self.ends <= LONGEST)))
        )
        if fine:
            return
        for row, message in self.problems():
            raise ItemProblem(row, message)


class ItemProblem(ManifestError):
    """A row that is not right; readers of files add the file and line."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(f"item {row + 1}: {message}")
        self.row, self.message = row, message


def id_problem(identifier: str) -> str | None:
    """What is wrong with an id, if anything."""
    if not identifier:
        return "an empty id"
    if len(identifier) > MAX_ID:
        return f"id {shorten(identifier)} is longer than {MAX_ID} characters"
    if _ID.fullmatch(identifier) is None or ".." in identifier:
        return (
            f"id {shorten(identifier)} is not allowed: letters, digits and . _ + - "
            "without '..', starting with a letter or digit"
        )
    return None


def media_problem(name: str) -> str | None:
    """What is wrong with the name of a file, or its path below the film's folder, if anything."""
    if _NO_NAME - {"/"} & set(name) or (name and not {"", ".", ".."}.isdisjoint(name.split("/"))):
        return (
            f"media {shorten(name)} is not a file's name or a path below the folder of videos "
            "(such as season1/clip.mp4)"
        )
    return None


def media_stem(name: str) -> str:
    """A file name without its extension."""
    return name.rpartition(".")[0] or name


def _is_span(item: Item) -> bool:
    if item.start is None or item.end is None:
        return True
    return item.start >= 0 and item.start + SHORTEST <= item.end <= LONGEST


def seconds_problems(table: Table) -> Iterator[tuple[int, str]]:
    """Every cell of a table's spans that is not a number of seconds."""
    for column in ("start", "end"):
        cells = table.columns.get(column, [])
        if any(cells):
            for row, cell in enumerate(cells):
                if cell and _SECONDS.fullmatch(cell) is None:
                    yield row, f"{column} {shorten(cell)} is not a number of seconds"


def _seconds(cells: list[str]) -> np.ndarray:
    """Seconds; NaN where there is none, or none that can be read."""
    if not any(cells):
        return np.full(len(cells), math.nan)
    fits = _SECONDS.fullmatch
    return np.array([float(cell) if fits(cell) else math.nan for cell in cells])


def _decimals(values: np.ndarray) -> list[str]:
    """Seconds with up to six decimals; nothing where there is no span."""
    if np.isnan(values).all():
        return [""] * len(values)
    return [
        "" if math.isnan(value) else f"{value:.6f}".rstrip("0").rstrip(".")
        for value in values.tolist()
    ]


def _micro(values: np.ndarray) -> list[str]:
    """Whole microseconds; nothing where there is no span."""
    if np.isnan(values).all():
        return [""] * len(values)
    return ["" if math.isnan(value) else str(round(value * 1e6)) for value in values.tolist()]
