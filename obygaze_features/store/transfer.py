"""Transfer final stores as a whole: to zip files and the Hugging Face Hub, or from any address.

Every file except the log is verified by its checksum before it is sent and after it is fetched.
Repeating an interrupted pull keeps the files that have arrived, which are in a hidden folder. A
push to the Hub is a single commit. Zip files are not compressed, so that they can be mapped. Equal
stores give equal zip files, except for their logs.
"""

from __future__ import annotations

import contextlib
import shutil
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obygaze_features.common.files import (
    READ_ONLY,
    disk_errors,
    make_read_only,
    new_file,
    new_folder,
    require_plain_file,
    write_bytes,
)
from obygaze_features.common.package import need
from obygaze_features.common.progress import progress
from obygaze_features.common.redaction import redact_url
from obygaze_features.common.resume import is_resumable, only_process
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.files import Folder, Location, require_store_name
from obygaze_features.store.metadata import read_checksums, read_files
from obygaze_features.store.remote import Remote, hub_repository, one_line_errors
from obygaze_features.store.store import Store, StoreLike, open_store
from obygaze_features.store.verify import compare_files, compare_list


def pack(store: StoreLike, output: Path | str) -> dict[str, Any]:
    """Pack a final store into one zip file, verifying the checksum of each file.

    Returns the path, the number of files, and the size. Files in the store's folder that do not
    belong to the store are left out. Raises `StoreError`, and writes nothing, if the store is open
    or damaged.
    """
    store = open_store(store)
    output = Path(output)
    sizes = _list_files(store)
    with (
        disk_errors(output, StoreError),
        new_file(output) as temporary,
        zipfile.ZipFile(temporary, "w") as archive,
    ):
        for name in progress(sizes, "Packing", unit="file"):
            info = zipfile.ZipInfo(name)
            info.create_system = 3  # Unix, on every system
            info.external_attr = (stat.S_IFREG | READ_ONLY) << 16
            archive.writestr(info, (store.path / name).read_bytes())
    return {"path": output, "files": len(sizes), "size": output.stat().st_size}


def push(store: StoreLike, output: Path | str) -> dict[str, Any]:
    """Upload a final store to the Hugging Face Hub; a second push sends only what is missing.

    Returns the address, the number of files, their size, and how many were sent this time. Files in
    the store's folder that do not belong to the store are left out.

    Parameters
    ----------
    store
        The store to push, or its folder. The checksum of each file is verified first.
    output
        A dataset on the Hub, ``hf://datasets/OWNER/NAME``, which may not exist yet. Raises
        `StoreError` if it has other content.
    """
    store = open_store(store)
    where = str(output).rstrip("/")
    if not where.startswith("hf://"):
        raise UsageError(
            f"{redact_url(where)}: cannot push there; push to hf://datasets/OWNER/NAME or "
            "to NAME.zip (in Python, of.pack), or copy the store: obygaze stores pull STORE -o "
            "NAME.zarr"
        )
    there = Remote(where)
    sizes = _list_files(store)
    sizes_there = _list_dataset(there)
    if sizes_there and there.identify() != store.location.read(fmt.CHECKSUMS):
        raise StoreError(
            f"{there.where} holds another store or other files; choose an empty target"
        )

    unsent = [name for name, size in sizes.items() if sizes_there.get(name) != size]
    if unsent:
        with one_line_errors(there.where):
            need("huggingface_hub", extra="remote").HfApi().upload_folder(
                **_dataset(there),
                folder_path=store.path,
                allow_patterns=list(sizes),
                commit_message=f"{store.path.name}: {len(sizes)} files",
            )
    return {
        "where": there.where,
        "files": len(sizes),
        "size": sum(sizes.values()),
        "sent": len(unsent),
    }


def _list_files(store: Store) -> dict[str, int]:
    """Return the sizes of a final store's files, after verifying them."""
    _require_listed(store)
    require_plain_file(store.path / fmt.LOG, StoreError)
    files = read_files(store.location)
    damage = compare_files(store.location, files)
    if damage:
        name, reason = next(iter(damage.items()))
        raise StoreError(
            f"{store.location.join(name)} cannot be copied: {reason}; "
            f"run: obygaze stores verify {store.path}"
        )
    # The last file is that of older versions, so that equal stores give equal zip files.
    names = (fmt.CHECKSUMS, fmt.LOG, *sorted(files, key="zarr.json".__eq__))
    paths = {name: store.path / name for name in names}
    return {name: path.stat().st_size for name, path in paths.items() if path.is_file()}


def _require_listed(store: Store) -> None:
    """Raise `StoreError` unless a store is final, and its list names its files and no others."""
    if not store.is_final:
        raise StoreError(
            store.where,
            "is still open, so its files may change; finalise it (obygaze stores finalise), or "
            "first make a store of its finished films (obygaze stores subset)",
        )
    wrong = list(compare_list(store).values())
    if wrong:
        raise StoreError(f"{store.where}: {wrong[0]}; run: obygaze stores verify {store.where}")


def _list_dataset(there: Remote) -> dict[str, int]:
    """Return the sizes of a Hub dataset's files; create a private dataset if there is none."""
    hub = need("huggingface_hub", extra="remote")
    api = hub.HfApi()
    with one_line_errors(there.where):
        api.create_repo(**_dataset(there), private=True, exist_ok=True)
        tree = api.list_repo_tree(**_dataset(there), recursive=True)
        sizes = {file.path: file.size for file in tree if isinstance(file, hub.RepoFile)}
    sizes.pop(".gitattributes", None)
    return sizes


def _dataset(there: Remote) -> dict[str, str]:
    """Return the arguments that identify a dataset for the Hub's client."""
    return {"repo_id": hub_repository(there.address), "repo_type": "dataset"}


def pull(store: StoreLike, output: Path | str, *, overwrite: bool = False) -> Store:
    """Download, unpack or copy a final store; a second download keeps the files that have arrived.

    Parameters
    ----------
    store
        The store to pull, or its address: a URL, a zip file on this machine, or a folder.
    output
        The path of the new store, ``NAME.zarr``.
    overwrite
        Replace an existing store at `output` once the new one is complete and verified.
    """
    output = require_store_name(Path(output))
    store = open_store(store)
    _require_listed(store)
    location = store.location

    folder = output.with_name(f".{output.name}.pulling")
    lock = folder.with_name(f"{folder.name}.lock")
    with (
        disk_errors(output, StoreError),
        only_process(
            lock,
            StoreError(f"another process is fetching {output}; wait, or choose another name"),
        ),
        new_folder(output, overwrite=overwrite, marker=fmt.CHECKSUMS, allow_missing=True) as final,
    ):
        _prepare(folder, location.read(fmt.CHECKSUMS))
        files = read_files(location)
        try:
            _fetch(location, folder, files)
        except StoreError:
            if location.is_local:  # reading the source again costs little
                shutil.rmtree(folder, ignore_errors=True)
            raise
        for name in (*files, fmt.CHECKSUMS):
            make_read_only(folder / name)
        lock.unlink(missing_ok=True)  # before the store is there, so that a kill leaves no file
        final.rmdir()
        folder.rename(final)
    return open_store(output)


def _prepare(folder: Path, listed: bytes) -> None:
    """Make the hidden folder for the files of a pull, or keep the folder of an earlier pull.

    The folder is kept if its list of checksums equals `listed`.
    """
    names = {fmt.CHECKSUMS, fmt.LOG, fmt.PARQUET}
    with contextlib.suppress(StoreError):
        names |= read_checksums(Folder(folder)).keys()
    is_ours = is_resumable(folder, fmt.CHECKSUMS, names.__contains__)
    if is_ours and (folder / fmt.CHECKSUMS).read_bytes() == listed:
        return
    shutil.rmtree(folder, ignore_errors=True)
    with new_folder(folder) as new:
        write_bytes(new / fmt.CHECKSUMS, listed)


def _fetch(location: Location, folder: Path, files: Mapping[str, str]) -> None:
    """Fetch the files that are missing or damaged; `files` has the SHA-256 of each."""
    wrong = list(compare_files(Folder(folder), files))
    for name in wrong:
        (folder / name).unlink(missing_ok=True)
    try:
        location.fetch(wrong, folder)
    except FileNotFoundError:
        raise StoreError(
            location.where,
            f"lacks files that {fmt.CHECKSUMS} lists; to see which, run: obygaze stores verify "
            f"{location.where}",
        ) from None
    damaged = list(compare_files(Folder(folder), files))
    if damaged:
        raise StoreError(
            f"{location.join(damaged[0])} does not match its checksum. Run the command again; if "
            "it fails again, tell the store's owner"
        )
    (folder / fmt.LOG).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):  # the log may be lost; it affects no features
        if isinstance(location, Folder):  # no checksum tells whose file it is
            require_plain_file(location.path / fmt.LOG, StoreError)
        location.fetch([fmt.LOG], folder)
