"""The authors' annotations and splits, with synthetic features in which concepts can be found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from obygaze_features.manifests import Manifest
from obygaze_features.manifests.importers.obygaze12 import read_released_splits
from obygaze_features.manifests.manifest import save_parts
from obygaze_features.store import ArraySpec, Done, Recipe, StoreWriter

ARRAYS = {"xclip": ("native", "max"), "vivit": ("cls", "max"), "lsmdc": ("native", "max")}
BACKBONES = {"xclip": "xclip", "vivit": "vivit", "lsmdc": "xclip-lsmdc"}


@dataclass(frozen=True)
class FakeDataset:
    """The authors' manifest, and a store for each of their backbones."""

    manifest: Path
    stores: dict[str, Path]


def make_fake_dataset(
    folder: Path, data: Path, *, widths: tuple[int, int, int], signal: float = 0.08
) -> FakeDataset:
    """Each visual concept adds its own direction to the noise, and Sure one more.

    `widths` are those of the features of X-CLIP, ViViT and X-CLIP as retrained on LSMDC.
    """
    Manifest.from_obygaze12(data / "obygaze12/ObyGaze12_thresh_02.csv").save(folder / "manifest")
    manifest = Manifest.load(folder / "manifest")
    splits, runs = read_released_splits(data / "obygaze12", manifest)
    save_parts(folder / "manifest", [*splits, *runs])
    labels = manifest.labels("paper")
    shown = np.array(
        [
            [*(name in of for name in manifest.scheme.visual_concepts), level == "S"]
            for level, of in zip(labels.levels, labels.concepts, strict=True)
        ]
    )
    chance = np.random.default_rng(3)
    stores = {}
    for (name, arrays), width in zip(ARRAYS.items(), widths, strict=True):
        recipe = Recipe(
            name=name,
            backbone={"name": BACKBONES[name], "revision": "1", "weights_sha256": "0" * 64,
                      "config": {"synthetic": "made-up features"}},
            preprocessing={"mode": "standard"},
            precision="float32",
            arrays=tuple(ArraySpec(one, (width,), "float32", "made up") for one in arrays),
        )  # fmt: skip
        values = {}
        for one in arrays:
            directions = chance.normal(size=(shown.shape[1], width))
            noise = chance.normal(size=(len(shown), width))
            features = noise + signal * shown @ directions
            features /= np.linalg.norm(features, axis=1, keepdims=True)
            values[one] = features.astype(np.float32)
        stores[name] = folder / f"{name}.zarr"
        writer = StoreWriter.create(stores[name], manifest, recipe, block_rows=512)
        for block, start in enumerate(range(0, len(manifest), 512)):
            rows = range(start, min(start + 512, len(manifest)))
            writer.write_block(
                block, [Done({one: of[row] for one, of in values.items()}, None) for row in rows]
            )
    return FakeDataset(folder / "manifest", stores)
