"""Tables of users: read with this room's errors, and numbers held to their bounds."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import Table, format_table, read_table
from obygaze_features.common.text import shorten
from obygaze_features.errors import BiasError, ManifestError

__all__ = ["cells", "numbers", "read_rows", "require", "table_errors"]


@contextlib.contextmanager
def table_errors() -> Iterator[None]:
    """What is wrong with a table is, in this room, a `BiasError`."""
    try:
        yield
    except ManifestError as problem:
        raise BiasError(str(problem)) from None


def read_rows(path: Path, required: Sequence[str] = ()) -> Table:
    """Read a CSV table, as spreadsheets write it too; one without rows is refused."""
    table = read_table(path, delimiter=None, required=required)
    if not len(table):
        raise BiasError(f"{path} has a header and no rows")
    return table


def require(table: Table, names: Sequence[str], why: str) -> None:
    """Refuse a table that lacks columns, by their names and what they are for."""
    if missing := [name for name in names if name not in table.columns]:
        raise BiasError(
            f"{table.path}, line 1: no column {', '.join(map(repr, missing))}, {why}; there are "
            f"{', '.join(table.columns)}"
        )


def numbers(
    table: Table, column: str, low: float, high: float, called: str | None = None
) -> NDArray[Any]:
    """A column of numbers; the first that is none, or is not from `low` to `high`, is named.

    `called` is what the file calls the column, where that is another name.
    """
    called = called or column
    found = np.empty(len(table))
    for row, cell in enumerate(table[column]):
        try:
            found[row] = value = float(cell)
            if "_" in cell:  # Python reads 0_5 as 5
                raise ValueError
        except ValueError:
            raise table.problem(row, f"{called} {shorten(cell)} is not a number") from None
        if not (math.isfinite(value) and low <= value <= high):
            raise table.problem(row, f"{called} {cell} is not from {low:g} to {high:g}")
    return found


def cells(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of the same keys as CSV text: numbers in full, nothing where there is None."""
    return format_table(
        {key: ["" if row[key] is None else str(row[key]) for row in rows] for key in rows[0]}
    )
