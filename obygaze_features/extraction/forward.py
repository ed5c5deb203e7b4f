"""A backbone on its device: batches as large as fit, and smaller ones where they do not."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones import Backbone
from obygaze_features.errors import BackboneError, UsageError
from obygaze_features.preprocess import normalise
from obygaze_features.store.format import BLOCK_ROWS

__all__ = [
    "Forward",
    "enough_memory",
    "free_memory",
    "is_out_of_memory",
    "limit_gpu_memory",
    "limit_gpu_share",
]

FRAMES_ON_CPU = 64
"""Frames in a batch on a CPU: more are no faster, and keep one waiting after Ctrl-C."""
MOST_ON_CPU = 8
SPARE = 0.85
"""The share of a GPU's free memory that batches are made for: allocators waste some."""
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:(G)i?B?|(M)i?B?)", re.IGNORECASE)


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
        free = min(torch.cuda.mem_get_info(device)[0], _allowed(device))
        more = SPARE * free - (peaks[1] - torch.cuda.memory_allocated(device))
        return max(1, min(BLOCK_ROWS, 1 + int(more / max(1, peaks[2] - peaks[1]))))


def limit_gpu_memory(device: str, most: str) -> None:
    """Let this process take at most so much of a GPU's memory: ``20GB``, ``800MB``.

    For a GPU that is shared with others. Batches are made to fit.
    """
    match = _BYTES.fullmatch(most.strip())
    if not match:
        raise UsageError(f"a memory size is for example 20GB or 800MB, not {most!r}")
    if torch.device(device).type != "cuda":
        raise UsageError(f"--max-gpu-memory is for a CUDA device, not for {device}")
    size = float(match[1]) * (2**30 if match[2] else 2**20)
    total = torch.cuda.get_device_properties(device).total_memory
    limit_gpu_share(device, min(1.0, size / total))


def limit_gpu_share(device: str, share: float) -> None:
    """Let this process take at most this part of a GPU's memory."""
    # By number, or None: of a plain "cuda" PyTorch says here that it lacks one.
    torch.cuda.set_per_process_memory_fraction(share, torch.device(device).index)


def _allowed(device: torch.device) -> float:
    """What `limit_gpu_memory` leaves to this process, beyond what it has taken."""
    total = torch.cuda.get_device_properties(device).total_memory
    fraction = torch.cuda.get_per_process_memory_fraction(device.index)
    return float(fraction * total - torch.cuda.memory_allocated(device))


def is_out_of_memory(problem: BaseException) -> bool:
    """Only CUDA has a class of its own for it."""
    told = str(problem)
    return (
        isinstance(problem, torch.OutOfMemoryError | MemoryError)
        or "out of memory" in told
        or "can't allocate memory" in told
        or "CUBLAS_STATUS_ALLOC_FAILED" in told
    )


@contextlib.contextmanager
def enough_memory(name: str, device: str) -> Iterator[None]:
    """Turn what a full device says into one clear line."""
    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if not is_out_of_memory(problem):
            raise
        raise BackboneError(
            f"the memory of {device} does not reach for {name}; take another --device"
        ) from None


def free_memory(device: str) -> None:
    """Give cached memory back, so that what is tried next finds it in one piece."""
    kind = torch.device(device).type
    if kind == "cuda":
        torch.cuda.empty_cache()
    elif kind == "mps":
        torch.mps.empty_cache()
