"""The files of a new store: metadata, ids, items, the probe; what never changes afterwards."""

from __future__ import annotations

import json
import platform
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import sha256_of, to_json, write_text
from obygaze_features.store import format as spec
from obygaze_features.store.format import ArraySpec

if TYPE_CHECKING:
    import zarr

    from obygaze_features.manifests import Items

__all__ = ["append_to_log", "consolidate", "lay_out", "write_checksums"]


def lay_out(
    folder: Path,
    attributes: Mapping[str, Any],
    arrays: Sequence[ArraySpec],
    items: Items,
    probe: Mapping[str, NDArray[Any]],
) -> None:
    """Make of an empty folder an open store that has no rows yet."""
    import zarr

    group = zarr.create_group(folder, attributes={spec.ATTRIBUTES: dict(attributes)})
    for one in arrays:
        group.create_array(**spec.array_layout(one, len(items), attributes["block_rows"]))
    ids = spec.encode_ids(items.ids)
    group.create_array(**spec.ids_layout(*ids.shape))[:] = ids
    (folder / spec.ITEMS).write_bytes(items.to_csv().encode())
    if probe:
        _write_probe(group, arrays, probe)
    write_checksums(folder)
    for name in (spec.RECORDS, spec.STAGING, spec.CLAIMS):
        (folder / name).mkdir()


def write_checksums(folder: Path, known: Mapping[str, str] | None = None) -> None:
    """List the SHA-256 of every file there is, but of the log, which goes on.

    Those that are `known` already are not computed again.
    """
    files = (path for path in folder.rglob("*") if path.is_file())
    names = sorted(path.relative_to(folder).as_posix() for path in files)
    sums = {
        name: (known or {}).get(name) or sha256_of(folder / name)
        for name in names
        if name not in (spec.LOG, spec.CHECKSUMS)
    }
    write_text(folder / spec.CHECKSUMS, to_json(sums))


def consolidate(folder: Path) -> None:
    """Copy all metadata into the group's ``zarr.json``, by which Zarr reads what it cannot list."""
    import zarr

    with warnings.catch_warnings():
        # Zarr warns that its specification lacks this, and of files that are not arrays.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(folder)


def append_to_log(path: Path, event: str, **fields: Any) -> None:
    """Note in a store's log what was done to it, when and where."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "event": event,
        "host": platform.node(),
        "python": platform.python_version(),
        "zarr": version("zarr"),
        **fields,
    }
    with (path / spec.LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _write_probe(
    group: zarr.Group, arrays: Sequence[ArraySpec], probe: Mapping[str, NDArray[Any]]
) -> None:
    """The probe's rows, each array as if its store had one item."""
    inner = group.create_group(spec.PROBE)
    for one in arrays:
        if one.name in probe:
            array = inner.create_array(**spec.array_layout(one, 1, 1))
            with np.errstate(over="ignore"):
                array[:] = np.asarray(probe[one.name])[None].astype(one.dtype)
