"""Grad-CAM of the cosine of an image and a text, in vision transformers with two towers.

Its activations are those after the first layer norm of the last layer. At the last layer's own
output the gradient of every patch is exactly zero: only the class token goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import TowerNetwork
from obygaze_features.backbones.devices import arithmetic, device_of, enough_memory
from obygaze_features.backbones.finding import find
from obygaze_features.backbones.preprocess import normalise
from obygaze_features.backbones.towers import load_network

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from obygaze_features.backbones.preprocess import Preprocessing

__all__ = ["Seer", "grad_cam", "load_seer"]


@dataclass(frozen=True)
class Seer:
    """Two towers, of which it is known where the one that sees keeps its patches.

    Parameters
    ----------
    name
        For people.
    network
        The towers, as their family loads them.
    grid
        Rows and columns of patches.
    device
        Where they run.
    about
        ``name``, ``revision`` and ``weights_sha256``, for records.
    """

    name: str
    network: TowerNetwork
    grid: tuple[int, int]
    device: str
    about: Mapping[str, Any]

    @property
    def preprocessing(self) -> Preprocessing:
        """How pictures become the input."""
        return self.network.preprocessing

    @property
    def _vision(self) -> Any:
        return self.network.module.vision_model

    @property
    def layer(self) -> Module:
        """What the maps are made of."""
        layer: Module = self._vision.encoder.layers[-1].layer_norm1
        return layer

    @property
    def patches(self) -> slice:
        """Which tokens are patches: behind the class token, before X-CLIP's message."""
        first = int(hasattr(self._vision.embeddings, "class_embedding"))
        return slice(first, first + self.grid[0] * self.grid[1])

    def read(self, texts: Sequence[str]) -> Tensor:
        """The embeddings of texts."""
        import torch

        tokens = {name: one.to(self.device) for name, one in self.network.tokens(texts).items()}
        with torch.no_grad(), arithmetic(torch.device(self.device).type, "float32"):
            return self.network.read(tokens)


def load_seer(spec: str, device: str | None = None) -> Seer:
    """Load two towers for saliency.

    Parameters
    ----------
    spec, device
        As in `load_towers`.
    """
    where, found = device_of(device), find(spec)
    network, about = load_network(found, where, "standard")
    settings: Any = network.module.config
    side = settings.vision_config.image_size // settings.vision_config.patch_size
    return Seer(
        name=found.name,
        network=network,
        grid=(side, side),
        device=where,
        about=about,
    )


def grad_cam(seer: Seer, pictures: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
    """Where each picture is near its text.

    Parameters
    ----------
    seer
        From `load_seer`.
    pictures
        Bytes ``[B,3,h,w]``, as `resize_and_crop` leaves them.
    texts
        Embeddings ``[B,D]``, from `Seer.read`; one for each picture.

    Returns
    -------
    The cosines ``[B]``, and maps ``[B,rows,columns]`` that are nowhere below zero: each channel of
    the activations, weighted by the mean over patches of its gradient, summed.
    """
    import torch
    from torch.nn.functional import cosine_similarity

    kept: list[Tensor] = []

    def keep(layer: Module, given: Any, made: Tensor) -> Tensor:
        # The gradient is wanted back to here, and no memory is taken for what was before.
        kept.append(made.detach().requires_grad_())
        return kept[-1]

    hook = seer.layer.register_forward_hook(keep)
    kind = torch.device(seer.device).type
    try:
        with (
            enough_memory(seer.name, seer.device),
            torch.enable_grad(),
            arithmetic(kind, "float32"),
        ):
            pixels = normalise(pictures.to(seer.device), seer.preprocessing)
            near = cosine_similarity(seer.network.see(pixels), texts.to(seer.device))
            (gradient,) = torch.autograd.grad(near.sum(), kept)
    finally:
        hook.remove()
    weights = gradient[:, seer.patches].mean(1, keepdim=True)
    maps = (kept[0][:, seer.patches] * weights).sum(2).clamp(min=0)
    return near.detach().cpu(), maps.detach().unflatten(1, seer.grid).cpu()
