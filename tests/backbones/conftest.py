"""Small checkpoints of random weights, and a cache of their own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tiny_models import TINY, write_checkpoint


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tiny checkpoints, by name. Nobody writes into them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name in TINY:
        write_checkpoint(name, folder / name)
    return {name: folder / name for name in TINY}


@pytest.fixture
def copy(checkpoints: dict[str, Path], tmp_path: Path):
    """A copy of one, to be damaged."""
    return lambda name: Path(shutil.copytree(checkpoints[name], tmp_path / name))


def pictures(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def all_present(pixels: torch.Tensor) -> torch.Tensor:
    return torch.ones(pixels.shape[:2], dtype=torch.bool)


def in_shards(folder: Path) -> Path:
    """The same weights in two files and an index, as large ones are published."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = {"model-00001-of-00002.safetensors": names[::2],
              "model-00002-of-00002.safetensors": names[1::2]}  # fmt: skip
    for file, its in halves.items():
        save_file({name: tensors[name] for name in its}, folder / file, metadata={"format": "pt"})
    where = {name: file for file, its in halves.items() for name in its}
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
