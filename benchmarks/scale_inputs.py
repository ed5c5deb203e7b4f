"""Synthetic inputs of any size for `benchmarks.scale`: tables, stores, runs and timelines."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations import Film, Segment, Timelines
from obygaze_features.annotations.project import project
from obygaze_features.manifests import Item, Items, Manifest, obygaze_scheme
from obygaze_features.store import ArraySpec
from tests.kit.run import LEVELS, RECIPE, labelled, write_experiment, write_rows

CLIPS_A_FILM, FOLDS, DIM, SECONDS = 150, 10, 512, 10
HOURS, SEGMENTS, ANNOTATORS = 2, 300, ("annotator1", "annotator2")
CONCEPTS = ("Look", "Body", "Posture")


def table(folder: Path, clips: int) -> None:
    """Write a table of clips, and two manifests of it."""
    lines = ["id,film,media,start,end,level,concepts\n"]
    for row, (clip, level) in enumerate(zip(_ids(clips), _levels(clips), strict=True)):
        film, start = clip[:9], row % CLIPS_A_FILM * SECONDS
        shown = "" if level == "EN" else "Body|Look"
        lines.append(f"{clip},{film},{film}.mp4,{start},{start + SECONDS},{level},{shown}\n")
    (folder / "clips.csv").write_text("".join(lines), encoding="utf-8")
    Manifest.from_csv(folder / "clips.csv").save(folder / "manifest")


def store(folder: Path, clips: int) -> None:
    """Write labelled clips with ten folds, their features as a matrix and a store, and a model."""
    manifest, values = _labelled(folder, clips), _features(clips)
    np.save(folder / "x.npy", values)
    _write_store(folder, manifest, values)
    (folder / "half.txt").write_text("\n".join(manifest.ids[: clips // 2]), encoding="utf-8")
    model = folder.with_name("model")
    if not model.exists():
        import obygaze_models as om

        om.train_model(_experiment(folder, "logistic"), model)


def run(folder: Path, clips: int) -> None:
    """Write a run whose model is quick to fit and slightly better than chance."""
    import obygaze_models as om

    manifest = _labelled(folder, clips)
    _write_store(folder, manifest, _features(clips)[:, :16])
    om.run_experiment(_experiment(folder, "random-directions"), folder / "run")


def films(folder: Path, count: int) -> None:
    """Write films of 40 clips with 64 features, and an experiment that leaves each film out."""
    clips, own = count * 40, 40
    ids = [f"tt{row // own:07d}-{row % own:04d}" for row in range(clips)]
    manifest = labelled(ids, _levels(clips))
    manifest.save(folder / "manifest")
    values = _features(clips)[:, :64]
    _write_store(folder, manifest, values)
    codes = np.array(_levels(clips))
    np.save(folder / "x.npy", values.astype(np.float32))
    np.save(folder / "y.npy", np.select([codes == "S", codes == "HN"], [1, 0], -1))
    np.save(folder / "films.npy", np.arange(clips) // own)
    write_experiment(
        folder / "films.toml", name="films", manifest=folder / "manifest",
        store=folder / "s.zarr", protocol="leave-film-out", positives=["S"],
        train_negatives=["HN"], estimators=["logistic"],
    )  # fmt: skip


def segments(folder: Path, count: int) -> None:
    """Write timelines of two annotators, also as a table, and a labelled grid of minutes."""
    scheme, chance = obygaze_scheme(), random.Random(8)
    names = {f"tt{number:07d}": Film(end=HOURS * 3600.0) for number in range(count)}
    made = []
    for film in names:
        for annotator in ANNOTATORS:
            ends = sorted(chance.sample(range(1, HOURS * 3600 * 24), SEGMENTS))
            for start, end in zip([0, *ends], ends, strict=False):
                level = chance.choice(scheme.codes)
                shown = chance.sample(scheme.concept_names, 0 if level == "EN" else 2)
                times = round(start / 24, 6), round(end / 24, 6)
                made.append(Segment(film, annotator, *times, level, scheme.in_order(shown)))
    timelines = Timelines.of("made up", made, films=names)
    timelines.save(folder / "timelines")
    minutes = [
        Item(f"{film}-{start // 60:03d}", film=film, media=film, start=start, end=start + 60)
        for film in names
        for start in range(0, HOURS * 3600, 60)
    ]
    project(timelines, Manifest("grid", Items.of(minutes))).save(folder / "grid")


def _ids(clips: int) -> list[str]:
    own = CLIPS_A_FILM
    return [f"tt{row // own:07d}-{row % own:04d}" for row in range(clips)]


def _levels(clips: int) -> list[str]:
    return [list(LEVELS)[row % 4] for row in range(clips)]


def _labelled(folder: Path, clips: int) -> Manifest:
    levels = _levels(clips)
    folds = [row // 4 % FOLDS for row in range(clips)]
    shown = [() if level == "EN" else CONCEPTS[row % 3 :] for row, level in enumerate(levels)]
    manifest = labelled(_ids(clips), levels, shown, folds=folds, scheme=CONCEPTS, seconds=SECONDS)
    manifest.save(folder / "manifest")
    return manifest


def _features(clips: int) -> NDArray[np.float16]:
    values = np.random.default_rng(0).standard_normal((clips, DIM), np.float32)
    values[3::4] += 0.2
    return values.astype(np.float16)


def _write_store(folder: Path, manifest: Manifest, values: NDArray[np.float16]) -> None:
    spec = ArraySpec("native", values.shape[1:], "float16", "made up")
    recipe = replace(RECIPE, arrays=(spec,))
    write_rows(folder / "s.zarr", manifest, {"native": values}, recipe, block_rows=1024)


def _experiment(folder: Path, estimator: str) -> Any:
    from obygaze_models.experiments.experiment import Experiment

    return Experiment(
        name="scale", manifest=str(folder / "manifest"), store=str(folder / "s.zarr"), split="ten",
        protocol="leak-free", positives=("S",), train_negatives=("HN",),
        test_negatives=(("EN", "HN", "NS"),), estimators=(estimator,),
    )  # fmt: skip
