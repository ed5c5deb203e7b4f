"""Small checkpoints of random weights, and images in two groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.tiny_models import write_checkpoint

TINY = ("tiny-clip", "tiny-xclip", "tiny-siglip")


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tiny checkpoints, by name. Nobody writes into them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name in TINY:
        write_checkpoint(name, folder / name)
    return {name: folder / name for name in TINY}


@pytest.fixture
def library(tmp_path, obygaze) -> Path:
    """Twenty images, more than a batch, in a folder; with a manifest."""
    chance = np.random.default_rng(5)
    (tmp_path / "images").mkdir()
    rows = ["id,kind,media,emotion,condition"]
    for n in range(20):
        pixels = chance.integers(0, 256, (48 + n, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"p{n:02}.png")
        rows.append(f"p{n:02},image,p{n:02}.png,{('sad', 'angry')[n % 2]},{('NO', 'O')[n > 12]}")
    (tmp_path / "images.csv").write_text("\n".join(rows) + "\n")
    made = obygaze("manifests", "import", "csv", tmp_path / "images.csv", "-o", tmp_path / "women")
    assert made.exit_code == 0, made.output
    return tmp_path
