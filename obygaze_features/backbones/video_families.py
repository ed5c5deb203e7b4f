"""X-CLIP in Hugging Face format, which takes whole clips."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint, published
from obygaze_features.backbones.image_families import text_reader
from obygaze_features.backbones.pools import pool_specs, pool_tokens
from obygaze_features.backbones.random_checkpoints import write_xclip
from obygaze_features.backbones.readers import FrameReader, ImageReader
from obygaze_features.backbones.weights import load_folder
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor


def load_xclip(path: Path, mode: str) -> Backbone:
    """Load an X-CLIP model (Ni et al., 2022), which also embeds images and texts.

    An image is embedded like a film that shows only this image.
    """
    model, preprocessing, fields = load_folder(path, mode, "XCLIPModel")
    from torch.nn import ModuleDict

    dim = model.config.projection_dim
    settings = model.config.vision_config
    frames = settings.num_frames
    vision = model.vision_model
    project = model.visual_projection
    mix = model.mit
    tokens = vision.embeddings.num_positions
    order = "class token first, neither normalised nor projected"

    def see(pixels: Tensor, frames: int) -> Any:
        """Return the vision tower's output; each group of `frames` frames is one clip."""
        for layer in vision.encoder.layers:
            layer.num_frames = frames
        return vision(pixels)

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        # Call part by part, because `get_video_features` does not return the tokens.
        output = see(pixels.flatten(0, 1), frames)
        embedded = project(output.pooler_output).unflatten(0, (-1, frames))
        arrays = {"frames": embedded, **pool_tokens(embedded.float(), names)}
        if names & {"native", "frames_temporal"}:
            # Take the results by position, because up to transformers 4 they are a bare tuple.
            arrays["frames_temporal"], arrays["native"] = mix(embedded)[:2]
        if "tokens" in names:
            arrays["tokens"] = output.last_hidden_state.unflatten(0, (-1, frames)).flatten(1, 2)
        return arrays

    def encode_images(pixels: Tensor) -> Tensor:
        # Equal frames add nothing to each other's messages, so one frame is enough.
        frame = project(see(pixels, 1).pooler_output)
        embedded: Tensor = mix(frame[:, None].expand(-1, frames, -1))[1]
        return embedded

    every_token = (frames * tokens, settings.hidden_size)
    arrays = (
        ArraySpec.named("native", (dim,), "clip embedding, after the temporal transformer"),
        *pool_specs(dim, "`frames`"),
        ArraySpec.named("frames", (frames, dim), "projected class token of each frame"),
        ArraySpec.named("frames_temporal", (frames, dim)),
        ArraySpec.named("tokens", every_token, f"all tokens, {tokens} a frame, {order}"),
    )
    meaning = "embedding of a film that shows the image throughout, or end token of a text"
    embedding = ArraySpec.named("native", (dim,), meaning)
    return Backbone(
        ModuleDict({"vision": vision, "project": project, "mix": mix}),
        clip=FrameReader(Sampling(frames), preprocessing, arrays, encode_clips),
        image=ImageReader(preprocessing, (embedding,), encode_images),
        text=text_reader(path, model.text_model, embedding, model.text_projection),
        **fields,
    )


TINY_XCLIP = KnownCheckpoint(
    "tiny-xclip",
    "a small X-CLIP with random weights",
    Sampling(8),
    write=write_xclip,
)
FAMILIES = (
    Family("xclip", "xclip", (*published("xclip"), TINY_XCLIP), load_xclip, embeds_texts=True),
)
