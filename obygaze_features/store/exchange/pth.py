"""Features as the paper's authors keep them: a PyTorch file a clip, ``FILM/STEM.pth``.

Such a file can hold any program. It is read as tensors alone, and only in the zip format that
PyTorch writes since version 1.6: for the one before, reading tensors alone was not safe in every
version.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from obygaze_features.common.text import shorten
from obygaze_features.errors import StoreError
from obygaze_features.store.exchange.clip_folders import ClipFolders
from obygaze_features.store.exchange.provenance import Provenance

__all__ = ["pth_folders"]


def pth_folders(folders: Mapping[str, Path], provenance: Provenance) -> ClipFolders:
    """Folders of ``.pth`` files as a source, each of one array.

    Parameters
    ----------
    folders
        Array -> folder. A file holds a tensor, or a dictionary with one under the array's name.
    provenance
        What the features were made with.
    """
    return ClipFolders(folders, ".pth", _load, provenance)


def _load(path: Path, name: str) -> NDArray[Any]:
    import torch

    _check_archive(path)
    try:
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as problem:  # whatever a damaged file makes PyTorch raise
        kind = type(problem).__name__
        if kind == "UnpicklingError":
            raise StoreError("it holds more than tensors, perhaps a program; not read") from None
        raise StoreError(f"it is damaged, or no PyTorch file ({kind})") from None
    if isinstance(held, dict) and name in held:
        held = held[name]
    if isinstance(held, dict):
        keys = ", ".join(shorten(str(key)) for key in list(held)[:3])
        raise StoreError(f"it is a dictionary without {name}; it has {keys or 'nothing'}")
    if not isinstance(held, torch.Tensor) or not _is_plain(held):
        raise StoreError(f"it holds no plain tensor but a {type(held).__name__}")
    # Laid out by strides, a few bytes can pass for any number of rows.
    if held.numel() * held.element_size() > path.stat().st_size:
        raise StoreError("it is said to hold more than the file has")
    if held.dtype == torch.bfloat16:
        held = held.float()
    try:
        values: NDArray[Any] = held.detach().numpy()
    except (TypeError, RuntimeError):
        raise StoreError(
            f"it holds values of the type {held.dtype}, not numbers of a store"
        ) from None
    return values


def _is_plain(tensor: Any) -> bool:
    """Whether the numbers lie in memory one beside the other."""
    import torch

    return (
        tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    )


def _check_archive(path: Path) -> None:
    """Refuse what is not PyTorch's own zip: another format, or a compressed one, a bomb perhaps."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError):
        raise StoreError(
            "it is no PyTorch file, or one of before version 1.6; load it, if you trust it, and "
            "save it again"
        ) from None
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise StoreError("it is compressed, which PyTorch's files are not")
