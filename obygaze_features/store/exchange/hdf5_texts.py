"""Texts in an HDF5 file, read in bounded memory, as a small file can claim any number of bytes.

A text of any length is a pointer in its dataset, with the length, and the text elsewhere. Many
pointers may lead to the same long text, so what counts is the sum of the lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from obygaze_features.errors import StoreError

__all__ = ["MOST", "read_texts"]

MOST = 2**28
"""Bytes that the texts of a dataset may take, and so may the pointers to them."""


def read_texts(file: Path, dataset: Any) -> list[bytes]:
    """The texts of a dataset, which may be a single one; `StoreError` if they are too large.

    Parameters
    ----------
    file
        Where the dataset lies.
    dataset
        Of texts, by h5py.
    """
    import h5py

    if dataset.nbytes > MOST:
        raise _too_large()
    if h5py.check_string_dtype(dataset.dtype).length is None:
        raw = _pointers(file, dataset)
        if raw is None:
            return _one_by_one(dataset)
        size = 8 + dataset.file.id.get_create_plist().get_sizes()[0]
        lengths = (part[at : at + 4] for part in raw for at in range(0, len(part), size))
        if sum(int.from_bytes(one, "little") for one in lengths) > MOST:
            raise _too_large()
    held = dataset[()]
    return held.tolist() if dataset.ndim else [held]


def _pointers(file: Path, dataset: Any) -> Iterator[bytes] | None:
    """The pointers as they lie in the file; None where they are compressed, or in a header."""
    import h5py

    about = dataset.id.get_create_plist()
    if dataset.id.get_storage_size() == 0:
        return iter(())
    if about.get_nfilters() or about.get_layout() == h5py.h5d.COMPACT:
        return None
    if not dataset.chunks:
        with file.open("rb") as opened:
            opened.seek(dataset.id.get_offset())
            return iter([opened.read(dataset.id.get_storage_size())])
    places = (
        dataset.id.get_chunk_info(one).chunk_offset for one in range(dataset.id.get_num_chunks())
    )
    return (dataset.id.read_direct_chunk(place)[1] for place in places)


def _one_by_one(dataset: Any) -> list[bytes]:
    """Texts read one after another, up to a limit: slower, and a single one may take 4 GiB."""
    texts, size = [], 0
    for row in range(dataset.size):
        text = dataset[row] if dataset.ndim else dataset[()]
        size += len(text)
        if size > MOST:
            raise _too_large()
        texts.append(text)
    return texts


def _too_large() -> StoreError:
    return StoreError(f"it would take more than {MOST >> 20} MiB")
