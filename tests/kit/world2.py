"""A world unlike the paper, with other names and numbers of levels, concepts and films."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, starmap
from pathlib import Path

import numpy as np

from obygaze_features.annotations.merge import merge_labels
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
from obygaze_features.store import ArraySpec
from tests.kit.run import RECIPE, World, write_rows

#: In ascending order, which is not alphabetical; no name equals its code.
LEVELS = {
    "very-high": "Wide open", "A": "Quiet", "not sure": "Hard to say, at times",
    "A+": "Loud vs quiet",
}  # fmt: skip
CONCEPTS = (
    Concept("smoke, fire"), Concept("rain: heavy", visual=False), Concept("red vs blue"),
    Concept("A"),
)  # fmt: skip
FILMS = ("2001", "A+", "tide, ebb", "=x", "1984")
ANNOTATORS = ("anna", "bo")
SCENES = 24
SECONDS = 10.0
FRAMES = 4
TIMES = ArraySpec("frame_time", (FRAMES,), "float64", "s", padded=True)
TIMED = replace(RECIPE, arrays=(*RECIPE.arrays, TIMES))


def make_world2(
    folder: Path,
    *,
    films: Sequence[str] = FILMS,
    levels: dict[str, str] = LEVELS,
    people: Sequence[str] = ANNOTATORS,
) -> World:
    """Write clips of five files or more, with the labels of two annotators and their merge.

    Each file belongs to one of the `films`, if there are any. The second annotator gives every
    seventh clip the second level. A feature is higher for the highest level, and another for each
    concept. One frame of each clip is higher in the feature for the level.
    """
    chance = np.random.default_rng(8)
    reels = max(len(films), len(FILMS))
    spans = [(number, scene) for number in range(reels) for scene in range(SCENES)]
    items = []
    for number, scene in spans:
        start = scene * SECONDS
        film = films[number % len(films)] if films else ""
        reel = Item(f"s{number}-{scene:02}", film=film, media=f"reel {number}.mp4")
        items.append(replace(reel, start=start, end=start + SECONDS))
    ids = [item.id for item in items]
    ranked = [*levels]
    codes = [ranked[row % len(ranked)] for row in range(len(ids))]
    shows = chance.random((len(ids), len(CONCEPTS))) < 0.5
    names = [concept.name for concept in CONCEPTS]
    concepts = [tuple(compress(names, row)) for row in shows]
    doubted = [code if row % 7 else ranked[1] for row, code in enumerate(codes)]
    sets = []
    for name, own in zip(people, (codes, doubted), strict=True):
        sets.append(LabelSet(name, ids, own, concepts, about={"annotator": name}))
    scheme = LabelScheme("loudness", tuple(starmap(Level, levels.items())), CONCEPTS)
    manifest = Manifest("harbour", Items.of(items), scheme, source="a test", licence="CC0")
    folds = [row // len(levels) % 3 for row in range(len(ids))]
    manifest = manifest.with_parts(*sets, Split("three", ids, folds))
    merged = merge_labels(sets, manifest)
    replace(manifest.with_parts(merged), default_labels=merged.name).save(folder / "manifest")
    features = chance.normal(size=(len(ids), 8)).astype(np.float32)
    features[np.array(codes) == ranked[-1], 7] += 2
    features[:, : len(CONCEPTS)] += 2 * shows
    frames = np.repeat(features[:, None], FRAMES, axis=1).astype(np.float16)
    frames[:, 1, 7] += 1
    times = [item.start + np.arange(FRAMES) * SECONDS / FRAMES for item in items]
    arrays = {"native": features, "frames": frames, "frame_time": np.array(times)}
    write_rows(folder / "toy.zarr", manifest, arrays, TIMED, block_rows=64)
    return World(folder, ids, codes, folds, features)
