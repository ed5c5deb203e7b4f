"""`of.search`, against plain NumPy on the numbers that the stores were made of."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import ObygazeError, StoreError, UsageError
from obygaze_features.store import ArraySpec
from obygaze_features.store import nearest as nearest_module
from obygaze_features.store.pack import pack
from tests.retrieval.conftest import FAILED, PADDED, TOY, WIDTH, ZERO, make_search_store


def brute(made, query, array="native", keep=None):
    """Ids in order of cosine, the cosines, and the nearest frame of each, in float64."""
    values = made.values[array].astype(np.float64)
    values = values[:, None] if values.ndim == 2 else values
    with np.errstate(invalid="ignore"):
        cosine = values @ query / np.linalg.norm(values, axis=-1) / np.linalg.norm(query)
    cosine = np.where(np.isnan(cosine), -np.inf, cosine)
    frame, best = cosine.argmax(1), cosine.max(1)
    keep = made.done if keep is None else made.done & keep
    rows = [r for r in np.argsort(-best, kind="stable") if keep[r] and np.isfinite(best[r])]
    return [made.ids[row] for row in rows], best[rows], frame[rows]


@pytest.fixture
def query():
    return np.random.default_rng(9).standard_normal(WIDTH)


@pytest.fixture(scope="module", params=["open", "final", "compressed", "zip"])
def any_store(request, made, tmp_path_factory):
    store = of.open_store(made.path)
    if request.param == "open":
        return store
    folder = tmp_path_factory.mktemp(request.param)
    copy = store.subset(folder / "copy.zarr", ids=store.ids)
    copy.finalise(compress=request.param == "compressed", allow_incomplete=True)
    return pack(copy.path, folder / "copy.zip")["path"] if request.param == "zip" else copy


def test_vector_search_equals_brute_force(made, any_store, query):
    matches = of.search(any_store, vector=query, top=100)
    ids, cosines, _ = brute(made, query)
    assert [match.id for match in matches] == ids
    np.testing.assert_allclose([match.cosine for match in matches], cosines, atol=1e-6)
    assert {match.film for match in matches} == {"tt1", "tt2", "tt3"}
    assert matches[0].frame is matches[0].time is None


def test_neighbours_equal_brute_force_in_any_blocks(made, store, monkeypatch):
    monkeypatch.setattr(nearest_module, "NEIGHBOUR_ROWS", 7)
    ids = [made.ids[row] for row in range(len(made.ids)) if row % 3]
    neighbours = nearest_module.find_neighbours(store, [*ids, "unknown"], top=4)
    for row, item_id in enumerate(made.ids):
        if item_id not in ids or not made.done[row]:
            assert item_id not in neighbours
            continue
        others = np.isin(made.ids, ids) & (np.arange(len(made.ids)) != row)
        if row == ZERO:
            assert neighbours[item_id] == []
            continue
        nearest, cosines, _ = brute(made, made.values["native"][row], keep=others)
        assert [match.id for match in neighbours[item_id]] == nearest[:4]
        given = [match.cosine for match in neighbours[item_id]]
        np.testing.assert_allclose(given, cosines[:4], atol=1e-6)


def test_rows_not_done_or_without_direction_do_not_match(made, store, query):
    matches = {match.id for match in of.search(store, vector=query, top=100)}
    assert matches.isdisjoint({made.ids[FAILED], made.ids[ZERO], *made.ids[32:]})
    assert len(matches) == 30


def test_search_by_frame_says_which_moment(made, any_store, query):
    matches = of.search(any_store, vector=query, frames=True, top=100)
    ids, cosines, frames = brute(made, query, "frames")
    assert [match.id for match in matches] == ids
    assert [match.frame for match in matches] == frames.tolist()
    assert [match.time for match in matches] == (frames * 1.5).tolist()
    np.testing.assert_allclose([match.cosine for match in matches], cosines, atol=1e-6)
    assert next(match.frame for match in matches if match.id == made.ids[PADDED]) < 2


def test_blocks_and_threads_change_nothing(made, store, query, monkeypatch):
    expected = of.search(store, vector=query, top=7)
    monkeypatch.setattr(nearest_module, "BLOCK_BYTES", 1)
    monkeypatch.setattr(nearest_module, "FORGET_BYTES", 1)
    assert [match.id for match in of.search(store, vector=query, top=7)] == [
        match.id for match in expected
    ]


def test_like_leaves_the_clip_itself_out(made, store):
    clip = made.ids[11]
    matches = of.search(store, like=clip, top=100)
    ids, _, _ = brute(made, made.values["native"][11])
    assert [clip, *(match.id for match in matches)] == ids


def test_like_by_frames_takes_the_mean_of_the_frames(made, store):
    matches = of.search(store, like=made.ids[PADDED], frames=True, top=3)
    mean = made.values["frames"][PADDED, :2].astype(np.float64).mean(0)
    ids, _, _ = brute(made, mean, "frames")
    assert [match.id for match in matches] == [i for i in ids if i != made.ids[PADDED]][:3]


def test_films_and_several_stores(made, store, query, tmp_path):
    other = make_search_store(tmp_path / "b.zarr", 16, seed=3, films=("tt3", "tt4"), partial=False)
    matches = of.search([made.path, other.path], vector=query, films=["tt2", "tt4"], top=6)
    scores = {}
    for part, film in ((made, "tt2"), (other, "tt4")):
        ids, cosines, _ = brute(part, query, keep=np.array(part.films) == film)
        scores |= dict(zip(ids, cosines, strict=True))
    assert [match.id for match in matches] == sorted(scores, key=scores.get, reverse=True)[:6]
    assert {match.store for match in matches} == {str(made.path), str(other.path)}
    assert of.search(store, vector=query, films="tt2", top=1)[0].film == "tt2"


def test_equal_cosines_come_in_the_order_of_rows(tmp_path):
    arrays = (ArraySpec("native", (2,), "float32", "two numbers"),)
    made = make_search_store(tmp_path / "s.zarr", 16, arrays=arrays, partial=False)
    store = of.open_store(made.path)
    values = store.read("native", missing="drop")
    values[:] = 1
    store.read_rows = lambda array, rows: np.ones((len(rows), 2), np.float32)
    matches = of.search(store, vector=[1, 1], top=4)
    assert [match.id for match in matches] == made.ids[:4]


@pytest.mark.parametrize("suffix", [".npy", ".json", ".csv"])
def test_vector_from_a_file(made, store, query, tmp_path, suffix):
    path = tmp_path / f"query{suffix}"
    if suffix == ".npy":
        np.save(path, query[None])
    elif suffix == ".json":
        path.write_text(json.dumps(query.tolist()))
    else:
        path.write_text("\n".join(map(repr, query.tolist())))
    assert [match.id for match in of.search(store, vector=path)] == brute(made, query)[0][:10]


def test_memory_is_bounded(tmp_path):
    arrays = (ArraySpec("native", (8192,), "float32", "wide"),)
    made = make_search_store(
        tmp_path / "wide.zarr", 2048, arrays=arrays, partial=False, block_rows=256
    )
    store = of.open_store(made.path)
    store.items  # noqa: B018
    tracemalloc.start()
    of.search(store, vector=np.ones(8192), top=5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 24 * 2**20 < made.values["native"].nbytes / 2


def test_damage_is_named(made, tmp_path, query):
    store = of.open_store(made.path).subset(tmp_path / "s.zarr", films=["tt1"])
    file = store.path / "native/c/0/0"
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    file.chmod(0o644)
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"checksum is wrong; the row of tt1-000"):
        of.search(of.open_store(store.path), vector=query)


def test_other_backbones_are_refused(made, tmp_path, query):
    other = make_search_store(
        tmp_path / "b.zarr", 8, backbone={**TOY, "weights_sha256": "cd" * 32}, partial=False
    )
    with pytest.raises(UsageError, match=r"b\.zarr is of another backbone .*cdcdcdcd"):
        of.search([made.path, other.path], vector=query)
    with pytest.raises(UsageError, match="given twice"):
        of.search([made.path, made.path], vector=query)


BAD = {
    "no query": ({}, "one of the three"),
    "two queries": ({"like": "a", "vector": [1]}, "one of the three"),
    "unknown id": ({"like": "tt1-03"}, r"no item 'tt1-03'; did you mean tt1-003\?"),
    "failed row": ({"like": "tt3-005"}, "tt3-005 failed: cannot be decoded"),
    "row to do": ({"like": "tt3-035"}, "tt3-035 is not done yet"),
    "zero vector": ({"vector": [0] * WIDTH}, "no direction"),
    "infinite vector": ({"vector": [np.inf] * WIDTH}, "no direction"),
    "width": ({"vector": [1, 2]}, r"vectors of 32 numbers \(got a query of 2\)"),
    "words": ({"vector": ["a"] * WIDTH}, "not a list of numbers"),
    "array": ({"vector": [1] * WIDTH, "array": "natve"}, r"'natve'; did you mean native\?"),
    "tokens": ({"vector": [1] * WIDTH, "array": "tokens"}, "unknown array 'tokens'"),
    "a frame array": ({"vector": [1] * WIDTH, "array": "frames"}, "with frames"),
    "native by frame": (
        {"vector": [1] * WIDTH, "array": "native", "frames": True},
        "without frames",
    ),
    "film": ({"vector": [1] * WIDTH, "films": ["tt9"]}, "unknown film 'tt9'"),
    "top": ({"vector": [1] * WIDTH, "top": 0}, "at least 1"),
    "backbone": ({"vector": [1] * WIDTH, "backbone": "x"}, "only to search by text"),
    "empty text": ({"text": " "}, "is empty"),
    "no file": ({"vector": "no.npy"}, r"no\.npy cannot be read: No such file"),
    "suffix": ({"vector": "query.txt"}, r"\.npy, \.json or \.csv"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case, store):
    arguments, message = BAD[case]
    with pytest.raises(ObygazeError, match=message) as caught:
        of.search(store, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.npy", b"garbage"), ("a.json", b"{"), ("a.json", b'{"a": 1}'), ("a.csv", b"x,y\n1,2\n")],
)
def test_bad_vector_file_is_named(name, content, store, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=name):
        of.search(store, vector=tmp_path / name)
