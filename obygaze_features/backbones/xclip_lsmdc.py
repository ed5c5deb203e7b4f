"""X-CLIP (Ma et al., 2022), trained on LSMDC, in the format that the authors' code saves.

This is not the X-CLIP of Ni et al. in `video_families`. CLIP embeds each frame separately, at one
frame per second, and a small transformer then mixes the frames. A checkpoint is a bare state dict,
of which only the video tower is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.backbones.backbone import (
    RANDOM_WEIGHTS_NOTE,
    Backbone,
    Family,
    KnownCheckpoint,
)
from obygaze_features.backbones.network_config import loading
from obygaze_features.backbones.pools import pool_specs, pool_tokens
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.weights import refuse_misfit
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError, translate
from obygaze_features.store import ArraySpec
from obygaze_features.store.arrays import pool_mean

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

VISION_PREFIX, MIXER_PREFIX = "clip.visual.", "transformerClip."
"""The prefixes of the video tower's weights in the state dict."""
POSITIONS, FRAME_WEIGHTS = "frame_position_embeddings.weight", "frame_mat_weight"
SYNTHETIC_TENSOR = "synthetic"
"""The name of a tensor that marks checkpoints with random weights."""
FRAMES_PER_SECOND = 1.0
MIXER_EPS = 1e-12
TINY = {"image_size": 32, "patch_size": 8, "width": 64, "layers": 2, "dim": 64}
"""The sizes of the network ``tiny-xclip-lsmdc``."""
_NUMBERED = re.compile(r"pytorch_model\.bin(\.\d+)?")


def lsmdc_arrays(frames: int, dim: int, tokens: int) -> tuple[ArraySpec, ...]:
    """Return the arrays for `tokens` tokens per frame, projected to `dim`."""
    order = f"all projected tokens, {tokens} a frame, class token first"
    return (
        ArraySpec.named("native", (dim,), "clip embedding: mean of `frames_temporal`, unit"),
        *pool_specs(dim, "`frames`, padding apart"),
        ArraySpec.named(
            "frames", (frames, dim), "projected class token of each frame", padded=True
        ),
        ArraySpec.named("frames_temporal", (frames, dim), padded=True),
        ArraySpec.named("tokens", (frames * tokens, dim), order, padded=True),
    )


def load(path: Path, mode: str) -> Backbone:
    """Load a checkpoint from a file, or from a folder with only one checkpoint.

    `mode` has no effect: both modes use the preprocessing that OpenAI published with CLIP.
    """
    torch = need("torch", extra="extract")
    from torch.nn import ModuleDict, ParameterDict
    from torch.nn.functional import normalize

    from obygaze_features.backbones.openai_clip import Transformer, VisionTransformer
    from obygaze_features.backbones.preprocess import CLIP_TORCHVISION

    file = _checkpoint_file(path)
    with loading(file):  # only tensors are ever unpickled
        state = torch.load(file, map_location="cpu", weights_only=True)
    wrong = (
        "is not a checkpoint of X-CLIP by Ma et al. ({}). For any other backbone, pass the folder "
        "that contains its config.json"
    )
    with translate(BackboneError, file, wrong):
        sizes = _network_sizes(state, file)
        frames, dim = sizes["frames"], sizes["dim"]
        with torch.device("meta"):
            vision = VisionTransformer(
                sizes["image_size"], sizes["patch_size"], sizes["width"], sizes["layers"], dim
            )
            mixer = Transformer(dim, sizes["temporal_layers"], MIXER_EPS)
        _load_weights(vision, VISION_PREFIX, state, file)
        _load_weights(mixer, MIXER_PREFIX, state, file)
    positions = torch.nn.Parameter(state[POSITIONS].float()[:frames], requires_grad=False)
    others = ParameterDict({"positions": positions})

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        output = vision(pixels.flatten(0, 1)).unflatten(0, (-1, frames))
        embedded = vision.embed(output[:, :, 0]).float()
        mask = present[..., None]
        arrays = {
            "frames": embedded.where(mask, math.nan),
            **pool_tokens(embedded, names, mask),
        }
        if names & {"native", "frames_temporal"}:
            mixed = (embedded + mixer(embedded + others["positions"], present)).float()
            arrays["frames_temporal"] = mixed.where(mask, math.nan)
            arrays["native"] = normalize(pool_mean(normalize(mixed, dim=-1), mask), dim=-1)
        if "tokens" in names:
            tokens = vision.embed(output).float().where(mask[..., None], math.nan)
            arrays["tokens"] = tokens.flatten(1, 2)
        return arrays

    synthetic = {"synthetic": RANDOM_WEIGHTS_NOTE} if SYNTHETIC_TENSOR in state else {}
    return Backbone(
        module=ModuleDict({"vision": vision, "mixer": mixer, "others": others}),
        sampling=Sampling(frames, FRAMES_PER_SECOND),
        preprocessing=CLIP_TORCHVISION.at(sizes["image_size"]),
        arrays=lsmdc_arrays(frames, dim, 1 + (sizes["image_size"] // sizes["patch_size"]) ** 2),
        encode_clips=encode_clips,
        weights=(file,),
        config={"layout": "X-CLIP of Ma et al.", **sizes, **synthetic},
    )


def _checkpoint_file(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(file for file in path.iterdir() if _NUMBERED.fullmatch(file.name))
    if not files:
        raise BackboneError(f"{path} is not a checkpoint (no config.json, no pytorch_model.bin.N)")
    if len(files) > 1:
        raise BackboneError(
            f"{path} has {len(files)} checkpoints; choose one: NAME={files[0]} ... {files[-1].name}"
        )
    return files[0]


def _network_sizes(state: dict[str, Tensor], file: Path) -> dict[str, int]:
    """Infer the sizes of a network from the shapes of its weights."""
    width, _, patch, _ = state[f"{VISION_PREFIX}conv1.weight"].shape
    tokens, _ = state[f"{VISION_PREFIX}positional_embedding"].shape
    _, dim = state[f"{VISION_PREFIX}proj"].shape
    frames, _ = state[FRAME_WEIGHTS].shape
    positions, _ = state[POSITIONS].shape
    side = math.isqrt(tokens - 1)
    if side * side + 1 != tokens or frames > positions or width % 64 or dim % 64:
        raise BackboneError(
            f"{file} has impossible sizes for an X-CLIP: {tokens - 1} patches, width {width}, "
            f"embedding {dim}, {frames} frames at {positions} positions"
        )
    return {
        "frames": frames,
        "image_size": side * patch,
        "patch_size": patch,
        "width": width,
        "layers": _count_layers(state, f"{VISION_PREFIX}transformer."),
        "dim": dim,
        "temporal_layers": _count_layers(state, MIXER_PREFIX),
    }


def _count_layers(state: dict[str, Tensor], prefix: str) -> int:
    matches = (re.match(re.escape(prefix) + r"resblocks\.(\d+)\.", name) for name in state)
    return 1 + max((int(match[1]) for match in matches if match), default=-1)


def _load_weights(module: Module, prefix: str, state: dict[str, Tensor], file: Path) -> None:
    """Load a module's weights in float32; raise `BackboneError` if any do not fit."""
    expected = module.state_dict()
    there = {name for name in expected if prefix + name in state}
    mismatched = (name for name in there if state[prefix + name].shape != expected[name].shape)
    refuse_misfit(file, type(module).__name__, expected.keys() - there, mismatched)
    module.load_state_dict({name: state[prefix + name].float() for name in expected}, assign=True)


def write_xclip_lsmdc(folder: Path, seed: int, sizes: Mapping[str, int] = TINY) -> None:
    """Write a state dict of X-CLIP by Ma et al., with a single tensor for the text tower."""
    torch = need("torch", extra="extract")
    from obygaze_features.backbones.openai_clip import Transformer, VisionTransformer

    dim, frames = sizes["dim"], 12
    modules: dict[str, Module] = {
        VISION_PREFIX: VisionTransformer(
            sizes["image_size"], sizes["patch_size"], sizes["width"], sizes["layers"], dim
        ),
        MIXER_PREFIX: Transformer(dim, 4, MIXER_EPS),
    }
    random = np.random.default_rng(seed)
    state: dict[str, Any] = {
        "clip.logit_scale": torch.tensor(4.6), SYNTHETIC_TENSOR: torch.ones(())
    }  # fmt: skip
    for prefix, module in modules.items():
        for name, weights in module.state_dict().items():
            if "ln_" in name:
                values = torch.ones_like(weights) if name.endswith("weight") else weights * 0
            else:
                values = torch.from_numpy(random.standard_normal(weights.shape, np.float32))
                values *= 0.5 / math.sqrt(weights[0].numel() if weights.ndim > 1 else len(weights))
            # Published checkpoints have CLIP's matrices in float16.
            is_matrix = weights.ndim > 1 and "embedding" not in name
            half = prefix == VISION_PREFIX and is_matrix
            state[prefix + name] = values.half() if half else values
    state[POSITIONS] = 0.05 * torch.from_numpy(random.standard_normal((77, dim), np.float32))
    state[FRAME_WEIGHTS] = torch.eye(frames)
    torch.save(state, folder / "pytorch_model.bin.0")


CHECKPOINTS = (
    KnownCheckpoint(
        "xclip-lsmdc",
        "X-CLIP of Ma et al., trained on LSMDC: the paper's second X-CLIP",
        Sampling(12, FRAMES_PER_SECOND),
        lsmdc_arrays(12, 512, 50),
        how_to_get=(
            "no public download is known. Train it with https://github.com/xuguohai/X-CLIP or ask "
            "the authors of ObyGaze12, and pass xclip-lsmdc=FILE (pytorch_model.bin.N)"
        ),
    ),
    KnownCheckpoint(
        "tiny-xclip-lsmdc",
        "a small X-CLIP like Ma et al.'s, with random weights",
        Sampling(12, FRAMES_PER_SECOND),
        lsmdc_arrays(12, 64, 17),
        write=write_xclip_lsmdc,
    ),
)

FAMILY = Family("xclip-lsmdc", None, CHECKPOINTS, load)
