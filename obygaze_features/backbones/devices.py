"""Choose a device, and control its precision, its memory, and the cores that decode for it."""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.common.package import need, usable_cores
from obygaze_features.errors import BackboneError, first_line

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
DRIVER = Path("/proc/driver/nvidia/version")
"""The file on Linux in which the driver states its version."""
MAX_WORKERS = 32
"""The maximum number of processes that are started by default."""
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
"""Options of glibc: the freed bytes from which memory is returned, and those mapped apart."""
MAX_INT = 2**31 - 1
QUICK_GELU_ROWS = 64
"""The tokens in a step of `quick_gelu`."""
_OUT_OF_MEMORY = re.compile(
    "out of memory|can't allocate memory|not enough memory|CUDNN_STATUS_INTERNAL_ERROR|"
    "(CUBLAS|CUDNN)_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)"
)
"""A pattern for messages of CUDA, its libraries and other allocators when memory runs out."""


def choose_device(device: str | None) -> str:
    """Check that a device works (default: a GPU if there is one), and return its full name.

    ``cuda`` becomes the current device, such as ``cuda:0``, because a plain ``cuda`` may mean
    different devices in different threads.
    """
    torch = need("torch", extra="extract")
    if device is None:
        device = "cpu"
        if torch.cuda.is_available():
            device = "cuda"
        elif torch.backends.mps.is_available():
            device = "mps"
    if device == "cuda":
        with contextlib.suppress(Exception):  # if CUDA cannot start, try_device reports the reason
            device = f"cuda:{torch.cuda.current_device()}"
    if reason := try_device(device):
        raise BackboneError(
            f"the device {device!r} cannot be used ({reason}). Choose another, such as --device "
            "cpu; for details, run: obygaze doctor"
        )
    return device


def try_device(device: str) -> str:
    """Compute something on a device; return the reason if the device cannot be used, or "".

    A GPU may be full, reserved by another process, or too old or too new for this torch. Such
    problems show only when a result has been computed and awaited.
    """
    import torch

    try:
        matrix = torch.ones(8, 8, device=device)
        (matrix @ matrix).cpu()
    except Exception as problem:  # each kind of device raises its own errors
        return first_line(problem)
    return ""


def describe_device(device: str) -> str:
    """Describe a device; for a CUDA GPU, include versions and settings that can change results."""
    if not device.startswith("cuda"):
        return device
    import torch

    used = []
    for kernel in ("flash", "mem_efficient", "math"):
        if getattr(torch.backends.cuda, f"{kernel}_sdp_enabled")():
            used.append(kernel)
    driver = "unknown"
    if DRIVER.is_file() and (found := re.search(r"\d+\.[\d.]+", DRIVER.read_text())):
        driver = found[0]
    return (
        f"{device} ({torch.cuda.get_device_name(device)}, driver {driver}, "
        f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
        f"attention by {' or '.join(used)})"
    )


def move_to_device(module: Module, device: str, name: str) -> None:
    """Move a network to a device, switch it to evaluation mode, and disable gradients."""
    with explain_out_of_memory(name, device):
        module.eval().requires_grad_(False).to(device)
    if device == "cpu":
        for layer in module.modules():
            if type(layer).__name__ == "QuickGELUActivation":
                layer.forward = quick_gelu


def quick_gelu(values: Tensor) -> Tensor:
    """Compute ``values * sigmoid(1.702 * values)`` in place, step by step in the CPU's cache.

    Computed at once, as in transformers, it takes three times the memory, and X-CLIP 3% longer.
    """
    import torch

    if values.requires_grad:  # gradients need the input again
        return values * torch.sigmoid(1.702 * values)
    for step in values.view(-1, values.shape[-1]).split(QUICK_GELU_ROWS):
        step *= torch.sigmoid(1.702 * step)
    return values


_tf32_lock = threading.RLock()
"""A lock for enqueuing GPU work, because TF32 can be switched only for the whole process."""


@contextlib.contextmanager
def arithmetic(device: str, precision: str) -> Iterator[None]:
    """Set the precision in which the ``with`` block computes.

    ``float32`` disables TensorFloat-32, and ``tf32`` enables it. Only CUDA devices have
    TensorFloat-32 (since Ampere); on other devices, ``tf32`` is float32. ``bfloat16`` and
    ``float16`` enable torch's autocast.
    """
    import torch

    device_type = torch.device(device).type
    with contextlib.ExitStack() as stack:
        if device_type == "cuda":
            stack.enter_context(_tf32_lock)
            stack.enter_context(_same_kernels("tf32" if precision == "tf32" else "ieee"))
        if precision in ("bfloat16", "float16"):
            stack.enter_context(torch.autocast(device_type, getattr(torch, precision)))
        yield


@contextlib.contextmanager
def _same_kernels(precision: str) -> Iterator[None]:
    """Fix the settings that make CUDA's results vary, and restore the caller's afterwards.

    Float32 products get this precision (``tf32`` or ``ieee``). Two features of cuDNN are disabled:
    its autotuned convolutions and its attention.
    """
    import torch

    cuda = torch.backends.cuda
    cudnn = torch.backends.cudnn
    # `allow_tf32` cannot even be read once a caller has used these.
    switches = (cuda.matmul, cudnn.conv, cudnn.rnn)
    before = [switch.fp32_precision for switch in switches]
    benchmark = cudnn.benchmark
    attention = cuda.cudnn_sdp_enabled()
    for switch in switches:
        switch.fp32_precision = precision
    cudnn.benchmark = False
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = "none"  # inherit from the switch above it
            if switch.fp32_precision != value:
                switch.fp32_precision = value
        cudnn.benchmark = benchmark
        cuda.enable_cudnn_sdp(attention)


def is_out_of_memory(problem: BaseException) -> bool:
    """Return True if an error means that memory ran out, by its type or message."""
    import torch

    known = (MemoryError, torch.OutOfMemoryError)
    return isinstance(problem, known) or bool(_OUT_OF_MEMORY.search(str(problem)))


@contextlib.contextmanager
def explain_out_of_memory(name: str, device: str) -> Iterator[None]:
    """Turn an out-of-memory error into a one-line `BackboneError`."""
    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if not is_out_of_memory(problem):
            raise
        raise BackboneError(
            f"out of memory: {name} does not fit on {device}. Use another --device, or free memory"
        ) from None


def free_memory(device: str) -> None:
    """Release cached memory, so that the next attempt finds it unfragmented."""
    import torch

    device_type = torch.device(device).type
    if device_type == "cuda":
        # On another device, emptying would open a context, which takes half a gigabyte.
        with torch.cuda.device(device):
            torch.cuda.empty_cache()
    elif device_type == "mps":
        torch.mps.empty_cache()


def keep_freed_memory() -> None:
    """Let this process reuse the memory of freed tensors on a CPU.

    By default, glibc returns the memory of large tensors to the system, which then clears new
    memory for the next one. Clearing takes a fifth of a forward pass.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(AttributeError):  # other C libraries
        set_option = ctypes.CDLL(None).mallopt
        if set_option(MMAP_THRESHOLD, MAX_INT):  # older versions of glibc refuse
            set_option(TRIM_THRESHOLD, MAX_INT)


def default_workers(device: str = "cpu") -> int:
    """Return the default number of decoding processes: all cores but one, up to `MAX_WORKERS`.

    For a CUDA device, the cores are shared among the GPUs, so that there can be a run per GPU.
    """
    cores = usable_cores()
    if device.startswith("cuda"):
        import torch

        cores //= max(1, torch.cuda.device_count())
    return max(1, min(cores - 1, MAX_WORKERS))
