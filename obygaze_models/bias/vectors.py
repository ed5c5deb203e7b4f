"""Embeddings by id: from a store, a .vec or CSV file, or a saved model's concept directions."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.text import counted, shorten
from obygaze_features.errors import BiasError, translate
from obygaze_features.manifests import Items, Manifest
from obygaze_features.store import open_store
from obygaze_models.data.stores import read_features
from obygaze_models.scoring.metrics import Array

_Lines = Callable[[Path, Collection[str]], Iterator[tuple[int, str, list[str]]]]
# : First cells that identify the header of a CSV file; otherwise its first line may be an
# embedding.
_ID_COLUMNS = ("", "id", "name", "word", "image_id", "text")


@dataclass(frozen=True)
class Vectors:
    """Embeddings that are read by id.

    Parameters
    ----------
    where
        Their location, for messages.
    read
        A function from ids to the ids with an embedding, in order, and their rows [N, D].
    columns
        Columns of the items, with ``id``; empty for a ``.vec`` or CSV file.
    backbone, weights
        The model's name and the SHA-256 of its weights; empty if unknown.
    """

    where: str
    read: Callable[[Sequence[str]], tuple[list[str], Array]]
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    backbone: str = ""
    weights: str = ""


def open_vectors(source: str | Path, array: str = "native", pooling: str | None = None) -> Vectors:
    """Open the embeddings of a store (a folder, an archive or a URL), a model's folder, or a file.

    Parameters
    ----------
    source
        The store, folder or file. A file is ``NAME.vec`` (the name, then numbers, separated by
        spaces) or ``NAME.csv`` (a header; the id, then numbers).
    array, pooling
        For a store; see `obygaze_models.data.stores.read_features`.
    """
    if "://" not in str(source):
        path = Path(source)
        if path.suffix in _READERS:
            lines = _READERS[path.suffix]
            return Vectors(str(path), lambda ids: _read_file(path, lines, ids))
        if path.is_file() and not zipfile.is_zipfile(path):
            raise BiasError(
                f"{path}: unknown kind of embeddings. Pass NAME.vec (lines of a name and numbers, "
                "separated by spaces) or NAME.csv (a header, then lines of an id and numbers)"
            )
        if (path / "model.json").is_file():
            return _open_concepts(path)
    store = open_store(source)
    return Vectors(
        store.where,
        lambda ids: read_features(store, ids, array, pooling),
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
            f"{path} is a model without concept directions. Use a bottleneck with a concept bank, "
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
    """Return the backbone's name and the SHA-256 of its weights, which imported stores may lack."""
    weights = str(backbone.get("weights_sha256", ""))
    return str(backbone.get("name", "")), weights if len(weights) == 64 else ""


def _read_file(path: Path, lines: _Lines, ids: Sequence[str]) -> tuple[list[str], Array]:
    rows: dict[str, Array] = {}
    foreign = OSError, UnicodeDecodeError, csv.Error
    with translate(BiasError, path, "cannot be read: {}", foreign=foreign):
        for line, name, cells in lines(path, frozenset(ids)):
            where = f"{path}, line {line}"
            if name in rows:
                raise BiasError(f"{where}: {shorten(name)} occurs twice")
            with translate(BiasError, where, f"{shorten(name)}: {{}}", foreign=ValueError):
                rows[name] = np.array(cells, dtype=np.float64)
            first = next(iter(rows))
            if len(cells) != len(rows[first]):
                number = counted(len(cells), "number")
                raise BiasError(f"{where}: {number}, but {shorten(first)} has {len(rows[first])}")
    return _take(rows, ids)


def _take(rows: Mapping[str, Any], ids: Sequence[str]) -> tuple[list[str], Array]:
    """Return the available ids, and their rows."""
    available = [item for item in ids if item in rows]
    return available, np.array([rows[item] for item in available])


def _vec_lines(path: Path, ids: Collection[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield line, name and numbers for these ids; the many other lines are skipped unread."""
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for line, text in enumerate(file, start=1):
            name, _, rest = text.partition(" ")
            # Two whole numbers alone are a header of word2vec.
            if name in ids and not (line == 1 and name.isdecimal() and rest.strip().isdecimal()):
                yield line, name, rest.split()


def _csv_lines(path: Path, ids: Collection[str]) -> Iterator[tuple[int, str, list[str]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = next(reader, [])
        if not header or header[0].strip().lower() not in _ID_COLUMNS:
            raise BiasError(
                f"{path}, line 1: no header. Name the first column id, and the others as you like"
            )
        for row in reader:
            if row and row[0] in ids:
                yield reader.line_num, row[0], row[1:]


_READERS: dict[str, _Lines] = {".vec": _vec_lines, ".csv": _csv_lines}
