"""Rows of an older store are copied for clips that are the same; the rest is computed."""

from dataclasses import replace

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import StoreError
from obygaze_features.manifests import Item, Items, Manifest
from tests.kit.films import rows, write_clip


def manifest_of(*items: Item) -> Manifest:
    return Manifest("made-up", Items.of(items))


def test_clips_that_changed_are_computed(films, tiny, tmp_path):
    """Their file, span or id changed, or they failed before."""
    folder = tmp_path / "films"
    folder.mkdir()
    for name in ("a.mp4", "b.mp4"):
        write_clip(folder / name, "S", seconds=2)
    same = Item("same", media="a.mp4", start=0, end=1)
    span = replace(same, id="span")
    other = replace(same, id="other")
    file = Item("file", media="b.mp4")
    failed = Item("failed", media="c.mp4")
    first = of.extract(manifest_of(same, file, span, failed), folder, tiny, tmp_path / "old")
    assert (first.done, list(first.failed["missing"])) == (3, ["failed"])

    write_clip(folder / "b.mp4", "S", seconds=2, seed=1)
    write_clip(folder / "c.mp4", "S")
    now = manifest_of(other, replace(span, end=1.5), failed, file, replace(same, media="a"))
    old = of.open_store(first.stores[0])
    summary = of.extract(now, folder, tiny, tmp_path / "new", reuse=old)
    assert (summary.clips, summary.done) == (4, 5)
    fresh = of.extract(now, folder, tiny, tmp_path / "fresh", batch=1).stores[0]
    ours = of.open_store(summary.stores[0]).read("native")
    wanted = of.open_store(fresh).read("native")
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-3)
    with pytest.raises(StoreError, match=r"cannot be reused: .* precision"):
        of.extract(now, folder, tiny.with_changes(precision="x"), tmp_path / "x", reuse=fresh)


def test_a_film_that_was_replaced_is_named(weights, obygaze, tmp_path):
    """Its rows are kept; another output with --reuse has the new ones."""
    manifest = rows(40, films=2)  # in two blocks
    manifest.save(tmp_path / "manifest")
    write_clip(tmp_path / "clip0.mp4", "S")
    write_clip(tmp_path / "clip1.mp4", "S", seed=1)

    def run(output, *options):
        command = ("features", "extract", tmp_path / "manifest", "--videos", tmp_path)
        network = ("--backbone", f"tiny={weights}", "--device", "cpu", "-o", tmp_path / output)
        return obygaze(*command, *network, *options, code=0).stderr

    run("old")
    assert "--reuse" not in run("old")
    write_clip(tmp_path / "clip1.mp4", "S", seed=2)
    old = tmp_path / "old/tiny.zarr"
    told = run("old")
    assert f"20 ({manifest.ids[1]}, " in told
    assert f"--reuse {old}" in told
    copied = run("new", "--reuse", old)
    assert f"Rows copied from {old} into {tmp_path / 'new/tiny.zarr'}: 20" in copied
