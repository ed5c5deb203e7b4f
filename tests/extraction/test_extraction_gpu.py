"""GPUs: what they compute, and the benchmark, which must also run on a CPU."""

import json
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from benchmarks import gpu, hour
from benchmarks.gpu_device import Bench, Film
from obygaze_features.backbones.devices import choose_device

#: Run the benchmark without packages that the GPU machine lacks.
GUARDED = """
import runpy, sys
lacking = ["click", "h5py", "matplotlib", "pandas", "scipy", "sklearn"]
sys.modules.update(dict.fromkeys(lacking))
runpy.run_module("benchmarks.gpu", run_name="__main__")
"""


class Few(Bench):
    """Use one network for pictures, one for sound, and short films, instead of every family."""

    families = ("tiny-xclip", "tiny-ast")
    three = ("tiny-xclip",)
    films: ClassVar = {
        "scenes": Film(32, 128, 0.5, files=1),
        "shots": Film(32, 128, 0.25, files=1),
        "long": Film(32, 128, 11, files=1),
    }

    def processes(self, count):
        return ThreadPoolExecutor(count)


@pytest.mark.parametrize("name", [name for name in gpu.SECTIONS if name != "nvdec"])
def test_every_section_of_the_benchmark_gives_figures(tmp_path, name):
    """Sizes are minimal. On a CPU, there are no figures for NVDEC."""
    results = list(gpu.section(name)(Few("cpu", tmp_path, small=True)))
    assert results
    assert [result for result in results if not result.holds] == []
    labels = [result.name for result in results]
    if name == "parity":
        assert {label.partition(",")[0] for label in labels} == set(Few.families)
    if name == "long":
        assert all("clips of 132 frames" in label for label in labels)


def test_a_time_limit_skips_the_last_sections(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        hour.main(["--minutes", "0", "--work", str(tmp_path), "sound", "machine"])
    lines = capsys.readouterr().out.split("\n")
    assert [line.split()[0] for line in lines if "left out" in line] == ["machine", "sound"]
    assert ended.value.code == 1


def test_carried_wheels_are_imported_from_a_folder(tmp_path):
    with zipfile.ZipFile(tmp_path / "lent-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("lent/__init__.py", "here = True")
    assert hour.unpack(tmp_path / "none", tmp_path / "out") == []
    assert hour.unpack(tmp_path, tmp_path / "out") == [tmp_path / "out"]
    assert (tmp_path / "out/lent/__init__.py").read_text() == "here = True"


@pytest.mark.gpu
@pytest.mark.parametrize("section", ["parity", "bits", "memory"])
def test_a_gpu_computes_what_a_cpu_does(tmp_path, section):
    """Networks are tiny, and clips short."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    results = list(gpu.section(section)(Bench(choose_device("cuda"), tmp_path, small=True)))
    assert results
    assert [result for result in results if not result.holds] == []


@pytest.mark.night
def test_the_benchmark_runs_on_a_cpu(tmp_path):
    """On a CPU, the NVDEC section has no figures."""
    environment = {
        **os.environ, gpu.SMALL: "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-c", GUARDED, "--out", tmp_path / "out"],
        env=environment, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    files = (tmp_path / "out").glob("*.json")
    results = {path.stem: json.loads(path.read_text()) for path in files}
    assert set(results) == {f"gpu-{name}" for name in gpu.SECTIONS if name != "nvdec"}
    assert all(row["holds"] for rows in results.values() for row in rows)
