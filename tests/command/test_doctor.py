"""What the doctor says, against what the package's own metadata and pip say."""

import json
from importlib import import_module, metadata
from types import SimpleNamespace

import pytest
import torch

from obygaze_features.backbones import devices
from obygaze_features.commands.doctor import EXTRAS, check_extra

doctor = import_module("obygaze_features.commands.doctor")  # the package has its command


def test_every_extra_is_a_job_with_its_packages(obygaze) -> None:
    extras = set(metadata.metadata("obygaze").get_all("Provides-Extra"))
    assert set(EXTRAS) - {""} == extras - {"all", "bench", "dev", "docs"}
    about = json.loads(obygaze("doctor", "--json").stdout)
    extract = next(job for job in about["jobs"] if job["extra"] == "extract")
    packages = {"av", "pillow", "safetensors", "sentencepiece", "torch", "transformers"}
    assert set(extract["installed"]) | set(extract["missing"]) == packages
    core = about["jobs"][0]
    assert (core["ready"], core["installed"]["zarr"]) == (True, metadata.version("zarr"))
    assert "torch" not in core["installed"]


def test_what_is_missing_or_too_old_is_named_with_its_remedy(monkeypatch, obygaze) -> None:
    changed, real = {"av": "", "pillow": "2.0.1"}, metadata.version

    def version(name: str) -> str:
        if changed.get(name) == "":
            raise metadata.PackageNotFoundError(name)
        return changed.get(name) or real(name)

    monkeypatch.setattr(metadata, "version", version)
    assert check_extra("extract")["missing"] == ["av", "pillow>=10.1 (you have 2.0.1)"]
    result = obygaze("doctor")
    assert "pip install 'obygaze[extract]'" in result.output
    assert result.exit_code == 0  # what every job needs is there
    changed["zarr"] = ""
    assert obygaze("doctor").exit_code == 1


def test_a_gpu_user_sees_what_can_be_used(monkeypatch: pytest.MonkeyPatch, obygaze) -> None:
    gpu = SimpleNamespace(name="NVIDIA H200", total_memory=140 * 2**30, major=9)
    busy = "CUDA error: all CUDA-capable devices are busy or unavailable"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(devices, "usable_cores", lambda: 16)
    monkeypatch.setattr(doctor, "try_device", lambda device: busy if device == "cuda:1" else "")
    shown = json.loads(obygaze("doctor", "--json").stdout)["devices"]
    assert shown["cuda:0"] == "NVIDIA H200, 140 GiB, tf32 and bfloat16 are fast"
    assert shown["cuda:1"] == f"CANNOT be used: {busy}"
    assert shown["torch"] == f"{torch.__version__}, built for CUDA 12.8"
    assert shown["workers"].startswith("7 processes decode by default")
