"""X-CLIP, ViViT, VideoMAE and V-JEPA 2 in Hugging Face format, which take whole clips.

ViViT, VideoMAE and V-JEPA 2 cut a clip into tubelets, each 2 frames x 16 pixels x 16 pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint, published
from obygaze_features.backbones.image_families import make_text_tower
from obygaze_features.backbones.network_config import tensor_shapes
from obygaze_features.backbones.pools import pool_specs, pool_tokens
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.tiny import write_vivit, write_xclip
from obygaze_features.backbones.weights import load_folder, weight_files
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Conv3d, Module


def xclip_arrays(frames: int, dim: int, tokens: int, width: int) -> tuple[ArraySpec, ...]:
    """Return X-CLIP's arrays.

    `dim` is the width of its embeddings. Each frame has `tokens` tokens of width `width`.
    """
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


def load_xclip(path: Path, mode: str) -> Backbone:
    """Load an X-CLIP model (Ni et al., 2022), which also embeds images and texts.

    An image is embedded like a film that shows only this image.
    """
    model, fields = load_folder(path, mode, "XCLIPModel")
    from torch.nn import ModuleDict

    dim, settings = model.config.projection_dim, model.config.vision_config
    frames = settings.num_frames
    vision, project, mix = model.vision_model, model.visual_projection, model.mit

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


def tubelet_arrays(steps: int, patches: int, width: int, native: str = "") -> tuple[ArraySpec, ...]:
    """Return the arrays of a network with `patches` tubelets in each of `steps` time steps.

    `native` describes the clip's embedding if the network has no class token.
    """
    if native:
        tokens = steps * patches
        order = "moment by moment"
        vectors = {"native": f"clip embedding: {native}"}
    else:
        tokens = steps * patches + 1
        order = "the class token first"
        vectors = {
            "native": "class token after the last layer norm",
            "cls": "class token, the same as `native`",
        }
    return (
        *(ArraySpec.named(name, (width,), meaning) for name, meaning in vectors.items()),
        *pool_specs(width, f"all {tokens:,} tokens"),
        ArraySpec.named("frames", (steps, width), f"mean of each moment's {patches} tubelets"),
        ArraySpec.named("tokens", (tokens, width), f"all tokens, {order}"),
    )


def tubelet_backbone(
    network: Any,
    frames: int,
    arrays: tuple[ArraySpec, ...],
    fields: Mapping[str, Any],
    *,
    head: Any = None,
    embed: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Backbone:
    """Make a backbone from a network that turns clips of `frames` frames into tokens.

    `embed` computes the clip's embedding from the tokens and their mean, using `head`; by default,
    the embedding is the class token, which comes first.
    """
    from torch.nn import ModuleList

    (steps,) = (spec.shape[0] for spec in arrays if spec.name == "frames")
    compute_otherwise_on_gpus(network)

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        output = network(pixels).last_hidden_state
        tokens = output.float()
        tubelets = tokens if embed else tokens[:, 1:]
        return {
            **pool_tokens(tokens, names),
            "native": embed(output, tokens.mean(1)) if embed else tokens[:, 0],
            "cls": tokens[:, 0],
            "frames": tubelets.unflatten(1, (steps, -1)).mean(2),
            "tokens": tokens,
        }

    return Backbone(
        module=ModuleList([network, head]) if head else network,
        sampling=Sampling(frames),
        arrays=arrays,
        encode_clips=encode_clips,
        **fields,
    )


def compute_otherwise_on_gpus(network: Module) -> None:
    """Replace layers to speed them up on GPUs.

    Tubelets are computed as a matrix product, and tanh-GELUs in one step instead of nine. Some
    of cuDNN's tubelet convolutions are wrong in bfloat16 and float16 (cuDNN 9.8 to 9.10) or slow
    (torch 2.9). CPUs compute as before. Raises `BackboneError` if the results differ.
    """
    import torch
    from torch.nn import Conv3d
    from transformers.activations import FastGELUActivation

    for module in network.modules():
        function: Callable[[Tensor], Tensor]
        if isinstance(module, FastGELUActivation):
            function = partial(torch.nn.functional.gelu, approximate="tanh")
            sample = torch.linspace(-4, 4, 64)
        elif isinstance(module, Conv3d) and _is_side_by_side(module):
            function = partial(embed_tubelets, module)
            sample = torch.linspace(-1, 1, 8 * module.weight[0].numel()).sin()
            sides = [2 * side for side in module.kernel_size]
            sample = sample.view(1, module.in_channels, *sides).to(module.weight)
        else:
            continue
        error = torch.finfo(sample.dtype).eps ** 0.5
        with torch.no_grad():
            is_same = torch.allclose(function(sample), module(sample), rtol=error, atol=error)
        if not is_same:
            raise BackboneError(
                f"{network.name_or_path}: a faster layer gives different results; the weights "
                "may contain NaN. Download the checkpoint again"
            )
        module.forward = partial(_by_device, module.forward, function)


def _is_side_by_side(module: Conv3d) -> bool:
    settings = module.kernel_size, module.padding, module.dilation, module.groups
    return settings == (module.stride, (0, 0, 0), (1, 1, 1), 1)


def embed_tubelets(convolution: Conv3d, pixels: Tensor) -> Tensor:
    """Compute a convolution over adjacent tubelets of ``[B,C,T,H,W]`` as a matrix product."""
    from torch.nn.functional import linear

    for axis, side in zip((4, 3, 2), reversed(convolution.kernel_size), strict=True):
        count = pixels.shape[axis] // side
        pixels = pixels.narrow(axis, 0, count * side).unflatten(axis, (count, side))
    tubelets = pixels.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4)
    return linear(tubelets, convolution.weight.flatten(1), convolution.bias).movedim(-1, 1)


def _by_device(
    on_cpu: Callable[[Tensor], Tensor], on_gpu: Callable[[Tensor], Tensor], values: Tensor
) -> Tensor:
    return (on_gpu if values.is_cuda else on_cpu)(values)


def count_steps(frames: int, depth: int, folder: Path, setting: str = "num_frames") -> int:
    """Return the number of time steps in a clip; raise `BackboneError` if frames would be lost."""
    if frames < 1 or depth < 1 or frames % depth:
        raise BackboneError(
            f"{folder / 'config.json'}: {setting} must be a multiple of the tubelet's {depth} "
            f"frames (got {frames})"
        )
    return frames // depth


def load_vivit(path: Path, mode: str) -> Backbone:
    """Load a ViViT model (Arnab et al., 2021) with joint attention over space and time."""
    # Leave out the pooler, which was never trained, and the classifier.
    model, fields = load_folder(path, mode, "VivitModel", add_pooling_layer=False)
    config = model.config
    steps = count_steps(config.num_frames, config.tubelet_size[0], path)
    patches = model.embeddings.patch_embeddings.num_patches // steps
    arrays = tubelet_arrays(steps, patches, config.hidden_size)
    return tubelet_backbone(model, config.num_frames, arrays, fields)


def trunk_arrays(
    pooled: str, steps: int, patches: int, width: int, *, finetuned: bool
) -> tuple[ArraySpec, ...]:
    """Return the arrays of a network without a class token, with or without a classifier.

    `pooled` describes the clip's embedding that the classifier of a fine-tuned network takes.
    """
    return tubelet_arrays(steps, patches, width, pooled if finetuned else "the same as `mean`")


videomae_arrays = partial(trunk_arrays, "`mean`, after the classifier's layer norm")
vjepa2_arrays = partial(trunk_arrays, "tokens, pooled by the classifier's attention")


def load_trunk(
    path: Path, mode: str, model: str, head: str, tensors: Collection[str], **options: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """Load a network without its classifier; return it, its part called `head`, and its fields.

    The part is None if the network is not fine-tuned. Only the names of the `tensors` tell if the
    network is fine-tuned, because ``config.json`` may have been copied from the pretrained network.
    """
    if not any(name.startswith(("classifier.", f"{head}.")) for name in tensors):
        network, fields = load_folder(path, mode, f"{model}Model", **options)
        return network, None, fields
    classifier, fields = load_folder(path, mode, f"{model}ForVideoClassification", **options)
    return classifier.base_model, getattr(classifier, head), fields


def load_videomae(path: Path, mode: str) -> Backbone:
    """Load a VideoMAE model (Tong et al., 2022), pretrained or fine-tuned."""
    need("transformers", extra="extract")
    tensors = tensor_shapes(weight_files(path))
    # The trunk only has a last layer norm if the classifier does not pool tokens by their mean.
    has_last_norm = any(name.removeprefix("videomae.") == "layernorm.weight" for name in tensors)
    pooling: dict[str, Any] = {"use_mean_pooling": False} if has_last_norm else {}
    model, norm, fields = load_trunk(path, mode, "VideoMAE", "fc_norm", tensors, **pooling)
    settings = model.config
    steps = count_steps(settings.num_frames, settings.tubelet_size, path)
    patches = model.embeddings.num_patches // steps
    arrays = videomae_arrays(steps, patches, settings.hidden_size, finetuned=norm is not None)
    return tubelet_backbone(
        model,
        settings.num_frames,
        arrays,
        fields,
        head=norm,
        embed=lambda output, mean: norm(mean) if norm else mean,
    )


def load_vjepa2(path: Path, mode: str) -> Backbone:
    """Load a V-JEPA 2 model (Assran et al., 2025), pretrained or fine-tuned."""
    need("transformers", extra="extract")
    tensors = tensor_shapes(weight_files(path))
    model, pooler, fields = load_trunk(path, mode, "VJEPA2", "pooler", tensors, size="crop_size")
    settings = model.config
    # The processor always sets this edge, ignoring its configuration.
    fields["preprocessing"] = replace(
        fields["preprocessing"], shortest_edge=settings.crop_size * 256 // 224
    )
    frames = settings.frames_per_clip
    steps = count_steps(frames, settings.tubelet_size, path, "frames_per_clip")
    patches = (settings.crop_size // settings.patch_size) ** 2
    arrays = vjepa2_arrays(steps, patches, settings.hidden_size, finetuned=pooler is not None)
    return tubelet_backbone(
        model.encoder,  # without the predictor, which predicts the tokens of masked tubelets
        frames,
        arrays,
        fields,
        head=pooler,
        embed=lambda output, mean: pooler(output) if pooler else mean,
    )


TINY_XCLIP = KnownCheckpoint(
    "tiny-xclip",
    "a small X-CLIP with random weights",
    Sampling(8),
    xclip_arrays(8, 32, 17, 32),
    write=write_xclip,
)
TINY_VIVIT = KnownCheckpoint(
    "tiny-vivit",
    "a small ViViT with random weights",
    Sampling(8),
    tubelet_arrays(4, 16, 32),
    write=write_vivit,
)
FAMILIES = (
    Family(
        "xclip",
        "xclip",
        (*published("xclip", xclip_arrays), TINY_XCLIP),
        load_xclip,
        embeds_texts=True,
    ),
    Family("vivit", "vivit", (*published("vivit", tubelet_arrays), TINY_VIVIT), load_vivit),
    Family("videomae", "videomae", published("videomae", videomae_arrays), load_videomae),
    Family("vjepa2", "vjepa2", published("vjepa2", vjepa2_arrays), load_vjepa2),
)
