"""Putting a final store elsewhere: resumable, verified, and never over something else.

``checksums.json`` comes last: until then there is no store to be read. Whose the files are that
lie there by then, a mark says.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obygaze_features.common.files import sha256_of
from obygaze_features.common.package import need
from obygaze_features.common.progress import Advance, meter, progress
from obygaze_features.common.text import redact_url
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as spec
from obygaze_features.store.exchange.own_files import beside, damaged, own_files
from obygaze_features.store.location import is_url, sha256_at
from obygaze_features.store.places.fsspec_place import FsspecPlace, file_system, in_one_line

__all__ = ["Pushed", "holds_else", "push", "refuse_damaged"]


@dataclass(frozen=True)
class Pushed:
    """A store that lies elsewhere now, every file of it verified there.

    Parameters
    ----------
    where
        Its address.
    files, size
        How many files it has, and their bytes.
    sent
        Files that this run sent; the others were there.
    left_out
        What lies in the store's folder and is no file of the store.
    """

    where: str
    files: int
    size: int
    sent: int
    left_out: tuple[str, ...] = ()


def push(path: Path, target: str | Path) -> Pushed:
    """Put a final store elsewhere; run again, it sends what is lacking or not as it should be.

    Parameters
    ----------
    path
        The store.
    target
        A folder, or a URL such as ``s3://bucket/lab``, which gets the store under its own name;
        ``NAME.zarr``, there or here, to give it another; or ``hf://datasets/OWNER/NAME``, a data
        set of its own. `StoreError` if something else is in its place, `UsageError` if that is
        inside a store.
    """
    (sums, names), where = own_files(path, "pushed"), str(target)
    if where.startswith("hf://"):
        from obygaze_features.store.exchange.hub import push_to_hub

        sent = push_to_hub(path, where, sums, names)
    elif where.startswith(("http://", "https://")):
        raise UsageError(
            f"{where}: over HTTP stores are only read; push to a folder, s3:// or hf://"
        )
    else:
        there = _Target(path, _place_for(path, where))
        where, sent = there.place.where, there.fill(sums)
    size = sum((path / name).stat().st_size for name in names)
    return Pushed(where, len(names), size, sent, beside(path, names))


def refuse_damaged(path: Path, sums: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise on the first of these files that is not what the store lists: it is not sent then.

    What lies elsewhere may be whole, and would be replaced.
    """
    for name in names:
        try:
            have = sha256_of(path / name)
        except OSError as problem:
            why = f"cannot be read ({problem.strerror})"
            raise damaged(path, name, why, "pushed") from None
        if sums.get(name, have) != have:
            raise damaged(path, name, "is not as it was written", "pushed")


def holds_else(where: str, names: Iterable[str]) -> StoreError:
    """The refusal to put a store where something else lies."""
    return StoreError(
        f"{where} holds something else, such as {min(names)}; give the store a place of its own"
    )


def _place_for(path: Path, target: str) -> str:
    """A store's own place: the target, if it is named as one or is one, or in that folder."""
    own = target.rstrip("/") or target
    if not own.endswith(".zarr") and not _is_store(own):
        own = f"{own.rstrip('/')}/{path.resolve().name}"
    if is_url(own):
        bucket, *inner = own.partition("://")[2].split("/")
        scheme = own.partition("://")[0]
        around = ["/".join([f"{scheme}://{bucket}", *inner[:end]]) for end in range(len(inner))]
    elif path.resolve() == Path(own).resolve():
        raise UsageError(f"{own} is the store itself; choose another place")
    else:
        around = [str(folder) for folder in Path(own).resolve().parents]
    for folder in around:
        if _is_store(folder):
            raise UsageError(
                f"{redact_url(own)} is inside the store {redact_url(folder)}; give another place"
            )
    return own


def _is_store(address: str) -> bool:
    """Whether an address is that of a store, or of one that is being pushed."""
    system, root = file_system(address)
    with in_one_line(redact_url(address)), contextlib.suppress(FileNotFoundError, PermissionError):
        return any(system.exists(f"{root}/{name}") for name in (spec.CHECKSUMS, spec.PUSHING))
    return False


class _Target:
    """Where a store is put, on a file system of fsspec's."""

    def __init__(self, path: Path, target: str) -> None:
        self.path, self.place = path, FsspecPlace(target)
        self.system: Any
        self.system, self.root = file_system(target)
        self._made: set[str] = set()
        self.listed = (path / spec.CHECKSUMS).read_bytes()

    def fill(self, sums: dict[str, str]) -> int:
        """Send what is not there; gives the number of files sent."""
        there = self._there()
        published = spec.CHECKSUMS in there
        if not published:
            self._claim(there)
        elif self.place.read(spec.CHECKSUMS) != self.listed:
            raise StoreError(f"{self.place.where} holds another store; choose another place")
        lacking = [name for name in sums if there.get(name) != self._size(name)]
        if (self.path / spec.LOG).exists() and spec.LOG not in there:
            lacking.append(spec.LOG)
        last = []
        if not published:
            # Without the group's own file a half of a store is none to any reader.
            last = ["zarr.json", spec.CHECKSUMS]
            lacking = [name for name in lacking if name != "zarr.json"]
        self._send(sums, lacking)
        again = self._wrong(sums, [name for name in sums if name not in last])
        self._send(sums, again)
        still = self._wrong(sums, again)
        if not still and not published:
            self._claim(self._there())  # it may be another's by now, who began at the same time
            self._send(sums, last)
            still = self._wrong(sums, last[:1])
            with in_one_line(self.place.join(spec.PUSHING)):
                self.system.rm_file(f"{self.root}/{spec.PUSHING}")
        if still:
            raise StoreError(
                f"{self.place.join(still[0])} is not what was sent; run: "
                f"obygaze stores verify {self.path}"
            )
        return len(lacking) + len(again) + len(last)

    def _there(self) -> dict[str, int]:
        """The files that lie there, with their sizes."""
        self.system.invalidate_cache()
        try:
            with in_one_line(self.place.where):
                found = self.system.find(self.root, detail=True)
        except FileNotFoundError:
            return {}
        return {
            name.removeprefix(f"{self.root}/"): int(one["size"] or 0) for name, one in found.items()
        }

    def _claim(self, there: dict[str, int]) -> None:
        """Mark the place as this store's, or find it so marked."""
        ours = hashlib.sha256(self.listed).hexdigest().encode()
        if spec.PUSHING in there:
            if self.place.read(spec.PUSHING) != ours:
                raise StoreError(
                    f"{self.place.where} holds a part of another store that is being pushed; "
                    "choose another place, or remove it"
                )
        elif there:
            raise holds_else(self.place.where, there)
        else:
            try:
                with in_one_line(self.place.join(spec.PUSHING)):
                    self._make_folder(self.root)
                    self.system.pipe_file(f"{self.root}/{spec.PUSHING}", ours)
            except FileNotFoundError:
                bucket = self.root.partition("/")[0] or self.root
                raise StoreError(
                    f"there is no bucket {bucket}, for {self.place.where}; check its name, or make "
                    "it where you make such things: a push makes none"
                ) from None

    def _send(self, sums: Mapping[str, str], names: Sequence[str]) -> None:
        callbacks = need("fsspec.callbacks", extra="remote")
        with meter(sum(map(self._size, names)), "Sending", unit="B") as advance:
            for name in names:
                refuse_damaged(self.path, sums, [name])
                target = f"{self.root}/{name}"
                with in_one_line(self.place.join(name)):
                    self._make_folder(target.rpartition("/")[0])
                    sent = callbacks.Callback(hooks={"bar": _Moving(advance)})
                    self.system.put_file(str(self.path / name), target, callback=sent)
                    sent.absolute_update(self._size(name))  # some say nothing on the way

    def _make_folder(self, path: str) -> None:
        """Make a folder; of a path that begins with a bucket, all but that."""
        if path in self._made:
            return
        self._made.add(path)
        if path.startswith("/") or Path(path).is_absolute():
            self.system.makedirs(path, exist_ok=True)
            return
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            # It may be there, which some file systems say and others do not.
            with contextlib.suppress(FileExistsError):
                self.system.mkdir("/".join(parts[:end]), create_parents=False)

    def _wrong(self, sums: dict[str, str], names: list[str]) -> list[str]:
        """The files that are not there as they should be, by reading them again."""
        wrong = []
        for name in progress(names, "Verifying", unit="file", total=len(names)):
            try:
                have = sha256_at(self.place, name)
            except FileNotFoundError:
                have = None
            if have != sums[name]:
                wrong.append(name)
        return wrong

    def _size(self, name: str) -> int:
        try:
            return (self.path / name).stat().st_size
        except OSError as problem:
            why = f"cannot be read ({problem.strerror})"
            raise damaged(self.path, name, why, "pushed") from None


class _Moving:
    """Moves a bar on as a file system says how much of a file it has sent."""

    def __init__(self, advance: Advance) -> None:
        self.advance, self.before = advance, 0

    def __call__(self, size: int | None, value: int, **_: object) -> None:
        self.advance(value - self.before)
        self.before = value
