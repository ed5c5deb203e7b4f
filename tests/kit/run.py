"""Clips with labels, folds and informative features on disk, and experiments on them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, starmap
from pathlib import Path
from typing import Any

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
CONCEPTS = ("Look", "Body", "Posture")
# the fewest films for intervals, and clips of each
FILMS = 5
SCENES = 40
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

    @property
    def rows(self) -> dict[str, np.ndarray]:
        return dict(zip(self.ids, self.features, strict=True))

    def clips(self, *levels: str, folds: object = range(10)) -> list[str]:
        rows = zip(self.ids, self.levels, self.folds, strict=True)
        return [clip for clip, level, fold in rows if level in levels and fold in folds]  # type: ignore[operator]


def make_world(folder: Path, *, marked: bool = False) -> World:
    """Write 200 clips of four levels in ten folds; S is distinct from the rest, with some overlap.

    If `marked`, clips other than EN have up to three concepts, which their features show, and there
    is also a split of three folds.
    """
    chance = np.random.default_rng(12)
    ids = [f"tt{film}-{scene:03}" for film in range(FILMS) for scene in range(SCENES)]
    levels = [list(LEVELS)[row % 4] for row in range(len(ids))]
    folds = [row // 4 % 10 for row in range(len(ids))]
    features = chance.normal(size=(len(ids), 8)).astype(np.float32)
    features[np.array(levels) == "S"] += 0.8
    shows = chance.random((len(ids), len(CONCEPTS))) < 0.5
    shows[np.array(levels) == "EN"] = False
    if marked:
        features[:, : len(CONCEPTS)] += 2 * shows
    scheme = CONCEPTS if marked else ()
    concepts = [tuple(compress(scheme, row)) for row in shows]
    manifest = labelled(ids, levels, concepts, folds=folds, scheme=scheme)
    if marked:
        manifest.add(Split("three", ids, [fold % 3 for fold in folds]))
    manifest.save(folder / "manifest")
    world = World(folder, ids, levels, folds, features)
    write_store(world.store, manifest, world.rows)
    return world


def labelled(
    ids: Sequence[str],
    levels: Sequence[str],
    concepts: Any = None,
    *,
    folds: Any = (),
    scheme: Sequence[str | Concept] = (),
    seconds: float = 0,
) -> Manifest:
    """Return clips such as tt0-007, in film tt0, with labels and, given `folds`, a split named ten.

    Clips are separate files or, if they have a length in `seconds`, spans of the film's file.
    """

    def item(clip: str) -> Item:
        film, _, scene = clip.partition("-")
        if not seconds:
            return Item(clip, film=film, media=f"{clip}.mp4")
        start = seconds * int(scene)
        return Item(clip, film=film, media=f"{film}.mp4", start=start, end=start + seconds)

    items = Items.of(list(map(item, ids)))
    scheme_levels = tuple(starmap(Level, LEVELS.items()))
    listed = tuple(c if isinstance(c, Concept) else Concept(c) for c in scheme)
    manifest = Manifest(
        "toy", items, LabelScheme("levels", scheme_levels, listed), source="a test", licence="CC0"
    )
    concepts = concepts or [()] * len(ids)
    labels = LabelSet("all", [*ids], [*levels], concepts)
    splits = [Split("ten", [*ids], [*folds])] if folds else []
    return manifest.with_parts(labels, *splits)


def write_store(
    path: Path, manifest: Manifest, features: Mapping[str, np.ndarray], recipe: Recipe = RECIPE
) -> None:
    rows = [features[clip] for clip in manifest.ids]
    frames = [np.tile(row, (4, 1)).astype(np.float16) for row in rows]
    write_rows(path, manifest, {"native": rows, "frames": frames}, recipe, block_rows=64)


def write_rows(
    path: Path, manifest: Manifest, arrays: Mapping[str, object], recipe: Recipe, *, block_rows: int
) -> Path:
    """Write a store of any arrays by name, each with one row per item."""
    writer = StoreWriter.create(path, manifest.items, recipe, manifest.about, block_rows=block_rows)
    rows = {}
    for row, values in enumerate(zip(*arrays.values(), strict=True)):
        rows[row] = Done(dict(zip(arrays, values, strict=True)), None)
    writer.write_rows(rows)
    return path


def write_experiment(path: Path, world: World | None = None, **keys: object) -> Path:
    """Write an experiment file: Sure against Hard Negatives of `world`, with changes."""
    values: dict[str, object] = {}
    if world is not None:
        values |= {"name": "Sure", "manifest": world.manifest, "store": world.store}
        values |= {"split": "ten", "protocol": "leak-free"}
        values |= {"positives": ["S"], "train_negatives": ["HN"]}
    values |= keys
    named = {key: value for key, value in values.items() if value is not None}
    lines = [f"{key} = {to_toml(value)}\n" for key, value in named.items()]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def to_toml(value: object) -> str:
    if isinstance(value, dict):
        parts = [f"{key} = {to_toml(part)}" for key, part in value.items()]
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return json.dumps(value, default=str)
