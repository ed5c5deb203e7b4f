"""What is printed, written and exported: runs, trained models, predictions, annotators."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from msgspec import structs
from pympi.Elan import Eaf
from sklearn.metrics import cohen_kappa_score, roc_auc_score

import obygaze_features as of
import obygaze_models as om
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.errors import ExperimentError, UnknownItem
from obygaze_features.manifests import LabelSet, Manifest
from obygaze_models.results.annotators import compare_with_each
from obygaze_models.results.summary import describe_run, headline
from obygaze_models.scoring.annotators import compare_with_annotators
from tests.conftest import run_obygaze
from tests.kit.files import refused
from tests.kit.floats import close
from tests.kit.run import RECIPE, write_experiment, write_store


def words(text):
    return " ".join(text.split())


def test_run_prints_the_result_and_its_tables(world, tmp_path):
    models = ["logistic", "majority"]
    toml = write_experiment(
        tmp_path / "sure.toml", world, split="", protocol="split", estimators=models
    )
    result = run_obygaze("models", "run", toml, "-o", tmp_path / "run", code=0)
    run = om.load_run(tmp_path / "run")
    [scores] = [own for own in run.model_scores if own.model == "logistic"]
    area = scores.estimate("auroc").value
    first = (
        "Given one Sure and one Hard Negative clip of the same film, logistic rates the Sure one "
        f"higher {area:.0%} of the time (AUROC {area:.2f}; "
    )
    assert headline(run).startswith(first)
    assert result.stdout.startswith(headline(run))
    assert describe_run(run) in result.stdout
    assert "variance of Nadeau and Bengio" in words(result.stdout)
    assert "guess: all positive" in result.stdout


def test_a_dry_run_lists_the_fits(world, tmp_path):
    models = ["logistic", "svm"]
    toml = write_experiment(
        tmp_path / "e.toml", world, estimators=models, protocol="leave-film-out"
    )
    printed = json.loads(run_obygaze("models", "run", toml, "--dry-run", "--json", code=0).stdout)
    rows = {row["model"]: row for row in printed["fits"]}
    assert (rows["logistic"]["fits"], rows["svm"]["fits"]) == (5, 5)


def test_a_trained_model_predicts_and_is_scored(world, model, tmp_path):
    table = om.predict(model, world.store, ids=world.ids[:8]).table
    loaded = om.load_model(model)
    estimator, about = loaded.estimator, loaded.about
    rows = of.open_store(world.store).read("native", world.ids[:8])
    np.testing.assert_array_equal(table["probability_S"], estimator.predict_proba(rows)[:, 1])
    assert about.learned.class_titles == ["HN", "S"]
    levels = np.array(world.levels[:8])
    assert table["seen"].tolist() == np.where(np.isin(levels, ["HN", "S"]), "clip", "film").tolist()
    scored = om.evaluate(model, world.store, world.manifest)
    ours = scored[scored["by"] == "the model"].set_index("on")
    every = om.predict(model, world.store).table
    chosen = np.isin(world.levels, ["HN", "S"])
    truth = np.array(world.levels)[chosen] == "S"
    assert ours.loc["all clips", "auroc"] == close(
        roc_auc_score(truth, every["probability_S"][chosen])
    )
    assert [*ours.index] == ["all clips"]  # the model has seen them all
    result = run_obygaze("models", "evaluate", model, world.store, world.manifest, code=0)
    assert "only clips of unseen films are a fair test" in result.stderr
    with pytest.raises(UnknownItem, match="unknown id 'gone'"):
        om.predict(model, world.store, ids=["gone"])


@pytest.mark.parametrize("changed", ["weights", "mode"])
def test_other_features_are_refused(world, model, changed, tmp_path):
    recipe = replace(RECIPE, preprocessing={"mode": "other"})
    if changed == "weights":
        backbone = RECIPE.backbone | {"name": "renamed", "weights_sha256": "1" * 64}
        recipe = replace(RECIPE, backbone=backbone)
    write_store(tmp_path / "s.zarr", Manifest.load(world.manifest), world.rows, recipe)
    with pytest.raises(ExperimentError, match=f"does not fit .*: {changed} is"):
        om.predict(model, tmp_path / "s.zarr")


def test_two_ids_of_one_stretch_are_the_same_footage(world, model, tmp_path):
    """A clip is recognised by its file, and other clips of its film are no fair test either."""
    manifest = Manifest.load(world.manifest)
    ids = [f"renamed-{number}" for number in range(len(manifest))]
    films = ["elsewhere" if film == "tt1" else film for film in manifest.items.films]
    items = replace(manifest.items, ids=ids, films=films)
    rows = dict(zip(ids, world.features, strict=True))
    write_store(tmp_path / "s.zarr", replace(manifest, items=items), rows)
    table = om.predict(model, tmp_path / "s.zarr").table
    used = np.isin(world.levels, ["HN", "S"])
    assert (table["seen"][used] == "clip").all()
    others = table[~used]
    unseen = np.array(films)[~used] == "elsewhere"
    assert (others["seen"][unseen] == "no").all()
    assert (others["seen"][~unseen] == "film").all()


PEOPLE = {"ada": "Ада", "cy": "cy"}


@pytest.fixture(scope="module")
def timed(world, tmp_path_factory):
    """The world's clips as spans of films, and two annotators' labels."""
    manifest, folder = Manifest.load(world.manifest), tmp_path_factory.mktemp("timed")
    rows = np.arange(len(manifest)) % 40
    media = [f"{clip[:3]}.mp4" for clip in world.ids]
    items = replace(manifest.items, media=media, starts=rows * 2.0, ends=rows * 2.0 + 2)
    own = manifest.labels()
    sets = []
    for shift, (name, written) in enumerate(PEOPLE.items(), 5):
        levels = np.where(rows % shift, own.levels, ["HN", "S"][shift % 2]).tolist()
        sets.append(LabelSet(name, own.ids, levels, own.concepts, about={"annotator": written}))
    sets[1] = sets[1].where(lambda clip: clip not in world.ids[:20])  # and left some out
    here = replace(manifest, items=items)
    merged = replace(merge_labels(sets, here), name="all")
    here.with_parts(merged, *sets, manifest.split("ten")).save(folder / "m")
    write_store(folder / "s.zarr", here, world.rows)
    return folder, sets


@pytest.fixture(scope="module")
def annotated(timed, make_run):
    folder, _ = timed
    changes = {"labels": "all", "protocol": "split", "test_negatives": ()}
    return make_run("annotated", manifest=folder / "m", store=folder / "s.zarr", **changes)


def test_kappas_equal_those_of_scikit_learn(timed, annotated):
    _, sets = timed
    [comparison] = compare_with_each(annotated).values()
    assert comparison.annotators == ["ada", "cy"]
    assert annotated.header.manifest.people == PEOPLE
    predictions = annotated.predictions.set_index("id")
    called = (predictions["probability"] > 0.5).map({True: "S", False: "HN"})
    labels = [dict(zip(own.ids, own.levels, strict=True)) for own in sets]
    shared = [clip for clip in called.index if {own.get(clip) for own in labels} <= {"HN", "S"}]
    assert comparison.clips == len(shared)
    [model] = comparison.models
    theirs = []
    for own in labels:
        theirs.append(cohen_kappa_score([own[c] for c in shared], called[shared].tolist()))
    between = cohen_kappa_score(*([own[clip] for clip in shared] for own in labels))
    assert model.kappas == close(theirs)
    assert comparison.kappas == [[None, close(between)], [close(between), None]]
    assert (model.mean, comparison.mean) == close((np.mean(theirs), between))
    assert model.difference == close(np.mean(theirs) - between)


def test_each_kappa_is_of_the_clips_that_both_called():
    rng = np.random.default_rng(5)
    votes = {name: rng.integers(-1, 2, 60) for name in "abcdefghi"}
    called = rng.integers(0, 2, 60).astype(float)
    called[:5] = np.nan
    comparison = compare_with_annotators(votes, {"m": called}, ["film"] * 60, 2)
    chosen = np.isfinite(called) & ((np.array([*votes.values()]) >= 0).sum(axis=0) > 1)
    kappas = []
    for first, second in combinations(votes.values(), 2):
        both = chosen & (first >= 0) & (second >= 0)
        kappas.append(cohen_kappa_score(first[both], second[both]))
    assert (comparison.clips, comparison.mean) == (chosen.sum(), close(np.mean(kappas)))
    both = chosen & (votes["a"] >= 0)
    assert comparison.models[0].kappas[0] == close(
        cohen_kappa_score(votes["a"][both], called[both])
    )


def test_held_out_predictions_are_written_with_their_annotations(annotated, make_run, tmp_path):
    output, elan = tmp_path / "p.csv", tmp_path / "elan"
    run_obygaze("models", "predict", annotated.folder, "-o", output, "--elan", elan, code=0)
    table = pd.read_csv(output, keep_default_na=False).set_index("id")
    predictions = annotated.predictions.set_index("id")
    assert {*table.index} == {*predictions.index}
    shares = predictions["probability"].reindex(table.index)
    assert table["probability"].tolist() == close(shares.tolist(), eps=1e-6)
    assert (table["prediction"] == np.where(shares > 0.5, "S", "HN")).all()
    assert (table["label of ada"] != "").all()
    files = sorted(path.name for path in elan.iterdir())
    assert files == [f"tt{film}.eaf" for film in range(5)]
    document = Eaf(elan / "tt0.eaf")
    [tier] = [name for name in document.get_tier_names() if name == "logistic: HN vs S"]
    notes = document.get_annotation_data_for_tier(tier)
    assert len(notes) == sum(clip.startswith("tt0") for clip in table.index)
    refused(run_obygaze("models", "predict", annotated.folder, "-o", output), "p.csv")
    untimed = run_obygaze("models", "predict", make_run("good").folder, "--elan", tmp_path / "no")
    assert "has a start and an end in a film, which ELAN needs" in untimed.stderr


def test_a_class_of_a_single_fold_cannot_train_and_validate(world, experiment, tmp_path):
    manifest = Manifest.load(world.manifest)
    early = world.clips("S", folds=range(9))
    labels = manifest.labels().where(lambda clip: clip not in early)
    manifest.with_parts(labels, manifest.split("ten")).save(tmp_path / "m")
    asked = structs.replace(experiment, manifest=tmp_path / "m", estimators=("mlp",))
    with pytest.raises(ExperimentError, match=r"the training set has no clips of .*S\. Label at"):
        om.train_model(asked)
