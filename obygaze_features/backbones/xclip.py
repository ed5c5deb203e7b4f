"""X-CLIP (Ni et al., 2022) in Hugging Face's form: 8, 16 or 32 frames to a clip embedding.

It embeds texts, too, and images, each as a film that shows only the image.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint, published
from obygaze_features.backbones.image_families import make_text_tower
from obygaze_features.backbones.pools import pool_specs, pool_tokens
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.tiny import write_xclip
from obygaze_features.backbones.weights import load_folder
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor


def xclip_arrays(frames: int, dim: int, tokens: int, width: int) -> tuple[ArraySpec, ...]:
    """Return X-CLIP's arrays, of `tokens` tokens per frame, `width` wide, projected to `dim`."""
    return (
        ArraySpec.named("native", (dim,), "clip embedding, after the temporal transformer"),
        *pool_specs(dim, "`frames`"),
        ArraySpec.named("frames", (frames, dim), "projected class token of each frame"),
        ArraySpec.named("frames_temporal", (frames, dim)),
        ArraySpec.named(
            "tokens",
            (frames * tokens, width),
            f"all tokens, {tokens} a frame, class token first, neither normalised nor projected",
        ),
    )


def load(path: Path, mode: str) -> Backbone:
    """Load an X-CLIP from a folder in Hugging Face's layout."""
    model, fields = load_folder(path, mode, "XCLIPModel")
    from torch.nn import ModuleDict

    dim, settings = model.config.projection_dim, model.config.vision_config
    frames = settings.num_frames
    vision, project, mix = model.vision_model, model.visual_projection, model.mit

    def see(pixels: Tensor, frames: int) -> Any:
        """Return the vision tower's output, for clips of `frames` frames that exchange messages."""
        for layer in vision.encoder.layers:
            layer.num_frames = frames
        return vision(pixels)

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        # Part by part, because `get_video_features` does not return the tokens.
        output = see(pixels.flatten(0, 1), frames)
        embedded = project(output.pooler_output).unflatten(0, (-1, frames))
        arrays = {"frames": embedded, **pool_tokens(embedded.float(), names)}
        if names & {"native", "frames_temporal"}:
            # By position, because up to transformers 4 this is a bare tuple.
            arrays["frames_temporal"], arrays["native"] = mix(embedded)[:2]
        if "tokens" in names:
            arrays["tokens"] = output.last_hidden_state.unflatten(0, (-1, frames)).flatten(1, 2)
        return arrays

    def encode_images(pixels: Tensor) -> Tensor:
        # Equal frames add nothing to each other's messages, so one is enough.
        frame = project(see(pixels, 1).pooler_output)
        embedded: Tensor = mix(frame[:, None].expand(-1, frames, -1))[1]
        return embedded

    return Backbone(
        module=ModuleDict({"vision": vision, "project": project, "mix": mix}),
        sampling=Sampling(frames),
        arrays=xclip_arrays(frames, dim, vision.embeddings.num_positions, settings.hidden_size),
        encode_clips=encode_clips,
        embedding=ArraySpec.named(
            "native", (dim,),
            "embedding of a film that shows the image throughout, or end token of a text",
        ),
        encode_images=encode_images,
        text_tower=make_text_tower(path, model.text_model, model.text_projection),
        **fields,
    )  # fmt: skip


TINY = KnownCheckpoint(
    "tiny-xclip",
    "a small X-CLIP of random weights",
    Sampling(8),
    xclip_arrays(8, 32, 17, 32),
    write=write_xclip,
)

FAMILY = Family(
    "xclip", "xclip", (*published("xclip", xclip_arrays), TINY), load, embeds_texts=True
)
