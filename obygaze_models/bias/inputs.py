"""Files that users give: CSV tables, JSON and lists of words, checked, with this room's errors."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import check_format, read_json
from obygaze_features.common.package import reference_file
from obygaze_features.common.tables import Table, read_table
from obygaze_features.common.text import shorten, unknown_name
from obygaze_features.errors import BiasError, ManifestError

Struct = TypeVar("Struct", bound=msgspec.Struct)
FORMAT, FORMAT_VERSION = "obygaze-lexicon", 1
_Lists = Annotated[dict[str, tuple[str, ...]], msgspec.Meta(min_length=1)]


def refuse_unknown_keys(value: Any, kind: type[msgspec.Struct], where: object) -> None:
    """Refuse a JSON object with an unknown key; the nearest known one is named."""
    for key in value if isinstance(value, dict) else ():
        if key not in kind.__struct_fields__:
            raise BiasError(f"{where}: {unknown_name('key', key, kind.__struct_fields__)}")


def convert(value: Any, kind: type[Struct], where: object) -> Struct:
    """A JSON object as a typed struct."""
    refuse_unknown_keys(value, kind, where)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        raise BiasError(f"{where}: {problem}") from None


def read_struct(path: Path, kind: type[Struct], name: str, version: int) -> Struct:
    """A JSON file of this format as a typed struct."""
    content = check_format(read_json(path, BiasError), path, name, version, BiasError)
    return convert(content, kind, path)


@contextlib.contextmanager
def read_rows(path: Path, required: Sequence[str] = ()) -> Iterator[Table]:
    """A CSV table, as spreadsheets write it too, which has rows; its errors are `BiasError`."""
    try:
        table = read_table(path, delimiter=None, required=required).without_escapes()
        if not len(table):
            raise BiasError(f"{path} has a header and no rows; add a row for each item")
        yield table
    except ManifestError as problem:
        raise BiasError(str(problem)) from None


def require(table: Table, names: Sequence[str], purpose: str) -> None:
    """Refuse a table that lacks columns; the message names them and their purpose."""
    if missing := [name for name in names if name not in table.columns]:
        raise BiasError(
            f"{table.path}, line 1: no column {', '.join(map(repr, missing))}, {purpose}; there "
            f"are {', '.join(table.columns)}"
        )


def check_cells(table: Table, *filled: str, unique: str) -> None:
    """Refuse an empty cell in the columns `filled`, and one twice in `unique`, if it has them."""
    for column in filled:
        if "" in (cells := table.columns.get(column, [])):
            raise table.problem(cells.index(""), f"the {column} is missing")
    seen: set[str] = set()
    for row, cell in enumerate(table.columns.get(unique, [])):
        if cell in seen:
            raise table.problem(row, f"duplicate {unique} {shorten(cell)}")
        seen.add(cell)


def numbers(
    table: Table, column: str, low: float, high: float, header: str | None = None
) -> NDArray[Any]:
    """A column of numbers; an error names the first cell that is not a number in the range.

    `header` is the column's name in the file, if it is another.
    """
    header = header or column
    values = np.empty(len(table))
    for row, cell in enumerate(table[column]):
        try:
            values[row] = value = float(cell)
            if "_" in cell:  # Python reads 0_5 as 5
                raise ValueError
        except ValueError:
            raise table.problem(row, f"{header} {shorten(cell)} is not a number") from None
        if not low <= value <= high:
            raise table.problem(row, f"{header} {cell} is not from {low:g} to {high:g}")
    return values


def tokens(text: str) -> list[str]:
    """The words of a caption: lower case, without . and , and split at single spaces.

    Examples
    --------
    >>> tokens("A woman, smiling. It's  raining!")
    ['a', 'woman', 'smiling', "it's", '', 'raining!']
    """
    return text.lower().replace(".", "").replace(",", "").split(" ")


class Lexicon(msgspec.Struct, frozen=True, dict=True):
    """Lists of words by name, and for each column of groups their names with aliases."""

    format: str
    format_version: int
    name: Annotated[str, msgspec.Meta(min_length=1)]
    words: _Lists
    groups: dict[str, _Lists]
    source: dict[str, Any] = {}

    @cached_property
    def all_words(self) -> frozenset[str]:
        """The words of all lists."""
        return frozenset(word for words in self.words.values() for word in words)

    @cached_property
    def _group_of(self) -> dict[str, dict[str, str]]:
        return {
            column: {
                alias.casefold(): name
                for name, aliases in names.items()
                for alias in (name, *aliases)
            }
            for column, names in self.groups.items()
        }

    def group(self, column: str, text: str) -> str:
        """The group that a file's text names, by its name or an alias, in any case."""
        group = self._group_of[column].get(text.casefold())
        if group is None:
            raise BiasError(unknown_name(column, text, self.groups[column]))
        return group

    def count(self, text: str) -> Counter[str]:
        """How often each word of any list is a token of a text."""
        return Counter(filter(self.all_words.__contains__, tokens(text)))


def shipped_lexicon(name: str) -> Lexicon:
    """A lexicon that obygaze ships: ``emotions`` or ``genders``."""
    return read_lexicon(reference_file(f"lexicons/{name}.json"))


def read_lexicon(path: str | Path) -> Lexicon:
    """A lexicon of your own, in the form of manifests/lexicons/emotions.json."""
    lexicon = read_struct(Path(path), Lexicon, FORMAT, FORMAT_VERSION)
    for name, words in lexicon.words.items():
        for word in words:
            if tokens(word) != [word]:
                raise BiasError(
                    f"{path}: words of {name}: {shorten(word)} is not one token; write words in "
                    "lower case, without spaces, . or ,"
                )
    return lexicon
