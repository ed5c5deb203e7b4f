"""X-CLIP (Ma et al., 2022), trained on LSMDC, in the format that the authors' code saves.

This is not the X-CLIP of Ni et al. in `video_families`. CLIP embeds each frame separately, at one
frame per second, and a small transformer then mixes the frames. A checkpoint is a bare state dict,
of which only the video tower is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import (
    RANDOM_WEIGHTS_NOTE,
    Backbone,
    Family,
    KnownCheckpoint,
)
from obygaze_features.backbones.network_config import loading
from obygaze_features.backbones.pools import pool_mean, pool_specs, pool_tokens
from obygaze_features.backbones.readers import FrameReader
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError, translate
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import ModuleDict

VISION = "clip.visual."
MIXER = "transformerClip."
"""The prefixes of the video tower's weights in the state dict."""
POSITIONS = "frame_position_embeddings"
FRAME_WEIGHTS = "frame_mat_weight"
SYNTHETIC_TENSOR = "synthetic"
"""The name of a tensor that marks checkpoints with random weights."""
FRAMES_PER_SECOND = 1.0
MIXER_EPS = 1e-12


def load(path: Path, mode: str) -> Backbone:
    """Load a checkpoint from a file, or from a folder with only one checkpoint.

    `mode` has no effect: both modes use the preprocessing that OpenAI published with CLIP.
    """
    torch = need("torch", extra="extract")
    from torch.nn.functional import normalize

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
        with torch.device("meta"):
            network = make_network(sizes, positions=len(state[POSITIONS + ".weight"]))
        weights = {}
        for name, expected in network.state_dict().items():
            weights[name] = state[name].float()
            if weights[name].shape != expected.shape:
                raise BackboneError(file, f": {name} has a wrong shape; use another file")
        network.load_state_dict(weights, assign=True)
    frames = sizes["frames"]
    dim = sizes["dim"]
    vision = network["clip"]["visual"]
    mixer = network["transformerClip"]
    positions = network[POSITIONS]

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        output = vision(pixels.flatten(0, 1)).unflatten(0, (-1, frames))
        embedded = vision.embed(output[:, :, 0]).float()
        mask = present[..., None]
        arrays = pool_tokens(embedded, names, mask)
        arrays["frames"] = embedded.where(mask, math.nan)
        if names & {"native", "frames_temporal"}:
            placed = embedded + positions.weight[:frames]
            mixed = (embedded + mixer(placed, present)).float()
            arrays["frames_temporal"] = mixed.where(mask, math.nan)
            arrays["native"] = normalize(pool_mean(normalize(mixed, dim=-1), mask), dim=-1)
        if "tokens" in names:
            tokens = vision.embed(output).float().where(mask[..., None], math.nan)
            arrays["tokens"] = tokens.flatten(1, 2)
        return arrays

    config = {"layout": "X-CLIP of Ma et al.", **sizes}
    if SYNTHETIC_TENSOR in state:
        config["synthetic"] = RANDOM_WEIGHTS_NOTE
    tokens = 1 + (sizes["image_size"] // sizes["patch_size"]) ** 2
    order = f"all projected tokens, {tokens} a frame, class token first"
    of_frames = "projected class token of each frame"
    arrays = (
        ArraySpec.named("native", (dim,), "clip embedding: mean of `frames_temporal`, unit"),
        *pool_specs(dim, "`frames`, padding apart"),
        ArraySpec.named("frames", (frames, dim), of_frames, padded=True),
        ArraySpec.named("frames_temporal", (frames, dim), padded=True),
        ArraySpec.named("tokens", (frames * tokens, dim), order, padded=True),
    )
    sampling = Sampling(frames, FRAMES_PER_SECOND)
    preprocessing = CLIP_TORCHVISION.at(sizes["image_size"])
    clip = FrameReader(sampling, preprocessing, arrays, encode_clips)
    return Backbone(network, clip=clip, weights=(file,), config=config)


def _checkpoint_file(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(path.glob("pytorch_model.bin*"))
    if len(files) != 1:
        raise BackboneError(
            f"{path} is not a checkpoint: without a config.json, it must have exactly one "
            f"pytorch_model.bin.N (got {len(files)}). Pass one file: NAME=FILE"
        )
    return files[0]


def _network_sizes(state: dict[str, Tensor], file: Path) -> dict[str, int]:
    """Infer the sizes of a network from the shapes of its weights."""
    width, _, patch, _ = state[VISION + "conv1.weight"].shape
    tokens, _ = state[VISION + "positional_embedding"].shape
    _, dim = state[VISION + "proj"].shape
    frames, _ = state[FRAME_WEIGHTS].shape
    positions, _ = state[POSITIONS + ".weight"].shape
    side = math.isqrt(tokens - 1)
    if side * side + 1 != tokens or frames > positions or width % 64 or dim % 64:
        raise BackboneError(
            f"{file} has impossible sizes for an X-CLIP: {tokens - 1} patches, width {width}, "
            f"embedding {dim}, {frames} frames at {positions} positions. Use another file"
        )
    return {
        "frames": frames,
        "image_size": side * patch,
        "patch_size": patch,
        "width": width,
        "layers": _count_layers(state, VISION + "transformer."),
        "dim": dim,
        "temporal_layers": _count_layers(state, MIXER),
    }


def _count_layers(state: dict[str, Tensor], prefix: str) -> int:
    return sum(name.startswith(prefix) and name.endswith(".ln_1.weight") for name in state)


def make_network(sizes: Mapping[str, int], positions: int) -> ModuleDict:
    """Make the network; its weights are named as in the state dict."""
    from torch.nn import Embedding, ModuleDict

    from obygaze_features.backbones.openai_clip import Transformer, VisionTransformer

    dim = sizes["dim"]
    vision = VisionTransformer(
        sizes["image_size"], sizes["patch_size"], sizes["width"], sizes["layers"], dim
    )
    return ModuleDict(
        {
            "clip": ModuleDict({"visual": vision}),
            "transformerClip": Transformer(dim, sizes["temporal_layers"], MIXER_EPS),
            POSITIONS: Embedding(positions, dim),
        }
    )


CHECKPOINT = KnownCheckpoint(
    "xclip-lsmdc",
    "X-CLIP of Ma et al., trained on LSMDC: the paper's second X-CLIP",
    Sampling(12, FRAMES_PER_SECOND),
)
FAMILIES = (Family("xclip-lsmdc", None, (CHECKPOINT,), load),)
