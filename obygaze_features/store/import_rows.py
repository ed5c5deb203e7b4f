"""Read features to import from NumPy files with one row per item.

This module also builds the recipe, which records what the user says about how the features were
made.
"""

from __future__ import annotations

import contextlib
import csv
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import read_bytes
from obygaze_features.common.text import counted, shorten
from obygaze_features.errors import MissingExtra, StoreError, UsageError, translate
from obygaze_features.items.items import Item, Items, NamedItems
from obygaze_features.store import format as fmt
from obygaze_features.store.format import ArraySpec, Recipe, Status
from obygaze_features.store.metadata import UNKNOWN, check_attributes
from obygaze_features.store.writer import Done, Failed

_STEPS = "sampling mode shortest_edge filter crop scale mean std offset squash middle extractor"
_PREPROCESSING = msgspec.defstruct(
    "Preprocessing", [(key, Any, None) for key in _STEPS.split()], forbid_unknown_fields=True
)


class _Backbone(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    family: str = ""
    revision: Any = None
    weights_sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")] = ""
    config: dict[str, Any] = {}


_KINDS = {"backbone": _Backbone, "preprocessing": _PREPROCESSING, "precision": str}
_RECIPE = msgspec.defstruct(
    "Recipe", [(key, kind, None) for key, kind in _KINDS.items()], forbid_unknown_fields=True
)


@dataclass(frozen=True)
class RowSource:
    """A source of features: one matrix per array, with one row per item.

    Parameters
    ----------
    path
        The file or folder, or the first of several.
    matrices
        The rows of each array: any object with ``shape``, ``dtype`` and ``[row]``.
    ids
        The id of each row.
    recipe
        The recipe that the features were made with, if the file is an exported store.
    without
        The failure of each row without features, by row number; None if the row is still to do.
    source_of
        A function that returns the fingerprint of a row's source.
    probe
        The features of the probe, by array.
    kind
        The kind of source, for the meaning of the arrays ("imported from ..."); by default, the
        file's suffix.
    columns
        The column names, for every matrix with as many columns as there are names.
    """

    path: Path
    matrices: Mapping[str, Any]
    ids: Sequence[str]
    recipe: Recipe | None = None
    without: Mapping[int, Failed | None] = field(default_factory=dict)
    source_of: Callable[[int], str | None] = lambda row: None
    probe: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    kind: str = ""
    columns: Sequence[str] = ()

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {item_id: row for row, item_id in enumerate(self.ids)}

    def arrays(self, manifest: NamedItems) -> tuple[ArraySpec, ...]:
        """Return a spec for each matrix; raise `StoreError` if the rows do not fit the manifest."""
        for slip in self._find_slips(manifest):
            raise StoreError(self.path, slip)
        if self.recipe:
            return tuple(spec for spec in self.recipe.arrays if spec.name in self.matrices)
        specs, kind = [], self.kind or self.path.suffix.removeprefix(".") or "file"
        for name, rows in self.matrices.items():
            with errors_named(f"{self.path}: {name}"):
                dtype = to_storable(np.empty(0, rows.dtype)).dtype
            columns = tuple(self.columns) if rows.shape[-1] == len(self.columns) else ()
            meaning = f"imported from {kind}"
            specs.append(ArraySpec(name, rows.shape[1:], str(dtype), meaning, columns=columns))
        return tuple(specs)

    def _find_slips(self, manifest: NamedItems) -> Iterator[str]:
        for name, rows in self.matrices.items():
            if len(rows.shape) < 2:
                yield f": {name} is not a matrix with one row per item (got {list(rows.shape)})"
            if rows.shape[0] != len(self.ids):
                yield (
                    f": {name} has {rows.shape[0]:,} rows, but there are {len(self.ids):,} ids. "
                    "Pass one id per row; import rows of other items into a store of their own"
                )
        if not self.ids:
            yield "has no rows; pass a file with one row per item"
        widths = {name: rows.shape[-1] for name, rows in self.matrices.items()}
        if self.columns and len(self.columns) not in widths.values():
            names = ", ".join(
                f"{name} has {counted(width, 'column')}" for name, width in widths.items()
            )
            yield f": {names} (got {counted(len(self.columns), 'column name')}); name each column"
        if len(self._row_of) < len(self.ids):
            twice = next(id_ for row, id_ in enumerate(self.ids) if self._row_of[id_] != row)
            yield f"has several rows for {shorten(twice)}; keep only one row per id"
        if self._row_of.keys().isdisjoint(manifest.items.ids):
            yield (
                f"has none of the {len(manifest.items)} items of {manifest.name}: its ids look "
                f"like {shorten(self.ids[0])}, but the manifest's ids look like "
                f"{shorten(manifest.items.ids[0])}; use the ids in the manifest's items.csv"
            )

    def row(self, item: Item, arrays: Mapping[str, ArraySpec]) -> Done | Failed | None:
        """Return an item's row in each matrix, a failure, or None if the row is still to do."""
        row = self._row_of.get(item.id)
        if row is None:
            return Failed(Status.MISSING, f"it is not in {self.path.name}")
        if row in self.without:
            return self.without[row]
        values = {}
        for name, array in arrays.items():
            try:
                values[name] = check_row(to_storable(np.array(self.matrices[name][row])), array)
            except (StoreError, OSError, ValueError) as problem:
                reason = f"{self.path.name}, {name}: {problem!s:.140}"
                return Failed(Status.UNREADABLE, reason)
        return Done(values, self.source_of(row))

    def rows(
        self, items: Items, rows: Sequence[int], arrays: Mapping[str, ArraySpec]
    ) -> list[Done | Failed | None]:
        """Return the result of `row` for several items, reading rows together where possible."""
        numbers = [self._row_of.get(items.ids[row], -1) for row in rows]
        values = self._read_together(numbers, arrays)
        if values is None:
            return [self.row(items[row], arrays) for row in rows]
        return [
            Done({name: block[index] for name, block in values.items()}, self.source_of(number))
            for index, number in enumerate(numbers)
        ]

    def _read_together(
        self, numbers: Sequence[int], arrays: Mapping[str, ArraySpec]
    ) -> dict[str, NDArray[Any]] | None:
        """Read some rows of each matrix together; return None if they must be read one by one."""
        are_arrays = all(isinstance(rows, np.ndarray) for rows in self.matrices.values())
        if not are_arrays or min(numbers) < 0 or not self.without.keys().isdisjoint(numbers):
            return None
        values = {}
        for name, array in arrays.items():
            try:
                values[name] = to_storable(np.asarray(self.matrices[name][numbers]))
            except (StoreError, OSError, ValueError):
                return None
            if (values[name].shape[1:], values[name].dtype) != (array.shape, np.dtype(array.dtype)):
                return None
        return values


@contextlib.contextmanager
def errors_named(where: object, kind: str = "") -> Iterator[None]:
    """Name the file in errors; turn errors of libraries into `StoreError` or `UsageError`."""
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"{where} does not exist") from None
    except (UsageError, MissingExtra):
        raise
    except StoreError as problem:
        raise StoreError(f"{where}: {problem}") from None
    except Exception as problem:  # libraries raise many kinds of errors, mostly undocumented
        if not kind:
            raise
        words = " ".join(str(problem).split())
        raise StoreError(f"{where} cannot be read as {kind} ({words:.120})") from None


def to_storable(values: NDArray[Any]) -> NDArray[Any]:
    """Convert numbers to a type that stores support: keep floats, convert integers to int32."""
    if values.dtype.kind == "f" and values.dtype.itemsize in (2, 4, 8):
        return values.astype(values.dtype.newbyteorder("<"), copy=False)
    if values.dtype.kind in "iu":
        bounds = np.iinfo(np.int32)
        if not values.size or (bounds.min <= values.min() and values.max() <= bounds.max):
            return values.astype(np.int32)
        raise StoreError("it has integers too large for int32")
    raise StoreError(f"it holds values of type {values.dtype!s:.40}, which stores do not support")


def check_row(values: NDArray[Any], array: ArraySpec) -> NDArray[Any]:
    """Return the row; raise `StoreError` if its shape or dtype differs from the array's."""
    if values.shape != array.shape or values.dtype != array.dtype:
        have = describe_shape(values.shape, values.dtype)
        expected = describe_shape(array.shape, array.dtype)
        raise StoreError(f"it holds {have}, but {array.name} has {expected} per clip")
    return values


def describe_shape(shape: tuple[int, ...], dtype: object) -> str:
    """Describe the shape and dtype of a clip's features."""
    return f"{'×'.join(map(str, shape)) or 'one number'} {dtype}"


def map_npy(path: Path) -> NDArray[Any]:
    """Memory-map a NumPy file; NumPy checks that the file is long enough for its shape."""
    return np.lib.format.open_memmap(path, mode="r")


def read_ids(path: Path) -> list[str]:
    """Read ids from a text file with one id per line, or from a CSV file with an ``id`` column."""
    with errors_named(path, "a list of ids in UTF-8"):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        rows = [[line] for line in lines if line.strip()]
        if path.suffix.lower() == ".csv":
            rows = [row for row in csv.reader(lines) if row]
        header, column = [name.strip().lower() for name in rows[0]] if rows else [], 0
        if "id" in header and path.suffix.lower() == ".csv":
            column = header.index("id")
            del rows[0]
        elif len(header) > 1:  # a file with a single column may lack a header
            raise StoreError(f"it has no 'id' column (got {', '.join(header):.100})")
        return [row[column].strip() for row in rows]


def require_ids(path: Path, ids: Sequence[str] | None) -> Sequence[str]:
    """Return the ids; raise `UsageError` if they are None."""
    if ids is None:
        raise UsageError(
            f"{path} has no ids for its rows; pass --ids FILE with one id per line, "
            "or --ids MANIFEST/items.csv if row i is item i of the manifest"
        )
    return ids


def read_npy(files: Mapping[str, Path], ids: Sequence[str] | None) -> RowSource:
    """Open one NumPy file per array, with one row per item; refuse files with Python objects."""
    matrices = {}
    for name, path in files.items():
        with errors_named(path, "NumPy"):
            matrices[name] = map_npy(path)
    path = next(iter(files.values()))
    return RowSource(path, matrices, require_ids(path, ids))


def stated_recipe(
    backbone: Mapping[str, Any], preprocessing: Mapping[str, Any], precision: str | None
) -> Recipe:
    """Return a recipe from what the user states; everything else is recorded as unknown."""
    # The weights are named after the backbone, so that two backbones with unknown weights are not
    # taken for the same.
    name = backbone.get("name", UNKNOWN)
    blank = {"name": name, "revision": None, "weights_sha256": f"{UNKNOWN}:{name}", "config": {}}
    return Recipe(
        "", {**blank, **backbone}, {"mode": UNKNOWN, **preprocessing}, precision or UNKNOWN, ()
    )


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a TOML or JSON file with the same keys as a store's attributes."""
    data = read_bytes(path, UsageError)
    reason = "is not a valid recipe ({}); write it in TOML, or in JSON and name it .json"
    with translate(StoreError, path, reason):
        text = data.decode()
        if path.suffix.lower() != ".json":
            text = json.dumps(tomllib.loads(text))
        table = msgspec.json.decode(text)
        msgspec.convert(table, _RECIPE)
    return stated_recipe(
        table.get("backbone", {}), table.get("preprocessing", {}), table.get("precision")
    )


def exported_recipe(name: str, text: str) -> Recipe:
    """Return a store's recipe from the attributes that `export` wrote under `name` in a file."""
    with translate(StoreError, f"its {name}", "cannot be read ({})"):
        attributes = msgspec.json.decode(text)
    check_attributes(name, attributes)
    return Recipe(
        attributes["name"],
        attributes["backbone"],
        attributes["preprocessing"],
        attributes["precision"],
        tuple(fmt.specs_of(attributes)),
        {key: attributes[key] for key in ("licence", "citation") if attributes[key]},
    )
