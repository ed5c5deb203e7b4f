"""What every backbone is to the rest of the software, and what a family of them brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.sampling import Sampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from obygaze_features.backbones.preprocess import Preprocessing
    from obygaze_features.backbones.tokens import Tokens

__all__ = [
    "ON_REQUEST",
    "OPEN_CLIP",
    "SYNTHETIC_WORDS",
    "Backbone",
    "Card",
    "Family",
    "Network",
    "TowerNetwork",
]

ON_REQUEST = frozenset({"tokens"})
"""Arrays that are only kept when they are asked for by name: they are large."""

SYNTHETIC_WORDS = "random weights, trained on nothing"
"""What the configuration of a made-up checkpoint says under ``synthetic``."""


OPEN_CLIP = "open_clip_config.json"
"""The configuration of a checkpoint in OpenCLIP's layout, by which that is known."""


@dataclass(frozen=True)
class Backbone:
    """A loaded backbone.

    Parameters
    ----------
    name
        The name of its store.
    sampling
        Which frames of a clip it takes.
    preprocessing
        How these become its input.
    arrays
        What `forward` gives: those that were chosen.
    forward
        From input ``[B,T,3,h,w]``, and ``[B,T]`` true where there is a frame and not padding, to
        a float32 tensor ``[B, ...]`` for each of `arrays`. Where a frame is missing, its tokens
        are NaN, and nothing else is.
    device
        Where it runs.
    about
        ``name``, ``family``, ``revision``, ``weights_sha256`` and ``config``, for the store.
    precision
        The number format in which it computes.
    """

    name: str
    sampling: Sampling
    preprocessing: Preprocessing
    arrays: tuple[ArraySpec, ...]
    forward: Callable[[Tensor, Tensor], dict[str, Tensor]]
    device: str
    about: Mapping[str, Any]
    precision: str = "float32"


@dataclass(frozen=True)
class Card:
    """A checkpoint that is known by name.

    Parameters
    ----------
    name
        By which it is asked for.
    title
        One line for people.
    sampling
        Which frames of a clip it takes.
    arrays
        Everything that can be kept of it.
    repository
        Where it is published on the Hugging Face hub.
    write
        Writes it into an empty folder, from a seed: the checkpoints of random weights.
    obtain
        How to come by it, where it is neither on the hub nor written here.
    """

    name: str
    title: str
    sampling: Sampling
    arrays: tuple[ArraySpec, ...]
    repository: str | None = None
    write: Callable[[Path, int], None] | None = None
    obtain: str = ""

    @property
    def bytes_a_clip(self) -> int:
        """What a clip takes in a store, of the arrays that are kept unasked."""
        return sum(one.row_bytes for one in self.arrays if one.name not in ON_REQUEST)


@dataclass(frozen=True)
class Network:
    """What a family makes of a checkpoint; `load_backbone` makes a `Backbone` of it.

    Parameters
    ----------
    module
        Holds the weights.
    compute
        From input, presence and the names of the wanted arrays to these (and perhaps others).
    sampling, preprocessing, arrays
        As in `Backbone`; `arrays` are all that there are.
    weights
        The files that were read.
    config
        The checkpoint's own settings.
    """

    module: Module
    compute: Callable[[Tensor, Tensor, frozenset[str]], dict[str, Tensor]]
    sampling: Sampling
    preprocessing: Preprocessing
    arrays: tuple[ArraySpec, ...]
    weights: tuple[Path, ...]
    config: Mapping[str, Any]


@dataclass(frozen=True)
class TowerNetwork:
    """What a family makes of a checkpoint for pictures and texts; `load_towers` makes `Towers`.

    Parameters
    ----------
    module
        Holds the weights.
    see
        From pictures ``[B,3,h,w]`` to embeddings ``[B,D]``.
    read
        From what `tokens` gives to embeddings of the same space.
    tokens
        The tokenizer.
    dim
        Numbers in an embedding.
    meaning
        What an embedding is, in words.
    preprocessing, weights, config
        As in `Network`.
    """

    module: Module
    see: Callable[[Tensor], Tensor]
    read: Callable[[Mapping[str, Tensor]], Tensor]
    tokens: Tokens
    dim: int
    meaning: str
    preprocessing: Preprocessing
    weights: tuple[Path, ...]
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """Checkpoints of one layout.

    Parameters
    ----------
    name
        As recorded in stores.
    model_type
        What ``config.json`` of a checkpoint says; None where there is no such file, and `OPEN_CLIP`
        where there is that one instead.
    cards
        The checkpoints that are known by name.
    load
        From a checkpoint and a mode of preprocessing to its network.
    towers
        The same for single pictures and texts, where a family has towers for both.
    """

    name: str
    model_type: str | None
    cards: tuple[Card, ...]
    load: Callable[[Path, str], Network]
    towers: Callable[[Path, str], TowerNetwork] | None = None
