"""Features in folders with a file a clip: ``FILM/STEM.pth`` or ``FILM/STEM.npy``.

Files are found by the rule by which media are: in the film's folder or beside it, by the stem of
the clip's media; for spans of a longer film, and where nothing is found, by the id.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import shorten
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.media import MediaFolder, expected_stem
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.format import ArraySpec, Recipe, Status
from obygaze_features.store.import_rows import check_row, describe_shape, map_npy, to_storable

MAX_SAMPLED = 51
"""Files that are read, from all over the manifest, to see what most of them have."""
_HEAD_BYTES = 1 << 20


class ClipFolders:
    """A source of features: for each array a folder with a file a clip."""

    recipe: Recipe | None = None
    probe: Mapping[str, NDArray[Any]] = {}

    def __init__(self, folders: Mapping[str, Path], suffix: str, manifest: Manifest) -> None:
        self.folders = {
            name: ClipFolder(name, folder, suffix, manifest) for name, folder in folders.items()
        }

    @property
    def description(self) -> str:
        """For the store's log."""
        return ", ".join(f"{name}={folder.path}" for name, folder in self.folders.items())

    def arrays(self, manifest: Manifest) -> tuple[ArraySpec, ...]:
        """One array per folder, of the shape and type that most of its files have."""
        return tuple(folder.spec(manifest) for folder in self.folders.values())

    def row(self, item: Item, arrays: Mapping[str, ArraySpec]) -> Done | Failed:
        """What the files of an item hold, or why it cannot be read."""
        values, sources = {}, []
        for name, array in arrays.items():
            folder = self.folders[name]
            try:
                file = folder.find(item)
            except StoreError as problem:
                return Failed(Status.MISSING, str(problem))
            try:
                values[name] = check_row(folder.read(file), array)
                with file.open("rb") as opened:
                    head = hashlib.sha256(opened.read(_HEAD_BYTES)).hexdigest()
                sources.append(f"bytes={file.stat().st_size} head={head}")
            except StoreError as problem:
                return Failed(Status.UNREADABLE, f"{folder.short(file)}: {problem}")
        return Done(values, "; ".join(sources))


class ClipFolder:
    """The files of one array; a file that several items may mean is the first one's."""

    def __init__(self, name: str, path: Path, suffix: str, manifest: Manifest) -> None:
        if not path.is_dir():
            raise UsageError(f"{path} is not a folder of {suffix} files")
        self.name, self.path, self.suffix = name, path, suffix
        self._files = MediaFolder(path, {suffix})
        self._owners: dict[Path, Item] = {}
        for item in manifest:
            if len(files := self._candidates(item)) == 1:
                self._owners.setdefault(files[0], item)

    def spec(self, manifest: Manifest) -> ArraySpec:
        """The array, of the shape and type that most files have, by a sample of them."""
        if not (files := list(self._owners)):
            raise StoreError(
                f"none of the {len(manifest)} items of {manifest.name} is there: "
                f"{self._describe_missing(manifest.items[0])}"
            )
        examples: dict[tuple[tuple[int, ...], str], list[Path]] = {}
        reason, sample = "", files[:: -(-len(files) // MAX_SAMPLED)]
        for file in sample:
            try:
                values = self.read(file)
            except StoreError as problem:
                reason = reason or f"{self.short(file)}: {problem}"
            else:
                examples.setdefault((values.shape, str(values.dtype)), []).append(file)
        if not examples:
            raise StoreError(f"{self.path}: none of {len(sample)} files can be read; {reason}")
        ranked = sorted(examples.items(), key=lambda example: -len(example[1]))
        (shape, dtype), alike = ranked[0]
        if 2 * len(alike) <= sum(map(len, examples.values())):
            pair = " and ".join(
                f"{self.short(paths[0])} holds {describe_shape(*kind)}"
                for kind, paths in ranked[:2]
            )
            raise StoreError(
                f"{pair}, and most files of {self.path.name} are not alike; an array of "
                "a store has one shape and type a clip, so remove the files that do not belong"
            )
        return ArraySpec(self.name, shape, dtype, f"imported from {self.suffix} files")

    def find(self, item: Item) -> Path:
        """The file of an item; `StoreError` if there is none, or not one alone."""
        files = self._candidates(item)
        if not files:
            raise StoreError(self._describe_missing(item))
        if len(files) > 1:
            raise StoreError(f"both {' and '.join(map(self.short, files))} may be meant")
        owner = self._owners.get(files[0], item)
        if owner.id == item.id:
            return files[0]
        remedy = f"name each by its id: {owner.id}{self.suffix}, {item.id}{self.suffix}"
        if item.film and item.film.casefold() != owner.film.casefold():
            remedy = f"put it in {item.film}/"
        raise StoreError(f"{self.short(files[0])} was taken by {owner.id} too; {remedy}")

    def read(self, file: Path) -> NDArray[Any]:
        """The numbers of a clip, without a batch of one around them."""
        if not file.is_file():
            raise StoreError("it is not a plain file")
        try:
            values = _load_pth(file, self.name) if self.suffix == ".pth" else map_npy(file)
        except StoreError:
            raise
        except OSError as problem:
            raise StoreError(f"it cannot be read ({problem.strerror or problem})") from None
        except Exception as problem:  # whatever a damaged header makes NumPy raise
            words = " ".join(str(problem).split())
            raise StoreError(f"it is not a NumPy file of numbers ({words:.120})") from None
        if values.ndim > 1 and values.shape[0] == 1:
            values = values[0]
        if not values.ndim or not values.size:
            raise StoreError("it holds no row of numbers")
        return np.array(to_storable(values))  # a copy: the file may change

    def short(self, file: Path) -> str:
        """A file's path from beside the folder."""
        return file.relative_to(self.path.parent).as_posix()

    def _candidates(self, item: Item) -> list[Path]:
        by_id = replace(item, media=f"{item.id}{self.suffix}")
        files = [] if item.start is not None else self._files.candidates(item)
        return files or self._files.candidates(by_id)

    def _describe_missing(self, item: Item) -> str:
        stem = (expected_stem(item) if item.start is None else "") or item.id
        film = f"{item.film}/" if item.film else ""
        return f"no {film}{stem}{self.suffix} in {self.path.name}"


def _load_pth(path: Path, name: str) -> NDArray[Any]:
    """The tensor of a PyTorch file, which can hold any program: it is read as tensors alone.

    Only the zip format that PyTorch writes since version 1.6 is read: for the one before, reading
    tensors alone was not safe in every version.
    """
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            is_compressed = any(info.compress_type for info in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError):
        raise StoreError(
            "it is not a PyTorch file, or one of before version 1.6; load it, if you trust it, and "
            "save it again"
        ) from None
    if is_compressed:
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
