"""A folder in which the golden commands run: a copy of the golden data, clips, images, models."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from click.testing import Result
from PIL import Image

from tests.golden.commands import CODES, COMMANDS

DATA = Path(__file__).parent / "data"
EXPECTED = Path(__file__).parent / "expected"


def copy_data(folder: Path) -> Path:
    """The golden data, to be written to."""
    shutil.copytree(DATA, folder)
    # Git keeps no empty folders, and a checkout may be read-only.
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def make_workspace(folder: Path, obygaze: Callable[..., Result]) -> Path:
    """All that `COMMANDS` are given."""
    from tests.kit.models import write_checkpoint, write_gpt2, write_sentence_encoder

    copy_data(folder)
    for name, source in (("finalise", "open"), ("repair", "open"), ("reopen", "final")):
        shutil.copytree(folder / f"{source}.zarr", folder / f"to-{name}.zarr")
    (folder / "out").mkdir()
    # In the current format; test_golden_files.py reads the golden run folder.
    shutil.rmtree(folder / "run")
    run = obygaze("models", "run", folder / "golden.toml", "-o", folder / "run")
    assert run.exit_code == 0, run.output
    result = obygaze("features", "make-clips", folder / "made", "--films", 1, "--scenes", 2,
                   "--seconds", 1)  # fmt: skip
    assert result.exit_code == 0, result.output
    (folder / "made/videos").rename(folder / "films")
    imported = obygaze(
        "manifests", "import", "csv", folder / "made/annotations.csv", "-o", folder / "clips"
    )
    assert imported.exit_code == 0, imported.output
    (folder / "images").mkdir()
    chance = np.random.default_rng(5)
    rows = ["id,kind,media"]
    for name in ("one", "two"):
        pixels = chance.integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{name}.png")
        rows.append(f"{name},image,{name}.png")
    (folder / "images.csv").write_text("\n".join(rows) + "\n")
    imported = obygaze("manifests", "import", "csv", folder / "images.csv", "-o", folder / "photos")
    assert imported.exit_code == 0, imported.output
    exported = obygaze(
        "annotations", "export", folder / "timelines", "--elan", "-o", folder / "elan"
    )
    assert exported.exit_code == 0, exported.output
    exported = obygaze("stores", "export", folder / "final.zarr", "-o", folder / "theirs.h5")
    assert exported.exit_code == 0, exported.output
    for path in (folder / "features").rglob("*.npy"):
        tensor = folder / "tensors" / path.relative_to(folder / "features").with_suffix(".pth")
        tensor.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.from_numpy(np.load(path)), tensor)
    for name, write in (("gpt2", write_gpt2), ("encoder", write_sentence_encoder)):
        (folder / name).mkdir()
        write(folder / name, seed=3)
    write_checkpoint("tiny-clip", folder / "tiny-clip")
    return folder


def run_command(name: str, folder: Path, obygaze: Callable[..., Result]) -> Any:
    """What a golden command prints, as JSON; it runs in the folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        result = obygaze(*shlex.split(COMMANDS[name]), "--json")
    finally:
        os.chdir(before)
    assert result.exit_code == CODES.get(name, 0), f"{name}: {result.exit_code}\n{result.output}"
    return json.loads(result.stdout)
