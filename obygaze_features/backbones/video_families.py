"""X-CLIP and ViViT in Hugging Face format, which take whole clips.

ViViT cuts a clip into tubelets, for example of 2 frames x 16 pixels x 16 pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint, published
from obygaze_features.backbones.image_families import text_reader
from obygaze_features.backbones.pools import pool_specs, pool_tokens
from obygaze_features.backbones.random_checkpoints import write_vivit, write_xclip
from obygaze_features.backbones.readers import FrameReader, ImageReader
from obygaze_features.backbones.weights import load_folder
from obygaze_features.errors import BackboneError
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Conv3d, Module


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


def load_vivit(path: Path, mode: str) -> Backbone:
    """Load a ViViT model (Arnab et al., 2021) with joint attention over space and time."""
    # Leave out the pooler, which was never trained, and the classifier.
    network, preprocessing, fields = load_folder(path, mode, "VivitModel", add_pooling_layer=False)
    config = network.config
    frames = config.num_frames
    depth = config.tubelet_size[0]
    if frames < 1 or frames % depth:
        raise BackboneError(
            f"{path / 'config.json'}: num_frames must be a multiple of the tubelet's {depth} "
            f"frames (got {frames})"
        )
    compute_otherwise_on_gpus(network)
    steps = frames // depth
    width = config.hidden_size
    tubelets = network.embeddings.patch_embeddings.num_patches
    count = tubelets + 1
    of_moment = f"mean of each moment's {tubelets // steps} tubelets"

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        tokens = network(pixels).last_hidden_state.float()
        return {
            **pool_tokens(tokens, names),
            "native": tokens[:, 0],
            "cls": tokens[:, 0],
            "frames": tokens[:, 1:].unflatten(1, (steps, -1)).mean(2),
            "tokens": tokens,
        }

    arrays = (
        ArraySpec.named("native", (width,), "class token after the last layer norm"),
        ArraySpec.named("cls", (width,), "class token, the same as `native`"),
        *pool_specs(width, f"all {count:,} tokens"),
        ArraySpec.named("frames", (steps, width), of_moment),
        ArraySpec.named("tokens", (count, width), "all tokens, the class token first"),
    )
    clip = FrameReader(Sampling(frames), preprocessing, arrays, encode_clips)
    return Backbone(network, clip=clip, **fields)


def compute_otherwise_on_gpus(network: Module) -> None:
    """Replace layers to speed them up on GPUs; CPUs compute as before.

    Tubelets are computed as a matrix product, and tanh-GELUs in one step instead of nine. Some
    of cuDNN's tubelet convolutions are wrong in bfloat16 and float16 (cuDNN 9.8 to 9.10) or slow
    (torch 2.9).
    """
    from torch.nn import Conv3d
    from torch.nn.functional import gelu
    from transformers.activations import FastGELUActivation

    for module in network.modules():
        if isinstance(module, FastGELUActivation):
            module.forward = partial(_by_device, module.forward, partial(gelu, approximate="tanh"))
        elif isinstance(module, Conv3d):  # the only one, over adjacent tubelets
            module.forward = partial(_by_device, module.forward, partial(embed_tubelets, module))


def embed_tubelets(convolution: Conv3d, pixels: Tensor) -> Tensor:
    """Compute a convolution over adjacent tubelets of ``[B,C,T,H,W]`` as a matrix product."""
    from torch.nn.functional import linear

    for axis, side in zip((4, 3, 2), reversed(convolution.kernel_size), strict=True):
        count = pixels.shape[axis] // side
        pixels = pixels.narrow(axis, 0, count * side).unflatten(axis, (count, side))
    tubelets = pixels.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4)
    return linear(tubelets, convolution.weight.flatten(1), convolution.bias).movedim(-1, 1)


def _by_device(
    on_cpu: Callable[[Tensor], Tensor],
    on_gpu: Callable[[Tensor], Tensor],
    values: Tensor,
) -> Tensor:
    return on_gpu(values) if values.is_cuda else on_cpu(values)


TINY_XCLIP = KnownCheckpoint(
    "tiny-xclip",
    "a small X-CLIP with random weights",
    Sampling(8),
    write=write_xclip,
)
TINY_VIVIT = KnownCheckpoint(
    "tiny-vivit",
    "a small ViViT with random weights",
    Sampling(8),
    write=write_vivit,
)
FAMILIES = (
    Family("xclip", "xclip", (*published("xclip"), TINY_XCLIP), load_xclip, embeds_texts=True),
    Family("vivit", "vivit", (*published("vivit"), TINY_VIVIT), load_vivit),
)
