"""The doctor against package metadata and pip, and commands when a package cannot be imported."""

import json
import os
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from obygaze_features.backbones import devices
from obygaze_features.commands.doctor import EXTRAS, check_extra

doctor = import_module("obygaze_features.commands.doctor")  # the package has its command


@pytest.fixture
def without_imports(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "try_imports", lambda packages: dict.fromkeys(packages, ""))


@pytest.mark.usefixtures("without_imports")
def test_every_extra_is_a_job_listing_its_packages(obygaze) -> None:
    extras = set(metadata.metadata("obygaze").get_all("Provides-Extra"))
    assert set(EXTRAS) - {""} == extras - {"all", "bench", "dev", "docs"}
    about = json.loads(obygaze("doctor", "--json").stdout)
    extract = next(job for job in about["jobs"] if job["extra"] == "extract")
    packages = {"av", "pillow", "safetensors", "sentencepiece", "torch", "transformers"}
    assert set(extract["installed"]) | set(extract["missing"]) == packages
    core = about["jobs"][0]
    assert (core["ready"], core["installed"]["zarr"]) == (True, metadata.version("zarr"))
    assert "torch" not in core["installed"]


@pytest.mark.usefixtures("without_imports")
def test_missing_and_old_packages_are_named_with_their_remedy(monkeypatch, obygaze) -> None:
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


@pytest.mark.usefixtures("without_imports")
def test_usable_gpus_are_listed(monkeypatch: pytest.MonkeyPatch, obygaze) -> None:
    gpu = SimpleNamespace(name="NVIDIA H200", total_memory=140 * 2**30, major=9)
    busy = "CUDA error: all CUDA-capable devices are busy or unavailable"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(devices, "usable_cores", lambda: 16)
    monkeypatch.setattr(doctor, "try_device", lambda device: busy if device == "cuda:1" else "")
    printed = json.loads(obygaze("doctor", "--json").stdout)["devices"]
    assert printed["cuda:0"] == "NVIDIA H200, 140 GiB, tf32 and bfloat16 are fast"
    assert printed["cuda:1"] == f"CANNOT be used: {busy}"
    assert printed["torch"] == f"{torch.__version__}, built for CUDA 12.8"
    assert printed["workers"].startswith("7 processes decode by default")


def install_broken(site: Path, error: str) -> Path:
    """Install a torchvision built for another torch, and timm, which imports it."""
    for name, version, needs, code in (
        ("torchvision", "0.28.0", "torch", f"raise {error}"),
        ("timm", "1.0.31", "torchvision", "import torchvision"),
    ):
        info = site / f"{name}-{version}.dist-info"
        for folder in (site / name, info):
            folder.mkdir(parents=True)
        (site / name / "__init__.py").write_text(code)
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: {needs}\n"
        (info / "METADATA").write_text(about)
        (info / "top_level.txt").write_text(name)
    return site


def test_a_package_that_cannot_be_imported_is_not_ready(tmp_path, monkeypatch, obygaze) -> None:
    missing = "OSError('libc10_cuda.so: cannot open shared object file\\nNo such file')"
    monkeypatch.syspath_prepend(install_broken(tmp_path, missing))
    jobs = {extra: EXTRAS[extra] for extra in ("", "timm")}
    monkeypatch.setattr(doctor, "EXTRAS", jobs)
    lines = obygaze("doctor", code=0).stdout.splitlines()  # what every job needs is there
    core, timm = (next(line for line in lines if line.startswith(jobs[e])) for e in jobs)
    assert ("ready" in core, "BROKEN" in timm, "timm cannot be imported" in timm) == (True,) * 3
    [reason] = [line for line in lines if "libc10_cuda.so" in line]
    for fact in ("timm: torchvision 0.28.0 ", f"build for torch {torch.__version__},", "uninstall"):
        assert fact in reason
    (tmp_path / "lab_crash.py").write_text("import os; os._exit(7)")
    assert doctor.try_imports(["colorsys", "lab_crash", "wave"]) == {
        "colorsys": "", "lab_crash": "importing it ended the process (exit code 7)", "wave": "",
    }  # fmt: skip


LOAD = """
import obygaze_features as of
from obygaze_models.commands.main import main
for spec in ("tiny-xclip", "timm:test_vit"):
    try:
        of.load_backbone(spec, "cpu")
    except of.ObygazeError as error:
        print(error)
main(["features", "backbones", "tiny-xclip", "--download"])
"""


#: The way transformers imports names on demand. The real import takes many seconds.
LAZY = """
def __getattr__(name):
    try:
        import torchvision
    except RuntimeError as problem:
        raise ModuleNotFoundError(f"Could not import module '{name}'.") from problem
"""


@pytest.mark.parametrize("lazy", [LAZY, pytest.param("", marks=pytest.mark.gate)])
def test_loading_names_the_package_that_cannot_be_imported(tmp_path, lazy) -> None:
    site = install_broken(tmp_path, "RuntimeError('operator torchvision::nms does not exist')")
    if lazy:
        (site / "transformers.py").write_text(lazy)
    paths = os.pathsep.join([str(Path(__file__).parents[2]), str(site)])
    run = subprocess.run(
        [sys.executable, "-c", LOAD], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True,
    )  # fmt: skip
    lines = [*run.stdout.splitlines(), *run.stderr.splitlines()]
    begins = ("torchvision", "timm:test_vit cannot", "Error: torchv")
    assert [line[: len(text)] for line, text in zip(lines, begins, strict=True)] == [*begins]
    for line in lines:
        assert "torchvision 0.28.0 is installed but cannot be imported (RuntimeError: op" in line
        assert f"build for torch {torch.__version__}, or remove it" in line
    assert run.returncode == 1
