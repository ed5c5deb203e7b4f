"""OpenCLIP's names for weights and sizes, and those of transformers' CLIPModel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.errors import BackboneError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["settings_of", "to_clip_model", "to_open_clip"]

_NAMES = (
    ("visual.class_embedding", "vision_model.embeddings.class_embedding"),
    ("visual.conv1.weight", "vision_model.embeddings.patch_embedding.weight"),
    ("visual.positional_embedding", "vision_model.embeddings.position_embedding.weight"),
    ("visual.ln_pre.", "vision_model.pre_layrnorm."),
    ("visual.ln_post.", "vision_model.post_layernorm."),
    ("visual.proj", "visual_projection.weight"),
    ("visual.transformer.resblocks.", "vision_model.encoder.layers."),
    ("token_embedding.weight", "text_model.embeddings.token_embedding.weight"),
    ("positional_embedding", "text_model.embeddings.position_embedding.weight"),
    ("ln_final.", "text_model.final_layer_norm."),
    ("text_projection", "text_projection.weight"),
    ("transformer.resblocks.", "text_model.encoder.layers."),
    ("logit_scale", "logit_scale"),
)
_IN_BLOCKS = (
    (".ln_1.", ".layer_norm1."),
    (".ln_2.", ".layer_norm2."),
    (".mlp.c_fc.", ".mlp.fc1."),
    (".mlp.c_proj.", ".mlp.fc2."),
    (".attn.out_proj.", ".self_attn.out_proj."),
)
_TURNED = ("visual.proj", "text_projection")
_THIRDS = ("q", "k", "v")
_NO_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "attn_mask")
"""What old files have beside weights."""
_KNOWN = {
    "vision_cfg": {
        "image_size",
        "layers",
        "width",
        "patch_size",
        "head_width",
        "mlp_ratio",
        "patch_dropout",
    },
    "text_cfg": {"context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio"},
}
"""Sizes that are understood; what else is set makes another network of it."""
_TRAINING = {"patch_dropout"}


def settings_of(model: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The settings of a CLIPConfig, from the ``model_cfg`` of a configuration."""
    try:
        sees, reads = model["vision_cfg"], model["text_cfg"]
        for part, known in _KNOWN.items():
            odd = [name for name, value in model[part].items() if value and name not in known]
            if odd:
                raise BackboneError(
                    f"{path}: {part} sets {odd[0]}, and only OpenCLIP's plain transformers are "
                    "known here"
                )
        if not isinstance(sees["layers"], int):
            raise BackboneError(
                f"{path}: its image tower is a ResNet, and only transformers are known here"
            )
        act = "quick_gelu" if model.get("quick_gelu") else "gelu"
        return {
            "projection_dim": model["embed_dim"],
            "vision_config": {
                **_transformer(sees, sees["width"] // sees.get("head_width", 64), act),
                "image_size": sees["image_size"],
                "patch_size": sees["patch_size"],
            },
            "text_config": {
                **_transformer(reads, reads["heads"], act),
                "vocab_size": reads["vocab_size"],
                "max_position_embeddings": reads["context_length"],
                # The last token of the vocabulary ends a text.
                "bos_token_id": reads["vocab_size"] - 2,
                "eos_token_id": reads["vocab_size"] - 1,
                "pad_token_id": reads["vocab_size"] - 1,
            },
        }
    except (AttributeError, KeyError, TypeError) as problem:
        raise BackboneError(f"{path} has no usable model_cfg: {problem}") from None


def to_clip_model(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights under the names that CLIPModel has for them."""
    found: dict[str, Tensor] = {}
    for full, tensor in state.items():
        name = full.removeprefix("text.")
        if name in _NO_WEIGHTS:
            continue
        attention = re.fullmatch(r"(.*)\.attn\.in_proj_(weight|bias)", name)
        if attention:
            stem = _renamed(attention[1] + ".", forward=True)
            for letter, third in zip(_THIRDS, tensor.chunk(3), strict=True):
                found[f"{stem}self_attn.{letter}_proj.{attention[2]}"] = third
        else:
            found[_renamed(name, forward=True)] = tensor.T if name in _TURNED else tensor
    return found


def to_open_clip(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The way back."""
    import torch

    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        attention = re.fullmatch(r"(.*\.)self_attn\.([qkv])_proj\.(weight|bias)", name)
        if attention is None:
            theirs = _renamed(name, forward=False)
            found[theirs] = tensor.T.contiguous() if theirs in _TURNED else tensor
        elif attention[2] == "q":
            stem, kind = attention[1], attention[3]
            thirds = [state[f"{stem}self_attn.{letter}_proj.{kind}"] for letter in _THIRDS]
            place = _renamed(stem, forward=False)
            found[f"{place}attn.in_proj_{kind}"] = torch.cat(thirds)
    return found


def _transformer(part: Mapping[str, Any], heads: int, act: str) -> dict[str, Any]:
    return {
        "hidden_size": part["width"],
        "intermediate_size": int(part["width"] * part.get("mlp_ratio", 4.0)),
        "num_hidden_layers": part["layers"],
        "num_attention_heads": heads,
        "hidden_act": act,
    }


def _renamed(name: str, *, forward: bool) -> str:
    for before, after in _in_order(_NAMES, forward=forward):
        if name == before or (before.endswith(".") and name.startswith(before)):
            name = after + name.removeprefix(before)
            break
    if ".resblocks." in name or ".layers." in name:
        for before, after in _in_order(_IN_BLOCKS, forward=forward):
            name = name.replace(before, after)
    return name


def _in_order(pairs: tuple[tuple[str, str], ...], *, forward: bool) -> Iterator[tuple[str, str]]:
    return iter(pairs) if forward else ((after, before) for before, after in pairs)
