"""Print results for people: facts in two columns, and rows as tables."""

from __future__ import annotations

import itertools
import math
import shutil
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from obygaze_features.common.formatting import join_some

Result = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""The result of a command: facts and rows, or only rows."""
MAX_ENTRIES = 20
"""The maximum number of entries of a mapping in a cell; ``--json`` has all."""
WIDTH = 100
"""The maximum width of wrapped text, in letters."""


def describe(result: Result) -> str:
    """Return a result as text: its facts in two columns, and its lists of rows as tables.

    Lists of mappings are tables, and so are mappings of mappings. Empty facts and empty tables are
    left out. A value that a row lacks is a dash.

    Examples
    --------
    >>> print(describe({"to_do": 12000, "paper": "", "films": [{"film": "Juno", "auroc": 0.6149}]}))
    to do  12,000
    <BLANKLINE>
    film  auroc
    ----  -----
    Juno  0.615
    >>> print(describe({"arrays": {"native": {"shape": [12, 8]}}}))
    arrays  shape
    ------  -----
    native  12, 8
    """
    if not isinstance(result, Mapping):
        return align_rows(result)

    facts = {}
    tables = []
    for name, value in result.items():
        rows = _rows_of(name, value)
        if rows:
            tables.append(align_rows(rows))
        elif value not in (None, "", [], (), {}):
            facts[name.replace("_", " ")] = to_cell(value)

    width = max(map(len, facts), default=0)
    lines = [f"{name:<{width}}  {text}" for name, text in facts.items()]
    if lines:
        tables.insert(0, "\n".join(lines))
    return "\n\n".join(tables)


def _rows_of(name: str, value: Any) -> Sequence[Mapping[str, Any]]:
    """Return a list of mappings, or a mapping of mappings by name, as rows; [] for a fact."""
    if isinstance(value, Mapping) and all(isinstance(row, Mapping) for row in value.values()):
        return [{name: key, **row} for key, row in value.items()]
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        return value
    return []


def align_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a table with the columns of all rows; columns of numbers are right-aligned."""
    columns = {}
    texts = set()
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        title = name.replace("_", " ")
        columns[title] = list(map(to_cell, values))
        if not all(isinstance(value, int | float | None) for value in values):
            texts.add(title)
    return align(columns, left=texts)


def to_cell(value: Any) -> str:
    """Return a value as text for people: a dash for None or NaN, and at most three decimals.

    Examples
    --------
    >>> [to_cell(value) for value in (None, True, 12000, 0.61493, ["a", "b"], {"EN": 3, "S": 4})]
    ['-', 'yes', '12,000', '0.615', 'a, b', 'EN 3, S 4']
    >>> to_cell({"name": "xclip", "config": {"layers": 2}})
    'name xclip'
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        plain = {name: cell for name, cell in value.items() if not isinstance(cell, Mapping)}
        return join_some([f"{name} {to_cell(cell)}" for name, cell in plain.items()], MAX_ENTRIES)
    if isinstance(value, list | tuple):
        return join_some([to_cell(cell) for cell in value])
    return str(value).replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    if 0 < abs(value) < 0.001:
        return format(value, ".1e")
    return format(value, ".3f" if abs(value) < 100 else ",.0f")


def align(columns: Mapping[str, Sequence[str]], *, left: Collection[str]) -> str:
    """Format columns for a terminal, under a header and a rule; those in `left` are left-aligned.

    Columns that do not fit the terminal are in further tables, beside the first texts.

    Examples
    --------
    >>> print(align({"film": ["Juno", "Up"], "clips": ["74", "9"]}, left=["film"]))
    film  clips
    ----  -----
    Juno     74
    Up        9
    """
    padded = {}
    for name, cells in columns.items():
        width = max(map(len, [name, *cells]))
        justify = str.ljust if name in left else str.rjust
        padded[name] = [justify(cell, width) for cell in (name, "-" * width, *cells)]
    widths = {name: len(lines[0]) for name, lines in padded.items()}
    tables = []
    for names in _groups(widths, left):
        rows = zip(*map(padded.__getitem__, names), strict=True)
        tables.append("\n".join("  ".join(row).rstrip() for row in rows))
    return "\n\n".join(tables)


def _groups(widths: Mapping[str, int], left: Collection[str]) -> list[list[str]]:
    """Return the columns of tables that fit a terminal; each begins with the first texts."""
    columns = terminal_columns()
    first = [*itertools.takewhile(left.__contains__, widths)]
    groups = [first.copy()]
    for name in [*widths][len(first) :]:
        if sum(widths[column] + 2 for column in [*groups[-1], name]) > columns + 2:
            groups.append(first.copy())
        groups[-1].append(name)
    return groups


def terminal_columns() -> int:
    """Return the width of the terminal; without a terminal, lines may have any length."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return sys.maxsize


def fill(text: str) -> str:
    """Wrap text at 100 columns, or at the terminal's width if that is narrower."""
    columns = shutil.get_terminal_size((WIDTH, 0)).columns
    return textwrap.fill(text, min(WIDTH, columns))
