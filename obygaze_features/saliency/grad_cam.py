"""Grad-CAM of the cosine of an image and a text, in vision transformers with two towers.

Its activations are the output of the first layer norm of the last layer. At the last layer's own
output the gradient of every patch is exactly zero, because only the class token is used after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.backbones.devices import arithmetic, explain_out_of_memory
from obygaze_features.backbones.preprocess import normalise

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


@dataclass(frozen=True)
class GradCamModel:
    """A backbone that embeds images and texts, and its rows and columns of patches."""

    backbone: Backbone
    grid: tuple[int, int]

    @property
    def layer(self) -> Module:
        """The layer whose output the maps explain."""
        layer: Module = self._vision.encoder.layers[-1].layer_norm1
        return layer

    @property
    def patches(self) -> slice:
        """The tokens that are patches: after the class token, before X-CLIP's message token."""
        first = int(hasattr(self._vision.embeddings, "class_embedding"))
        return slice(first, first + self.grid[0] * self.grid[1])

    @property
    def _vision(self) -> Any:
        return self.backbone.module["vision"]

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Return the embeddings of texts."""
        return self.backbone.embed_texts(texts).clone()  # autograd refuses inference tensors


def load_grad_cam_model(spec: str | Path, device: str | None = None) -> GradCamModel:
    """Load a backbone for saliency, as `load_backbone` does."""
    backbone = load_backbone(spec, device).for_images_and_texts(texts=True, images=True)
    config: Any = backbone.module["vision"].config
    side = config.image_size // config.patch_size
    return GradCamModel(backbone, (side, side))


def grad_cam(model: GradCamModel, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines ``[B]`` of images and texts, and maps ``[B,rows,columns]`` of them.

    A map is the sum of the activations' channels, weighted by the mean gradient over patches,
    without negative values. Images are the bytes ``[B,3,h,w]`` of `resize_and_crop`, texts the
    embeddings ``[B,D]`` of `GradCamModel.embed_texts`.
    """
    import torch
    from torch.nn.functional import cosine_similarity

    backbone = model.backbone
    assert backbone.encode_images
    activations: list[Tensor] = []

    def record(layer: Module, inputs: Any, output: Tensor) -> Tensor:
        # Gradients are needed only back to this layer; earlier layers take no memory.
        activations.append(output.detach().requires_grad_())
        return activations[-1]

    hook = model.layer.register_forward_hook(record)
    try:
        with (
            explain_out_of_memory(backbone.name, backbone.device),
            torch.enable_grad(),
            arithmetic(backbone.device, "float32"),
        ):
            pixels = normalise(images.to(backbone.device), backbone.preprocessing)
            cosines = cosine_similarity(backbone.encode_images(pixels), texts.to(backbone.device))
            (gradient,) = torch.autograd.grad(cosines.sum(), activations)
    finally:
        hook.remove()
    weights = gradient[:, model.patches].mean(1, keepdim=True)
    maps = (activations[0][:, model.patches] * weights).sum(2).clamp(min=0)
    return cosines.detach().cpu(), maps.detach().unflatten(1, model.grid).cpu()
