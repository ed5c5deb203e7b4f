"""Features in a NumPy file a clip, ``FILM/STEM.npy``. Files that hold objects are not read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError
from obygaze_features.store.exchange.clip_folders import ClipFolders
from obygaze_features.store.exchange.provenance import Provenance

__all__ = ["npy_folders"]


def npy_folders(folders: Mapping[str, Path], provenance: Provenance) -> ClipFolders:
    """Folders of ``.npy`` files as a source, each of one array.

    Parameters
    ----------
    folders
        Array -> folder.
    provenance
        What the features were made with.
    """
    return ClipFolders(folders, ".npy", _load, provenance)


def _load(path: Path, name: str) -> NDArray[Any]:
    try:
        # Mapped, as NumPy then holds the shape that a file claims to its length.
        return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as problem:  # whatever a damaged header makes NumPy raise
        words = " ".join(str(problem).split())
        raise StoreError(f"it is no NumPy file of numbers ({words:.120})") from None
