"""Finalise a filled store: make it read-only, with a few large files and a dataset card.

The final store is written next to the open one and replaces it at the end, so an interrupted run
loses nothing.

The card, README.md, contains only facts from the store, so equal stores get equal cards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import (
    alone_in,
    disk_errors,
    make_read_only,
    new_folder,
    require_plain_file,
    sha256_of,
    sha256_of_text,
    to_json,
    write_text,
)
from obygaze_features.common.names import unknown_name
from obygaze_features.common.progress import progress
from obygaze_features.common.tables import format_table, map_cells
from obygaze_features.errors import MissingExtra, StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.diff import read_probe
from obygaze_features.store.files import StoreFile
from obygaze_features.store.format import ArraySpec, Status
from obygaze_features.store.metadata import DamagedFile, check_attributes, read_checksums
from obygaze_features.store.parquet import write_parquet
from obygaze_features.store.shards import ShardLayout, write_shard
from obygaze_features.store.store import Store, StoreLike, open_store
from obygaze_features.store.writer import append_to_log, finish_moves, write_arrays, write_checksums

TEXTS = ("name", "licence", "citation")
"""The attributes that `set_texts` changes."""
_CARD = Path(__file__).with_name("dataset_card.md")
HUB_LICENCES = (
    "apache-2.0", "bsd-3-clause", "cc-by-4.0", "cc-by-nc-4.0", "cc-by-nc-nd-4.0",
    "cc-by-nc-sa-4.0", "cc-by-sa-4.0", "cc0-1.0", "mit", "odbl", "pddl",
)  # fmt: skip
"""Licence ids of the Hugging Face Hub. The card states any other licence by its name."""


def finalise(store: StoreLike, *, allow_incomplete: bool = False) -> Store:
    """Make a store read-only, with large shards, a dataset card and checksums.

    If pyarrow is installed, the store gets a file that ``datasets.load_dataset`` opens. Does
    nothing if the store is already final. The checksum of every row is verified. If a row is
    damaged or (without `allow_incomplete`) still to do, raises `StoreError` and changes no row. No
    process may be writing to the store.

    Parameters
    ----------
    store
        The store, or its folder.
    allow_incomplete
        Finalise even if rows are still to do. Their features will be missing.
    """
    store = open_store(store)
    if store.is_final:
        return store
    with disk_errors(store.path, StoreError), alone_in(store.path):
        finish_moves(store)
        to_do = len(store.refresh().missing_rows())
        if to_do and not allow_incomplete:
            raise StoreError(
                f"{store.path} lacks {to_do:,} of {len(store):,} rows. Run the extraction again to "
                "add them, or finalise without them: add --allow-incomplete"
            )
        with new_folder(store.path, overwrite=True, allow_missing=True) as folder:
            _write_final(folder, store)
    return store.refresh()


def set_texts(store: StoreLike, texts: Mapping[str, str]) -> Store:
    """Change the name, licence or citation of a store, also in the card of a final store.

    If this is interrupted, run it again. Until then, `verify` reports that the list of checksums of
    a final store lacks the files that change.
    """
    store = open_store(store)
    for name in texts:
        if name not in TEXTS:
            raise UsageError(unknown_name("text", name, TEXTS))

    with disk_errors(store.path, StoreError), alone_in(store.path):
        store.refresh()
        if not texts:
            return store
        check_attributes(store.path, {**store.attributes, **texts})
        data = store.location.read("zarr.json")
        sha256 = hashlib.sha256(data).hexdigest()
        checksums = read_checksums(store.location)
        if checksums.pop("zarr.json", sha256) != sha256:
            raise DamagedFile(StoreFile(store.location, "zarr.json"), "it was changed")

        group = json.loads(data)
        group["attributes"][fmt.ATTRIBUTES] |= texts
        files = {"zarr.json": to_json(group)}
        if store.is_final:
            store.attributes |= texts
            files[fmt.CARD] = _readme(store)
        checksums.pop(fmt.CARD, None)
        _write(store, fmt.CHECKSUMS, to_json(checksums))
        for name, text in files.items():
            _write(store, name, text)
            checksums[name] = sha256_of_text(text)
        _write(store, fmt.CHECKSUMS, to_json(dict(sorted(checksums.items()))))
        return store.refresh()


def _write(store: Store, name: str, text: str) -> None:
    """Replace a file of a store; make the file read-only if the store is final."""
    write_text(store.path / name, text)
    if store.is_final:
        make_read_only(store.path / name)


def _write_final(folder: Path, store: Store) -> None:
    others = {}
    with contextlib.suppress(MissingExtra):
        write_parquet(folder / fmt.PARQUET, store)
        others[fmt.PARQUET_DIGEST] = sha256_of(folder / fmt.PARQUET)
    _write_metadata(folder, store, others)
    checksums: dict[str, str] = {}
    for spec in store.specs:
        checksums |= _write_shards(folder, store, spec)
    for name in (fmt.ITEMS, fmt.LOG):
        require_plain_file(store.path / name, StoreError)
        if (store.path / name).exists():
            shutil.copyfile(store.path / name, folder / name)
    _consolidate(folder)
    columns = {
        "id": store.ids,
        "status": map_cells(str, store.status.tolist()),
        **store.rows_table,
    }
    (folder / fmt.ROWS).write_text(format_table(columns), encoding="utf-8", newline="\n")
    write_text(folder / fmt.CARD, _readme(open_store(folder)))
    append_to_log(folder, "finalised")
    write_checksums(folder, checksums)
    for file in folder.rglob("*"):
        if file.is_file():
            make_read_only(file)


def _write_metadata(folder: Path, store: Store, others: Mapping[str, str]) -> None:
    """Write the Zarr metadata, the ids and the status array of a final store.

    Raises `StoreError` if the table of items was changed. `others` are attributes of the group.
    """
    # These tell xarray which arrays are coordinates rather than features.
    coordinates = [*fmt.COORDINATES, fmt.IDS, fmt.STATUS]
    if "frame_time" in store.arrays:
        coordinates.append("frame_time")
    attributes = {**store.attributes, "state": "final"}
    group = write_arrays(
        folder,
        attributes,
        store.ids,
        read_probe(store),
        coordinates=" ".join(coordinates),
        **others,
    )
    columns = {
        "id": np.array(store.ids, object),
        "film": np.array(store.items.films, object),
        fmt.STATUS: store.status,
    }
    for name, column in columns.items():
        group.create_array(**fmt.small_layout(name, column.shape))[:] = column


def _consolidate(folder: Path) -> None:
    """Copy all metadata into the group's ``zarr.json``, for servers that cannot list files."""
    import zarr

    with warnings.catch_warnings():
        # Zarr warns that this is not in its specification, and about files that are not arrays.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(folder)


def _write_shards(folder: Path, store: Store, spec: ArraySpec) -> dict[str, str]:
    """Write an array's rows; return the SHA-256 of each shard file by name."""
    layout = ShardLayout(spec, *fmt.final_rows(spec, len(store)), spec.padded)
    checksums = {}
    firsts = range(0, len(store), layout.shard_rows)
    for shard, first in enumerate(progress(firsts, f"Writing {spec.name}", unit="shard")):
        done = store.status[first : first + layout.shard_rows] == Status.DONE
        if done.any():
            name = fmt.shard_name(spec, shard)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            chunks = _read_chunks(store, spec, layout, first, done)
            checksums[name] = write_shard(folder / name, chunks, layout)
            store.forget()
    return checksums


def _read_chunks(
    store: Store,
    spec: ArraySpec,
    layout: ShardLayout,
    first: int,
    done: NDArray[np.bool_],
) -> Iterator[NDArray[Any] | None]:
    """Yield the chunks of a shard from row `first` on; None for a chunk without done rows."""
    for start in range(0, len(done), layout.chunk_rows):
        present = np.flatnonzero(done[start : start + layout.chunk_rows])
        if not present.size:
            yield None
            continue
        rows = np.full(layout.chunk_shape, spec.fill, spec.dtype)
        rows[present] = store.read_rows(spec.name, first + start + present)
        yield rows


def _readme(store: Store) -> str:
    """Return the dataset card of a final store, with metadata for the Hugging Face Hub."""
    facts = store.info()
    about = {
        "pretty_name": f"{facts['name']}: features of {facts['manifest']}",
        "tags": ["zarr", "features", "obygaze", facts["backbone"]["name"]],
    }
    licence = facts["licence"]
    if licence.lower() in HUB_LICENCES:
        about["license"] = licence.lower()
    elif licence:
        about |= {"license": "other", "license_name": licence}
    if (store.path / fmt.PARQUET).exists():
        about["configs"] = [{"config_name": "default", "data_files": fmt.PARQUET}]

    arrays = []
    for name, values in facts["arrays"].items():
        shape = " × ".join(map(str, values["shape"]))
        arrays.append(
            f"| `{name}` | {shape} | {values['dtype']} | {values['bytes']:,} | "
            f"{values['meaning']} |"
        )
    recipe = {
        "backbone": facts["backbone"] | {"config": "see zarr.json"},
        "preprocessing": facts["preprocessing"],
        "precision": facts["precision"],
    }
    facts |= {
        "about": to_json(about),
        "licence": licence or "not stated",
        "citation": facts["citation"] or "not stated",
        "arrays": "\n".join(arrays),
        "first": store.arrays[0],
        "recipe": to_json(recipe),
    }
    return _CARD.read_text(encoding="utf-8").format(**facts)
