"""Readers: how a backbone turns clips, images or texts into rows of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.devices import move_to_device
from obygaze_features.backbones.pools import POOLS, Pooling, clip_by_clip, pool_mean
from obygaze_features.errors import BackboneError, UsageError
from obygaze_features.sampling import Sampling, SoundSampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from obygaze_features.backbones.preprocess import Preprocessing
    from obygaze_features.backbones.sound import SoundPreprocessing
    from obygaze_features.backbones.weights import Tokenizer

FRAMES_PER_CPU_STEP = 16
FRAMES_PER_GPU_STEP = 64
"""The frames per pass. A pass never spans clips, so a clip's result does not depend on others."""


def upload(inputs: Sequence[Tensor], device: str) -> list[Tensor]:
    """Copy inputs to a device. Copies of bytes from pinned memory need no wait."""
    on_gpu = device.startswith("cuda")
    return [values.to(device, non_blocking=on_gpu) for values in inputs]


def pad_clips(
    reader: FrameReader | SoundReader,
    inputs: Sequence[Tensor],
    device: str,
) -> tuple[Tensor, Tensor]:
    """Return clips as one batch ``[B,T,...]`` on a device, and its mask ``[B,T]``."""
    import torch

    from obygaze_features.backbones.preprocess import normalise

    clips = upload(inputs, device)
    shape = (len(clips), reader.sampling.frames)
    batch = torch.empty(*shape, *clips[0].shape[1:], device=device)
    if reader.counts_only:  # a mask on the device would cause a wait
        device = "cpu"
    present = torch.zeros(shape, dtype=torch.bool, device=device)
    for row, clip in enumerate(clips):
        count = len(clip)
        if count > shape[1]:
            raise BackboneError(f"a clip has {count} frames or windows; pass at most {shape[1]}")
        if isinstance(reader, FrameReader):
            normalise(clip, reader.preprocessing, batch[row, :count])
        else:
            batch[row, :count] = clip
        if not reader.counts_only:  # otherwise, nobody reads padding
            batch[row, count:] = 0
        present[row, :count] = True
    return batch, present


def clip_recipe(reader: FrameReader | SoundReader) -> dict[str, Any]:
    """Return the settings that a store records for a reader of clips."""
    return {"sampling": reader.sampling.words, **reader.preprocessing.attributes()}


@dataclass(frozen=True)
class FrameReader:
    """A reader of the frames of clips.

    Parameters
    ----------
    sampling
        The rule that samples frames.
    preprocessing
        The steps that turn frames into input.
    arrays
        The arrays of a clip.
    encode
        A function of the input ``[B,T,3,h,w]``, a mask ``[B,T]`` that is false for padding, and the
        names of the requested arrays. It returns these arrays, and possibly others. It sets the
        tokens of padding to NaN.
    embed_frames
        A function that maps single frames ``[B,3,h,w]`` to embeddings ``[B,D]``; None if the
        network mixes frames. With another sampling, the backbone has only the array `frames` and
        arrays pooled from it, such as `native`, `mean` and `max`.
    counts_only
        True if `encode` only counts the values of the mask, and so reads no padding, whose values
        are undefined. It then gets the mask on the CPU, because reading it from a GPU would mean
        waiting for the GPU.
    """

    sampling: Sampling
    preprocessing: Preprocessing
    arrays: tuple[ArraySpec, ...]
    encode: Callable[[Tensor, Tensor, frozenset[str]], Mapping[str, Tensor]]
    embed_frames: Callable[[Tensor], Tensor] | None = None
    counts_only: bool = False
    batch = pad_clips
    recipe = clip_recipe

    @property
    def sampled(self) -> tuple[ArraySpec, ...]:
        """The arrays of the number and time of each frame."""
        count = (self.sampling.frames,)
        padded = self.sampling.rate is not None
        number = "number in its file of each frame used"
        time = "when it is shown there, in seconds"
        return (
            ArraySpec("frame_index", count, "int32", number, padded),
            ArraySpec("frame_time", count, "float64", time, padded),
        )

    def resample(self, sampling: Sampling | None, track: int | None, name: str) -> FrameReader:
        """Return the same reader, but with another number of frames, or with frames at a rate.

        The array `frames` then has the embedding of each frame, and at a rate NaN after the clip's
        end. Without a rate, a clip of fewer frames repeats some.
        `native` and the vectors of `POOLS` are pooled over frames; other arrays are left
        out.
        """
        import torch

        if sampling in (None, self.sampling):
            return self
        embed = self.embed_frames
        if not embed:
            raise UsageError(
                f"{name} takes whole clips, so its sampling cannot be changed. Leave out "
                "--sampling and --frames, and divide long clips into spans; or use a network that "
                "embeds each frame, such as CLIP"
            )

        def embed_clip(clip: Tensor) -> Tensor:
            size = FRAMES_PER_GPU_STEP
            if clip.device.type == "cpu":
                size = FRAMES_PER_CPU_STEP
            return torch.cat([embed(step) for step in clip.split(size)]).float()

        shape = next(spec.shape for spec in self.arrays if spec.name == "native")
        pools: dict[str, Pooling] = {}
        arrays = []
        for spec in self.arrays:
            if spec.name == "native":
                pools["native"] = pool_mean
            elif spec.name in POOLS and spec.shape == shape:
                pools[spec.name] = POOLS[spec.name]
            else:
                continue
            arrays.append(replace(spec, meaning=f"pooled over frames: {spec.meaning}"))
        frames = (sampling.frames, *shape)
        padded = sampling.rate is not None
        arrays.append(ArraySpec.named("frames", frames, "embedding of each frame", padded=padded))
        return replace(
            self,
            sampling=sampling,
            arrays=tuple(arrays),
            encode=clip_by_clip(embed_clip, pools),
            counts_only=True,
        )


@dataclass(frozen=True)
class SoundReader:
    """A reader of windows of the sound of clips.

    The parameters are those of `FrameReader`; the input of `encode` is ``[B,W,...]``.
    """

    sampling: SoundSampling
    preprocessing: SoundPreprocessing
    arrays: tuple[ArraySpec, ...]
    encode: Callable[[Tensor, Tensor, frozenset[str]], Mapping[str, Tensor]]
    counts_only: bool = False
    batch = pad_clips
    recipe = clip_recipe

    @property
    def sampled(self) -> tuple[ArraySpec, ...]:
        """The arrays of the loudness and time of each window."""
        count = (self.sampling.frames,)
        level = "root mean square of each window in dB, of which full scale is 0"
        time = "the middle of the window there, in seconds"
        return (
            ArraySpec("loudness", count, "float32", level, padded=True),
            ArraySpec("frame_time", count, "float64", time, padded=True),
        )

    def resample(self, sampling: Sampling | None, track: int | None, name: str) -> SoundReader:
        """Return the same reader, but with another track or maximum number of windows."""
        windows = self.sampling
        count = windows.frames
        if sampling:
            count = sampling.frames
            if sampling.rate:
                raise UsageError(
                    f"{name}: --sampling is for frames, but this backbone takes windows of "
                    f"{windows.window:g} s of sound; extract it without --sampling"
                )

        heard = replace(windows, track=track or windows.track, frames=count)
        arrays = []
        for spec in self.arrays:
            if spec.padded:
                spec = replace(spec, shape=(count, *spec.shape[1:]))
            arrays.append(spec)
        preprocessing = replace(self.preprocessing, sampling=heard)
        return replace(self, sampling=heard, preprocessing=preprocessing, arrays=tuple(arrays))


@dataclass(frozen=True)
class ImageReader:
    """A reader of images.

    Parameters
    ----------
    preprocessing
        The steps that turn images into input.
    arrays
        The array of an image.
    embed
        A function that maps input ``[B,3,h,w]`` to embeddings ``[B,D]``, not normalised.
    """

    preprocessing: Preprocessing
    arrays: tuple[ArraySpec, ...]
    embed: Callable[[Tensor], Tensor]
    sampled = ()

    def recipe(self) -> dict[str, Any]:
        """Return the settings that a store records."""
        upright = "upright, by the image's EXIF data"
        return {**self.preprocessing.attributes(), "orientation": upright}

    def batch(self, inputs: Sequence[Tensor], device: str) -> tuple[Tensor]:
        """Return the arguments of `encode` for resized images ``[3,h,w]``."""
        import torch

        from obygaze_features.backbones.preprocess import normalise

        return (normalise(torch.stack(upload(inputs, device)), self.preprocessing),)

    def encode(self, pixels: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        """Return the array of a batch of images."""
        return {self.arrays[0].name: self.embed(pixels)}


@dataclass(frozen=True)
class TextReader:
    """A reader of texts.

    Parameters
    ----------
    load_tokenizer
        A function that reads the checkpoint's tokenizer.
    arrays
        The arrays of a text.
    encode
        A function that maps token ids (a tokenizer's output) and the names of the requested arrays
        to arrays, such as ``native``, the embeddings ``[B,D]``.
    modules
        The modules with the weights, which are moved to the device on first use.
    """

    load_tokenizer: Callable[[], Any]
    arrays: tuple[ArraySpec, ...]
    encode: Callable[[Mapping[str, Tensor], frozenset[str]], Mapping[str, Any]]
    modules: Sequence[Module] = ()
    sampled = ()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, loaded on first use."""
        tokenizer: Tokenizer = self.load_tokenizer()
        return tokenizer

    def recipe(self) -> dict[str, Any]:
        """Return the settings that a store records."""
        return {"texts": self.tokenizer.attributes()}

    def batch(self, inputs: Sequence[str], device: str) -> tuple[dict[str, Tensor]]:
        """Return the arguments of `encode` for texts."""
        for module in self.modules:
            move_to_device(module, device, "the text tower")
        tokens = self.tokenizer(inputs)
        return ({name: values.to(device) for name, values in tokens.items()},)


Reader = FrameReader | SoundReader | ImageReader | TextReader
