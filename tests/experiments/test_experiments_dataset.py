"""`load_dataset`, splitters in scikit-learn's tools, and sequences of frames."""

import numpy as np
import pytest

import obygaze_models as om
from obygaze_features import open_store
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.store import writer
from tests.kit.floats import close
from tests.kit.run import write_rows
from tests.kit.world2 import TIMED, make_world2


@pytest.fixture(scope="module")
def data(marked):
    places = str(marked.manifest), str(marked.store)
    return om.load_dataset(*places, positives=["Sure"], negatives=["EN", "HN"], split="ten")


def test_a_dataset_has_the_clips_of_the_task(marked, data):
    row_of = {clip: row for row, clip in enumerate(marked.ids)}
    rows = [row_of[clip] for clip in data.ids]
    assert {*data.ids} == {*marked.clips("EN", "HN", "S")}
    assert data.levels == [marked.levels[row] for row in rows]
    assert data.y.tolist() == [int(level == "S") for level in data.levels]
    assert data.classes == ("EN+HN", "S")
    assert data.groups.tolist() == [clip.split("-")[0] for clip in data.ids]
    assert data.folds.tolist() == [marked.folds[row] for row in rows]
    assert close(marked.features[rows]) == data.X
    everything = om.load_dataset(marked.manifest, marked.store, frames=True)
    assert (everything.y, len(everything)) == (None, 200)
    highest = om.load_dataset(marked.manifest, marked.store, array="frames").X
    assert highest == close(np.nanmax(everything.frames.astype(np.float32), axis=1))


@pytest.mark.parametrize(("negatives", "among"), [("a", "EN"), ("b", "EN HN S"), ("c", "HN S")])
def test_a_concept_has_negatives_of_some_levels(marked, negatives, among):
    data = om.load_dataset(marked.manifest, marked.store, concept="Look", negatives=negatives)
    labels = Manifest.load(marked.manifest).labels()
    expected = {}
    for clip, level in labels.level_of.items():
        if "Look" in labels.concepts_of[clip]:
            expected |= {clip: 1} if level in ("HN", "S") else {}
        elif level in among.split():
            expected[clip] = 0
    assert dict(zip(data.ids, data.y.tolist(), strict=True)) == expected


def test_a_random_state_is_a_number_or_numpys(data):
    trained = []
    for state in (np.random.RandomState(3), np.random.RandomState(3)):
        cv = om.LeaveFilmOut(random_state=state)
        train, _ = next(cv.split(data.X, data.y, data.groups))
        trained.append(train.tolist())
    assert trained[0] == trained[1]
    with pytest.raises(ValueError, match=r"pass each clip's film \(data.groups\)"):
        next(om.LeaveFilmOut().split(data.X, data.y))


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return make_world2(tmp_path_factory.mktemp("planted"))


def experiment(world, *estimators, **more):
    levels = {"positives": ("A+",), "train_negatives": ("very-high",)}
    values = {"manifest": world.manifest, "store": world.store, "split": "three"} | levels | more
    return om.Experiment(name="planted", estimators=estimators, **values)


@pytest.fixture(scope="module")
def model(planted):
    probe = {"name": "frame-mil", "max_iter": 5}
    om.train_model(experiment(planted, probe), planted.folder / "model")
    return planted.folder / "model"


def test_a_run_predicts_the_frames_of_its_test_clips(planted, tmp_path):
    probe = {"name": "frame-mil", "max_iter": 12}
    tried = experiment(planted, "logistic", probe, protocol="leak-free")
    run = om.run_experiment(tried, tmp_path / "run")
    reads = {line["model"]: line["reads"] for line in run.saved}
    assert reads == {"logistic": "features", "frame-mil": "frames"}
    frames = om.run_frames(run, planted.store, model="frame-mil")
    assert frames.ids == sorted({*run.predictions["id"]})
    assert {*frames.seen} == {"film"}  # but no clip
    store = open_store(planted.store)
    np.testing.assert_array_equal(frames.times, store.read("frame_time", frames.ids))
    # By hand: the mean over the fits, computed from the frames.
    folders = [line["folder"] for line in run.saved if line["model"] == "frame-mil"]
    X = store.read("frames", frames.ids)
    models = [om.load_model(folder).estimator for folder in folders]
    by_fit = [model.predict_frames(X)[..., 1] for model in models]
    assert len(by_fit) == 2
    assert frames.probabilities == close(np.mean(by_fit, axis=0), eps=1e-6)


def test_a_saved_model_predicts_the_clips_and_frames_of_a_store(planted, model, tmp_path):
    estimator = om.load_model(model).estimator
    ids = planted.ids[3:9]
    X = open_store(planted.store).read("frames", ids)
    frames = om.predict_frames(model, planted.store, ids)
    np.testing.assert_array_equal(frames.probabilities, estimator.predict_frames(X)[..., 1])
    assert (frames.ids, {*frames.threshold}) == (ids, {estimator.threshold_})
    clips = om.predict(model, planted.store, ids=ids)
    np.testing.assert_array_equal(clips.values, estimator.predict_proba(X))
    assert frames.seen == clips.table["seen"].tolist()
    om.save_model(estimator, tmp_path / "bare")
    with pytest.raises(ExperimentError, match="description of its features"):
        om.predict_frames(tmp_path / "bare", planted.store)
    with pytest.raises(ExperimentError, match="Name a single store"):
        om.load_dataset(planted.manifest, [planted.store] * 2, frames=True)


def test_clips_without_frames_are_named(planted, model, monkeypatch, tmp_path):
    """Our writer rejects such rows, but stores from other programs may have them."""
    monkeypatch.setattr(writer, "check_row", lambda store, row: row)
    manifest = Manifest.load(planted.manifest)
    names = ("native", "frames", "frame_time")
    arrays = {name: open_store(planted.store).read(name, planted.ids) for name in names}
    arrays["frames"][[3, 11]] = np.nan
    store = write_rows(tmp_path / "s.zarr", manifest, arrays, TIMED, block_rows=128)
    asked = experiment(planted, {"name": "frame-mil", "max_iter": 2}, store=store)
    clips = om.run_experiment(asked, tmp_path / "run").clips
    lost = [planted.ids[3], planted.ids[11]]
    assert clips.loc[clips["used"] == "no-features", "id"].tolist() == lost
    assert om.predict_frames(model, store).ids == [clip for clip in planted.ids if clip not in lost]
    arrays["frames"][:] = np.nan
    store = write_rows(tmp_path / "empty.zarr", manifest, arrays, TIMED, block_rows=128)
    with pytest.raises(ExperimentError, match=r"empty.zarr: array 'frames' is NaN in every clip"):
        om.load_dataset(planted.manifest, store, frames=True)
