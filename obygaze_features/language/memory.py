"""A device whose memory does not reach is an error of one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from obygaze_features.errors import BackboneError

__all__ = ["enough_memory"]


@contextlib.contextmanager
def enough_memory(name: str, device: str) -> Iterator[None]:
    """Turn what a full device says into one clear line."""
    from obygaze_features.extraction.forward import is_out_of_memory

    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if not is_out_of_memory(problem):
            raise
        raise BackboneError(
            f"the memory of {device} does not reach for {name}; take another --device"
        ) from None
