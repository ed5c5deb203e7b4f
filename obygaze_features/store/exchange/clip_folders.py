"""Folders with a file a clip, ``FILM/STEM.pth`` or ``FILM/STEM.npy``: what the two share.

Files are found by the rule by which media are: in the film's folder or beside it, by the stem of
the clip's media; for spans of a longer film, and where nothing is found, by the id.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.media import MediaFolder, expected_stem
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.exchange.incoming import as_stored, fit, in_words
from obygaze_features.store.exchange.provenance import Provenance
from obygaze_features.store.format import ArraySpec, Status

__all__ = ["ClipFolders", "Load"]

Load = Callable[[Path, str], NDArray[Any]]
"""Reads what a file has for an array; `StoreError` saying why it cannot be read."""

Kind = tuple[tuple[int, ...], str]
"""The shape and type of a clip's numbers."""

LOOKED_AT = 51
"""Files that are read, from all over the manifest, to see what most of them have."""
_HEAD = 1 << 20


@dataclass(frozen=True)
class ClipFolders:
    """A source of features: for each array a folder with a file a clip.

    Parameters
    ----------
    folders
        Array -> its folder.
    suffix
        Of the files.
    load
        Reads one.
    provenance
        What the features were made with.
    """

    folders: Mapping[str, Path]
    suffix: str
    load: Load
    provenance: Provenance
    probe: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    _listed: dict[str, MediaFolder] = field(default_factory=dict, init=False, repr=False)
    _owners: dict[str, dict[Path, Item]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, folder in self.folders.items():
            if not folder.is_dir():
                raise UsageError(f"{folder} is not a folder of {self.suffix} files")
            self._listed[name] = MediaFolder(folder, {self.suffix})

    @property
    def words(self) -> str:
        """What it is, for the store's log."""
        return ", ".join(f"{name}={folder}" for name, folder in self.folders.items())

    def look(self, manifest: Manifest) -> tuple[str, ...]:
        """Whose each file is: the first item's that could mean it, in whatever order rows come."""
        for name in self.folders:
            owners = self._owners[name] = {}
            for item in manifest:
                if len(files := self._candidates(name, item)) == 1:
                    owners.setdefault(files[0], item)
        return tuple(self.folders)

    def arrays(self, manifest: Manifest) -> tuple[ArraySpec, ...]:
        """One array a folder, of the shape and type that most of its files have."""
        return tuple(self._array(name, manifest) for name in self.folders)

    def row(self, item: Item, arrays: Mapping[str, ArraySpec]) -> Done | Failed | None:
        """What the files of an item hold, or why it cannot be had."""
        values, sources = {}, []
        for name, one in arrays.items():
            files = self._candidates(name, item)
            if len(files) != 1:
                return Failed(Status.MISSING, self._missing(name, item, files))
            owner = self._owners[name].get(files[0], item)
            if owner.id != item.id:
                return Failed(Status.MISSING, self._taken(name, item, files[0], owner))
            try:
                values[name] = fit(self._read(name, files[0]), one)
                sources.append(_fingerprint(files[0]))
            except StoreError as problem:
                return Failed(Status.UNREADABLE, f"{self._short(name, files[0])}: {problem}")
        return Done(values, "; ".join(sources))

    def _array(self, name: str, manifest: Manifest) -> ArraySpec:
        found = [files[0] for one in manifest if len(files := self._candidates(name, one)) == 1]
        if not found:
            first = self._missing(name, manifest.items[0], [])
            raise StoreError(
                f"none of the {len(manifest)} items of {manifest.name} is there: {first}"
                f"{self._other_kind(name)}"
            )
        examples = self._kinds(name, found)
        counts = Counter({kind: len(files) for kind, files in examples.items()})
        (shape, dtype), most = counts.most_common(1)[0]
        if 2 * most <= counts.total():
            both = " and ".join(
                f"{self._short(name, examples[kind][0])} holds {in_words(*kind)}"
                for kind, _ in counts.most_common(2)
            )
            raise StoreError(
                f"{both}, and most files of {self.folders[name].name} are not alike; the array of "
                "a store has one shape and type a clip, so take out what does not belong to it"
            )
        return ArraySpec(name, shape, dtype, f"imported from {self.suffix} files")

    def _other_kind(self, name: str) -> str:
        """The import that is meant, where a folder has files of the other kind."""
        other = next(one for one in (".pth", ".npy") if one != self.suffix)
        if next(self.folders[name].rglob(f"*{other}"), None) is None:
            return ""
        return f"; it has {other} files: did you mean obygaze stores import {other[1:]}?"

    def _kinds(self, name: str, found: Sequence[Path]) -> dict[Kind, list[Path]]:
        """Shape and type -> some of the files that have it, the rest only if those are no good."""
        kinds: dict[Kind, list[Path]] = {}
        why, step = None, -(-len(found) // LOOKED_AT)
        rest = (file for place, file in enumerate(found) if place % step)
        for number, file in enumerate((*found[::step], *rest)):
            if number >= LOOKED_AT and kinds:
                break
            try:
                values = self._read(name, file)
            except StoreError as problem:
                why = why or f"{self._short(name, file)}: {problem}"
            else:
                kinds.setdefault((values.shape, str(values.dtype)), []).append(file)
        if not kinds:
            raise StoreError(f"{self.folders[name]}: not one file can be read; {why}")
        return kinds

    def _read(self, name: str, file: Path) -> NDArray[Any]:
        """The numbers of a clip, without the batch of one that many keep around it."""
        if not file.is_file():
            raise StoreError("it is not a plain file")
        try:
            values = self.load(file, name)
            if values.nbytes > file.stat().st_size:
                raise StoreError("it is said to hold more than the file has")
        except OSError as problem:
            raise StoreError(f"it cannot be read ({problem.strerror or problem})") from None
        if values.ndim > 1 and values.shape[0] == 1:
            values = values[0]
        if not values.ndim or not values.size:
            raise StoreError("it holds no row of numbers")
        return np.array(as_stored(values))  # a copy: the file may change

    def _candidates(self, name: str, item: Item) -> list[Path]:
        by_id = replace(item, media=f"{item.id}{self.suffix}")
        files = [] if item.start is not None else self._listed[name].candidates(item)
        return files or self._listed[name].candidates(by_id)

    def _missing(self, name: str, item: Item, files: list[Path]) -> str:
        if files:
            return f"both {' and '.join(self._short(name, file) for file in files)} could be meant"
        stem = (expected_stem(item) if item.start is None else "") or item.id
        film = f"{item.film}/" if item.film else ""
        return f"no {film}{stem}{self.suffix} in {self.folders[name].name}"

    def _taken(self, name: str, item: Item, file: Path, owner: Item) -> str:
        if item.film and item.film.casefold() != owner.film.casefold():
            remedy = f"put it in {item.film}/"
        else:
            remedy = f"name each by its id: {owner.id}{self.suffix}, {item.id}{self.suffix}"
        return f"{self._short(name, file)} was taken by {owner.id} too; {remedy}"

    def _short(self, name: str, file: Path) -> str:
        return file.relative_to(self.folders[name].parent).as_posix()


def _fingerprint(file: Path) -> str:
    """As of a film clip: its size, and the SHA-256 of its first MiB."""
    with file.open("rb") as opened:
        head = hashlib.sha256(opened.read(_HEAD)).hexdigest()
    return f"bytes={file.stat().st_size} head={head}"
