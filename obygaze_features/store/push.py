"""Copying a final store to a folder, S3 or the Hugging Face Hub; resumed by running it again.

To folders and S3 it sends ``checksums.json`` first, which identifies the store, and the group's
``zarr.json`` last, so that nobody opens half a store. To the Hub it is one commit.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from obygaze_features.common.files import sha256_of
from obygaze_features.common.package import need
from obygaze_features.common.progress import meter, progress
from obygaze_features.common.text import redact_url
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.file_list import damaged_file, list_final_files, unrelated_files
from obygaze_features.store.location import sha256_at
from obygaze_features.store.remote import (
    Remote,
    is_url,
    one_line_errors,
    open_file_system,
    parse_hf_address,
)

GROUP = "zarr.json"
_BUCKETS = ("s3://", "gs://")


def push(store: Path | str, target: Path | str) -> dict[str, Any]:
    """Put a final store elsewhere; run again, it sends what is missing or wrong there.

    Parameters
    ----------
    store
        Its folder.
    target
        A folder, or a URL such as ``s3://bucket/lab``, which gets the store under its own name;
        ``NAME.zarr``, there or here, to give it another; or ``hf://datasets/OWNER/NAME``, a data
        set of its own. `StoreError` if something else is there, `UsageError` if that is inside a
        store.

    Returns
    -------
    dict
        ``where`` it is now, its ``files`` and ``size``, how many files were ``sent`` by this run,
        and what in the folder was ``left_out``, as it is no file of the store.
    """
    path, where = Path(store), str(target)
    checksums, sizes = list_final_files(path, "pushed")
    if where.startswith(("http://", "https://")):
        where = redact_url(where)
        raise UsageError(f"{where}: nothing is sent over HTTP; push to a folder, s3:// or hf://")
    if where.startswith("hf://"):
        sent = _push_to_hub(path, where, checksums, list(sizes))
    else:
        where = _target_for(path, where)
        sent = _push_files(path, where, checksums, sizes)
    return {
        "where": redact_url(where),
        "files": len(sizes),
        "size": sum(sizes.values()),
        "sent": sent,
        "left_out": unrelated_files(path, sizes),
    }


def _target_for(path: Path, target: str) -> str:
    """Where a store goes: the target if it is named as a store, or is one; else inside it."""
    target = target.rstrip("/") or target
    if not target.endswith(".zarr") and not _is_store(target):
        target = f"{target.rstrip('/')}/{path.resolve().name}"
    if is_url(target):
        scheme, _, rest = target.partition("://")
        parts = rest.split("/")
        around = [f"{scheme}://{'/'.join(parts[:end])}" for end in range(1, len(parts))]
    elif path.resolve() == Path(target).resolve():
        raise UsageError(f"{target} is the store itself; choose another target")
    else:
        parents = Path(target).resolve().parents
        if files := [str(parent) for parent in parents if parent.is_file()]:
            raise UsageError(f"{files[0]} is a file; push to a folder")
        around = [str(parent) for parent in parents]
    for folder in around:
        if _is_store(folder):
            raise UsageError(
                f"{redact_url(target)} is inside the store {redact_url(folder)}; choose another "
                "target"
            )
    return target


def _is_store(address: str) -> bool:
    """Whether a store is at an address, or one that is being pushed."""
    system, root, _ = open_file_system(address)
    where = redact_url(address)
    with one_line_errors(where), contextlib.suppress(FileNotFoundError, PermissionError):
        return bool(system.exists(f"{root}/{fmt.CHECKSUMS}"))
    return False


def _push_files(
    path: Path, target: str, checksums: Mapping[str, str], sizes: Mapping[str, int]
) -> int:
    """Send what is missing; gives the number of files sent."""
    there, listed = Remote(target), (path / fmt.CHECKSUMS).read_bytes()

    def refuse_other_store() -> None:
        if there.read(fmt.CHECKSUMS) != listed:
            raise StoreError(f"{there.where} holds another store; choose another target")

    sizes_there = _sizes_there(target, there.where)
    send = partial(_send, path, target, checksums, sizes)
    sent, listed_there = 0, b""
    if fmt.CHECKSUMS in sizes_there:
        listed_there = there.read(fmt.CHECKSUMS)
    # What a killed push left of its first file, or nothing, is nobody's.
    if len(listed_there) < len(listed) and listed.startswith(listed_there):
        if others := sizes_there.keys() - {fmt.CHECKSUMS}:
            raise _holds_something_else(there.where, others)
        sent += send([fmt.CHECKSUMS])
    else:
        refuse_other_store()
    body = [name for name in sizes if name not in (fmt.CHECKSUMS, GROUP)]
    sent += send([name for name in body if sizes_there.get(name) != sizes[name]])
    for part in (body, [GROUP]):
        wrong = _wrong_there(there, checksums, part)
        if wrong == [GROUP]:
            refuse_other_store()  # somebody else may have begun at the same time
        sent += send(wrong)
        if still := _wrong_there(there, checksums, wrong):
            raise StoreError(
                f"{there.join(still[0])} is not what was sent; run: obygaze stores verify {path}"
            )
    return sent


def _sizes_there(target: str, where: str) -> dict[str, int]:
    """The files at a target, with their sizes."""
    system, root, _ = open_file_system(target)
    system.invalidate_cache()
    try:
        with one_line_errors(where):
            files = system.find(root, detail=True)
    except FileNotFoundError:
        return {}
    return {name.removeprefix(f"{root}/"): int(info["size"] or 0) for name, info in files.items()}


def _send(
    path: Path,
    target: str,
    checksums: Mapping[str, str],
    sizes: Mapping[str, int],
    names: list[str],
) -> int:
    """Send files, none of which is damaged here; gives their number."""
    system, root, _ = open_file_system(target)
    where = redact_url(target)
    with meter(sum(sizes[name] for name in names), "Sending", unit="B") as advance:
        for name in names:
            _refuse_damaged(path, checksums, name)
            goal = f"{root}/{name}"
            try:
                with one_line_errors(f"{where}/{name}"):
                    if not target.startswith(_BUCKETS):  # a push makes no bucket
                        system.makedirs(goal.rpartition("/")[0], exist_ok=True)
                    system.put_file(str(path / name), goal)
            except FileNotFoundError:
                bucket = root.partition("/")[0] or root
                raise StoreError(
                    f"there is no bucket {bucket}, for {where}; check its name, or make it: a "
                    "push makes none"
                ) from None
            advance(sizes[name])
    return len(names)


def _wrong_there(there: Remote, checksums: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """The files that are not there as they should be, by reading them again."""
    wrong = []
    listed = [name for name in names if name in checksums]  # the log is not, and may grow
    for name in progress(listed, "Verifying", unit="file"):
        try:
            right = sha256_at(there, name) == checksums[name]
        except FileNotFoundError:
            right = False
        if not right:
            wrong.append(name)
    return wrong


def _refuse_damaged(path: Path, checksums: Mapping[str, str], name: str) -> None:
    """Raise if a file is not what the store lists: it would replace one that is whole there."""
    try:
        sha256 = sha256_of(path / name)
    except OSError as problem:
        raise damaged_file(path, name, f"cannot be read ({problem.strerror})", "pushed") from None
    if checksums.get(name, sha256) != sha256:
        raise damaged_file(path, name, "is not as it was written", "pushed")


def _holds_something_else(where: str, names: Iterable[str]) -> StoreError:
    return StoreError(
        f"{where} holds something else, such as {min(names)}; choose a target of its own"
    )


def _push_to_hub(path: Path, address: str, checksums: Mapping[str, str], names: list[str]) -> int:
    """Put a store into a data set of the Hub, in one commit; gives the number of files sent."""
    repo = parse_hf_address(address, dataset_only=True)[0]
    hub = need("huggingface_hub", extra="remote")
    there = Remote(address)
    if not sys.stderr.isatty():
        need("huggingface_hub.utils", extra="remote").disable_progress_bars()
    api, dataset = hub.HfApi(), {"repo_id": repo, "repo_type": "dataset"}

    def wrong_there() -> list[str]:
        tree = api.list_repo_tree(**dataset, recursive=True)
        files = {file.path: file for file in tree if isinstance(file, hub.RepoFile)}
        if fmt.CHECKSUMS not in files:
            if odd := files.keys() - {".gitattributes"}:
                raise _holds_something_else(address, odd)
            return list(names)
        if there.read(fmt.CHECKSUMS) != (path / fmt.CHECKSUMS).read_bytes():
            raise StoreError(f"{there.where} holds another store; choose another name")
        return [
            name
            for name, sha256 in checksums.items()
            if name not in files
            or sha256 != (files[name].lfs.sha256 if files[name].lfs else sha256_at(there, name))
        ]

    with one_line_errors(address):
        api.create_repo(**dataset, private=True, exist_ok=True)
        wrong = wrong_there()
        for name in wrong:
            _refuse_damaged(path, checksums, name)
        if wrong:
            message = f"{path.name}: {len(names)} files"
            api.upload_folder(
                **dataset, folder_path=path, allow_patterns=names, commit_message=message
            )
            if still := wrong_there():
                raise StoreError(
                    f"{address}: {still[0]} is not what was sent; run: obygaze stores verify {path}"
                )
    return len(wrong)
