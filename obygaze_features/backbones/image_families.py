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
from obygaze_features.backbones.weights import Tokenizer, load_folder, read_tokenizer
from obygaze_features.errors import BackboneError
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec
from obygaze_features.store.arrays import pool_mean

if TYPE_CHECKING:
    from torch import Tensor

FRAMES = 32
"""The frames per clip, as many as in the paper's X-CLIP and ViViT, so that all can share them."""


def make_text_tower(
    path: Path,
    model: Any,
    project: Any = None,
    *,
    padding: str = "longest",
    unused: int = 0,
) -> TextTower:
    """Return the text tower of a checkpoint: its transformer, and a projection if it has one.

    `unused` is the number of positions that never hold tokens.
    """
    config = model.config
    modules = [model]
    if project:
        modules.append(project)

    def encode(tokens: Mapping[str, Tensor]) -> dict[str, Tensor]:
        embedded = model(**tokens).pooler_output
        if project:
            embedded = project(embedded)
        return {"native": embedded}

    def load_tokenizer() -> Tokenizer:
        longest = config.max_position_embeddings - unused
        return read_tokenizer(path, longest, config.vocab_size, padding)

    return TextTower(modules, encode, load_tokenizer)


def frame_backbone(
    vision: Any,
    fields: Mapping[str, Any],
    *,
    dim: int,
    frame: str,
    tokens: int,
    order: str,
    image: str,
    project: Any = None,
    text_tower: TextTower | None = None,
) -> Backbone:
    """Make a backbone from a vision tower that embeds each frame of a clip separately.

    Parameters
    ----------
    vision, fields
        The tower, and the fields that `load_folder` returns.
    dim, frame
        The size of a frame's embedding, and its description.
    tokens, order
        The number of tokens per frame, and the description of their order.
    image
        The description of the embedding of an image or a text.
    project
        A module that maps the tower's embedding into the space that images and texts share.
    text_tower
        The part that reads texts.
    """
    from torch.nn import Identity, ModuleDict

    project = project or Identity()

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        output = vision(pixels.flatten(0, 1))
        frames = project(output.pooler_output).float().unflatten(0, (-1, FRAMES))
        tokens = output.last_hidden_state.unflatten(0, (-1, FRAMES)).flatten(1, 2)
        native = pool_mean(frames)
        return {"native": native, "frames": frames, "tokens": tokens, **pool_tokens(frames, names)}

    def encode_images(pixels: Tensor) -> Tensor:
        # `get_image_features` is not used, because its result depends on transformers' version.
        embedded: Tensor = project(vision(pixels).pooler_output)
        return embedded

    every_token = (FRAMES * tokens, vision.config.hidden_size)
    return Backbone(
        module=ModuleDict({"vision": vision, "project": project}),
        sampling=Sampling(FRAMES),
        arrays=(
            ArraySpec.named("native", (dim,), "clip embedding: mean over `frames`"),
            *pool_specs(dim, "`frames`", mean=", the same as `native`"),
            ArraySpec.named("frames", (FRAMES, dim), frame),
            ArraySpec.named("tokens", every_token, f"all tokens, {tokens} a frame, {order}"),
        ),
        encode_clips=encode_clips,
        embedding=ArraySpec.named("native", (dim,), image),
        encode_images=encode_images,
        text_tower=text_tower,
        per_frame=True,
        **fields,
    )


def load_clip(path: Path, mode: str) -> Backbone:
    """Load a CLIP model (Radford et al., 2021), possibly an OpenCLIP checkpoint."""
    model, fields = load_folder(path, mode, "CLIPModel")
    settings = model.config.vision_config
    return frame_backbone(
        model.vision_model,
        fields,
        dim=model.config.projection_dim,
        frame="projected class token of each frame",
        tokens=1 + (settings.image_size // settings.patch_size) ** 2,
        order="class token first, neither normalised nor projected",
        image="projected class token of an image, or end token of a text",
        project=model.visual_projection,
        text_tower=make_text_tower(path, model.text_model, model.text_projection),
    )


def load_siglip(path: Path, mode: str) -> Backbone:
    """Load a SigLIP model (Zhai et al., 2023).

    SigLIP 2 at a fixed resolution has the same layout and the same ``model_type``.
    """
    model, fields = load_folder(path, mode, "SiglipModel")
    settings = model.config.vision_config
    if not getattr(settings, "vision_use_head", True):  # transformers 4.57 lacks this setting
        raise BackboneError(f"{path} has no pooling head to embed frames; use another checkpoint")
    return frame_backbone(
        model.vision_model,
        fields,
        dim=settings.hidden_size,
        frame="embedding of each frame: its tokens, pooled by attention",
        tokens=(settings.image_size // settings.patch_size) ** 2,
        order="after the last layer norm",
        image="pooled tokens of an image, or projected last token of a text",
        # SigLIP was trained on padded texts.
        text_tower=make_text_tower(path, model.text_model, padding="max_length"),
    )


def load_dino(model: str, path: Path, mode: str) -> Backbone:
    """Load DINOv2 (Oquab et al., 2023) or DINOv3 (Siméoni et al., 2025); `model` names the class.

    The input has the size that the checkpoint's processor sets, not that in ``config.json``.
    """
    network, fields = load_folder(path, mode, model, any_size=True)
    config = network.config
    height, width = fields["preprocessing"].crop
    patches = (height // config.patch_size) * (width // config.patch_size)
    registers = getattr(config, "num_register_tokens", 0)
    order = "class token first, "
    if registers:
        order += f"then {registers} registers, "
    return frame_backbone(
        network,
        fields,
        dim=config.hidden_size,
        frame="class token of each frame, after the last layer norm",
        tokens=1 + registers + patches,
        order=order + "after the last layer norm",
        image="class token of an image",
    )


def _dino(name: str, model_type: str, model: str) -> Family:
    return Family(name, model_type, published(name), partial(load_dino, model))


FAMILIES = (
    Family("clip", "clip", published("clip"), load_clip, embeds_texts=True),
    Family("siglip", "siglip", published("siglip"), load_siglip, embeds_texts=True),
    _dino("dinov2", "dinov2", "Dinov2Model"),
    _dino("dinov2-with-registers", "dinov2_with_registers", "Dinov2WithRegistersModel"),
    _dino("dinov3", "dinov3_vit", "DINOv3ViTModel"),
)
