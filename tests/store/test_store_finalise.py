"""Finalising: the same rows in few files, with a card that other software understands."""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

from obygaze_features.common.files import SUFFIX, prefix
from obygaze_features.errors import StoreError
from obygaze_features.store import (
    ArraySpec,
    Done,
    StoreWriter,
    finalise,
    open_store,
    verify,
)
from obygaze_features.store import format as spec
from tests.store import toys


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return toys.a_store(tmp_path / "toy.zarr")


@pytest.mark.parametrize("compress", [False, True])
def test_the_same_rows_by_obygaze_and_by_plain_zarr(path, compress):
    before = open_store(path)
    arrays = {name: before.read(name, missing="nan") for name in before.arrays}
    facts = before.info()
    sources = before.sources
    finalise(path, compress=compress)

    store = open_store(path)
    assert store.is_final
    group = zarr.open_group(path, mode="r")
    for name, values in arrays.items():
        np.testing.assert_array_equal(store.read(name, missing="nan"), values)
        np.testing.assert_array_equal(group[name][:], values)
        np.testing.assert_array_equal(group["probe"][name][0], before_probe(name))
    assert group["status"][:].tolist() == store.status.tolist()
    assert store.sources == sources
    assert store.info() == facts | {"state": "final"}
    assert [bytes(row).rstrip(b"\0").decode() for row in group["ids"][:]] == store.ids


def before_probe(name: str) -> np.ndarray:
    one = next(one for one in toys.ARRAYS if one.name == name)
    return toys.probe()[name].astype(one.dtype)


def test_what_lies_there(path):
    finalise(path)
    names = set(toys.contents(path))
    assert names == {
        "zarr.json",
        "items.csv",
        "rows.csv",
        "README.md",
        "croissant.json",
        "checksums.json",
        *(f"ids/{name}" for name in ("zarr.json", "c/0/0")),
        *(f"{one}/{name}" for one in ("status", "id", "film") for name in ("zarr.json", "c/0")),
        *(f"native/{name}" for name in ("zarr.json", "c/0/0")),
        *(f"frames/{name}" for name in ("zarr.json", "c/0/0/0")),
        *(f"frame_index/{name}" for name in ("zarr.json", "c/0/0")),
        *(name for name in names if name.startswith("probe/")),
    }
    sums = json.loads((path / "checksums.json").read_text())
    assert set(sums) == names - {"checksums.json"}
    for name, sha256 in sums.items():
        assert hashlib.sha256((path / name).read_bytes()).hexdigest() == sha256
    assert all(file.stat().st_mode & 0o222 == 0 for file in path.rglob("*") if file.is_file())
    with (path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"id": "tt1-000", "status": "1", "source": "0" * 64, "reason": ""}
    assert rows[6]["reason"] == 'cannot be decoded: "moov", not found'


def test_shards_and_chunks_are_as_large_as_is_practical():
    def rows(shape: tuple[int, ...], dtype: str, n: int = 10**6) -> tuple[int, int]:
        return spec.final_rows(ArraySpec("x", shape, dtype, ""), n)

    assert rows((512,), "float32") == (131072, 32)  # 64 KiB a chunk, 256 MiB a shard
    assert rows((32, 512), "float16") == (8192, 1)
    assert rows((4096,), "float32") == (16384, 4)  # 16 KiB a row is just small enough
    assert rows((3137, 768), "float16") == (55, 1)
    assert rows((512,), "float32", 5) == (8, 8)
    assert rows((512,), "float32", 2000) == (2016, 32)


def test_several_shards_cut_where_no_block_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(spec, "SHARD_BYTES", 200)
    monkeypatch.setattr(spec, "CHUNK_BYTES", 40)
    path = toys.a_store(tmp_path / "toy.zarr", block_rows=3)
    before = {name: open_store(path).read(name, missing="nan") for name in open_store(path).arrays}
    finalise(path)
    assert len(list((path / "native/c").iterdir())) == 2
    for name, values in before.items():
        np.testing.assert_array_equal(open_store(path).read(name, missing="nan"), values)
        np.testing.assert_array_equal(zarr.open_array(path / name, mode="r")[:], values)
    assert verify(path) == []


def test_blocks_must_all_be_there_unless_said_otherwise(tmp_path):
    path = toys.a_store(tmp_path / "toy.zarr", blocks=[0, 3])
    with pytest.raises(StoreError, match="lacks 10 of 18 rows"):
        finalise(path)
    finalise(path, allow_incomplete=True)
    store = open_store(path)
    assert store.status.tolist() == [1] * 4 + [0] * 8 + [1] * 4 + [0] * 2
    assert np.isnan(store.read("native", missing="nan")[4:12]).all()
    assert np.isnan(zarr.open_array(path / "native", mode="r")[4:12]).all()
    assert verify(path) == []
    with pytest.raises(StoreError, match=r"repair .* --reopen"):
        toys.resume(path)


def test_a_store_of_which_nothing_is_done(tmp_path):
    path = toys.a_store(tmp_path / "toy.zarr", blocks=[])
    finalise(path, allow_incomplete=True)
    assert verify(path) == []
    assert open_store(path).status.tolist() == [0] * 18


def test_damage_is_refused_and_nothing_changed(path):
    shard = path / "native/c/2/0"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    before = toys.contents(path)
    with pytest.raises(StoreError, match=r"tt1-008 cannot be finalised.*stores repair"):
        finalise(path)
    assert toys.contents(path) == before
    assert list(path.parent.iterdir()) == [path]


def test_a_store_is_finalised_once_and_not_under_a_writer(path):
    claim = path / "claims/000003.json"
    claim.write_text(json.dumps({"owner": "x", "host": "elsewhere", "process": 1}))
    with pytest.raises(StoreError, match="is writing block 3"):
        finalise(path)
    claim.unlink()
    assert finalise(str(path)).is_final
    before = toys.contents(path)
    assert finalise(path).is_final
    assert toys.contents(path) == before


@pytest.mark.gate
def test_large_rows_take_little_memory(tmp_path):
    """However many shards there are, no more than about two of them are in memory."""
    code = """
import resource, sys
from pathlib import Path
from obygaze_features.store import finalise, format
format.SHARD_BYTES = 32 * 2**20
finalise(Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    recipe = replace(toys.RECIPE, arrays=(ArraySpec("tokens", (2048, 256), "float16", "large"),))

    def peak(n: int) -> int:
        path = tmp_path / f"{n}.zarr"
        writer = StoreWriter.create(path, toys.a_manifest(n), recipe, block_rows=4)
        values = np.random.default_rng(0).normal(size=(2048, 256))
        toys.fill(writer, None, lambda row: Done({"tokens": values}, "ab"))
        result = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
        )
        return int(result.stdout) * 1024

    assert peak(160) - peak(4) < 2.5 * 32 * 2**20  # of 160 MiB


def test_the_card_says_what_matters_and_its_code_runs(path, tmp_path):
    finalise(path)
    card = (path / "README.md").read_text()
    for said in ("ab" * 32, "CC0-1.0", "Somebody (2026)", "| `frames` | 18 × 2 × 3 | float16 |"):
        assert said in card
    assert "17 rows are done; 1 unreadable." in card
    code = "\n".join(card.split("```python\n")[i].partition("```")[0] for i in (1, 2))
    check = "assert rows.shape == (18, 5) and len(ids) == 18\n"
    subprocess.run([sys.executable, "-c", code + check], cwd=path.parent, check=True)


@pytest.mark.gate
# Of rdflib, which mlcroissant reads JSON-LD with.
@pytest.mark.filterwarnings("ignore:ConjunctiveGraph")
def test_croissant_is_valid(path, caplog):
    mlcroissant = pytest.importorskip("mlcroissant")
    finalise(path)
    with caplog.at_level(logging.WARNING):
        dataset = mlcroissant.Dataset(path / "croissant.json")
    issues = dataset.metadata.ctx.issues
    assert not issues.errors
    # Where it will be published, by whom and when, a store cannot know.
    unknown = ("url", "creator", "datePublished")
    assert [
        one for one in issues.warnings if not any(f"schema.org/{u}" in one for u in unknown)
    ] == []
    rows = list(dataset.records("rows"))
    assert [row["rows/id"].decode() for row in rows] == open_store(path).ids
    assert [row["rows/status"] for row in rows] == open_store(path).status.tolist()
    items = list(dataset.records("items"))
    assert items[3]["items/note"] == b"note, 3"


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph")
def test_a_manifest_that_says_nothing_of_its_licence(tmp_path):
    mlcroissant = pytest.importorskip("mlcroissant")
    manifest = toys.a_manifest(licence="", citation="")
    path = toys.a_store(tmp_path / "toy.zarr", manifest=manifest)
    finalise(path)
    assert "- licence: not stated" in (path / "README.md").read_text()
    assert not mlcroissant.Dataset(path / "croissant.json").metadata.ctx.issues.errors


def test_equal_stores_become_equal_final_stores(path, tmp_path):
    other = tmp_path / "other" / "toy.zarr"
    shutil.copytree(path, other)
    finalise(path)
    finalise(other)
    assert toys.contents(path) == toys.contents(other)


def test_what_a_killed_one_left_is_removed_by_the_next(path):
    finalise(path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    name = prefix(path).replace(f"_{os.getpid()}_", f"_{ended.pid}_")
    left = path.with_name(f"{name}a1{SUFFIX}")
    left.mkdir()
    finalise(path)
    assert [folder.name for folder in path.parent.iterdir()] == [path.name]
