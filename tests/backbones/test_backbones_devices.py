"""Devices, without one: what CUDA says and does is injected."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.devices import (
    arithmetic,
    choose_device,
    default_workers,
    free_memory,
    is_out_of_memory,
)
from obygaze_features.common.cores import usable_cores
from obygaze_features.errors import BackboneError


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, as far as torch says; the second is the current one of this thread."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("device", "chosen"),
    [(None, "cuda:1"), ("cuda", "cuda:1"), ("cuda:0", "cuda:0"), ("cpu", "cpu")],
)
def test_a_cuda_device_has_a_number(device, chosen):
    with FakeTensorMode():  # computes shapes alone, of any device
        assert choose_device(device) == chosen


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("device", [None, "cuda:1"])
@pytest.mark.parametrize(
    "problem",
    [
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously"),
        RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\n..."),
        RuntimeError("CUDA error: no kernel image is available for execution on the device"),
        torch.cuda.DeferredCudaCallError("CUDA call failed lazily at initialization"),
    ],
    ids=["full", "exclusive", "unsupported", "initialization"],
)
def test_a_gpu_that_cannot_compute_is_one_line(checkpoints, monkeypatch, device, problem):
    """It can be seen, and tensors can be made on it: a kernel shows that it does not work."""

    def fail(left: Any, right: Any) -> Any:
        raise problem

    monkeypatch.setattr(torch.Tensor, "__matmul__", fail)
    with FakeTensorMode(), pytest.raises(BackboneError) as caught:
        load_backbone(str(checkpoints["tiny-xclip"]), device)
    message = str(caught.value)
    assert "'cuda:1' cannot be used" in message
    assert f"({str(problem).splitlines()[0]})" in message
    assert "--device cpu" in message
    assert "\n" not in message


def test_cuda_that_cannot_start_is_one_line(monkeypatch):
    def fail(*_: Any) -> int:
        raise RuntimeError("CUDA driver initialization failed, you might not have a GPU.")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", fail)
    with pytest.raises(BackboneError, match="--device cpu"):
        choose_device(None)


TF32_SWITCHES = torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn


def formats() -> list[str]:
    return [switch.fp32_precision for switch in TF32_SWITCHES]


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Put torch's switches back after a test."""
    try:
        yield
    finally:
        torch.backends.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.backends.mkldnn.matmul.fp32_precision = "none"


def by_old_switches() -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def by_new_switches() -> None:
    for switch in TF32_SWITCHES:
        switch.fp32_precision = "tf32"


def by_one_switch() -> None:
    torch.backends.fp32_precision = "tf32"


def by_medium() -> None:
    torch.set_float32_matmul_precision("medium")


def nothing() -> None:
    pass


callers = pytest.mark.parametrize(
    "caller", [nothing, by_old_switches, by_new_switches, by_one_switch, by_medium]
)


def all_switches() -> list[Any]:
    """What a caller can read, by the old switches and the new; some cannot be read after others."""
    read = [
        lambda: torch.backends.cuda.matmul.allow_tf32,
        lambda: torch.backends.cudnn.allow_tf32,
        torch.get_float32_matmul_precision,
        formats,
        lambda: torch.backends.mkldnn.matmul.fp32_precision,
    ]
    values = []
    for read_switch in read:
        try:
            values.append(read_switch())
        except RuntimeError as problem:
            values.append(type(problem))
    return values


@callers
@pytest.mark.parametrize(
    ("precision", "format_"), [("float32", "ieee"), ("tf32", "tf32"), ("bfloat16", "ieee")]
)
@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_tf32_is_as_asked_and_then_as_the_caller_had_it(caller, precision, format_):
    with restored():
        caller()
        before = all_switches()
        with arithmetic("cuda:1", precision):
            assert formats() == [format_] * 3
        assert all_switches() == before


def test_a_caller_who_switches_tf32_off_later_is_obeyed():
    with restored():
        by_one_switch()
        with arithmetic("cuda:0", "float32"):
            pass
        torch.backends.fp32_precision = "ieee"
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"


@pytest.mark.parametrize(("precision", "allowed"), [("float32", False), ("tf32", True)])
def test_tf32_by_the_switches_of_older_torch(monkeypatch, precision, allowed):
    """Before 2.9 there is no `fp32_precision`."""
    with restored():
        by_medium()
        monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace())
        with arithmetic("cuda:0", precision):
            assert torch.get_float32_matmul_precision() == ("high" if allowed else "highest")
            assert torch.backends.cudnn.allow_tf32 == allowed
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.cudnn.allow_tf32


def test_threads_of_other_precisions_do_not_mix():
    """TF32 is a switch of the whole process."""
    entered, leave, seen = threading.Event(), threading.Event(), []

    def first() -> None:
        with arithmetic("cuda:0", "tf32"):
            entered.set()
            leave.wait(10)
            seen.append(formats()[0])

    def second() -> None:
        entered.wait(10)
        with arithmetic("cuda:1", "float32"):
            seen.append(formats()[0])

    before = formats()
    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    entered.wait(10)
    threads[1].join(0.2)  # it waits for the first
    leave.set()
    for thread in threads:
        thread.join(10)
    assert seen == ["tf32", "ieee"]
    assert formats() == before


@pytest.mark.parametrize(("precision", "format_"), [("float32", "ieee"), ("tf32", "tf32")])
def test_a_backbone_on_a_gpu_computes_in_its_precision(checkpoints, precision, format_):
    backbone = load_backbone(str(checkpoints["tiny-vivit"]), "cpu", precision=precision)
    seen = []

    def encode(pixels: Any, present: Any, names: Any) -> dict[str, torch.Tensor]:
        seen.extend(formats())
        return {
            spec.name: torch.zeros(1, *spec.shape) for spec in backbone.arrays if spec.name in names
        }

    with FakeTensorMode():
        pixels = torch.zeros(1, 8, 3, 32, 32, device="cuda:1")
    on_gpu = replace(backbone, device="cuda:1", encode_clips=encode)
    on_gpu.embed_clips(pixels, pixels)
    assert seen == [format_] * 3


def test_tf32_on_a_cpu_is_float32(checkpoints):
    pixels = torch.rand(2, 8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    present = torch.ones(2, 8, dtype=torch.bool)
    rows = [
        load_backbone(str(checkpoints["tiny-vivit"]), "cpu", precision=precision).embed_clips(
            pixels, present
        )
        for precision in ("float32", "tf32")
    ]
    for name, values in rows[0].items():
        assert torch.equal(values, rows[1][name])


def test_memory_errors_are_recognised_by_what_the_libraries_say(monkeypatch):
    without_words = torch.OutOfMemoryError()
    monkeypatch.delattr(torch, "OutOfMemoryError")  # torch 2.4 has none
    assert is_out_of_memory(without_words)
    for message in (
        "CUDA out of memory. Tried to allocate 2.00 GiB.",
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "MPS backend out of memory (MPS allocated: 9 GB)",
        "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
        "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory",
    ):
        assert is_out_of_memory(RuntimeError(message)), message
    assert is_out_of_memory(MemoryError())
    for message in (
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED",
        "cuDNN error: CUDNN_STATUS_BAD_PARAM",
    ):
        assert not is_out_of_memory(RuntimeError(message)), message


def test_memory_is_freed_on_the_device_in_use_alone(monkeypatch):
    """With another current device, torch would open a context on that one."""
    current, freed = [0], []

    @contextlib.contextmanager
    def device(name: str) -> Iterator[None]:
        current.append(torch.device(name).index)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(current[-1]))
    free_memory("cuda:1")
    assert freed == [1]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a machine of 128 cores, all of which this process may use."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(128)), raising=False)
    return tmp_path


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


V1 = "sys/fs/cgroup/cpu"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 128),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, 128),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "450000 100000"}, 4),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        # The tightest of a group and those above it, as Slurm and systemd nest them.
        (
            {
                "proc/self/cgroup": "0::/slurm/job_7/step_0",
                "sys/fs/cgroup/slurm/job_7/step_0/cpu.max": "max 100000",
                "sys/fs/cgroup/slurm/job_7/cpu.max": "800000 100000",
                "sys/fs/cgroup/slurm/cpu.max": "6400000 100000",
            },
            8,
        ),
        # A container that is given the path of the host.
        ({"proc/self/cgroup": "0::/docker/5f", "sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
        # Version 1, with its other hierarchies, and the empty one of version 2.
        (
            {
                "proc/self/cgroup": "9:memory:/a\n4:cpu,cpuacct:/job:1\n1:cpuset:/a\n0::/a",
                f"{V1}/job:1/cpu.cfs_quota_us": "600000",
                f"{V1}/job:1/cpu.cfs_period_us": "100000",
                f"{V1}/cpu.cfs_quota_us": "-1",
                f"{V1}/cpu.cfs_period_us": "100000",
            },
            6,
        ),
    ],
    ids=["none", "no limit", "container", "half", "nested", "host path", "version 1"],
)
def test_the_quota_of_a_container_or_a_job_limits_the_cores(machine, files, cores):
    write(machine, files)
    assert usable_cores(machine) == cores


def test_affinity_limits_the_cores_too(machine, monkeypatch):
    write(machine, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "400000 100000"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert usable_cores(machine) == 2


@pytest.mark.parametrize(
    ("cores", "gpus", "device", "workers"),
    [
        (16, 0, "cpu", 15),
        (16, 1, "cuda:0", 15),
        (16, 4, "cuda:2", 3),
        (16, 4, "cpu", 15),
        (2, 4, "cuda:0", 1),
        (128, 2, "cuda:1", 32),
    ],
)
def test_a_gpu_has_its_share_of_the_cores(monkeypatch, cores, gpus, device, workers):
    monkeypatch.setattr("obygaze_features.backbones.devices.usable_cores", lambda: cores)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert default_workers(device) == workers
