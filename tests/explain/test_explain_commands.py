"""Reasons of clips, and commands from annotators' timelines to moments and their scores."""

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import obygaze_features as of
import obygaze_models as om
from obygaze_features.errors import ExperimentError
from tests.kit.files import csv_rows, refused, write
from tests.kit.floats import close

FRAMES = 16
SIZE = 8
LEVELS = ("bare", "calm: so", "maybe", "tense")
NAMES = ("", "Look", "Body", "Look|Body")
FILM = "tt0097576"
TITLE = "Indiana Jones and the Last Crusade"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run on clips of 30 s, with a lab's own levels.

    Frames that annotator1 calls tense stand apart in its features.
    """
    folder = tmp_path_factory.mktemp("lab")
    chance = np.random.default_rng(4)
    rows = []
    for who, end in (("annotator1", 4000), ("annotator2", 1500)):
        for start in range(0, end, 70):
            times = f"{start},{start + 70}"
            marks = f"{chance.choice(LEVELS)},{chance.choice(NAMES)}"
            rows.append(f"{FILM},{who},{times},{marks}")
    write(folder / "marks.csv", "film,annotator,start,end,level,concepts", *rows)
    films = write(folder / "films.csv", "film,title", f"{FILM},{TITLE}")
    levels = ", ".join(LEVELS)
    timelines = of.Timelines.from_csv(folder / "marks.csv", films=films, levels=levels)
    projected = of.project(timelines, 30)
    manifest = projected.grid.with_parts(*projected.label_sets)
    manifest = manifest.with_parts(of.stratified(manifest, folds=3, labels="annotator1"))
    manifest.save(folder / "manifest")
    items = manifest.items
    steps = (np.arange(FRAMES) + 0.5) / FRAMES
    lengths = items.ends - items.starts
    times = items.starts[:, None] + steps * lengths[:, None]
    frames = np.random.default_rng(8).standard_normal((*times.shape, SIZE), np.float32)
    for segment in timelines.by_film[FILM]["annotator1"]:
        if segment.level == "tense":
            frames[(segment.start <= times) & (times < segment.end)] += 3
    arrays = {"native": frames.mean(axis=1), "frames": frames, "frame_time": times}
    arrays["loudness"] = -20 - 9 * np.cos(times).astype("f4")  # as a store of sound has it
    files = {name: folder / f"{name}.npy" for name in arrays}
    for name, values in arrays.items():
        np.save(files[name], values)
    store = folder / "s.zarr"
    of.import_features(files, manifest, store, ids=manifest.ids)
    experiment = om.Experiment(
        name="moments",
        manifest=str(folder / "manifest"),
        store=str(store),
        labels="annotator1",
        protocol="split",
        split="leak-free",
        positives=("tense",),
        train_negatives=("bare", "calm: so"),
        estimators=("logistic", "film-prior", "pcbm-tree", {"name": "frame-mil", "max_iter": 15}),
    )
    run = om.run_experiment(experiment, folder / "run")
    saved = {row["model"]: row["folder"] for row in run.saved}
    frames = om.frame_table(om.run_frames(run, store), items)
    native = dict(zip(manifest.ids, arrays["native"], strict=True))
    return SimpleNamespace(
        folder=folder,
        timelines=timelines,
        store=store,
        run=run,
        saved=saved,
        frames=frames,
        moments=om.find_moments(frames),
        native=native,
    )


def test_a_trees_questions_are_listed(lab, obygaze):
    words = ("models", "explain", lab.saved["pcbm-tree"], "--store", lab.store)
    clip, *_ = lab.native
    [explained] = json.loads(obygaze(*words, clip, "--json", code=0).stdout)
    model = om.load_model(lab.saved["pcbm-tree"]).estimator
    odds = model.predict_proba(lab.native[clip][None])[0]
    explanation = explained["explanation"]
    assert explanation["label"] == list(explanation["probabilities"])[odds.argmax()]
    assert [*explanation["probabilities"].values()] == close(odds)
    step = explanation["why"]["steps"][0]
    assert step["concept"] == model.concept_names()[model.head_.feature[0]]
    printed = obygaze(*words, clip, code=0).stdout
    assert all(word in printed for word in (clip, "threshold", "seen"))
    refused(obygaze(*words, clip, "tt9-999"), "unknown id 'tt9-999'")


def test_the_input_must_be_the_models(lab, obygaze, tmp_path):
    output = tmp_path / "m.csv"
    clip, *_ = lab.native
    films = ("explain", lab.saved["film-prior"], clip, "--store", lab.store)
    refused(obygaze("models", *films), "film")
    moments = ("moments", lab.saved["logistic"], lab.store, "-o", output)
    refused(obygaze("models", *moments), "does not predict frames")
    same = obygaze("models", *moments, "--frames", output)
    refused(same, "-o and --frames must be different files", code=2)
    refused(obygaze("models", "predict", lab.store), "a model needs a STORE", code=2)
    with pytest.raises(ExperimentError, match="no description of its"):
        om.predict(om.LinearSVMProbe(), lab.store)


def test_planted_moments_are_found(lab):
    middles = (lab.frames["start"] + lab.frames["end"]) / 2
    segments = lab.timelines.by_film[FILM]["annotator1"]
    marked = [segment for segment in segments if segment.level == "tense"]
    inside = [any(s.start <= time < s.end for s in marked) for time in middles]
    assert roc_auc_score(inside, lab.frames["probability"]) > 0.95
    assert lab.frames["threshold"].nunique() == 3, "a threshold a fold"
    planted = -20 - 9 * np.cos(middles)
    np.testing.assert_allclose(lab.frames["loudness"], planted, atol=0.1)


def test_the_commands_are_the_python_calls(lab, obygaze, tmp_path):
    named = {name: tmp_path / f"{name}.csv" for name in ("moments", "frames")}
    options = ("--frames", named["frames"], "--elan", tmp_path / "elan")
    words = ("models", "moments", lab.folder / "run", lab.store)
    result = obygaze(*words, "-o", named["moments"], *options, code=0)
    for name, path in named.items():
        written = pd.read_csv(path)
        expected = getattr(lab, name)[written.columns]
        pd.testing.assert_frame_equal(written, expected, check_dtype=False, atol=0.06)

    [row] = [line for line in result.output.splitlines() if line.startswith(FILM)]
    lengths = lab.moments["end"] - lab.moments["start"]
    total = (lab.frames["end"] - lab.frames["start"]).sum()
    above = (lab.frames["probability"] >= lab.frames["threshold"]).mean()
    shares = (lengths.sum() / total, above, lab.frames["threshold"].mean())
    texts = [f"{share:.3f}" for share in shares]
    assert row.split() == [FILM, str(len(lengths)), *texts]

    [path] = (tmp_path / "elan").iterdir()
    assert path.name == f"{FILM}.eaf"
    slots = ElementTree.parse(path).iter("TIME_SLOT")
    times = [int(slot.get("TIME_VALUE")) for slot in slots]
    ends = lab.moments[["start", "end"]].to_numpy().ravel()
    assert times == (1000 * ends).round().tolist()

    never = (*words, "--threshold", 1, "-o", tmp_path / "m.csv")
    refused(obygaze(*never, "--elan", tmp_path / "none"), "which ELAN needs")
    assert not (tmp_path / "m.csv").exists()
    obygaze(*never, code=0)
    assert csv_rows(tmp_path / "m.csv") == []


def test_moments_in_training_clips_are_marked(lab, obygaze, tmp_path):
    part = tmp_path / "part.zarr"
    fits = lab.run.predictions.query("model == 'frame-mil'")
    last = fits[fits["fit"] == fits["fit"].max()]
    of.subset(lab.store, part, ids=last["id"].tolist()[:2])
    first = next(row for row in lab.run.saved if row["model"] == "frame-mil")
    for model, seen in ((lab.folder / "run", "film"), (first["folder"], "clip")):
        output = tmp_path / f"{seen}.csv"
        obygaze("models", "moments", model, part, "-o", output, code=0)
        assert {row["seen_in_training"] for row in csv_rows(output)} == {seen}


def test_clips_are_predicted_in_blocks(lab, monkeypatch):
    monkeypatch.setattr("obygaze_models.saved.predict.BLOCK_VALUES", 7 * SIZE)
    predictions = om.predict(lab.saved["logistic"], lab.store)
    assert predictions.table["id"].tolist() == list(lab.native)
    model = om.load_model(lab.saved["logistic"]).estimator
    expected = model.predict_proba(np.array([*lab.native.values()]))
    np.testing.assert_allclose(predictions.values, expected, rtol=0, atol=1e-6)
