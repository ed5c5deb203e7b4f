"""Synthetic inputs of any size for `benchmarks.scale`: tables, stores and films."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.manifests import Manifest
from obygaze_features.store import ArraySpec
from tests.kit.run import LEVELS, RECIPE, labelled, write_experiment, write_rows

CLIPS_A_FILM, FOLDS, DIM, SECONDS = 150, 10, 512, 10
CONCEPTS = ("Look", "Body", "Posture")


def table(folder: Path, clips: int) -> None:
    """Write a table of clips, and the manifest imported from it."""
    lines = ["id,film,media,start,end,level,concepts\n"]
    for row, (clip, level) in enumerate(zip(_ids(clips), _levels(clips), strict=True)):
        film, start = clip[:9], row % CLIPS_A_FILM * SECONDS
        shown = "" if level == "EN" else "Body|Look"
        lines.append(f"{clip},{film},{film}.mp4,{start},{start + SECONDS},{level},{shown}\n")
    (folder / "clips.csv").write_text("".join(lines), encoding="utf-8")
    Manifest.from_csv(folder / "clips.csv").save(folder / "manifest")


def store(folder: Path, clips: int) -> None:
    """Write labelled clips with ten folds, their features as a matrix and a store."""
    manifest, values = _labelled(folder, clips), _features(clips)
    np.save(folder / "x.npy", values)
    _write_store(folder, manifest, values)
    (folder / "half.txt").write_text("\n".join(manifest.ids[: clips // 2]), encoding="utf-8")


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
