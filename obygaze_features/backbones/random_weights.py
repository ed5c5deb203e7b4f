"""Checkpoints of random weights: real in form, and trained on nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from obygaze_features.backbones.registry import CARDS
from obygaze_features.common.files import SYNTHETIC, new_folder, write_text
from obygaze_features.common.package import cache_folder
from obygaze_features.errors import OutputExists, UsageError

__all__ = ["RANDOM", "cached", "cached_weights", "write_weights"]

RANDOM = {card.name: card for card in CARDS.values() if card.write}
"""The cards whose checkpoints are written here and downloaded from nowhere."""

GENERATION = 2
"""Raised when what is written changes, so that no older copy is taken from a cache."""


def write_weights(name: str, folder: Path, *, seed: int = 0, overwrite: bool = False) -> None:
    """Write a checkpoint of random weights, in the layout of the published ones.

    Parameters
    ----------
    name
        One of `RANDOM`, for example ``tiny-xclip``.
    folder
        Gets the checkpoint.
    seed
        The same seed gives the same weights.
    overwrite
        Replace an earlier checkpoint of random weights.
    """
    if name not in RANDOM:
        raise UsageError(f"{name!r} has no random weights; the names are: {', '.join(RANDOM)}")
    write = RANDOM[name].write
    assert write
    _write(write, folder, seed=seed, overwrite=overwrite)


def _write(write: Callable[[Path, int], None], folder: Path, *, seed: int, overwrite: bool) -> None:
    with new_folder(folder, overwrite=overwrite, marker=SYNTHETIC, allow_missing=True) as new:
        write_text(new / SYNTHETIC, "Random weights by obygaze features make-weights.\n")
        write(new, seed)
        for path in new.iterdir():
            path.chmod(new.stat().st_mode & 0o666)  # safetensors writes files for their owner only


def cached_weights(name: str) -> Path:
    """The folder of a checkpoint of random weights in the user's cache, written at first use."""
    write = RANDOM[name].write
    assert write
    return cached(name, write)


def cached(name: str, write: Callable[[Path, int], None]) -> Path:
    """The folder in the user's cache of what `write` makes of random numbers, under a name."""
    folder = cache_folder(f"random-weights-{GENERATION}") / name
    if not folder.is_dir():
        # Of several that start at once, one writes it, and the others read that.
        with contextlib.suppress(OutputExists):
            _write(write, folder, seed=0, overwrite=False)
    return folder
