"""CLIP, SigLIP and DINO in Hugging Face format, which embed each frame of a clip separately.

They also embed single images; CLIP and SigLIP also embed texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import Backbone, Family, TextTower, published
from obygaze_features.backbones.pools import pool_specs, pool_tokens
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.weights import Tokenizer, load_folder, read_tokenizer
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec
from obygaze_features.store.arrays import pool_mean

if TYPE_CHECKING:
    from torch import Tensor

SAMPLING = Sampling(32)
"""The sampling of the paper's X-CLIP and ViViT, which lets all these backbones share frames."""


def frame_arrays(
    dim: int, meaning: str, tokens: int, width: int, order: str
) -> tuple[ArraySpec, ...]:
    """Return the arrays of a network that embeds each frame separately.

    `meaning` describes the embedding, which has `dim` numbers. A frame has `tokens` tokens of width
    `width`, in the order that `order` describes.
    """
    frames = SAMPLING.frames
    all_tokens = f"all tokens, {tokens} a frame, {order}"
    return (
        ArraySpec.named("native", (dim,), "clip embedding: mean over `frames`"),
        *pool_specs(dim, "`frames`", mean=", the same as `native`"),
        ArraySpec.named("frames", (frames, dim), meaning),
        ArraySpec.named("tokens", (frames * tokens, width), all_tokens),
    )


def make_text_tower(
    path: Path, model: Any, project: Any = None, *, padding: str = "longest", unused: int = 0
) -> TextTower:
    """Return the text tower of a checkpoint: its transformer, and a projection if it has one.

    `unused` is the number of positions that never hold tokens.
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
    """Make a backbone from a vision tower that embeds each frame of a clip separately.

    `fields` come from `load_folder`. `project` maps the tower's embedding into the space that
    images and texts share. `meaning` describes the embedding of an image or a text.
    """
    from torch.nn import ModuleDict

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        output = vision(pixels.flatten(0, 1))
        frames = project(output.pooler_output).float().unflatten(0, (-1, SAMPLING.frames))
        tokens = output.last_hidden_state.unflatten(0, (-1, SAMPLING.frames)).flatten(1, 2)
        native = pool_mean(frames)
        return {"native": native, "frames": frames, "tokens": tokens, **pool_tokens(frames, names)}

    def encode_images(pixels: Tensor) -> Tensor:
        # `get_image_features` is not used, because its result depends on transformers' version.
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


def clip_arrays(dim: int, patches: int, width: int) -> tuple[ArraySpec, ...]:
    """Return CLIP's arrays, given the patches per frame, their width and the embedding's width."""
    order = "class token first, neither normalised nor projected"
    return frame_arrays(dim, "projected class token of each frame", 1 + patches, width, order)


def load_clip(path: Path, mode: str) -> Backbone:
    """Load a CLIP model (Radford et al., 2021), possibly an OpenCLIP checkpoint."""
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


def siglip_arrays(patches: int, width: int) -> tuple[ArraySpec, ...]:
    """Return SigLIP's arrays (no class token), given the patches per frame and their width."""
    meaning = "embedding of each frame: its tokens, pooled by attention"
    return frame_arrays(width, meaning, patches, width, "after the last layer norm")


def load_siglip(path: Path, mode: str) -> Backbone:
    """Load a SigLIP model (Zhai et al., 2023).

    SigLIP 2 at a fixed resolution has the same layout and the same ``model_type``.
    """
    model, fields = load_folder(path, mode, "SiglipModel")
    from torch.nn import Identity

    settings = model.config.vision_config
    if not getattr(settings, "vision_use_head", True):  # transformers 4.57 lacks this setting
        raise BackboneError(f"{path} has no pooling head, so it cannot embed frames")
    patches = (settings.image_size // settings.patch_size) ** 2
    return frame_backbone(
        model.vision_model,
        fields,
        Identity(),
        # SigLIP was trained on padded texts.
        make_text_tower(path, model.text_model, padding="max_length"),
        siglip_arrays(patches, settings.hidden_size),
        "pooled tokens of an image, or projected last token of a text",
    )


def dino_arrays(patches: int, width: int, registers: int = 0) -> tuple[ArraySpec, ...]:
    """Return DINO's arrays, given the patches per frame, their width and the register count."""
    order = "class token first, " + (f"then {registers} registers, " if registers else "")
    meaning = "class token of each frame, after the last layer norm"
    tokens = 1 + registers + patches
    return frame_arrays(width, meaning, tokens, width, f"{order}after the last layer norm")


def load_dino(model: str, path: Path, mode: str) -> Backbone:
    """Load DINOv2 (Oquab et al., 2023) or DINOv3 (Siméoni et al., 2025); `model` is its class.

    The input has the size that the checkpoint's processor sets, not the size used in training.
    """
    network, fields = load_folder(path, mode, model, size=None)
    from torch.nn import Identity

    config = network.config
    height, width = (side // config.patch_size for side in fields["preprocessing"].crop)
    registers = getattr(config, "num_register_tokens", 0)
    arrays = dino_arrays(height * width, config.hidden_size, registers)
    return frame_backbone(network, fields, Identity(), None, arrays, "class token of an image")


FAMILIES = (
    Family("clip", "clip", published("clip", clip_arrays), load_clip, embeds_texts=True),
    Family("siglip", "siglip", published("siglip", siglip_arrays), load_siglip, embeds_texts=True),
    *(
        Family(
            name, kind, published(name, dino_arrays), partial(load_dino, model), embeds_images=True
        )
        for name, kind, model in (
            ("dinov2", "dinov2", "Dinov2Model"),
            ("dinov2-with-registers", "dinov2_with_registers", "Dinov2WithRegistersModel"),
            ("dinov3", "dinov3_vit", "DINOv3ViTModel"),
        )
    ),
)
