"""Models for use: trained, saved, asked about any store, scored on any manifest, exported."""

import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from sklearn.linear_model import LogisticRegression

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Item, Items, Manifest
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows
from tests.kit.run import RECIPE, make_world, write_experiment, write_store

UNSURE, RENAMED = "unsure", "under another id"


def train(folder, world, estimator, name="model", **keys):
    """A model of Sure against Hard Negatives, by the command; gives what that printed, too."""
    toml = write_experiment(folder / f"{name}.toml", world, estimators=[estimator], **keys)
    result = run_obygaze("models", "train", toml, "-o", folder / name, code=0)
    return folder / name, result


@pytest.mark.parametrize(
    ("task", "negatives"),
    [({}, 1), ({"protocol": "leave-film-out", "balance": "none"}, 2),
     ({"positives": None, "train_negatives": None, "levels": ["EN", "HN", "S"]}, 2)],
)  # fmt: skip
def test_a_model_for_use_is_balanced_as_in_a_run(world, tmp_path, task, negatives):
    """As many Easy and Hard Negatives as Sure clips, or all of them, which are twice as many."""
    model, _ = train(tmp_path, world, "knn", **({"train_negatives": ["EN", "HN"]} | task))
    sure = {*world.clips("S")}
    counts = Counter(clip in sure for clip in om.load_model(model)[1]["seen"])
    assert counts[False] == negatives * counts[True] > 0


def test_it_learns_from_all_folds_but_the_last(world, model):
    """The same as scikit-learn's own on the same clips; what is close to call is unsure."""
    trained = world.clips("HN", "S", folds=range(9))
    rows = [world.ids.index(clip) for clip in trained]
    labels = [world.levels[row] == "S" for row in rows]
    plain = LogisticRegression(solver="liblinear").fit(world.features[rows], labels)
    predictions = om.predict(model, world.store)
    expected = plain.predict_proba(world.features)[:, 1]
    np.testing.assert_allclose(predictions.probabilities[:, 1], expected, atol=1e-3)
    seen = dict(zip(predictions.ids, predictions.seen, strict=True))
    assert {clip for clip, value in seen.items() if value == "yes"} == set(trained)
    assert set(predictions.about["seen"]) == set(trained)
    careful = om.predict(model, world.store, band=(0.3, 0.7))
    for probability, label, cautious in zip(
        predictions.probabilities[:, 1], predictions.predicted, careful.predicted, strict=True
    ):
        assert label == ("S" if probability > 0.5 else "HN")
        assert cautious == (UNSURE if 0.3 <= probability <= 0.7 else label)


def test_what_was_not_seen_is_scored_or_said_not_to_be(world, model, tmp_path):
    manifest, labels = Manifest.load(world.manifest), Manifest.load(world.manifest).labels()
    seen, new = (world.clips("HN", "S", folds=folds) for folds in (range(9), [9]))
    for name, ids in (("one", [*seen, *world.clips("HN", folds=[9])]), ("both", [*seen, *new])):
        of_ids = labels.where(lambda clip, ids=ids: clip in ids)
        manifest.select(ids=ids).with_parts(labels=[of_ids]).save(tmp_path / name)
    one, both = (
        run_obygaze("models", "evaluate", model, world.store, tmp_path / name)
        for name in ("one", "both")
    )
    assert "they are all of one class: there is nothing to tell apart" in one.stdout
    assert one.stderr.endswith("on all of them this is no test\n")
    _, _, apart = both.stdout.partition("not seen in training: ")
    assert apart.startswith(f"{len(world.clips('S', folds=[9]))} of {len(new)} positive")


def test_what_a_model_cannot_be_asked_is_refused(world, model, tmp_path):
    prior, _ = train(tmp_path, world, "film-prior", "prior")
    lost = ["tt0-000", "tt2-0017"]
    for call, fact in (
        (lambda: om.predict(model, world.store, band=(0.7, 0.3)), "two probabilities in order"),
        (lambda: om.predict(model, world.store, ids=lost), "no clip tt2-0017; did you mean tt2-0"),
        (lambda: om.predict(prior, world.store), "reads each clip's film, not features"),
        (lambda: om.predict_frames(model, world.store), "does not predict frames"),
    ):
        with pytest.raises(ExperimentError, match=fact):
            call()
    estimator, about = om.load_model(model)
    estimator.coef_ = np.resize([1e308, -1e308], estimator.coef_.shape)
    om.save_model(estimator, tmp_path / "huge", about)
    said = pytest.raises(ExperimentError, match="huge: predict_proba gave what is not probab")
    with said, np.errstate(all="ignore"):
        om.evaluate(tmp_path / "huge", world.store, world.manifest)
    # A folder of models, or of a run, is none and says what is in it.
    inside = tmp_path / "run/models/mlp/HN-vs-S-0"
    shutil.copytree(model, inside)
    for folder, meant in ((model.parent, model), (tmp_path / "run", inside)):
        with pytest.raises(ExperimentError, match=f"{folder} is not a model; did you mean {meant}"):
            om.load_model(folder)


def test_clips_trained_on_are_recognised_under_other_ids(world, model, tmp_path):
    seen = world.clips("HN", "S", folds=range(9))
    unseen = world.clips("EN")[0]
    expected = {
        Item(seen[0], media="elsewhere.mp4"): "yes",
        Item("new-1", film="a", media=f"{seen[1]}.mkv", start=1.0, end=2.0): RENAMED,
        Item("new-2", film="b", media=f"{seen[1]}.avi"): RENAMED,
        Item("new-3", film="a", media=f"{unseen}.mp4", start=1.0, end=2.0): "no",
        Item("new-4", film=seen[0].split("-")[0]): "no",
    }
    store = tmp_path / "renamed.zarr"
    manifest = Manifest("renamed", Items.of(list(expected)))
    write_store(store, manifest, dict.fromkeys(manifest.ids, np.ones(8, np.float32)))
    predictions = om.predict(model, store)
    assert predictions.seen == list(expected.values())
    table, tables = tmp_path / "said.csv", tmp_path / "tables"
    outputs = ("-o", table, "--csv", tables)
    result = run_obygaze("models", "predict", model, store, *outputs, code=0)
    assert "2 clips show seconds of files that it was trained on, under other ids" in result.stderr
    assert [row["seen_in_training"] for row in csv_rows(table)] == predictions.seen
    assert f",{RENAMED}\n" in (tables / "b.csv").read_text(encoding="utf-8")


def test_what_is_not_real_is_said_wherever_it_is_used(tmp_path):
    recipe = replace(RECIPE, backbone=RECIPE.backbone | {"config": {"synthetic": "random weights"}})
    drawn = make_world(tmp_path / "w", recipe=recipe, synthetic="drawn by a test")
    cautions = [
        "Not a real result: the clips are synthetic (drawn by a test).",
        "Not a real result: the backbone is synthetic (random weights).",
    ]
    model, trained = train(tmp_path, drawn, "logistic")
    commands = (
        ["predict", model, drawn.store, "--json"],
        ["evaluate", model, drawn.store, drawn.manifest],
        ["explain", model, drawn.store, drawn.ids[0]],
    )
    for result in (trained, *(run_obygaze("models", *command, code=0) for command in commands)):
        said = [line for line in result.stderr.splitlines() if "Not a real" in line]
        assert said == [f"WARNING: {text}" for text in cautions]
    assert all(f"**{text}**" in (model / "README.md").read_text() for text in cautions)


@pytest.mark.parametrize("estimator", [
    {"name": "mlp", "max_iter": 3, "hidden_layer_sizes": [16, 8], "calibrate": True,
     "threshold": "validation"},
    {"name": "pcbm-logistic", "negatives": "b", "bank__C": 0.1, "bank__output": "decision"},
    "knn",
], ids=["mlp", "decision", "knn"])  # fmt: skip
def test_onnxruntime_says_the_same(marked, tmp_path, estimator):
    model, _ = train(tmp_path, marked, estimator)
    result = run_obygaze("models", "export", model, "-o", tmp_path / "model.onnx")
    if estimator == "knn":
        assert (result.exit_code, "KNeighborsClassifier, which is no" in result.stderr) == (1, True)
        return
    assert result.exit_code == 0, result.stderr
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (probabilities,) = session.run(None, {"features": marked.features})
    expected = om.predict(model, marked.store).probabilities
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["classes"] == "HN, S"
    again = run_obygaze("models", "export", model, "-o", tmp_path / "model.onnx")
    assert (again.exit_code, "exists already" in again.stderr) == (1, True)
