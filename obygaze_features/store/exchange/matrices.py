"""Features in one file for all items, with their ids: NumPy, Parquet or safetensors."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.package import need
from obygaze_features.common.text import shorten
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.manifests import Item, Manifest
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.exchange.incoming import as_stored, fit, index_ids, read_exported
from obygaze_features.store.exchange.provenance import Provenance, stated
from obygaze_features.store.format import ATTRIBUTES, ArraySpec, Status

__all__ = ["MatrixSource", "npy_source", "parquet_source", "read_ids", "safetensors_source"]

Rows = Any
"""Rows of numbers that are read when they are asked for: ``shape``, ``dtype`` and ``rows[i]``."""


@dataclass(frozen=True)
class MatrixSource:
    """A source of features: for each array a matrix with a row an item.

    Parameters
    ----------
    path
        The file, or one of them.
    matrices
        Array -> its rows.
    ids
        Whose each row is; None where row i is the manifest's item i.
    provenance
        What the features were made with.
    absent
        Rows that hold nothing, by array.
    """

    path: Path
    matrices: Mapping[str, Rows]
    ids: Sequence[str] | None
    provenance: Provenance
    absent: Mapping[str, frozenset[int]] = field(default_factory=dict)
    probe: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    _row_of: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    @property
    def words(self) -> str:
        """What it is, for the store's log."""
        return str(self.path)

    def look(self, manifest: Manifest) -> tuple[str, ...]:
        """Find the rows of the manifest's items; gives the names of the arrays."""
        ids = manifest.ids if self.ids is None else self.ids
        for name, rows in self.matrices.items():
            if len(rows.shape) < 2:
                raise StoreError(f"{self.path}: {name} is not a matrix (got {list(rows.shape)})")
            if rows.shape[0] != len(ids):
                owners = f"items of {manifest.name}" if self.ids is None else "ids"
                raise StoreError(
                    f"{self.path}: {name} has {rows.shape[0]:,} rows for {len(ids):,} {owners}; "
                    "give the ids of these rows with --ids"
                )
        self._row_of.update(index_ids(self.path, ids))
        if not ids:
            raise StoreError(f"{self.path} has no rows; give a file with a row for each item")
        if not any(item in self._row_of for item in manifest.ids):
            raise StoreError(
                f"{self.path} has none of the {len(manifest)} items of {manifest.name}: its ids "
                f"are like {shorten(ids[0])}, those of the manifest like "
                f"{shorten(manifest.ids[0])}; its items.csv has the id of each file"
            )
        return tuple(self.matrices)

    def arrays(self, manifest: Manifest) -> tuple[ArraySpec, ...]:
        """An array a matrix."""
        specs = []
        for name, rows in self.matrices.items():
            try:
                dtype = as_stored(np.empty(0, rows.dtype)).dtype
            except StoreError as problem:
                raise StoreError(f"{self.path}: {name}: {problem}") from None
            suffix = self.path.suffix.removeprefix(".") or "file"
            specs.append(ArraySpec(name, rows.shape[1:], str(dtype), f"imported from {suffix}"))
        return tuple(specs)

    def row(self, item: Item, arrays: Mapping[str, ArraySpec]) -> Done | Failed:
        """The item's row of each matrix, or why it cannot be read."""
        row = self._row_of.get(item.id)
        if row is None or any(row in self.absent.get(name, ()) for name in arrays):
            return Failed(Status.MISSING, f"it is not in {self.path.name}")
        values = {}
        for name, array in arrays.items():
            try:
                values[name] = fit(as_stored(np.array(self.matrices[name][row])), array)
            except (StoreError, OSError, ValueError) as problem:
                return Failed(Status.UNREADABLE, f"{self.path.name}, {name}: {problem!s:.100}")
        return Done(values, None)


def read_ids(path: Path) -> list[str]:
    """Ids from a file: text with an id a line, CSV with a column id, or a list in a NumPy file."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            texts = _load_npy(path)
            if texts.ndim != 1 or texts.dtype.kind not in "US":
                raise StoreError(
                    f"{path} is not a list of texts (got {texts.dtype}, {texts.ndim} axes)"
                )
            return [item.decode() if isinstance(item, bytes) else item for item in texts.tolist()]
        text = path.read_text(encoding="utf-8-sig")
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise StoreError(f"{path} is not text in UTF-8; save the ids as UTF-8") from None
    if suffix not in (".csv", ".tsv"):
        return [line.strip() for line in text.splitlines() if line.strip()]
    rows = list(csv.reader(text.splitlines(), delimiter="\t" if suffix == ".tsv" else ","))
    header = [name.strip().lower() for name in rows[0]] if rows else []
    if "id" not in header and len(header) != 1:
        raise StoreError(f"{path} has no column id (got {', '.join(header):.100})")
    column = header.index("id") if "id" in header else 0
    # A file of one column may have no header.
    body = rows[1:] if "id" in header else rows
    return [row[column].strip() for row in body if len(row) > column]


def npy_source(
    files: Mapping[str, Path], ids: Sequence[str] | None, provenance: Provenance
) -> MatrixSource:
    """NumPy files with a row an item, by array; what holds objects is not read."""
    matrices = {name: _load_npy(path) for name, path in files.items()}
    return MatrixSource(next(iter(files.values())), matrices, ids, provenance)


def safetensors_source(
    path: Path, ids: Sequence[str] | None, provenance: Provenance, manifest: Manifest
) -> MatrixSource:
    """A safetensors file: tensors with a row an item, or a tensor an item under its id."""
    safetensors = need("safetensors", extra="models")
    try:
        opened: Any = safetensors.safe_open(path, "np")
        parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        tensors = {name: _Lazy(opened, name, part) for name, part in parts.items()}
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except Exception as problem:  # its own error, and what a type that NumPy lacks raises
        words = " ".join(str(problem).split())
        raise StoreError(f"{path} cannot be read as safetensors ({words:.120})") from None
    items = set(manifest.ids)
    by_id = [name for name in tensors if name in items]
    if by_id:
        shape, dtype = tensors[by_id[0]].shape, tensors[by_id[0]].dtype
        stacked = _Stacked([tensors[name] for name in by_id], (len(by_id), *shape), dtype)
        return MatrixSource(path, {"native": stacked}, by_id, provenance)
    if not tensors:
        raise StoreError(f"{path} holds no tensor")
    count = len(manifest) if ids is None else len(ids)
    # A file may hold more than features: a mean, say.
    rows = {name: part for name, part in tensors.items() if part.shape[:1] == (count,)} or tensors
    if len(rows) == 1:
        rows = {"native": next(iter(rows.values()))}
    return MatrixSource(path, rows, ids, provenance)


def parquet_source(path: Path, column: str, provenance: Provenance | None = None) -> MatrixSource:
    """A Parquet table: a column of ids; each column of lists an array, or all numbers `native`.

    The only column of lists is `native`, too, whatever its name, but in an exported store.

    Parameters
    ----------
    column
        The name of the column of ids.
    provenance
        What the features were made with; None where the file says so itself, as an exported
        store does, or where nobody knows.
    """
    pa, parquet = (need(name, extra="views") for name in ("pyarrow", "pyarrow.parquet"))
    try:
        table = parquet.read_table(path)
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except (pa.ArrowException, OSError, ValueError) as problem:
        words = " ".join(str(problem).split())
        raise StoreError(f"{path} cannot be read as Parquet ({words:.120})") from None
    if column not in table.column_names:
        raise UsageError(
            f"{path} has no column {column!r}; name that of the ids with --ids (it has "
            f"{', '.join(table.column_names):.200})"
        )
    if about := (table.schema.metadata or {}).get(ATTRIBUTES.encode()):
        if provenance:
            raise UsageError(f"{path} is an exported store, and says itself what it was made with")
        exported = read_exported(path, ATTRIBUTES, about.decode(errors="replace"))
        how_made = (exported[key] for key in ("backbone", "preprocessing", "precision"))
        provenance = Provenance(*how_made)
    ids = [str(item) for item in table[column].to_pylist()]
    fields = [part for part in table.schema if part.name != column]
    lists = [part for part in fields if _is_list(part.type, pa)]
    matrices, absent = {}, {}
    for part in lists:
        name = "native" if len(lists) == 1 and not about else part.name
        matrices[name], absent[name] = _from_lists(path, table[part.name], part)
    if not matrices:
        floats = [part.name for part in fields if pa.types.is_floating(part.type)]
        names = floats or [part.name for part in fields if pa.types.is_integer(part.type)]
        if not names:
            raise StoreError(f"{path} has no column of lists of numbers, nor columns of numbers")
        matrices["native"] = np.column_stack([table[name].to_numpy() for name in names])
    return MatrixSource(path, matrices, ids, provenance or stated(), absent)


def _load_npy(path: Path) -> NDArray[Any]:
    try:
        # Mapped, as NumPy then holds the shape that a file claims to its length.
        return np.lib.format.open_memmap(path, mode="r")
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror or problem}") from None
    except Exception as problem:  # whatever a damaged header makes NumPy raise
        words = " ".join(str(problem).split())
        raise StoreError(f"{path} is not a NumPy file of numbers or texts ({words:.120})") from None


class _Lazy:
    """A tensor of a safetensors file, read row by row."""

    def __init__(self, opened: Any, name: str, part: Any) -> None:
        self.opened, self.name, self.part = opened, name, part
        self.shape = tuple(part.get_shape())
        first = part[:1] if self.shape else opened.get_tensor(name)  # raises on a type of no use
        self.dtype = np.asarray(first).dtype

    def __getitem__(self, row: int) -> NDArray[Any]:
        values: NDArray[Any] = np.asarray(self.part[row : row + 1])[0]
        return values

    def whole(self) -> NDArray[Any]:
        return np.asarray(self.opened.get_tensor(self.name))


class _Stacked:
    """Tensors of one item each, as if they were one."""

    def __init__(
        self, tensors: Sequence[_Lazy], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.tensors, self.shape, self.dtype = tensors, shape, dtype

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.tensors[row].whole()


def _is_list(kind: Any, pa: Any) -> bool:
    types = pa.types
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists) and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type))


def _from_lists(path: Path, column: Any, schema: Any) -> tuple[NDArray[Any], frozenset[int]]:
    """A column of lists as a matrix, in the shape that our own export notes, and its empty rows."""
    column = column.combine_chunks()
    there = np.flatnonzero(np.asarray(column.is_valid()))
    # Of rows that are null a list of fixed size has numbers all the same; these are dropped.
    full = column.drop_null()
    flat = full.flatten().to_numpy(zero_copy_only=False)
    lengths = {len(flat) // len(there)} if len(there) else {0}
    if not hasattr(schema.type, "list_size"):
        compute = need("pyarrow.compute", extra="views")
        lengths = set(compute.unique(compute.list_value_length(full)).to_pylist()) or {0}
    if len(lengths) > 1 or lengths == {0}:
        raise StoreError(f"{path}: the lists of {schema.name} have different lengths, or none")
    (width,) = lengths
    noted = (schema.metadata or {}).get(b"shape", str(width).encode()).decode()
    sizes = [int(size) for size in noted.split(",") if size.isdecimal()]
    shape = tuple(sizes) if math.prod(sizes) == width else (width,)
    values = np.empty((len(column), *shape), flat.dtype)
    values[there] = flat.reshape(-1, *shape)
    return values, frozenset(range(len(column))) - frozenset(there.tolist())
