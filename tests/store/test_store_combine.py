"""New stores from others, and comparisons of two stores."""

from dataclasses import replace

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import StoreError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import Failed, Status, StoreWriter
from tests.kit import store as toys
from tests.kit.floats import close


def counts(store):
    rows = store.info()["rows"]
    return rows["done"], rows["failed"], rows["to_do"]


def changed_in(difference):
    return {row["attribute"] for row in difference["attributes"]}


def test_merged_parts_equal_the_whole_store(tmp_path, sound):
    """Block 3, which has padding, is in two of them."""
    parts = []
    for number, blocks in enumerate([[0, 3], [1, 3], [2, 4]]):
        parts.append(toys.a_store(tmp_path / f"{number}.zarr", blocks=blocks))
    of.finalise(parts[1], allow_incomplete=True)
    merged = of.merge([str(path) for path in parts], str(tmp_path / "all.zarr"))
    assert counts(merged) == (17, 1, 0)
    assert toys.contents(merged.path) == toys.contents(sound / "open.zarr")

    half = of.merge(parts[:2], tmp_path / "half.zarr")
    assert counts(half) == (11, 1, 6)
    assert not of.diff(half, sound / "open.zarr")["identical"]  # although the common rows are
    writer = toys.resume(half.path)
    assert writer.store.missing_rows().tolist() == [*range(8, 12), 16, 17]
    toys.fill(writer)
    assert toys.contents(half.path) == toys.contents(sound / "open.zarr")


def test_failed_rows_come_from_the_other_part(tmp_path, path):
    first = toys.a_store(tmp_path / "one.zarr", blocks=[])
    missing = Failed(Status.MISSING, "not there")
    toys.fill(toys.resume(first), None, lambda row: missing if row > 2 else toys.a_row(row))
    merged = of.merge([first, path], tmp_path / "all.zarr")
    assert counts(merged) == (17, 1, 0)
    assert merged.failures == {"tt1-006": "not there"}  # both failed: the first one's reason


def test_parts_with_different_rows_are_not_merged(tmp_path, path):
    ninth = toys.a_row(9)
    changed = replace(ninth, values=ninth.values | {"frames": np.ones((2, 3))})
    second = toys.a_store(tmp_path / "two.zarr", blocks=[])
    toys.fill(toys.resume(second), None, lambda row: changed if row == 9 else toys.a_row(row))
    with pytest.raises(StoreError, match=r"frames row of tt1-009 differs between .*toy"):
        of.merge([path, second], tmp_path / "none.zarr")
    assert not (tmp_path / "none.zarr").exists()


def test_films_merge_into_one_store_and_split_again(tmp_path):
    """The result is that of one extraction, whatever the block sizes."""
    first = toys.a_store(tmp_path / "one.zarr", 7, film="tt1")
    second = toys.a_store(tmp_path / "two.zarr", 5, film="tt2", block_rows=3)
    merged = of.merge([first, second], tmp_path / "both.zarr")
    assert counts(merged) == (11, 1, 0)

    items = []
    rows = []
    notes = []
    for film, count in (("tt1", 7), ("tt2", 5)):
        items += toys.a_manifest(count, film).items
        rows += [toys.a_row(row, film) for row in range(count)]
        notes += [f"note, {row}" for row in range(count)]
    manifest = replace(toys.a_manifest(), items=Items.of(items, {"note": notes}))
    path = toys.a_store(tmp_path / "expected.zarr", manifest=manifest, blocks=[])
    toys.fill(StoreWriter(of.open_store(path)), None, rows.__getitem__)
    assert toys.contents(merged.path) == toys.contents(path)

    of.finalise(merged.path)
    again = of.subset(merged.path, tmp_path / "again.zarr", films=["tt2"])
    expected = toys.contents(toys.a_store(tmp_path / "expected2.zarr", 5, film="tt2"))
    assert toys.contents(again.path) == expected
    with pytest.raises(StoreError, match=r"subset\): .* duplicate id 'tt1-000'; item 1"):
        of.merge([merged.path, first], tmp_path / "none.zarr")


def test_damage_is_not_copied(tmp_path, path):
    part = toys.a_store(tmp_path / "part.zarr", blocks=[1, 2])
    toys.flip_bit(part / "native/c/2/0", 30)
    before = toys.contents(part)
    with pytest.raises(StoreError, match=r"native/c/2/0: .* obygaze stores repair"):
        of.finalise(part, allow_incomplete=True)
    assert toys.contents(part) == before
    # Films are not part of the items digest, so the checksum of the file must differ.
    items = path / "items.csv"
    items.write_text(items.read_text().replace("tt1-001,clip,tt1,", "tt1-001,clip,tt7,"))
    with pytest.raises(StoreError, match="has changed since"):
        of.subset(path, tmp_path / "all.zarr", films=["tt7"])
    with pytest.raises(StoreError, match="has changed since"):
        of.merge([path, path], tmp_path / "all.zarr")
    assert not (tmp_path / "all.zarr").exists()


def test_differing_manifest_fields_are_all_kept(tmp_path):
    first = toys.a_store(tmp_path / "one.zarr", 6, blocks=[0])  # the rows 4 and 5 are to do
    plain = Manifest("theirs", Items.of([Item("tt2-000", film="tt2")]), licence="CC-BY-4.0")
    second = toys.a_store(tmp_path / "two.zarr", manifest=plain)
    store = of.merge([first, second], tmp_path / "both.zarr")
    assert store.attributes["manifest"] == "made-up; theirs"
    assert store.attributes["licence"] == "CC0-1.0; CC-BY-4.0"
    assert store.attributes["citation"] == "Somebody (2026). Made-up clips."
    assert (store.path / "items.csv").read_text().splitlines()[-1] == "tt2-000,clip,tt2,,,,,"
    assert store.status.tolist() == [1] * 4 + [0] * 2 + [1]
    assert of.verify(store.path) == []


def test_diff_compares_rows_by_cosine(sound, tmp_path):
    def noisy(row):
        done = toys.a_row(row)
        if row == toys.FAILED:
            return done
        noise = np.random.default_rng([row, 1]).normal(size=5)
        return replace(done, values={**done.values, "native": done.values["native"] + noise})

    second = toys.a_store(tmp_path / "two.zarr", blocks=[])
    toys.fill(toys.resume(second), None, noisy)
    difference = of.diff(sound / "open.zarr", second)
    assert not difference["identical"]
    a = of.open_store(sound / "open.zarr").read(missing="drop").astype(float)
    b = of.open_store(second).read(missing="drop").astype(float)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = (a * b).sum(1) / lengths
    native = difference["rows"]["native"]
    assert native["mean"] == close(cosines.mean())
    assert native["least"] == close(cosines.min())
    assert difference["rows"]["frames"]["equal"] == 17


def test_diff_names_other_items_and_recipes(tmp_path):
    left = of.open_store(toys.a_store(tmp_path / "one.zarr", 8))
    part = of.subset(left, tmp_path / "some.zarr", ids=["tt1-002", "tt1-005"])
    difference = of.diff(left, part)
    assert changed_in(difference) == {"items_digest", "n"}
    assert difference["rows"]["native"]["n"] == 2
    assert not difference["identical"]

    recipe = replace(toys.RECIPE, arrays=toys.ARRAYS[1:], precision="float16")
    difference = of.diff(left, toys.a_store(tmp_path / "other.zarr", 8, recipe=recipe))
    assert changed_in(difference) == {"arrays.native", "precision"}
    assert set(difference["rows"]) == {"frames", "frame_index"}
    difference = of.diff(left, toys.a_store(tmp_path / "two.zarr", 4, film="tt2"))
    assert difference["rows"]["native"]["n"] == 0


def test_weights_are_compared_and_not_names(tmp_path):
    """Older stores record the backbone's family, newer stores the name that was typed."""
    today = {**toys.RECIPE.backbone, "name": "toy-base", "family": "toy", "revision": "main"}
    recipe = replace(toys.RECIPE, backbone=today)
    before = toys.a_store(tmp_path / "old.zarr", blocks=[0, 1, 2])
    after = toys.a_store(tmp_path / "new.zarr", blocks=[2, 3, 4], recipe=recipe)
    assert of.diff(before, after)["attributes"] == []
    assert len(of.merge([before, after], tmp_path / "all.zarr").done_ids()) == 17
    changed = replace(recipe, backbone={**today, "weights_sha256": "cd" * 32})
    unlike = toys.a_store(tmp_path / "other.zarr", blocks=[], recipe=changed)
    with pytest.raises(StoreError, match=r"differs in backbone\.weights_sha256"):
        of.merge([after, unlike], tmp_path / "both.zarr")
