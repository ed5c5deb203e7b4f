"""A folder in which the golden commands run: a copy of the golden data, clips, images, models."""

from __future__ import annotations

import contextlib
import json
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
PRINTED = "models-run.json"


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
    shutil.rmtree(folder / "run")  # it is of an earlier format
    printed = run_command("models-run", folder, obygaze)
    (folder / PRINTED).write_text(json.dumps(printed))
    shutil.copytree(folder / "out/run", folder / "run")

    def run(command: str) -> None:
        result = obygaze(*(word.replace("@", f"{folder}/") for word in command.split()))
        assert result.exit_code == 0, result.output

    run("features make-clips @made --films 1 --scenes 2 --seconds 1")
    (folder / "made/videos").rename(folder / "films")
    run("manifests import csv @made/annotations.csv -o @clips")
    (folder / "images").mkdir()
    chance = np.random.default_rng(5)
    rows = ["id,kind,media"]
    for name in ("one", "two"):
        pixels = chance.integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{name}.png")
        rows.append(f"{name},image,{name}.png")
    (folder / "images.csv").write_text("\n".join(rows) + "\n")
    run("manifests import csv @images.csv -o @photos")
    run("annotations export @timelines --elan -o @elan")
    run("stores export @final.zarr -o @theirs.h5")
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
    if name == "models-run" and (folder / PRINTED).exists():  # once is enough
        return json.loads((folder / PRINTED).read_text())
    with contextlib.chdir(folder):
        result = obygaze(*shlex.split(COMMANDS[name]), "--json")
    assert result.exit_code == CODES.get(name, 0), f"{name}: {result.exit_code}\n{result.output}"
    return json.loads(result.stdout)
