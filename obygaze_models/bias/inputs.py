"""Input and output shared by the bias measures: tables, JSON files and word lists."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import check_format, read_json
from obygaze_features.common.package import reference_file
from obygaze_features.common.tables import Table, align, read_table
from obygaze_features.common.text import shorten, unknown_name
from obygaze_features.errors import BiasError, ManifestError, translate

Struct = TypeVar("Struct", bound=msgspec.Struct)
Row = Mapping[str, Any]
"""A row of results by column."""
FORMAT, FORMAT_VERSION = "obygaze-lexicon", 1
_Lists = Annotated[dict[str, tuple[str, ...]], msgspec.Meta(min_length=1)]


def read_struct(path: Path, kind: type[Struct], name: str, version: int) -> Struct:
    """Read a JSON file of this format as a typed struct."""
    content = check_format(read_json(path, BiasError), path, name, version, BiasError)
    for key in content:
        if key not in kind.__struct_fields__:
            raise BiasError(f"{path}: {unknown_name('key', key, kind.__struct_fields__)}")
    with translate(BiasError, path, foreign=msgspec.ValidationError):
        return msgspec.convert(content, kind)


@contextlib.contextmanager
def read_rows(path: Path, required: Sequence[str] = ()) -> Iterator[Table]:
    """Read a CSV table, also from a spreadsheet; its problems are raised as `BiasError`."""
    try:
        table = read_table(path, delimiter=None, required=required).without_escapes()
        if not len(table):
            raise BiasError(f"{path} has a header but no rows. Add a row for each item")
        yield table
    except ManifestError as problem:
        raise BiasError(str(problem)) from None


def require(table: Table, names: Sequence[str], purpose: str) -> None:
    """Refuse a table that lacks columns, naming them and their purpose."""
    if missing := [name for name in names if name not in table.columns]:
        raise BiasError(
            f"{table.path}, line 1: no column {', '.join(map(repr, missing))}, {purpose} (got "
            f"{', '.join(table.columns)})"
        )


def check_cells(table: Table, *filled: str, unique: str = "") -> None:
    """Refuse empty cells in the columns `filled`, and duplicates in `unique`, if present."""
    for column in filled:
        if "" in (cells := table.columns.get(column, [])):
            raise table.problem(cells.index(""), f"the {column} is missing")
    first_row: dict[str, int] = {}
    for row, cell in enumerate(table.columns.get(unique, [])):
        if first_row.setdefault(cell, row) != row:
            raise table.problem(row, f"duplicate {unique} {shorten(cell)}")


def numbers(table: Table, column: str, low: float, high: float) -> NDArray[Any]:
    """Return a column of numbers; an error names the first cell that is not in the range."""
    values = np.empty(len(table))
    for row, cell in enumerate(table[column]):
        try:
            values[row] = value = float(cell)
            if "_" in cell:  # Python reads 0_5 as 5
                raise ValueError
        except ValueError:
            raise table.problem(row, f"{column} {shorten(cell)} is not a number") from None
        if not low <= value <= high:
            raise table.problem(row, f"{column} {cell} is not from {low:g} to {high:g}")
    return values


def format_table(
    header: Sequence[str], templates: Sequence[str], rows: Iterable[Row], *, left: int = 1
) -> str:
    """Format rows for a terminal with a template per column, and `left` columns left-aligned.

    A cell whose template needs a number is a dash if the number is None.

    Examples
    --------
    >>> rows = [{"name": "a", "low": 0.25, "high": 0.5}, {"name": "b", "low": None, "high": None}]
    >>> print(format_table(["image", "95%"], ["{name}", "{low:.1%} to {high:.1%}"], rows))
    image             95%
    -----  --------------
    a      25.0% to 50.0%
    b                   -
    """

    def cell(template: str, row: Row) -> str:
        try:
            return template.format(**row)
        except TypeError:  # None cannot be formatted
            return "-"

    return align(header, [[cell(text, row) for text in templates] for row in rows], left=left)


def tokens(text: str) -> list[str]:
    """Split a caption at single spaces, in lower case and without "." and ",".

    Examples
    --------
    >>> tokens("A woman, smiling. It's  raining!")
    ['a', 'woman', 'smiling', "it's", '', 'raining!']
    """
    return text.lower().replace(".", "").replace(",", "").split(" ")


class Lexicon(msgspec.Struct, frozen=True, dict=True):
    """Word lists by name, and the groups' names with aliases for each column."""

    format: str
    format_version: int
    name: Annotated[str, msgspec.Meta(min_length=1)]
    words: _Lists
    groups: dict[str, _Lists]
    source: dict[str, Any] = {}

    @cached_property
    def all_words(self) -> frozenset[str]:
        """The words of all lists."""
        return frozenset(chain.from_iterable(self.words.values()))

    def group(self, column: str, text: str, where: object) -> str:
        """Return the group that a text names, by its name or an alias, in any case."""
        for name, aliases in self.groups[column].items():
            if text.casefold() in map(str.casefold, (name, *aliases)):
                return name
        raise BiasError(f"{where}: {unknown_name(column, text, self.groups[column])}")

    def count(self, text: str) -> Counter[str]:
        """Count each word of the lists among the tokens of a text."""
        return Counter(filter(self.all_words.__contains__, tokens(text)))


def shipped_lexicon(name: str) -> Lexicon:
    """Return a lexicon that obygaze ships: ``emotions`` or ``genders``."""
    return read_lexicon(reference_file(f"lexicons/{name}.json"))


def read_lexicon(path: str | Path) -> Lexicon:
    """Read a lexicon in the form of manifests/lexicons/emotions.json."""
    lexicon = read_struct(Path(path), Lexicon, FORMAT, FORMAT_VERSION)
    for name, words in lexicon.words.items():
        for word in words:
            if tokens(word) != [word]:
                raise BiasError(
                    f"{path}: words of {name}: {shorten(word)} is not one token. Write words in "
                    "lower case, without spaces, . or ,"
                )
    return lexicon
