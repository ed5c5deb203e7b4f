"""Experiments on ordered levels and on numbers, from the file to a model's predictions."""

import csv
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from msgspec import structs
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.metrics import cohen_kappa_score, r2_score

import obygaze_models as om
from obygaze_features import Manifest
from obygaze_features.errors import ExperimentError
from obygaze_models.data.dataset import with_numbers
from obygaze_models.data.tasks import Task
from obygaze_models.estimators.outputs import fit_spread, move_spread
from obygaze_models.experiments.fit import PlannedFit
from obygaze_models.scoring.values import weighted_kappa
from tests.kit.files import csv_rows, refused
from tests.kit.floats import close
from tests.kit.intervals import cross_validated_interval
from tests.kit.run import labelled, write_experiment, write_store
from tests.kit.world2 import make_world2

CLIPS, FILMS = 240, 6


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
    return om.Experiment(
        **{
            "name": "Valence", "manifest": folder / "manifest", "store": folder / "toy.zarr",
            "target": "number", "column": "valence", "protocol": "leave-film-out",
            "estimators": ["ridge"], **keys,
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(rated, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "valence"
    return om.run_experiment(numbers(rated[0], estimators=["ridge", "svr"]), folder)


def test_numbers_are_predicted_film_by_film_as_scikit_learn_does(rated, run):
    _, truth, X = rated
    use = np.arange(CLIPS) % 40 != 39
    films = truth["film"].to_numpy()
    expected, r2, spearman, own_mean = {}, [], [], []
    for film in np.unique(films):
        test, train = use & (films == film), use & (films != film)
        values = Ridge().fit(X[train], truth["valence"][train]).predict(X[test])
        expected |= dict(zip(truth.index[test], values, strict=True))
        y = truth["valence"][test]
        r2.append(r2_score(y, values))
        spearman.append(stats.spearmanr(y, values).statistic)
        own_mean.append(r2_score(y, np.full(test.sum(), truth["valence"][train].mean())))
    table = run.predictions()
    ridge = table[table["model"] == "ridge"].set_index("id")
    assert ridge["value"].to_dict() == close(expected)
    assert ridge["label"].to_dict() == truth["valence"][use].to_dict()
    scores = run.record.scores[0]
    assert scores.mean["r2"] == close(np.mean(r2))
    assert scores.interval["spearman"] == close(cross_validated_interval(spearman))
    guesses = run.record.tests["valence"].baselines
    assert guesses["mean of the other films"]["r2"] == close(np.mean(own_mean))
    assert guesses["mean of the film"]["r2"] == close(0)
    assert run.record.main_metric == "spearman"


def test_a_run_of_numbers_is_read_checked_compared_and_written(rated, run, obygaze, tmp_path):
    again = om.load_run(run.folder)
    pd.testing.assert_frame_equal(
        again.predictions(), run.predictions(), check_like=True, check_exact=True
    )
    assert again.check() == []
    compared = om.compare(again)
    assert compared.metric == "spearman"
    obygaze("models", "predict", run.folder, "-o", tmp_path / "p.csv", code=0)
    rows = csv_rows(tmp_path / "p.csv")
    assert len(rows) == 2 * (CLIPS - 6)
    assert float(rows[0]["label"]) == close(rated[1]["valence"][rows[0]["clip"]])
    refused(obygaze("report", run.folder), "supports only classes", "models compare")
    printed = obygaze("models", "run", write_toml(rated[0], tmp_path), "-o", tmp_path / "r", code=0)
    assert "mean of the film" in printed.stdout
    assert "obygaze report" not in printed.stdout


def write_toml(folder, to):
    keys = {"target": "number", "column": "valence", "estimators": ["ridge"]}
    places = {"manifest": folder / "manifest", "store": folder / "toy.zarr"}
    return write_experiment(to / "n.toml", name="n", protocol="leave-film-out", **places, **keys)


def test_a_saved_model_of_numbers_predicts_and_is_evaluated(rated, obygaze, tmp_path):
    folder, truth, X = rated
    obygaze("models", "train", write_toml(folder, tmp_path), "-o", tmp_path / "m", code=0)
    card = (tmp_path / "m/README.md").read_text()
    assert "Predicts valence, a number for each clip" in card
    asked = om.predict(tmp_path / "m", folder / "toy.zarr")
    trained = [truth.index.get_loc(clip) for clip in asked.about.description.seen]
    model = Ridge().fit(X[trained], truth["valence"].iloc[trained])
    assert asked.probabilities[:, 0] == close(model.predict(X), eps=1e-4)
    out = ("-o", tmp_path / "p.csv")
    printed = obygaze("models", "predict", tmp_path / "m", folder / "toy.zarr", *out, code=0)
    low, high = asked.probabilities.min(), asked.probabilities.max()
    assert f"{CLIPS} clips: from {low:.4g} to {high:.4g}" in printed.stdout
    [first, *_] = csv_rows(tmp_path / "p.csv")
    assert float(first["value"]) == pytest.approx(asked.probabilities[0, 0], abs=1e-6)
    scored = om.evaluate(tmp_path / "m", folder / "toy.zarr", folder / "manifest")
    use = truth.index[np.arange(CLIPS) % 40 != 39]
    predicted = dict(zip(asked.ids, asked.probabilities[:, 0], strict=True))
    expected = r2_score(truth["valence"][use], [predicted[clip] for clip in use])
    assert scored.every.scores["r2"] == close(expected)


@pytest.mark.parametrize(("keys", "words"), [
    ({"estimators": ["logistic"]}, ["logistic", "not numbers", "ridge"]),
    ({"column": None, "levels": ["A", "B", "C"]}, ["needs column"]),
    ({"target": "classes"}, ["column", 'target = "number"']),
    ({"target": "numbr"}, ["did you mean number"]),
    ({"balance": "undersample"}, ["works only for classes"]),
    ({"score": "auroc"}, ["auroc", "spearman"]),
    ({"estimators": [{"name": "ridge", "threshold": "validation"}]}, ["threshold"]),
    ({"positives": ["S"], "train_negatives": ["EN"]}, ["positives and column"]),
])  # fmt: skip
def test_options_that_need_classes_are_refused_for_numbers(rated, keys, words):
    with pytest.raises(ExperimentError) as caught:
        numbers(rated[0], **keys)
    assert all(word in str(caught.value) for word in words), caught.value


def test_missing_or_non_numeric_columns_are_named(rated, tmp_path):
    folder, *_ = rated
    with pytest.raises(Exception, match=r"unknown column 'valance'; .*did you mean valence"):
        om.run_experiment(numbers(folder, column="valance"), tmp_path / "a")
    with pytest.raises(ExperimentError, match="film of tt0-000 is not a number"):
        om.run_experiment(numbers(folder, column="film"), tmp_path / "b")


def test_numbers_whose_squares_overflow_are_named(rated, tmp_path):
    folder, *_ = rated
    manifest = Manifest.load(folder / "manifest")
    cells = ["1e200", *manifest.items.extra["valence"][1:]]
    items = replace(manifest.items, extra={"valence": cells})
    with pytest.raises(ExperimentError, match=rf"valence of {items.ids[0]} is not a number up to"):
        with_numbers(replace(manifest, items=items), "valence")


def test_drawn_and_named_folds_work_for_numbers(rated, tmp_path):
    folder, *_ = rated
    drawn = numbers(folder, protocol="split", split="", groups="film")
    run = om.run_experiment(drawn, tmp_path / "drawn")
    assert run.record.tests["valence"].clips == CLIPS - 6
    assert run.record.balance == "none"
    pooled = om.compare(
        om.run_experiment(structs.replace(drawn, estimators=("ridge", "svr")), tmp_path / "two"),
        pooled=True,
    )
    assert pooled.comparisons[0].class_counts == (CLIPS - 6,)


@pytest.fixture(scope="module")
def ordered(tmp_path_factory):
    """The second world's ordered levels by two annotators."""
    world = make_world2(tmp_path_factory.mktemp("ordered"))
    experiment = om.Experiment(
        name="order", manifest=world.manifest, store=world.store, target="ordered",
        levels=["A+", "not sure", "very-high", "A"], protocol="leave-film-out", min_clips=1,
        estimators=["ordered", "logistic", "majority", "ridge"],
    )  # fmt: skip
    return world, om.run_experiment(experiment, world.folder / "run")


def test_levels_are_placed_in_the_order_of_their_scheme(ordered):
    _, run = ordered
    [test] = run.record.tests
    assert test == "very-high < A < not sure < A+"
    table = run.predictions()
    codes = table["label"].map(dict(enumerate(["very-high", "A", "not sure", "A+"])))
    clips = run.clips().set_index("id")["level"]
    assert (codes.to_numpy() == clips[table["id"]].to_numpy()).all()
    own = table[(table["model"] == "ordered")]
    group = run.clips().set_index("id")["group"]
    by_film = []
    for _, film in own.groupby(own["id"].map(group)):
        x, y = film["label"], film["position"]
        spread = x.var(ddof=0) + y.var(ddof=0) + (x.mean() - y.mean()) ** 2
        by_film.append(2 * np.cov(x, y, bias=True)[0, 1] / spread)
    [scores] = [scores for scores in run.record.scores if scores.model == "ordered"]
    assert scores.mean["weighted_kappa"] == close(np.mean(by_film))
    assert run.check() == []
    assert om.load_run(run.folder).record == run.record
    assert om.load_model(run.folder / run.fits()["folder"][0])[1].target_key == "ordered"


def test_models_and_annotators_share_weighted_kappa(ordered):
    world, run = ordered
    [compared] = run.record.annotators.values()
    manifest = Manifest.load(world.manifest)
    codes = list(manifest.scheme.codes)
    votes = [[codes.index(level) for level in manifest.labels(name).levels]
             for name in compared.annotators]  # fmt: skip
    expected = cohen_kappa_score(*votes, weights="quadratic")
    assert compared.agreement == close(expected)
    by_name = {rater.name: rater for rater in compared.raters}
    assert by_name["anna"].kappa == {"bo": close(expected)}
    model = by_name["ridge"]
    mean = np.mean([*model.kappa.values()])
    assert model.difference == close(mean - expected)
    assert model.interval[0] < model.difference < model.interval[1]


def test_ordered_levels_are_printed_and_predicted(ordered, obygaze, tmp_path):
    world, run = ordered
    obygaze("models", "predict", run.folder, "-o", tmp_path / "d.csv", code=0)
    assert {row["prediction"] for row in csv_rows(tmp_path / "d.csv")} <= {
        "very-high", "A", "not sure", "A+"}  # fmt: skip
    folder = run.folder / run.fits()["folder"][0]
    words = ("models", "predict", folder, world.store, "--json")
    rows = json.loads(obygaze(*words, code=0).stdout)
    assert {*rows[0]["probabilities"]} == {"position"}
    refused(obygaze("models", "explain", folder, world.store, "s0-00"), "predicts classes")
    scored = om.evaluate(folder, world.store, world.manifest)
    assert scored.every.scores["weighted_kappa"] is not None


def test_a_regressor_is_refused_for_classes(ordered):
    world, _ = ordered
    with pytest.raises(ExperimentError, match="ridge predicts numbers"):
        om.Experiment(name="x", manifest=world.manifest, store=world.store, positives=["A"],
                      train_negatives=["A+"], estimators=["ridge"])  # fmt: skip
    with pytest.raises(ExperimentError, match='"ordered" needs levels'):
        om.Experiment(name="x", manifest=world.manifest, store=world.store, target="ordered",
                      positives=["A"], train_negatives=["A+"])  # fmt: skip
    assert Task("a", "a", (), target_key="ordered").target.is_numeric


def drawn_levels(folder, strength, seed, films=8, clips=320, levels=4):
    """Return clips whose level rises with one direction of the features, by `strength`."""
    chance = np.random.default_rng(seed)
    X = chance.normal(size=(clips, 8)).astype(np.float32)
    latent = strength * X[:, 0] + chance.logistic(size=clips)
    codes = np.searchsorted(np.quantile(latent, np.arange(1, levels) / levels), latent)
    names = np.array(["EN", "HN", "NS", "S"])
    ids = [f"tt{row % films}-{row:03}" for row in range(clips)]
    manifest = labelled(ids, names[codes].tolist())
    manifest.save(folder / "manifest")
    write_store(folder / "toy.zarr", manifest, dict(zip(ids, X, strict=True)))
    return om.Experiment(
        name="drawn", manifest=folder / "manifest", store=folder / "toy.zarr", target="ordered",
        levels=names.tolist(), protocol="leave-film-out", min_clips=1, estimators=["ordered"],
    )  # fmt: skip


def test_the_ordered_probe_beats_two_classes_on_ordered_levels(tmp_path):
    """The two-class probe learns only the lowest and highest level."""
    experiment = drawn_levels(tmp_path, 1.0, 5)
    run = om.run_experiment(experiment, tmp_path / "ordered")
    [scores] = run.record.scores
    two = structs.replace(
        experiment, target="classes", levels=(), positives=("S",), train_negatives=("EN",),
        test_negatives=(("EN", "HN", "NS"),), estimators=("logistic",),
    )  # fmt: skip
    table = om.run_experiment(two, tmp_path / "two").predictions()
    clips = run.clips().set_index("id")
    labels = clips.loc[table["id"], "level"].map({"EN": 0, "HN": 1, "NS": 2, "S": 3}).to_numpy()
    groups = clips.loc[table["id"], "group"].to_numpy()
    for positions in (3 * table["probability"], 3 * (table["probability"] > 0.5)):
        from obygaze_models.scoring.values import weighted_kappa

        own = [
            weighted_kappa(labels[groups == g], positions[groups == g].to_numpy(),
                           np.ones((1, (groups == g).sum())))[0]
            for g in np.unique(groups)
        ]  # fmt: skip
        assert scores.mean["weighted_kappa"] > np.mean(own) + 0.02
    assert scores.interval["weighted_kappa"][0] > 0


def test_moved_predictions_have_the_spread_of_the_labels():
    chance = np.random.default_rng(0)
    labels = chance.integers(0, 4, 100)
    table = (1.4 + 0.1 * labels + 0.1 * chance.normal(size=100)).reshape(-1, 1)
    moved = move_spread(table, fit_spread(table, labels))[:, 0]
    assert (moved.mean(), moved.std()) == close((labels.mean(), labels.std()))
    weights = np.ones((1, 100))
    assert weighted_kappa(labels, moved, weights) == close(np.corrcoef(labels, table[:, 0])[0, 1])
    constant = np.full((5, 1), 1.5)
    assert (move_spread(constant, fit_spread(constant, labels)) == constant).all()


@pytest.mark.parametrize("kind", ["number", "ordered"])
def test_an_interrupted_run_resumes_to_the_same_predictions(
    kind, rated, ordered, tmp_path, monkeypatch
):
    experiment = numbers(rated[0], estimators=["ridge"])
    if kind == "ordered":
        experiment = structs.replace(ordered[1].record.experiment, estimators=("ordered",))
    uninterrupted = om.run_experiment(experiment, tmp_path / "whole")
    real, fits = PlannedFit.compute, []

    def compute(planned, *arguments):
        if len(fits) == 2:
            raise KeyboardInterrupt
        fits.append(planned)
        return real(planned, *arguments)

    monkeypatch.setattr(PlannedFit, "compute", compute)
    with pytest.raises(KeyboardInterrupt):
        om.run_experiment(experiment, tmp_path / "run")
    fits.clear()
    monkeypatch.setattr(PlannedFit, "compute", lambda *values: fits.append(values) or real(*values))
    messages = []
    again = om.run_experiment(experiment, tmp_path / "run", log=messages.append)
    assert len(fits) == len(uninterrupted.fits()) - 2, messages
    for name in ("predictions.csv", "fits.csv"):
        assert (again.folder / name).read_bytes() == (uninterrupted.folder / name).read_bytes()


def test_predictions_of_numbers_from_outside_are_scored(rated, run, tmp_path):
    table = run.predictions()
    own = table[table["model"] == "ridge"]
    own[["id", "value"]].to_csv(tmp_path / "mine.csv", index=False)
    experiment = numbers(rated[0], estimators=["ridge"], predictions=[tmp_path / "mine.csv"])
    scores = om.run_experiment(experiment, tmp_path / "run").record.scores
    assert scores[0].mean == scores[1].mean
    (tmp_path / "mine.csv").write_text("id,value\ntt0-000,nan\n")
    with pytest.raises(ExperimentError, match=r"line 2: value must be a finite number .got nan"):
        om.run_experiment(experiment, tmp_path / "other")


def test_regressors_are_not_fused(rated):
    stores = [rated[0] / "toy.zarr", rated[0] / "other.zarr"]
    with pytest.raises(ExperimentError, match="needs one store"):
        numbers(rated[0], store=stores)
    keys = {"target": "ordered", "column": None, "levels": ["A", "B", "C"]}
    with pytest.raises(ExperimentError, match="ridge predicts numbers"):
        numbers(rated[0], store=stores, **keys)
