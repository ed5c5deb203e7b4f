"""Devices, without a GPU: the answers of CUDA are injected."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import obygaze_features as of

# What a GPU is told can be seen only here, on a machine without one.
from obygaze_features.backbones import devices
from obygaze_features.errors import BackboneError
from tests.kit.files import write


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that torch has two GPUs; the second is current in this thread."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)


@pytest.mark.usefixtures("two_gpus")
def test_a_cuda_device_has_a_number():
    with FakeTensorMode():  # computes shapes alone, of any device
        for device in ("cuda:1", "cuda:0", "cpu"):
            assert devices.choose_device(device) == device
        assert devices.choose_device(None) == devices.choose_device("cuda") == "cuda:1"


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_cannot_compute_is_one_line(monkeypatch):
    """The GPU is visible and holds tensors; only a kernel shows that it does not work."""

    def fail(*_: Any) -> Any:
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronous")

    monkeypatch.setattr(torch.Tensor, "__matmul__", fail)
    with FakeTensorMode(), pytest.raises(BackboneError) as caught:
        of.load_backbone("tiny-xclip", None)
    for fact in ("'cuda:1' cannot be used (CUDA error: out of memory)", "--device cpu"):
        assert fact in str(caught.value)
    assert "\n" not in str(caught.value)
    # The same is true if even its number cannot be read.
    monkeypatch.setattr(torch.cuda, "current_device", fail)
    with pytest.raises(BackboneError, match="--device cpu"):
        devices.choose_device(None)


TF32_SWITCHES = torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn


def formats() -> list[str]:
    return [switch.fp32_precision for switch in TF32_SWITCHES]


@pytest.fixture
def restored() -> Iterator[None]:
    yield
    torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.mkldnn.matmul.fp32_precision = "none"
    torch.backends.cudnn.benchmark = False


CALLERS = {
    "nothing": lambda: None,
    "old": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "new": lambda: [setattr(switch, "fp32_precision", "tf32") for switch in TF32_SWITCHES],
    "single": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
}
"""What a caller has set before."""


def all_switches() -> list[Any]:
    """Return the values of the switches that callers can read."""
    return [*formats(), torch.backends.cudnn.benchmark, torch.backends.cuda.cudnn_sdp_enabled()]


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_tf32_is_set_and_then_restored(caller, precision):
    CALLERS[caller]()
    before = all_switches()
    with devices.arithmetic("cuda:1", precision):
        assert formats() == ["tf32" if precision == "tf32" else "ieee"] * 3
        assert not torch.backends.cudnn.benchmark
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert all_switches() == before
    if caller == "single":  # a caller who switches it off later is obeyed
        torch.backends.fp32_precision = "ieee"
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"


def test_threads_of_other_precisions_do_not_mix():
    """TF32 is a switch of the whole process."""
    entered = threading.Event()
    leave = threading.Event()

    def first() -> str:
        with devices.arithmetic("cuda:0", "tf32"):
            entered.set()
            leave.wait(10)
            return formats()[0]

    def second() -> str:
        entered.wait(10)
        with devices.arithmetic("cuda:1", "float32"):
            return formats()[0]

    with ThreadPoolExecutor(2) as pool:
        futures = pool.submit(first), pool.submit(second)
        assert not wait(futures[1:], 0.2).done  # it waits for the first
        leave.set()
        assert [future.result(10) for future in futures] == ["tf32", "ieee"]


MEMORY = """\
CUDA out of memory. Tried to allocate 2.00 GiB.
CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`
cuDNN error: CUDNN_STATUS_NOT_INITIALIZED
cuDNN error: CUDNN_STATUS_INTERNAL_ERROR
[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory
"""
NOT_MEMORY = """\
CUDA error: an illegal memory access was encountered
CUDA error: CUBLAS_STATUS_EXECUTION_FAILED
cuDNN error: CUDNN_STATUS_BAD_PARAM
"""


def test_memory_errors_are_recognised_by_their_messages():
    assert devices.is_out_of_memory(MemoryError())
    for message in (MEMORY + NOT_MEMORY).splitlines():
        assert devices.is_out_of_memory(RuntimeError(message)) is (message in MEMORY), message


# The tightest limit of a group and its parents, as nested by Slurm and systemd.
NESTED = {
    "proc/self/cgroup": "0::/slurm/job_7/step_0",
    "sys/fs/cgroup/slurm/job_7/step_0/cpu.max": "max 100000",
    "sys/fs/cgroup/slurm/job_7/cpu.max": "850000 100000",
    "sys/fs/cgroup/slurm/cpu.max": "6400000 100000",
}


@pytest.mark.parametrize(("cores", "files"), [(128, {}), (8, NESTED)])
def test_quota_and_affinity_limit_the_cores(tmp_path, monkeypatch, cores, files):
    for name, text in files.items():
        write(tmp_path / name, text)
    for affinity in (range(128), {3, 5}):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, s=affinity: set(s), raising=False)
        assert devices.usable_cores(tmp_path) == min(cores, len(affinity))
