"""Only some of the clips: the others stay to do, and are done later as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import UsageError
from obygaze_features.extraction import extract
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import Status, open_store, verify


@pytest.fixture(scope="module")
def two_films() -> Manifest:
    """Forty clips of a, then forty of b: the second of three blocks holds both."""
    items = [
        Item(f"{film}-{row:02}", film=film, media=f"clip{row % 6}.mp4")
        for film in "ab"
        for row in range(40)
    ]
    return Manifest("two films", Items.of(items))


@pytest.fixture(scope="module")
def whole_store(two_films, films, tiny, tmp_path_factory) -> Path:
    (store,) = extract(two_films, films, [tiny], tmp_path_factory.mktemp("whole")).stores
    return store


def assert_equal(left: Path, right: Path) -> None:
    """The same arrays and the same records, so byte for byte the same shards."""
    a, b = open_store(left), open_store(right)
    assert a.status.tolist() == b.status.tolist()
    for name in a.arrays:
        np.testing.assert_array_equal(a.read(name, missing="nan"), b.read(name, missing="nan"))
    for block in range(a.blocks):
        assert a.record_of(block) == b.record_of(block)


@pytest.mark.gate
def test_one_film_and_then_the_other(two_films, films, tiny, whole_store, tmp_path):
    first = extract(two_films, films, [tiny], tmp_path, films=("b",))
    store = open_store(tmp_path / "tiny.zarr")
    assert (first.clips, first.left) == (40, 0)
    assert [left for left, code in zip(store.ids, store.status, strict=True) if code] == [
        f"b-{row:02}" for row in range(40)
    ]
    assert verify(store.path) == []

    second = extract(two_films, films, [tiny], tmp_path)
    assert (second.clips, second.done) == (40, 80)
    # Batches were others in the block that both films share: the last bit may differ there.
    store, expected = open_store(tmp_path / "tiny.zarr"), open_store(whole_store)
    assert verify(store.path) == []
    for name in store.arrays:
        np.testing.assert_allclose(
            store.read(name, missing="nan"),
            expected.read(name, missing="nan"),
            rtol=2e-3,
            atol=1e-5,
        )


@pytest.mark.gate
def test_a_few_first_and_then_the_rest(two_films, films, tiny, whole_store, tmp_path):
    assert extract(two_films, films, [tiny], tmp_path, limit=8).done == 8
    assert extract(two_films, films, [tiny], tmp_path, limit=8).clips == 0
    assert extract(two_films, films, [tiny], tmp_path).clips == 72
    assert_equal(tmp_path / "tiny.zarr", whole_store)  # equal bits: eight are a batch


@pytest.mark.gate
def test_parts_make_the_whole(two_films, films, tiny, whole_store, tmp_path):
    counts = [
        extract(two_films, films, [tiny], tmp_path, part=f"{part}/2").clips for part in (1, 2)
    ]
    assert counts == [32 + 16, 32]
    assert_equal(tmp_path / "tiny.zarr", whole_store)


@pytest.mark.gate
def test_what_failed_is_tried_again_only_when_asked(two_films, films, tiny, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    for clip in films.iterdir():
        if clip.name != "clip3.mp4":
            (videos / clip.name).symlink_to(clip)
    first = extract(two_films, videos, [tiny], tmp_path)
    assert set(first.failed["missing"]) == {
        f"{f}-{row:02}" for f in "ab" for row in range(3, 40, 6)
    }
    (videos / "clip3.mp4").symlink_to(films / "clip3.mp4")
    assert extract(two_films, videos, [tiny], tmp_path).clips == 0
    again = extract(two_films, videos, [tiny], tmp_path, retry_failed=True, films=("a",))
    assert again.clips == 7
    store = open_store(tmp_path / "tiny.zarr")
    assert set(store.failures) == {f"b-{row:02}" for row in range(3, 40, 6)}
    assert extract(two_films, videos, [tiny], tmp_path, retry_failed=True).failed == {}
    assert (open_store(store.path).status == Status.DONE).all()


def test_a_film_that_is_not_there_is_refused(two_films, films, tiny, tmp_path):
    with pytest.raises(UsageError, match="no clip of the film 'c'"):
        extract(two_films, films, [tiny], tmp_path, films=("c",))
    with pytest.raises(UsageError, match="the film 'A'; did you mean a"):
        extract(two_films, films, [tiny], tmp_path, films="A")


def test_slips_in_the_arguments_are_named(two_films, films, tiny, tmp_path):
    with pytest.raises(UsageError, match="unknown option 'limits'; did you mean limit"):
        extract(two_films, films, [tiny], tmp_path, limits=2)
    with pytest.raises(UsageError, match="no backbone"):
        extract(two_films, films, [], tmp_path)


def test_a_manifest_may_be_its_folder(two_films, films, tiny, tmp_path):
    two_films.save(tmp_path / "manifest")
    assert extract(tmp_path / "manifest", films, tiny, tmp_path, limit=1).done == 1
