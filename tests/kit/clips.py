"""Clips, images and prompts with a known signal, and bottlenecks on a fixed bank."""

import json
from copy import copy
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

import obygaze_models as om
from obygaze_features.manifests import Item, Items, Manifest, obygaze_scheme
from tests.kit.run import RECIPE, write_store

CONCEPTS = ("Look", "Body", "Posture")


def logistic_on(bank: om.ConceptBank, **options: Any) -> om.ConceptBottleneck:
    return om.ConceptBottleneck(
        FrozenEstimator(bank), om.make_estimator("logistic", {"C": 0.1} | options)
    )


def with_output(bank: om.ConceptBank, output: str) -> om.ConceptBank:
    changed = copy(bank)
    changed.output = output
    return changed


def small_clips(clips: int = 240) -> om.ClipDataset:
    """Return clips with three levels in turn, in six folds and four films.

    Sure clips have more concepts. Features have unit norm: noise, a direction for each concept, and
    one for Sure.
    """
    width = 16
    chance = np.random.default_rng(7)
    rows = np.arange(clips)
    levels = np.array(["EN", "HN", "S"])[rows % 3]
    share = np.array([0, 0.25, 0.75])[rows % 3]
    concepts = chance.random((clips, len(CONCEPTS))) < share[:, None]
    chance = np.random.default_rng(5)
    directions = chance.normal(size=(len(CONCEPTS) + 1, width))
    visible = np.column_stack([concepts, levels == "S"])
    features = chance.normal(size=(clips, width)) + visible @ directions
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    films = [f"tt{row % 4}" for row in range(clips)]
    data = om.dataset(
        features.astype(np.float32),
        levels,
        films,
        ids=[f"{film}-{row:03}" for row, film in enumerate(films)],
        concepts=concepts,
        concept_names=CONCEPTS,
        frames=np.stack([features] * 2, axis=1).astype(np.float16),
    )
    folds = rows // 3 % 6
    return replace(data, folds=folds, last_fold=5, scheme=obygaze_scheme())


@dataclass(frozen=True)
class Embedded:
    """A manifest with its store, and the same embeddings by id."""

    manifest: Manifest
    store: Path
    by_id: dict[str, np.ndarray]

    def rows(self, start: str) -> np.ndarray:
        """Return the embeddings whose ids start with a prefix, in float64."""
        rows = [row for item, row in self.by_id.items() if item.startswith(start)]
        return np.array(rows, dtype=np.float64)


def embed(folder: Path, manifest: Manifest, **backbone: str) -> Embedded:
    """Write random embeddings by CLIP, or by another backbone."""
    clip = {"name": "clip-vit-base-patch32", "weights_sha256": "ab" * 32}
    recipe = replace(RECIPE, backbone={**RECIPE.backbone, **clip, **backbone})
    vectors = np.random.default_rng(1).normal(size=(len(manifest), 8))
    by_id = dict(zip(manifest.ids, vectors.astype(np.float32), strict=True))
    store = folder / f"{manifest.name}.zarr"
    write_store(store, manifest, by_id, recipe)
    return Embedded(manifest, store, by_id)


def make_images(folder: Path) -> Embedded:
    """Write embeddings of 6 women and 6 men each in science and business, and none in medicine."""
    items = []
    columns: dict[str, list[str]] = {"profession": [], "gender": []}
    for job, gender, number in product(("science", "business"), ("woman", "man"), range(6)):
        name = f"{job}-{gender}-{number}"
        items.append(Item(name, kind="image", media=f"{name}.png"))
        columns["profession"].append(job)
        columns["gender"].append(gender)
    return embed(folder, Manifest("images", Items.of(items, columns)))


def make_prompts(folder: Path) -> Embedded:
    return embed(folder, Manifest.from_prompts("professions"))


def write_battery(path: Path, **sets: Any) -> Path:
    """Write a battery of one test: ``write_battery(path, x=["a", "b"], a=["c"], b=["d"])``."""
    battery = {"format": "obygaze-battery", "format_version": 1}
    path.write_text(json.dumps({**battery, "tests": [{"name": "given sets", **sets}]}))
    return path
