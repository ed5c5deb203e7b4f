"""Input and output shared by the bias measures: tables, JSON files, word lists, embeddings."""

from __future__ import annotations

import contextlib
import csv
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import check_format, read_json
from obygaze_features.common.package import reference_file
from obygaze_features.common.printer import align
from obygaze_features.common.tables import Table, read_table
from obygaze_features.common.text import counted, shorten, unknown_name
from obygaze_features.errors import BiasError, ManifestError, translate
from obygaze_features.items.items import require_same_clips
from obygaze_features.manifests import Items, Manifest
from obygaze_features.store import open_store
from obygaze_models.data.stores import read_features
from obygaze_models.scoring.metrics import Array

Struct = TypeVar("Struct", bound=msgspec.Struct)
Row = Mapping[str, Any]
"""A row of results: a mapping from columns to values."""
FORMAT, FORMAT_VERSION = "obygaze-lexicon", 1
_Lists = Annotated[dict[str, tuple[str, ...]], msgspec.Meta(min_length=1)]


def read_struct(path: Path, kind: type[Struct], name: str, version: int) -> Struct:
    """Read a JSON file as a typed struct; raise `BiasError` if it does not have the format."""
    content = check_format(read_json(path, BiasError), path, name, version, BiasError)
    for key in content:
        if key not in kind.__struct_fields__:
            raise BiasError(f"{path}: {unknown_name('key', key, kind.__struct_fields__)}")
    with translate(BiasError, path, foreign=msgspec.ValidationError):
        return msgspec.convert(content, kind)


@contextlib.contextmanager
def read_rows(path: Path, required: Sequence[str] = ()) -> Iterator[Table]:
    """Read a CSV table, with any delimiter; convert a `ManifestError` to a `BiasError`."""
    try:
        table = read_table(path, delimiter=None, required=required).without_escapes()
        if not len(table):
            raise BiasError(f"{path} has a header but no rows. Add a row for each item")
        yield table
    except ManifestError as problem:
        raise BiasError(str(problem)) from None


def require(table: Table, names: Sequence[str], purpose: str) -> None:
    """Raise `BiasError`, with the columns and their purpose, if a table lacks columns."""
    if missing := [name for name in names if name not in table.columns]:
        raise BiasError(
            f"{table.path}, line 1: no column {', '.join(map(repr, missing))}, {purpose} (got "
            f"{', '.join(table.columns)})"
        )


def check_cells(table: Table, *filled: str, unique: str = "") -> None:
    """Raise if a column in `filled` has an empty cell, or if the column `unique` has duplicates."""
    for column in filled:
        if "" in (cells := table.columns.get(column, [])):
            raise table.problem(cells.index(""), f"the {column} is missing")
    first_row: dict[str, int] = {}
    for row, cell in enumerate(table.columns.get(unique, [])):
        if first_row.setdefault(cell, row) != row:
            raise table.problem(row, f"duplicate {unique} {shorten(cell)}")


def numbers(table: Table, column: str, low: float, high: float) -> NDArray[Any]:
    """Return a column as numbers; raise for the first cell that is invalid or out of range."""
    values = np.empty(len(table))
    for row, cell in enumerate(table[column]):
        try:
            values[row] = value = float(cell)
            if "_" in cell:  # Python reads 0_5 as 5
                raise ValueError
        except ValueError:
            raise table.problem(row, f"{column} must be a number (got {shorten(cell)})") from None
        if not low <= value <= high:
            raise table.problem(row, f"{column} must be between {low:g} and {high:g} (got {cell})")
    return values


def format_table(
    header: Sequence[str], templates: Sequence[str], rows: Iterable[Row], *, left: int = 1
) -> str:
    """Format rows for a terminal, with a template for each column.

    The first `left` columns are left-aligned. A cell is a dash if a number in its template is None.

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
    """Split a text at single spaces, in lower case and without "." and ",".

    Examples
    --------
    >>> tokens("A woman, smiling. It's  raining!")
    ['a', 'woman', 'smiling', "it's", '', 'raining!']
    """
    return text.lower().replace(".", "").replace(",", "").split(" ")


class Lexicon(msgspec.Struct, frozen=True, dict=True):
    """Word lists by name, and for each column, the names of its groups with their aliases."""

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
        """Return the group with this name or alias, ignoring case."""
        for name, aliases in self.groups[column].items():
            if text.casefold() in map(str.casefold, (name, *aliases)):
                return name
        raise BiasError(f"{where}: {unknown_name(column, text, self.groups[column])}")

    def count(self, text: str) -> Counter[str]:
        """Count the tokens of a text that are words of the lists."""
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
                    f"{path}: words of {name}: {shorten(word)} is not a single token. Write words "
                    "in lower case, without spaces, full stops or commas"
                )
    return lexicon


_Lines = Callable[[Path, Collection[str]], Iterator[tuple[int, str, list[str]]]]
# The first cells that identify the header of a CSV file. Other first lines may be embeddings.
_ID_COLUMNS = ("", "id", "name", "word", "image_id", "text")


@dataclass(frozen=True)
class Vectors:
    """A source of embeddings, which are read by id.

    Parameters
    ----------
    where
        The location of the embeddings, for messages.
    read
        A function that takes ids and returns the ids with an embedding, in order, and their rows
        [N, D].
    columns
        The columns of the items, including ``id``; empty for a ``.vec`` or CSV file.
    backbone, weights
        The model's name and the SHA-256 of its weights; empty if unknown.
    """

    where: str
    read: Callable[[Sequence[str]], tuple[list[str], Array]]
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    backbone: str = ""
    weights: str = ""


def open_vectors(
    source: str | Path,
    array: str = "native",
    *,
    manifests: Sequence[Manifest] = (),
) -> Vectors:
    """Open the embeddings of a store, the concept directions of a saved model, or a file.

    Parameters
    ----------
    source
        The store (a folder, an archive or a URL), the model's folder, or the file. Each line of
        ``NAME.vec`` has a name and numbers, separated by spaces. After the header, each line of
        ``NAME.csv`` has an id and numbers.
    array
        The array of a store, with one vector per item.
    manifests
        Manifests of the store's items, whose columns are used.
    """
    if "://" not in str(source):
        path = Path(source)
        if path.suffix in _READERS:
            lines = _READERS[path.suffix]
            return Vectors(str(path), lambda ids: _read_file(path, lines, ids))
        if path.is_file() and not zipfile.is_zipfile(path):
            raise BiasError(
                f"{path}: unknown file format. Pass NAME.vec (lines of a name and numbers, "
                "separated by spaces) or NAME.csv (a header, then lines of an id and numbers)"
            )
        if (path / "model.json").is_file():
            return _open_concepts(path)
    store = open_store(source)
    for manifest in manifests:
        require_same_clips(store.items, manifest.items)
    return Vectors(
        store.where,
        lambda ids: read_features(store, ids, array),
        _columns(store.items),
        *_made_with(store.attributes["backbone"]),
    )


def manifest_columns(manifest: Manifest) -> dict[str, Sequence[str]]:
    """Return the columns of a manifest's items, and the `level` of its default label set."""
    columns = _columns(manifest.items)
    if manifest.default_labels or len(manifest.label_names) == 1:
        level_of = manifest.labels().level_of
        columns["level"] = [level_of.get(item, "") for item in manifest.ids]
    return columns


def _columns(items: Items) -> dict[str, Sequence[str]]:
    """Return all columns by which items can be selected."""
    cells = items.ids, items.kinds, items.films, items.media, items.texts
    names = "id", "kind", "film", "media", "text"
    return {**dict(zip(names, cells, strict=True)), **items.extra}


def _open_concepts(path: Path) -> Vectors:
    from obygaze_models.saved.persistence import load_model

    model, about = load_model(path)
    bank = getattr(model, "bank_", model)
    if not hasattr(bank, "cavs_"):
        raise BiasError(
            f"{path}: the model has no concept directions. Use a bottleneck with a concept bank, "
            "such as pcbm-logistic or pcbm-tree"
        )
    names = [str(name) for name in bank.get_feature_names_out()]
    directions = dict(zip(names, bank.cavs_, strict=True))
    return Vectors(
        str(path),
        lambda ids: _take(directions, ids),
        {"id": names, "kind": ["concept"] * len(names)},
        *_made_with(about.get("features", {}).get("backbone", {})),
    )


def _made_with(backbone: Mapping[str, Any]) -> tuple[str, str]:
    """Return the backbone's name and the SHA-256 of its weights, each "" if unknown."""
    weights = str(backbone.get("weights_sha256", ""))
    return str(backbone.get("name", "")), weights if len(weights) == 64 else ""


def _read_file(path: Path, lines: _Lines, ids: Sequence[str]) -> tuple[list[str], Array]:
    rows: dict[str, Array] = {}
    foreign = OSError, UnicodeDecodeError, csv.Error
    with translate(BiasError, path, "cannot be read: {}", foreign=foreign):
        for line, name, cells in lines(path, frozenset(ids)):
            where = f"{path}, line {line}"
            if name in rows:
                raise BiasError(f"{where}: duplicate name {shorten(name)}. Remove one line")
            with translate(BiasError, where, f"{shorten(name)}: {{}}", foreign=ValueError):
                rows[name] = np.array(cells, dtype=np.float64)
            first = next(iter(rows))
            if len(cells) != len(rows[first]):
                number = counted(len(cells), "number")
                raise BiasError(f"{where}: {number}, but {shorten(first)} has {len(rows[first])}")
    return _take(rows, ids)


def _take(rows: Mapping[str, Any], ids: Sequence[str]) -> tuple[list[str], Array]:
    """Return the ids that have rows, and their rows."""
    available = [item for item in ids if item in rows]
    return available, np.array([rows[item] for item in available])


def _vec_lines(path: Path, ids: Collection[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the line number, name and numbers of each id; do not split the other lines."""
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for line, text in enumerate(file, start=1):
            name, _, rest = text.partition(" ")
            # If the first line has just two integers, it is word2vec's header.
            if name in ids and not (line == 1 and name.isdecimal() and rest.strip().isdecimal()):
                yield line, name, rest.split()


def _csv_lines(path: Path, ids: Collection[str]) -> Iterator[tuple[int, str, list[str]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = next(reader, [])
        if not header or header[0].strip().lower() not in _ID_COLUMNS:
            raise BiasError(
                f"{path}, line 1: no header. Add a line with column names, of which the first is id"
            )
        for row in reader:
            if row and row[0] in ids:
                yield reader.line_num, row[0], row[1:]


_READERS: dict[str, _Lines] = {".vec": _vec_lines, ".csv": _csv_lines}
