"""CLIP, SigLIP and DINO in Hugging Face format, which embed each frame of a clip separately.

They also embed single images; CLIP and SigLIP also embed texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.pools import pool_mean, pool_specs, pool_tokens
from obygaze_features.backbones.readers import FrameReader, ImageReader, TextReader
from obygaze_features.backbones.weights import Tokenizer, load_folder, read_tokenizer
from obygaze_features.errors import BackboneError
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

    from obygaze_features.backbones.preprocess import Preprocessing

FRAMES = 32
"""The frames per clip, as many as in the paper's X-CLIP and ViViT, so that all can share them."""


def text_reader(
    path: Path,
    model: Any,
    embedding: ArraySpec,
    project: Any = None,
    *,
    padding: str = "longest",
    unused: int = 0,
) -> TextReader:
    """Return the reader for a checkpoint's text tower, with its projection if it has one.

    `unused` is the number of positions that never hold tokens.
    """
    config = model.config
    modules = [model]
    if project:
        modules.append(project)

    def encode(tokens: Mapping[str, Tensor], names: frozenset[str]) -> dict[str, Tensor]:
        embedded = model(**tokens).pooler_output
        if project:
            embedded = project(embedded)
        return {"native": embedded}

    def load_tokenizer() -> Tokenizer:
        longest = config.max_position_embeddings - unused
        return read_tokenizer(path, longest, config.vocab_size, padding)

    return TextReader(load_tokenizer, (embedding,), encode, modules)


def frame_backbone(
    vision: Any,
    preprocessing: Preprocessing,
    fields: Mapping[str, Any],
    *,
    frame: str,
    tokens: int,
    order: str,
    embedding: ArraySpec,
    project: Any = None,
    text: TextReader | None = None,
) -> Backbone:
    """Make a backbone from a vision tower that embeds each frame of a clip separately.

    Parameters
    ----------
    vision, preprocessing, fields
        The tower, and what else `load_folder` returns.
    frame
        The description of a frame's embedding.
    tokens, order
        The number of tokens per frame, and the description of their order.
    embedding
        The array for the embedding of an image or a text.
    project
        A module that maps the tower's embedding into the space that images and texts share.
    text
        The reader of texts.
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

    (dim,) = embedding.shape
    every_token = (FRAMES * tokens, vision.config.hidden_size)
    arrays = (
        ArraySpec.named("native", (dim,), "clip embedding: mean over `frames`"),
        *pool_specs(dim, "`frames`", mean=", the same as `native`"),
        ArraySpec.named("frames", (FRAMES, dim), frame),
        ArraySpec.named("tokens", every_token, f"all tokens, {tokens} a frame, {order}"),
    )
    return Backbone(
        ModuleDict({"vision": vision, "project": project}),
        clip=FrameReader(Sampling(FRAMES), preprocessing, arrays, encode_clips, encode_images),
        image=ImageReader(preprocessing, (embedding,), encode_images),
        text=text,
        **fields,
    )


def load_clip(path: Path, mode: str) -> Backbone:
    """Load a CLIP model (Radford et al., 2021), possibly an OpenCLIP checkpoint."""
    model, preprocessing, fields = load_folder(path, mode, "CLIPModel")
    settings = model.config.vision_config
    meaning = "projected class token of an image, or end token of a text"
    embedding = ArraySpec.named("native", (model.config.projection_dim,), meaning)
    return frame_backbone(
        model.vision_model,
        preprocessing,
        fields,
        frame="projected class token of each frame",
        tokens=1 + (settings.image_size // settings.patch_size) ** 2,
        order="class token first, neither normalised nor projected",
        embedding=embedding,
        project=model.visual_projection,
        text=text_reader(path, model.text_model, embedding, model.text_projection),
    )


def load_siglip(path: Path, mode: str) -> Backbone:
    """Load a SigLIP model (Zhai et al., 2023).

    SigLIP 2 at a fixed resolution has the same layout and the same ``model_type``.
    """
    model, preprocessing, fields = load_folder(path, mode, "SiglipModel")
    settings = model.config.vision_config
    if not getattr(settings, "vision_use_head", True):  # transformers 4.57 lacks this setting
        raise BackboneError(f"{path} has no pooling head to embed frames; use another checkpoint")
    meaning = "pooled tokens of an image, or projected last token of a text"
    embedding = ArraySpec.named("native", (settings.hidden_size,), meaning)
    return frame_backbone(
        model.vision_model,
        preprocessing,
        fields,
        frame="embedding of each frame: its tokens, pooled by attention",
        tokens=(settings.image_size // settings.patch_size) ** 2,
        order="after the last layer norm",
        embedding=embedding,
        # SigLIP was trained on padded texts.
        text=text_reader(path, model.text_model, embedding, padding="max_length"),
    )


def load_dino(model: str, path: Path, mode: str) -> Backbone:
    """Load DINOv2 (Oquab et al., 2023) or DINOv3 (Siméoni et al., 2025); `model` names the class.

    The input has the size that the checkpoint's processor sets, not that in ``config.json``.
    """
    network, preprocessing, fields = load_folder(path, mode, model, any_size=True)
    config = network.config
    height, width = preprocessing.crop
    patches = (height // config.patch_size) * (width // config.patch_size)
    registers = getattr(config, "num_register_tokens", 0)
    order = "class token first, "
    if registers:
        order += f"then {registers} registers, "
    return frame_backbone(
        network,
        preprocessing,
        fields,
        frame="class token of each frame, after the last layer norm",
        tokens=1 + registers + patches,
        order=order + "after the last layer norm",
        embedding=ArraySpec.named("native", (config.hidden_size,), "class token of an image"),
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
