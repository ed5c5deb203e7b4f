"""Experiments on numbers, from the file to a model's predictions."""

import csv
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

import obygaze_models as om
from obygaze_features import Manifest
from obygaze_features.errors import ExperimentError
from tests.kit.floats import close
from tests.kit.intervals import cross_validated_interval
from tests.kit.run import write_store

CLIPS = 240
FILMS = 6


@pytest.fixture(scope="module")
def rated(tmp_path_factory):
    """A table like LIRIS-ACCEDE, without levels, and features that predict its numbers."""
    folder = tmp_path_factory.mktemp("rated")
    chance = np.random.default_rng(4)
    X = chance.normal(size=(CLIPS, 8)).astype(np.float32)
    valence = X @ chance.normal(size=8) + chance.normal(size=CLIPS) - 3
    films = [f"tt{row % FILMS}" for row in range(CLIPS)]
    ids = [f"{film}-{row:03}" for row, film in enumerate(films)]
    with (folder / "accede.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "film", "valence", "arousal"])
        for row in range(CLIPS):
            cell = "" if row % 40 == 39 else f"{valence[row]:.4f}"
            table.writerow([ids[row], films[row], cell, row / 7])
    manifest = Manifest.from_csv(folder / "accede.csv")
    manifest.save(folder / "manifest")
    write_store(folder / "toy.zarr", manifest, dict(zip(ids, X, strict=True)))
    return folder, pd.DataFrame({"valence": valence.round(4), "film": films}, index=ids), X


def numbers(folder, **keys):
    base = {"column": "valence", "protocol": "leave-film-out", "estimators": ["ridge"]}
    base |= {"manifest": folder / "manifest", "store": folder / "toy.zarr"}
    return om.Experiment(name="Valence", **base | keys)


@pytest.fixture(scope="module")
def run(rated, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "valence"
    return om.run_experiment(numbers(rated[0], estimators=["ridge", "svr"]), folder)


def test_numbers_are_predicted_film_by_film_as_scikit_learn_does(rated, run):
    _, truth, X = rated
    use = np.arange(CLIPS) % 40 != 39
    films = truth["film"].to_numpy()
    expected = {}
    r2 = []
    spearman = []
    own_mean = []
    for film in np.unique(films):
        test = use & (films == film)
        train = use & (films != film)
        known = truth["valence"][train]
        values = Ridge().fit(X[train], known).predict(X[test])
        expected |= dict(zip(truth.index[test], values, strict=True))
        y = truth["valence"][test]
        r2.append(r2_score(y, values))
        spearman.append(stats.spearmanr(y, values).statistic)
        mean = np.full(len(y), known.mean())
        own_mean.append(r2_score(y, mean))
    table = run.predictions
    ridge = table[table["model"] == "ridge"].set_index("id")
    assert ridge["value"].to_dict() == close(expected)
    assert ridge["label"].to_dict() == truth["valence"][use].to_dict()
    scores = run.model_scores[0]
    assert scores.within["r2"].value == close(np.mean(r2))
    assert scores.within["spearman"].interval == close(cross_validated_interval(spearman))
    guesses = run.tests["valence"].guesses["within"]
    assert guesses["mean of the other films"]["r2"] == close(np.mean(own_mean))
    assert guesses["mean of the film"]["r2"] == close(0)
    assert run.main_metric == "spearman"


def test_each_score_counts_the_films_that_it_is_a_mean_of(rated, tmp_path):
    """A constant has no rank correlation, so one film is missing from one model's Spearman."""
    folder, truth, X = rated
    guess = X[:, 0] - X[:, 1]
    guess[truth["film"] == "tt0"] = 0
    truth.assign(value=guess)["value"].to_csv(tmp_path / "flat.csv", index_label="id")
    experiment = numbers(folder, predictions=[tmp_path / "flat.csv"])
    run = om.run_experiment(experiment, tmp_path / "run")
    scores = run.scores()
    films = scores.query("group == '' and over == 'within'").set_index(["model", "metric"])["films"]
    assert films["flat"].to_dict() == {"spearman": 5, "pearson": 5, "r2": 6, "mae": 6}
    assert {*films["ridge"]} == {6}
    compared = om.compare(run)
    row, _ = compared.rows
    by_film = scores.query("metric == 'spearman' and group not in ['', 'tt0']")
    means = by_film.groupby("model")["mean"].mean()
    assert row["difference"] == close(means["flat"] - means["ridge"])
    assert row["films"] == 5
    turned, _ = om.compare(run, models=["flat", "ridge"]).rows
    assert turned["score"] == close(means["ridge"])


def test_a_saved_model_of_numbers_predicts_and_is_evaluated(rated, tmp_path):
    folder, truth, X = rated
    om.train_model(numbers(folder), tmp_path / "m")
    assert "predicts valence" in (tmp_path / "m/README.md").read_text()
    table = om.predict(tmp_path / "m", folder / "toy.zarr").table
    trained = table["seen"].to_numpy() == "clip"
    values = truth["valence"].to_numpy()
    model = Ridge().fit(X[trained], values[trained])
    assert table["value"].to_numpy() == close(model.predict(X), eps=1e-4)
    scored = om.evaluate(tmp_path / "m", folder / "toy.zarr", folder / "manifest")
    use = np.arange(CLIPS) % 40 != 39
    r2 = r2_score(values[use], table["value"][use])
    assert scored["r2"].iloc[0] == close(r2)


def test_non_numeric_columns_are_named(rated, tmp_path):
    folder, *_ = rated
    manifest = Manifest.load(folder / "manifest")
    for cell in ("high", "1e200"):  # whose square overflows
        cells = [cell, *manifest.items.extra["valence"][1:]]
        items = replace(manifest.items, extra={"valence": cells})
        replace(manifest, items=items).save(tmp_path / cell)
        with pytest.raises(ExperimentError, match="valence of tt0-000 is not a number within"):
            om.run_experiment(numbers(folder, manifest=tmp_path / cell), tmp_path / "b")
