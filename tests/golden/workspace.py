"""A copy of the golden data, in which commands run."""

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

DATA = Path(__file__).parent / "data"


def copy_data(folder: Path) -> Path:
    shutil.copytree(DATA, folder)
    # Git keeps no empty folders, and a checkout may be read-only.
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def draw_photos(folder: Path) -> None:
    (folder / "images").mkdir()
    chance = np.random.default_rng(5)
    for name in ("one", "two"):
        pixels = chance.integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{name}.png")
    (folder / "images.csv").write_text("id,kind,media\none,image,one.png\ntwo,image,two.png\n")
