"""Small stores with known vectors."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.manifests import Item, Items
from obygaze_features.store import ArraySpec, Done, Failed, Recipe, Status, Store, StoreWriter
from tests.kit.store import RECIPE, fill

WIDTH = 32
FRAMES = 4
TOY: Mapping[str, Any] = {**RECIPE.backbone, "family": "toy", "config": {}}
ARRAYS = (
    ArraySpec("native", (WIDTH,), "float32", "a vector"),
    ArraySpec("frames", (FRAMES, WIDTH), "float16", "a vector a frame", padded=True),
    ArraySpec("tokens", (2 * FRAMES, WIDTH), "float16", "two vectors a frame", padded=True),
    ArraySpec("frame_time", (FRAMES,), "float64", "seconds", padded=True),
)
FAILED = 5
PADDED = 2
ZERO = 7
"""The rows that failed, that ends early, and whose vector is zero."""


@dataclass(frozen=True)
class Source:
    path: Path
    ids: list[str]
    films: list[str]
    values: Mapping[str, np.ndarray]
    done: np.ndarray


def make_search_store(
    path: Path,
    n: int = 40,
    *,
    seed: int = 0,
    films: tuple[str, ...] = ("tt1", "tt2", "tt3"),
    backbone: Mapping[str, Any] = TOY,
    arrays: tuple[ArraySpec, ...] = ARRAYS,
    partial: bool = True,
    items: Items | None = None,
) -> Source:
    """Write a store with the rows above; if `partial`, its last block is not done."""
    random = np.random.default_rng(seed)
    values = {}
    for array in arrays:
        numbers = random.standard_normal((n, *array.shape))
        values[array.name] = numbers.astype(array.dtype)
    if "frame_time" in values:
        values["frame_time"] = np.tile(np.arange(FRAMES) * 1.5, (n, 1))
        for name in values.keys() & {"frames", "tokens", "frame_time"}:
            half = values[name].shape[1] // 2
            values[name][PADDED, half:] = np.nan
        values["native"][ZERO] = 0
    if items is None:
        made = []
        for row in range(n):
            film = films[row % len(films)]
            clip = f"{film}-{row:03}"
            made.append(Item(clip, film=film, media=f"{clip}.mp4"))
        items = Items.of(made)
    recipe = Recipe(str(backbone["name"]), backbone, {"mode": "standard"}, "float32", arrays)
    writer = StoreWriter.create(path, items, recipe, block_rows=8)
    blocks = list(range(writer.store.blocks))[: -1 if partial else None]

    def compute(row: int) -> Done | Failed:
        if row == FAILED:
            return Failed(Status.UNREADABLE, "cannot be decoded")
        return Done({name: value[row] for name, value in values.items()}, None)

    fill(writer, blocks, compute)
    done = np.arange(n) < len(blocks) * 8
    done[FAILED] = False
    return Source(path, items.ids, items.films, values, done)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return make_search_store(tmp_path_factory.mktemp("search") / "toy.zarr")


@pytest.fixture
def store(source: Source) -> Store:
    return of.open_store(source.path)
