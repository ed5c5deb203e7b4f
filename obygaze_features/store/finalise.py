"""Finalise a filled store: make it read-only, with a few large files and a dataset card.

The final store is written next to the open one and replaces it at the end, so an interrupted run
leaves the open store unchanged.

The card, README.md, contains only facts from the store, so equal stores get equal cards.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import (
    clear_unfinished,
    disk_errors,
    link_or_copy,
    make_read_only,
    new_folder,
    require_plain_file,
    sha256_of,
    to_json,
    write_text,
)
from obygaze_features.common.progress import progress
from obygaze_features.common.tables import format_table, map_cells
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.claims import Claims
from obygaze_features.store.commit import finish_moves
from obygaze_features.store.diff import read_probe
from obygaze_features.store.files import StoreFile
from obygaze_features.store.format import ArraySpec, Status
from obygaze_features.store.metadata import DamagedFile, read_checksums
from obygaze_features.store.reader import PART_BYTES, Store, open_store
from obygaze_features.store.shards import write_shard
from obygaze_features.store.writer import (
    append_to_log,
    create_group,
    write_checksums,
    write_probe,
)

TEXTS = ("licence", "citation", "name")
"""Texts that can be changed because they do not affect the features."""
_CARD = Path(__file__).with_name("dataset_card.md")
HUB_LICENCES = (
    "apache-2.0", "bsd-3-clause", "cc-by-4.0", "cc-by-nc-4.0", "cc-by-nc-nd-4.0",
    "cc-by-nc-sa-4.0", "cc-by-sa-4.0", "cc0-1.0", "mit", "odbl", "pddl",
)  # fmt: skip
"""Licence ids that the Hugging Face Hub recognises. Other licences are shown by name."""
HUB_SIZES = {10**3: "n<1K", 10**4: "1K<n<10K", 10**5: "10K<n<100K", 10**6: "100K<n<1M"}
"""The Hugging Face Hub's size categories for datasets, by their row limit (exclusive)."""


def finalise(
    store: Store | Path | str, *, compress: bool = False, allow_incomplete: bool = False
) -> Store:
    """Finalise an open store, passed as a `Store` or a path; see `Store.finalise`."""
    store = store if isinstance(store, Store) else open_store(store)
    if store.is_final:
        clear_unfinished(store.path)  # e.g. the open store, if an earlier swap was killed
        return store
    refuse_while_written(store)
    with disk_errors(store.path, StoreError):
        finish_moves(store)
        to_do = len(store.refresh().missing_rows())
        if to_do and not allow_incomplete:
            raise StoreError(
                f"{store.path} lacks {to_do:,} of {len(store):,} rows. Run the extraction or "
                "import again to add them, or finalise without them: add --allow-incomplete"
            )
        confirm = refuse_if_written_since(store)
        with new_folder(
            store.path, overwrite=True, allow_missing=True, after_swap=confirm
        ) as folder:
            _write_final(folder, store, compress=compress)
    return store.refresh()


def set_texts(store: Store, texts: Mapping[str, str]) -> Store:
    """Change some of the `TEXTS` of a store; see `Store.set`."""
    if not texts:
        raise UsageError(f"nothing to set; pass at least one of {', '.join(TEXTS)}")
    path = store.path
    refuse_while_written(store)
    require_plain_file(path / fmt.LOG, StoreError)
    with disk_errors(path, StoreError):
        if not store.is_final:
            finish_moves(store)
        confirm = refuse_if_written_since(store)
        checksums = read_checksums(store.location)
        if checksums.get("zarr.json") != sha256_of(path / "zarr.json"):
            raise DamagedFile(StoreFile(store.location, "zarr.json"), "it was changed")
        with new_folder(path, overwrite=True, after_swap=confirm) as folder:
            shutil.copytree(
                path, folder, symlinks=True, copy_function=link_or_copy, dirs_exist_ok=True
            )
            group = json.loads((folder / "zarr.json").read_bytes())
            group["attributes"][fmt.ATTRIBUTES] |= texts
            write_text(folder / "zarr.json", to_json(group))
            changed = ["zarr.json"]
            if store.is_final:
                changed.append(fmt.CARD)
                write_card(folder)
                checksums.pop(fmt.CROISSANT, None)
            checksums |= {name: sha256_of(folder / name) for name in changed}
            write_text(folder / fmt.CHECKSUMS, to_json(checksums))
            if (path / fmt.LOG).exists():  # copied, so that the old log does not grow
                (folder / fmt.LOG).unlink()
                shutil.copyfile(path / fmt.LOG, folder / fmt.LOG)
            append_to_log(folder, "set", texts=texts)
            if store.is_final:
                for name in (*changed, fmt.CHECKSUMS, fmt.LOG):
                    make_read_only(folder / name)
        (path / fmt.CROISSANT).unlink(missing_ok=True)
    return store.refresh()


def refuse_while_written(store: Store) -> None:
    """Raise `StoreError` if a process is writing a block of the store."""
    blocks = Claims(store.path / fmt.CLAIMS).active_blocks()
    if blocks:
        raise StoreError(
            f"{store.path}: a process is writing block {blocks[0]}. Wait until it finishes, or "
            "stop it"
        )


def refuse_if_written_since(store: Store) -> Callable[[Path], None]:
    """Return a function that raises `StoreError` if blocks have been written since this call.

    The function takes the folder that holds the store when the function is called.
    """

    def read_records(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (folder / fmt.RECORDS).glob("*.json")}

    before = read_records(store.path)

    def confirm(folder: Path) -> None:
        if read_records(folder) != before:
            raise StoreError(
                f"{store.path} was not changed, because another process wrote to it meanwhile. "
                "Run this again when no process is writing to it"
            )

    return confirm


def _write_final(folder: Path, store: Store, *, compress: bool) -> None:
    films = store.items.films  # raises if the item table was changed
    _write_metadata(folder, store, films, compress=compress)
    checksums: dict[str, str] = {}
    for spec in store.specs:
        checksums |= _write_shards(folder, store, spec, compress=compress)
    for name in (fmt.ITEMS, fmt.LOG):
        require_plain_file(store.path / name, StoreError)
        if (store.path / name).exists():
            shutil.copyfile(store.path / name, folder / name)
    _consolidate(folder)
    columns: dict[str, Any] = {
        "id": store.ids,
        "status": map_cells(str, store.status.tolist()),
        **store.rows_table,
    }
    (folder / fmt.ROWS).write_text(format_table(columns), encoding="utf-8", newline="\n")
    write_card(folder)
    append_to_log(folder, "finalised")
    write_checksums(folder, checksums)
    for file in folder.rglob("*"):
        if file.is_file():
            make_read_only(file)


def _write_metadata(folder: Path, store: Store, films: Sequence[str], *, compress: bool) -> None:
    """Write the Zarr metadata, the ids and the status array of a final store."""
    texts = dict(zip(fmt.COORDINATES, (store.ids, films), strict=True))
    attributes = {**store.attributes, "state": "final"}
    # The group's attributes tell xarray which arrays are coordinates rather than features.
    times = [name for name in store.arrays if name == "frame_time"]
    coordinates = " ".join([*texts, fmt.IDS, fmt.STATUS, *times])
    group = create_group(folder, {fmt.ATTRIBUTES: attributes, "coordinates": coordinates})
    n = len(store)
    for spec in store.specs:
        rows = fmt.final_rows(spec, n)
        layout = fmt.array_layout(spec, n, *rows, compress=compress, beside=store.specs)
        group.create_array(**layout)
    for name, column in texts.items():
        group.create_array(**fmt.coordinate_layout(name, n))[:] = np.array(column, object)
    table = store.id_bytes
    group.create_array(**fmt.ids_layout(*table.shape))[:] = table
    group.create_array(**fmt.status_layout(n))[:] = store.status
    if probe := read_probe(store):
        write_probe(group, store.specs, probe)


def _consolidate(folder: Path) -> None:
    """Copy all metadata into the group's ``zarr.json``, for servers that cannot list files."""
    import zarr

    with warnings.catch_warnings():
        # Zarr warns that this is not in its specification, and about files that are not arrays.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(folder)


def _write_shards(folder: Path, store: Store, spec: ArraySpec, *, compress: bool) -> dict[str, str]:
    """Write an array's rows; return the SHA-256 of each shard file by name."""
    checksums, layout = {}, fmt.shard_layout(spec, *fmt.final_rows(spec, len(store)))
    shards = range(-(-len(store) // layout.shard_rows))

    step = max(1, PART_BYTES // layout.chunk_bytes) * layout.chunk_rows

    def read_chunks(begin: int, done: NDArray[np.bool_]) -> Iterator[NDArray[Any] | None]:
        for first in range(0, len(done), step):
            part = done[first : first + step]
            rows = store.read_rows(spec.name, begin + first + np.flatnonzero(part))
            store.forget()
            if len(rows) < len(part):
                present, rows = rows, np.full((len(part), *spec.shape), spec.fill, spec.dtype)
                rows[part] = present
            for start in range(0, len(rows), layout.chunk_rows):
                chunk = rows[start : start + layout.chunk_rows]
                if len(chunk) < layout.chunk_rows:  # the last chunk
                    chunk = np.full(layout.chunk_shape, spec.fill, spec.dtype)
                    chunk[: len(rows) - start] = rows[start:]
                is_present = done[first + start : first + start + layout.chunk_rows].any()
                yield chunk if is_present else None

    for shard in progress(shards, f"Writing {spec.name}", unit="shard"):
        rows = slice(shard * layout.shard_rows, (shard + 1) * layout.shard_rows)
        done, name = store.status[rows] == Status.DONE, fmt.shard_name(spec, shard)
        if done.any():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            chunks = read_chunks(rows.start, done)
            checksums[name] = write_shard(folder / name, chunks, layout, compress=compress)
    return checksums


def write_card(folder: Path) -> None:
    """Write README.md into a final store whose data is already written."""
    store = open_store(folder)
    write_text(folder / fmt.CARD, _readme(store, store.info()))


def _readme(store: Store, facts: Mapping[str, Any]) -> str:
    counts = ", ".join(
        f"{int((store.status == code).sum()):,} {code.name.lower().replace('_', ' ')}"
        for code in Status
        if code != Status.DONE and (store.status == code).any()
    )
    arrays = "\n".join(
        f"| `{array}` | {' × '.join(map(str, values['shape']))} | {values['dtype']} "
        f"| {values['bytes']:,} | {values['meaning']} |"
        for array, values in facts["arrays"].items()
    )
    padding = ""
    if any(spec.padded for spec in store.specs):
        padding = ", as is the padding of clips with fewer frames than the backbone takes"
    stated = {key: facts[key] or "not stated" for key in ("licence", "citation")}
    texts = {key: facts["backbone"].get(key) for key in fmt.CREDITS}
    weights = "".join(f"\n- {key} of the weights: {text}" for key, text in texts.items() if text)
    card = _CARD.read_text(encoding="utf-8").format(
        **{**facts, **stated, "arrays": arrays},
        counts=counts and f"; {counts}",
        padding=padding,
        weights=weights,
        first=store.arrays[0],
        revision=facts["backbone"].get("revision") or "not stated",
        steps=json.dumps(facts["preprocessing"], indent=2, ensure_ascii=False),
    )
    return f"---\n{_front_matter(facts)}---\n\n{card}"


def _front_matter(facts: Mapping[str, Any]) -> str:
    """Return the Hugging Face Hub's dataset metadata as YAML, with JSON strings as values."""
    rows, licence = facts["rows"]["all"], facts["licence"]
    values: dict[str, Any] = {
        "pretty_name": f"{facts['name']}: features of {facts['manifest']}",
        "tags": ["zarr", "features", "obygaze", facts["backbone"]["name"]],
        "size_categories": [
            next((size for limit, size in HUB_SIZES.items() if rows < limit), "1M<n<10M")
        ],
    }
    if licence and licence.lower() in HUB_LICENCES:
        values["license"] = licence.lower()
    elif licence:
        values |= {"license": "other", "license_name": licence}
    lines = (f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
    return "".join(f"{line}\n" for line in lines)
