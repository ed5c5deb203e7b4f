"""Several stores as one model: informative and missing stores, and saved models."""

import hashlib
import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest
from msgspec import structs
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Concept, Manifest
from obygaze_features.store import ArraySpec
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.explain.parts import concept_quality
from obygaze_models.explain.tcav import random_label_cavs
from tests.conftest import run_obygaze
from tests.kit import run as kit
from tests.kit.files import csv_rows, refused
from tests.kit.floats import close
from tests.kit.predicted import clips_of, fits_of

FILMS, CLIPS = 9, 24
ALONE = ("see", "hear", "read")
LATE = {"name": "logistic", "as": "late", "fusion": "late", "threshold": "validation"}
SILENT = np.isin(np.arange(FILMS * CLIPS) % 8, 5)
"""The clips that the store of sound lacks."""


def write_senses(folder, strength=1.2):
    """Write 216 clips of 9 films in which only sound reveals the class.

    Pictures tell the film and texts tell nothing, and both have a far larger scale.
    """
    chance = np.random.default_rng(4)
    ids = [f"film{film}-{clip:03}" for film in range(FILMS) for clip in range(CLIPS)]
    truth, film = chance.integers(0, 2, len(ids)), np.arange(len(ids)) // CLIPS
    concepts_of = [("Look", "Voice")[not i % 2 :] if code else () for i, code in enumerate(truth)]
    vocabulary = (Concept("Look"), Concept("Voice", visual=False))
    levels = np.array(["EN", "S"])[truth]
    folds = (film % 3).tolist()
    labels = {"folds": folds, "scheme": vocabulary}
    manifest = kit.labelled(ids, levels.tolist(), concepts_of, **labels, seconds=1)
    manifest.save(folder / "manifest")
    hear = chance.normal(size=(len(ids), 6))
    hear[:, 0] += strength * (2 * truth - 1)
    see = 50 * chance.normal(size=(len(ids), 12)) + 100 * chance.normal(size=(FILMS, 12))[film]
    read = 30 * chance.normal(size=(len(ids), 8))
    for name, values in zip(ALONE, (see, hear, read), strict=True):
        made_by = {"weights_sha256": hashlib.sha256(name.encode()).hexdigest()}
        array = ArraySpec("native", (values.shape[1],), "float32", "one vector a clip")
        recipe = replace(kit.RECIPE, backbone=kit.RECIPE.backbone | made_by, arrays=(array,))
        rows = np.flatnonzero(~SILENT) if name == "hear" else range(len(ids))
        subset, table = manifest.select(ids=[ids[row] for row in rows]), values[rows]
        arrays = {"native": table.astype(np.float32)}
        kit.write_rows(folder / f"{name}.zarr", subset, arrays, recipe, block_rows=512)
    return folder, [folder / f"{name}.zarr" for name in ALONE], ids, truth, hear


def experiment(folder, **keys):
    values = {
        "name": "Senses", "manifest": "manifest", "stores": [f"{name}.zarr" for name in ALONE],
        "positives": ["S"], "train_negatives": ["EN"], "split": "ten", "protocol": "split",
        "estimators": ["logistic", LATE],
    }  # fmt: skip
    return kit.write_experiment(folder / "experiment.toml", **values | keys)


@pytest.fixture(scope="module")
def senses(tmp_path_factory):
    return write_senses(tmp_path_factory.mktemp("senses"))


@pytest.fixture(scope="module")
def alone(senses, tmp_path_factory):
    """A run that reports what each store adds, and its output."""
    output = tmp_path_factory.mktemp("runs") / "each"
    file = experiment(senses[0], missing="mean", each_store=True)
    printed = run_obygaze("models", "run", file, "-o", output, code=0)
    assert "27 clips lack hear" in " ".join(printed.stderr.split())
    return om.load_run(output), printed.stdout


def auroc(run):
    return {row["model"]: row for row in run.scores() if row["metric"] == "auroc"}


def test_fusion_finds_the_informative_store(senses, alone, tmp_path):
    """A clip missing from a store gets the mean of the store, which is uninformative."""
    run, (*_, ids, truth, hear) = alone[0], senses
    scores = auroc(run)
    best = roc_auc_score(truth, np.where(SILENT, 0, hear[:, 0]))  # along the true direction
    for model in ("logistic", "late"):
        assert scores[model]["mean"] > best - 0.06
        assert scores[f"{model} on hear alone"]["mean"] > best - 0.04
        for nothing in ("on see alone", "without hear"):
            row = scores[f"{model} {nothing}"]
            assert row["low"] - 0.03 < 0.5 < row["high"] + 0.03
        fits = [fit for fit in fits_of(run) if fit.model == f"{model} on hear alone"]
        share = dict(pair for fit in fits for pair in zip(fit.ids, fit.probabilities, strict=True))
        assert len({share[ids[row]] for row in np.flatnonzero(SILENT)}) == 3  # one a fold
    none = om.run_experiment(experiment(write_senses(tmp_path, 0)[0]), tmp_path / "run")
    assert all(r["low"] - 0.03 < 0.5 < r["high"] + 0.03 for r in auroc(none).values())
    compared = om.compare(run, stores=True).comparisons
    pairs = {pair.reference.model: pair for pair in compared}
    assert [pair.model.model for pair in pairs.values()] == ["logistic"] * 6 + ["late"] * 6
    adds = pairs["logistic without hear"].scores["auroc"].difference
    assert 0.2 < adds.interval[0] < adds.value


def test_a_variant_is_recognised_by_its_record_not_its_name(alone, senses, tmp_path):
    models = alone[0].record.models
    about = models["late without see"]
    assert (about.estimator, about.variant_of) == ("logistic", "late")
    assert (about.stores, models["late"].stores) == (["hear", "read"], [*ALONE])
    own = {"name": "logistic", "as": "logistic on hear alone", "stores": ["hear"]}
    file = experiment(senses[0], estimators=["logistic", own])
    run = om.run_experiment(file, tmp_path / "run")
    with pytest.raises(ExperimentError, match="no model to compare"):
        om.compare(run, stores=True)


def test_late_fusion_gives_each_stores_part(senses, alone, tmp_path):
    """The parts add up to the log-odds, also with a threshold. Stores are not concepts."""
    (folder, stores, ids, *_), (run, printed) = senses, alone
    reasons = run.reasons()
    fits = [fit for fit in fits_of(run) if fit.model == "late"]
    for fit in fits:
        own = reasons[(reasons["model"] == "late") & (reasons["fit"] == fit.fit)]
        parts = own.pivot(index="id", columns="concept", values="part").loc[fit.ids]
        assert ({*own["kind"]}, {*parts}) == ({"stores"}, {*ALONE, "(intercept)"})
        total = parts.sum(axis=1).to_numpy()
        np.testing.assert_allclose(total, logit(fit.probabilities), atol=1e-3)
        heard, others = parts["hear"], parts[[name for name in ALONE if name != "hear"]]
        assert heard.std() > 2 * others.to_numpy().std()
        np.testing.assert_array_equal(heard == 0, SILENT[np.isin(ids, fit.ids)])
    assert [w.text for w in run.warnings if w.code == "missing"]
    assert concept_quality(reasons, clips_of(run)) == []
    run_obygaze("models", "predict", run.folder, "-o", tmp_path / "all.csv", code=0)
    table = csv_rows(tmp_path / "all.csv")
    assert any("hear" in row["parts in the log-odds of S"] for row in table)
    command = ("models", "explain", run.folder / "models/late/EN-vs-S-0", *stores)
    for clip in (fits[0].ids[0], fits[0].ids[5]):  # the other has no sound
        [explained] = json.loads(run_obygaze(*command, clip, "--json", code=0).stdout)
        share = explained["explanation"]["probabilities"]["S"]
        explanation = explained["explanation"]["why"]
        assert {part["concept"] for part in explanation["contributions"]} == {*ALONE}
        assert explanation["logit"] == pytest.approx(logit(share), abs=1e-3)
    copied = shutil.copytree(run.folder, tmp_path / "again")
    page = om.report([run, copied], tmp_path / "page.html").read_text()
    assert "What each store adds" in printed
    assert page.count("What each store adds to ") == 4  # two models of each run
    assert '"kind":"stores"' in page.replace('": ', '":')
    used = om.train_model(experiment(folder), tmp_path / "use")
    heard = [clip for clip, silent in zip(ids, SILENT, strict=True) if not silent]
    assert om.predict(used.path, stores).ids == heard
    refused(run_obygaze("models", "explain", used.path, *stores, ids[5]), f"no clip {ids[5]}")


def test_scales_come_from_training_clips_alone(senses, alone, tmp_path):
    """Compare with scikit-learn on columns scaled by hand, also after saving."""
    folder, stores, ids, truth, hear = senses
    model, fit = alone[0].folder / "models/logistic/EN-vs-S-0", fits_of(alone[0])[0]
    keys = {"positives": ["S"], "negatives": ["EN"], "missing": "mean"}
    data = om.load_dataset(folder / "manifest", stores, **keys)
    assert dict(data.stores) == {"see": 12, "hear": 6, "read": 8}
    np.testing.assert_array_equal(np.isnan(data.X).any(axis=1), SILENT)
    assert data.X[~SILENT, 12:18] == close(hear[~SILENT], eps=1e-5)
    seen = np.isin(ids, om.load_model(model)[1]["seen"])
    parts = [part - np.nanmean(part[seen], axis=0) for part in np.split(data.X, [12, 18], axis=1)]
    spreads = [np.sqrt(np.nanvar(part[seen], axis=0).sum()) for part in parts]
    scaled = np.nan_to_num(np.hstack([p / s for p, s in zip(parts, spreads, strict=True)]))
    oracle = LogisticRegression(solver="liblinear").fit(scaled[seen], truth[seen])
    predicted, out = om.predict(model, stores), tmp_path / "all.csv"
    answer = run_obygaze("models", "predict", model, *stores, "-o", out, code=0)
    assert f"{SILENT.sum()} clips lack hear: the mean of the training clips" in answer.stderr
    assert out.read_text(encoding="utf-8") == predicted.to_csv()
    shares = predicted.probabilities
    np.testing.assert_allclose(shares, oracle.predict_proba(scaled), atol=1e-3)
    fused = om.StoreFusion(LogisticProbe(), data.stores).fit(data.X[seen], truth[seen])
    np.testing.assert_allclose(fused.predict_proba(data.X), shares, atol=1e-6)
    np.testing.assert_allclose(fit.probabilities, shares[np.isin(ids, fit.ids), 1], atol=1e-6)
    answer = run_obygaze("models", "evaluate", model, *stores, folder / "manifest", "--json")
    assert json.loads(answer.stdout) == asdict(om.evaluate(model, stores, folder / "manifest"))
    with pytest.raises(ExperimentError, match=r"needs 3 stores: tiny, tiny, tiny .got"):
        om.predict(model, stores[0])


def test_stacking_learns_from_clips_held_out_by_film():
    """Nearest neighbours memorise each training clip and its film, which is worthless."""
    chance, films = np.random.default_rng(0), np.repeat(np.arange(20), 12)
    y = (chance.random(240) < chance.choice([0.2, 0.8], 20)[films]).astype(int)
    film, clip = 50 * chance.normal(size=(20, 4))[films], chance.normal(size=(240, 4))
    tells = np.c_[y, np.zeros(240)] + 0.4 * chance.normal(size=(240, 2))
    X, stores = np.hstack([film + clip, tells]), {"film": 4, "tells": 2}
    late = om.StoreFusion(KNeighborsClassifier(5), stores, how="late", random_state=0)
    weights = late.fit(X, y, groups=films.astype(str)).facts_["weights"]
    assert weights["film"] < weights["tells"] / 5
    with pytest.warns(UserWarning, match="without groups"):  # the others reveal the film of a clip
        assert late.fit(X, y).facts_["weights"]["film"] > weights["film"]


@pytest.mark.parametrize("classes", [2, 3])
def test_a_class_of_one_film_is_learned_by_late_fusion_too(classes):
    """One store has clips of a single film. The run warns that films are divided."""
    chance, films = np.random.default_rng(2), np.arange(120) // 20
    y = np.where(films == 0, chance.integers(0, classes, 120), 0)
    X = chance.normal(size=(120, 6)) + 3 * y[:, None]
    X[films > 0, 3:] = np.nan
    model = om.StoreFusion(LogisticProbe(), {"see": 3, "hear": 3}, how="late")
    assert (model.fit(X, y, groups=films).predict(X) == y).mean() > 0.9
    assert model.predict_proba(X).sum(axis=1) == close(1)
    assert "clips of films that were also in training" in model.warnings_[0].text


def test_searching_clips_without_films_is_warned_of():
    X, y = np.random.default_rng(0).normal(size=(60, 6)), np.arange(60) % 2
    search = GridSearchCV(LogisticProbe(), {"C": [0.1, 1.0]})
    for kind in ("early", "late"):
        model = om.StoreFusion(search, {"see": 3, "hear": 3}, how=kind, random_state=0)
        for film, count in (("", 0), ("one", 1)):
            films = np.where(np.arange(60) < 20, film, "")
            notes = {note.text for note in model.fit(X, y, groups=films).warnings_}
            assert any(("has a film", "from one film")[count] in text for text in notes)
        named = model.fit(X, y, groups=(np.arange(60) // 6).astype(str))
        assert (named.warnings_, search.cv) == ([], None)


def test_every_model_of_features_is_fused_late(marked, tmp_path):
    rows = dict(zip(marked.ids, np.random.default_rng(1).normal(size=(200, 8)), strict=True))
    stores = [marked.store, tmp_path / "noise.zarr"]
    kit.write_store(stores[1], Manifest.load(marked.manifest), rows)
    names = [{"name": "mlp", "max_iter": 3}, "svm", "logistic", "knn", "random-directions",
             {"name": "pcbm-tree", "bank__C": 0.1}, "sklearn.naive_bayes:GaussianNB",
             "majority", "film-prior"]  # fmt: skip
    own = om.Experiment(
        "Zoo", marked.manifest, stores, split="three", protocol="official", positives=["S"],
        train_negatives=["HN"], estimators=names, fusion="late",
    )  # fmt: skip
    run = om.run_experiment(own, tmp_path / "run")
    assert run.record.skipped == []
    for number, (line, fit) in enumerate(zip(run.models(), fits_of(run), strict=True)):
        model, about = om.load_model(line["folder"])
        assert isinstance(model, om.StoreFusion) == (number < 7)
        if about["reads"] == "features":
            shares = om.predict(line["folder"], stores, ids=fit.ids).probabilities
            np.testing.assert_allclose(shares[:, 1], fit.probabilities, atol=1e-6)
    with pytest.raises(ExperimentError, match="models that read frames need one store"):
        om.run_experiment(structs.replace(own, estimators=("frame-mil",)), tmp_path / "frames")


def test_a_concept_is_learned_from_its_own_store(senses, tmp_path):
    """Compare with scikit-learn's SVM on that store's columns, and explain the model."""
    folder, stores, ids, truth, _ = senses
    keys = {"concept_stores": {"voice": "hear"}, "stores": ["see.zarr", "hear.zarr"]}
    file = experiment(folder, estimators=[{"name": "pcbm-logistic", "bank__C": 0.1}], **keys)
    run = om.run_experiment(file, tmp_path / "run")
    [line, *_], fit, reasons = run.models(), fits_of(run)[0], run.reasons()
    fused = om.load_model(line["folder"])[0]
    data, bank = om.load_dataset(folder / "manifest", stores[:2]), fused.models_[0].bank_
    X, truth = fused.scaled(data.X), truth[np.isin(ids, data.ids)]
    assert bank.names_ == ["Look", "Voice"]
    train = np.isin(data.groups, ["film2", "film5", "film8"])  # fold 0 tests, fold 1 validates
    oracle = SVC(C=0.1, kernel="linear", class_weight="balanced").fit(X[train, 12:], truth[train])
    values = oracle.decision_function(X[:, 12:]) / np.linalg.norm(oracle.coef_)
    np.testing.assert_allclose(bank.transform(X)[:, 1], values, atol=2e-3)
    marks = np.c_[np.arange(len(data)) % 2, truth]
    for cavs in (bank.cavs_, random_label_cavs(bank, X, marks, runs=2, random_state=0)):
        assert cavs[:, :12].any(axis=1).tolist() == [True, False]
    command = ("models", "explain", line["folder"], *stores[:2], "--json")
    [clip] = json.loads(run_obygaze(*command, fit.ids[0], code=0).stdout)
    explanation = clip["explanation"]["why"]
    parts = {part["concept"]: part["amount"] for part in explanation["contributions"]}
    own = reasons[(reasons["fit"] == fit.fit) & (reasons["id"] == fit.ids[0])]
    passed = dict(zip(own["concept"], own["part"], strict=True))
    assert passed.pop("(intercept)") == close(explanation["intercept"], eps=1e-4)
    assert passed == close(parts, eps=1e-4)


def test_invalid_store_options_are_refused(senses, tmp_path):
    for keys, fact in (
        ({"concept_stores": {"Voice": "hear"}}, "no estimator learns concepts from hear"),
        ({"concept_stores": {"Voise": "hear"}}, "Voice"),
        ({"estimators": [{"name": "logistic", "stores": ["herr"]}]}, "hear"),
        ({"estimators": [{"name": "logistic", "fusion": "lat"}]}, "late"),
    ):
        with pytest.raises(ExperimentError, match=fact):
            om.run_experiment(experiment(senses[0], **keys), tmp_path / "run")
