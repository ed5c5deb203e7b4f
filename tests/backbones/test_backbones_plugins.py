"""Backbones of another installed package: by entry point, and as ``module:Class``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from obygaze_features.backbones.registry import find_maker
from obygaze_features.errors import BackboneError

ROOT = Path(__file__).parents[2]

MAKER = '''
import torch
from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.preprocess import CLIP_TORCHVISION
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.store import ArraySpec


class Colours(Backbone):
    """The mean colour of each frame."""

    def __init__(self, mode):
        def encode(pixels, present, wanted):
            return {"native": pixels.mean((1, 3, 4))}

        arrays = (ArraySpec("native", (3,), "float32", "mean colour"),)
        super().__init__(torch.nn.Linear(3, 3), Sampling(2), CLIP_TORCHVISION.at(8), arrays,
                         encode, (), {"mode": mode})


NUMBER = 3
'''
ENTRY_POINTS = """[obygaze.backbones]
toy = toy_package.toy:FAMILY
colours = toy_package.maker:Colours
broken = toy_package.missing:FAMILY
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package."""
    package, info = tmp_path / "toy_package", tmp_path / "toy_package-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").touch()
    (package / "maker.py").write_text(MAKER)
    shutil.copy(ROOT / "examples/plugin/film_lab/toy.py", package / "toy.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return tmp_path


def run(site: Path, code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "XDG_CACHE_HOME": str(site / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


LOAD = """
import json, torch
from obygaze_features.backbones import known_checkpoints, load_backbone
from obygaze_features.errors import BackboneError

found = {"known": list(known_checkpoints())}
for spec in ("tiny-toy", "mine=tiny-toy", "colours", "mine=toy_package.maker:Colours"):
    backbone = load_backbone(spec, "cpu")
    clips = torch.ones(2, backbone.sampling.frames, 3, 16, 16)
    native = backbone.embed_clips(clips, torch.ones(clips.shape[:2], dtype=torch.bool))["native"]
    about = {key: value for key, value in backbone.about.items() if key != "config"}
    found[spec] = [backbone.name, about, list(native.shape)]
for spec in ("broken", "toy_package.maker:Nothing", "toy_package.maker:NUMBER", "nobody:Class"):
    try:
        load_backbone(spec, "cpu")
    except BackboneError as problem:
        found[spec] = str(problem)
print(json.dumps(found))
"""


def test_backbones_of_another_package_are_loaded(site: Path) -> None:
    found = json.loads(run(site, LOAD))
    assert found["known"][-1] == "tiny-toy"
    for spec, store, recorded, family, shape in (
        ("tiny-toy", "tiny-toy", "tiny-toy", "toy", [2, 8]),
        ("mine=tiny-toy", "mine", "tiny-toy", "toy", [2, 8]),
        ("colours", "colours", "colours", "colours", [2, 3]),
        ("mine=toy_package.maker:Colours", "mine", "mine", "toy_package.maker:Colours", [2, 3]),
    ):
        name, about, native = found[spec]
        assert (name, about["name"], about["family"], native) == (store, recorded, family, shape)
        assert len(about["weights_sha256"]) == 64
    assert found["broken"].startswith("toy_package.missing:FAMILY cannot be imported")
    assert "toy_package.missing" in found["broken"]
    assert "Nothing" in found["toy_package.maker:Nothing"]
    assert "not a class or a function" in found["toy_package.maker:NUMBER"]
    assert "nobody" in found["nobody:Class"]


def test_a_plugin_is_listed_and_extracted_with(site: Path) -> None:
    """By the commands, without a change of ours."""
    commands = """
import os
from cli import main
os.chdir({folder!r})
for line in (
    "features backbones",
    "features make-clips made --films 1 --scenes 2 --seconds 1",
    "manifests import csv made/annotations.csv -o clips",
    "features extract clips --videos made/videos --backbone tiny-toy -o stores",
):
    main(line.split(), standalone_mode=False)
"""
    printed = run(site, commands.format(folder=str(site)))
    assert "tiny-toy" in printed
    assert (site / "stores/tiny-toy.zarr/zarr.json").is_file()


def test_a_module_that_raises_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_maker.py").write_text("class Colours(Unknown):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackboneError, match=r"broken_maker:Colours: NameError: .*'Unknown'"):
        find_maker("broken_maker:Colours")
