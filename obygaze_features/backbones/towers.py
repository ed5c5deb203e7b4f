"""A backbone for images and texts alone: an adapter until extraction uses `Backbone` directly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.load import load_backbone
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

    from obygaze_features.backbones.preprocess import Preprocessing


@dataclass(frozen=True)
class Towers:
    """The parts of a `Backbone` that embed images and texts."""

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
    """Load a backbone for images and texts."""
    backbone = load_backbone(spec, device, mode=mode, precision=precision)
    return Towers(
        name=backbone.name,
        preprocessing=backbone.preprocessing,
        arrays=(backbone.image_text_embedding(),),
        texts=backbone.tokenizer.attributes(),
        longest=backbone.tokenizer.max_tokens,
        embed_images=backbone.embed_images,
        embed_texts=backbone.embed_texts,
        count_tokens=backbone.tokenizer.count,
        device=backbone.device,
        about=backbone.about,
        precision=precision,
    )
