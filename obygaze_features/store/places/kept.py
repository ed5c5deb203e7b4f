"""What was read from elsewhere, kept on this machine and held to the store's own checksums.

What is kept goes by the store's address and its ``checksums.json``, so that of a store that was
changed nothing old is ever read. Only what is listed there is kept: in an open store blocks come
and go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from obygaze_features.common.files import parse_json
from obygaze_features.common.lru import Lru, size_limit
from obygaze_features.common.package import cache_folder
from obygaze_features.errors import StoreError
from obygaze_features.store.format import CHECKSUMS
from obygaze_features.store.location import Location, MappedFile, Span
from obygaze_features.store.metadata import without_consolidated
from obygaze_features.store.shards import CHECKSUM_BYTES, checksum

__all__ = ["Kept", "keep"]


class Kept:
    """A place of which what was read is kept."""

    is_local = False

    def __init__(self, place: Location, listed: bytes, sums: Mapping[str, str], kept: Lru) -> None:
        self.place, self.listed, self.sums, self.kept = place, listed, sums, kept
        self._key = f"{place.where} {hashlib.sha256(listed).hexdigest()}"

    @property
    def address(self) -> str | Path:
        """The place's address."""
        return self.place.address

    @property
    def where(self) -> str:
        """The place's address for people."""
        return self.place.where

    def join(self, name: str) -> str:
        """A file's address."""
        return self.place.join(name)

    def read(self, name: str) -> bytes:
        """A whole file; `StoreError` if it is not as ``checksums.json`` says."""
        if name == CHECKSUMS:
            return self.listed
        sha256, key = self.sums.get(name), f"{self._key} {name}"
        if sha256 is None:
            return self.place.read(name)
        data = self.kept.get(key)
        if data is None or hashlib.sha256(data).hexdigest() != sha256:
            data = self.place.read(name)
            if name == "zarr.json":
                data = without_consolidated(data, sha256) or data
            if hashlib.sha256(data).hexdigest() != sha256:
                self.refuse_if_changed()
                raise StoreError(
                    f"{self.join(name)} is not as it was written; tell whoever offers the store, "
                    "for whom this may mend it: obygaze stores repair"
                )
            self.kept.put(key, data)
        return data

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Some bytes of a file."""

        def fetch(spans: Sequence[Span]) -> list[bytes]:
            return [self.place.read_part(name, *span) for span in spans]

        return self._parts(name, [(start, length)], fetch)[0]

    def read_parts(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Several parts of a file."""
        return self._parts(name, spans, lambda lacking: self.place.read_parts(name, lacking))

    def stream(self, name: str, start: int = 0) -> Iterator[bytes]:
        """A file from `start` on, which is not kept."""
        return self.place.stream(name, start)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return self.place.size(name)

    def map(self, name: str) -> MappedFile | None:
        """Nothing, as what is on this machine is not kept a second time."""
        return self.place.map(name)

    def lacking(self) -> str | None:
        """What the place itself says."""
        return self.place.lacking()

    def refuse_if_changed(self) -> None:
        """Raise if another store lies there by now, or none."""
        try:
            now = self.place.read(CHECKSUMS)
        except FileNotFoundError:
            raise StoreError(f"{self.where} is not there any more; it was moved, maybe") from None
        if now != self.listed:
            raise StoreError(f"{self.where} was changed since it was opened; open it again")

    def _parts(
        self, name: str, spans: Sequence[Span], fetch: Callable[[Sequence[Span]], list[bytes]]
    ) -> list[bytes]:
        """Parts of a shard, each of which ends in its CRC: what fails that is not kept."""
        if name not in self.sums:
            return fetch(spans)
        keys = {span: f"{self._key} {name} {span[0]} {span[1]}" for span in spans}
        found: dict[Span, bytes] = {}
        for span, key in keys.items():
            data = self.kept.get(key)
            if data is not None and _is_whole(data):
                found[span] = data
        lacking = [span for span in keys if span not in found]
        for span, data in zip(lacking, fetch(lacking) if lacking else [], strict=True):
            found[span] = data
            if _is_whole(data):
                self.kept.put(keys[span], data)
        return [found[span] for span in spans]


def _is_whole(data: bytes) -> bool:
    return checksum(data[:-CHECKSUM_BYTES]) == data[-CHECKSUM_BYTES:]


def keep(place: Location) -> Location:
    """A place of which what is read is kept; itself where the store has no list of checksums."""
    try:
        listed = place.read(CHECKSUMS)
    except FileNotFoundError:
        return place
    sums = parse_json(listed, place.join(CHECKSUMS), StoreError)
    if not isinstance(sums, dict):
        raise StoreError(f"{place.join(CHECKSUMS)} is not a list of checksums")
    return Kept(place, listed, sums, Lru(cache_folder("stores"), size_limit()))
