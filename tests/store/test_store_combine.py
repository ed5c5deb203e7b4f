"""New stores out of others: subsets, parts that become one, films of several labs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import OutputExists, StoreError, UsageError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import (
    ArraySpec,
    Done,
    Failed,
    Status,
    Store,
    StoreWriter,
    finalise,
    merge,
    open_store,
    subset,
    verify,
)
from tests.store import toys


def of_parts(tmp_path: Path, *parts: list[int], final: tuple[int, ...] = ()) -> list[Path]:
    paths = []
    for number, blocks in enumerate(parts):
        paths.append(toys.a_store(tmp_path / f"part{number}.zarr", blocks=blocks))
        if number in final:
            finalise(paths[-1], allow_incomplete=True)
    return paths


def counts(store: Store) -> tuple[int, int, int]:
    rows = store.info()["rows"]
    return rows["done"], rows["failed"], rows["to_do"]


def opened(paths: list[Path]) -> list:
    return [open_store(path) for path in paths]


@pytest.mark.parametrize("final", [(), (1,), (0, 1, 2)])
def test_parts_make_the_whole(tmp_path, final):
    """Also where parts overlap, and whether they are open or final."""
    parts = of_parts(tmp_path, [0, 3], [1, 3], [2, 4], final=final)
    merged = merge(opened(parts), tmp_path / "all.zarr")
    assert counts(merged) == (17, 1, 0)
    complete = toys.a_store(tmp_path / "whole.zarr")
    assert toys.contents(tmp_path / "all.zarr") == toys.contents(complete)


def test_what_no_part_has_is_left_for_extraction(tmp_path):
    parts = of_parts(tmp_path, [0, 3], [1])
    merged = merge(opened(parts), tmp_path / "all.zarr")
    assert counts(merged) == (11, 1, 6)
    writer = toys.resume(tmp_path / "all.zarr")
    assert writer.missing_blocks() == [2, 4]
    toys.fill(writer)
    complete = toys.a_store(tmp_path / "whole.zarr")
    assert toys.contents(tmp_path / "all.zarr") == toys.contents(complete)


def test_a_row_that_failed_in_one_part_comes_from_the_other(tmp_path):
    first = toys.a_store(tmp_path / "one.zarr", blocks=[])
    missing = Failed(Status.MISSING, "not there")
    toys.fill(toys.resume(first), None, lambda row: missing if row > 2 else toys.a_row(row))
    second = toys.a_store(tmp_path / "two.zarr")
    merged = merge(opened([first, second]), tmp_path / "all.zarr")
    assert counts(merged) == (17, 1, 0)
    # Both failed at this one; the first one's reason stands.
    assert merged.failures == {"tt1-006": "not there"}


def test_a_row_that_is_done_twice_and_not_alike_is_refused(tmp_path):
    first = toys.a_store(tmp_path / "one.zarr")
    second = toys.a_store(tmp_path / "two.zarr", blocks=[])

    def other(row: int) -> Done | Failed:
        done = toys.a_row(row)
        if row != 9 or isinstance(done, Failed):
            return done
        return replace(done, values={**done.values, "frames": np.ones((2, 3))})

    toys.fill(toys.resume(second), None, other)
    with pytest.raises(StoreError, match=r"tt1-009 is done in .*one.* frames.* stores diff"):
        merge(opened([first, second]), tmp_path / "all.zarr")
    assert not (tmp_path / "all.zarr").exists()


def test_films_become_one_store(tmp_path):
    """As if one manifest had listed them all; another block size than the first is no matter."""
    first = toys.a_store(tmp_path / "one.zarr", 7, film="tt1")
    second = toys.a_store(tmp_path / "two.zarr", 5, film="tt2", block_rows=3)
    merged = merge(opened([first, second]), tmp_path / "both.zarr")
    assert counts(merged) == (11, 1, 0)

    joined = toys.a_manifest(7, "tt1").items, toys.a_manifest(5, "tt2").items
    items = Items.of([item for part in joined for item in part], {"note": notes(7) + notes(5)})
    manifest = Manifest(
        "made-up", items, licence="CC0-1.0", citation="Somebody (2026). Made-up clips."
    )
    writer = StoreWriter.create(
        tmp_path / "expected.zarr", manifest, toys.RECIPE, probe=toys.probe(), block_rows=4
    )
    rows = [(row, "tt1") for row in range(7)] + [(row, "tt2") for row in range(5)]
    toys.fill(writer, None, lambda row: toys.a_row(*rows[row]))
    assert toys.contents(merged.path) == toys.contents(tmp_path / "expected.zarr")
    assert verify(merged.path) == []


def notes(n: int) -> list[str]:
    return [f"note, {row}" for row in range(n)]


def test_what_manifests_say_differently_is_all_kept(tmp_path):
    first = toys.a_store(tmp_path / "one.zarr", 4, manifest=toys.a_manifest(4, licence="CC0-1.0"))
    plain = Manifest("theirs", Items.of([Item("tt2-000", film="tt2")]), licence="CC-BY-4.0")
    second = toys.a_store(tmp_path / "two.zarr", manifest=plain)
    store = merge([first, second], tmp_path / "both.zarr")
    assert store.attributes["manifest"] == "made-up; theirs"
    assert store.attributes["licence"] == "CC0-1.0; CC-BY-4.0"
    assert store.attributes["citation"] == "Somebody (2026). Made-up clips."
    last = (store.path / "items.csv").read_text().splitlines()[-1]
    assert last == "tt2-000,clip,tt2,,,,,"


def test_films_of_unfinished_stores_keep_every_row(tmp_path):
    first = toys.a_store(tmp_path / "one.zarr", 6, film="tt1", blocks=[0])  # 4, 5 to do
    second = toys.a_store(tmp_path / "two.zarr", 6, film="tt2")
    merged = merge(opened([first, second]), tmp_path / "both.zarr")
    assert merged.status.tolist() == [1] * 4 + [0] * 2 + [1] * 6
    assert verify(merged.path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backbone": toys.RECIPE.backbone | {"weights_sha256": "cd" * 32}}, "backbone weights"),
        (
            {"backbone": {**toys.RECIPE.backbone, "weights_sha256": "cd" * 32, "config": {"a": 1}}},
            r"made with other backbone weights \(\w+[.]{3} there, cdcdcdcdcdcd[.]{3} here\)$",
        ),
        (
            {"backbone": {**toys.RECIPE.backbone, "weights_sha256": "unknown:their-own-xclip"}},
            r"weights \(\w+[.]{3} there, unknown:their-own-xclip here\)$",
        ),
        (
            {"backbone": {**toys.RECIPE.backbone, "config": dict.fromkeys("abcde", 1)}},
            r"other backbone settings \([^,]+, [^,]+, [^,]+ and \d more\)$",
        ),
        ({"preprocessing": {"mode": "author"}}, "preprocessing"),
        ({"precision": "float16"}, r"precision \(float32 there, float16 here\)"),
        ({"arrays": toys.ARRAYS[:2]}, "arrays"),
    ],
)
@pytest.mark.parametrize("film", ["tt1", "tt2"])
def test_what_was_made_otherwise_is_not_merged(tmp_path, change, message, film):
    first = toys.a_store(tmp_path / "one.zarr", 4)
    recipe = replace(toys.RECIPE, **change)
    second = StoreWriter.create(tmp_path / "two.zarr", toys.a_manifest(4, film), recipe).store.path
    with pytest.raises(StoreError, match=f"two.zarr cannot be merged with .*one.zarr.*{message}"):
        merge(opened([first, second]), tmp_path / "both.zarr")


def test_ids_that_overlap_are_not_merged(tmp_path):
    first = toys.a_store(tmp_path / "one.zarr", 4)
    second = toys.a_store(tmp_path / "two.zarr", 6)
    with pytest.raises(StoreError, match=r"4 ids are in both, such as tt1-000"):
        merge(opened([first, second]), tmp_path / "both.zarr")


def test_ids_that_differ_by_case_only_are_not_merged(tmp_path):
    first = toys.a_store(tmp_path / "one.zarr", 4, film="tta")
    second = toys.a_store(tmp_path / "two.zarr", 4, film="TTA")
    with pytest.raises(StoreError, match="differs from 'tta-000' by case only"):
        merge(opened([first, second]), tmp_path / "both.zarr")


def test_a_subset_of_films(tmp_path):
    first = toys.a_store(tmp_path / "one.zarr", 7, film="tt1")
    second = toys.a_store(tmp_path / "two.zarr", 5, film="tt2")
    joined_path = merge(opened([first, second]), tmp_path / "both.zarr").path
    finalise(joined_path)
    merged = subset(open_store(joined_path), tmp_path / "again.zarr", films=["tt2"])
    assert counts(merged) == (5, 0, 0)
    assert toys.contents(merged.path) == toys.contents(second)


def test_a_subset_of_ids_keeps_the_order_of_the_store(tmp_path):
    path = toys.a_store(tmp_path / "one.zarr")
    selection = ["tt1-017", "tt1-006", "tt1-002", "tt1-011", "tt1-003"]
    complete = open_store(path)
    store = complete.subset(str(tmp_path / "some.zarr"), ids=selection)
    assert store.ids == sorted(selection)
    done = [item_id for item_id in store.ids if item_id != "tt1-006"]
    for name in store.arrays:
        np.testing.assert_array_equal(store.read(name, done), complete.read(name, done))
    assert store.failures == complete.failures
    assert store.sources == {item_id: complete.sources[item_id] for item_id in store.ids}
    assert store.attributes["items_digest"] == toys.a_manifest(18).select(ids=selection).digest
    assert verify(store.path) == []


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"ids": ["nobody"]}, "no item 'nobody'"),
        ({"films": ["tt9"]}, "no item is of the film 'tt9'"),
        ({}, "needs ids or films"),
        ({"ids": []}, "no item of .*one.zarr"),
    ],
)
def test_a_subset_of_what_is_not_there(tmp_path, selection, message):
    store = open_store(toys.a_store(tmp_path / "one.zarr", 4))
    with pytest.raises(ValueError, match=message):
        subset(store, tmp_path / "some.zarr", **selection)
    assert not (tmp_path / "some.zarr").exists()


def test_a_string_is_a_subset_of_one_and_no_list_of_stores(tmp_path):
    store = open_store(toys.a_store(tmp_path / "one.zarr", 4))
    assert subset(store, tmp_path / "some.zarr", ids=store.ids[0]).ids == store.ids[:1]
    with pytest.raises(UsageError, match=r"a list .*one\.zarr"):
        merge(str(tmp_path / "one.zarr"), tmp_path / "all.zarr")


def test_outputs_are_new_and_end_in_zarr(tmp_path):
    first = open_store(toys.a_store(tmp_path / "one.zarr", 4))
    with pytest.raises(UsageError, match=r"ends in \.zarr"):
        subset(first, tmp_path / "some", films=["tt1"])
    with pytest.raises(UsageError, match="is one of the input stores"):
        subset(first, first.path, films=["tt1"], overwrite=True)
    with pytest.raises(UsageError, match="two stores or more"):
        merge([first], tmp_path / "some.zarr")
    subset(first, tmp_path / "some.zarr", films=["tt1"])
    with pytest.raises(OutputExists):
        subset(first, tmp_path / "some.zarr", films=["tt1"])
    subset(first, tmp_path / "some.zarr", ids=["tt1-000"], overwrite=True)
    assert len(open_store(tmp_path / "some.zarr")) == 1
    (tmp_path / "films.zarr").mkdir()
    with pytest.raises(OutputExists, match="not made by obygaze"):
        subset(first, tmp_path / "films.zarr", films=["tt1"], overwrite=True)


def test_damage_stops_a_merge(tmp_path):
    parts = of_parts(tmp_path, [0, 3], [1, 2, 4])
    shard = parts[1] / "native/c/2/0"
    shard.write_bytes(
        shard.read_bytes().replace(b"\0", b"\1", 1)[:30] + b"?" + shard.read_bytes()[31:]
    )
    with pytest.raises(StoreError, match=r"obygaze stores repair .*part1"):
        merge(opened(parts), tmp_path / "all.zarr")
    assert not (tmp_path / "all.zarr").exists()


def test_stores_of_one_array_without_a_probe(tmp_path):
    recipe = replace(toys.RECIPE, arrays=(ArraySpec("native", (2,), "float64", "second"),))
    paths = []
    for film in ("tt1", "tt2"):
        writer = StoreWriter.create(tmp_path / f"{film}.zarr", toys.a_manifest(3, film), recipe)
        toys.fill(writer, None, lambda row: Done({"native": np.full(2, row + 1.0)}, None))
        paths.append(writer.store.path)
    store = merge(paths, str(tmp_path / "both.zarr"))
    assert store.read("native", missing="nan")[:, 0].tolist() == [1, 2, 3, 1, 2, 3]
    assert not (store.path / "probe").exists()
