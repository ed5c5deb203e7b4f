"""What every backbone is to the rest of the software."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

    from obygaze_features.preprocess import Preprocessing

__all__ = ["Backbone", "Card"]


@dataclass(frozen=True)
class Backbone:
    """A loaded backbone.

    Parameters
    ----------
    name
        The name of its store.
    frames
        How many frames of a clip it takes.
    preprocessing
        How these become its input.
    arrays
        What `forward` gives.
    forward
        From input ``[B,T,3,h,w]`` to a float32 tensor ``[B, ...]`` for each of `arrays`.
    device
        Where it runs.
    about
        ``name``, ``revision``, ``weights_sha256`` and ``config``, for the store.
    precision
        The number format in which it computes.
    """

    name: str
    frames: int
    preprocessing: Preprocessing
    arrays: tuple[ArraySpec, ...]
    forward: Callable[[Tensor], dict[str, Tensor]]
    device: str
    about: Mapping[str, Any]
    precision: str = "float32"


@dataclass(frozen=True)
class Card:
    """A family of backbones, as the registry lists it.

    Parameters
    ----------
    name
        Short name; the published checkpoint is loaded by it.
    title
        One line for people.
    model_type
        What ``config.json`` of a checkpoint says, by which a folder's family is known.
    checkpoint
        The published checkpoint on the Hugging Face hub.
    arrays
        What the published checkpoint gives.
    load
        From a checkpoint's folder, a name, a revision and a device to a `Backbone`.
    """

    name: str
    title: str
    model_type: str
    checkpoint: str
    arrays: tuple[ArraySpec, ...]
    load: Callable[[Path, str, str | None, str], Backbone]
