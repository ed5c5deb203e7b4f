"""GPUs: what they compute, and the benchmark, which must also run on a CPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import obygaze_features as of
from benchmarks import gpu
from obygaze_features.extraction.probe import embed_probe
from tests.kit.models import CHECKPOINTS, TINY, Checkpoints

#: The benchmark needs no packages that a borrowed machine lacks.
GUARDED = """
import runpy, sys
lacking = ["click", "h5py", "matplotlib", "pandas", "scipy", "sklearn"]
sys.modules.update(dict.fromkeys(lacking))
runpy.run_module("benchmarks.gpu", run_name="__main__")
"""


@pytest.mark.night
def test_the_benchmark_runs_on_a_cpu():
    environment = {gpu.SMALL: "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", GUARDED],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert run.returncode == 0, run.stdout + run.stderr
    first, *figures = run.stdout.splitlines()
    assert first.startswith("cpu, torch ")
    assert len(figures) == 3 * len(gpu.NETWORKS)
    assert {f"{gpu.FULL.networks}-{name}" for name in gpu.NETWORKS} <= set(CHECKPOINTS)


@pytest.mark.gpu
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize(("precision", "limit"), [
    ("float32", 1e-4), ("tf32", 1e-4), ("bfloat16", 1e-3),
])  # fmt: skip
def test_a_gpu_computes_what_a_cpu_does(tmp_path, name, precision, limit):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    folder = Checkpoints(tmp_path)[name]
    expected = embed_probe(of.load_backbone(folder, "cpu"))
    computed = embed_probe(of.load_backbone(folder, "cuda", precision=precision))
    for array, values in expected.items():
        left, right = (torch.from_numpy(x).double().flatten() for x in (values, computed[array]))
        is_number = ~left.isnan()
        cosine = torch.cosine_similarity(left[is_number], right[is_number], dim=0)
        assert 1 - cosine < limit, array
