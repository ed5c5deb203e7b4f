"""CSV tables: read strictly and in columns, written alike on every machine.

A million rows take little more time than the csv module needs to read them. Where a table is
broken, the message names the file and the line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from obygaze_features.errors import ManifestError

__all__ = ["UTF_16", "Table", "align", "encoding_of", "format_table", "plain", "read_table"]

#: What a spreadsheet may take a cell for a formula by.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: Rows that are turned into columns at once; few, so that they stay in the processor's cache.
_CHUNK = 128
#: Reads with and without a byte order mark, but slowly.
_MARKED = "utf-8-sig"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
SAVE_AS = "; save it again as UTF-8 (in Excel: 'CSV UTF-8')"
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
    encoding: str = _MARKED

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
    delimiter: str = ",",
    required: Sequence[str] = (),
    renamed: Callable[[str], str] = lambda name: name,
    marked: bool = False,
    uneven: list[tuple[int, int]] | None = None,
) -> Table:
    """Read a CSV file into columns.

    Parameters
    ----------
    path
        A UTF-8 file with a header, its last line ended by a newline.
    delimiter
        What stands between the cells.
    required
        Columns that must be there.
    renamed
        Called on each name of the header; `pandas` for one writes an index without a name.
    marked
        The file may start with a byte order mark, as what spreadsheets write does, and be UTF-16.
    uneven
        Gets line and number of cells of each row that is not as wide as the header, and is left
        out; without it, such a row is an error.
    """
    quoted = _check_bytes(path, marked=marked)
    try:
        encoding = encoding_of(path) if marked else "utf-8"
        with path.open(encoding=encoding, newline="" if quoted else None) as file:
            chunks = (_quoted if quoted else _plain)(file, delimiter)
            header = [renamed(name.strip()) for name in next(chunks, [[]])[0]]
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
        raise ManifestError(_not_utf8(path) + (SAVE_AS if marked else "")) from None
    except ManifestError:
        raise
    except (csv.Error, ValueError) as problem:  # ValueError is zip's: rows are not equally wide
        if uneven is not None and not isinstance(problem, csv.Error):
            return _without_uneven(path, delimiter, encoding, header, uneven)
        raise ManifestError(_broken_row(path, delimiter, encoding)) from None
    return Table(path, delimiter, dict(zip(header, columns, strict=True)), encoding=encoding)


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


def encoding_of(path: Path) -> str:
    """How a file with or without a byte order mark is written: UTF-8, or UTF-16 if it says so."""
    with path.open("rb") as file:
        return "utf-16" if file.read(2) in UTF_16 else _MARKED


def _quoted(file: TextIO, delimiter: str) -> Iterator[list[list[str]]]:
    """The header alone, then rows in chunks, empty ones left out."""
    reader = filter(None, csv.reader(file, delimiter=delimiter, strict=True))
    yield from ([row] for row in islice(reader, 1))
    while chunk := list(islice(reader, _CHUNK)):
        yield chunk


def _plain(file: TextIO, delimiter: str) -> Iterator[list[list[str]]]:
    """The same for a file without a quotation mark, where splitting is faster than parsing."""
    lines = filter("\n".__ne__, file)
    yield from ([line[:-1].split(delimiter)] for line in islice(lines, 1))
    while chunk := [line[:-1].split(delimiter) for line in islice(lines, _CHUNK)]:
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


def _check_bytes(path: Path, *, marked: bool) -> bool:
    """Refuse what is not a whole text file; say whether it has a quotation mark."""
    if path.is_dir():
        raise ManifestError(f"{path} is a folder; a CSV file is meant")
    try:
        with path.open("rb") as file:
            start = file.read(4)
            size = file.seek(0, 2)
            file.seek(max(0, size - 1))
            end = file.read(1)
            file.seek(0)
            quoted = any(b'"' in block for block in iter(lambda: file.read(1 << 20), b""))
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror}") from None
    if not start:
        raise ManifestError(f"{path} is empty; a CSV file with a header is meant")
    if start.startswith(b"\xef\xbb\xbf") and not marked:
        raise ManifestError(
            f"{path} starts with a byte order mark; save it as UTF-8 without one "
            f"(or remove it: sed -i '1s/^\\xEF\\xBB\\xBF//' {path.name})"
        )
    utf_16 = start.startswith(UTF_16)
    if utf_16 and not marked:
        raise ManifestError(f"{path} is UTF-16; save it again as UTF-8")
    if end != b"\n" and not (utf_16 and end == b"\0"):
        raise ManifestError(
            f"{path}: the last line has no line end, the file seems to be cut short; "
            "fetch it again, or end the line if it is whole"
        )
    return quoted


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
                f"{_DELIMITERS[others[0]]}, {_DELIMITERS.get(delimiter, repr(delimiter))} is meant"
            )
    if not header:
        raise ManifestError(f"{path} has no header, only empty lines")
    if missing:
        raise ManifestError(
            f"{path}, line 1: no column {', '.join(map(repr, missing))}; "
            f"there are {', '.join(header)}"
        )


def _not_utf8(path: Path) -> str:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return f"{path}, line {number}: not UTF-8 (byte {line[error.start]:#04x})"
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
