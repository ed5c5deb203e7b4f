"""New stores from others, and comparisons of two stores."""

from dataclasses import replace

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import ManifestError, StoreError, UsageError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import ArraySpec, Done, Failed, Status, StoreWriter, merge, subset
from obygaze_features.store.diff import diff
from obygaze_features.store.finalise import finalise
from obygaze_features.store.verify import verify
from tests.kit import store as toys
from tests.kit.floats import close
from tests.kit.store import flip_bit


def counts(store):
    rows = store.info()["rows"]
    return rows["done"], rows["failed"], rows["to_do"]


def changed_in(difference):
    return {row["attribute"] for row in difference["attributes"]}


def test_merged_parts_equal_the_whole_store(tmp_path, sound):
    blocks = [[0, 3], [1, 3], [2, 4]]
    parts = [toys.a_store(tmp_path / f"{n}.zarr", blocks=blocks[n]) for n in range(3)]
    finalise(parts[1], allow_incomplete=True)
    merged = merge([str(path) for path in parts], str(tmp_path / "all.zarr"))
    assert counts(merged) == (17, 1, 0)
    assert toys.contents(merged.path) == toys.contents(sound / "open.zarr")
    for copied in (merge([merged], tmp_path / "one.zarr"), subset(merged, tmp_path / "two.zarr")):
        assert toys.contents(copied.path) == toys.contents(merged.path)

    half = merge(parts[:2], tmp_path / "half.zarr")
    assert counts(half) == (11, 1, 6)
    writer = toys.resume(half.path)
    assert writer.store.missing_rows().tolist() == [*range(8, 12), 16, 17]
    toys.fill(writer)
    assert toys.contents(half.path) == toys.contents(sound / "open.zarr")


def test_failed_rows_come_from_the_other_part(tmp_path, path):
    first = toys.a_store(tmp_path / "one.zarr", blocks=[])
    missing = Failed(Status.MISSING, "not there")
    toys.fill(toys.resume(first), None, lambda row: missing if row > 2 else toys.a_row(row))
    merged = merge([first, path], tmp_path / "all.zarr")
    assert counts(merged) == (17, 1, 0)
    assert merged.failures == {"tt1-006": "not there"}  # both failed: the first one's reason
    # Done in both, but different.
    changed = replace(toys.a_row(9), values=toys.a_row(9).values | {"frames": np.ones((2, 3))})
    second = toys.a_store(tmp_path / "two.zarr", blocks=[])
    toys.fill(toys.resume(second), None, lambda row: changed if row == 9 else toys.a_row(row))
    with pytest.raises(
        StoreError, match=r"frames row of tt1-009 differs between .*toy.* stores diff"
    ):
        merge([path, second], tmp_path / "none.zarr")
    assert not (tmp_path / "none.zarr").exists()


def test_padding_is_equal_in_two_parts(tmp_path):
    spec = ArraySpec("frames", (3, 2), "float16", "two of three frames", padded=True)
    values = np.array([[1, 2], [3, 4], [np.nan, np.nan]])
    paths = []
    for name in ("one", "two"):
        recipe = toys.plain_recipe(spec)
        writer = StoreWriter.create(tmp_path / f"{name}.zarr", toys.plain_manifest(2).items, recipe)
        writer.write_rows(dict.fromkeys(range(2), Done({"frames": values}, None)))
        paths.append(writer.store.path)
    assert counts(merge(paths, tmp_path / "all.zarr")) == (2, 0, 0)


@pytest.mark.night
def test_films_merge_into_one_store_and_split_again(tmp_path):
    """The result is that of one manifest, whatever the block sizes."""
    first = toys.a_store(tmp_path / "one.zarr", 7, film="tt1")
    second = toys.a_store(tmp_path / "two.zarr", 5, film="tt2", block_rows=3)
    merged = merge([first, second], tmp_path / "both.zarr")
    assert counts(merged) == (11, 1, 0)
    with pytest.raises(StoreError, match=r"subset\): .* duplicate id 'tt1-000'; item 1"):
        merge([merged, first], tmp_path / "none.zarr")
    assert not (tmp_path / "none.zarr").exists()

    joined = [*toys.a_manifest(7, "tt1").items, *toys.a_manifest(5, "tt2").items]
    notes = [f"note, {row}" for row in (*range(7), *range(5))]
    about = {"licence": "CC0-1.0", "citation": "Somebody (2026). Made-up clips."}
    items = Items.of(joined, {"note": notes})
    path, probe = tmp_path / "expected.zarr", toys.probe()
    about["manifest"] = "made-up"
    writer = StoreWriter.create(path, items, toys.RECIPE, about, probe=probe, block_rows=4)
    rows = [*((row, "tt1") for row in range(7)), *((row, "tt2") for row in range(5))]
    toys.fill(writer, None, lambda row: toys.a_row(*rows[row]))
    assert toys.contents(merged.path) == toys.contents(path)

    finalise(merged.path)
    again = subset(of.open_store(merged.path), tmp_path / "again.zarr", films=["tt2"])
    assert counts(again) == (5, 0, 0)
    expected = toys.contents(toys.a_store(tmp_path / "expected2.zarr", 5, film="tt2"))
    assert toys.contents(again.path) == expected
    assert subset(again, tmp_path / "single.zarr", ids="tt2-000").ids == ["tt2-000"]


def test_a_subset_of_all_but_a_film(tmp_path):
    """Items without a film are kept, and the others in their order."""
    films = ["tt1", "", "tt2", "tt1", "tt3"]
    items = Items.of([Item(f"clip-{n}", film=film) for n, film in enumerate(films)])
    np.save(tmp_path / "X.npy", np.arange(10, dtype=np.float32).reshape(5, 2))
    manifest = Manifest("five", items)
    store = of.import_features(tmp_path / "X.npy", manifest, tmp_path / "all.zarr", ids=items.ids)
    ids = ["clip-1", "clip-2", "clip-4"]
    part = of.subset(store, tmp_path / "part.zarr", films=["!tt1"])
    assert part.ids == ids
    np.testing.assert_array_equal(part.read(), store.read(ids=ids))
    with pytest.raises(UsageError, match=r"no item of .*all.zarr"):
        of.subset(store, tmp_path / "none.zarr", ids=[])


def test_damage_is_not_copied(tmp_path, path):
    part = toys.a_store(tmp_path / "part.zarr", blocks=[1, 2])
    flip_bit(part / "native/c/2/0", 30)
    before = toys.contents(part)
    for change in (
        lambda: merge([path, part], tmp_path / "all.zarr"),
        lambda: finalise(part, allow_incomplete=True),
    ):
        with pytest.raises(StoreError, match=r"native/c/2/0: .* obygaze stores repair"):
            change()
    assert toys.contents(part) == before
    # Films are not part of the items digest, so the checksum of the file must differ.
    items = path / "items.csv"
    items.write_text(items.read_text().replace("tt1-001,clip,tt1,", "tt1-001,clip,tt7,"))
    store = of.open_store(path)
    for change in (
        lambda: finalise(path),
        lambda: subset(store, tmp_path / "all.zarr", films=["tt7"]),
        lambda: merge([store, store], tmp_path / "all.zarr"),
    ):
        with pytest.raises((StoreError, ManifestError), match="has changed since"):
            change()
    assert not (tmp_path / "all.zarr").exists()


def test_differing_manifest_fields_are_all_kept(tmp_path):
    first = toys.a_store(tmp_path / "one.zarr", 6, blocks=[0])  # the rows 4 and 5 are to do
    plain = Manifest("theirs", Items.of([Item("tt2-000", film="tt2")]), licence="CC-BY-4.0")
    second = toys.a_store(tmp_path / "two.zarr", manifest=plain)
    store = merge([first, second], tmp_path / "both.zarr")
    assert store.attributes["manifest"] == "made-up; theirs"
    assert store.attributes["licence"] == "CC0-1.0; CC-BY-4.0"
    assert store.attributes["citation"] == "Somebody (2026). Made-up clips."
    assert (store.path / "items.csv").read_text().splitlines()[-1] == "tt2-000,clip,tt2,,,,,"
    assert store.status.tolist() == [1] * 4 + [0] * 2 + [1]
    assert verify(store.path) == []


def test_diff_compares_rows_by_cosine(sound, tmp_path):
    def noisy(row):
        done = toys.a_row(row)
        if row == toys.FAILED:
            return done
        scale = 0.5 if row == 11 else 1e-6
        noise = np.random.default_rng([row, 1]).normal(size=5) * scale
        return replace(done, values={**done.values, "native": done.values["native"] + noise})

    second = toys.a_store(tmp_path / "two.zarr", blocks=[])
    toys.fill(toys.resume(second), None, noisy)
    left, right = of.open_store(sound / "open.zarr"), of.open_store(second)
    difference = diff(left, right)
    assert not difference["identical"]
    a, b = (store.read("native", missing="drop").astype(float) for store in (left, right))
    cosines = (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))
    native = difference["rows"]["native"]
    assert native["mean"] == close(cosines.mean())
    assert native["least"] == close(cosines.min())
    assert difference["rows"]["frames"]["equal"] == difference["rows"]["frames"]["n"] == 17


def test_diff_names_other_items_orders_and_recipes(tmp_path):
    left = of.open_store(toys.a_store(tmp_path / "one.zarr", 8))
    part_of_left = subset(left, tmp_path / "some.zarr", ids=["tt1-002", "tt1-005"])
    difference = diff(left, part_of_left)
    assert changed_in(difference) == {"items_digest", "n"}
    assert difference["rows"]["native"]["n"] == 2
    assert not difference["identical"]

    recipe = replace(toys.RECIPE, arrays=toys.ARRAYS[1:], precision="float16")
    other = toys.a_manifest(8)
    path = tmp_path / "other.zarr"
    writer = StoreWriter.create(path, other.items, recipe, other.about, block_rows=4)
    toys.fill(writer)
    difference = diff(left, of.open_store(writer.store.path))
    assert changed_in(difference) == {"arrays.native", "precision"}
    precision = {"attribute": "precision", "left": "float32", "right": "float16"}
    assert precision in difference["attributes"]
    assert set(difference["rows"]) == {"frames", "frame_index"}

    difference = diff(left, of.open_store(toys.a_store(tmp_path / "two.zarr", 4, film="tt2")))
    assert (difference["rows"]["native"]["n"], difference["rows"]["native"]["mean"]) == (0, None)
    assert not difference["identical"]


def test_diff_compares_weights_not_names(tmp_path):
    """Older stores record the backbone's family, newer stores the name that was typed."""
    today = {**toys.RECIPE.backbone, "name": "toy-base", "family": "toy"}
    recipe = replace(toys.RECIPE, backbone=today)
    before = of.open_store(toys.a_store(tmp_path / "old.zarr", blocks=[0, 1, 2]))
    after = of.open_store(toys.a_store(tmp_path / "new.zarr", blocks=[2, 3, 4], recipe=recipe))
    assert diff(before, after)["attributes"] == []
    assert len(merge([before, after], tmp_path / "all.zarr").done_ids()) == 17
    moved = replace(recipe, backbone={**today, "revision": "main"})
    resumed = StoreWriter.resume(before.path, toys.a_manifest().items, moved, block_rows=4)
    assert resumed.store.missing_rows().tolist() == [*range(12, 18)]
    changed = replace(recipe, backbone={**today, "weights_sha256": "cd" * 32})
    unlike = of.open_store(toys.a_store(tmp_path / "other.zarr", blocks=[], recipe=changed))
    assert changed_in(diff(before, unlike)) == {"backbone.weights_sha256"}
    with pytest.raises(StoreError, match=r"differs in backbone\.weights_sha256"):
        merge([after, unlike], tmp_path / "both.zarr")


def test_a_subset_has_the_files_of_an_extraction(tmp_path):
    """Blocks 1 and 2 become 0 and 1; the failed row and the pending row keep their status."""

    writer = toys.resume(toys.a_store(tmp_path / "toy.zarr", blocks=[]))
    writer.write_rows({row: toys.a_row(row) for row in range(18) if row != 9})
    store = of.open_store(tmp_path / "toy.zarr")
    part = subset(store, tmp_path / "part.zarr", ids=store.ids[4:12])
    for new, old in enumerate([store.records[1], store.records[2]]):
        assert part.records[new] == replace(old, block=new)  # with the checksums of its shards
    assert counts(part) == (6, 1, 1)
    assert part.failures == {"tt1-006": 'cannot be decoded: "moov", not found'}
    assert verify(part.path) == []
    assert list((part.path / "staging").iterdir()) == []
