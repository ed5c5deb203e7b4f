"""Items: the clips, images or texts of a manifest, in a fixed order and with stable ids.

A store has one row per item. Items are kept in columns, so loading a million items takes about as
long as reading their CSV file.
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
#: The column with the SHA-256 of texts that must not be copied; `digest` needs it.
WITHHELD = "text_sha256"
COLUMNS = ("id", "kind", "film", "media", "text", "start", "end")
MAX_ID_LENGTH = 128
#: The minimum duration of a span; times are rounded to microseconds.
MIN_SPAN_S = 2e-6
#: The name of a file or folder, which must not be a path, "." or "..".
_NAME = re.compile(r"(?!\.{1,2}\Z)[^/\\\r\n\0]*+")
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
#: The characters that are allowed in ids, plus the newline that joins ids.
_ID_BYTES = f"{string.ascii_letters}{string.digits}_+-.\n".encode()
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*+(?:\.[A-Za-z0-9_+-]++)*+\.?")


@dataclass(frozen=True)
class Item:
    """A clip, an image or a text.

    `media` is a file's name, or its path within the film's folder. `start` and `end` are in
    seconds, if the item is a span of a longer film.
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
    """Items in columns; `extra` has the columns of the source that obygaze does not use."""

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
        """Make columns from a sequence of items."""
        items = list(items)
        ids, kinds, films, media, texts, starts, ends = (
            [getattr(item, name) for item in items] for name in COLUMNS
        )
        # NumPy reads None as NaN.
        times = np.array(starts, dtype=float), np.array(ends, dtype=float)
        return cls(ids, kinds, films, media, texts, *times, extra or {})

    @classmethod
    def from_table(cls, table: Table, *, check: bool = True) -> Items:
        """Make items from a CSV table that has at least an ``id`` column.

        If `check` is false, rows may be invalid; `problems` and `seconds_problems` report them.
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
        """The row number of each id."""
        return dict(zip(self.ids, range(len(self)), strict=True))

    def row(self, identifier: str) -> int:
        """Return the row number of an id; raise `UnknownItem` if there is no such id."""
        if identifier not in self.row_of:
            remedy = did_you_mean([str(identifier)], self.ids)
            raise UnknownItem(f"there is no item {identifier!r}{remedy}")
        return self.row_of[identifier]

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns by which items can be grouped: ``film``, ``media``, ``kind`` and `extra`.

        Each ``media`` is prefixed with its film.
        """
        places = zip(self.films, self.media, strict=True)
        media = [f"{film}/{name}" if film and name else name for film, name in places]
        return {"film": self.films, "media": media, "kind": self.kinds, **self.extra}

    def column(self, name: str) -> list[str]:
        """Return one of `columns`; raise `ManifestError` if the name is unknown."""
        if name not in (columns := self.columns):
            raise ManifestError(
                f"unknown column {shorten(name)}; choose from {join_some(list(columns), 30)} "
                f"(media is the file){did_you_mean([name], columns)}"
            )
        return columns[name]

    def groups(self, name: str, ids: Sequence[str]) -> list[str]:
        """Return each id's group, from a column; raise `ManifestError` if any cell is empty."""
        cells = self.column(name)
        groups = [cells[self.row(identifier)] for identifier in ids]
        if "" in groups:
            raise ManifestError(
                f"{ids[groups.index('')]} has no {group_noun(name)} to group clips by; "
                f"fill in the column {name} of items.csv, or group by another column, such "
                'as the file (--by media, or groups = "media" in an experiment)'
            )
        return groups

    @cached_property
    def files(self) -> NDArray[np.int64]:
        """A number for each item's file, or for its film if the item names no file."""
        names = [*zip(self.films, self.media, strict=True)]
        number = {name: code for code, name in enumerate(dict.fromkeys(names))}
        return np.array([number[name] for name in names], dtype=np.int64)

    @cached_property
    def whole_films(self) -> set[str]:
        """The ids of clips without a span that are the only clip of their film (or file)."""
        names = list(map(name_film, self.films, self.media))
        counts, unspanned = Counter(filter(None, names)), np.isnan(self.starts)
        return {self.ids[row] for row in np.flatnonzero(unspanned) if counts[names[row]] == 1}

    @property
    def span_films(self) -> list[str]:
        """The film of each item; spans without a film are grouped by the name of their file."""
        spans = (~np.isnan(self.starts)).tolist()
        return [
            film or (media_stem(media) if span else "")
            for film, media, span in zip(self.films, self.media, spans, strict=True)
        ]

    @cached_property
    def spans_by_film(self) -> dict[str, NDArray[np.intp]]:
        """The rows of each film's spans, ordered by time; film names are converted to safe ids."""
        films, by_film = self.span_films, dict[str, list[int]]()
        ids = {film: film and safe_id(film) for film in set(films)}
        for row in np.flatnonzero(~np.isnan(self.starts)).tolist():
            by_film.setdefault(ids[films[row]], []).append(row)
        ordered = {}
        for film, of_film in by_film.items():
            rows = np.array(of_film, np.intp)
            ordered[film] = rows[np.lexsort((self.ends[rows], self.starts[rows]))]
        return ordered

    @property
    def repeats(self) -> dict[int, int]:
        """The first row that each repeated row equals in kind, film, file, text and span."""
        if self._has_ordered_spans:
            return {}
        names = zip(self.kinds, self.span_films, self.media, self.texts, strict=True)
        spans = zip(names, self.starts.tolist(), self.ends.tolist(), strict=True)
        first_rows: dict[object, int] = {}
        repeats = {}
        for row, span in enumerate(spans):
            (_, film, _, _), start, _ = span
            if film and not math.isnan(start):
                first_row = first_rows.setdefault(span, row)
                if first_row != row:
                    repeats[row] = first_row
        return repeats

    @property
    def _has_ordered_spans(self) -> bool:
        """True if each film's items are together and in order of start, as in most tables."""
        code_of = {film: code for code, film in enumerate(dict.fromkeys(self.films))}
        films = np.fromiter(map(code_of.__getitem__, self.films), np.int64, len(self))
        steps = np.diff(films)
        return bool(((steps > 0) | ((steps == 0) & (np.diff(self.starts) > 0))).all())

    def take(self, rows: Sequence[int], *, check: bool = True) -> Items:
        """Return the items in these rows, in this order; if `check`, raise for repeated rows."""
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
        """Return the items that belong to these films and have these ids, in the same order.

        Every film and id must exist. A string is treated as a list of one.
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
        """The SHA-256 of everything that identifies the rows, as specified in manifests/README.md.

        It covers the ids, their order, kinds, media stems (or texts) and spans. File extensions are
        left out, so that clips in .mp4 at one lab and .mkv at another are the same items.
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
        """Return the items as saved in a store, without the words spoken in spans of films.

        The words are replaced by their SHA-256, so the digest stays the same.
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
        """Yield every invalid row with its problem, column by column."""
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
            yield row, f"a span must end after it starts (got {span}; times go from 0 to 1e9)"

    def _repeated_ids(self) -> Iterator[tuple[int, str]]:
        """Yield every row that repeats the id of an earlier row, ignoring case."""
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
                yield row, f"id {self.ids[row]!r} differs from {first!r} only in case"


class NamedItems(Protocol):
    """An object with items and a name, such as a `Manifest`, for which a store can be made."""

    @property
    def name(self) -> str:
        """The name to use in messages."""

    @property
    def licence(self) -> str:
        """The licence of everything made from the items; "" if unknown."""

    @property
    def citation(self) -> str:
        """The citation to use; "" if there is none."""

    @property
    def items(self) -> Items:
        """The items, in order."""


def require_same_clips(stored: Items, listed: Items, listed_in: str = "the manifest") -> None:
    """Raise `ManifestError` if an id of a store stands for another file or span in a table.

    Ids of spans are often running numbers of a table, so equal ids alone prove nothing. Only what
    both record is compared: spans where both have one, and files without their extension, or films
    where neither has a file.
    """
    row_of = listed.row_of
    pairs = [(row, row_of[clip]) for row, clip in enumerate(stored.ids) if clip in row_of]
    rows, others = np.array(pairs, np.intp).reshape(-1, 2).T

    moved = np.abs(stored.starts[rows] - listed.starts[others]) > MIN_SPAN_S / 2
    moved |= np.abs(stored.ends[rows] - listed.ends[others]) > MIN_SPAN_S / 2
    are_alike = np.isnan(stored.starts[rows]) == np.isnan(listed.starts[others])

    own_files = map_cells(_file_key, stored.media)
    files = map_cells(_file_key, listed.media)
    for (row, other), has_moved, is_alike in zip(pairs, moved, are_alike, strict=True):
        own_name, name = own_files[row], files[other]
        if not (own_name or name):
            own_name, name = stored.films[row], listed.films[other]
        is_named = is_alike and own_name and name
        if has_moved or (is_named and own_name != name):
            raise ManifestError(
                f"id {stored.ids[row]} is {_describe_place(stored[row])} in the store and "
                f"{_describe_place(listed[other])} in {listed_in}. Use the manifest that the store "
                "was made from, or extract the features again"
            )


def _file_key(name: str) -> str:
    return media_stem(name.rpartition("/")[2]).casefold()


def _describe_place(item: Item) -> str:
    span = "" if item.start is None else f" {item.start:g}-{item.end:g} s"
    return (item.media or item.film) + span


def group_noun(column: str) -> str:
    """Return the noun for a group of items with the same value in a column, for messages."""
    return {"media": "file"}.get(column, column)


def raise_first(table: Table, problems: Iterable[tuple[int, str]]) -> None:
    """Raise an error for the first problem of a table, if it has any."""
    for row, message in sorted(problems)[:1]:
        raise table.problem(row, message)


def pick_rows(columns: Mapping[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """Return these rows of all columns that are lists; empty lists stay empty."""
    lists = {name: cells for name, cells in columns.items() if isinstance(cells, list)}
    return {name: [cells[row] for row in rows] if cells else [] for name, cells in lists.items()}


def id_problem(identifier: str) -> str | None:
    """Return the problem with an id, or None if the id is valid."""
    if _ID.fullmatch(identifier) and len(identifier) <= MAX_ID_LENGTH:
        return None
    if not identifier:
        return "the id is empty"
    if len(identifier) > MAX_ID_LENGTH:
        return f"id {shorten(identifier)} is longer than {MAX_ID_LENGTH} characters"
    return (
        f"id {shorten(identifier)} is not allowed; use letters, digits and . _ + - "
        "without '..', starting with a letter or digit"
    )


def are_ids(names: Sequence[str]) -> bool:
    """Return True if all names are valid ids; much faster than `id_problem` for many names."""
    text = "\n".join(["", *names, ""])
    if not text.isascii() or text.encode().translate(None, _ID_BYTES) or ".." in text:
        return False
    marks = np.frombuffer(text.encode(), np.uint8)
    ends = np.flatnonzero(marks == ord("\n"))
    longest = np.diff(ends).max(initial=0) - 1 if len(ends) == len(names) + 1 else math.inf
    return longest <= MAX_ID_LENGTH and {*marks[ends[:-1] + 1].tobytes()}.isdisjoint(b"\n._+-")


def safe_id(name: str) -> str:
    """Convert a name to a valid id, dropping accents and replacing other marks with underscores.

    If letters of another script are lost, part of the name's hash is appended to keep ids distinct.

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
    """Return the problem with a file's name (or path within the film's folder), or None."""
    if _NAME.fullmatch(name) or all(part and _NAME.fullmatch(part) for part in name.split("/")):
        return None
    return (
        f"media {shorten(name)} is not a file name or a path within the folder of videos "
        "(such as season1/clip.mp4)"
    )


def media_stem(name: str) -> str:
    """Return a file name without its extension."""
    return name.rpartition(".")[0] or name


def name_film(film: str, media: str) -> str:
    """Return a clip's film, or the name of its file if it has no film."""
    return film or media_stem(media)


def seconds_problems(table: Table) -> Iterator[tuple[int, str]]:
    """Yield a problem for every start and end in a table that is not a number of seconds."""
    for column in ("start", "end"):
        cells = table.columns.get(column, [])
        wrong = {cell for cell in {*cells} if cell and _SECONDS.fullmatch(cell) is None}
        for row, cell in enumerate(cells if wrong else []):
            if cell in wrong:
                yield row, f"{column} {shorten(cell)} is not a number of seconds"


def format_seconds(value: float) -> str:
    """Format seconds with up to six decimals, without trailing zeros.

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
    """Parse cells as seconds; empty and invalid cells become NaN."""
    if not any(cells):
        return np.full(len(cells), math.nan)
    return np.array(
        map_cells(lambda cell: float(cell) if _SECONDS.fullmatch(cell) else math.nan, cells)
    )


def _microseconds(value: float) -> str:
    return str(round(value * 1e6))


def _format_times(values: np.ndarray, format_time: Callable[[float], str]) -> list[str]:
    """Format times as text; missing times become empty strings."""
    cells = np.where(np.isnan(values), np.array(None), values).tolist()
    return map_cells(lambda value: "" if value is None else format_time(value), cells)
