"""A backbone is added in one file and one line, as CONTRIBUTING.md says, and extracted with."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from obygaze_features.store import open_store

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the command needs, in which a contributor may write."""
    folder = tmp_path / "checkout"
    for name in ("obygaze_features", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "cli.py", folder)
    (folder / "manifests").symlink_to(ROOT / "manifests")
    return folder


def sources(checkout: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in checkout.rglob("*.py")}


def run(line: str, checkout: Path) -> str:
    """A line of a console; the command is that of the copy."""
    name, *arguments = shlex.split(line)
    own = [sys.executable, "-c", "from cli import main; main()"]
    done = subprocess.run(
        [*(own if name == "obygaze" else [name]), *arguments],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def expected(video: Path, weights: dict[str, np.ndarray]) -> np.ndarray:
    """The four frames' mean colours, mixed: with PIL and numpy."""
    with av.open(str(video)) as container:
        every = [frame.to_image() for frame in container.decode(video=0)]
    rows = []
    for place in range(4):
        picture = every[place * len(every) // 4]
        assert picture.width >= picture.height
        wide = 16 * picture.width // picture.height
        small = picture.resize((wide, 16), Image.Resampling.BILINEAR)
        left = (wide - 16) // 2
        colour = np.asarray(small)[:, left : left + 16].mean((0, 1)) / 255
        rows.append(weights["weight"] @ ((colour - 0.5) / 0.25) + weights["bias"])
    return np.stack(rows)


@pytest.mark.gate
def test_one_file_and_one_line_add_a_backbone(checkout: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("\n## A backbone, step by step\n")[2].partition("\n## ")[0]
    (_, first), (_, lines), (_, then) = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
    before = sources(checkout)

    [copy] = first.split("$ ")[1:]
    run(copy, checkout)
    registry = checkout / "obygaze_features/backbones/registry.py"
    old = registry.read_text()
    above, new, below = lines.splitlines(keepends=True)
    assert old.count(above + below) == 1
    registry.write_text(old.replace(above + below, above + new + below))
    after = sources(checkout)
    assert {path.name for path in after if after[path] != before.get(path)} == {
        "registry.py",
        "toy.py",
    }

    assert "tiny-toy" in run("obygaze features backbones", checkout)
    for line in then.split("$ ")[1:]:
        run(line, checkout)

    store = open_store(checkout / "toy/stores/mine.zarr")
    backbone = store.attributes["backbone"]
    assert (backbone["name"], backbone["family"]) == ("mine", "toy")
    weights = load_file(checkout / "toy/weights/model.safetensors")
    videos = sorted((checkout / "toy/data/videos").rglob("*.mp4"))
    assert len(store.ids) == len(videos) == 12
    for name, video in zip(store.ids, videos, strict=True):
        row, frames = store[name], expected(video, weights)
        np.testing.assert_allclose(row["frames"], frames, atol=0.05)
        np.testing.assert_allclose(row["native"], frames.mean(0), atol=0.05)
        np.testing.assert_allclose(row["max"], frames.max(0), atol=0.05)
    assert np.ptp([store[name]["native"] for name in store.ids], axis=0).min() > 0.2
