"""Finalising: the same rows in few files, with a card that other software understands."""

import hashlib
import json
import sys

import numpy as np
import pytest
import zarr

import obygaze_features as of
from obygaze_features.errors import StoreError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import ArraySpec

# The sizes of shards and chunks are those of large stores.
from obygaze_features.store import format as fmt
from tests.kit import store as toys
from tests.kit.files import csv_rows


def test_a_final_store_has_exactly_these_files(final, sound):
    names = set(toys.contents(final))
    coordinates = ("status", "id", "film")
    expected = {"zarr.json", "items.csv", "rows.csv", "README.md", "checksums.json"}
    expected |= {f"{name}/zarr.json" for name in ("ids", *coordinates)}
    expected |= {f"{name}/zarr.json" for name in ("native", "frames", "frame_index")}
    expected |= {f"{name}/c/0" for name in coordinates}
    expected |= {f"{name}/c/0/0" for name in ("ids", "native", "frame_index")} | {"frames/c/0/0/0"}
    expected |= {name for name in names if name.startswith("probe/")}
    assert names - {"native.parquet"} == expected

    sums = json.loads((final / "checksums.json").read_text())
    assert set(sums) == expected - {"checksums.json"}
    for name, sha256 in sums.items():
        assert hashlib.sha256((final / name).read_bytes()).hexdigest() == sha256
    files = [file for file in (sound / "final.zarr").rglob("*") if file.is_file()]
    assert all(file.stat().st_mode & 0o222 == 0 for file in files)
    rows = csv_rows(final / "rows.csv")
    assert rows[0] == {"id": "tt1-000", "status": "1", "source": "0" * 64, "reason": ""}
    assert rows[6]["reason"] == 'cannot be decoded: "moov", not found'


@pytest.mark.parametrize(
    ("shape", "dtype", "n", "rows"),
    [
        ((512,), "float32", 10**6, (131072, 32)),  # 64 KiB a chunk, 256 MiB a shard
        ((3137, 768), "float16", 10**6, (55, 1)),
        ((512,), "float32", 2000, (2016, 32)),
    ],
)
def test_shards_and_chunks_have_practical_sizes(shape, dtype, n, rows):
    assert fmt.final_rows(ArraySpec("x", shape, dtype, ""), n) == rows


def test_finalise_needs_all_blocks_by_default(tmp_path):
    path = toys.a_store(tmp_path / "toy.zarr", blocks=[0, 3])
    with pytest.raises(StoreError, match="lacks 10 of 18 rows"):
        of.finalise(path)
    of.finalise(path, allow_incomplete=True)
    missing = [*range(4, 12), 16, 17]
    assert np.flatnonzero(of.open_store(path).status == 0).tolist() == missing
    native = zarr.open_array(path / "native", mode="r")
    assert np.isnan(native[4:12]).all()
    assert of.verify(path) == []
    with pytest.raises(StoreError, match=f"repair {path} --reopen"):
        toys.resume(path)


@pytest.mark.parametrize(
    ("licence", "expected"),
    [("CC-BY-4.0", ("cc-by-4.0", None)), ('ask: "us" # now', ("other", 'ask: "us" # now'))],
)
def test_the_hub_reads_the_cards_licence_and_tags(final, licence, expected):
    hub = pytest.importorskip("huggingface_hub")  # not in the small installation
    of.set_texts(final, {"licence": licence})
    data = hub.DatasetCard.load(final / "README.md").data
    assert (data.license, data.to_dict().get("license_name")) == expected
    assert {"zarr", "toy"} <= {*data.tags}


def test_the_card_is_complete_and_its_code_runs(sound, monkeypatch):
    card = (sound / "final.zarr/README.md").read_text()
    for fact in ("ab" * 32, "CC0-1.0", "Somebody (2026)", "| `frames` | 18 × 2 × 3 | float16 |"):
        assert fact in card
    assert "17 done, 1 failed" in card
    monkeypatch.chdir(sound)
    named = {}
    for part in card.split("```python\n")[1:3]:
        exec(part.partition("```")[0].replace("toy.zarr", "final.zarr"), named)
    assert named["rows"].shape == (18, 5)
    assert len(named["ids"]) == 18


@pytest.mark.parametrize("state", toys.STATES)
def test_set_changes_only_licence_and_citation(obygaze, copy, state):
    path = copy(state)
    before = copy(state, "before.zarr")
    obygaze("stores", "set", path, "--licence", "CC-BY-4.0", "--citation", "Doe (2026)", code=0)
    assert of.verify(path) == []
    changes = of.diff(path, before)
    assert [row["attribute"] for row in changes["attributes"]] == ["licence", "citation"]
    for rows in changes["rows"].values():
        assert rows["n"] == rows["equal"] == 17
    if state == "final":
        card = (path / "README.md").read_text()
        assert "- licence: CC-BY-4.0\n- citation: Doe (2026)\n" in card
        files = [file for file in path.rglob("*") if file.is_file()]
        assert all(file.stat().st_mode & 0o222 == 0 for file in files)


def test_set_gives_damage_no_new_checksum(path):
    group = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(group.replace("CC0-1.0", "CC0") + " ")
    with pytest.raises(StoreError, match=r"zarr\.json: it was changed"):
        of.set_texts(path, {"licence": "CC0"})


def test_parquet_has_the_items_and_vectors_of_all_rows(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    values = {
        "native": toys.numbers(7, (3,), "float32"),
        "half": toys.numbers(7, (2,), "float16"),
        "whole": toys.numbers(7, (1,), "int32"),
        "frames": toys.numbers(7, (2, 3), "float16"),
    }
    items = [Item(f"a-{row}", film="a", start=row, end=row + 0.5) for row in range(7)]
    monkeypatch.setattr(toys, "plain_manifest", lambda _: Manifest("m", Items.of(items)))
    monkeypatch.setattr("obygaze_features.store.parquet.PART_BYTES", 3 * 21)
    path = toys.open_state(tmp_path / "s.zarr", values, failed={0, 4})
    of.finalise(path)
    file = parquet.ParquetFile(path / "native.parquet")
    groups = map(file.metadata.row_group, range(3))
    assert [group.num_rows for group in groups] == [3, 3, 1]
    rows = file.read().to_pydict()
    assert rows["id"] == [item.id for item in items]
    assert rows["film"] == ["a"] * 7
    assert rows["start"] == [item.start for item in items]
    assert rows["end"] == [item.end for item in items]
    kinds = file.schema_arrow.types[4:]
    assert [str(kind.value_type) for kind in kinds] == ["float", "halffloat", "int32"]
    for name in ("native", "half", "whole"):
        expected = values[name].copy()
        expected[[0, 4]] = -1 if name == "whole" else np.nan
        np.testing.assert_array_equal(rows[name], expected)


def test_a_damaged_parquet_file_is_found_and_written_anew(final):
    pytest.importorskip("pyarrow.parquet")
    before = toys.contents(final)
    toys.flip_bit(final / "native.parquet", 100)
    assert [entry.file for entry in of.verify(final)] == ["native.parquet"]
    with pytest.raises(StoreError, match=r"native\.parquet cannot be copied: it was changed"):
        of.pack(final, final.with_name("x.zip"))
    of.repair(final)
    assert toys.contents(of.finalise(final).path) == before
    (final / "native.parquet").unlink()  # Version 0.4 copies only the files of the list.
    assert of.verify(of.pull(final, final.with_name("copy.zarr"))) == []


def test_a_final_store_needs_no_parquet(obygaze, path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    result = obygaze("stores", "finalise", path, code=0)
    assert "no native.parquet" in result.stderr
    assert "obygaze[remote]" in result.stderr
    assert "configs" not in (path / "README.md").read_text()
    assert of.verify(path) == []
