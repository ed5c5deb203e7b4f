"""Items: the clips, images or texts of a manifest, in a fixed order and with stable ids.

A store has one row per item. Items are kept in columns, so loading a million items takes about as
long as reading their CSV file.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from obygaze_features.common.files import sha256_of_text
from obygaze_features.common.formatting import MAX_TIME_S, join_some, shorten
from obygaze_features.common.grouping import group_by
from obygaze_features.common.names import unknown_name
from obygaze_features.common.tables import Table, format_table, map_cells
from obygaze_features.errors import ManifestError, UnknownItem

KINDS = ("clip", "image", "text")
#: The column with the SHA-256 of texts that must not be copied; `digest` needs it.
WITHHELD = "text_sha256"
COLUMNS = ("id", "kind", "film", "media", "text", "start", "end")
MAX_ID_LENGTH = 128
#: The minimum duration of a span; times are rounded to microseconds.
MIN_SPAN_S = 2e-6
_PART = r"(?!\.{1,2}(?:[/\n]|\Z))[^/\\\r\n\0]++"
#: The name of a file or folder, which must not be a path, "." or "..".
_NAME = re.compile(rf"(?:{_PART})?")
#: The name of a file, or its path within the film's folder.
MEDIA_NAME = re.compile(rf"(?:{_PART}(?:/{_PART})*+)?")
_KIND = re.compile("|".join(KINDS))
_SECONDS = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?)?")
_ID = re.compile(
    rf"(?!.{{{MAX_ID_LENGTH + 1}}})[A-Za-z0-9][A-Za-z0-9_+-]*+(?:\.[A-Za-z0-9_+-]++)*+\.?"
)


@dataclass(frozen=True)
class Item:
    """A clip, an image or a text.

    `media` is a file's name, or its path within the film's folder. A span of a longer film
    has `start` and `end`, in seconds.
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
    """Items in columns; `extra` has the other columns of the source."""

    ids: list[str]
    kinds: list[str]
    films: list[str]
    media: list[str]
    texts: list[str]
    starts: np.ndarray
    ends: np.ndarray
    extra: Mapping[str, list[str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Items({join_some(self.ids, 3)})"

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> Item:
        start = self.starts.item(row)
        end = self.ends.item(row)
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
        """Make columns from a sequence of items; raise `ManifestError` if one is invalid."""
        items = list(items)
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            columns[name] = [getattr(item, name) for item in items]
        made = cls(
            ids=columns["id"],
            kinds=columns["kind"],
            films=columns["film"],
            media=columns["media"],
            texts=columns["text"],
            starts=np.array(columns["start"], float),  # None becomes NaN
            ends=np.array(columns["end"], float),
            extra=extra or {},
        )
        problem = min(made.problems(), default=None)
        if problem:
            row, message = problem
            raise ManifestError(f"item {row + 1}: {message}")
        return made

    @classmethod
    def from_table(cls, table: Table) -> Items:
        """Make items from a CSV table that has at least an ``id`` column."""
        extra = {name: cells for name, cells in table.columns.items() if name not in COLUMNS}
        items = cls(
            ids=table["id"],
            kinds=table.columns.get("kind") or ["clip"] * len(table),
            films=table.get("film"),
            media=table.get("media"),
            texts=table.get("text"),
            starts=_read_seconds(table, "start"),
            ends=_read_seconds(table, "end"),
            extra=extra,
        )
        problem = min(items.problems(), default=None)
        if problem:
            raise table.problem(*problem)
        return items

    def to_csv(self) -> str:
        """Return the table that is saved as ``items.csv``."""
        starts = _format_times(self.starts, format_seconds)
        ends = _format_times(self.ends, format_seconds)
        cells = (self.ids, self.kinds, self.films, self.media, self.texts, starts, ends)
        return format_table(dict(zip(COLUMNS, cells, strict=True)) | dict(self.extra))

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The row number of each id."""
        return dict(zip(self.ids, range(len(self)), strict=True))

    def row(self, id_: str) -> int:
        """Return the row number of an id; raise `UnknownItem` if there is no such id."""
        if id_ not in self.row_of:
            raise UnknownItem(unknown_name("id", id_, self.ids))
        return self.row_of[id_]

    def find(self, ids: Iterable[str]) -> NDArray[np.intp]:
        """Return the row numbers of ids; raise `UnknownItem` if there is no such id."""
        return np.array(list(map(self.row, ids)), np.intp)

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns by which items can be grouped: ``film``, ``media``, ``kind`` and `extra`.

        Each ``media`` is prefixed with its film.
        """
        files = zip(self.films, self.media, strict=True)
        media = [f"{film}/{name}" if film and name else name for film, name in files]
        return {"film": self.films, "media": media, "kind": self.kinds, **self.extra}

    def column(self, name: str) -> list[str]:
        """Return one of `columns`; raise `ManifestError` if the name is unknown."""
        columns = self.columns
        if name not in columns:
            raise ManifestError(unknown_name("column", name, columns))
        return columns[name]

    def groups(self, name: str, ids: Sequence[str]) -> list[str]:
        """Return each id's group, from a column; raise `ManifestError` if any cell is empty."""
        cells = self.column(name)
        groups = [cells[self.row(id_)] for id_ in ids]
        if "" in groups:
            raise ManifestError(
                f"{ids[groups.index('')]} has no {group_noun(name)}; fill in the column {name}, or "
                "group clips by another one"
            )
        return groups

    @cached_property
    def files(self) -> NDArray[np.int64]:
        """A number for each item's file, or for its film if the item names no file."""
        numbers: dict[tuple[str, str], int] = {}
        names = zip(self.films, self.media, strict=True)
        return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)

    @property
    def span_rows(self) -> list[int]:
        """The rows of the items that are spans of a longer film."""
        rows: list[int] = np.flatnonzero(~np.isnan(self.starts)).tolist()
        return rows

    @property
    def span_films(self) -> list[str]:
        """The film of each item; a span without a film gets the name of its file."""
        films = self.films.copy()
        for row in self.span_rows:
            films[row] = name_film(films[row], self.media[row])
        return films

    @cached_property
    def spans_by_film(self) -> dict[str, NDArray[np.intp]]:
        """The rows of each film's spans, ordered by time; film names are converted to safe ids.

        Raise `ManifestError` if two films would get the same id.
        """
        names = self.span_films
        id_of = safe_ids("film", filter(None, names))
        films = [id_of.get(name, "") for name in names]
        spans = list(zip(self.starts.tolist(), self.ends.tolist(), strict=True))
        by_film = group_by(self.span_rows, films.__getitem__)
        for rows in by_film.values():
            rows.sort(key=spans.__getitem__)
        return {film: np.array(rows, np.intp) for film, rows in by_film.items()}

    def take(self, rows: ArrayLike) -> Items:
        """Return the items in these rows, in this order."""
        index = np.asarray(rows, int)
        return replace(
            self,
            **pick_rows(vars(self), index.tolist()),
            starts=self.starts[index],
            ends=self.ends[index],
        )

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of everything that identifies the rows, as specified in manifests/README.md.

        It covers the ids, their order, kinds, media stems (or texts) and spans. File extensions are
        left out, so that clips in .mp4 at one lab and .mkv at another are the same items.
        """
        digest = hashlib.sha256(b"obygaze-items-1\n")
        sources = map_cells(media_stem, self.media)
        for row, kind in enumerate(self.kinds):
            if kind == "text":
                sources[row] = self._text_digest(row)
        times = []
        for seconds in (self.starts, self.ends):
            times.append(_format_times(seconds, lambda time: str(round(time * 1e6))))
        for column in (self.ids, self.kinds, sources, *times):
            digest.update("\n".join(column).encode() + b"\0")
        return digest.hexdigest()

    def without_spoken_words(self) -> Items:
        """Return the items as saved in a store, without the words spoken in spans of films.

        The words are replaced by their SHA-256, so the digest stays the same.
        """
        spoken = [row for row in self.span_rows if self.kinds[row] == "text"]
        if not spoken:
            return self
        texts = self.texts.copy()
        digests = list(self.extra.get(WITHHELD) or [""] * len(self))
        for row in spoken:
            digests[row] = self._text_digest(row)
            texts[row] = ""
        return replace(self, texts=texts, extra={**self.extra, WITHHELD: digests})

    def _text_digest(self, row: int) -> str:
        withheld = self.extra.get(WITHHELD)
        if withheld and withheld[row]:
            return withheld[row]
        return sha256_of_text(self.texts[row])

    def problems(self) -> Iterator[tuple[int, str]]:
        """Yield every invalid row with its problem, column by column."""
        for name in self.extra:
            if name != name.strip() or name in COLUMNS:
                yield 0, f"the column {name!r} needs another name, without spaces around it"
        for row, name in _wrong_cells(self.media, MEDIA_NAME):
            yield (
                row,
                f"media {shorten(name)} is not a file name or a path within the folder of videos "
                "(such as season1/clip.mp4)",
            )
        for row, kind in _wrong_cells(self.kinds, _KIND):
            yield row, f"unknown kind {kind!r}; choose from {', '.join(KINDS)}"
        for row, film in _wrong_cells(self.films, _NAME):
            yield row, f"film {film!r} is a path; use a plain name"
        for row, id_ in _wrong_cells(self.ids, _ID):
            yield row, str(id_problem(id_))

        first_rows: dict[str, int] = {}
        for row, id_ in enumerate(self.ids):
            first = first_rows.setdefault(id_.lower(), row)
            if first != row:
                message = f"duplicate id {id_!r}; item {first + 1} is "
                yield row, f"{message}{self.ids[first]!r}; rename one, or add an id column"

        is_whole = np.isnan(self.starts) & np.isnan(self.ends)
        is_span = (self.starts >= 0) & (self.starts + MIN_SPAN_S <= self.ends)
        is_span &= self.ends <= MAX_TIME_S
        for row in np.flatnonzero(~(is_whole | is_span)).tolist():
            span = f"{self.starts[row]:g} to {self.ends[row]:g}"
            yield row, f"a span must end after it starts, with times from 0 to 1e9 s (got {span})"


def require_same_clips(stored: Items, listed: Items, listed_in: str = "the manifest") -> None:
    """Raise `ManifestError` if an id of a store stands for another file, film or span in a table.

    Ids of spans are often running numbers of a table, so equal ids alone prove nothing. Two items
    are compared by what both have: their spans and file names (without extension), or their films
    if neither names a file. If only one of them is a span, they are not compared.
    """
    for item in stored:
        row = listed.row_of.get(item.id)
        if row is not None and not _can_be_same(item, listed[row]):
            raise ManifestError(
                f"id {item.id} is another file, film or span in the store than in {listed_in}. Use "
                "the manifest that the store was made from, or extract the features again"
            )


def _can_be_same(item: Item, other: Item) -> bool:
    """Return False if two items differ in what both record; see `require_same_clips`."""
    if (item.start is None) != (other.start is None):
        return True
    starts = abs((item.start or 0) - (other.start or 0))
    ends = abs((item.end or 0) - (other.end or 0))
    if max(starts, ends) > MIN_SPAN_S / 2:
        return False
    names = {media_stem(name.rpartition("/")[2]).casefold() for name in (item.media, other.media)}
    if names == {""}:
        names = {item.film, other.film}
    return len(names - {""}) < 2


def group_noun(column: str) -> str:
    """Return the noun for a group of items with the same value in a column, for messages."""
    return {"media": "file"}.get(column, column)


def pick_rows(columns: Mapping[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """Return these rows of all columns that are lists, and of the extra columns.

    Empty lists stay empty.
    """
    picked = dict[str, Any]()
    for name, cells in columns.items():
        if isinstance(cells, list):
            picked[name] = [cells[row] for row in rows if cells]
        elif name == "extra":
            picked[name] = pick_rows(cells, rows)
    return picked


def id_problem(id_: str) -> str | None:
    """Return the problem with an id, or None if the id is valid."""
    if _ID.fullmatch(id_):
        return None
    return (
        f"id {shorten(id_)} is not allowed; use up to {MAX_ID_LENGTH} characters "
        "(A-Z a-z 0-9 . _ + -) without '..', starting with a letter or digit"
    )


def safe_id(name: str) -> str:
    """Convert a name to an id.

    Accents and other non-ASCII marks are dropped; spaces and most ASCII marks become underscores.
    The length is not limited. If letters are lost, or nothing is left, part of the name's hash is
    appended.

    Examples
    --------
    >>> safe_id("Amélie (2001)")
    'Amelie_2001'
    """
    plain = unicodedata.normalize("NFKD", name)
    latin = plain.encode("ascii", "ignore").decode()
    safe = re.sub(r"[^A-Za-z0-9._+-]+|\.{2,}", "_", latin).strip("._-+ ")
    lost = any(mark.isalpha() and not mark.isascii() for mark in plain)
    if lost or not safe:
        return f"{safe}-{sha256_of_text(name)[:8]}".removeprefix("-")
    return safe


def safe_ids(noun: str, names: Iterable[str]) -> dict[str, str]:
    """Return the `safe_id` of each name; raise `ManifestError` if two would be the same."""
    id_of = {}
    name_of: dict[str, str] = {}
    for name in dict.fromkeys(names):
        id_of[name] = safe_id(name)
        first = name_of.setdefault(id_of[name].lower(), name)
        if first != name:
            raise ManifestError(
                f"the {noun}s {shorten(first)} and {shorten(name)} would both get the id "
                f"{id_of[name]!r}; rename one of them"
            )
    return id_of


def media_stem(name: str) -> str:
    """Return a file name without its extension."""
    return name.rpartition(".")[0] or name


def name_film(film: str, media: str) -> str:
    """Return a clip's film, or the name of its file if it has no film."""
    return film or media_stem(media)


def _read_seconds(table: Table, column: str) -> np.ndarray:
    """Return a column of times, with NaN for empty cells; raise an error at the first bad cell."""
    cells = table.get(column)
    wrong = next(_wrong_cells(cells, _SECONDS), None)
    if wrong:
        row, cell = wrong
        raise table.problem(
            row, f"{column} {shorten(cell)} is not a number of seconds such as 75.5"
        )
    return np.array([float(cell or "nan") for cell in cells])


def format_seconds(value: float) -> str:
    """Format seconds with up to six decimals, without trailing zeros.

    Examples
    --------
    >>> format_seconds(1.5), format_seconds(60)
    ('1.5', '60')
    """
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _wrong_cells(cells: Sequence[str], pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the cells that a pattern does not match, with their rows."""
    for row, cell in enumerate(cells):
        if not pattern.fullmatch(cell):
            yield row, cell


def _format_times(values: np.ndarray, format_time: Callable[[float], str]) -> list[str]:
    """Format times as text; missing times become empty strings."""
    texts = []
    for seconds in values.tolist():
        texts.append("" if math.isnan(seconds) else format_time(seconds))
    return texts
