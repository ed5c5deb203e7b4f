"""CSV tables: read in columns as spreadsheets save them, written alike on every machine.

A million rows take little more time than the csv module needs to read them. Where a table is
broken, the message names the file and the line.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TextIO

from obygaze_features.common.files import describe_absent
from obygaze_features.common.text import join_some, unknown_name
from obygaze_features.errors import ManifestError, UsageError

__all__ = ["Table", "align", "format_table", "map_columns", "plain", "read_table"]

#: What a spreadsheet may take a cell for a formula by.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: Rows that are turned into columns at once; few, so that they stay in the processor's cache.
_CHUNK = 128
_UTF_8_MARK, _UTF_16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_JSON = re.compile(rb"\s*(?:\{|\[\s*[\[{\"])")
_DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}


@dataclass(frozen=True)
class Table:
    """A table in columns; empty lines are left out, every row is as wide as the header.

    `kept` says which of the file's rows these are, where some were left out since.
    """

    path: Path
    delimiter: str
    columns: dict[str, list[str]]
    kept: Sequence[int] | None = None
    encoding: str = "utf-8"

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, column: str) -> list[str]:
        return self.columns[column]

    def rows(self) -> Iterator[dict[str, str]]:
        """The rows as dictionaries, for sources that are small."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def lines(self) -> list[int]:
        """The line of the file on which each row ends; read again, as only errors need it."""
        with self.path.open(encoding=self.encoding, newline="") as file:
            reader = csv.reader(file, delimiter=self.delimiter, strict=True)
            ends = [reader.line_num for row in reader if row][1:]
        return ends if self.kept is None else [ends[row] for row in self.kept]

    def problem(self, row: int, message: str) -> ManifestError:
        """An error about one row, to be raised."""
        return ManifestError(f"{self.path}, line {self.lines()[row]}: {message}")


def read_table(
    path: Path,
    *,
    delimiter: str | None = ",",
    required: Sequence[str] = (),
    uneven: list[tuple[int, int]] | None = None,
) -> Table:
    """Read a CSV file into columns.

    Parameters
    ----------
    path
        A text file with a header, in UTF-8, or in UTF-16 with a byte order mark.
    delimiter
        What separates the cells; None for the mark that the header has most of.
    required
        Columns that must be there.
    uneven
        Receives line and number of cells of each row that is not as wide as the header, which is
        left out; without it, such a row is an error.
    """
    encoding, quoted = _check_bytes(path)
    try:
        with path.open(encoding=encoding, newline="" if quoted else None) as file:
            if delimiter is None:
                delimiter = max(_DELIMITERS, key=file.readline(1 << 16).count)
                file.seek(0)
            chunks = (_quoted if quoted else _plain)(file, delimiter)
            header = [name.strip() for name in next(chunks, [[]])[0]]
            _check_header(path, header, required, delimiter)
            columns: list[list[str]] = [[] for _ in header]
            for chunk in chunks:
                for column, values in zip(columns, zip(*chunk, strict=True), strict=True):
                    first = values[0]
                    if first == values[-1] and values.count(first) == len(values):
                        # A film's name a thousand times over is kept once.
                        values = (first,) * len(values)
                    column.extend(values)
    except UnicodeDecodeError:
        raise ManifestError(_not_utf8(path)) from None
    except ManifestError:
        raise
    except (csv.Error, ValueError) as problem:  # ValueError is zip's: rows are not equally wide
        assert delimiter is not None
        if uneven is not None and not isinstance(problem, csv.Error):
            return _without_uneven(path, delimiter, encoding, header, uneven)
        raise ManifestError(_broken_row(path, delimiter, encoding)) from None
    return Table(path, delimiter, dict(zip(header, columns, strict=True)), encoding=encoding)


def map_columns(
    table: Table,
    meanings: Mapping[str, Sequence[str]],
    columns: Mapping[str, str] | None = None,
    *,
    required: Sequence[str] = (),
) -> Table:
    """Name columns after what they mean; the others keep their names.

    Parameters
    ----------
    table
        As it was read.
    meanings
        Meaning -> other names that a column with it may have; case is ignored.
    columns
        Meaning -> column, as ``--column`` gives them. One column may have several meanings.
    required
        Meanings that some column must have.
    """
    columns = dict(columns or {})
    by_key = {name.casefold(): name for name in reversed(table.columns)}
    column_of: dict[str, str] = {}
    for meaning, name in columns.items():
        if meaning not in meanings:
            raise UsageError(f"--column: {unknown_name('meaning', meaning, meanings)}")
        if name not in table.columns and name.casefold() not in by_key:
            raise ManifestError(_no_column(table.path, [name], table.columns))
        column_of[meaning] = name if name in table.columns else by_key[name.casefold()]
    for meaning, others in meanings.items():
        for name in (meaning, *others):
            exact = name if name in table.columns else by_key.get(name.casefold())
            if meaning not in column_of and exact and exact not in column_of.values():
                column_of[meaning] = exact
    for meaning in required:
        if meaning not in column_of:
            raise ManifestError(
                f"{table.path}, line 1: no column {meaning!r}; say which one is with "
                f"--column {meaning}=NAME (there are {join_some(list(table.columns), 20)})"
            )
    mapped = {}
    for name, cells in table.columns.items():
        own = f"{name} (not used)" if name in column_of else name
        meant = [meaning for meaning, column in column_of.items() if column == name]
        mapped.update(dict.fromkeys(meant or [own], cells))
    return replace(table, columns=mapped)


def _without_uneven(
    path: Path, delimiter: str, encoding: str, header: list[str], uneven: list[tuple[int, int]]
) -> Table:
    rows, kept = [], []
    try:
        with path.open(encoding=encoding, newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for place, row in enumerate(filter(None, reader), start=-1):
                if len(row) != len(header):
                    uneven.append((reader.line_num, len(row)))
                elif place >= 0:
                    rows.append(row)
                    kept.append(place)
    except csv.Error:
        raise ManifestError(_broken_row(path, delimiter, encoding)) from None
    columns = [[row[at] for row in rows] for at in range(len(header))]
    return Table(path, delimiter, dict(zip(header, columns, strict=True)), kept, encoding)


def _quoted(file: TextIO, delimiter: str) -> Iterator[list[list[str]]]:
    """The header alone, then rows in chunks, empty ones left out."""
    reader = filter(None, csv.reader(file, delimiter=delimiter, strict=True))
    yield from ([row] for row in islice(reader, 1))
    while chunk := list(islice(reader, _CHUNK)):
        yield chunk


def _plain(file: TextIO, delimiter: str) -> Iterator[list[list[str]]]:
    """The same for a file without a quotation mark, where splitting is faster than parsing."""
    first = next((line for line in file if line != "\n"), "")
    if first:
        yield [first.rstrip("\n").split(delimiter)]
    while lines := "".join(islice(file, _CHUNK)):
        if chunk := [line.split(delimiter) for line in lines.split("\n") if line]:
            yield chunk


def format_table(columns: dict[str, Sequence[str]]) -> str:
    """A table as CSV text: comma, minimal quoting, Unix line ends."""
    text = io.StringIO()
    # The csv module puts no quotes around a lone carriage return, and then reads it as a line end.
    returns = any("\r" in cell for cells in columns.values() for cell in cells)
    writer = csv.writer(
        text, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL
    )
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def plain(cell: str) -> str:
    """A text for spreadsheets: what one would take for a formula gets an apostrophe before it.

    Examples
    --------
    >>> plain("=1+1"), plain("Juno")
    ("'=1+1", 'Juno')
    """
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def align(header: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1) -> str:
    """Lay out rows for a terminal: the first `left` columns to the left, numbers to the right."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _check_bytes(path: Path) -> tuple[str, bool]:
    """The encoding of a text file, and whether it has a quotation mark; other files are refused."""
    if path.is_dir():
        raise ManifestError(f"{path} is a folder; give a CSV file")
    try:
        with path.open("rb") as file:
            start = file.read(1 << 12)
            file.seek(0)
            quoted = any(b'"' in block for block in iter(lambda: file.read(1 << 20), b""))
    except FileNotFoundError:
        raise ManifestError(describe_absent(path, "a CSV file")) from None
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror}") from None
    if not start:
        raise ManifestError(f"{path} is empty; give a CSV file with a header")
    if start.startswith(_UTF_16_MARKS):
        return "utf-16", quoted
    kind = "binary data" if _is_binary(start) else "JSON" if _JSON.match(start) else ""
    if kind:
        raise ManifestError(f"{path} is not a text table (got {kind}); give a CSV file")
    # Plain UTF-8 is decoded several times faster.
    return "utf-8-sig" if start.startswith(_UTF_8_MARK) else "utf-8", quoted


def _is_binary(start: bytes) -> bool:
    """Whether a file starts as no text does; a comment in a table may have a zero byte."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return b"\0" in start
    return b"\0" in start.partition(b"\n")[0]


def _check_header(path: Path, header: list[str], required: Sequence[str], delimiter: str) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise ManifestError(f"{path}, line 1: duplicate column {twice[0]!r}")
    missing = [name for name in required if name not in header]
    if len(header) <= 1:
        others = [d for d in _DELIMITERS if d != delimiter and d in "".join(header)]
        if others:
            raise ManifestError(
                f"{path}, line 1: wrong delimiter: cells are separated by "
                f"{_DELIMITERS[others[0]]}, not {_DELIMITERS.get(delimiter, repr(delimiter))}"
            )
    if not header:
        raise ManifestError(f"{path} has no header, only empty lines")
    if missing:
        raise ManifestError(_no_column(path, missing, header))


def _no_column(path: Path, names: Iterable[str], header: Iterable[str]) -> str:
    missing = ", ".join(map(repr, names))
    return f"{path}, line 1: no column {missing}; there are {join_some(list(header), 20)}"


def _not_utf8(path: Path) -> str:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                where = f"{path}, line {number}: not UTF-8 (byte {line[error.start]:#04x})"
                return f"{where}; save it again as UTF-8 (in Excel: 'CSV UTF-8')"
    return f"{path}: not UTF-8"


def _broken_row(path: Path, delimiter: str, encoding: str) -> str:
    """Which row cannot be read, and why."""
    with path.open(encoding=encoding, newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        width = line = 0
        try:
            for row in filter(None, reader):
                line = reader.line_num
                width = width or len(row)
                if len(row) != width:
                    cells = f"{len(row)} cells where the header has {width}"
                    return f"{path}, line {line}: {cells}"
        except csv.Error as error:
            if "unexpected end" in str(error):
                return f"{path}, line {line + 1} or below: a quotation mark is never closed"
            return f"{path}, line {reader.line_num}: {error}"
    return f"{path}: rows of different widths"
