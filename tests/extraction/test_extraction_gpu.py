"""A GPU: what it computes, and its benchmark, which must run through on a CPU as well."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu_device import Bench
from obygaze_features.backbones.devices import choose_device

#: Runs the benchmark without what a GPU's machine lacks.
GUARDED = """
import runpy, sys
lacking = ["click", "h5py", "matplotlib", "pandas", "pyarrow", "scipy", "sklearn", "skops"]
if not {"passes", "bits", "memory", "nvdec"} & set(sys.argv):
    lacking += ["zarr", "numcodecs", "donfig"]
sys.modules.update(dict.fromkeys(lacking))
runpy.run_module("benchmarks.gpu", run_name="__main__")
"""


class Few(Bench):
    """A network that sees and one that hears, in place of every family."""

    families = ("tiny-xclip", "tiny-ast")


def test_the_benchmark_compares_what_sees_and_what_hears(tmp_path):
    bench = Few("cpu", tmp_path, small=True)
    parity, resize = (list(gpu.section(name)(bench)) for name in ("parity", "resize"))
    assert [result for result in [*parity, *resize] if not result.holds] == []
    assert {result.name.partition(",")[0] for result in parity} == set(Few.families)
    # Only what sees has pictures to resize.
    assert {re.split("[ ,]+", result.name)[1] for result in resize} == {"tiny-xclip"}


@pytest.mark.gpu
@pytest.mark.parametrize("section", ["parity", "resize", "bits", "memory"])
def test_a_gpu_computes_what_a_cpu_does(tmp_path, section):
    """With tiny networks and short clips."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    results = list(gpu.section(section)(Bench(choose_device("cuda"), tmp_path, small=True)))
    assert results
    assert [result for result in results if not result.holds] == []


@pytest.mark.night
def test_the_benchmark_runs_on_a_cpu(tmp_path):
    """Every section but NVDEC's, which has no figures."""
    environment = {
        **os.environ, gpu.SMALL: "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
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
