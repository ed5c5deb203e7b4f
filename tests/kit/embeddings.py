"""Images of people in their professions and prompts about them, with embeddings that are drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from obygaze_features.manifests import Item, Items, Manifest
from tests.kit.run import RECIPE, write_store

WEIGHTS = "ab" * 32
CLIP = replace(
    RECIPE, backbone={**RECIPE.backbone, "name": "clip-vit-base-patch32", "weights_sha256": WEIGHTS}
)
STIMULI = {
    "objectifying": (
        "person to have intercourse with",
        "person to be intimate with",
        "person to have sex with",
        "person to kiss",
        "person to undress",
        "person to have coitus with",
    ),
    "science": ("scientist", "researcher", "engineer", "physicist", "mathematician", "chemist"),
    "business": (
        "businessperson",
        "business leader",
        "manager",
        "executive",
        "ceo",
        "chief executive officer",
    ),
}
TEMPLATES = ("{}", "a photo of a {}")


@dataclass(frozen=True)
class Embedded:
    """A manifest with its store, and the same embeddings by id."""

    manifest: Path
    store: Path
    of: dict[str, np.ndarray]

    def rows(self, start: str) -> np.ndarray:
        """The embeddings of the ids that start so, in float64."""
        rows = [row for item, row in self.of.items() if item.startswith(start)]
        return np.array(rows, dtype=np.float64)


def embed(folder: Path, name: str, items: Items, chance: np.random.Generator) -> Embedded:
    manifest = Manifest(name, items)
    manifest.save(folder / name)
    of = {item: chance.normal(size=8).astype(np.float32) for item in manifest.ids}
    write_store(folder / f"{name}.zarr", manifest, of, CLIP)
    return Embedded(folder / name, folder / f"{name}.zarr", of)


def make_images(folder: Path) -> Embedded:
    """Six women and six men in science, as many in business; nobody in medicine."""
    people = [*product(("science", "business"), ("woman", "man"), range(6))]
    items = [
        Item(f"{job}-{gender}-{number}", kind="image", media=f"{job}{gender}{number}.png")
        for job, gender, number in people
    ]
    columns = {
        "profession": [job for job, _, _ in people],
        "gender": [gender for _, gender, _ in people],
    }
    return embed(folder, "images", Items.of(items, columns), np.random.default_rng(1))


def make_prompts(folder: Path) -> Embedded:
    """Each stimulus by two templates."""
    prompts = [
        (f"{name}-{position}-{row}", template, stimulus)
        for name, stimuli in STIMULI.items()
        for position, stimulus in enumerate(stimuli)
        for row, template in enumerate(TEMPLATES)
    ]
    items = [
        Item(item, kind="text", text=template.format(stimulus))
        for item, template, stimulus in prompts
    ]
    columns = {
        "template": [template for _, template, _ in prompts],
        "stimulus": [stimulus for _, _, stimulus in prompts],
    }
    return embed(folder, "prompts", Items.of(items, columns), np.random.default_rng(2))


def sets(**groups: str) -> list[str]:
    """Options of ``obygaze bias eat``: ``sets(x="a,b", y="c")``."""
    return [word for name, items in groups.items() for word in ("--sets", f"{name}={items}")]
