"""Items: a store has one row for each, in a fixed order, under a stable id.

Held in columns, so that a million items load about as fast as their CSV file is read.
"""

from __future__ import annotations

import hashlib
import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import Table, format_table, map_cells
from obygaze_features.common.text import (
    MAX_TIME_S,
    as_list,
    did_you_mean,
    join_some,
    sha256_of_text,
    shorten,
)
from obygaze_features.errors import ManifestError, UnknownItem, UsageError

KINDS = ("clip", "image", "text")
#: The column that replaces words that must not be copied by their SHA-256, which `digest` needs.
WITHHELD = "text_sha256"
COLUMNS = ("id", "kind", "film", "media", "text", "start", "end")
MAX_ID_LENGTH = 128
#: Spans are rounded to the microsecond; they last from two of these to 30 years.
MIN_SPAN_S = 2e-6
#: The name of a file or folder: not a path, not "." or "..".
_NAME = re.compile(r"(?!\.{1,2}\Z)[^/\\\r\n\0]*+")
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
#: The alphabet of lines of ids.
_ID_BYTES = f"{string.ascii_letters}{string.digits}_+-.\n".encode()
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*+(?:\.[A-Za-z0-9_+-]++)*+\.?")


@dataclass(frozen=True)
class Item:
    """One clip, image or text.

    `media` is a file's name, or its path below the film's folder; `start` and `end` are seconds,
    for an item that is a span of a longer film.
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
    """All items in columns. `extra` holds columns of the source that obygaze does not use."""

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
        for row, message in sorted(self.problems())[:1] if check else []:
            raise ManifestError(f"item {row + 1}: {message}")

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
    def of(cls, items: Iterable[Item], extra: Mapping[str, list[str]] | None = None) -> Items:
        """Turn single items into columns."""
        items = list(items)
        ids, kinds, films, media, texts, starts, ends = (
            [getattr(item, name) for item in items] for name in COLUMNS
        )
        # NumPy reads None as NaN.
        times = np.array(starts, dtype=float), np.array(ends, dtype=float)
        return cls(ids, kinds, films, media, texts, *times, extra or {})

    @classmethod
    def from_table(cls, table: Table, *, check: bool = True) -> Items:
        """Read items from a CSV table that has at least the column ``id``.

        Without `check`, rows may be wrong; `problems` and `seconds_problems` name them.
        """
        kinds = table.columns.get("kind") or ["clip"] * len(table)
        films, media, texts = map(table.get, ("film", "media", "text"))
        starts, ends = (_parse_seconds(table.get(column)) for column in ("start", "end"))
        extra = {name: values for name, values in table.columns.items() if name not in COLUMNS}
        items = cls(table["id"], kinds, films, media, texts, starts, ends, extra, check=False)
        if check:
            raise_first(table, seconds_problems(table))
            raise_first(table, items.problems())
        return items

    def to_csv(self) -> str:
        """Return the table that is saved as ``items.csv``."""
        times = (_format_times(times, format_seconds) for times in (self.starts, self.ends))
        cells = (self.ids, self.kinds, self.films, self.media, self.texts, *times)
        return format_table(dict(zip(COLUMNS, cells, strict=True)) | dict(self.extra))

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The row of each id."""
        return dict(zip(self.ids, range(len(self)), strict=True))

    def row(self, identifier: str) -> int:
        """Return the row of an id."""
        if identifier not in self.row_of:
            remedy = did_you_mean([str(identifier)], self.ids)
            raise UnknownItem(f"this manifest has no item {identifier!r}{remedy}")
        return self.row_of[identifier]

    @property
    def columns(self) -> dict[str, list[str]]:
        """The cells by which items are grouped: ``film``, ``media``, ``kind``, and all of `extra`.

        A file's name is prefixed by its film's.
        """
        places = zip(self.films, self.media, strict=True)
        media = [f"{film}/{name}" if film and name else name for film, name in places]
        return {"film": self.films, "media": media, "kind": self.kinds, **self.extra}

    def column(self, name: str) -> list[str]:
        """Return one of `columns`; raise `ManifestError` for an unknown name."""
        if name not in (columns := self.columns):
            raise ManifestError(
                f"unknown column {shorten(name)}{did_you_mean([name], columns)}; choose from "
                f"{join_some(list(columns), 30)}; media is the file"
            )
        return columns[name]

    def groups(self, name: str, ids: Sequence[str]) -> list[str]:
        """Return the group of each id by a column; raise `ManifestError` where a cell is empty."""
        cells = self.column(name)
        groups = [cells[self.row(identifier)] for identifier in ids]
        if "" in groups:
            raise ManifestError(
                f"{ids[groups.index('')]} has no {group_noun(name)}, by which clips are grouped; "
                f"fill in the column {name} of items.csv, or group by another, such as "
                'the file (--by media; groups = "media" in an experiment)'
            )
        return groups

    @cached_property
    def files(self) -> NDArray[np.int64]:
        """The number of each item's file; of its film where no file is named."""
        names = [*zip(self.films, self.media, strict=True)]
        number = {name: code for code, name in enumerate(dict.fromkeys(names))}
        return np.array([number[name] for name in names], dtype=np.int64)

    @cached_property
    def whole_films(self) -> set[str]:
        """The clips without a span that are a whole film, or a file of no film."""
        names = list(map(name_film, self.films, self.media))
        counts, unspanned = Counter(filter(None, names)), np.isnan(self.starts)
        return {self.ids[row] for row in np.flatnonzero(unspanned) if counts[names[row]] == 1}

    @property
    def span_films(self) -> list[str]:
        """The film of each item; for a span without a film, its media."""
        spans = (~np.isnan(self.starts)).tolist()
        return [
            film or (media_stem(media) if span else "")
            for film, media, span in zip(self.films, self.media, spans, strict=True)
        ]

    @cached_property
    def spans_by_film(self) -> dict[str, NDArray[np.intp]]:
        """The rows of each film's spans, in time, by its id in timelines (`span_films`)."""
        films, by_film = self.span_films, dict[str, list[int]]()
        ids = {film: film and safe_id(film) for film in set(films)}
        for row in np.flatnonzero(~np.isnan(self.starts)).tolist():
            by_film.setdefault(ids[films[row]], []).append(row)
        ordered = {}
        for film, of_film in by_film.items():
            rows = np.array(of_film, np.intp)
            ordered[film] = rows[np.lexsort((self.ends[rows], self.starts[rows]))]
        return ordered

    def take(self, rows: Sequence[int], *, check: bool = True) -> Items:
        """Return the items of these rows, in that order; `check` refuses repeated rows."""
        index = np.asarray(rows, dtype=int)
        times = {"starts": self.starts[index], "ends": self.ends[index]}
        extra = pick_rows(self.extra, rows)
        return replace(self, **pick_rows(vars(self), rows), **times, extra=extra, check=check)

    def select(
        self,
        *,
        films: Collection[str] | str | None = None,
        ids: Collection[str] | str | None = None,
    ) -> Items:
        """Return the items of these films that have one of these ids, in the same order.

        Each film and id must exist. A string stands for a list of one.
        """
        rows: Sequence[int] = range(len(self))
        if films is not None:
            films = set(as_list(films))
            if unknown := sorted(films - set(self.films)):
                near = did_you_mean(unknown[:1], self.films)
                raise UsageError(f"no item belongs to the film {unknown[0]!r}{near}")
            rows = [row for row in rows if self.films[row] in films]
        if ids is not None:
            wanted = dict.fromkeys(as_list(ids))
            if not wanted.keys() <= self.row_of.keys():
                self.row(next(name for name in wanted if name not in self.row_of))
            rows = sorted(set(map(self.row_of.__getitem__, wanted)).intersection(rows))
        return self.take(rows, check=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that identifies rows (manifests/README.md specifies it).

        Ids, order, kind, media stem (for texts: the text) and span; not the extension, so that a
        lab whose clips are .mp4 and one whose clips are .mkv have the same items.
        """
        digest = hashlib.sha256(b"obygaze-items-1\n")
        sources = map_cells(media_stem, self.media)
        if "text" in self.kinds:
            withheld = self.extra.get(WITHHELD) or [""] * len(self)
            for row, kind in enumerate(self.kinds):
                if kind == "text":
                    sources[row] = withheld[row] or sha256_of_text(self.texts[row])
        starts, ends = (_format_times(times, _microseconds) for times in (self.starts, self.ends))
        for column in (self.ids, self.kinds, sources, starts, ends):
            digest.update("\n".join(column).encode() + b"\0")
        return digest.hexdigest()

    def without_spoken_words(self) -> Items:
        """Return the items as a store saves them, without the words spoken in spans of films.

        Their SHA-256 replaces the words, so that the digest is the same.
        """
        spoken = [
            kind == "text" and not math.isnan(start)
            for kind, start in zip(self.kinds, self.starts, strict=True)
        ]
        if not any(spoken):
            return self
        texts, digests = self.texts.copy(), (self.extra.get(WITHHELD) or [""] * len(self)).copy()
        for row in np.flatnonzero(spoken).tolist():
            texts[row], digests[row] = "", digests[row] or sha256_of_text(texts[row])
        return replace(self, texts=texts, extra={**self.extra, WITHHELD: digests})

    def problems(self) -> Iterator[tuple[int, str]]:
        """Yield every wrong row and its problem, column by column."""
        for column, find_problem in (
            ([] if are_ids(self.ids) else self.ids, id_problem),
            (self.media, media_problem),
            (self.kinds, _kind_problem),
            (self.films, _film_problem),
        ):
            problems = {value: find_problem(value) for value in set(column)}
            for row, value in enumerate(column if any(problems.values()) else []):
                if problem := problems[value]:
                    yield row, problem
        yield from self._repeated_ids()
        no_start, no_end = np.isnan(self.starts), np.isnan(self.ends)
        for row in np.flatnonzero(no_start != no_end).tolist():
            yield row, "a span needs both start and end"
        forward = (self.starts >= 0) & (self.starts + MIN_SPAN_S <= self.ends)
        for row in np.flatnonzero(
            ~(no_start | no_end | (forward & (self.ends <= MAX_TIME_S)))
        ).tolist():
            span = f"{self.starts[row]:g} to {self.ends[row]:g} seconds"
            yield row, f"a span must end after it starts (got {span})"

    def _repeated_ids(self) -> Iterator[tuple[int, str]]:
        """Yield every row whose id an earlier row has, ignoring case."""
        text = "".join(self.ids)
        lower = self.ids if text.lower() == text else list(map(str.lower, self.ids))
        if len(set(lower)) == len(lower):
            return
        first_rows: dict[str, int] = {}
        for row, identifier in enumerate(lower):
            first = self.ids[first_row := first_rows.setdefault(identifier, row)]
            if first_row != row and first == self.ids[row]:
                yield row, f"duplicate id {first!r}"
            elif first_row != row:
                yield row, f"id {self.ids[row]!r} differs from {first!r} by case only"


class NamedItems(Protocol):
    """The items that a store is made for, with a name, such as a `Manifest`."""

    @property
    def name(self) -> str:
        """The name, for messages."""

    @property
    def licence(self) -> str:
        """The licence of all that is made from the items; "" if unknown."""

    @property
    def citation(self) -> str:
        """The citation to use; "" if there is none."""

    @property
    def items(self) -> Items:
        """The items, in order."""


def group_noun(column: str) -> str:
    """Name a group of items with the same cell in a column, for messages."""
    return {"media": "file"}.get(column, column)


def raise_first(table: Table, problems: Iterable[tuple[int, str]]) -> None:
    """Raise the first of a table's problems, if there is any."""
    for row, message in sorted(problems)[:1]:
        raise table.problem(row, message)


def pick_rows(columns: Mapping[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """Return these rows of the columns that are lists; empty lists stay empty."""
    lists = {name: cells for name, cells in columns.items() if isinstance(cells, list)}
    return {name: [cells[row] for row in rows] if cells else [] for name, cells in lists.items()}


def id_problem(identifier: str) -> str | None:
    """Return the problem with an id, or None."""
    if _ID.fullmatch(identifier) and len(identifier) <= MAX_ID_LENGTH:
        return None
    if not identifier:
        return "an empty id"
    if len(identifier) > MAX_ID_LENGTH:
        return f"id {shorten(identifier)} is longer than {MAX_ID_LENGTH} characters"
    return (
        f"id {shorten(identifier)} is not allowed: letters, digits and . _ + - "
        "without '..', starting with a letter or digit"
    )


def are_ids(names: Sequence[str]) -> bool:
    """Return True if `id_problem` accepts all of many names, checked together."""
    text = "\n".join(["", *names, ""])
    if not text.isascii() or text.encode().translate(None, _ID_BYTES) or ".." in text:
        return False
    marks = np.frombuffer(text.encode(), np.uint8)
    ends = np.flatnonzero(marks == ord("\n"))
    longest = np.diff(ends).max(initial=0) - 1 if len(ends) == len(names) + 1 else math.inf
    return longest <= MAX_ID_LENGTH and {*marks[ends[:-1] + 1].tobytes()}.isdisjoint(b"\n._+-")


def safe_id(name: str) -> str:
    """Spell a name in the alphabet of ids: accents are dropped, other marks become underscores.

    Where letters of another script are lost, a piece of the name's hash makes names distinct.

    Examples
    --------
    >>> safe_id("Amélie (2001)")
    'Amelie_2001'
    """
    plain = unicodedata.normalize("NFKD", name)
    latin = plain.encode("ascii", "ignore").decode()
    safe = re.sub(r"[^A-Za-z0-9._+-]+|\.{2,}", "_", latin).strip("._-+ ")
    lost = any(unicodedata.category(mark).startswith("L") and not mark.isascii() for mark in plain)
    if lost or not safe:
        return "-".join(filter(None, [safe, sha256_of_text(name)[:8]]))
    return safe


def media_problem(name: str) -> str | None:
    """Return the problem with a file's name or its path below the film's folder, or None."""
    if _NAME.fullmatch(name) or all(part and _NAME.fullmatch(part) for part in name.split("/")):
        return None
    return (
        f"media {shorten(name)} is not a file's name or a path below the folder of videos "
        "(such as season1/clip.mp4)"
    )


def media_stem(name: str) -> str:
    """Return a file name without its extension."""
    return name.rpartition(".")[0] or name


def name_film(film: str, media: str) -> str:
    """Return the film of a clip, or its file's name if the film has none."""
    return film or media_stem(media)


def seconds_problems(table: Table) -> Iterator[tuple[int, str]]:
    """Yield every cell of a table's spans that is not a number of seconds."""
    for column in ("start", "end"):
        cells = table.columns.get(column, [])
        wrong = {cell for cell in {*cells} if cell and _SECONDS.fullmatch(cell) is None}
        for row, cell in enumerate(cells if wrong else []):
            if cell in wrong:
                yield row, f"{column} {shorten(cell)} is not a number of seconds"


def format_seconds(value: float) -> str:
    """Format seconds to the microsecond, without trailing zeros.

    Examples
    --------
    >>> format_seconds(1.5), format_seconds(60)
    ('1.5', '60')
    """
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _kind_problem(kind: str) -> str | None:
    return None if kind in KINDS else f"unknown kind {kind!r}; choose from {', '.join(KINDS)}"


def _film_problem(film: str) -> str | None:
    return None if _NAME.fullmatch(film) else f"film {film!r} is a path; use a plain name"


def _parse_seconds(cells: list[str]) -> NDArray[np.float64]:
    """Return seconds; NaN where a cell is empty or not a number."""
    if not any(cells):
        return np.full(len(cells), math.nan)
    return np.array(
        map_cells(lambda cell: float(cell) if _SECONDS.fullmatch(cell) else math.nan, cells)
    )


def _microseconds(value: float) -> str:
    return str(round(value * 1e6))


def _format_times(values: np.ndarray, format_time: Callable[[float], str]) -> list[str]:
    """Format times as text; items without a span get an empty text."""
    cells = np.where(np.isnan(values), np.array(None), values).tolist()
    return map_cells(lambda value: "" if value is None else format_time(value), cells)
