"""Devices: which one is meant, what computes on it, and how exactly."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from obygaze_features.common.extras import need
from obygaze_features.errors import BackboneError, UsageError

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = ["PRECISIONS", "arithmetic", "check_precision", "device_of", "move"]

PRECISIONS = ("float32", "bfloat16", "float16")


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
