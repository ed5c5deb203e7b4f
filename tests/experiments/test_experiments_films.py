"""What is said about new films, in drawn worlds where the truth is known.

Each film has scenes whose clips share a look and a label, so a model that has seen other clips of a
scene seems to know the label. In new films, only a weak signal is left.
"""

import re
from datetime import date

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

import obygaze_features as of
import obygaze_models as om
from tests.conftest import run_obygaze
from tests.kit.files import refused
from tests.kit.floats import close

FILMS = 20
NEW_FILMS = 60
SCENES = 10
CLIPS = 6
WIDTH = 16
MODELS = {"knn": KNeighborsClassifier(), "logistic": LogisticRegression(max_iter=1000)}
LIMIT = "Each tested film was also trained on: this says nothing about new films."


def draw_films(chance, count, signal):
    """Return features, labels and films: each scene has a look and a label of its own."""
    scenes = count * SCENES
    label_of = np.tile([0, 1], scenes // 2)
    looks = chance.normal(size=(scenes, WIDTH))
    looks[:, 0] += signal * label_of
    scene = np.repeat(np.arange(scenes), CLIPS)
    X = looks[scene] + 0.2 * chance.normal(size=(len(scene), WIDTH))
    films = [f"film{number:02}" for number in scene // SCENES]
    return X.astype(np.float32), label_of[scene], np.array(films)


def write_world(folder, X, y, films):
    """Write a manifest without a split, and a store."""
    ids = [f"{film}-{row}" for row, film in enumerate(films)]
    levels = np.where(y == 1, "tense", "calm")
    table = pd.DataFrame({"id": ids, "film": films, "level": levels})
    table.to_csv(folder / "c.csv", index=False)
    manifest = of.Manifest.from_csv(folder / "c.csv", levels=["calm", "tense"])
    manifest.save(folder / "manifest")
    np.save(folder / "X.npy", X)
    of.import_features(folder / "X.npy", manifest, folder / "x.zarr", ids=ids)
    (folder / "e.toml").write_text(
        'name = "tense"\nmanifest = "manifest"\nstore = "x.zarr"\npositives = ["tense"]\n'
        f'train_negatives = ["calm"]\nbalance = "none"\nestimators = {[*MODELS]}\n'
    )


def score_new_films(model, known, new):
    """Return the mean over new films of the AUROC of a model of the known films."""
    X, y, _ = known
    predicted = model.fit(X, y).predict_proba(new[0])[:, 1]
    areas = []
    for film in np.unique(new[2]):
        own = new[2] == film
        areas.append(roc_auc_score(new[1][own], predicted[own]))
    return np.mean(areas)


def test_folds_that_mix_films_are_named_and_say_so_first(tmp_path):
    write_world(tmp_path, *draw_films(np.random.default_rng(0), FILMS, signal=0))
    toml = tmp_path / "e.toml"
    knn, _ = om.run_experiment(toml, tmp_path / "new films").model_scores
    low, high = knn.estimate("auroc").interval
    assert low < 0.5 < high
    toml.write_text(toml.read_text() + 'split = "clips"\n')
    run = tmp_path / "run"
    printed = run_obygaze("models", "run", toml, "-o", run, code=0).stdout
    assert printed.startswith(LIMIT)
    assert "interval 0" not in printed
    assert om.load_run(run).scores()[["low", "high"]].isna().all(axis=None)
    assert run_obygaze("models", "compare", run, code=0).stdout.startswith(LIMIT)
    run_obygaze("report", run, "-o", tmp_path / "page.html", code=0)
    page = (tmp_path / "page.html").read_text()
    assert LIMIT in page[: page.index("<h1>")]
    assert "Too few new films to say" in page[page.index("<h1>") : page.index("</h1>")]


@pytest.mark.parametrize(("count", "folds"), [(2, 0), (20, 20), (21, 10)])
def test_drawn_folds_have_whole_films(count, folds, tmp_path):
    write_world(tmp_path, *draw_films(np.random.default_rng(1), count, signal=1))
    result = run_obygaze("models", "run", tmp_path / "e.toml", "-o", tmp_path / "run")
    if not folds:
        refused(result, 'set split = "clips"')
        return
    clips = om.load_run(tmp_path / "run").clips
    assert clips.groupby("film")["fold"].nunique().eq(1).all()
    assert clips["fold"].nunique() == folds


def test_every_clip_of_films_of_a_single_class_is_predicted(tmp_path):
    """Only the first six of 60 films have two clips of each class."""
    chance = np.random.default_rng(3)
    y = np.repeat([0, 1, 1], 80)
    y[:24] = np.tile([0, 0, 1, 1], 6)
    X = chance.normal(size=(240, WIDTH)).astype(np.float32)
    X[:, 0] += 2 * y
    films = [f"film{number:02}" for number in range(60)]
    write_world(tmp_path, X, y, np.repeat(films, 4))
    words = ("models", "run", tmp_path / "e.toml", "-o", tmp_path / "run")
    printed = " ".join(run_obygaze(*words, code=0).stdout.split())
    run = om.load_run(tmp_path / "run")
    own = run.predictions[run.predictions["model"] == "knn"]
    assert sorted(own["id"]) == sorted(run.clips["id"])
    assert not run.header.skipped
    [scores] = [scores for scores in run.model_scores if scores.model == "knn"]
    assert (scores.lead, scores.within["auroc"].groups) == ("across", 6)
    pairs = []
    areas = []
    for _, fit in own.groupby("fit"):
        labels = fit["label"]
        pairs.append(labels.sum() * (1 - labels).sum())
        areas.append(roc_auc_score(labels, fit["probability"]))
    area = scores.estimate("auroc")
    assert area.value == close(np.average(areas, weights=pairs))
    assert (area.clips, area.groups) == (240, 60)
    low = area.interval[0]
    assert f"(AUROC {area.value:.2f}; 95% interval {low:.2f}" in printed
    assert f"240 clips of 60 films, which weigh like {area.effective:.0f}" in printed


@pytest.mark.parametrize(("width", "offset"), [(2, 0), (WIDTH, 0), (WIDTH, 20)])
def test_a_film_twice_under_two_names_is_named(width, offset, tmp_path):
    """Of two features, many clips are alike by chance; with an offset, all are."""
    X, y, films = draw_films(np.random.default_rng(0), FILMS, signal=1)
    X = X[:, :width] + np.float32(offset)
    if not offset:
        X[-60:] = X[:60] + 0.001
        y[-60:] = y[:60]
    write_world(tmp_path, X, y, films)
    printed = run_obygaze("models", "run", tmp_path / "e.toml", "--dry-run", code=0)
    named = re.search(r"60 clips of film(00|19) look like clips of film(19|00)", printed.stderr)
    is_twice = (width, offset) == (WIDTH, 0)
    assert ("look like" in printed.stderr, named is not None) == (is_twice, is_twice)


@pytest.mark.night
@pytest.mark.parametrize("signal", [0.0, 0.7])
def test_the_interval_holds_the_truth_of_new_films(signal, tmp_path):
    seed = date.today().toordinal()
    draws = 40
    held = dict.fromkeys(MODELS, 0)
    for draw in range(draws):
        chance = np.random.default_rng([seed, draw])
        known = draw_films(chance, FILMS, signal)
        new = draw_films(chance, NEW_FILMS, signal)
        folder = tmp_path / str(draw)
        folder.mkdir()
        write_world(folder, *known)
        run = om.run_experiment(folder / "e.toml", folder / "run")
        for scores in run.model_scores:
            low, high = scores.estimate("auroc").interval
            truth = score_new_films(MODELS[scores.model], known, new)
            held[scores.model] += low <= truth <= high
    # With 95% coverage, fewer would be seen once in 10,000 nights.
    assert min(held.values()) >= binom.ppf(1e-4, draws, 0.95), (seed, held)
