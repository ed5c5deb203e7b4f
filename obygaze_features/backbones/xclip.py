"""X-CLIP (Ni et al., 2022) in Hugging Face's form: 8, 16 or 32 frames to a clip embedding."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import Backbone, Card
from obygaze_features.common.extras import need
from obygaze_features.common.files import read_json
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import XCLIPModel

__all__ = ["CARD", "load", "xclip_arrays"]


def xclip_arrays(frames: int, dim: int) -> tuple[ArraySpec, ...]:
    """What is kept of an X-CLIP that takes `frames` frames and projects them to `dim` numbers."""
    return (
        ArraySpec("native", (dim,), "float32", "clip embedding, after the temporal transformer"),
        ArraySpec("max", (dim,), "float32", "maximum over `frames`"),
        ArraySpec("mean", (dim,), "float32", "mean over `frames`"),
        ArraySpec("frames", (frames, dim), "float16", "projected class token of each frame"),
        ArraySpec("frames_temporal", (frames, dim), "float16", "`frames` after temporal mixing"),
    )


def load(path: Path, name: str, revision: str | None, device: str) -> Backbone:
    """Load an X-CLIP checkpoint.

    Parameters
    ----------
    path
        Folder with ``config.json``, ``preprocessor_config.json`` and weights.
    name
        The name of its store.
    revision
        The hub's revision, where it comes from there.
    device
        Where it is to run.
    """
    need("transformers", extra="extract")
    import torch
    from transformers import XCLIPModel
    from transformers.utils.logging import disable_progress_bar

    from obygaze_features.preprocess import read_preprocessing

    disable_progress_bar()
    weights = _weight_files(path)
    preprocessing = read_preprocessing(path)
    try:
        model, report = XCLIPModel.from_pretrained(
            path,
            dtype=torch.float32,
            use_safetensors=weights[0].suffix == ".safetensors",
            local_files_only=True,
            output_loading_info=True,
        )
    except Exception as problem:  # each kind of file has its own reader, with its own errors
        raise BackboneError(f"{path} cannot be loaded: {str(problem).splitlines()[0]}") from None
    # transformers fills what a file lacks with random numbers and a warning.
    if lacking := sorted(report["missing_keys"]):
        raise BackboneError(f"{path} lacks {len(lacking)} weights of X-CLIP, such as {lacking[0]}")
    model = model.eval().requires_grad_(False).to(device)
    frames = model.config.vision_config.num_frames
    return Backbone(
        name=name,
        frames=frames,
        preprocessing=preprocessing,
        arrays=xclip_arrays(frames, model.config.projection_dim),
        forward=lambda pixels: _forward(model, pixels),
        device=device,
        about={
            "name": CARD.name,
            "revision": revision,
            "weights_sha256": _sha256(weights),
            "config": read_json(path / "config.json", BackboneError),
        },
    )


def _forward(model: XCLIPModel, pixels: Tensor) -> dict[str, Tensor]:
    """Every array of a batch.

    The parts are called one by one: what `get_video_features` returns changed between versions
    of transformers, and it does not give the tokens.
    """
    import torch

    batch, frames = pixels.shape[:2]
    # The image tower alone takes any multiple of its frames, and mixes clips.
    assert frames == model.config.vision_config.num_frames, f"{frames} frames a clip"
    with torch.inference_mode():
        pooled = model.vision_model(pixels.flatten(0, 1)).pooler_output
        tokens = model.visual_projection(pooled).view(batch, frames, -1)
        temporal = model.mit(tokens)
    return {
        "native": temporal.pooler_output,
        "max": tokens.amax(1),
        "mean": tokens.mean(1),
        "frames": tokens,
        "frames_temporal": temporal.last_hidden_state,
    }


def _weight_files(path: Path) -> list[Path]:
    for pattern in ("*.safetensors", "pytorch_model*.bin"):
        if files := sorted(path.glob(pattern)):
            return files
    raise BackboneError(f"{path} has no weights (*.safetensors or pytorch_model*.bin)")


def _sha256(files: list[Path]) -> str:
    """The SHA-256 of one file, or of several one after another (``cat * | sha256sum``)."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


CARD = Card(
    name="xclip",
    title="X-CLIP B/16 at 32 frames, zero-shot: the paper's backbone",
    model_type="xclip",
    checkpoint="microsoft/xclip-base-patch16-zero-shot",
    arrays=xclip_arrays(frames=32, dim=512),
    load=load,
)
