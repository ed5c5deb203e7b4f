"""Run any backbone on frames sampled at a rate, frame by frame or in windows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.pools import clip_by_clip
from obygaze_features.backbones.sampling import Sampling, uniform_indices
from obygaze_features.backbones.sound import SoundSampling
from obygaze_features.errors import UsageError
from obygaze_features.store import ArraySpec
from obygaze_features.store.arrays import Pooling, pool_mean

FRAMES_PER_STEP = 64
"""The frames per pass. A pass never spans clips, so a clip's result does not depend on others."""


def resample(
    backbone: Backbone,
    sampling: Sampling | None,
    track: int | None = None,
    required: Collection[str] | None = None,
) -> Backbone:
    """Return the same backbone, but with a clip's frames sampled at a rate, up to a maximum number.

    The array `frames` then has the embedding of each frame or window, and NaN after the clip's end.
    The embedding of a window is `native` for frames spread evenly over the window, as many as the
    network takes. Other vectors are pooled as `ARRAYS` says: with `pool` over frames, with `join`
    over windows. Vectors that only this backbone has are averaged over windows. Raises `UsageError`
    if an array in `required` (default: all) cannot be derived. For an audio backbone, `sampling`
    has no rate and limits the number of windows, and `track` is the number of the sound track.
    """
    if isinstance(backbone.sampling, SoundSampling):
        return _resample_sound(backbone, backbone.sampling, sampling, track)
    if not sampling:
        return backbone
    if not sampling.rate:
        raise UsageError(
            f"{backbone.name} takes frames, so --frames {sampling.frames} needs a rate. "
            "Add --sampling '2 fps', or extract this backbone in a separate run without --frames"
        )
    vectors = {spec.name: spec for spec in backbone.arrays if len(spec.shape) == 1}
    if "native" not in vectors:
        raise UsageError(f"{backbone.name} lacks the array native, which sampling needs; add it")
    if backbone.sampling.window:
        raise UsageError(f"{backbone.name} already uses windows; set its sampling only once")
    encode_frames = backbone.encode_images if backbone.per_frame else None
    if encode_frames:
        size, part = 1, "frame"
        pools = _pools_of_frames(vectors)
        sampling = replace(sampling, window=None, stride=None)
    else:
        size, part = backbone.sampling.frames, "window"
        pools = _pools_of_windows(vectors)
        window = sampling.window or size
        sampling = replace(sampling, window=window, stride=sampling.stride or window)
    _refuse_missing(backbone.name, part, vectors, pools, required)
    names = frozenset(pools)

    def embed(pixels: Tensor) -> Mapping[str, Tensor]:
        """Return the arrays for a batch of frames or windows ``[W,size,3,h,w]``."""
        if encode_frames:
            return dict.fromkeys(names, encode_frames(pixels[:, 0]))
        present = torch.ones(pixels.shape[:2], dtype=torch.bool, device=pixels.device)
        return backbone.encode_clips(pixels, present, names)

    def embed_tokens(clip: Tensor) -> dict[str, Tensor]:
        spans = sampling.windows(len(clip))
        rows = np.array([first + uniform_indices(end - first, size) for first, end in spans])
        steps = torch.from_numpy(rows).split(max(1, FRAMES_PER_STEP // size))
        parts = [embed(_take(clip, step)) for step in steps]
        return {name: torch.cat([part[name] for part in parts]).float() for name in names}

    shape = (sampling.tokens, *vectors["native"].shape)
    meaning = f"embedding of each {part}"
    arrays = (
        *(
            replace(spec, meaning=f"pooled over {part}s: {spec.meaning}")
            for name, spec in vectors.items()
            if name in pools
        ),
        ArraySpec.named("frames", shape, meaning, padded=True),
    )
    encode_clips = clip_by_clip(embed_tokens, pools, sampling.tokens)
    changes = {"sampling": sampling, "arrays": arrays, "encode_clips": encode_clips}
    return backbone.with_changes(**changes, mask_on_cpu=True)


def _take(clip: Tensor, rows: Tensor) -> Tensor:
    """Return rows of a clip without waiting for the GPU."""
    if clip.is_cuda:
        rows = rows.pin_memory()
    return clip[rows.to(clip.device, non_blocking=True)]


def _resample_sound(
    backbone: Backbone, own: SoundSampling, sampling: Sampling | None, track: int | None
) -> Backbone:
    """Return an audio backbone with the requested track and maximum number of windows."""
    heard = replace(own, track=track) if track else own
    if not sampling:
        return backbone.with_changes(sampling=heard)
    if sampling.rate:
        raise UsageError(
            f"{backbone.name}: --sampling is for frames, but this backbone takes windows of "
            f"{own.window:g} s of sound; extract it without --sampling"
        )
    heard = replace(heard, frames=sampling.frames)
    arrays = tuple(
        replace(spec, shape=(heard.tokens, *spec.shape[1:])) if spec.padded else spec
        for spec in backbone.arrays
    )
    preprocessing = replace(backbone.preprocessing, sampling=heard)
    return backbone.with_changes(sampling=heard, preprocessing=preprocessing, arrays=arrays)


def _pools_of_frames(vectors: Mapping[str, ArraySpec]) -> dict[str, Pooling]:
    """Return the pooling for each vector that can be computed from the embeddings of frames."""
    shape = vectors["native"].shape
    pools: dict[str, Pooling] = {"native": pool_mean}
    for name, spec in vectors.items():
        if spec.entry and spec.entry.pool and spec.shape == shape:
            pools[name] = spec.entry.pool
    return pools


def _pools_of_windows(vectors: Mapping[str, ArraySpec]) -> dict[str, Pooling]:
    """Return the pooling of each vector over windows; vectors not in `ARRAYS` are averaged."""
    joins = {name: spec.entry.join if spec.entry else pool_mean for name, spec in vectors.items()}
    return {name: join for name, join in joins.items() if join}


def _refuse_missing(
    label: str,
    part: str,
    vectors: Collection[str],
    pools: Mapping[str, Pooling],
    required: Collection[str] | None,
) -> None:
    """Raise `UsageError` if a required array cannot be computed from frames or windows."""
    others = [name for name in vectors if name not in pools]
    if unknown := [name for name in others if required is None or name in required]:
        raise UsageError(
            f"{label}: --sampling embeds each {part} separately, so it cannot compute the array "
            f"{' or '.join(unknown)}. Request other arrays: --arrays {','.join(pools)},frames"
        )
