"""Devices: choosing one, its number format, and its memory."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError, UsageError

if TYPE_CHECKING:
    import torch
    from torch.nn import Module

__all__ = [
    "PRECISIONS",
    "allowed_memory",
    "arithmetic",
    "check_precision",
    "device_of",
    "enough_memory",
    "free_memory",
    "is_out_of_memory",
    "limit_gpu_memory",
    "limit_gpu_share",
    "move",
]

PRECISIONS = ("float32", "bfloat16", "float16")
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:(G)i?B?|(M)i?B?)", re.IGNORECASE)


def check_precision(precision: str) -> None:
    """Refuse what is not one of `PRECISIONS`."""
    if precision not in PRECISIONS:
        raise UsageError(f"{precision!r} is no precision; take one of {', '.join(PRECISIONS)}")


def device_of(device: str | None) -> str:
    """The device of a name; by default a GPU if there is one."""
    torch = need("torch", extra="extract")
    if device is None:
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as problem:
        # What torch says first is a list of every kind of device that anybody ever built.
        reason = str(problem).splitlines()[0]
        known = "" if reason.startswith("Expected one of") else f" ({reason})"
        raise BackboneError(
            f"the device {device!r} cannot be used{known}; this machine has "
            f"{', '.join(_devices())}; see more with: obygaze doctor"
        ) from None
    return device


def _devices() -> list[str]:
    """Those that this machine has."""
    import torch

    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def move(module: Module, device: str, name: str) -> None:
    """Make a network ready on a device, never to be trained."""
    import torch

    try:
        module.eval().requires_grad_(False).to(device)
    except torch.OutOfMemoryError:
        raise BackboneError(
            f"{device} has no memory left for {name}; see who uses it with nvidia-smi, "
            "or take another --device"
        ) from None


@contextlib.contextmanager
def arithmetic(device: str, precision: str) -> Iterator[None]:
    """Compute in a number format; float32 is meant exactly, without TensorFloat-32."""
    import torch

    if precision != "float32":
        with torch.autocast(device, getattr(torch, precision)):
            yield
        return
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    was = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = False
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = was


def limit_gpu_memory(device: str, limit: str) -> None:
    """Let this process take at most so much of a GPU's memory: ``20GB``, ``800MB``.

    For a GPU that is shared with others. Batches are made to fit.
    """
    import torch

    match = _BYTES.fullmatch(limit.strip())
    if not match:
        raise UsageError(f"a memory size is for example 20GB or 800MB, not {limit!r}")
    if torch.device(device).type != "cuda":
        raise UsageError(f"--max-gpu-memory is for a CUDA device, not for {device}")
    size = float(match[1]) * (2**30 if match[2] else 2**20)
    total = torch.cuda.get_device_properties(device).total_memory
    limit_gpu_share(device, min(1.0, size / total))


def limit_gpu_share(device: str, share: float) -> None:
    """Let this process take at most this part of a GPU's memory."""
    import torch

    # By number, or None: of a plain "cuda" PyTorch says here that it lacks one.
    torch.cuda.set_per_process_memory_fraction(share, torch.device(device).index)


def allowed_memory(device: torch.device) -> float:
    """What `limit_gpu_memory` leaves to this process, beyond what it has taken."""
    import torch

    total = torch.cuda.get_device_properties(device).total_memory
    fraction = torch.cuda.get_per_process_memory_fraction(device.index)
    return float(fraction * total - torch.cuda.memory_allocated(device))


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether memory ran out; only CUDA has an exception class for it."""
    import torch

    message = str(problem)
    return (
        isinstance(problem, torch.OutOfMemoryError | MemoryError)
        or "out of memory" in message
        or "can't allocate memory" in message
        or "CUBLAS_STATUS_ALLOC_FAILED" in message
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
    import torch

    kind = torch.device(device).type
    if kind == "cuda":
        torch.cuda.empty_cache()
    elif kind == "mps":
        torch.mps.empty_cache()
