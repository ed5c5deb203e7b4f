"""A small world of clips, labels and features, on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from obygaze_features.manifests import (
    Concept,
    Item,
    Items,
    LabelScheme,
    LabelSet,
    Level,
    Manifest,
    Split,
)
from obygaze_features.store import ArraySpec, Done, Recipe, StoreWriter

LEVELS = {"EN": "Easy Negative", "HN": "Hard Negative", "NS": "Not Sure", "S": "Sure"}
RECIPE = Recipe(
    name="toy",
    backbone={"name": "tiny", "revision": "1", "weights_sha256": "0" * 64, "config": {}},
    preprocessing={"mode": "standard"},
    precision="float32",
    arrays=(
        ArraySpec("native", (8,), "float32", "one vector a clip"),
        ArraySpec("frames", (4, 8), "float16", "one vector a frame"),
    ),
)


@dataclass(frozen=True)
class World:
    """A manifest and a store on disk, and the numbers that are in them."""

    folder: Path
    ids: list[str]
    levels: list[str]
    folds: list[int]
    features: np.ndarray

    @property
    def manifest(self) -> Path:
        return self.folder / "manifest"

    @property
    def store(self) -> Path:
        return self.folder / "toy.zarr"


CONCEPTS = ("Look", "Body", "Posture")


def make_world(
    folder: Path, *, recipe: Recipe = RECIPE, synthetic: str = "", marked: bool = False
) -> World:
    """200 clips of four levels in ten folds; S lies apart from the rest, with some overlap.

    Where `marked`, every clip but EN shows some of three concepts, which its features tell.
    """
    chance = np.random.default_rng(12)
    ids = [f"tt{film}-{scene:03}" for film in range(4) for scene in range(50)]
    levels = [list(LEVELS)[row % 4] for row in range(len(ids))]
    folds = [row // 4 % 10 for row in range(len(ids))]
    features = chance.normal(size=(len(ids), 8)).astype(np.float32)
    features[np.array(levels) == "S"] += 0.8
    shows = chance.random((len(ids), len(CONCEPTS))) < 0.5
    shows[np.array(levels) == "EN"] = False
    if marked:
        features[:, : len(CONCEPTS)] += 2 * shows
    concepts = [
        tuple(name for name, there in zip(CONCEPTS, row, strict=True) if there and marked)
        for row in shows.tolist()
    ]
    scheme = tuple(Level(*level) for level in LEVELS.items())
    manifest = Manifest(
        name="toy",
        items=Items.of(
            [Item(one, film=one.split("-")[0], media=f"{one}.mp4") for one in ids],
            {"synthetic": [synthetic] * len(ids)},
        ),
        scheme=LabelScheme("levels", scheme, tuple(map(Concept, CONCEPTS)) if marked else ()),
        source="a test",
        licence="CC0",
    ).with_parts(
        labels=[LabelSet("all", ids, levels, concepts)],
        splits=[Split("ten", ids, folds)],
    )
    manifest.save(folder / "manifest")
    world = World(folder, ids, levels, folds, features)
    write_store(world.store, manifest, dict(zip(ids, features, strict=True)), recipe)
    return world


def write_store(
    path: Path, manifest: Manifest, features: dict[str, np.ndarray], recipe: Recipe = RECIPE
) -> None:
    """A store of the manifest's items, rows in the manifest's order."""
    writer = StoreWriter.create(path, manifest, recipe, block_rows=64)
    for start in range(0, len(manifest), 64):
        rows = [features[one] for one in manifest.ids[start : start + 64]]
        writer.write_block(
            start // 64,
            [
                Done({"native": row, "frames": np.tile(row, (4, 1)).astype(np.float16)}, None)
                for row in rows
            ],
        )
