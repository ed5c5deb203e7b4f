"""A backbone on its device: batches as large as fit, and smaller ones where they do not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import allowed_memory, free_memory, is_out_of_memory
from obygaze_features.backbones.preprocess import normalise
from obygaze_features.errors import BackboneError
from obygaze_features.store.format import BLOCK_ROWS

__all__ = ["Forward"]

FRAMES_ON_CPU = 64
"""Frames in a batch on a CPU: more are no faster, and keep one waiting after Ctrl-C."""
MOST_ON_CPU = 8
SPARE = 0.85
"""The share of a GPU's free memory that batches are made for: allocators waste some."""


class Forward:
    """Runs a backbone over clips, in batches.

    Parameters
    ----------
    backbone
        From `load_backbone`.
    batch
        Clips at a time; by default what the device has memory for. None until that is found out.
    """

    def __init__(self, backbone: Backbone, batch: int | None = None) -> None:
        self.backbone, self.batch = backbone, batch
        self.seconds = 0.0

    def find_batch(self) -> int:
        """Clips at a time; what fits is tried, the first time."""
        if self.batch is None:
            self.batch = self._fitting()
        return self.batch

    def __call__(self, pixels: Sequence[Tensor]) -> list[dict[str, NDArray[Any]]]:
        """The arrays of each clip, given its frames as `resize_and_crop` leaves them.

        A batch that the device has no memory for is halved, and so are all that come after it.
        """
        outputs: list[dict[str, NDArray[Any]]] = []
        begin = time.perf_counter()
        while len(outputs) < len(pixels):
            batch = pixels[len(outputs) : len(outputs) + self.find_batch()]
            try:
                outputs += self._run(batch)
            except (RuntimeError, MemoryError) as problem:
                if not is_out_of_memory(problem):
                    raise
                if len(batch) == 1:
                    raise BackboneError(
                        f"the memory of {self.backbone.device} does not hold one clip of "
                        f"{self.backbone.name}; try --precision bfloat16, or another --device"
                    ) from None
                self.batch = len(batch) // 2
                free_memory(self.backbone.device)
        self.seconds += time.perf_counter() - begin
        return outputs

    def _run(self, pixels: Sequence[Tensor]) -> list[dict[str, NDArray[Any]]]:
        backbone = self.backbone
        frames = backbone.sampling.frames
        stacked = pixels[0].new_zeros(len(pixels), frames, *pixels[0].shape[1:])
        present = torch.zeros(len(pixels), frames, dtype=torch.bool, device=stacked.device)
        for place, one in enumerate(pixels):
            stacked[place, : len(one)] = one
            present[place, : len(one)] = True
        inputs = normalise(stacked, backbone.preprocessing)
        inputs[~present] = 0
        outputs = backbone.forward(inputs, present)
        values = {name: out.cpu().numpy() for name, out in outputs.items()}
        return [{name: one[place] for name, one in values.items()} for place in range(len(pixels))]

    def _fitting(self) -> int:
        """How many clips fit, by what one and two take."""
        backbone = self.backbone
        device = torch.device(backbone.device)
        if device.type != "cuda":
            return max(1, min(MOST_ON_CPU, FRAMES_ON_CPU // backbone.sampling.frames))
        height, width = backbone.preprocessing.crop
        black = torch.zeros(
            backbone.sampling.frames, 3, height, width, dtype=torch.uint8, device=device
        )
        peaks = []
        for count in (1, 1, 2):  # the first one pays for what is loaded on first use
            torch.cuda.reset_peak_memory_stats(device)
            try:
                self._run([black] * count)
            except RuntimeError as problem:
                if not is_out_of_memory(problem):
                    raise
                free_memory(backbone.device)
                return 1
            peaks.append(torch.cuda.max_memory_allocated(device))
        free_memory(backbone.device)
        free = min(torch.cuda.mem_get_info(device)[0], allowed_memory(device))
        more = SPARE * free - (peaks[1] - torch.cuda.memory_allocated(device))
        return max(1, min(BLOCK_ROWS, 1 + int(more / max(1, peaks[2] - peaks[1]))))
