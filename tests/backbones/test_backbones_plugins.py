"""A backbone is added to this package as CONTRIBUTING.md describes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import obygaze_features as of

MAIN = "from obygaze_models.commands.main import main; main()"
ROOT = Path(__file__).parents[2]


def run(lines: str, checkout: Path) -> str:
    """Run console lines with the command from the copied checkout."""
    own = f'obygaze() {{ {sys.executable} -c "{MAIN}" "$@"; }}\n'
    env = os.environ | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["bash", "-ec", own + lines.replace("$ ", "")]
    result = subprocess.run(words, cwd=checkout, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_one_file_and_two_lines_add_a_backbone(tmp_path):
    checkout = tmp_path / "checkout"
    for name in ("obygaze_features", "obygaze_models", "examples"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / "manifests").symlink_to(ROOT / "manifests")
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("\n## A backbone\n")[2].partition("\n## ")[0]
    first, *lists, then = re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)
    before = {path: path.read_bytes() for path in checkout.rglob("*.py")}
    run(first, checkout)
    registry = checkout / "obygaze_features/backbones/registry.py"
    for lines in lists:
        above, new, below = lines.splitlines(keepends=True)
        old = registry.read_text()
        assert old.count(above + below) == 1
        registry.write_text(old.replace(above + below, above + new + below))
    changed = {p.name for p in checkout.rglob("*.py") if p.read_bytes() != before.get(p)}
    assert changed == {"registry.py", "toy.py"}

    assert "tiny-toy" in run("obygaze features backbones", checkout)
    run(then, checkout)
    store = of.open_store(checkout / "toy/stores/tiny-toy.zarr")
    backbone = store.attributes["backbone"]
    assert (backbone["name"], backbone["family"]) == ("tiny-toy", "toy")
    assert len(store.ids) == len(store.done_ids()) == 12
    assert np.ptp(store.read("native"), axis=0).min() > 0.2
