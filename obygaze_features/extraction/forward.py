"""A backbone's forward passes in batches, halved when memory runs out; the probe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import free_memory, is_out_of_memory
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.errors import BackboneError
from obygaze_features.store.format import BLOCK_ROWS

CLIPS_PER_BATCH = 8
FRAMES_PER_CPU_BATCH = 64
"""Larger batches do not make a CPU faster, and delay the answer to Ctrl-C."""


class Forward:
    """Runs a backbone over clips, images or texts, in batches of always the same size.

    So equal inputs give equal bits, unless memory runs out. By default it is 8 clips, fewer on a
    CPU, or the images or texts of a block.
    """

    def __init__(self, backbone: Backbone, batch: int | None = None) -> None:
        self.backbone, self.batch = backbone, batch or _default_batch(backbone)
        self.seconds = 0.0

    def __call__(self, inputs: Sequence[Tensor] | Sequence[str]) -> list[dict[str, NDArray[Any]]]:
        """The arrays of each item, given a clip's frames, an image (both resized) or a text.

        A batch that does not fit into memory is halved, and so are all later ones.
        """
        outputs: list[dict[str, NDArray[Any]]] = []
        begin = time.perf_counter()
        while len(outputs) < len(inputs):
            batch = inputs[len(outputs) : len(outputs) + self.batch]
            try:
                outputs += self._run(batch)
            except (RuntimeError, MemoryError) as problem:
                if not is_out_of_memory(problem):
                    raise
                if len(batch) == 1:
                    noun = "clip" if self.backbone.for_clips else "item"
                    raise BackboneError(
                        f"out of memory: one {noun} does not fit on {self.backbone.device} "
                        f"(backbone {self.backbone.name}); try --precision bfloat16, or another "
                        "--device"
                    ) from None
                self.batch = len(batch) // 2
                free_memory(self.backbone.device)
        self.seconds += time.perf_counter() - begin
        return outputs

    def _run(self, inputs: Sequence[Any]) -> list[dict[str, NDArray[Any]]]:
        if self.backbone.for_clips:
            outputs = self._run_clips(self.backbone, inputs)
        elif isinstance(inputs[0], str):
            outputs = {"native": self.backbone.embed_texts(inputs)}
        else:
            pixels = normalise(torch.stack(list(inputs)), self.backbone.preprocessing)
            outputs = {"native": self.backbone.embed_images(pixels)}
        values = {name: output.cpu().numpy() for name, output in outputs.items()}
        return [{name: value[i] for name, value in values.items()} for i in range(len(inputs))]

    @staticmethod
    def _run_clips(backbone: Backbone, clips: Sequence[Tensor]) -> dict[str, Tensor]:
        frames = backbone.sampling.frames
        stacked = clips[0].new_zeros(len(clips), frames, *clips[0].shape[1:])
        present = torch.zeros(len(clips), frames, dtype=torch.bool, device=stacked.device)
        for i, clip in enumerate(clips):
            stacked[i, : len(clip)] = clip
            present[i, : len(clip)] = True
        pixels = normalise(stacked, backbone.preprocessing)
        pixels[~present] = 0
        return backbone.embed_clips(pixels, present)


def _default_batch(backbone: Backbone) -> int:
    if not backbone.for_clips:
        return BLOCK_ROWS
    if backbone.device.startswith("cuda"):
        return CLIPS_PER_BATCH
    return max(1, min(CLIPS_PER_BATCH, FRAMES_PER_CPU_BATCH // backbone.sampling.frames))


def probe_frames(count: int) -> NDArray[np.uint8]:
    """The frames of the probe, a synthetic clip, ``[count, 240, 320, 3]``.

    Every store keeps its features, in the group ``probe``: two labs whose features of it agree have
    the same backbone. The frames are computed, never encoded, so no codec can make a difference.
    """
    time, y, x = np.ogrid[:count, :240, :320]
    moving = x + 7 * time
    channels = (moving * 3 + y, (moving ^ y) * 2, (x * y) // 16 + 11 * time)
    return np.stack([np.broadcast_to(c % 256, (count, 240, 320)) for c in channels], -1).astype(
        np.uint8
    )


def embed_probe(backbone: Backbone) -> dict[str, NDArray[Any]]:
    """The probe's row in each array of a backbone; for images, its first frame's."""
    count = backbone.sampling.frames if backbone.for_clips else 1
    frames = torch.from_numpy(probe_frames(count)).to(backbone.device)
    pixels = resize_and_crop(frames, backbone.preprocessing)
    (row,) = Forward(backbone, 1)([pixels if backbone.for_clips else pixels[0]])
    return row
