"""Features in one file for all items, with their ids: NumPy, safetensors and Parquet."""

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
from obygaze_features.store import format as fmt
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.format import ArraySpec, Status
from obygaze_features.store.metadata import check_attributes
from obygaze_features.store.provenance import Provenance, plain_json, stated

Rows = Any
"""Rows of numbers that are read when they are asked for: ``shape``, ``dtype`` and ``rows[i]``."""


@dataclass(frozen=True)
class RowSource:
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
        How the features were made.
    absent
        Array -> its rows that hold nothing.
    status, sources, reasons
        What became of each row, if the file was exported from a store.
    probe
        Array -> the features of the reference clip.
    specs
        The arrays, if the file was exported from a store.
    """

    path: Path
    matrices: Mapping[str, Rows]
    ids: Sequence[str] | None
    provenance: Provenance
    absent: Mapping[str, frozenset[int]] = field(default_factory=dict)
    status: Sequence[int] = ()
    sources: Sequence[str] = ()
    reasons: Sequence[str] = ()
    probe: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    specs: Sequence[ArraySpec] = ()
    _row_of: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    @property
    def description(self) -> str:
        """For the store's log."""
        return str(self.path)

    def match(self, manifest: Manifest) -> tuple[str, ...]:
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
        if not ids:
            raise StoreError(f"{self.path} has no rows; give a file with a row for each item")
        self._row_of.update({item: row for row, item in enumerate(ids)})
        if len(self._row_of) < len(ids):
            twice = next(item for row, item in enumerate(ids) if self._row_of[item] != row)
            raise StoreError(f"{self.path} has two rows for {shorten(twice)}")
        if not any(item in self._row_of for item in manifest.ids):
            raise StoreError(
                f"{self.path} has none of the {len(manifest)} items of {manifest.name}: its ids "
                f"are like {shorten(ids[0])}, those of the manifest like "
                f"{shorten(manifest.ids[0])}; its items.csv has the id of each file"
            )
        return tuple(self.matrices)

    def arrays(self, manifest: Manifest) -> tuple[ArraySpec, ...]:
        """One array per matrix."""
        if self.specs:
            return tuple(self.specs)
        specs = []
        for name, rows in self.matrices.items():
            try:
                dtype = to_storable(np.empty(0, rows.dtype)).dtype
            except StoreError as problem:
                raise StoreError(f"{self.path}: {name}: {problem}") from None
            suffix = self.path.suffix.removeprefix(".") or "file"
            specs.append(ArraySpec(name, rows.shape[1:], str(dtype), f"imported from {suffix}"))
        return tuple(specs)

    def row(self, item: Item, arrays: Mapping[str, ArraySpec]) -> Done | Failed | None:
        """The item's row of each matrix, or why it cannot be read; None if it is still to do."""
        row = self._row_of.get(item.id)
        if row is None or any(row in self.absent.get(name, ()) for name in arrays):
            return Failed(Status.MISSING, f"it is not in {self.path.name}")
        source = (self.sources[row] or None) if self.sources else None
        if self.status:
            code = Status(self.status[row])
            if code == Status.TODO:
                return None
            if code > Status.DONE:
                reason = self.reasons[row]
                return Failed(
                    code, reason if reason.isprintable() else shorten(reason, 200), source
                )
        values = {}
        for name, array in arrays.items():
            try:
                values[name] = check_row(to_storable(np.array(self.matrices[name][row])), array)
            except (StoreError, OSError, ValueError) as problem:
                reason = f"{self.path.name}, {name}: {problem!s:.140}"
                return Failed(Status.UNREADABLE, reason, source)
        return Done(values, source)


def to_storable(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers in a type that stores have: floats as they are, whole numbers as int32."""
    if values.dtype.kind == "f" and values.dtype.itemsize in (2, 4, 8):
        return values.astype(values.dtype.newbyteorder("<"), copy=False)
    if values.dtype.kind in "iu":
        bounds = np.iinfo(np.int32)
        if not values.size or (bounds.min <= values.min() and values.max() <= bounds.max):
            return values.astype(np.int32)
        raise StoreError("it has whole numbers that int32 cannot hold")
    raise StoreError(f"it holds values of the type {values.dtype!s:.40}, which a store cannot hold")


def check_row(values: NDArray[Any], array: ArraySpec) -> NDArray[Any]:
    """A row as the array has it; `StoreError` if its shape or type is another."""
    if values.shape != array.shape or values.dtype != array.dtype:
        have = describe_shape(values.shape, str(values.dtype))
        expected = describe_shape(array.shape, array.dtype)
        raise StoreError(f"it holds {have}, where {array.name} has {expected} a clip")
    return values


def describe_shape(shape: tuple[int, ...], dtype: str) -> str:
    """The shape and type of a clip's numbers."""
    return f"{'×'.join(map(str, shape)) or 'one number'} {dtype}"


def read_ids(path: Path) -> list[str]:
    """Ids from a file: text with an id a line, CSV with a column id, or a list in a NumPy file."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            texts = _map_npy(path)
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


def read_npy(
    files: Mapping[str, Path], ids: Sequence[str] | None, provenance: Provenance
) -> RowSource:
    """NumPy files with a row an item, by array; what holds objects is not read."""
    matrices = {name: _map_npy(path) for name, path in files.items()}
    return RowSource(next(iter(files.values())), matrices, ids, provenance)


def read_safetensors(
    path: Path, ids: Sequence[str] | None, provenance: Provenance, manifest: Manifest
) -> RowSource:
    """A safetensors file: tensors with a row an item, or a tensor an item under its id."""
    safetensors = need("safetensors", extra="models")
    try:
        opened: Any = safetensors.safe_open(path, "np")
        tensors = {name: _LazyTensor(opened, name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except Exception as problem:  # its own error, and what a type that NumPy lacks raises
        words = " ".join(str(problem).split())
        raise StoreError(f"{path} cannot be read as safetensors ({words:.120})") from None
    items = set(manifest.ids)
    if by_id := [name for name in tensors if name in items]:
        stack = _Stack([tensors[name] for name in by_id])
        return RowSource(path, {"native": stack}, by_id, provenance)
    if not tensors:
        raise StoreError(f"{path} holds no tensor")
    count = len(manifest) if ids is None else len(ids)
    # A file may hold more than features: a mean, say.
    rows = {name: part for name, part in tensors.items() if part.shape[:1] == (count,)} or tensors
    if len(rows) == 1:
        rows = {"native": next(iter(rows.values()))}
    return RowSource(path, rows, ids, provenance)


def read_parquet(path: Path, column: str, provenance: Provenance | None) -> RowSource:
    """A Parquet table: a column of ids; each column of lists an array, or all numbers `native`.

    The only column of lists is `native`, too, whatever its name, but in an exported store.
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
    about = (table.schema.metadata or {}).get(fmt.ATTRIBUTES.encode())
    if about:
        attributes = exported_attributes(path, fmt.ATTRIBUTES, about.decode(errors="replace"))
        provenance = exported_provenance(path, attributes, provenance)
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
    ids = [str(item) for item in table[column].to_pylist()]
    return RowSource(path, matrices, ids, provenance or stated(), absent)


def exported_attributes(path: Path, name: str, text: str) -> dict[str, Any]:
    """The attributes of the store that a file was exported from; they are `name` in the file."""
    try:
        attributes = plain_json(text)
        if not isinstance(attributes, dict):
            raise ValueError("not an object")
    except (ValueError, TypeError, RecursionError) as problem:
        raise StoreError(f"{path}: its {name} cannot be read ({problem!s:.100})") from None
    check_attributes(path, attributes)
    return attributes


def exported_provenance(
    path: Path, attributes: Mapping[str, Any], provenance: Provenance | None
) -> Provenance:
    """How the features of an exported store were made; nobody else may say."""
    if provenance:
        raise UsageError(f"{path} is an exported store and says itself how it was made")
    return Provenance(attributes["backbone"], attributes["preprocessing"], attributes["precision"])


def _map_npy(path: Path) -> NDArray[Any]:
    try:
        # Mapped: NumPy then compares the shape that a file claims with its length.
        return np.lib.format.open_memmap(path, mode="r")
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror or problem}") from None
    except Exception as problem:  # whatever a damaged header makes NumPy raise
        words = " ".join(str(problem).split())
        raise StoreError(f"{path} is not a NumPy file of numbers or texts ({words:.120})") from None


class _LazyTensor:
    """A tensor of a safetensors file, read row by row."""

    def __init__(self, file: Any, name: str) -> None:
        self.file, self.name, self.part = file, name, file.get_slice(name)
        self.shape = tuple(self.part.get_shape())
        first = self.part[:1] if self.shape else file.get_tensor(name)  # raises on odd types
        self.dtype = np.asarray(first).dtype

    def __getitem__(self, row: int) -> NDArray[Any]:
        values: NDArray[Any] = np.asarray(self.part[row : row + 1])[0]
        return values


class _Stack:
    """Tensors of one item each, as if they were one."""

    def __init__(self, tensors: Sequence[_LazyTensor]) -> None:
        self.tensors, self.dtype = tensors, tensors[0].dtype
        self.shape = (len(tensors), *tensors[0].shape)

    def __getitem__(self, row: int) -> NDArray[Any]:
        tensor = self.tensors[row]
        return np.asarray(tensor.file.get_tensor(tensor.name))


def _is_list(kind: Any, pa: Any) -> bool:
    types = pa.types
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists) and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type))


def _from_lists(path: Path, column: Any, schema: Any) -> tuple[NDArray[Any], frozenset[int]]:
    """A column of lists as a matrix, in the shape that our own export notes, and its empty rows."""
    column = column.combine_chunks()
    there = np.flatnonzero(np.asarray(column.is_valid()))
    # Rows that are null have numbers all the same in a list of fixed size; these are dropped.
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
