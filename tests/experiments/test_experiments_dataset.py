"""`load_dataset`, splitters in scikit-learn's tools, and sequences of frames."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import obygaze_models as om
from obygaze_features import open_store
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.store import ArraySpec, writer
from tests.conftest import run_obygaze
from tests.kit.files import refused
from tests.kit.floats import close
from tests.kit.run import RECIPE, labelled, write_rows


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
    assert (everything.y, everything.frames.shape[0], len(everything)) == (None, 200, 200)
    highest = om.load_dataset(marked.manifest, marked.store, array="frames").X
    assert highest == close(np.nanmax(everything.frames.astype(np.float32), axis=1))
    look = om.load_dataset(marked.manifest, marked.store, concept="Look", negatives="b")
    shown = look.select(look.y == 1)
    assert (look.classes, {*shown.y.tolist()}) == (("no Look", "Look"), {1})
    assert shown.ids == [clip for clip, y in zip(look.ids, look.y, strict=True) if y]
    assert look.select([]).X.shape == (0, 8)


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
    for state in (np.random.RandomState(3), np.random.RandomState(3), np.int64(3), 3):
        [(train, _), *_] = om.LeaveFilmOut(random_state=state).split(data.X, data.y, data.groups)
        trained.append(train.tolist())
    assert trained[0] == trained[1]
    assert trained[2] == trained[3] != trained[0]
    with pytest.raises(ValueError, match=r"pass each clip's film \(data.groups\)"):
        next(om.LeaveFilmOut().split(data.X, data.y))


CLIPS, FOLDS, FRAMES, SIZE, SHOWN = 80, 4, 32, 8, 3
SHORT = 20
"""Frames of every fifth clip."""


def write_store(path, manifest, frames, native):
    times = np.where(np.isnan(frames[..., 0]), np.nan, np.arange(frames.shape[1]) / 4)
    specs = (
        ArraySpec("native", native.shape[1:], "float32", "mean of the frames"),
        ArraySpec("frame_time", times.shape[1:], "float64", "seconds", padded=True),
        ArraySpec("frames", frames.shape[1:], "float16", "a frame", padded=True),
    )
    arrays = {"native": native, "frame_time": times, "frames": frames.astype(np.float16)}
    return write_rows(path, manifest, arrays, replace(RECIPE, arrays=specs), block_rows=128)


class Planted:
    """Clips of two levels; in Sure clips three consecutive frames carry a direction."""

    def __init__(self, folder):
        chance = np.random.default_rng(4)
        self.folder, positive = folder, np.arange(CLIPS) % 2 == 1
        self.ids = [f"tt{row % 8}-{row:03}" for row in range(CLIPS)]
        self.frames = chance.standard_normal((CLIPS, FRAMES, SIZE), np.float32)
        direction = chance.standard_normal(SIZE, np.float32)
        self.shows = np.zeros((CLIPS, FRAMES), bool)
        for clip in np.flatnonzero(positive):
            start = chance.integers(SHORT - SHOWN)
            self.shows[clip, start : start + SHOWN] = True
        self.frames[self.shows] += 5 * direction / np.linalg.norm(direction)
        self.frames[::5, SHORT:] = np.nan
        folds = [row // 2 % FOLDS for row in range(CLIPS)]
        self.manifest = labelled(self.ids, ["EN", "S"] * (CLIPS // 2), folds=folds)
        self.manifest.save(folder / "manifest")
        self.native = np.nanmean(self.frames, axis=1)
        self.store = write_store(folder / "s.zarr", self.manifest, self.frames, self.native)

    def experiment(self, *estimators, **more):
        values = {"positives": ("S",), "train_negatives": ("EN",), "split": "ten"}
        values |= {"store": self.store, "estimators": estimators}
        manifest = self.folder / "manifest"
        return om.Experiment(name="planted", manifest=manifest, **values | more)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return Planted(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def run(planted):
    probe = {"name": "frame-mil", "max_iter": 12}
    tried = planted.experiment("logistic", probe, protocol="leak-free")
    return om.run_experiment(tried, planted.folder / "run")


@pytest.fixture(scope="module")
def model(planted):
    probe = {"name": "frame-mil", "max_iter": 5}
    om.train_model(planted.experiment(probe), planted.folder / "model")
    return planted.folder / "model"


def test_a_run_predicts_the_frames_of_its_test_clips(planted, run):
    reads = {line["model"]: line["reads"] for line in run.saved}
    assert reads == {"logistic": "features", "frame-mil": "frames"}
    frames = om.run_frames(run, planted.store, model="frame-mil")
    test = [row for row in range(CLIPS) if row // 2 % FOLDS == FOLDS - 1]
    assert frames.ids == sorted(planted.ids[row] for row in test)
    order = [planted.ids.index(clip) for clip in frames.ids]
    present = ~np.isnan(planted.frames[order][..., 0])
    np.testing.assert_array_equal(np.isnan(frames.times), ~present)
    assert (frames.times[:, 4] == 1).all()
    shows = planted.shows[order][present]
    assert average_precision_score(shows, frames.probabilities[present]) >= 0.8
    assert {*frames.seen} == {"no"}
    # By hand: the mean over the three fits, computed from the frames.
    folders = [line["folder"] for line in run.saved if line["model"] == "frame-mil"]
    X = planted.frames[order].astype(np.float16)
    by_fit = [om.load_model(own).estimator.predict_frames(X)[..., 1] for own in folders]
    assert frames.probabilities == close(np.mean(by_fit, axis=0), eps=1e-6)


def test_a_saved_model_predicts_the_clips_and_frames_of_a_store(planted, model):
    estimator = om.load_model(model).estimator
    ids = planted.ids[3:9]
    X = open_store(planted.store).read("frames", ids)
    frames = om.predict_frames(model, planted.store, ids)
    np.testing.assert_array_equal(frames.probabilities, estimator.predict_frames(X)[..., 1])
    assert (frames.ids, {*frames.threshold}) == (ids, {estimator.threshold_})
    clips = om.predict(model, planted.store, ids=ids)
    np.testing.assert_array_equal(clips.values, estimator.predict_proba(X))
    assert frames.seen == clips.table["seen"].tolist()
    assert om.evaluate(model, planted.store, planted.manifest)["clips"][0] == CLIPS


def test_clips_without_frames_are_named(planted, model, monkeypatch, tmp_path):
    """Our writer rejects such rows, but stores from other programs may have them."""
    monkeypatch.setattr(writer, "check_row", lambda store, row: row)
    frames = planted.frames.copy()
    frames[[3, 10]] = np.nan
    store = write_store(tmp_path / "s.zarr", planted.manifest, frames, planted.native)
    lost = [planted.ids[3], planted.ids[10]]
    experiment = planted.experiment({"name": "frame-mil", "max_iter": 2}, store=store)
    clips = om.run_experiment(experiment, tmp_path / "run").clips
    assert clips.loc[clips["used"] == "no-features", "id"].tolist() == lost
    data = om.load_dataset(planted.manifest, store, frames=True)
    assert om.predict_frames(model, store).ids == data.ids
    np.testing.assert_array_equal(data.frames, np.delete(frames, [3, 10], 0).astype(np.float16))
    frames[:] = np.nan
    store = write_store(tmp_path / "empty.zarr", planted.manifest, frames, planted.native)
    with pytest.raises(ExperimentError, match=r"empty.zarr: array 'frames' is NaN in every clip"):
        om.load_dataset(planted.manifest, store, frames=True)


def test_stores_and_models_that_do_not_fit_are_one_line(planted, model, tmp_path):
    frames = planted.frames[:, :SHORT]
    short = write_store(tmp_path / "s.zarr", planted.manifest, frames, planted.native)
    with pytest.raises(ExperimentError, match=r"\[20, 8\], but \[32, 8\] for the model"):
        om.predict(model, short)
    om.save_model(om.load_model(model).estimator, tmp_path / "bare")
    with pytest.raises(ExperimentError, match=r"about\.features"):
        om.predict_frames(tmp_path / "bare", planted.store)
    with pytest.raises(ExperimentError, match="vector per frame 'native'; choose from frames"):
        om.load_dataset(planted.manifest, short, frames="native")
    with pytest.raises(ExperimentError, match="a separate experiment"):
        om.load_dataset(planted.manifest, [planted.store] * 2, frames=True)
    explain = ("models", "explain", model, planted.ids[0], "--store", planted.store)
    refused(run_obygaze(*explain), str(model))
