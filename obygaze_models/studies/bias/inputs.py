"""Inputs of the bias measures: columns of numbers, JSON files, word lists and embeddings."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np

from obygaze_features.common.arrays import Array
from obygaze_features.common.files import read_json
from obygaze_features.common.formatting import shorten
from obygaze_features.common.names import unknown_name
from obygaze_features.common.package import reference_file
from obygaze_features.common.tables import Table
from obygaze_features.errors import BiasError, translate
from obygaze_features.items.items import require_same_clips
from obygaze_features.manifests import Items, Manifest
from obygaze_features.store import open_store
from obygaze_models.data.stores import Sources, read_features

Struct = TypeVar("Struct", bound=msgspec.Struct)
_Lists = Annotated[dict[str, tuple[str, ...]], msgspec.Meta(min_length=1)]


def read_struct(path: Path, struct: type[Struct]) -> Struct:
    """Read a JSON file as a struct of this type; raise `BiasError` if it does not match."""
    with translate(BiasError, path, ": {}", foreign=msgspec.ValidationError):
        return msgspec.convert(read_json(path, BiasError), struct)


def numbers(table: Table, column: str, low: float, high: float) -> Array:
    """Return a column as numbers; raise for the first cell that is invalid or out of range."""
    import pandas as pd

    if column not in table.columns:
        raise BiasError(f"{table.path}: no column {column!r}. Add it")
    values = pd.to_numeric(pd.Series(table[column]), errors="coerce")
    is_valid = values.between(low, high)
    if not is_valid.all():
        row = int(is_valid.argmin())
        raise table.problem(
            row,
            f"{column} must be a number from {low:g} to {high:g} "
            f"(got {shorten(table[column][row])})",
        )
    return values.to_numpy(dtype=float)


def tokens(text: str) -> list[str]:
    """Split a text at single spaces, in lower case and without "." and ",".

    Examples
    --------
    >>> tokens("A woman, smiling. It's  raining!")
    ['a', 'woman', 'smiling', "it's", '', 'raining!']
    """
    return text.lower().replace(".", "").replace(",", "").split(" ")


class Lexicon(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Word lists by name, and for each column, the names of its groups with their aliases."""

    format: Literal["obygaze-lexicon"]
    format_version: Literal[1]
    name: Annotated[str, msgspec.Meta(min_length=1)]
    words: _Lists
    groups: dict[str, _Lists]
    source: dict[str, Any] = {}

    def group(self, column: str, text: str, where: object) -> str:
        """Return the group with this name or alias, ignoring case."""
        groups = self.groups.get(column, {})
        for name, aliases in groups.items():
            if text.casefold() in map(str.casefold, (name, *aliases)):
                return name
        raise BiasError(f"{where}: {unknown_name(column, text, groups)}")


def shipped_lexicon(name: str) -> Lexicon:
    """Return a lexicon that obygaze ships: ``emotions`` or ``genders``."""
    return read_lexicon(reference_file(f"lexicons/{name}.json"))


def read_lexicon(path: Path) -> Lexicon:
    """Read a lexicon in the form of manifests/lexicons/emotions.json."""
    lexicon = read_struct(path, Lexicon)
    for word in chain.from_iterable(lexicon.words.values()):
        if tokens(word) != [word]:
            raise BiasError(
                f"{path}: {shorten(word)} is not a single token. Write words in lower case, "
                "without spaces, full stops or commas"
            )
    return lexicon


@dataclass(frozen=True)
class Vectors:
    """A source of embeddings, which are read by id.

    Parameters
    ----------
    where
        The location of the embeddings, for messages.
    read
        A function that takes ids and returns the embeddings of those that have one, by id.
    columns
        The columns of the items, including ``id``; empty for a ``.vec`` or CSV file.
    backbone
        The model's ``name`` and the SHA-256 of its weights (``weights_sha256``); empty if unknown.
    """

    where: str
    read: Callable[[Sequence[str]], Mapping[str, Array]]
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    backbone: Mapping[str, Any] = field(default_factory=dict)


def open_vectors(source: str | Path, *, manifests: Sequence[Manifest] = ()) -> Vectors:
    """Open the embeddings of a store or a file.

    Parameters
    ----------
    source
        The store (a folder, an archive or a URL), or the file. Each line of ``NAME.vec`` has a name
        and numbers, separated by spaces. After the header, each line of ``NAME.csv`` has an id and
        numbers.
    manifests
        Manifests to compare with a store; raise if an id stands for another clip in them.
    """
    path = Path(source)
    if path.suffix in (".vec", ".csv"):
        return Vectors(str(path), lambda ids: _read_file(path, ids))
    store = open_store(source)
    for manifest in manifests:
        require_same_clips(store.items, manifest.items)
    return Vectors(
        store.where,
        lambda ids: dict(zip(*read_features(Sources((store,)), ids, "native"), strict=True)),
        _columns(store.items),
        store.attributes["backbone"],
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
    return {**items.columns, "id": items.ids, "media": items.media, "text": items.texts}


def _read_file(path: Path, ids: Sequence[str]) -> dict[str, Array]:
    """Read the embeddings of some ids from a ``.vec`` or CSV file."""
    wanted = set(ids)
    rows = {}
    with (
        translate(BiasError, path, "cannot be read: {}", foreign=(OSError, ValueError, csv.Error)),
        path.open(encoding="utf-8-sig", newline="\n") as file,
    ):
        lines: Iterator[list[str]] = (line.split(" ", 1) for line in file)
        if path.suffix == ".csv":
            lines = csv.reader(file, strict=True)
        for number, row in enumerate(lines, start=1):
            if not row or row[0] not in wanted:
                continue
            where = f"{path}, line {number}"
            if row[0] in rows:
                raise BiasError(f"{where}: duplicate name {shorten(row[0])}. Keep one line")
            cells = " ".join(row[1:]).split()
            with translate(BiasError, where, foreign=ValueError):
                rows[row[0]] = np.array(cells, dtype=np.float64)
    return rows
