"""Backbones of another package, and one added to this one as CONTRIBUTING.md says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import obygaze_features as of
from obygaze_features.backbones import known_checkpoints
from obygaze_features.errors import BackboneError
from tests.backbones.conftest import embed

ROOT = Path(__file__).parents[2]
TOY = ROOT / "examples/plugin/film_lab/toy.py"
MAKER = """
import torch
from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.preprocess import CLIP_TORCHVISION
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.store import ArraySpec

NUMBER, ARRAYS = 3, (ArraySpec("native", (3,), "float32", "mean colour"),)

def Colours(mode):
    encode = lambda pixels, present, names: {"native": pixels.mean((1, 3, 4))}
    how = CLIP_TORCHVISION.at(8)
    return Backbone(torch.nn.Linear(3, 3), Sampling(2), how, ARRAYS, encode, (), {"mode": mode})
"""


def test_backbones_of_another_package_are_loaded(install, obygaze, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    files = {"toy.py": TOY.read_text(), "maker.py": MAKER, "bad.py": "class Colours(Unknown): ..."}
    points = {"toy": "toy:FAMILY", "colours": "maker:Colours", "broken": "missing:FAMILY"}
    points = {name: f"mylab.{path}" for name, path in points.items()}
    install(files, points, group="obygaze.backbones")
    assert list(known_checkpoints())[-1] == "tiny-toy"
    assert "tiny-toy" in obygaze("features", "backbones").stdout
    for spec, store, name, family, width in (
        ("tiny-toy", "tiny-toy", "tiny-toy", "toy", 8),
        ("mine=tiny-toy", "mine", "tiny-toy", "toy", 8),
        ("colours", "colours", "colours", "colours", 3),
        ("mine=mylab.maker:Colours", "mine", "mine", "mylab.maker:Colours", 3),
    ):
        backbone = of.load_backbone(spec, "cpu")
        about = backbone.about
        assert (backbone.name, about["name"], about["family"]) == (store, name, family)
        assert len(about["weights_sha256"]) == 64
        native = embed(backbone, torch.ones(2, backbone.sampling.frames, 3, 16, 16))["native"]
        assert native.shape == (2, width)
    for spec, facts in (
        ("broken", "mylab.missing:FAMILY.* cannot be imported"),
        ("mylab.maker:Nothing", "Nothing"),
        ("mylab.maker:NUMBER", "not a class or a function"),
        ("mylab.bad:Colours", r"mylab.bad:Colours.*NameError: .*'Unknown'"),
    ):
        with pytest.raises(BackboneError, match=facts) as caught:
            of.load_backbone(spec, "cpu")
        assert "\n" not in str(caught.value)


def run(line: str, checkout: Path) -> str:
    """A line of a console; the command is that of the copy."""
    name, *arguments = shlex.split(line)
    own = [sys.executable, "-c", "from cli import main; main()"]
    result = subprocess.run(
        [*(own if name == "obygaze" else [name]), *arguments],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.gate
def test_one_file_and_one_line_add_a_backbone(tmp_path):
    checkout = tmp_path / "checkout"
    for name in ("obygaze_features", "examples"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "cli.py", checkout)
    (checkout / "manifests").symlink_to(ROOT / "manifests")
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("\n## A backbone, step by step\n")[2].partition("\n## ")[0]
    (_, first), (_, lines), (_, then) = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
    [copy] = first.split("$ ")[1:]
    before = {path: path.read_bytes() for path in checkout.rglob("*.py")}
    run(copy, checkout)
    registry = checkout / "obygaze_features/backbones/registry.py"
    above, new, below = lines.splitlines(keepends=True)
    old = registry.read_text()
    assert old.count(above + below) == 1
    registry.write_text(old.replace(above + below, above + new + below))
    changed = {
        path.name for path in checkout.rglob("*.py") if path.read_bytes() != before.get(path)
    }
    assert changed == {"registry.py", "toy.py"}

    assert "tiny-toy" in run("obygaze features backbones", checkout)
    for line in then.split("$ ")[1:]:
        run(line, checkout)
    store = of.open_store(checkout / "toy/stores/mine.zarr")
    backbone = store.attributes["backbone"]
    assert (backbone["name"], backbone["family"]) == ("mine", "toy")
    assert len(store.ids) == len(store.done_ids()) == 12
    frames = store.read("frames").astype(np.float32)
    np.testing.assert_allclose(store.read("native"), frames.mean(1), atol=1e-3)
    assert np.ptp(frames.mean(1), axis=0).min() > 0.2
