"""Annotations: twenty films with two annotators each, projected and merged."""

from __future__ import annotations

import csv
import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.result import Result, side_by_side
from obygaze_features.annotations import Film, Segment, Timelines
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.annotations.project import project
from obygaze_features.manifests import Item, Items, LabelSet, Manifest, obygaze_scheme

FILMS = 20
HOURS = 2
#: As many clips as MovieGraphs in total, or in each film, with one clip per second.
CLIPS = 7637
SEGMENTS = 150


def measure() -> Iterator[Result]:
    """Measure the promised speed of projecting and merging."""
    for clips, words in ((CLIPS // FILMS + 1, "in all"), (CLIPS, "per film")):
        with tempfile.TemporaryDirectory() as folder:
            yield from _beside_reading(Path(folder), clips, words)


def _beside_reading(folder: Path, clips: int, words: str) -> Iterator[Result]:
    _timelines().save(folder / "timelines")
    _grid(clips).save(folder / "grid")
    timelines, grid = Timelines.load(folder / "timelines"), Manifest.load(folder / "grid")
    what = f"project and merge 20 films, 2 annotators, {CLIPS:,} clips {words}"

    def ours() -> LabelSet:
        # Start without the cached films, rows and digest of an earlier run.
        clips = replace(grid, items=replace(grid.items, check=False))
        found = project(replace(timelines), clips)
        return merge_labels(found.label_sets, found.grid)

    def read() -> None:
        Timelines.load(folder / "timelines")
        Manifest.load(folder / "grid")

    def csv_module() -> None:
        for name in ("timelines/segments.csv", "grid/items.csv"):
            with (folder / name).open(newline="") as file:
                list(csv.reader(file))

    yield side_by_side(f"{what} (reading both)", ours, read, target=5)
    yield side_by_side(f"{what} (csv module: read both files)", ours, csv_module, target=None)


def _timelines() -> Timelines:
    """Return as many segments as in MObyGaze, of similar length, one after the other."""
    chance = random.Random(8)
    scheme = obygaze_scheme()
    films = {f"tt{number:07d}": Film(end=HOURS * 3600.0) for number in range(FILMS)}
    segments = []
    for film in films:
        for annotator in ("annotator1", "annotator2"):
            ends = sorted(chance.sample(range(1, HOURS * 3600 * 24), SEGMENTS))
            for start, end in zip([0, *ends], ends, strict=False):
                level = chance.choice(scheme.codes)
                names = chance.sample(scheme.concept_names, 0 if level == "EN" else 3)
                times = round(start / 24, 6), round(end / 24, 6)
                segments.append(Segment(film, annotator, *times, level, scheme.in_order(names)))
    return Timelines.of("made up", segments, films=films)


def _grid(clips: int) -> Manifest:
    length = HOURS * 3600 / clips
    return Manifest(
        "made-up",
        Items.of(
            [
                Item(
                    f"tt{film:07d}-{clip:04d}",
                    film=f"tt{film:07d}",
                    media=f"tt{film:07d}",
                    start=round(clip * length, 6),
                    end=round((clip + 1) * length, 6),
                )
                for film in range(FILMS)
                for clip in range(clips)
            ]
        ),
    )
