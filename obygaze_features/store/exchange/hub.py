"""Putting a final store on the Hugging Face Hub, as a data set of its own.

It gets there in one commit, or not at all. Large files that an interrupted run sent are known to
the Hub, and are not sent again. What lies there in the end is held to the store's checksums by
the hashes that the Hub computed, so that nothing has to be fetched for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from obygaze_features.common.files import sha256_of
from obygaze_features.common.package import need
from obygaze_features.errors import ObygazeError, StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.exchange.push import holds_else, refuse_damaged
from obygaze_features.store.places.hub import parse_address

__all__ = ["push_to_hub"]

OURS_TO_IGNORE = {".gitattributes"}
"""What the Hub itself puts into a new data set."""


def push_to_hub(path: Path, address: str, sums: Mapping[str, str], names: Sequence[str]) -> int:
    """Put a store into a data set of the Hub; gives the number of files sent.

    Parameters
    ----------
    path
        A final store.
    address
        ``hf://datasets/OWNER/NAME``. Where there is none, a private one is made.
    sums, names
        The store's list of checksums, and the names of all its files: nothing else is sent.
    """
    hub = need("huggingface_hub", extra="remote")
    where = parse_address(address, whole=True)
    if need("huggingface_hub.constants", extra="remote").HF_HUB_OFFLINE:
        raise StoreError(f"{address} gets nothing, as HF_HUB_OFFLINE is set; unset it to push")
    if not sys.stderr.isatty():
        need("huggingface_hub.utils", extra="remote").disable_progress_bars()
    api, repo = hub.HfApi(), {"repo_id": where.repo, "repo_type": "dataset"}
    with _in_one_line(address):
        there = _there(hub, api, repo)
        if there is None:
            api.create_repo(**repo, private=True, exist_ok=True)
            there = {}
        sent = 0
        if spec.CHECKSUMS in there:
            if spec.CHECKSUMS in _wrong(path, {}, there):
                raise StoreError(f"{address} holds another store; choose another name")
        elif odd := there.keys() - OURS_TO_IGNORE:
            raise holds_else(address, odd)
        if wrong := _wrong(path, sums, there):
            sent = len(wrong)
            refuse_damaged(path, sums, wrong)
            api.upload_folder(
                **repo,
                folder_path=path,
                allow_patterns=list(names),
                commit_message=f"{path.name}: {len(names)} files",
            )
            there = _there(hub, api, repo) or {}
        if wrong := _wrong(path, sums, there):
            raise StoreError(
                f"{address}: {wrong[0]} is not what was sent; run: obygaze stores verify {path}"
            )
    return sent


def _there(hub: Any, api: Any, repo: Mapping[str, str]) -> dict[str, Any] | None:
    """The data set's files by name; None if there is no such data set."""
    try:
        tree = list(api.list_repo_tree(**repo, recursive=True))
    except hub.errors.RepositoryNotFoundError:
        return None
    except hub.errors.EntryNotFoundError:
        return {}
    return {one.path: one for one in tree if isinstance(one, hub.RepoFile)}


def _wrong(path: Path, sums: Mapping[str, str], there: Mapping[str, Any]) -> list[str]:
    """The files of which the Hub has none, or another."""
    expected = {**sums, spec.CHECKSUMS: sha256_of(path / spec.CHECKSUMS)}
    return [
        name
        for name, sha256 in expected.items()
        if not _is_same(path / name, sha256, there.get(name))
    ]


def _is_same(file: Path, sha256: str, have: Any) -> bool:
    """Whether the Hub has this file: of large ones it keeps the SHA-256, of others git's hash."""
    if have is None:
        return False
    if have.lfs is not None:
        return bool(have.lfs.sha256 == sha256)
    data = file.read_bytes()
    git = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
    whole = hashlib.sha256(data).hexdigest() == sha256
    return whole and bool(have.blob_id == git.hexdigest())


@contextlib.contextmanager
def _in_one_line(address: str) -> Iterator[None]:
    """What the Hub's client raises, in one line."""
    try:
        yield
    except ObygazeError:
        raise
    except Exception as problem:  # its own errors, its HTTP library's, and the system's
        why = " ".join(str(problem).split()) or type(problem).__name__
        advice = "log in with: hf auth login" if "401" in why or "403" in why else "run it again"
        raise StoreError(f"{address}: {why:.300}; {advice}") from None
