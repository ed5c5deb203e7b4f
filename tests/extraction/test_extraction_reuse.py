"""Rows of an older store are copied for clips that are the same; the rest is computed."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import StoreError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store.verify import verify
from tests.kit.films import clips, write_clip


def manifest_of(*items: Item) -> Manifest:
    return Manifest("made-up", Items.of(items))


@pytest.fixture(scope="module")
def old(films, tiny, tmp_path_factory):
    """A store of clip1 to clip4."""
    manifest = clips(*(f"clip{number}.mp4" for number in range(1, 5)))
    (path,) = of.extract(manifest, films, tiny, tmp_path_factory.mktemp("old")).stores
    return path


@pytest.mark.night
def test_clips_of_a_longer_manifest_are_copied_without_their_files(
    films, tiny, old, weights, obygaze, tmp_path
):
    some_films = tmp_path / "films"
    some_films.mkdir()
    for name in ("clip0.mp4", "clip5.mp4"):
        shutil.copy(films / name, some_films)
    longer = clips(*(f"clip{number}.mp4" for number in range(6)))
    with pytest.raises(StoreError, match=f"other items; .* --reuse {old}"):
        of.extract(longer, films, tiny, old.parent)

    longer.save(tmp_path / "longer")
    result = obygaze(
        "features", "extract", tmp_path / "longer", "--videos", some_films, "--device", "cpu",
        "--backbone", f"tiny={weights}", "-o", tmp_path / "new", "--reuse", old, code=0,
    )  # fmt: skip
    new = of.open_store(tmp_path / "new/tiny.zarr")
    assert f"Rows copied from {old} into {new.path}: 4" in result.stderr
    assert "6 of 6 clips done" in result.stdout
    assert verify(new.path) == []
    before = of.open_store(old)
    rows = new.find_rows(before.ids).tolist()
    sources = [new.rows_table["source"][row] for row in rows]
    assert sources == before.rows_table["source"]
    for array in before.arrays:
        np.testing.assert_array_equal(new.read(array, before.ids), before.read(array))


def test_clips_that_changed_are_computed(films, tiny, tmp_path):
    """Their file, span or id changed, or they failed before."""
    folder = tmp_path / "films"
    folder.mkdir()
    for name in ("a.mp4", "b.mp4"):
        write_clip(folder / name, "S", seconds=2)
    same, file, span = Item("same", media="a.mp4", start=0, end=1), Item("file"), Item("span")
    file, span = replace(file, media="b.mp4"), replace(span, media="a.mp4", start=0, end=1)
    other, failed = replace(same, id="other"), Item("failed", media="c.mp4")
    first = of.extract(manifest_of(same, file, span, failed), folder, tiny, tmp_path / "old")
    assert (first.done, list(first.failed["missing"])) == (3, ["failed"])

    write_clip(folder / "b.mp4", "S", seconds=2, seed=1)
    write_clip(folder / "c.mp4", "S")
    now = manifest_of(other, replace(span, end=1.5), failed, file, replace(same, media="a"))
    summary = of.extract(now, folder, tiny, tmp_path / "new", reuse=of.open_store(first.stores[0]))
    assert (summary.clips, summary.done) == (4, 5)
    fresh = of.extract(now, folder, tiny, tmp_path / "fresh", batch=1).stores[0]
    for array in of.open_store(fresh).arrays:
        ours, wanted = (of.open_store(path).read(array) for path in (summary.stores[0], fresh))
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-3)
    with pytest.raises(StoreError, match=r"cannot be reused: .* precision"):
        of.extract(now, folder, tiny.with_changes(precision="x"), tmp_path / "x", reuse=fresh)


def test_a_film_that_was_replaced_is_named(tiny, weights, obygaze, tmp_path):
    """Its rows are kept; another output with --reuse has the new ones."""
    folder, manifest = tmp_path / "films", tmp_path / "manifest"
    folder.mkdir()
    for seed, name in enumerate(("a.mp4", "b.mp4")):
        write_clip(folder / name, "S", seed=seed)
    clips("a.mp4", "b.mp4").save(manifest)

    def run(output, *options):
        command = ("features", "extract", manifest, "--videos", folder, "-o", tmp_path / output)
        tiny_too = ("--backbone", f"tiny={weights}", "--device", "cpu")
        return obygaze(*command, *tiny_too, *options, code=0).stderr

    assert "--reuse" not in run("old")
    assert "--reuse" not in run("old")
    write_clip(folder / "b.mp4", "S", seed=2)
    old = tmp_path / "old/tiny.zarr"
    told = run("old")
    assert f"1 ({clips('a.mp4', 'b.mp4').ids[1]})" in told
    assert f"--reuse {old}" in told
    assert f"Rows copied from {old} into {tmp_path / 'new/tiny.zarr'}: 1" in run(
        "new", "--reuse", old
    )


@pytest.mark.night
def test_each_store_takes_the_rows_of_its_own_recipe(films, tiny, old, weights, tmp_path):
    author = of.load_backbone(f"author={weights}", "cpu", mode="author")
    longer = clips(*(f"clip{number}.mp4" for number in range(6)))
    summary = of.extract(longer, films, [tiny, author], tmp_path / "new", reuse=[old])
    assert (summary.clips, summary.done) == (6, 6)
    for path, count in zip(summary.stores, (4, 0), strict=True):
        log = (path / "log.jsonl").read_text()
        assert log.count('"reused"') == int(count > 0)
    before = of.open_store(old)
    new = of.open_store(summary.stores[0])
    np.testing.assert_array_equal(new.read("native", before.ids), before.read("native"))
