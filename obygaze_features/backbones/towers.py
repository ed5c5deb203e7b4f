"""Two towers: pictures and texts as points of one space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import TowerNetwork
from obygaze_features.backbones.devices import arithmetic, check_precision, device_of, move
from obygaze_features.backbones.finding import Found, family_of, find, sha256_of, with_tokenizer
from obygaze_features.backbones.registry import FAMILIES
from obygaze_features.errors import UsageError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

    from obygaze_features.backbones.preprocess import Preprocessing

__all__ = ["Towers", "load_network", "load_towers"]


@dataclass(frozen=True)
class Towers:
    """A loaded pair of towers.

    Parameters
    ----------
    name
        The name of their store.
    preprocessing
        How pictures become the input.
    texts
        How texts do: the attributes of the tokenizer.
    longest
        Tokens of a text that are read.
    arrays
        What a store keeps: ``native``, the embedding.
    embed_images
        From normalised pictures ``[B,3,h,w]`` to embeddings ``[B,D]`` in float32, whose length
        is what the network gives.
    embed_texts
        From texts to such embeddings, in the same space.
    count_tokens
        How many tokens each text has, before those beyond `longest` are cut off.
    device
        Where they run.
    about
        ``name``, ``family``, ``revision``, ``weights_sha256`` and ``config``, for the store.
    precision
        The number format in which they compute.
    """

    name: str
    preprocessing: Preprocessing
    texts: Mapping[str, Any]
    longest: int
    arrays: tuple[ArraySpec, ...]
    embed_images: Callable[[Tensor], Tensor]
    embed_texts: Callable[[Sequence[str]], Tensor]
    count_tokens: Callable[[Sequence[str]], list[int]]
    device: str
    about: Mapping[str, Any]
    precision: str = "float32"


def load_towers(
    spec: str, device: str | None = None, *, mode: str = "standard", precision: str = "float32"
) -> Towers:
    """Load a pair of towers.

    Parameters
    ----------
    spec, device, mode, precision
        As in `load_backbone`; the families that read texts are CLIP, OpenCLIP, SigLIP and X-CLIP.
    """
    check_precision(precision)
    where = device_of(device)
    found = find(spec)
    network, about = load_network(found, where, mode)
    return Towers(
        name=found.name,
        preprocessing=network.preprocessing,
        texts=network.tokens.attributes(),
        longest=network.tokens.longest,
        arrays=(ArraySpec("native", (network.dim,), "float32", network.meaning),),
        embed_images=partial(_images, network, precision),
        embed_texts=partial(_texts, network, precision, where),
        count_tokens=network.tokens.count,
        device=where,
        about={**about, "config": dict(network.config)},
        precision=precision,
    )


def load_network(found: Found, device: str, mode: str) -> tuple[TowerNetwork, dict[str, Any]]:
    """The towers of a checkpoint on a device, and what a store records of it, settings apart."""
    family = family_of(found.path)
    if family.towers is None:
        known = ", ".join(one.name for one in FAMILIES if one.towers)
        raise UsageError(
            f"{found.name} is of the family {family.name}, which reads no texts and takes no "
            f"single images; take a backbone of {known}"
        )
    network = family.towers(with_tokenizer(found), mode)
    move(network.module, device, found.name)
    return network, {
        "name": found.backbone,
        "family": family.name,
        "revision": found.revision,
        "weights_sha256": sha256_of(network.weights),
    }


def _images(network: TowerNetwork, precision: str, pixels: Tensor) -> Tensor:
    import torch

    with torch.inference_mode(), arithmetic(pixels.device.type, precision):
        return network.see(pixels).float()


def _texts(network: TowerNetwork, precision: str, device: str, texts: Sequence[str]) -> Tensor:
    import torch

    tokens = {name: one.to(device) for name, one in network.tokens(texts).items()}
    with torch.inference_mode(), arithmetic(torch.device(device).type, precision):
        return network.read(tokens).float()
