"""A GPU: what it computes, and its benchmark, which must run through on a CPU as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import obygaze_features as of
from benchmarks import __main__ as benchmarks
from benchmarks import gpu
from benchmarks.gpu_device import Bench
from benchmarks.result import Result
from obygaze_features.backbones.devices import choose_device, limit_gpu_share

ROOT = Path(__file__).resolve().parents[2]
NOT_IN_A_CHECKOUT = ("obygaze", "_editable_impl_obygaze", "decord", "pynvml", "lance")
"""What a checkout on the search path lacks, though the tests' own installation may have it."""
GUARDED = """
import builtins, runpy, sys

ours = {"__main__", "obygaze_features", "benchmarks", "tests"}
allowed = ours | sys.stdlib_module_names | {
    "torch", "transformers", "numpy", "PIL", "safetensors", "tqdm",  # as there
    "huggingface_hub", "tokenizers",  # of transformers
    "av", "zarr", "numcodecs", "donfig", "google_crc32c",  # put on the path
}
load = builtins.__import__


def load_if_allowed(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "").partition(".")[0]
    if importer in ours and not level and name.partition(".")[0] not in allowed:
        raise ModuleNotFoundError(f"{importer} imports {name}", name=name)
    return load(name, globals, locals, fromlist, level)


builtins.__import__ = load_if_allowed
runpy.run_module("benchmarks.gpu", run_name="__main__")
"""
"""Runs the benchmark; our code, and no other, is refused packages that a checkout lacks."""


@pytest.fixture
def bench(tmp_path):
    """The GPU with tiny networks and short clips."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return Bench(choose_device("cuda"), tmp_path, small=True)


@pytest.mark.gpu
@pytest.mark.parametrize("section", ["parity", "resize", "bits", "memory"])
def test_a_gpu_computes_what_a_cpu_does(bench, section):
    results = list(gpu.SECTIONS[section][0](bench))
    assert results
    assert [result for result in results if not result.holds] == []


@pytest.mark.gpu
def test_a_batch_too_large_for_a_gpu_is_halved_and_freed(bench, tmp_path):
    manifest, folder = bench.clips("scenes", 8)
    backbone = bench.backbone("tiny-xclip")
    sizes = []

    def greedy(pixels, present, names):
        sizes.append(len(pixels))
        torch.empty(len(pixels) << 28, dtype=torch.uint8, device=pixels.device)
        return backbone.encode_clips(pixels, present, names)

    memory = torch.cuda.get_device_properties(bench.device).total_memory
    limit_gpu_share(bench.device, 2**30 / memory)
    try:
        large = backbone.with_changes(encode_clips=greedy)
        summary = of.extract(manifest, folder, large, tmp_path / "stores", workers=2)
    finally:
        limit_gpu_share(bench.device, 1.0)
    assert (summary.done, summary.batches) == (8, {"tiny-xclip": 2})
    assert sizes[-4:] == [2, 2, 2, 2]
    assert torch.cuda.memory_allocated(bench.device) < 2**28


@pytest.mark.night
def test_the_benchmark_runs_on_a_cpu_from_a_checkout(tmp_path):
    """Every section but NVDEC's, which has no figures; obygaze is not installed."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for folder in filter(Path.is_dir, map(Path, sys.path)):
        if folder.name in ("site-packages", "dist-packages"):
            for path in folder.iterdir():
                link = packages / path.name
                if not path.name.startswith(NOT_IN_A_CHECKOUT) and not link.exists():
                    link.symlink_to(path)
    environment = {
        **os.environ,
        gpu.SMALL: "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(packages)]),
    }
    run = subprocess.run(
        # -S: without the site-packages of the environment.
        [sys.executable, "-S", "-c", GUARDED, "--out", tmp_path / "out"],
        env=environment, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    files = (tmp_path / "out").glob("*.json")
    results = {path.stem: json.loads(path.read_text()) for path in files}
    assert set(results) == {f"gpu-{name}" for name in gpu.SECTIONS if name != "nvdec"}
    assert all(row["holds"] for rows in results.values() for row in rows)
    assert "NVDEC cannot be used here" in run.stdout


def test_a_section_that_fails_or_is_late_leaves_its_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(gpu.SMALL, "1")

    def broken(bench):
        yield Result("first", 1.0, "s", 2.0, 0.5, 1)
        raise RuntimeError("the device is lost")

    def endless(bench):
        for part in bench.parts(["again", "and again", "for ever"]):
            yield Result(part, 3.0, "s", 2.0, 1.5, 1)

    monkeypatch.setattr(gpu, "SECTIONS", {"broken": (broken, 5), "endless": (endless, 1e-9)})
    with pytest.raises(SystemExit) as end:
        gpu.main(["--out", str(tmp_path)])
    assert end.value.code == 1
    figures = [
        json.loads((tmp_path / f"gpu-{name}.json").read_text()) for name in ("broken", "endless")
    ]
    assert [[row["name"] for row in rows] for rows in figures] == [["first"], ["again"]]
    output = capsys.readouterr()
    assert "the device is lost" in output.err
    assert "left out: and again; for ever" in output.out
    lines = [line for line in output.out.splitlines() if "(2)" in line]
    assert [line.split("  ")[-1] for line in lines] == ["holds", "does not hold"]


def test_without_a_gpu_earlier_results_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(gpu.SMALL, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(benchmarks, "RESULTS", tmp_path)
    benchmarks.main(["gpu"])
    assert capsys.readouterr().out.startswith("no GPU")
    assert list(tmp_path.iterdir()) == []
