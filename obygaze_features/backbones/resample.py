"""Change what a backbone samples: frames at a rate, or another track or number of windows."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.pools import clip_by_clip
from obygaze_features.errors import UsageError
from obygaze_features.sampling import Sampling, SoundSampling
from obygaze_features.store import ArraySpec
from obygaze_features.store.arrays import Pooling, pool_mean

FRAMES_PER_CPU_STEP = 16
FRAMES_PER_GPU_STEP = 64
"""The frames per pass. A pass never spans clips, so a clip's result does not depend on others."""


def resample(backbone: Backbone, sampling: Sampling | None, track: int | None = None) -> Backbone:
    """Return the same backbone, but with a clip's frames sampled at a rate, up to a maximum number.

    The array `frames` then has the embedding of each frame, and NaN after the clip's end. `native`
    and the vectors that `ARRAYS` pools are pooled over frames; other arrays are left out. For an
    audio backbone, `sampling` has no rate and limits the number of windows, and `track` is the
    number of the sound track.
    """
    if isinstance(backbone.sampling, SoundSampling):
        return _resample_sound(backbone, backbone.sampling, sampling, track)
    if sampling in (None, backbone.sampling):
        return backbone
    if not sampling.rate:
        raise UsageError(
            f"{backbone.name} takes frames, so --frames {sampling.frames} needs a rate. Extract it "
            "without --frames or, if it sees single frames, add --sampling '2 fps'"
        )
    encode = backbone.encode_images
    if not encode or not backbone.per_frame or not backbone.embedding:
        raise UsageError(
            f"{backbone.name} takes whole clips, so its sampling cannot be changed. Leave out "
            "--sampling, and divide long clips into spans; or use one for single frames, such "
            "as CLIP"
        )

    def embed_frames(clip: Tensor) -> Tensor:
        size = FRAMES_PER_CPU_STEP
        if clip.is_cuda:
            size = FRAMES_PER_GPU_STEP
        return torch.cat([encode(step) for step in clip.split(size)]).float()

    shape = backbone.embedding.shape
    pools: dict[str, Pooling] = {}
    arrays = []
    for spec in backbone.arrays:
        if spec.name == "native":
            pools["native"] = pool_mean
        elif spec.entry and spec.entry.pool and spec.shape == shape:
            pools[spec.name] = spec.entry.pool
        else:
            continue
        arrays.append(replace(spec, meaning=f"pooled over frames: {spec.meaning}"))
    frames = (sampling.frames, *shape)
    arrays.append(ArraySpec.named("frames", frames, "embedding of each frame", padded=True))
    return backbone.with_changes(
        sampling=sampling,
        arrays=tuple(arrays),
        encode_clips=clip_by_clip(embed_frames, pools),
        mask_on_cpu=True,
    )


def _resample_sound(
    backbone: Backbone,
    own: SoundSampling,
    sampling: Sampling | None,
    track: int | None,
) -> Backbone:
    """Return an audio backbone with the requested track and maximum number of windows."""
    if sampling and sampling.rate:
        raise UsageError(
            f"{backbone.name}: --sampling is for frames, but this backbone takes windows of "
            f"{own.window:g} s of sound; extract it without --sampling"
        )
    heard = replace(own, track=track or own.track)
    if not sampling:
        return backbone.with_changes(sampling=heard)
    heard = replace(heard, frames=sampling.frames)
    arrays = []
    for spec in backbone.arrays:
        if spec.padded:
            spec = replace(spec, shape=(heard.frames, *spec.shape[1:]))
        arrays.append(spec)
    preprocessing = replace(backbone.preprocessing, sampling=heard)
    return backbone.with_changes(sampling=heard, preprocessing=preprocessing, arrays=tuple(arrays))
