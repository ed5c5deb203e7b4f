"""Read CSV tables as spreadsheets save them, and write them in the same way on every system.

Messages about invalid rows name the file and the line.
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

from obygaze_features.common.files import describe_absent, require_readable
from obygaze_features.common.formatting import join_some
from obygaze_features.common.names import as_list, unknown_name
from obygaze_features.errors import ManifestError, UsageError, translate

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = (",", ";", "\t", "|")
#: A pattern for spreadsheet formulas, with or without the apostrophe of `escape_formula`.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[-+]?[0-9]+([.][0-9]+)?(e[-+]?[0-9]+)?")
csv.field_size_limit(2**31 - 1)  # the default is too short for the words of a film
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True)
class Table:
    """A table stored by columns, without empty lines; every row is as wide as the header.

    `lines` has the number of the line in the file on which each row ends.
    """

    path: Path
    delimiter: str
    columns: dict[str, list[str]]
    lines: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, column: str) -> list[str]:
        return self.columns[column]

    def get(self, column: str) -> list[str]:
        """Return a column, or empty cells if the table has no such column."""
        return self.columns.get(column) or [""] * len(self)

    def rows(self) -> Iterator[dict[str, str]]:
        """Yield the rows as dictionaries, for small tables."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def select(self, names: Iterable[str], rows: Sequence[int] | None = None) -> Table:
        """Return a table with only these columns and rows (default: all rows)."""
        columns = {name: self[name] for name in names}
        if rows is None:
            return replace(self, columns=columns)
        columns = {name: [cells[row] for row in rows] for name, cells in columns.items()}
        return replace(self, columns=columns, lines=[self.lines[row] for row in rows])

    def problem(self, row: int, message: str) -> ManifestError:
        """Return an error about one row, which names its line."""
        return ManifestError(f"{self.path}, line {self.lines[row]}: {message}")

    def check_cells(self, *columns: str) -> None:
        """Raise an error that names the line if a cell of these columns is blank."""
        for column in columns:
            for row, cell in enumerate(self.columns.get(column, [])):
                if not cell.strip():
                    raise self.problem(row, f"the {column} is missing; fill it in")


def read_table(
    path: Path,
    *,
    delimiter: str | None = ",",
    required: Sequence[str] = (),
) -> Table:
    """Read a CSV file into columns.

    Parameters
    ----------
    path
        A text file in UTF-8 with a header.
    delimiter
        The character between cells: a comma for a table that obygaze wrote; None for the most
        frequent of `DELIMITERS` in the header. With None or another character, blank rows and the
        escapes of formulas are removed.
    required
        Columns that must exist.
    """
    if not path.exists():
        raise ManifestError(describe_absent(path, "a CSV file"))
    require_readable(path, ManifestError)
    is_ours = delimiter == ","
    try:
        with (
            translate(ManifestError, path, "cannot be read: {}", foreign=OSError),
            path.open(encoding="utf-8-sig", newline="") as file,
        ):
            if delimiter is None:
                delimiter = max(DELIMITERS, key=file.readline(1 << 16).count)
                file.seek(0)
            table = parse_table(path, file, delimiter, required)
    except UnicodeDecodeError:
        remedy = "save it as CSV in UTF-8 (in Excel: 'CSV UTF-8')"
        raise ManifestError(f"{path} is not UTF-8; {remedy}") from None
    if is_ours:
        return table
    return _clean(table)


def _clean(table: Table) -> Table:
    """Return a table without blank rows and without the escapes of `format_spreadsheet`."""
    rows = enumerate(zip(*table.columns.values(), strict=True))
    table = table.select(table.columns, [row for row, cells in rows if any(cells)])
    columns = {}
    for name, cells in table.columns.items():
        columns[unescape_formula(name)] = list(map(unescape_formula, cells))
    return replace(table, columns=columns)


def parse_table(
    path: Path,
    file: TextIO,
    delimiter: str = ",",
    required: Sequence[str] = (),
) -> Table:
    """Read the columns of an open text, as `read_table` does; `path` names it in messages."""
    rows = _read_lines(path, file, delimiter)
    _, names = next(rows, (0, list[str]()))
    header = [name.strip() for name in names]
    _check_header(path, header, required)

    columns: list[list[str]] = [[] for _ in header]
    lines = array("q")
    share = lru_cache(str)  # cells that repeat soon become one string
    for line, cells in rows:
        lines.append(line)
        for column, cell in zip(columns, cells, strict=True):
            column.append(share(cell))
    return Table(path, delimiter, dict(zip(header, columns, strict=True)), lines)


def _read_lines(path: Path, file: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, each with the line on which it ends.

    Raises `ManifestError` for a row that is not as wide as the first one.
    """
    line = 0
    width = None
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            line = reader.line_num
            if not row:
                continue
            width = width or len(row)
            if len(row) != width:
                raise ManifestError(
                    f"{path}, line {line}: wrong number of cells (got {len(row)}, the header has "
                    f"{width})"
                )
            yield line, row
    except csv.Error as error:  # such as an unclosed quotation mark
        raise ManifestError(
            f"{path}, line {line + 1} or later: {error}; check the quotation marks"
        ) from None


def table_of_frame(frame: pd.DataFrame, name: str) -> Table:
    """Return a DataFrame as a table; an index with a name is a column.

    Messages name lines as if the table were a CSV file.
    """

    def join(cell: object) -> object:
        return "|".join(cell) if isinstance(cell, list | tuple) else cell

    typed = frame.convert_dtypes()  # whole numbers beside missing ones are floats until then
    text = typed.map(join).to_csv(index=frame.index.name is not None)
    return parse_table(Path(name), io.StringIO(text, newline=""))


def read_mapped_table(
    source: Path | Table,
    meanings: Mapping[str, Sequence[str]],
    columns: Mapping[str, str] | None = None,
    *,
    required: Sequence[str | tuple[str, ...]],
) -> Table:
    """Read another program's table, and rename its columns to their meanings.

    Parameters
    ----------
    source
        The file, see `read_table`, or the table that was read.
    meanings
        For each meaning, other names that its column may have; case is ignored.
    columns
        The column of each meaning (``--column``); a meaning may go by any of its names. A column
        with the name of a meaning has that meaning as well, unless another column was chosen for
        the meaning. If the column is then unused, it is called ``NAME (not used)``.
    required
        Meanings or other columns that must exist; a tuple lists alternatives.
    """
    table = source if isinstance(source, Table) else read_table(source, delimiter=None)
    column_of = _find_columns(table, meanings, columns or {})
    mapped = {meaning: table[column] for meaning, column in column_of.items()}
    for name, cells in table.columns.items():
        if name in column_of.values():
            continue
        if name in column_of:
            name = f"{name} (not used)"
        mapped[name] = cells

    for names in required:
        alternatives = as_list(names)
        if mapped.keys().isdisjoint(alternatives):
            problem = _no_column(table.path, next(iter(alternatives)), table.columns)
            remedies = [f"--column {name}=NAME" for name in alternatives if name in meanings]
            if remedies:
                problem += f"; choose one with {' or '.join(remedies)}"
            raise ManifestError(problem)
    return replace(table, columns=mapped)


def _find_columns(
    table: Table,
    meanings: Mapping[str, Sequence[str]],
    chosen: Mapping[str, str],
) -> dict[str, str]:
    """Return the column of each meaning that has one."""
    found = {name.casefold(): name for name in reversed(table.columns)}
    found |= {name: name for name in table.columns}

    meaning_of: dict[str, str] = {}
    for meaning, synonyms in meanings.items():
        meaning_of |= dict.fromkeys((meaning, *synonyms), meaning)

    column_of = {}
    for word, name in chosen.items():
        if word not in meaning_of:
            raise UsageError(f"--column: {unknown_name('meaning', word, meanings)}")
        if name not in found:
            raise ManifestError(_no_column(table.path, name, table.columns))
        column_of[meaning_of[word]] = found[name]

    for name, meaning in meaning_of.items():
        column = found.get(name)
        is_free = name == meaning or column not in column_of.values()
        if column and is_free and meaning not in column_of:
            column_of[meaning] = column
    return column_of


def format_table(columns: Mapping[str, Sequence[str]]) -> str:
    """Format a table as CSV with commas and Unix line endings."""
    has_returns = False
    for cells in (columns, *columns.values()):
        # The csv module does not quote a lone carriage return, but reads it as the end of a line.
        # Joining refuses cells that are not texts.
        has_returns |= "\r" in "".join(cells)
    text = io.StringIO()
    writer = csv.writer(
        text,
        lineterminator="\n",
        quoting=csv.QUOTE_ALL if has_returns else csv.QUOTE_MINIMAL,
    )
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def map_cells(function: Callable[[K], V], cells: Sequence[K]) -> list[V]:
    """Map a function over cells, calling it only once for equal cells.

    Raises the exception of the first cell that fails.
    """
    values = {cell: function(cell) for cell in dict.fromkeys(cells)}
    return list(map(values.__getitem__, cells))


def format_spreadsheet(columns: Mapping[str, Iterable[str]]) -> str:
    """Format a table for spreadsheets, escaping formulas with `escape_formula` but not numbers."""
    safe = {}
    for name, cells in columns.items():
        safe[escape_formula(name)] = [
            cell if _NUMBER.fullmatch(cell) else escape_formula(cell) for cell in cells
        ]
    return format_table(safe)


def format_rows(
    rows: Iterable[Mapping[str, object]],
    columns: Iterable[str] = (),
    number: Callable[[float], str] = "{:.6f}".format,
) -> str:
    """Format rows as a spreadsheet table, with `columns` or all keys; None is an empty cell."""
    rows = list(rows)
    names = list(columns) or dict.fromkeys(name for row in rows for name in row)

    def cell(value: object) -> str:
        if value is None:
            return ""
        if isinstance(value, float):
            return number(value)
        if isinstance(value, list | tuple):
            return "|".join(value)
        return str(value)

    return format_spreadsheet({name: [cell(row.get(name)) for row in rows] for name in names})


def escape_formula(text: str) -> str:
    """Escape a text that a spreadsheet would take for a formula; `unescape_formula` undoes this.

    Examples
    --------
    >>> escape_formula("=1+1"), unescape_formula(escape_formula("=1+1")), escape_formula("Juno")
    ("'=1+1", '=1+1', 'Juno')
    """
    if _FORMULA.match(text):
        return f"'{text}"
    return text


def unescape_formula(text: str) -> str:
    """Return a text as it was before `escape_formula`."""
    if text.startswith("'") and _FORMULA.match(text):
        return text[1:]
    return text


def _check_header(path: Path, header: list[str], required: Sequence[str]) -> None:
    if not header:
        raise ManifestError(f"{path} is empty; pass a CSV file with a header")
    for name in header:
        if header.count(name) > 1:
            raise ManifestError(f"{path}, line 1: duplicate column {name!r}; rename one")
    for name in required:
        if name not in header:
            raise ManifestError(_no_column(path, name, header))


def _no_column(path: Path, name: str, header: Iterable[str]) -> str:
    return f"{path}, line 1: no column {name!r}; the columns are {join_some(list(header), 20)}"
