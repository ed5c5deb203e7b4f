"""A GPU: what it computes, and its benchmark, which must run through on a CPU as well."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import obygaze_features as of
from benchmarks import gpu
from benchmarks.gpu_device import Bench
from obygaze_features.backbones.devices import choose_device, limit_gpu_share

ROOT = Path(__file__).resolve().parents[2]


#: Runs the benchmark without what a GPU's machine lacks.
GUARDED = """
import runpy, sys
lacking = ["click", "h5py", "matplotlib", "pandas", "pyarrow", "scipy", "sklearn", "skops"]
if not {"passes", "bits", "memory", "nvdec"} & set(sys.argv):
    lacking += ["zarr", "numcodecs", "donfig"]
sys.modules.update(dict.fromkeys(lacking))
runpy.run_module("benchmarks.gpu", run_name="__main__")
"""


@pytest.fixture
def bench(tmp_path):
    """The GPU with tiny networks and short clips."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return Bench(choose_device("cuda"), tmp_path, small=True)


@pytest.mark.gpu
@pytest.mark.parametrize("section", ["parity", "resize", "bits", "memory"])
def test_a_gpu_computes_what_a_cpu_does(bench, section):
    results = list(gpu.section(section)(bench))
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
def test_the_benchmark_runs_on_a_cpu(tmp_path):
    """Every section but NVDEC's, which has no figures."""
    environment = {
        **os.environ, gpu.SMALL: "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    names = list(gpu.SECTIONS)
    for sections in (names[:5], names[5:]):
        assert sum(gpu.SECTIONS[name] for name in sections) <= 300  # two calls of five minutes
        run = subprocess.run(
            [sys.executable, "-c", GUARDED, "--out", tmp_path / "out", *sections],
            env=environment, cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert run.returncode == 0, run.stdout + run.stderr
    files = (tmp_path / "out").glob("*.json")
    results = {path.stem: json.loads(path.read_text()) for path in files}
    assert set(results) == {f"gpu-{name}" for name in gpu.SECTIONS if name != "nvdec"}
    assert all(row["holds"] for rows in results.values() for row in rows)
