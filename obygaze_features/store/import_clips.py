"""Features in folders with a file a clip: ``FILM/STEM.pth`` or ``FILM/STEM.npy``.

Files are found by the rule by which media are: in the film's folder or beside it, by the stem of
the clip's media; for spans of a longer film, and where nothing is found, by the id.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import shorten
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.media import MediaFolder, expected_stem
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.format import ArraySpec, Status
from obygaze_features.store.import_rows import check_row, describe_shape, to_storable
from obygaze_features.store.provenance import Provenance

MAX_SAMPLED = 51
"""Files that are read, from all over the manifest, to see what most of them have."""
_HEAD_BYTES = 1 << 20


@dataclass(frozen=True)
class ClipFolders:
    """A source of features: for each array a folder with a file a clip.

    Parameters
    ----------
    folders
        Array -> its folder.
    suffix
        ``.pth`` or ``.npy``.
    provenance
        How the features were made.
    """

    folders: Mapping[str, Path]
    suffix: str
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
    def description(self) -> str:
        """For the store's log."""
        return ", ".join(f"{name}={folder}" for name, folder in self.folders.items())

    def match(self, manifest: Manifest) -> tuple[str, ...]:
        """Find whose each file is: the first item's that it may be of. Gives the arrays' names."""
        for name in self.folders:
            owners = self._owners[name] = {}
            for item in manifest:
                if len(files := self._candidates(name, item)) == 1:
                    owners.setdefault(files[0], item)
        return tuple(self.folders)

    def arrays(self, manifest: Manifest) -> tuple[ArraySpec, ...]:
        """One array per folder, of the shape and type that most of its files have."""
        return tuple(self._array(name, manifest) for name in self.folders)

    def row(self, item: Item, arrays: Mapping[str, ArraySpec]) -> Done | Failed:
        """What the files of an item hold, or why it cannot be read."""
        values, sources = {}, []
        for name, array in arrays.items():
            files = self._candidates(name, item)
            if len(files) != 1:
                return Failed(Status.MISSING, self._describe_missing(name, item, files))
            owner = self._owners[name].get(files[0], item)
            if owner.id != item.id:
                return Failed(Status.MISSING, self._describe_taken(name, item, files[0], owner))
            try:
                values[name] = check_row(self._read(name, files[0]), array)
                with files[0].open("rb") as file:
                    head = hashlib.sha256(file.read(_HEAD_BYTES)).hexdigest()
                sources.append(f"bytes={files[0].stat().st_size} head={head}")
            except StoreError as problem:
                return Failed(Status.UNREADABLE, f"{self._short(name, files[0])}: {problem}")
        return Done(values, "; ".join(sources))

    def _array(self, name: str, manifest: Manifest) -> ArraySpec:
        files = [
            candidates[0]
            for item in manifest
            if len(candidates := self._candidates(name, item)) == 1
        ]
        if not files:
            first = self._describe_missing(name, manifest.items[0], [])
            other_suffix = ".npy" if self.suffix == ".pth" else ".pth"
            hint = ""
            if next(self.folders[name].rglob(f"*{other_suffix}"), None) is not None:
                command = f"obygaze stores import {other_suffix[1:]}"
                hint = f"; it has {other_suffix} files: did you mean {command}?"
            raise StoreError(
                f"none of the {len(manifest)} items of {manifest.name} is there: {first}{hint}"
            )
        examples = self._sample(name, files)
        counts = Counter({kind: len(alike) for kind, alike in examples.items()})
        (shape, dtype), largest = counts.most_common(1)[0]
        if 2 * largest <= counts.total():
            pair = " and ".join(
                f"{self._short(name, examples[kind][0])} holds {describe_shape(*kind)}"
                for kind, _ in counts.most_common(2)
            )
            raise StoreError(
                f"{pair}, and most files of {self.folders[name].name} are not alike; an array of "
                "a store has one shape and type a clip, so remove the files that do not belong"
            )
        return ArraySpec(name, shape, dtype, f"imported from {self.suffix} files")

    def _sample(
        self, name: str, files: Sequence[Path]
    ) -> dict[tuple[tuple[int, ...], str], list[Path]]:
        """Shape and type -> some of the files that have it; all are tried if none can be read."""
        kinds: dict[tuple[tuple[int, ...], str], list[Path]] = {}
        reason, step = "", -(-len(files) // MAX_SAMPLED)
        rest = (file for number, file in enumerate(files) if number % step)
        for number, file in enumerate((*files[::step], *rest)):
            if number >= MAX_SAMPLED and kinds:
                break
            try:
                values = self._read(name, file)
            except StoreError as problem:
                reason = reason or f"{self._short(name, file)}: {problem}"
            else:
                kinds.setdefault((values.shape, str(values.dtype)), []).append(file)
        if not kinds:
            raise StoreError(f"{self.folders[name]}: no file can be read; {reason}")
        return kinds

    def _read(self, name: str, file: Path) -> NDArray[Any]:
        """The numbers of a clip, without a batch of one around them."""
        if not file.is_file():
            raise StoreError("it is not a plain file")
        try:
            values = _load_pth(file, name) if self.suffix == ".pth" else _load_npy(file)
            if self.suffix != ".pth" and values.nbytes > file.stat().st_size:
                raise StoreError("it claims to hold more than the file has")
        except OSError as problem:
            raise StoreError(f"it cannot be read ({problem.strerror or problem})") from None
        if values.ndim > 1 and values.shape[0] == 1:
            values = values[0]
        if not values.ndim or not values.size:
            raise StoreError("it holds no row of numbers")
        return np.array(to_storable(values))  # a copy: the file may change

    def _candidates(self, name: str, item: Item) -> list[Path]:
        by_id = replace(item, media=f"{item.id}{self.suffix}")
        files = [] if item.start is not None else self._listed[name].candidates(item)
        return files or self._listed[name].candidates(by_id)

    def _describe_missing(self, name: str, item: Item, files: list[Path]) -> str:
        if files:
            pair = " and ".join(self._short(name, file) for file in files)
            return f"both {pair} may be meant"
        stem = (expected_stem(item) if item.start is None else "") or item.id
        film = f"{item.film}/" if item.film else ""
        return f"no {film}{stem}{self.suffix} in {self.folders[name].name}"

    def _describe_taken(self, name: str, item: Item, file: Path, owner: Item) -> str:
        if item.film and item.film.casefold() != owner.film.casefold():
            remedy = f"put it in {item.film}/"
        else:
            remedy = f"name each by its id: {owner.id}{self.suffix}, {item.id}{self.suffix}"
        return f"{self._short(name, file)} was taken by {owner.id} too; {remedy}"

    def _short(self, name: str, file: Path) -> str:
        return file.relative_to(self.folders[name].parent).as_posix()


def _load_npy(path: Path) -> NDArray[Any]:
    try:
        # Mapped: NumPy then compares the shape that a file claims with its length.
        return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as problem:  # whatever a damaged header makes NumPy raise
        words = " ".join(str(problem).split())
        raise StoreError(f"it is not a NumPy file of numbers ({words:.120})") from None


def _load_pth(path: Path, name: str) -> NDArray[Any]:
    """The tensor of a PyTorch file, which can hold any program: it is read as tensors alone.

    Only the zip format that PyTorch writes since version 1.6 is read: for the one before, reading
    tensors alone was not safe in every version.
    """
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError):
        raise StoreError(
            "it is not a PyTorch file, or one of before version 1.6; load it, if you trust it, and "
            "save it again"
        ) from None
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise StoreError("it is compressed, which PyTorch's files are not")
    try:
        tensor = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as problem:  # whatever a damaged file makes PyTorch raise
        kind = type(problem).__name__
        if kind == "UnpicklingError":
            raise StoreError("it holds more than tensors, perhaps a program; not read") from None
        raise StoreError(f"it is damaged, or not a PyTorch file ({kind})") from None
    if isinstance(tensor, dict) and name in tensor:
        tensor = tensor[name]
    if isinstance(tensor, dict):
        keys = ", ".join(shorten(str(key)) for key in list(tensor)[:3])
        raise StoreError(f"it is a dictionary without {name}; it has {keys or 'nothing'}")
    if (
        not isinstance(tensor, torch.Tensor)
        or (tensor.layout, tensor.device.type) != (torch.strided, "cpu")
        or tensor.is_quantized
    ):
        raise StoreError(f"it holds no plain tensor but a {type(tensor).__name__}")
    # Laid out by strides, a few bytes can pass for any number of rows.
    if tensor.numel() * tensor.element_size() > path.stat().st_size:
        raise StoreError("it claims to hold more than the file has")
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    try:
        values: NDArray[Any] = tensor.detach().numpy()
    except (TypeError, RuntimeError):
        raise StoreError(
            f"it holds values of the type {tensor.dtype}, which a store cannot hold"
        ) from None
    return values
