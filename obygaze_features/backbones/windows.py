"""Any backbone on frames at a rate: frame by frame, or in windows of a network of clips."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.sampling import Sampling, uniform_indices
from obygaze_features.backbones.sound import SoundSampling
from obygaze_features.errors import UsageError
from obygaze_features.store import ArraySpec

FRAMES_PER_STEP = 64
"""Frames in one forward pass. No pass crosses clips, so that a clip's bits depend on it alone."""

POOLS = frozenset({"native", "mean", "max"})
"""The arrays of a clip that follow from the embeddings of its frames."""


def resample(
    backbone: Backbone,
    sampling: Sampling | None,
    track: int | None = None,
    wanted: Collection[str] | None = None,
) -> Backbone:
    """The same backbone, which sees a clip's frames at a rate, up to a bound.

    `frames` is the embedding of each frame; or of each window, `native` of as many of its frames,
    evenly spread, as the network takes. It is NaN after the clip's end. The other arrays are means
    over frames or windows, and `max` is the maximum. A network of frames gives no others than
    `POOLS`, and is refused if others are `wanted`; by default all of its arrays are. Without a
    rate, `sampling` says how many windows of sound a backbone hears at most; `track` is the number
    of the sound track.
    """
    if isinstance(backbone.sampling, SoundSampling):
        return _resample_sound(backbone, backbone.sampling, sampling, track)
    if not sampling:
        return backbone
    if not sampling.rate:
        raise UsageError(
            f"{backbone.label} sees frames: --frames {sampling.frames} goes with a rate. "
            "Add --sampling '2 fps', or extract backbones that hear without it"
        )
    specs = {spec.name: spec for spec in backbone.arrays if len(spec.shape) == 1}
    if "native" not in specs:
        raise UsageError(f"{backbone.label} has no array native, which sampling needs; add it")
    if backbone.sampling.window:
        raise UsageError(f"{backbone.label} sees windows already; give its sampling only once")
    encode_frames = backbone.encode_images if backbone.per_frame else None
    if encode_frames:
        size, part = 1, "frame"
        specs = _pools_of_frames(backbone.label, specs, wanted)
        sampling = replace(sampling, window=None, stride=None)
    else:
        size, part = backbone.sampling.frames, "window"
        window = sampling.window or size
        sampling = replace(sampling, window=window, stride=sampling.stride or window)

    names = frozenset(specs)
    shape = (sampling.tokens, *specs["native"].shape)

    def embed(pixels: Tensor) -> Mapping[str, Tensor]:
        """The arrays of some frames or windows ``[W,size,3,h,w]``."""
        if encode_frames:
            return dict.fromkeys(names, encode_frames(pixels[:, 0]))
        present = torch.ones(pixels.shape[:2], dtype=torch.bool, device=pixels.device)
        return backbone.encode_clips(pixels, present, names)

    def embed_tokens(clip: Tensor) -> dict[str, Tensor]:
        spans = sampling.windows(len(clip))
        rows = np.array([first + uniform_indices(end - first, size) for first, end in spans])
        steps = torch.from_numpy(rows).split(max(1, FRAMES_PER_STEP // size))
        parts = [embed(clip[step.to(clip.device)]) for step in steps]
        return {name: torch.cat([part[name] for part in parts]).float() for name in names}

    pooled = (replace(s, meaning=f"pooled over {part}s: {s.meaning}") for s in specs.values())
    frames = ArraySpec("frames", shape, "float16", f"embedding of each {part}", padded=True)
    arrays = (*pooled, frames)
    encode_clips = clip_by_clip(embed_tokens, sampling.tokens)
    return backbone.with_changes(sampling=sampling, arrays=arrays, encode_clips=encode_clips)


def _resample_sound(
    backbone: Backbone, own: SoundSampling, sampling: Sampling | None, track: int | None
) -> Backbone:
    """Return the backbone with its track, and with the number of windows that it hears at most."""
    heard = replace(own, track=track) if track else own
    if not sampling:
        return backbone.with_changes(sampling=heard)
    if sampling.rate:
        raise UsageError(
            f"{backbone.label}: --sampling is for frames, and it hears windows of "
            f"{own.window:g} s; extract it without --sampling"
        )
    heard = replace(heard, frames=sampling.frames)
    arrays = tuple(
        replace(spec, shape=(heard.tokens, *spec.shape[1:])) if spec.padded else spec
        for spec in backbone.arrays
    )
    preprocessing = replace(backbone.preprocessing, sampling=heard)
    return backbone.with_changes(sampling=heard, preprocessing=preprocessing, arrays=arrays)


def _pools_of_frames(
    label: str, specs: Mapping[str, ArraySpec], wanted: Collection[str] | None
) -> dict[str, ArraySpec]:
    """Return the arrays that the embeddings of frames give; `UsageError` if others are wanted."""
    shape = specs["native"].shape
    pools = {name: spec for name, spec in specs.items() if name in POOLS and spec.shape == shape}
    others = [name for name in specs if name not in pools]
    if unknown := [name for name in others if wanted is None or name in wanted]:
        raise UsageError(
            f"{label}: with --sampling each frame is embedded alone, which does not give the array "
            f"{' or '.join(unknown)}. Ask for the others: --arrays {','.join(pools)},frames"
        )
    return pools


def clip_by_clip(
    embed_tokens: Callable[[Tensor], Mapping[str, Tensor]], count: int | None = None
) -> Callable[..., Any]:
    """`Backbone.encode_clips` by a function of one clip's frames or windows, without padding.

    From the embeddings of each: `frames` are those that are `native`, in `count` rows; by default
    in as many as the input has places.
    """

    def embed_clip(clip: Tensor, places: int) -> dict[str, Tensor]:
        tokens = embed_tokens(clip)
        row = {name: x.amax(0) if name == "max" else x.mean(0) for name, x in tokens.items()}
        row["frames"] = clip.new_full((places, *row["native"].shape), torch.nan)
        row["frames"][: len(tokens["native"])] = tokens["native"]
        return row

    def encode_clips(inputs: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        counts = present.sum(1).tolist()
        places = count or inputs.shape[1]
        rows = [embed_clip(clip[:n], places) for clip, n in zip(inputs, counts, strict=True)]
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}

    return encode_clips
