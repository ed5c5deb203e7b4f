"""Devices: choosing one, its number format, and its memory."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from obygaze_features.common.package import need
from obygaze_features.common.text import first_line
from obygaze_features.errors import BackboneError, UsageError

if TYPE_CHECKING:
    from torch.nn import Module

PRECISIONS = ("float32", "bfloat16", "float16")
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:(G)i?B?|(M)i?B?)", re.IGNORECASE)


def check_precision(precision: str) -> None:
    """Raise `UsageError` for an unknown precision."""
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}; use one of {', '.join(PRECISIONS)}")


def choose_device(device: str | None) -> str:
    """Check that a device can be used; by default a GPU if there is one."""
    torch = need("torch", extra="extract")
    if device is None:
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as problem:
        # For an unknown name torch lists every kind of device that it was ever built for.
        reason = first_line(problem)
        details = "" if reason.startswith("Expected one of") else f" ({reason})"
        raise BackboneError(
            f"the device {device!r} cannot be used{details}; this machine has "
            f"{', '.join(_devices())}; see more with: obygaze doctor"
        ) from None
    return device


def _devices() -> list[str]:
    """The devices of this machine."""
    import torch

    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def move_to_device(module: Module, device: str, name: str) -> None:
    """Move a network to a device, in evaluation mode and without gradients."""
    with explain_out_of_memory(name, device):
        module.eval().requires_grad_(False).to(device)


@contextlib.contextmanager
def arithmetic(device: str, precision: str) -> Iterator[None]:
    """Compute in a number format; float32 without TensorFloat-32."""
    import torch

    if precision != "float32":
        with torch.autocast(device, getattr(torch, precision)):
            yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def limit_gpu_memory(device: str, limit: str) -> None:
    """Limit this process to some of a GPU's memory: ``20GB``, ``800MB``. Batches shrink to fit."""
    import torch

    match = _BYTES.fullmatch(limit.strip())
    if not match:
        raise UsageError(f"--max-gpu-memory must be a size such as 20GB or 800MB (got {limit!r})")
    if torch.device(device).type != "cuda":
        raise UsageError(f"--max-gpu-memory needs a CUDA device (got {device})")
    size = float(match[1]) * (2**30 if match[2] else 2**20)
    total = torch.cuda.get_device_properties(device).total_memory
    limit_gpu_share(device, min(1.0, size / total))


def limit_gpu_share(device: str, share: float) -> None:
    """Limit this process to this part of a GPU's memory."""
    import torch

    # By number or None: PyTorch refuses a plain "cuda" here.
    torch.cuda.set_per_process_memory_fraction(share, torch.device(device).index)


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether an error means out of memory; only CUDA has an exception class for it."""
    import torch

    message = str(problem)
    return (
        isinstance(problem, torch.OutOfMemoryError | MemoryError)
        or "out of memory" in message
        or "can't allocate memory" in message
        or "CUBLAS_STATUS_ALLOC_FAILED" in message
    )


@contextlib.contextmanager
def explain_out_of_memory(name: str, device: str) -> Iterator[None]:
    """Turn an out-of-memory error into one clear line."""
    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if not is_out_of_memory(problem):
            raise
        raise BackboneError(
            f"out of memory: {name} does not fit on {device}. Use another --device, or free its "
            "memory"
        ) from None


def free_memory(device: str) -> None:
    """Release cached memory, so that the next attempt finds it unfragmented."""
    import torch

    kind = torch.device(device).type
    if kind == "cuda":
        torch.cuda.empty_cache()
    elif kind == "mps":
        torch.mps.empty_cache()
