"""`load_dataset`, and the splitters with scikit-learn's own tools."""

import os
import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import sklearn
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate

import obygaze_features as of
import obygaze_models as om
from obygaze_features import manifests
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.store import ArraySpec, finalise
from tests.kit.run import FILMS, RECIPE, labelled, write_rows


@pytest.fixture(scope="module")
def data(marked):
    return om.load_dataset(
        str(marked.manifest), str(marked.store), positives=["Sure"], negatives=["EN", "HN"],
        split="ten",
    )  # fmt: skip


def released(ids, tested):
    runs = [manifests.Run("0", ids[:4], ids[4:6])] * 3
    return om.Released(ids, manifests.RunSet("toy", runs), tested)


def test_a_dataset_has_the_clips_of_the_task(marked, data):
    row_of = {clip: row for row, clip in enumerate(marked.ids)}
    rows = [row_of[clip] for clip in data.ids]
    assert set(data.ids) == set(marked.clips("EN", "HN", "S"))
    assert data.levels == [marked.levels[row] for row in rows]
    assert data.y.tolist() == [int(level == "S") for level in data.levels]
    assert data.classes == ("EN+HN", "S")
    assert data.groups.tolist() == [clip.split("-")[0] for clip in data.ids]
    assert data.folds.tolist() == [marked.folds[row] for row in rows]
    np.testing.assert_array_equal(data.X, marked.features[rows])
    assert data.concepts.shape == (len(data), len(data.concept_names))

    def load(**task):
        return om.load_dataset(marked.manifest, marked.store, **task)

    assert load(levels=["EN", "HN", "S"]).classes == ("EN", "HN", "S")
    everything = load(frames=True)
    assert (everything.y, everything.frames.shape[0], len(everything)) == (None, 200, 200)
    look = load(concept="Look", negatives="b")
    half = look.select(look.y == 1)
    assert (look.classes, set(half.y.tolist())) == (("no Look", "Look"), {1})
    assert half.ids == [clip for clip, y in zip(look.ids, look.y, strict=True) if y]
    for task, fact in (
        ({"positives": ["S"]}, "negatives is missing"),
        ({"levels": ["EN", "HN", "S"], "concept": "Look"}, "one task at a time"),
        ({"positives": ["S"], "negatives": ["EN"], "array": "frames"}, "'frames' has 2 axes"),
    ):
        with pytest.raises(ExperimentError, match=fact):
            load(**task)


def test_a_torch_loop_takes_the_clips_as_they_are(marked):
    task = {"positives": ["S"], "negatives": ["EN"], "frames": True}
    data = om.load_dataset(marked.manifest, marked.store, **task)
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader(data.to_torch(), batch_size=7, num_workers=1)
    batches = list(loader)
    assert set(batches[0]) == {"id", "film", "level", "features", "label", "frames"}
    for name, column in (("features", data.X), ("label", data.y), ("frames", data.frames)):
        np.testing.assert_array_equal(torch.cat([batch[name] for batch in batches]), column)
    for name, texts in (("id", data.ids), ("film", data.groups.tolist()), ("level", data.levels)):
        assert [text for batch in batches for text in batch[name]] == texts
    assert "label" not in om.load_dataset(marked.manifest, marked.store).to_torch()[0]


SPLITTERS = [(om.LeakFree, 9), (om.ManifestSplit, 10), (om.PaperSplit, 8), (om.OfficialSplit, 1)]


@pytest.mark.parametrize(("splitter", "splits"), SPLITTERS)
def test_splitters_of_fold_columns(data, splitter, splits):
    for cv in (splitter(data.folds), splitter()):
        parts = list(cv.split(data.X, data.y))
        assert cv.get_n_splits() == cv.get_n_splits(data.X, data.y) == len(parts) == splits
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=splitter(data.folds))
    assert search.fit(data.X, data.y).n_splits_ == splits
    texts = np.array(data.classes)[data.y]
    result = cross_validate(DummyClassifier(), data.X, texts, cv=splitter(data.folds))
    assert len(result["test_score"]) == splits


def test_splitters_split_as_experiments_do_and_by_film(data, marked, make_run):
    """Its test sets are the run's, and its training sets are as large and as balanced."""
    run = make_run("split", manifest=marked.manifest, store=marked.store, test_negatives=(),
                   train_negatives=("EN", "HN"), estimators=("logistic",))  # fmt: skip
    splits = list(om.LeakFree(data.folds).split(data.X, data.y))
    models = [om.load_model(row["folder"])[1] for row in run.models()]
    for fit, (train, test), about in zip(run.predictions(), splits, models, strict=True):
        assert sorted(fit.ids) == sorted(data.ids[row] for row in test)
        assert {data.ids[row] for row in train} <= {*about["seen"]}
    folds = np.where(data.folds == 4, -1, data.folds)  # a fold without clips tests nothing
    tested = [set(folds[test]) for _, test in om.ManifestSplit(folds).split(data.X, data.y)]
    assert tested == [{fold} for fold in range(10) if fold != 4]
    # A random state is a number or NumPy's.
    first, again, rival, number = (
        [train.tolist() for train, _ in om.LeakFree(random_state=state).split(data.X, data.y)]
        for state in (*map(np.random.RandomState, (3, 3, 4)), np.int64(3))
    )
    assert first == again != rival
    assert number == [t.tolist() for t, _ in om.LeakFree(random_state=3).split(data.X, data.y)]


def test_the_released_lists(coded):
    manifest, task = Manifest.load(coded.manifest), {"positives": ["S"], "negatives": ["HN"]}
    clips = om.load_dataset(manifest, coded.stores["xclip"], **task, labels="released")
    cv = om.Released.from_manifest(manifest, clips.ids, "02_HN_S")
    splits = list(cv.split(clips.X, clips.y))
    assert cv.get_n_splits() == len(splits) == 8
    tested = {clips.ids[row] for row in splits[0][1]}
    assert tested <= set(manifest.split("02_HN_S").fold(9))


def test_only_leave_film_out_goes_by_groups(data):
    """The others warn of groups, as KFold does, and do not ask for them under routing."""
    films, call = {"groups": data.groups}, (DummyClassifier(), data.X, data.y)
    for cv in (om.LeakFree(data.folds), released(data.ids, {"test": frozenset(data.ids[6:])})):
        with pytest.warns(UserWarning, match=f"{type(cv).__name__} ignores groups"):
            cross_val_score(*call, groups=data.groups, cv=cv)
        with sklearn.config_context(enable_metadata_routing=True):
            assert len(cross_val_score(*call, params=films, cv=om.LeaveFilmOut())) == FILMS
            with pytest.raises(TypeError, match="not routed to any object"):
                cross_val_score(*call, params=films, cv=cv)


REFUSED = [
    (lambda d: om.LeaveFilmOut().split(d.X, d.y), "needs groups, the film of each clip: data.gr"),
    (lambda d: om.LeakFree([0, 1, 2]).split(d.X, d.y), "folds has 3 entries, and there are"),
    (lambda d: om.LeakFree(d.folds, balance="nome").split(d.X, d.y), "did you mean none"),
    (lambda d: om.ManifestSplit([0] * 99).get_n_splits(), "1 fold; to train and test takes two"),
    (lambda d: next(om.LeaveFilmOut().split(d.X, d.y, [""] * len(d.y))), 'groups = "media"'),
    (lambda d: om.LeaveFilmOut().split(d.X, d.y, d.groups[1:]), "inconsistent numbers of samples"),
    (lambda d: released(d.ids[1:], {"t": {*d.ids}}).split(d.X, d.y), "entries"),
    (lambda d: released(d.ids, {"a": {*d.ids}, "b": {*d.ids}}).split(d.X, d.y), "(got a, b)"),
    (lambda d: om.LeakFree().split(d.X, np.linspace(0, 1, len(d))), "Unknown label type: contin"),
]


@pytest.mark.parametrize(("split", "fact"), REFUSED)
def test_what_cannot_be_split_is_refused(data, split, fact):
    with pytest.raises(ValueError) as caught:
        list(split(data))
    assert fact in str(caught.value)


IDS = [f"clip-{row:02}" for row in range(23)]
TOKENS = replace(
    RECIPE,
    arrays=(
        ArraySpec("native", (3,), "float32", "one vector a clip"),
        ArraySpec("frames", (5, 3), "float16", "one vector a frame", padded=True),
        ArraySpec("tokens", (2, 4, 3), "float16", "patches of frames"),
    ),
)
POOLINGS = {
    "max": np.nanmax,
    "mean": lambda values, axis: np.nanmean(values, axis=axis, dtype=np.float64),
    "first": lambda values, axis: values[:, 0],
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/obygaze/pooled"


def draw(seed=0):
    """Frames that end early in every third clip; tokens that never do."""
    chance = np.random.default_rng(seed)
    frames = chance.normal(size=(len(IDS), 5, 3)).astype(np.float16)
    frames[::3, 3:] = np.nan
    tokens = chance.normal(size=(len(IDS), 2, 4, 3)).astype(np.float16)
    return {"native": frames[:, 0].astype(np.float32), "frames": frames, "tokens": tokens}


def pooled(path, array, pooling):
    clips = om.load_dataset(labelled(IDS[::-2], ["S"] * 12), path, array=array, pooling=pooling)
    return dict(zip(clips.ids, clips.X, strict=True))


def write_tokens(path, arrays):
    return write_rows(path, labelled(IDS, ["S"] * 23), arrays, TOKENS, block_rows=4)


@pytest.mark.parametrize(("array", "final"), [("frames", False), ("tokens", True)])
def test_pooled_as_numpy_pools_the_whole_array(tmp_path, cache, monkeypatch, array, final):
    """Once computed, once from the cache; a damaged cache costs time only."""
    arrays, path = draw(), tmp_path / "a.zarr"
    write_tokens(path, arrays)
    if final:
        finalise(path)
    complete = arrays[array].reshape(len(IDS), -1, 3).astype(np.float32)
    for pooling, pool in POOLINGS.items():
        expected = pool(complete, axis=1)
        before, remaining = {*cache.glob("*")}, cache
        for damage in (None, None, b"", b"PK" + bytes(300)):
            if damage is not None:
                remaining.write_bytes(damage)
            actual = pooled(path, array, pooling)
            assert sorted(actual) == sorted(IDS[::2])
            for clip, row in actual.items():
                assert row.dtype == np.float32
                np.testing.assert_allclose(row, expected[IDS.index(clip)], 1e-6, 1e-7)
            [remaining] = {*cache.iterdir()} - before
    monkeypatch.setattr("obygaze_models.data.stores.POOLINGS", {"max": None, "mean": None})
    assert pooled(path, array, "mean").keys() == actual.keys()  # it is not read again
    monkeypatch.undo()
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "file"))
    assert pooled(path, array, "first").keys() == actual.keys()


@pytest.mark.parametrize("in_place", [False, True])
def test_a_forged_store_changes_no_others_features(tmp_path, cache, in_place):
    """It has a copied list of checksums, and other frames; nor does it where it takes the path."""
    path, forged = tmp_path / "a.zarr", tmp_path / "forged.zarr"
    for store, seed in ((path, 1), (tmp_path / "b.zarr", 2)):
        finalise(write_tokens(store, draw(seed)))
    shutil.copytree(path, forged)
    shutil.rmtree(forged / "frames")
    shutil.copytree(tmp_path / "b.zarr/frames", forged / "frames")
    sound = path.rename(tmp_path / "sound.zarr") if in_place else path
    for seed, store in ((2, forged), (1, sound)):
        if in_place:  # both are asked about at one path, one after the other
            shutil.rmtree(path, ignore_errors=True)
            store = store.rename(path)
        expected = np.nanmean(draw(seed)["frames"], axis=1, dtype=np.float64)
        for clip, row in pooled(store, "frames", "mean").items():
            np.testing.assert_allclose(row, expected[IDS.index(clip)], rtol=1e-6)


def test_pooling_holds_a_block_in_memory(tmp_path, cache):
    manifest = labelled([f"c{row:03}" for row in range(128)], ["S"] * 128)
    recipe = replace(RECIPE, arrays=(ArraySpec("tokens", (256, 64), "float16", "many"),))
    row = np.ones((256, 64), np.float16)
    path = write_rows(tmp_path / "b.zarr", manifest, {"tokens": [row] * 128}, recipe, block_rows=8)
    store = of.open_store(path)
    tracemalloc.start()
    om.load_dataset(manifest, store, array="tokens", pooling="max")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 128 * row.nbytes / 4
