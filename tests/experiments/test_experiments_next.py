"""Clips to annotate next: uncertain, diverse, of many films; and the labels that they save."""

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from scipy.stats import entropy
from sklearn.metrics import roc_auc_score

import obygaze_models as om
from obygaze_features import Manifest
from obygaze_models.experiments.predict import choose_next
from tests.kit.files import csv_rows, refused
from tests.kit.run import write_store

MOBYGAZE = Path(__file__).parents[2] / "examples/mobygaze"


@pytest.fixture(scope="module")
def run(experiment, world, tmp_path_factory):
    """A run on some of the films; the store also has the others."""
    folder = tmp_path_factory.mktemp("next")
    films = ("tt0", "tt1", "tt2")
    Manifest.load(world.manifest).select(films=films).save(folder / "manifest")
    changed = structs.replace(
        experiment, manifest=str(folder / "manifest"), protocol="leave-film-out", split=None,
        min_clips=1, estimators=("logistic",),
    )  # fmt: skip
    return om.run_experiment(changed, folder / "run")


def test_the_next_clips_are_the_most_uncertain(run, world, obygaze, tmp_path):
    words = ("models", "predict", run.folder, world.store, "--next", 80)
    obygaze(*words, "-o", tmp_path / "next.csv", code=0)
    rows = csv_rows(tmp_path / "next.csv")
    unseen = [clip for clip in world.ids if clip[:3] in ("tt3", "tt4")]
    assert sorted(row["clip"] for row in rows) == unseen
    assert [int(row["rank"]) for row in rows] == [*range(1, 81)]
    fits = [om.predict(row["folder"], world.store, ids=unseen) for row in run.models()]
    mean = np.mean([fit.probabilities for fit in fits], axis=0)
    expected = dict(zip(unseen, entropy(mean, base=2, axis=1), strict=True))
    assert {row["clip"]: float(row["gain"]) for row in rows} == pytest.approx(expected, abs=1e-5)
    first = max(expected, key=expected.__getitem__)
    assert rows[0]["clip"] == first
    printed = json.loads(obygaze(*words[:-1], 3, "--json", code=0).stdout)
    assert [row["clip"] for row in printed] == [row["clip"] for row in rows[:3]]


def test_a_store_without_new_clips_is_refused(run, world, obygaze, tmp_path):
    seen = Manifest.load(run.record.experiment.manifest)
    write_store(tmp_path / "seen.zarr", seen, {clip: world.rows[clip] for clip in seen.ids})
    words = ("models", "predict", run.folder)
    refused(obygaze(*words, tmp_path / "seen.zarr", "--next", 5), "all clips are annotated")
    refused(obygaze(*words, "--next", 5), "--next needs STORE", code=2)
    result = obygaze(*words, world.store, "--next", 5, "--estimator", "svm")
    refused(result, "no saved model named svm", "--estimator")


def test_certain_and_similar_clips_come_later():
    X = np.eye(4)[[0, 0, 1, 2, 3]]
    gains = np.array([1.0, 0.99, 0.8, 0.8, 0.1])
    chosen = choose_next(gains, X, np.array(["a", "b", "a", "b", "c"]), 5)
    assert chosen[0] == 0
    assert chosen[1] == 3, "as unsure as clip 2, of another film"
    assert chosen[-1] == 1, "a copy of the first teaches nothing"
    assert sorted(chosen) == [*range(5)]
    rows = choose_next(np.ones(60), np.random.default_rng(0).normal(size=(60, 3)),
                      np.repeat(["a", "b", "c"], [50, 5, 5]), 9)  # fmt: skip
    assert np.bincount(np.repeat([0, 1, 2], [50, 5, 5])[rows]).min() >= 2


def simulate(X, y, groups, sizes, draws):
    """Hide labels, and ask for them in steps.

    Return the mean AUROC over five tested films at each size, by chance and by choice, and that
    of all labels.
    """
    curves: dict[str, list[list[float]]] = {"random": [], "next": []}
    full = []
    for draw in range(draws):
        chance = np.random.default_rng(draw)
        test = chance.choice(np.unique(groups), 5, replace=False)
        pool = np.flatnonzero(~np.isin(groups, test))

        def score(rows, test=test):
            model = om.LogisticProbe(class_weight="balanced").fit(X[rows], y[rows])
            shares = model.predict_proba(X)
            films = [groups == film for film in test]
            return shares, np.mean([roc_auc_score(y[own], shares[own, 1]) for own in films])

        full.append(score(pool)[1])
        start = chance.choice(pool, sizes[0], replace=False)
        for strategy, own in curves.items():
            rows, curve = start, []
            for size in sizes:
                if len(rows) < size:
                    rest, more = np.setdiff1d(pool, rows), size - len(rows)
                    gains = entropy(score(rows)[0][rest], base=2, axis=1)
                    chosen = choose_next(gains, X[rest], groups[rest], more)
                    if strategy == "random":
                        chosen = chance.choice(len(rest), more, replace=False)
                    rows = np.concatenate([rows, rest[chosen]])
                curve.append(score(rows)[1])
            own.append(curve)
    return {strategy: np.mean(own, axis=0) for strategy, own in curves.items()}, np.mean(full)


def test_informative_features_halve_the_labels_needed():
    chance = np.random.default_rng(0)
    X = chance.normal(size=(2000, 30))
    y = (X @ chance.normal(size=30) / 4 + 0.3 * chance.normal(size=2000) > 1.2).astype(int)
    sizes = [25, *range(50, 451, 50)]
    curves, full = simulate(X, y, np.repeat(np.arange(20), 100), sizes, draws=3)
    near = {strategy: sizes[int((own >= full - 0.01).argmax())] for strategy, own in curves.items()}
    assert curves["next"].max() >= full - 0.01
    assert curves["random"].max() < full - 0.01 or near["next"] <= near["random"] / 2


@pytest.mark.night
def test_chosen_labels_do_not_beat_random_ones_on_mobygaze():
    """A model is least certain about clips on which annotators differ, as the docs say."""
    data = om.load_dataset(MOBYGAZE / "minutes", MOBYGAZE / "words.zarr",
                           positives=["S"], negatives=["EN"])  # fmt: skip
    sizes = [25, *range(50, 1001, 50)]
    curves, full = simulate(np.nan_to_num(data.X), data.y, data.groups, sizes, draws=12)
    assert curves["next"][-1] > full - 0.015
    assert abs(curves["next"] - curves["random"]).max() < 0.03
