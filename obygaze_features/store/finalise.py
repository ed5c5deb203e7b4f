"""Finalising: a filled store becomes one of few files, with a dataset card, read-only.

The final store is written beside the open one and replaces it at the end, so that an interrupted
run leaves the open store as it was.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import (
    clear_unfinished,
    disk_errors,
    new_folder,
    require_plain_file,
    sha256_of,
)
from obygaze_features.common.progress import progress
from obygaze_features.common.tables import format_table
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.claims import Claims
from obygaze_features.store.commit import finish_moves
from obygaze_features.store.dataset_card import write_card
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.shards import (
    DamagedChunk,
    ShardReader,
    map_file,
    write_shard,
)
from obygaze_features.store.writer import append_to_log, write_checksums

READ_ONLY = 0o444


def finalise(path: Path | str, *, compress: bool = False, allow_incomplete: bool = False) -> Store:
    """Join a store's small shards into large ones, with a card and checksums, read-only.

    A final store is not changed. The checksum of every shard is verified; `StoreError` if a shard
    is damaged, and nothing is changed.

    Parameters
    ----------
    path
        An open store.
    compress
        Compress each chunk with Zstandard. Features hardly get smaller, and reading gets slower.
    allow_incomplete
        Finalise although rows are still to do. They stay absent.
    """
    store = open_store(path)
    if store.is_final:
        clear_unfinished(store.path)  # such as the open store, if the exchange was killed
        return store
    to_do = len(store.missing_rows())
    if to_do and not allow_incomplete:
        raise StoreError(
            f"{path} lacks {to_do:,} of {len(store):,} rows; run the extraction again to fill "
            "them, or add --allow-incomplete to leave them out"
        )
    refuse_while_written(store)
    with disk_errors(store.path, StoreError):
        finish_moves(store)
        store.refresh()
        confirm = refuse_if_written_since(store)
        with new_folder(
            store.path, overwrite=True, allow_missing=True, after_swap=confirm
        ) as folder:
            _write_final(folder, store, compress=compress)
    return store.refresh()


def refuse_while_written(store: Store) -> None:
    """Raise if some process is writing a block of the store."""
    blocks = Claims(store.path / fmt.CLAIMS).active_blocks()
    if blocks:
        raise StoreError(
            f"{store.path}: a process is writing block {blocks[0]}; wait until it is done, or "
            "stop it"
        )


def refuse_if_written_since(store: Store) -> Callable[[Path], None]:
    """A check that raises if blocks were written since; its argument is where the store is then."""

    def read_records(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (folder / fmt.RECORDS).glob("*.json")}

    before = read_records(store.path)

    def confirm(folder: Path) -> None:
        if read_records(folder) != before:
            raise StoreError(
                f"{store.path} was written to in the meantime, and was not changed; run this "
                "again when no process writes it"
            )

    return confirm


def _write_final(folder: Path, store: Store, *, compress: bool) -> None:
    films = store.items.films  # raises if the table of items was changed
    _write_metadata(folder, store, films, compress=compress)
    checksums: dict[str, str] = {}
    for spec in store.specs:
        checksums |= _write_shards(folder, store, spec, compress=compress)
    probe = store.path / fmt.PROBE
    for file in (*([probe] if probe.is_symlink() else []), *probe.rglob("*")):
        if file.is_symlink() or not file.is_dir():
            require_plain_file(file, StoreError)
    for name in (fmt.ITEMS, fmt.LOG):
        require_plain_file(store.path / name, StoreError)
        if (store.path / name).exists():
            shutil.copyfile(store.path / name, folder / name)
    if probe.exists():
        shutil.copytree(probe, folder / fmt.PROBE, copy_function=shutil.copyfile)
    _consolidate(folder)
    columns: dict[str, Any] = {
        "id": store.ids,
        "status": [str(code) for code in store.status.tolist()],
        "source": [store.sources[item_id] or "" for item_id in store.ids],
        "reason": [store.failures.get(item_id, "") for item_id in store.ids],
    }
    (folder / fmt.ROWS).write_text(format_table(columns), encoding="utf-8", newline="\n")
    write_card(folder, checksums)
    append_to_log(folder, "finalised")
    write_checksums(folder, checksums)
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(READ_ONLY)


def _write_metadata(folder: Path, store: Store, films: Sequence[str], *, compress: bool) -> None:
    """Write the Zarr metadata, the ids and the status of a final store."""
    import zarr  # here, as it takes long to import

    texts = dict(zip(fmt.COORDINATES, (store.ids, films), strict=True))
    for name in set(store.arrays) & texts.keys():
        del texts[name]
    # xarray reads from the group's attributes which arrays are coordinates.
    coordinates = {"coordinates": " ".join(texts)} if texts else {}
    attributes = {**store.attributes, "state": "final"}
    group = zarr.create_group(folder, attributes={fmt.ATTRIBUTES: attributes, **coordinates})
    n, frames = len(store), fmt.frame_count(store.specs)
    for spec in store.specs:
        rows = fmt.final_rows(spec, n)
        group.create_array(**fmt.array_layout(spec, n, *rows, compress=compress, frames=frames))
    for name, column in texts.items():
        group.create_array(**fmt.coordinate_layout(name, n))[:] = np.array(column, object)
    table = fmt.encode_ids(store.ids)
    group.create_array(**fmt.ids_layout(*table.shape))[:] = table
    group.create_array(**fmt.status_layout(n))[:] = store.status


def _consolidate(folder: Path) -> None:
    """Copy all metadata into the group's ``zarr.json``, for stores that cannot be listed."""
    import zarr

    with warnings.catch_warnings():
        # Zarr warns that its specification lacks this, and of files that are not arrays.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(folder)


def _write_shards(folder: Path, store: Store, spec: ArraySpec, *, compress: bool) -> dict[str, str]:
    """Write an array's rows; returns the SHA-256 of each shard's file."""
    import zarr

    n, checksums = len(store), {}
    layout = fmt.shard_layout(spec, *fmt.final_rows(spec, n))
    array = zarr.open_array(folder / spec.name, mode="r+", zarr_format=3)
    shards = range(-(-n // layout.shard_rows))
    for shard in progress(shards, f"Writing {spec.name}", unit="shard"):
        first = shard * layout.shard_rows
        stop = min(first + layout.shard_rows, n)
        done = store.status[first:stop] == Status.DONE
        if not done.any():
            continue
        chunk_count = -(-len(done) // layout.chunk_rows)
        values = np.full((chunk_count, *layout.chunk_shape), spec.fill, spec.dtype)
        flat = values.reshape(-1, *spec.shape)
        for rows, block_values in _read_checked_blocks(store, spec, range(first, stop)):
            flat[rows - first] = block_values
        name = fmt.shard_name(spec, shard)
        if compress:
            array[first:stop] = flat[: len(done)]
            checksums[name] = sha256_of(folder / name)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            starts = range(0, len(flat), layout.chunk_rows)
            has_rows = [done[start : start + layout.chunk_rows].any() for start in starts]
            chunks = [values[i] if has_rows[i] else None for i in range(chunk_count)]
            checksums[name] = write_shard(folder / name, chunks, layout)
    return checksums


def _read_checked_blocks(
    store: Store, spec: ArraySpec, wanted: range
) -> Iterator[tuple[NDArray[np.intp], NDArray[Any]]]:
    """The rows in `wanted` that are done, block by block, their shards checked."""
    size = store.block_rows
    for block in range(wanted.start // size, -(-wanted.stop // size)):
        record = store.record_of(block)
        if record is None or record.shards[spec.name] is None:
            continue
        rows = block * size + np.flatnonzero(np.array(record.status) == Status.DONE)
        rows = rows[(rows >= wanted.start) & (rows < wanted.stop)]
        if rows.size:
            yield rows, _read_checked_rows(store, spec, record, rows - block * size)


def _read_checked_rows(
    store: Store, spec: ArraySpec, record: BlockRecord, rows: NDArray[np.intp]
) -> NDArray[Any]:
    path = store.path / fmt.shard_name(spec, record.block)
    try:
        if sha256_of(path) == record.shards[spec.name]:
            return ShardReader(map_file(path), fmt.shard_layout(spec, store.block_rows)).read(rows)
        reason = "it was changed"
    except FileNotFoundError:
        reason = "it is missing"
    except DamagedChunk as problem:
        reason = problem.reason
    first = store.ids[record.block * store.block_rows + int(rows[0])]
    raise StoreError(
        f"{path}: {reason}, so rows such as {first} cannot be finalised; nothing was changed; run: "
        f"obygaze stores repair {store.path}"
    )
