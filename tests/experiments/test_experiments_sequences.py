"""Models of frame sequences in experiments: planted signals, persistence, and frames predicted."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import obygaze_models as om
from obygaze_features import open_store
from obygaze_features.errors import ExperimentError
from obygaze_features.store import ArraySpec, commit
from obygaze_models.experiments.plan import make_plan
from tests.conftest import run_obygaze
from tests.fuzz.kinds import read_files, seal_run, write_files
from tests.kit.files import refused
from tests.kit.run import RECIPE, labelled, write_experiment, write_rows

CLIPS, FOLDS, FRAMES, SIZE, SHOWN = 80, 4, 32, 8, 3
SHORT = 20
"""Frames of every fifth clip."""
PROBES = ("attention-probe", "frame-mil")


def write_store(path, manifest, frames, native, *, array="frames"):
    times = np.where(np.isnan(frames[..., 0]), np.nan, np.arange(frames.shape[1]) / 4)
    specs = (
        ArraySpec("native", native.shape[1:], "float32", "mean of the frames"),
        ArraySpec("frame_time", times.shape[1:], "float64", "seconds", padded=True),
        ArraySpec(array, frames.shape[1:], "float16", "a frame", padded=True),
    )
    arrays = {"native": native, "frame_time": times, array: frames.astype(np.float16)}
    return write_rows(path, manifest, arrays, replace(RECIPE, arrays=specs), block_rows=128)


class Planted:
    """Clips of two levels; in Sure ones three frames in a row carry a direction."""

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
        return om.Experiment("planted", self.folder / "manifest", **values | more)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return Planted(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def run(planted):
    settings = [{"name": name, "max_iter": 12} for name in PROBES]
    tried = planted.experiment("logistic", *settings, protocol="leak-free")
    return om.run_experiment(tried, planted.folder / "run")


@pytest.fixture(scope="module")
def model(planted):
    toml = write_experiment(
        planted.folder / "e.toml", name="planted", manifest=planted.folder / "manifest",
        store=planted.store, positives=["S"], train_negatives=["EN"], split="ten",
        frames="frames", estimators=[{"name": "frame-mil", "max_iter": 5}],
    )  # fmt: skip
    run_obygaze("models", "train", toml, "-o", planted.folder / "model", code=0)
    assert "sequence of 32 frames" in (planted.folder / "model/README.md").read_text()
    return planted.folder / "model"


def test_a_run_predicts_the_frames_of_its_test_clips(planted, run):
    test = [row for row in range(CLIPS) if row // 2 % FOLDS == FOLDS - 1]
    assert run.record.features.frames == "frames"
    reads = {line["model"]: line["reads"] for line in run.models()}
    assert reads == {"logistic": "features", **dict.fromkeys(PROBES, "frames")}
    frames = run.frames("attention-probe")
    assert frames.ids == sorted(planted.ids[row] for row in test)
    order = [planted.ids.index(clip) for clip in frames.ids]
    present = ~np.isnan(planted.frames[order][..., 0])
    np.testing.assert_array_equal(np.isnan(frames.probabilities), ~present)
    np.testing.assert_array_equal(np.isnan(frames.times), ~present)
    assert (frames.times[:, 4] == 1).all()
    shows = planted.shows[order][present]
    assert average_precision_score(shows, frames.probabilities[present]) >= 0.8
    assert set(frames.seen) == {"no"}
    [warning] = [warning for warning in frames.warnings if warning.code == "untested"]
    assert "tested 20 of the store's 80 clips (tt0: 0 of 10" in warning.text
    # By hand: the mean over the three fits, from the frames themselves.
    lines = [line for line in run.models() if line["model"] == "attention-probe"]
    models = [om.load_model(line["folder"])[0] for line in lines]
    X = planted.frames[order].astype(np.float16)
    expected = np.mean([model.predict_frames(X)[..., 1] for model in models], axis=0)
    np.testing.assert_allclose(frames.probabilities, expected, rtol=1e-6)
    assert frames.threshold == pytest.approx(np.mean([model.threshold_ for model in models]))


def test_a_run_opens_no_url_that_its_file_names(planted, run, tmp_path):
    files = read_files(run.folder)
    header = json.loads(files["run.json"])
    header["experiment"]["store"] = "https://ann:s3cret@127.0.0.1:1/x.zarr"
    files["run.json"] = json.dumps(header).encode()
    seal_run(files)
    write_files(tmp_path / "run", files)
    forged = om.load_run(tmp_path / "run")
    for read in (forged.frames, forged.moments):
        with pytest.raises(ExperimentError, match=r"127\.0\.0\.1:1/x\.zarr.* store=") as caught:
            read("attention-probe")
        assert "s3cret" not in str(caught.value)
        assert read("attention-probe", store=planted.store)


def test_a_saved_model_predicts_the_clips_and_frames_of_a_store(planted, model):
    estimator, about = om.load_model(model)
    assert (about["reads"], about["features"]["array"]) == ("frames", "frames")
    assert about["features"]["shape"] == [FRAMES, 8]
    ids = planted.ids[3:9]
    X = open_store(planted.store).read("frames", ids)
    frames = om.predict_frames(model, planted.store, ids)
    np.testing.assert_array_equal(frames.probabilities, estimator.predict_frames(X)[..., 1])
    assert (frames.ids, frames.threshold) == (ids, estimator.threshold_)
    clips = om.predict(model, planted.store, ids=ids)
    np.testing.assert_array_equal(clips.probabilities, estimator.predict_proba(X))
    assert frames.seen == clips.seen
    assert "yes" in frames.seen
    scored = om.evaluate(model, planted.store, planted.manifest)
    assert scored.every.clips == 80


def test_a_run_of_other_frames_starts_anew(planted, tmp_path):
    first = planted.experiment({"name": "frame-mil", "max_iter": 2})
    changed = write_store(tmp_path / "s.zarr", planted.manifest, 2 * planted.frames, planted.native)
    plans = [make_plan(given).identity() for given in (first, replace(first, store=changed))]
    assert {key for key in plans[0] if plans[0][key] != plans[1][key]} == {"store", "features"}


def test_clips_without_frames_are_named(planted, model, monkeypatch, tmp_path):
    """Our writer refuses such rows; another program's store may have them."""
    monkeypatch.setattr(commit, "_check_row", lambda store, row: row)
    frames = planted.frames.copy()
    frames[[3, 10]] = np.nan
    store = write_store(tmp_path / "s.zarr", planted.manifest, frames, planted.native)
    lost = [planted.ids[3], planted.ids[10]]
    experiment = planted.experiment({"name": "frame-mil", "max_iter": 2}, store=store)
    run = om.run_experiment(experiment, tmp_path / "run")
    assert (run.record.join.without_features, run.record.join.used) == (lost, 78)
    assert om.predict_frames(model, store).ids == [clip for clip in planted.ids if clip not in lost]
    task = {"positives": ["S"], "negatives": ["EN"]}
    data = om.load_dataset(planted.manifest, store, **task, frames="frames")
    rest = np.delete(np.arange(80), [3, 10])
    np.testing.assert_array_equal(data.frames, frames[rest].astype(np.float16))
    frames[:] = np.nan
    store = write_store(tmp_path / "empty.zarr", planted.manifest, frames, planted.native)
    with pytest.raises(ExperimentError, match=r"empty.zarr: array 'frames' is NaN in all of 80"):
        om.run_experiment(replace(experiment, store=store), tmp_path / "none")


def test_what_does_not_fit_frames_is_one_line(planted, model, tmp_path):
    short, second = (
        write_store(
            tmp_path / f"{array}.zarr", planted.manifest, frames, planted.native, array=array
        )
        for array, frames in (("frames", planted.frames[:, :SHORT]), ("other", planted.frames))
    )
    om.save_model(om.load_model(model)[0], tmp_path / "bare")

    def run(array):
        experiment = planted.experiment("attention-probe", frames=array, store=second)
        om.run_experiment(experiment, tmp_path / "run")

    for call, fact in (
        (lambda: run("frames"), r"'frames' .*is not in.*a vector a frame: other$"),
        (lambda: run("native"), r"'native' .*no sequ.*a vector a frame: other$"),
        (lambda: om.predict(model, short), r"\[20, 8\] .*\[32, 8\] for the model"),
        (lambda: om.predict(model, second), "no array 'frames', only native, frame_time, ot"),
        (lambda: om.predict_frames(tmp_path / "bare", planted.store), "not say which features"),
        (
            lambda: om.load_dataset(planted.manifest, [planted.store] * 2, frames=True),
            "an experiment of their own",
        ),
    ):
        with pytest.raises(ExperimentError, match=fact):
            call()
    for command in (["export", model, "-o", tmp_path / "m.onnx"],
                    ["explain", model, planted.store, planted.ids[0]]):  # fmt: skip
        refused(run_obygaze("models", *command), str(model))


PLUGIN = """
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

class Frames(ClassifierMixin, BaseEstimator):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags

    def fit(self, X, y):
        assert X.shape[1:] == (32, 8) and X.dtype == np.float16
        self.classes_, (_, self.n_frames_in_, self.n_features_in_) = np.unique(y), X.shape
        return self

    predict = lambda self, X: self.classes_[self.predict_proba(X).argmax(axis=1)]
    predict_proba = lambda self, X: np.full((len(X), 2), 0.5)
    predict_frames = lambda self, X: np.full((*X.shape[:2], 2), 0.5)
"""


def test_plugins_read_frames_by_their_tags(planted, install, tmp_path):
    install({"nets.py": PLUGIN}, {"frames": "mylab.nets:Frames"})
    run = om.run_experiment(planted.experiment("frames"), tmp_path / "run")
    assert (run.frames("frames").probabilities[0, :SHORT] == 0.5).all()
    assert (run.frames("frames").threshold == 0.5).all()
