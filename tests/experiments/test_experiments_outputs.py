"""What is printed, written and exported: runs, trained models, predictions, annotators."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from msgspec import structs
from pympi.Elan import Eaf
from scipy import stats
from sklearn.metrics import cohen_kappa_score, roc_auc_score

import obygaze_models as om
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import LabelSet, Manifest

# Kappas are compared with scikit-learn's to the last digit; a page rounds them.
from obygaze_models.results.annotators import compare_with_each
from tests.conftest import run_obygaze
from tests.kit.floats import close
from tests.kit.run import RECIPE, labelled, write_experiment, write_store


def test_a_trained_model_predicts_and_is_scored(world, tmp_path):
    model = tmp_path / "sure"
    toml = write_experiment(tmp_path / "sure.toml", world, estimators=["logistic"])
    run_obygaze("models", "train", toml, "-o", model, code=0)
    predicted = om.predict(model, world.store)
    estimator = om.load_model(model).estimator
    expected = estimator.predict_proba(world.features)
    assert predicted.values == close(expected)
    used = np.isin(world.levels, ["HN", "S"])
    assert predicted.table["seen"].tolist() == np.where(used, "clip", "film").tolist()
    scored = om.evaluate(model, world.store, world.manifest)
    [row] = scored[scored["by"] == "the model"].to_dict("records")
    truth = np.array(world.levels)[used] == "S"
    assert row["auroc"] == close(roc_auc_score(truth, predicted.values[used, 1]))
    assert row["on"] == "all clips"  # the model has seen them all
    result = run_obygaze("models", "evaluate", model, world.store, world.manifest, code=0)
    assert "only clips of unseen films are a fair test" in result.stderr
    recipe = replace(RECIPE, backbone=RECIPE.backbone | {"weights_sha256": "1" * 64})
    write_store(tmp_path / "s.zarr", Manifest.load(world.manifest), world.rows, recipe)
    with pytest.raises(ExperimentError, match=r"does not fit .*: weights is"):
        om.predict(model, tmp_path / "s.zarr")


def test_the_example_is_copied_and_can_be_trained_on(tmp_path):
    run_obygaze("models", "example", tmp_path / "m", code=0)
    assert om.train_model(tmp_path / "m/length.toml").counts["trained"] > 999


PEOPLE = {"ada": "Ада", "bo": "bo", "cy": "cy"}


@pytest.fixture(scope="module")
def timed(world, tmp_path_factory):
    """The world's clips as spans of films, and the labels of three annotators."""
    here = labelled(world.ids, world.levels, seconds=2)
    folder = tmp_path_factory.mktemp("timed")
    rows = np.arange(len(here)) % 40
    own = here.labels()
    sets = []
    for shift, (name, written) in enumerate(PEOPLE.items(), 5):
        level = "S" if shift % 2 else "HN"
        levels = np.where(rows % shift, own.levels, level).tolist()
        sets.append(LabelSet(name, own.ids, levels, own.concepts, about={"annotator": written}))
    for number in (1, 2):  # they left some out
        left = world.ids[number * 20 :: 5]
        sets[number] = sets[number].where(lambda clip, left=left: clip not in left)
    merged = replace(merge_labels(sets, here), name="all")
    here.with_parts(merged, *sets).save(folder / "m")
    write_store(folder / "s.zarr", here, world.rows)
    return folder, sets


@pytest.fixture(scope="module")
def annotated(timed, make_run):
    folder, _ = timed
    places = {"manifest": folder / "m", "store": folder / "s.zarr", "labels": "all"}
    changes = {"protocol": "leave-film-out", "split": None, "test_negatives": ()}
    return make_run("annotated", **places, **changes)


def test_kappas_equal_those_of_scikit_learn(timed, annotated):
    """Each is of the clips that both called, of those that two people labelled."""
    run = annotated
    [comparison] = compare_with_each(run).values()
    assert comparison.annotators == [*PEOPLE]
    assert run.header.manifest.people == PEOPLE
    p = run.predictions.set_index("id")["probability"]
    calls = {own.name: pd.Series(own.level_of) for own in timed[1]}
    calls["logistic"] = (p > 0.5).map({True: "S", False: "HN"})
    table = pd.DataFrame(calls).loc[p.index]
    table = table.where(table.isin(["HN", "S"]))
    table = table[table[[*PEOPLE]].notna().sum(axis=1) > 1]
    assert comparison.clips == len(table)

    def kappas(pairs, film=""):
        own = table[table.index.str[:3] != film]
        both = [own[[*pair]].dropna().to_numpy().T for pair in pairs]
        return [cohen_kappa_score(*pair) for pair in both]

    [model] = comparison.models
    with_model = [(name, "logistic") for name in PEOPLE]
    among = [*combinations(PEOPLE, 2)]
    assert model.kappas == close(kappas(with_model))
    assert comparison.mean == close(np.mean(kappas(among)))

    def ahead(film=""):
        return np.mean(kappas(with_model, film)) - np.mean(kappas(among, film))

    value = ahead()
    assert model.difference == close(value)
    spread = 4 * np.var([ahead(f"tt{film}") for film in range(5)])
    half = stats.t.ppf(0.975, 4) * (spread * (1 + 5 / 4)) ** 0.5
    assert model.interval == close((value - half, value + half))


def test_held_out_predictions_are_written_with_their_annotations(annotated, make_run, tmp_path):
    run = annotated
    output = tmp_path / "p.csv"
    elan = tmp_path / "elan"
    run_obygaze("models", "predict", run.folder, "-o", output, "--elan", elan, code=0)
    table = pd.read_csv(output, keep_default_na=False).set_index("id")
    predictions = run.predictions.set_index("id")
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
    assert table.index[0] in run_obygaze("models", "predict", run.folder, code=0).stdout
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
