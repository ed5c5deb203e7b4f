"""CLIP (Radford et al., 2021) in Hugging Face's form, including OpenCLIP's checkpoints.

Its vision tower embeds each frame of a clip separately; both towers embed images and texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import Backbone, Family, TextTower, published
from obygaze_features.backbones.pools import pool_specs, pool_tokens
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.weights import Tokenizer, load_folder, read_tokenizer
from obygaze_features.store import ArraySpec
from obygaze_features.store.arrays import pool_mean

if TYPE_CHECKING:
    from torch import Tensor

SAMPLING = Sampling(32)
"""The frames of the paper's X-CLIP and ViViT, so that one pass decodes them for all."""


def frame_arrays(
    dim: int, meaning: str, tokens: int, width: int, order: str
) -> tuple[ArraySpec, ...]:
    """Return the arrays of a network that embeds each frame separately.

    The embedding of width `dim` is described by `meaning`; tokens have this number and order.
    """
    frames = SAMPLING.frames
    all_tokens = f"all tokens, {tokens} a frame, {order}"
    return (
        ArraySpec.named("native", (dim,), "clip embedding: mean over `frames`"),
        *pool_specs(dim, "`frames`", mean=", the same as `native`"),
        ArraySpec.named("frames", (frames, dim), meaning),
        ArraySpec.named("tokens", (frames * tokens, width), all_tokens),
    )


def clip_arrays(dim: int, patches: int, width: int) -> tuple[ArraySpec, ...]:
    """Return CLIP's arrays, of `patches` patches per frame, `width` wide, projected to `dim`."""
    order = "class token first, neither normalised nor projected"
    return frame_arrays(dim, "projected class token of each frame", 1 + patches, width, order)


def make_text_tower(
    path: Path, model: Any, project: Any = None, *, padding: str = "longest", unused: int = 0
) -> TextTower:
    """Return the text tower of a checkpoint: its transformer, and a projection if needed.

    The last `unused` positions never hold tokens.
    """
    config = model.config

    def encode(tokens: Mapping[str, Tensor]) -> Tensor:
        embedded: Tensor = model(**tokens).pooler_output
        return project(embedded) if project else embedded

    def load_tokenizer() -> Tokenizer:
        longest = config.max_position_embeddings - unused
        return read_tokenizer(path, longest, config.vocab_size, padding)

    return TextTower([model, project] if project else [model], encode, load_tokenizer)


def frame_backbone(
    vision: Any,
    fields: Mapping[str, Any],
    project: Any,
    text_tower: TextTower | None,
    arrays: tuple[ArraySpec, ...],
    meaning: str,
) -> Backbone:
    """Return the backbone of a vision tower that embeds each frame of a clip separately.

    `fields` come from `load_folder`; `project` maps the tower's embedding into the space that
    images and texts share; `meaning` describes such an embedding of an image or a text.
    """
    from torch.nn import ModuleDict

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        output = vision(pixels.flatten(0, 1))
        frames = project(output.pooler_output).float().unflatten(0, (-1, SAMPLING.frames))
        tokens = output.last_hidden_state.unflatten(0, (-1, SAMPLING.frames)).flatten(1, 2)
        native = pool_mean(frames)
        return {"native": native, "frames": frames, "tokens": tokens, **pool_tokens(frames, names)}

    def encode_images(pixels: Tensor) -> Tensor:
        # Not `get_image_features`, whose result depends on the version of transformers.
        embedded: Tensor = project(vision(pixels).pooler_output)
        return embedded

    return Backbone(
        module=ModuleDict({"vision": vision, "project": project}),
        sampling=SAMPLING,
        arrays=arrays,
        encode_clips=encode_clips,
        embedding=ArraySpec.named("native", arrays[0].shape, meaning),
        encode_images=encode_images,
        text_tower=text_tower,
        per_frame=True,
        **fields,
    )


def load(path: Path, mode: str) -> Backbone:
    """Load a CLIP from a folder in Hugging Face's layout."""
    model, fields = load_folder(path, mode, "CLIPModel")
    settings = model.config.vision_config
    patches = (settings.image_size // settings.patch_size) ** 2
    return frame_backbone(
        model.vision_model,
        fields,
        model.visual_projection,
        make_text_tower(path, model.text_model, model.text_projection),
        clip_arrays(model.config.projection_dim, patches, settings.hidden_size),
        "projected class token of an image, or end token of a text",
    )


FAMILY = Family("clip", "clip", published("clip", clip_arrays), load, embeds_texts=True)
