"""Full-size rehearsals: MovieGraphs' 7,637 clips end to end, and a store of a million rows.

Clips and network are tiny and synthetic, to measure the cost of everything else and its growth.
Each stage is a command in a separate process. Memory includes its child processes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.memory import peak_mib
from benchmarks.result import Result
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import ArraySpec, Done, Recipe, StoreWriter, open_store
from tests.kit.servers import serve

CLIPS, FILMS = 7637, 51
TENTH = 10
MILLION, PARTS, BLOCK = 1_000_000, 4, 5_000
EXPERIMENT = """
name = "Rehearsal"
manifest = "manifest"
store = "stores/tiny-xclip.zarr"
split = "leak-free"
protocol = "leak-free"
positives = ["S"]
train_negatives = ["EN", "HN"]
estimators = [{estimator}]
"""
NETWORK, BOTTLENECK = '"mlp"', '{name = "pcbm-logistic", negatives = "b"}'
#: Time for all pairs of clips: the inner products that concept vectors are fitted on.
SQUARED = "train and test a bottleneck"


def measure() -> Iterator[Result]:
    """Measure both rehearsals."""
    with tempfile.TemporaryDirectory() as name:
        yield from _end_to_end(Path(name))
        yield from _million(Path(name, "million"))


def _end_to_end(folder: Path) -> Iterator[Result]:
    """Measure every stage with a tenth of the clips and with all of them."""
    small = _stages(folder / "small", CLIPS // TENTH, FILMS // TENTH)
    full = _stages(folder / "whole", CLIPS, FILMS)
    for stage, (seconds, _) in full.items():
        before, _ = small[stage]
        label = f"{stage}, {CLIPS:,} clips ({CLIPS // TENTH:,})"
        growth = TENTH**2 if stage == SQUARED else TENTH
        yield Result(label, seconds, "s", before, seconds / before, 1.5 * growth)


def _stages(folder: Path, clips: int, films: int) -> dict[str, tuple[float, float]]:
    data, manifest, stores = folder / "data", folder / "manifest", folder / "stores"
    store = stores / "tiny-xclip.zarr"
    clips_per_film = -(-clips // films)
    _run("features", "demo", data, "--count", films, "--scenes", clips_per_film, "--seconds", 0.5)
    table = data / "annotations.csv"
    rows = table.read_text(encoding="utf-8").splitlines(keepends=True)
    table.write_text("".join(rows[: clips + 1]), encoding="utf-8")
    for name, estimator in (("network", NETWORK), ("bottleneck", BOTTLENECK)):
        text = EXPERIMENT.replace("{estimator}", estimator)
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    runs = folder / "network", folder / "bottleneck"
    stages = {
        "import the manifest": _run("manifests", "import", "csv", table, "-o", manifest),
        "split": _run("manifests", "split", manifest),
        "extract": _run(
            "features", "extract", manifest, "--videos", data / "videos", "--backbone",
            "tiny-xclip", "-o", stores,
        ),
        "verify": _run("stores", "verify", store),
        "finalise": _run("stores", "finalise", store),
        "train and test a network": _run("models", "run", folder / "network.toml", "-o", runs[0]),
        SQUARED: _run("models", "run", folder / "bottleneck.toml", "-o", runs[1]),
        "report": _run("report", *runs, "-o", folder / "report.html"),
    }  # fmt: skip
    assert len(open_store(store)) == clips
    return stages


def _million(folder: Path) -> Iterator[Result]:
    """Measure a store of a million rows: written in parts, merged, subset, and read over HTTP."""
    folder.mkdir()
    begin = time.perf_counter()
    parts = [_part(folder / f"part{part}.zarr", part) for part in range(PARTS)]
    wrote = time.perf_counter() - begin
    yield Result(
        f"write {MILLION:,} rows in {PARTS} parts (limit)", wrote, "s", 120, wrote / 120, 1
    )
    full = folder / "whole.zarr"
    for stage, command, limit in (
        ("merge them", ("stores", "merge", *parts, "-o", full), 240.0),
        ("finalise", ("stores", "finalise", full), 120.0),
        (
            "subset of one film",
            ("stores", "subset", full, "--film", "tt0000500", "-o", folder / "film.zarr"),
            60,
        ),
    ):
        seconds, mib = _run(*command)
        yield Result(f"{stage} (limit)", seconds, "s", limit, seconds / limit, 1)
        yield Result(f"{stage}: memory (limit)", mib, "MiB", 2048, mib / 2048, 1)
    with serve(folder) as server:
        begin = time.perf_counter()
        store = open_store(f"{server.url}/whole.zarr")
        opened = time.perf_counter() - begin
        asked = len(server.requests)
        yield Result("open it over HTTP (limit)", opened, "s", 30, opened / 30, 1)
        yield Result("requests for that (limit)", asked, "", 4, asked / 4, 1)
        begin = time.perf_counter()
        store.read("native", [f"tt{film:07d}-0500" for film in range(0, 1000, 100)])
        read = time.perf_counter() - begin
        yield Result("ten rows of it over HTTP (limit)", read, "s", 5, read / 5, 1)
        address, film = f"{server.url}/whole.zarr", folder / "fetched.zarr"
        seconds, mib = _run("stores", "subset", address, "--film", "tt0000500", "-o", film)
        yield Result("subset of one film over HTTP (limit)", seconds, "s", 60, seconds / 60, 1)
        yield Result("subset over HTTP: memory (limit)", mib, "MiB", 2048, mib / 2048, 1)


def _part(path: Path, part: int) -> Path:
    """Write a quarter of a thousand films with a thousand clips each."""
    films = range(part * 1000 // PARTS, (part + 1) * 1000 // PARTS)
    items = [
        Item(f"tt{film:07d}-{scene:04d}", film=f"tt{film:07d}", media=f"tt{film:07d}_{scene}.mp4")
        for film in films
        for scene in range(MILLION // 1000)
    ]
    manifest = Manifest(f"part {part}", Items.of(items))
    recipe = Recipe(
        name="million",
        backbone={"name": "none", "revision": None, "weights_sha256": "0" * 64, "config": {}},
        preprocessing={"mode": "standard"},
        precision="float32",
        arrays=(ArraySpec("native", (8,), "float32", "made up"),),
    )
    values = np.random.default_rng(part).normal(size=(len(items), 8)).astype(np.float32)
    writer = StoreWriter.create(path, manifest, recipe, block_rows=BLOCK)
    for block, start in enumerate(range(0, len(items), BLOCK)):
        rows = [Done({"native": row}, None) for row in values[start : start + BLOCK]]
        writer.write_block(block, rows)
    return path


def _run(*command: object) -> tuple[float, float]:
    """Return the seconds that a command takes, and its peak memory in MiB."""
    begin = time.perf_counter()
    mib = peak_mib([sys.executable, "-m", "obygaze_models.commands.main", *map(str, command)])
    return time.perf_counter() - begin, mib
