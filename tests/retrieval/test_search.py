"""`of.search` and `obygaze stores search`, against NumPy and transformers."""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import obygaze_features as of
from obygaze_features.errors import BackboneError, ObygazeError, UsageError
from obygaze_features.manifests import Item, Items
from obygaze_features.store import ArraySpec
from tests.backbones.conftest import tensor
from tests.backbones.test_backbones_parity import MODELS, text_features
from tests.kit.models import write_checkpoint
from tests.retrieval.conftest import FAILED, PADDED, TOY, WIDTH, ZERO, make_search_store


def brute(source, query, array="native", keep=None):
    """Return ids by cosine, the cosines, and the nearest frame of each, in float64."""
    values = source.values[array].astype(np.float64)
    values = values[:, None] if values.ndim == 2 else values
    with np.errstate(invalid="ignore"):
        lengths = np.linalg.norm(values, axis=-1) * np.linalg.norm(query)
        cosine = values @ query / lengths
    cosine = np.where(np.isnan(cosine), -np.inf, cosine)
    frame = cosine.argmax(1)
    best = cosine.max(1)
    matches = source.done & np.isfinite(best)
    if keep is not None:
        matches &= keep
    order = np.argsort(-best, kind="stable")
    rows = order[matches[order]]
    return [source.ids[row] for row in rows], best[rows], frame[rows]


@pytest.fixture
def query():
    return np.random.default_rng(9).standard_normal(WIDTH)


@pytest.fixture(scope="module", params=["open", "final", "zip"])
def any_store(request, source, tmp_path_factory):
    store = of.open_store(source.path)
    if request.param == "open":
        return store
    folder = tmp_path_factory.mktemp(request.param)
    copy = of.subset(store, folder / "copy.zarr", ids=store.ids)
    copy = of.finalise(copy, allow_incomplete=True)
    return of.pack(copy, folder / "copy.zip")["path"] if request.param == "zip" else copy


@pytest.mark.parametrize("array", ["native", "frames"])
def test_vector_search_equals_brute_force(source, any_store, query, monkeypatch, array):
    frames = array == "frames"
    matches = of.search(any_store, vector=query, frames=frames, top=100)
    ids, cosines, nearest = brute(source, query, array)
    assert [match.id for match in matches] == ids
    np.testing.assert_allclose([match.cosine for match in matches], cosines, atol=1e-6)
    assert {match.film for match in matches} == {"tt1", "tt2", "tt3"}
    if frames:
        assert [match.frame for match in matches] == nearest.tolist()
        assert [match.time for match in matches] == (nearest * 1.5).tolist()
    else:
        assert matches[0].frame is matches[0].time is None
        # Rows that are not done, or without a direction, do not match.
        rows = [FAILED, ZERO, *range(32, 40)]
        assert {*source.ids} - {*ids} == {source.ids[row] for row in rows}
    monkeypatch.setattr("obygaze_features.store.nearest.PART_BYTES", 1)
    again = of.search(any_store, vector=query, frames=frames, top=7)
    assert [match.id for match in again] == ids[:7]


def test_tokens_of_several_frames_have_the_mean_time(tmp_path, query):
    """3D networks give one token for a few frames, as in `models moments`."""
    arrays = (
        ArraySpec("native", (WIDTH,), "float32", ""),
        ArraySpec("frames", (2, WIDTH), "float16", "", padded=True),
        ArraySpec("frame_time", (4,), "float64", "", padded=True),
        ArraySpec("more", (2, WIDTH), "float32", ""),  # such as of patches
    )
    path = tmp_path / "a.zarr"
    source = make_search_store(path, 8, arrays=arrays, partial=False)
    matches = of.search(path, vector=query, frames=True)
    ids, _, tokens = brute(source, query, "frames")
    assert [match.id for match in matches] == ids
    times = of.open_store(path).read("frame_time", ids).reshape(-1, 2, 2)
    times = times.mean(axis=2)[np.arange(len(ids)), tokens]
    assert [match.time for match in matches] == times.tolist()
    with pytest.raises(UsageError, match="more has no vector per item or frame"):
        of.search(path, vector=query, frames=True, array="more")


def test_like_excludes_the_clip_and_averages_its_frames(source, store):
    clip = source.ids[11]
    padded = source.ids[PADDED]
    matches = of.search(store, like=clip, top=100)
    ids, _, _ = brute(source, source.values["native"][11])
    assert [clip, *(match.id for match in matches)] == ids
    matches = of.search(store, like=padded, frames=True, top=3)
    frames = source.values["frames"][PADDED, :2]
    ids, _, _ = brute(source, frames.mean(0, dtype=float), "frames")
    ids.remove(padded)
    assert [match.id for match in matches] == ids[:3]


def test_search_covers_films_of_several_stores(source, query, tmp_path):
    second = make_search_store(tmp_path / "b.zarr", 16, seed=3, films=("tt3", "tt4"), partial=False)
    matches = of.search([source.path, second.path], vector=query, films=["tt2", "tt4"], top=6)
    scores = {}
    for part, film in ((source, "tt2"), (second, "tt4")):
        ids, cosines, _ = brute(part, query, keep=np.array(part.films) == film)
        scores |= dict(zip(ids, cosines, strict=True))
    assert [match.id for match in matches] == sorted(scores, key=scores.get, reverse=True)[:6]
    assert {match.store for match in matches} == {str(source.path), str(second.path)}
    backbone = {**TOY, "weights_sha256": "cd" * 32}
    make_search_store(tmp_path / "c.zarr", 8, backbone=backbone, partial=False)
    with pytest.raises(UsageError, match=r"c\.zarr has a different backbone"):
        of.search([source.path, tmp_path / "c.zarr"], vector=query)


def test_a_match_has_the_film_and_span_of_its_own_store(obygaze, tmp_path):
    """The stores share ids."""
    starts = {"Juno": 0, "Up": 100}
    paths = []
    for film, start in starts.items():
        spans = []
        for n in range(16):
            spans.append(Item(f"c{n}", film=film, start=start + n, end=start + n + 1))
        made = make_search_store(tmp_path / f"{film}.zarr", 16, seed=start, items=Items.of(spans))
        paths.append(made.path)
    result = obygaze("stores", "search", *paths, "--like", "c0", "--json", code=0)
    rows = json.loads(result.stdout)["matches"]
    assert {row["film"] for row in rows} == {*starts}
    for row in rows:
        film = row["film"]
        assert row["store"] == str(tmp_path / f"{film}.zarr")
        assert row["title"] == film
        assert row["id"] == f"c{row['start'] - starts[film]:.0f}"


@pytest.mark.parametrize("seed", range(8))
def test_equal_clips_keep_the_order_of_rows(source, store, seed):
    vector = np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)
    store.read_rows = lambda array, rows: np.tile(vector, (len(rows), 1))
    matches = of.search(store, vector=vector, top=4)
    assert [match.id for match in matches] == source.ids[:4]
    [cosine] = {match.cosine for match in matches}
    assert cosine <= 1  # although rounded


ONES = [1] * WIDTH


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ({}, "exactly one"),
        ({"stores": [], "vector": ONES}, "no stores"),
        ({"like": "tt3-005"}, "tt3-005 failed: cannot be decoded"),
        ({"vector": [0] * WIDTH}, "no direction"),
        ({"vector": [1, 2]}, r"vectors of length 32 \(got shape \(2,\)\)"),
        ({"vector": ONES, "array": "native", "frames": True}, "leave out --frames"),
        ({"vector": ONES, "films": ["tt9"]}, "unknown film 'tt9'"),
        ({"text": " "}, "is empty"),
    ],
)
def test_bad_input_is_one_line(arguments, facts, store):
    with pytest.raises(ObygazeError, match=facts) as caught:
        of.search(**{"stores": store, **arguments})
    assert "\n" not in str(caught.value)


TEXT = "a photo of a happy woman"


@pytest.mark.parametrize("name", MODELS)
def test_text_search_equals_transformers(checkpoints, tmp_path, name):
    checkpoint = checkpoints[name]
    about = of.load_backbone(checkpoint, "cpu").about
    store = make_search_store(tmp_path / "s.zarr", backbone=about).path
    backbone = f"{name}={checkpoint}"
    features = text_features(checkpoint, MODELS[name], [TEXT])[0].double().numpy()
    for frames in (False, True):
        matches = of.search(store, text=TEXT, backbone=backbone, frames=frames, top=100)
        expected = of.search(store, vector=features, frames=frames, top=100)
        assert [match.id for match in matches] == [match.id for match in expected]
        cosines = [match.cosine for match in matches]
        np.testing.assert_allclose(cosines, [match.cosine for match in expected], atol=1e-5)
    if name == "tiny-clap":  # whose name is known
        assert of.search(store, text=TEXT, frames=True, top=100) == matches
    second = write_checkpoint(name, tmp_path / name, seed=1)
    with pytest.raises(BackboneError, match=r"not those of .*--backbone NAME=FOLDER"):
        of.search(store, text=TEXT, backbone=str(second))
    with pytest.raises(UsageError, match=r"reads only \d+ tokens of a text; shorten it"):
        of.search(store, text=TEXT * 40, backbone=backbone)


def test_picture_search_equals_transformers(checkpoints, obygaze, tmp_path):
    checkpoint = checkpoints["tiny-clip"]
    about = of.load_backbone(checkpoint, "cpu").about
    source = make_search_store(tmp_path / "s.zarr", backbone=about)
    pixels = np.random.default_rng(1).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    picture.save(tmp_path / "still.png")
    model = transformers.CLIPModel.from_pretrained(checkpoint).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(checkpoint, backend="pil")
    with torch.no_grad():
        features = tensor(model.get_image_features(**processor(picture, return_tensors="pt")))[0]
    still = ("--image", tmp_path / "still.png")
    for array, frames in (("native", []), ("frames", ["--frames"])):
        command = ("stores", "search", source.path, *still, *frames, "--top", 100, "--json")
        result = obygaze(*command, "--backbone", f"tiny-clip={checkpoint}", code=0)
        rows = json.loads(result.stdout)["matches"]
        matches = {row["id"]: row["cosine"] for row in rows}
        ids, cosines, _ = brute(source, features.double().numpy(), array)
        # The difference is one byte level, from resizing.
        assert matches == pytest.approx(dict(zip(ids, cosines, strict=True)), abs=2e-3)


@pytest.mark.parametrize(
    "about",
    [
        {"name": "standard"},  # a folder that is there
        {"name": "lab/model"},  # of the Hub
        {"name": "shutil:rmtree", "family": "shutil:rmtree"},
    ],
)
def test_a_stores_metadata_loads_no_code_or_download(tmp_path, monkeypatch, about):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "standard").mkdir()
    monkeypatch.setattr("obygaze_features.backbones.load_backbone", lambda *_: pytest.fail("loads"))
    source = make_search_store(tmp_path / "s.zarr", backbone={**TOY, "name": "x", **about})
    with pytest.raises(BackboneError, match="unknown backbone"):
        of.search(source.path, text=TEXT)


def test_random_weights_give_a_warning(obygaze, tmp_path):
    note = "random weights, trained on nothing"
    backbone = {**TOY, "config": {"synthetic": note}}
    path = make_search_store(tmp_path / "s.zarr", backbone=backbone).path
    result = obygaze("stores", "search", path, "--like", "tt1-003", code=0)
    warning = f"Matches mean nothing: the backbone of {path} has {note}."
    assert result.stderr == f"WARNING: {warning}\n"
