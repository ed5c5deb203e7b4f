"""Finalising: a filled store becomes one of few files, whole, with a card, and read-only.

The final store is made beside the open one and takes its place at the end, so that an interrupted
run leaves the open store as it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import disk_errors, new_folder, sha256_of
from obygaze_features.common.progress import progress
from obygaze_features.common.tables import format_table
from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.card import write_card
from obygaze_features.store.claims import Claims
from obygaze_features.store.commit import finish_moves
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.items import read_items
from obygaze_features.store.layout import append_to_log, consolidate, write_checksums
from obygaze_features.store.location import map_file
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.shards import DamagedChunk, ShardLayout, ShardReader, write_shard

__all__ = ["Finalised", "finalise", "lay_out_final", "refuse_while_at_work", "unchanged"]

READ_ONLY = 0o444


@dataclass(frozen=True)
class Finalised:
    """What a store became.

    Parameters
    ----------
    path
        Where it lies, as before.
    rows, done
        All rows, and those that are done.
    files, size
        How many files it has now, and their bytes.
    already
        Whether it was final before, and nothing was done.
    """

    path: Path
    rows: int
    done: int
    files: int
    size: int
    already: bool = False


def finalise(path: Path, *, compress: bool = False, allow_incomplete: bool = False) -> Finalised:
    """Join a store's small shards into large ones, with a card and checksums, read-only.

    Parameters
    ----------
    path
        An open store; a final one is left as it is. Every shard is held to its checksum on the
        way; `StoreError` if one is damaged, and nothing is changed.
    compress
        Compress each chunk by Zstandard. Features hardly get smaller, and reading gets slower.
    allow_incomplete
        Go on although rows are still to do. They stay absent.
    """
    store = open_store(path)
    if store.is_final:
        return _finalised(path, store, already=True)
    to_do = int((store.status == Status.TODO).sum())
    if to_do and not allow_incomplete:
        raise StoreError(
            f"{path} lacks {to_do:,} of {len(store):,} rows; run the extraction again to fill "
            "them, or add --allow-incomplete to leave them out for good"
        )
    refuse_while_at_work(store)
    with disk_errors(path, StoreError):
        finish_moves(store)
        store = open_store(path)
        confirm = unchanged(store)
        with new_folder(path, overwrite=True, allow_missing=True, after_swap=confirm) as folder:
            _fill(folder, store, compress=compress)
    return _finalised(path, store)


def _finalised(path: Path, store: Store, *, already: bool = False) -> Finalised:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return Finalised(
        path,
        rows=len(store),
        done=int((store.status == Status.DONE).sum()),
        files=len(files),
        size=sum(file.stat().st_size for file in files),
        already=already,
    )


def lay_out_final(
    folder: Path,
    attributes: Mapping[str, Any],
    arrays: Sequence[ArraySpec],
    ids: Sequence[str],
    status: NDArray[np.uint8],
    *,
    films: Sequence[str] | None,
    compress: bool,
) -> None:
    """Make of an empty folder a final store without its shards, its card and its checksums.

    Without `films` it is laid out as it was before stores had `spec.COORDINATES`.
    """
    import zarr  # here, as it takes long to import

    values = {**attributes, "state": "final"}
    texts = {} if films is None else dict(zip(spec.COORDINATES, (ids, films), strict=True))
    for name in {array.name for array in arrays} & texts.keys():
        del texts[name]
    # xarray reads in the group's attributes which arrays are coordinates.
    coordinates = {"coordinates": " ".join(texts)} if texts else {}
    group = zarr.create_group(folder, attributes={spec.ATTRIBUTES: values, **coordinates})
    n, frames = len(ids), spec.frame_count(arrays) if films is not None else None
    for one in arrays:
        rows = spec.final_rows(one, n)
        group.create_array(**spec.array_layout(one, n, *rows, compress=compress, frames=frames))
    for name, column in texts.items():
        group.create_array(**spec.coordinate_layout(name, n))[:] = np.array(column, object)
    table = spec.encode_ids(ids)
    group.create_array(**spec.ids_layout(*table.shape))[:] = table
    group.create_array(**spec.status_layout(n))[:] = status


def unchanged(store: Store) -> Callable[[Path], None]:
    """A function that raises if blocks were written since; it is told where the store lies then."""

    def records(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (folder / spec.RECORDS).glob("*.json")}

    before = records(store.path)

    def confirm(folder: Path) -> None:
        if records(folder) != before:
            raise StoreError(
                f"{store.path} was written to in the meantime, and is left as it is; "
                "do this again when nobody fills it"
            )

    return confirm


def refuse_while_at_work(store: Store) -> None:
    """Raise if somebody writes a block of the store."""
    blocks = Claims(store.path / spec.CLAIMS).at_work()
    if blocks:
        raise StoreError(
            f"{store.path}: a process is at work on block {blocks[0]}; wait until it is done, or "
            "stop it"
        )


def _fill(folder: Path, store: Store, *, compress: bool) -> None:
    items = read_items(
        store.location, store.attributes
    )  # raises if they are not as they were written
    lay_out_final(
        folder, store.attributes, store.specs, store.ids, store.status,
        films=items.films, compress=compress,
    )  # fmt: skip
    sums: dict[str, str] = {}
    for one in store.specs:
        sums |= _write_shards(folder, store, one, compress=compress)
    for name in (spec.ITEMS, spec.LOG):
        if (store.path / name).exists():
            shutil.copyfile(store.path / name, folder / name)
    if (store.path / spec.PROBE).exists():
        shutil.copytree(store.path / spec.PROBE, folder / spec.PROBE, copy_function=shutil.copyfile)
    consolidate(folder)
    columns: dict[str, Any] = {
        "id": store.ids,
        "status": [str(code) for code in store.status.tolist()],
        "source": [store.sources[one] or "" for one in store.ids],
        "reason": [store.failures.get(one, "") for one in store.ids],
    }
    (folder / spec.ROWS).write_text(format_table(columns), encoding="utf-8", newline="\n")
    write_card(folder, sums)
    append_to_log(folder, "finalised")
    write_checksums(folder, sums)
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(READ_ONLY)


def _write_shards(folder: Path, store: Store, one: ArraySpec, *, compress: bool) -> dict[str, str]:
    """Write an array's rows; gives the SHA-256 of each shard's file."""
    import zarr

    n, sums = len(store), {}
    layout = spec.shard_layout(one, *spec.final_rows(one, n))
    array = zarr.open_array(folder / one.name, mode="r+", zarr_format=3)
    shards = range(-(-n // layout.shard_rows))
    for shard in progress(shards, f"Writing {one.name}", unit="shard"):
        first = shard * layout.shard_rows
        stop = min(first + layout.shard_rows, n)
        done = store.status[first:stop] == Status.DONE
        if not done.any():
            continue
        values = np.full((stop - first, *one.shape), one.fill, one.dtype)
        for rows, part in _checked_blocks(store, one, range(first, stop)):
            values[rows - first] = part
        name = spec.shard_name(one, shard)
        if compress:
            array[first:stop] = values
            sums[name] = sha256_of(folder / name)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            chunks = _chunks(values, done, one, layout)
            sums[name] = write_shard(folder / name, chunks, layout)
    return sums


def _chunks(
    values: NDArray[Any], done: NDArray[np.bool_], one: ArraySpec, layout: ShardLayout
) -> list[NDArray[Any] | None]:
    """Rows as chunks; None for one without a row that is done, the last one filled up."""
    chunks: list[NDArray[Any] | None] = []
    for start in range(0, len(values), layout.chunk_rows):
        chunk = values[start : start + layout.chunk_rows]
        if not done[start : start + layout.chunk_rows].any():
            chunks.append(None)
        elif len(chunk) == layout.chunk_rows:
            chunks.append(chunk)
        else:
            padded = np.full(layout.chunk_shape, one.fill, one.dtype)
            padded[: len(chunk)] = chunk
            chunks.append(padded)
    return chunks


def _checked_blocks(
    store: Store, one: ArraySpec, wanted: range
) -> Iterator[tuple[NDArray[np.intp], NDArray[Any]]]:
    """The rows of `wanted` that are done, block by block, their shards held to the records."""
    size = store.block_rows
    for block in range(wanted.start // size, -(-wanted.stop // size)):
        record = store.record_of(block)
        if record is None or record.shards[one.name] is None:
            continue
        rows = block * size + np.flatnonzero(np.array(record.status) == Status.DONE)
        rows = rows[(rows >= wanted.start) & (rows < wanted.stop)]
        if rows.size:
            yield rows, _checked_rows(store, one, record, rows - block * size)


def _checked_rows(
    store: Store, one: ArraySpec, record: BlockRecord, rows: NDArray[np.intp]
) -> NDArray[Any]:
    path = store.path / spec.shard_name(one, record.block)
    try:
        if sha256_of(path) == record.shards[one.name]:
            return ShardReader(map_file(path), spec.shard_layout(one, store.block_rows)).read(rows)
        why = "it is not as it was written"
    except FileNotFoundError:
        why = "it is lost"
    except DamagedChunk as problem:
        why = problem.why
    first = store.ids[record.block * store.block_rows + int(rows[0])]
    raise StoreError(
        f"{path}: {why}, so rows such as {first} cannot be finalised; nothing was changed, run: "
        f"obygaze stores repair {store.path}"
    )
