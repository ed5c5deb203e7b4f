"""Read features from one file for all items, with their ids: NumPy.

Also records how imported features were made, if the user says so.
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
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.format import ArraySpec, Recipe, Status
from obygaze_features.store.metadata import UNKNOWN, check_attributes

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
    """A source of features: for each array a matrix with one row per item.

    Parameters
    ----------
    path
        The file or folder, or one of several.
    matrices
        The rows of each array: anything with ``shape``, ``dtype`` and ``[row]``.
    ids
        The id of each row.
    recipe
        The recipe of the features, if the file is an exported store.
    without
        The rows without features, with the reason, or None if they are still to do.
    source_of
        A function that returns the fingerprint of a row's source.
    probe
        The features of the probe, by array.
    kind
        The kind of source.
    columns
        The names of the columns of a matrix of this width.
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
        """Return one array per matrix; `StoreError` if the ids are not the manifest's."""
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
                yield f": {name} is not a matrix (got {list(rows.shape)})"
            if rows.shape[0] != len(self.ids):
                yield (
                    f": {name} has {rows.shape[0]:,} rows for {len(self.ids):,} ids; pass the ids "
                    "of these rows with --ids"
                )
        if not self.ids:
            yield "has no rows; pass a file with one row per item"
        widths = {name: rows.shape[-1] for name, rows in self.matrices.items()}
        if self.columns and len(self.columns) not in widths.values():
            names = ", ".join(f"{name} is {width} wide" for name, width in widths.items())
            yield f": {names} (got {counted(len(self.columns), 'name')} of columns)"
        if len(self._row_of) < len(self.ids):
            twice = next(id_ for row, id_ in enumerate(self.ids) if self._row_of[id_] != row)
            yield f"has several rows for {shorten(twice)}"
        if self._row_of.keys().isdisjoint(manifest.items.ids):
            yield (
                f"has none of the {len(manifest.items)} items of {manifest.name}: its ids are like "
                f"{shorten(self.ids[0])}, those of the manifest like "
                f"{shorten(manifest.items.ids[0])}; its items.csv has the id of each file"
            )

    def row(self, item: Item, arrays: Mapping[str, ArraySpec]) -> Done | Failed | None:
        """Return the item's row of each matrix, a failure, or None if the row is still to do."""
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
        """Return the result of `row` for some items; rows of NumPy files are read together."""
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
        """Read some rows of each matrix; None unless all are readable and fit the arrays."""
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
    """Prefix errors with a file's name; errors of libraries become one line about its `kind`."""
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
    """Convert numbers to a type that stores have: floats unchanged, whole numbers to int32."""
    if values.dtype.kind == "f" and values.dtype.itemsize in (2, 4, 8):
        return values.astype(values.dtype.newbyteorder("<"), copy=False)
    if values.dtype.kind in "iu":
        bounds = np.iinfo(np.int32)
        if not values.size or (bounds.min <= values.min() and values.max() <= bounds.max):
            return values.astype(np.int32)
        raise StoreError("it has whole numbers too large for int32")
    raise StoreError(f"it holds values of the type {values.dtype!s:.40}, which a store cannot hold")


def check_row(values: NDArray[Any], array: ArraySpec) -> NDArray[Any]:
    """Return a row that fits the array; raise `StoreError` for another shape or type."""
    if values.shape != array.shape or values.dtype != array.dtype:
        have = describe_shape(values.shape, values.dtype)
        expected = describe_shape(array.shape, array.dtype)
        raise StoreError(f"it holds {have}; {array.name} has {expected} per clip")
    return values


def describe_shape(shape: tuple[int, ...], dtype: object) -> str:
    """Describe the shape and type of a clip's numbers."""
    return f"{'×'.join(map(str, shape)) or 'one number'} {dtype}"


def map_npy(path: Path) -> NDArray[Any]:
    """Map a NumPy file; NumPy compares the shape that it claims with its length."""
    return np.lib.format.open_memmap(path, mode="r")


def read_ids(path: Path) -> list[str]:
    """Read ids from a file: text with one id per line, or CSV with a column id."""
    with errors_named(path, "ids; save them as UTF-8"):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        rows = [[line] for line in lines if line.strip()]
        if path.suffix.lower() == ".csv":
            rows = [row for row in csv.reader(lines) if row]
        header, column = [name.strip().lower() for name in rows[0]] if rows else [], 0
        if "id" in header and path.suffix.lower() == ".csv":
            column = header.index("id")
            del rows[0]
        elif len(header) > 1:  # a file of one column may have no header
            raise StoreError(f"it has no column id (got {', '.join(header):.100})")
        return [row[column].strip() for row in rows]


def require_ids(path: Path, ids: Sequence[str] | None) -> Sequence[str]:
    """Return `ids`; raise `UsageError` if the file needs them."""
    if ids is None:
        raise UsageError(
            f"{path} has rows without ids; pass --ids FILE with one id per line, "
            "or --in-order if row i is item i of the manifest"
        )
    return ids


def read_npy(files: Mapping[str, Path], ids: Sequence[str] | None) -> RowSource:
    """Open NumPy files with one row per item, by array; refuse files that hold objects."""
    matrices = {}
    for name, path in files.items():
        with errors_named(path, "NumPy"):
            matrices[name] = map_npy(path)
    path = next(iter(files.values()))
    return RowSource(path, matrices, require_ids(path, ids))


def stated_recipe(
    backbone: Mapping[str, Any], preprocessing: Mapping[str, Any], precision: str | None
) -> Recipe:
    """Return a recipe of the user's statements; the rest is recorded as unknown."""
    # The weights carry the backbone's name, so that rows of two backbones differ even if nobody
    # knows the weights of either.
    name = backbone.get("name", UNKNOWN)
    blank = {"name": name, "revision": None, "weights_sha256": f"{UNKNOWN}:{name}", "config": {}}
    return Recipe(
        "", {**blank, **backbone}, {"mode": UNKNOWN, **preprocessing}, precision or UNKNOWN, ()
    )


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a TOML or JSON file; its keys are those of a store's attributes."""
    data = read_bytes(path, UsageError)
    reason = ": it is not a valid recipe in TOML (or JSON, if named .json) ({})"
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
    """Return a store's recipe from the attributes that `export` wrote as `name` in a file."""
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
