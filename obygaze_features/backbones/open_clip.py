"""CLIPs in OpenCLIP's layout (Ilharco et al., 2021), as transformers' CLIPModel.

A folder with ``open_clip_config.json``, weights under OpenAI's names, and the tokenizer's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import (
    OPEN_CLIP,
    SYNTHETIC_WORDS,
    Card,
    Family,
    Network,
    TowerNetwork,
)
from obygaze_features.backbones.checkpoint import read_tensors
from obygaze_features.backbones.clip import arrays, network_of, towers_of
from obygaze_features.backbones.image_towers import SAMPLING
from obygaze_features.backbones.made_up import TINY
from obygaze_features.backbones.made_up_words import clip_text, write_clip_tokenizer
from obygaze_features.backbones.open_clip_layout import settings_of, to_clip_model, to_open_clip
from obygaze_features.common.files import read_json, to_json, write_text
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError, UsageError

if TYPE_CHECKING:
    from obygaze_features.backbones.preprocess import Preprocessing

__all__ = ["FAMILY", "load", "load_towers", "write_open_clip"]

WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
"""In the order in which they are looked for."""


def load(path: Path, mode: str) -> Network:
    """Load the image tower of an OpenCLIP for clips, each frame alone."""
    model, kept = _load(path, mode)
    return network_of(model, path, **kept)


def load_towers(path: Path, mode: str) -> TowerNetwork:
    """Load both towers of an OpenCLIP."""
    model, kept = _load(path, mode)
    return towers_of(model, path, of="CLIPTokenizer", **kept)


def _load(path: Path, mode: str) -> tuple[Any, dict[str, Any]]:
    """The model, and the rest that is kept of a checkpoint."""
    need("transformers", extra="extract")
    from transformers import CLIPConfig, CLIPModel

    config = read_json(path / OPEN_CLIP, BackboneError)
    if not isinstance(config, dict) or not isinstance(config.get("model_cfg"), dict):
        raise BackboneError(f"{path / OPEN_CLIP} has no usable model_cfg")
    file = next((path / name for name in WEIGHTS if (path / name).is_file()), None)
    if file is None:
        raise BackboneError(f"{path} has no weights ({' or '.join(WEIGHTS)})")
    settings = settings_of(config["model_cfg"], path / OPEN_CLIP)
    how = _preprocessing(config.get("preprocess_cfg") or {}, settings, path, mode)
    model = CLIPModel(CLIPConfig(**settings))
    wanted, found = model.state_dict(), to_clip_model(read_tensors(file))
    for name in [*(wanted.keys() - found.keys()), *(found.keys() - wanted.keys())]:
        what = "lacks" if name in wanted else "has too much:"
        raise BackboneError(f"{file} does not fit its {OPEN_CLIP}: it {what} {name}")
    for name, tensor in found.items():
        if tensor.shape != wanted[name].shape:
            raise BackboneError(
                f"{file} does not fit its {OPEN_CLIP}: {name} is {_times(tensor)} and not "
                f"{_times(wanted[name])}"
            )
    model.load_state_dict({name: tensor.float() for name, tensor in found.items()})
    return model, {"preprocessing": how, "weights": (file,), "config": config}


def _preprocessing(
    config: Mapping[str, Any], settings: Mapping[str, Any], path: Path, mode: str
) -> Preprocessing:
    """What ``preprocess_cfg`` asks for; where it is silent, what OpenAI's CLIP does."""
    from obygaze_features.backbones.preprocess import CLIP_TORCHVISION, MODES, SQUASHED

    if mode not in MODES:
        raise UsageError(f"{mode!r} is no mode of preprocessing; take {' or '.join(MODES)}")
    how = CLIP_TORCHVISION.at(settings["vision_config"]["image_size"])
    resizing, kind = config.get("resize_mode", "shortest"), config.get("interpolation", "bicubic")
    if resizing not in ("shortest", "squash") or kind not in ("bicubic", "bilinear"):
        raise BackboneError(
            f"{path / OPEN_CLIP}: pictures are resized by {resizing} and {kind}, and only shortest "
            "or squash and bicubic or bilinear are known here"
        )
    return replace(
        how,
        shortest_edge=how.shortest_edge if resizing == "shortest" else None,
        filter=kind,
        mean=tuple(config.get("mean", how.mean)),
        std=tuple(config.get("std", how.std)),
        squash=SQUASHED if mode == "author" else None,
        mode=mode,
    )


def _times(tensor: Any) -> str:
    return " x ".join(map(str, tensor.shape))


def write_open_clip(folder: Path, seed: int, vision: Mapping[str, Any], dim: int) -> None:
    """Write an OpenCLIP of random weights; its vocabulary is small."""
    torch = need("torch", extra="extract")
    need("transformers", extra="extract")
    from safetensors.torch import save_file
    from transformers import CLIPConfig, CLIPModel

    reads = clip_text()
    sees = CLIPConfig().vision_config.to_dict() | dict(vision)
    model = {
        "embed_dim": dim,
        "vision_cfg": {
            "image_size": sees["image_size"],
            "layers": sees["num_hidden_layers"],
            "width": sees["hidden_size"],
            "head_width": sees["hidden_size"] // sees["num_attention_heads"],
            "patch_size": sees["patch_size"],
        },
        "text_cfg": {
            "context_length": reads["max_position_embeddings"],
            "vocab_size": reads["vocab_size"],
            "width": reads["hidden_size"],
            "heads": reads["num_attention_heads"],
            "layers": reads["num_hidden_layers"],
        },
    }
    how = {
        "mean": [0.48145466, 0.4578275, 0.40821073],
        "std": [0.26862954, 0.26130258, 0.27577711],
        "interpolation": "bicubic",
        "resize_mode": "shortest",
    }
    config = {"model_cfg": model, "preprocess_cfg": how, "synthetic": SYNTHETIC_WORDS}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        made = CLIPModel(CLIPConfig(**settings_of(model, folder / OPEN_CLIP)))
    save_file(to_open_clip(made.state_dict()), folder / WEIGHTS[0])
    write_text(folder / OPEN_CLIP, to_json(config))
    write_clip_tokenizer(folder, reads["max_position_embeddings"])


CARDS = (
    Card(
        "tiny-open-clip",
        "a small OpenCLIP of random weights",
        SAMPLING,
        arrays(32, 16, 32),
        write=lambda folder, seed: write_open_clip(folder, seed, TINY, 32),
    ),
    Card(
        "random-open-clip",
        "CLIP B/32 of random weights, in OpenCLIP's layout",
        SAMPLING,
        arrays(512, 49, 768),
        write=lambda folder, seed: write_open_clip(folder, seed, {}, 512),
    ),
)

FAMILY = Family("open-clip", OPEN_CLIP, CARDS, load, load_towers)
