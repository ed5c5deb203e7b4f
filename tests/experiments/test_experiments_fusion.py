"""Several stores as one model: what each carries, what it lacks, and what is saved."""

import hashlib
import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import onnxruntime
import pytest
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Concept, Manifest
from obygaze_features.store import ArraySpec
from obygaze_models.explain.parts import concept_quality
from obygaze_models.explain.significance import random_label_cavs
from tests.conftest import run_obygaze
from tests.kit import run as kit
from tests.kit.files import csv_rows, refused

FILMS, CLIPS = 9, 24
ALONE = ("see", "hear", "read")
LATE = {"name": "logistic", "as": "late", "fusion": "late"}
LACK = range(5, FILMS * CLIPS, 8)
"""The clips that the store of sound lacks."""


def write_store(path, manifest, features):
    backbone = {"weights_sha256": hashlib.sha256(path.stem.encode()).hexdigest()}
    array = ArraySpec("native", (features.shape[1],), "float32", "one vector a clip")
    recipe = replace(kit.RECIPE, backbone=kit.RECIPE.backbone | backbone, arrays=(array,))
    rows = {"native": features.astype(np.float32)}
    kit.write_rows(path, manifest, rows, recipe, block_rows=512)


def write_senses(folder, *, strength=1.2):
    """216 clips of 9 films: sound tells the class, what is seen tells the film, what is read
    nothing; both are far larger in scale."""
    chance = np.random.default_rng(3)
    ids = [f"film{film}-{clip:03}" for film in range(FILMS) for clip in range(CLIPS)]
    truth, film = chance.integers(0, 2, len(ids)), np.arange(len(ids)) // CLIPS
    shown = [("Look", "Voice")[not i % 2 :] if code else () for i, code in enumerate(truth)]
    known, levels = (Concept("Look"), Concept("Voice", visual=False)), np.array(["EN", "S"])[truth]
    folds = (film % 3).tolist()
    manifest = kit.labelled(ids, levels.tolist(), shown, folds=folds, known=known, seconds=1)
    manifest.save(folder / "manifest")
    hear = chance.normal(size=(len(ids), 6))
    hear[:, 0] += strength * (2 * truth - 1)
    see = 50 * chance.normal(size=(len(ids), 12)) + 100 * chance.normal(size=(FILMS, 12))[film]
    write_store(folder / "see.zarr", manifest, see)
    write_store(folder / "read.zarr", manifest, 30 * chance.normal(size=(len(ids), 8)))
    heard = np.setdiff1d(np.arange(len(ids)), LACK)
    write_store(folder / "hear.zarr", manifest.select(ids=[ids[r] for r in heard]), hear[heard])
    return ids, truth, hear


@pytest.fixture(scope="module")
def senses(tmp_path_factory):
    folder = tmp_path_factory.mktemp("senses")
    return folder, *write_senses(folder)


def experiment(folder, **keys):
    values = {
        "name": "Senses", "manifest": "manifest", "stores": [f"{name}.zarr" for name in ALONE],
        "positives": ["S"], "train_negatives": ["EN"], "split": "ten", "protocol": "split",
        "estimators": ["logistic"],
    }  # fmt: skip
    return kit.write_experiment(folder / "experiment.toml", **values | keys)


def auroc(run):
    """By model the AUROC, and the ends of its interval."""
    rows = [row for row in run.scores() if row["metric"] == "auroc"]
    return {row["model"]: (row["mean"], row["low"], row["high"]) for row in rows}


@pytest.fixture(scope="module")
def each(senses, tmp_path_factory):
    """A run that says what each store adds, and what it prints."""
    output = tmp_path_factory.mktemp("runs") / "each"
    file = experiment(senses[0], estimators=["logistic", LATE], each_store=True)
    printed = run_obygaze("models", "run", file, "-o", output, code=0)
    assert f"{len(LACK)} clips lack hear" in " ".join(printed.stderr.split())
    return om.load_run(output), printed.stdout


def test_fusion_finds_what_one_store_carries(senses, each, tmp_path):
    scores, (_, _, truth, hear) = auroc(each[0]), senses
    best = roc_auc_score(truth, hear[:, 0])  # along the true direction
    for model in ("logistic", "late"):
        assert scores[model][0] > best - 0.06
        assert scores[f"{model} on hear alone"][0] > best - 0.04
        for nothing in ("on see alone", "without hear"):
            _, low, high = scores[f"{model} {nothing}"]
            assert low <= 0.5 <= high
    write_senses(tmp_path, strength=0)
    run = om.run_experiment(experiment(tmp_path, estimators=["logistic", LATE]), tmp_path / "run")
    for model, (_, low, high) in auroc(run).items():
        assert low <= 0.5 <= high, model


def test_what_each_store_adds_is_printed_saved_and_drawn(each, tmp_path):
    run, printed = each
    assert "What each store adds" in printed
    again = run_obygaze("models", "compare", run.folder, "--stores", "--json", code=0)
    pairs = {p["second"]["model"]: p for p in json.loads(again.stdout)["comparisons"]}
    assert [pair["first"]["model"] for pair in pairs.values()] == ["logistic"] * 6 + ["late"] * 6
    adds = pairs["logistic without hear"]["scores"]["auroc"]
    assert 0.2 < adds["interval"][0] < adds["difference"]
    copied = shutil.copytree(run.folder, tmp_path / "again")
    page = om.report([run, copied], tmp_path / "page.html").read_text().replace('": ', '":')
    assert page.count("What each store adds to ") == 4  # two models of each run
    assert "What each store adds to again: late" in page
    assert '"kind":"stores"' in page


def test_late_fusion_gives_the_part_of_each_store(senses, tmp_path):
    """They add up to the log-odds, with a threshold, too; and stores are no concepts."""
    folder, ids, *_ = senses
    stores = [folder / f"{name}.zarr" for name in ALONE]
    late = {"name": "logistic", "fusion": "late", "threshold": "validation"}
    run = om.run_experiment(experiment(folder, estimators=[late]), tmp_path / "run")
    for fit, entry in zip(run.predictions(), run.explanations(), strict=True):
        assert (entry.kind, entry.concepts, entry.ids) == ("stores", ALONE, fit.ids)
        np.testing.assert_allclose(entry.amounts.sum(axis=1) + entry.intercept,
                                   logit(fit.probabilities), atol=1e-3)  # fmt: skip
        assert entry.amounts.std(axis=0).argmax() == ALONE.index("hear")
    assert concept_quality(run.explanations(), run.clips()) == []
    run_obygaze("models", "predict", run.folder, "--csv", tmp_path / "tables", code=0)
    table = min((tmp_path / "tables").glob("*.csv"))
    assert "hear" in csv_rows(table)[0]["parts in the log-odds of S"]
    command = ("models", "explain", run.models()[0]["folder"], *stores)
    said = json.loads(run_obygaze(*command, ids[0], "--json", code=0).stdout)[0]
    why = said["explanation"]["why"]
    assert {part["concept"] for part in why["contributions"]} == {*ALONE}
    share = om.predict(command[2], stores, ids=ids[:1]).probabilities[0, 1]
    assert why["logit"] == pytest.approx(logit(share), abs=1e-3)
    refused(run_obygaze(*command, ids[LACK[0]]), f"no clip {ids[LACK[0]]}")


def test_scale_is_that_of_training_clips_alone(senses, tmp_path):
    """Beside scikit-learn on columns that are scaled by hand; the same once it is saved."""
    folder, ids, truth, hear = senses
    manifest, stores = folder / "manifest", [folder / f"{name}.zarr" for name in ALONE]
    run = om.run_experiment(experiment(folder, missing="mean"), tmp_path / "run")
    keys = {"positives": ["S"], "negatives": ["EN"], "missing": "mean"}
    data = om.load_dataset(manifest, stores, **keys)
    assert dict(data.stores) == {"see": 12, "hear": 6, "read": 8}
    lacks = np.isnan(data.X).any(axis=1)
    assert np.flatnonzero(lacks).tolist() == [*LACK]
    np.testing.assert_allclose(data.X[~lacks, 12:18], hear[~lacks], rtol=1e-5)
    [line, *_] = run.models()
    seen = np.isin(ids, om.load_model(line["folder"])[1]["seen"])
    parts = [part - np.nanmean(part[seen], axis=0) for part in np.split(data.X, [12, 18], axis=1)]
    spreads = [np.sqrt(np.nanvar(part[seen], axis=0).sum()) for part in parts]
    scaled = np.nan_to_num(np.hstack([p / s for p, s in zip(parts, spreads, strict=True)]))
    oracle = LogisticRegression(solver="liblinear").fit(scaled[seen], truth[seen])
    predicted = om.predict(line["folder"], stores)
    np.testing.assert_allclose(predicted.probabilities, oracle.predict_proba(scaled), atol=1e-3)
    fused = om.StoreFusion(om.LogisticProbe(), data.stores).fit(data.X[seen], truth[seen])
    np.testing.assert_allclose(fused.predict_proba(data.X), predicted.probabilities, atol=1e-6)
    [fit] = [fit for fit in run.predictions() if fit.fit == line["fit"]]
    tested = [predicted.ids.index(clip) for clip in fit.ids]
    np.testing.assert_allclose(fit.probabilities, predicted.probabilities[tested, 1], atol=1e-6)
    run_obygaze("models", "export", line["folder"], "-o", tmp_path / "fused.onnx", code=0)
    session = onnxruntime.InferenceSession(tmp_path / "fused.onnx")
    [table] = session.run(None, {"features": data.X.astype(np.float32)})
    np.testing.assert_allclose(table, predicted.probabilities, atol=1e-4)
    answer = run_obygaze("models", "evaluate", line["folder"], *stores, manifest, "--json")
    evaluated = om.evaluate(line["folder"], stores, manifest)
    assert json.loads(answer.stdout) == asdict(evaluated)
    with pytest.raises(ExperimentError, match="reads 3 stores, of tiny, tiny, tiny, in this order"):
        om.predict(line["folder"], stores[0])
    used = om.train_model(experiment(folder), tmp_path / "use")
    assert om.predict(used.path, stores).ids == data.select(~lacks).ids


def test_clips_that_a_store_lacks(senses, tmp_path):
    """What is heard of a clip without sound is the mean of the others: it says nothing."""
    folder, ids, truth, _ = senses
    stores, silent = [folder / f"{name}.zarr" for name in ALONE], np.isin(range(len(ids)), LACK)
    file, lines = experiment(folder, missing="mean", estimators=["logistic", LATE]), []
    run = om.run_experiment(file, tmp_path / "mean", log=lines.append)
    assert any(f"{len(LACK)} clips lack hear" in line for line in lines)
    assert {clip for fit in run.predictions() for clip in fit.ids} == {*ids}
    for line in run.models()[::3]:
        out, tables = tmp_path / f"{line['model']}.csv", tmp_path / line["model"]
        command = ("models", "predict", line["folder"], *stores, "-o", out, "--csv", tables)
        answer = run_obygaze(*command, code=0)
        assert f"{len(LACK)} clips lack hear: the store's mean stands in" in answer.stderr
        shares = np.array([float(row["probability_S"]) for row in csv_rows(out)])
        assert shares[silent].std() < shares[~silent].std() / 2
        assert roc_auc_score(truth[~silent], shares[~silent]) > 0.9
    assert [w.text for w in run.warnings if w.code == "missing"]
    late = [part for part in run.explanations() if part.kind == "stores"]
    heard = {clip: amount for part in late for clip, amount in zip(
        part.ids, part.amounts[:, part.concepts.index("hear")], strict=True)}  # fmt: skip
    assert [clip for clip, amount in heard.items() if amount == 0] == [
        clip for clip in heard if silent[ids.index(clip)]
    ]


def test_stacking_learns_from_clips_that_were_held_out_by_film():
    """Nearest neighbours know each training clip, and its film, by heart: that is worth nothing."""
    chance, films = np.random.default_rng(0), np.repeat(np.arange(20), 12)
    y = (chance.random(240) < chance.choice([0.2, 0.8], 20)[films]).astype(int)
    film, clip = 50 * chance.normal(size=(20, 4))[films], chance.normal(size=(240, 4))
    tells = np.c_[y, np.zeros(240)] + 0.4 * chance.normal(size=(240, 2))
    X, stores = np.hstack([film + clip, tells]), {"film": 4, "tells": 2}
    late = om.StoreFusion(KNeighborsClassifier(5), stores, how="late", random_state=0)
    weights = late.fit(X, y, groups=films.astype(str)).facts_["weights"]
    assert weights["film"] < weights["tells"] / 5
    with pytest.warns(UserWarning, match="without groups"):  # others tell the film of a clip
        leaky = late.fit(X, y).facts_["weights"]
    assert leaky["film"] > weights["film"]


@pytest.mark.parametrize("classes", [2, 3])
def test_a_class_of_one_film_is_learned_by_late_fusion_too(classes):
    """And a store that has clips of one film alone; that films are divided is said."""
    chance = np.random.default_rng(2)
    films = np.arange(120) // 20
    y = np.where(films == 0, chance.integers(0, classes, 120), 0)
    X = chance.normal(size=(120, 6)) + 3 * y[:, None]
    X[films > 0, 3:] = np.nan
    model = om.StoreFusion(om.LogisticProbe(), {"see": 3, "hear": 3}, how="late")
    model.fit(X, y, groups=films)
    assert (model.predict(X) == y).mean() > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert "clips of films that also trained" in model.warnings_[0]


def test_two_stores_that_both_tell_are_better_than_the_better_one():
    chance = np.random.default_rng(6)
    truth, films = chance.integers(0, 2, 600), np.arange(600) // 50
    X = chance.normal(size=(600, 24))
    X[:, [0, 20]] += 1.2 * truth[:, None]
    seen, ranks = films < 8, {}
    for how, use in (("early", None), ("late", None), ("early", ["see"]), ("early", ["hear"])):
        model = om.StoreFusion(om.LogisticProbe(), {"see": 20, "hear": 4}, use=use, how=how)
        model.fit(X[seen], truth[seen], groups=films[seen])
        ranks[how, *use or ()] = roc_auc_score(truth[~seen], model.predict_proba(X[~seen])[:, 1])
    best = max(ranks["early", "see"], ranks["early", "hear"])
    assert min(ranks["early",], ranks["late",]) > best + 0.03, ranks


def test_every_model_of_features_is_fused_late(marked, tmp_path):
    manifest = Manifest.load(marked.manifest)
    rows = dict(zip(marked.ids, np.random.default_rng(1).normal(size=(200, 8)), strict=True))
    kit.write_store(tmp_path / "noise.zarr", manifest, rows)
    stores = [marked.store, tmp_path / "noise.zarr"]
    names = [{"name": "mlp", "max_iter": 3}, "svm", "logistic", "knn", "random-directions",
             {"name": "pcbm-tree", "bank__C": 0.1}, "sklearn.naive_bayes:GaussianNB",
             "film-prior", "majority", "oracle-tree"]  # fmt: skip
    own = om.Experiment(
        "Zoo", marked.manifest, stores, split="three", protocol="official", positives=["S"],
        train_negatives=["HN"], estimators=names, fusion="late",
    )  # fmt: skip
    run = om.run_experiment(own, tmp_path / "run")
    assert run.record.skipped == []
    fits = {fit.model: fit for fit in run.predictions()}
    for line in run.models():
        model, about = om.load_model(line["folder"])
        reads = about["reads"] == "features" and line["model"] != "majority"
        assert isinstance(model, om.StoreFusion) == reads
        if about["reads"] != "features":
            continue
        fit = fits[line["model"]]
        predicted = om.predict(line["folder"], stores, ids=fit.ids)
        np.testing.assert_allclose(predicted.probabilities[:, 1], fit.probabilities, atol=1e-6)
    with pytest.raises(ExperimentError, match="models of frames read one store"):
        om.run_experiment(replace(own, estimators=("attention-probe",)), tmp_path / "frames")


def test_concept_is_learned_from_the_store_of_its_sense(senses, tmp_path):
    """Beside scikit-learn's SVM on the columns of that store alone; and the model is explained."""
    folder, ids, truth, _ = senses
    stores, bank = [folder / f"{name}.zarr" for name in ALONE[:2]], {"bank__C": 0.1}
    keys = {"concept_stores": {"voice": "hear"}, "stores": ["see.zarr", "hear.zarr"]}
    file = experiment(folder, estimators=[{"name": "pcbm-logistic", **bank}], **keys)
    run = om.run_experiment(file, tmp_path / "run")
    [line, *_], fit, entry = run.models(), run.predictions()[0], run.explanations()[0]
    fused, saved = (model := om.load_model(line["folder"])[0]), model.models_[0].bank_
    assert saved.names_ == ["Look", "Voice"]
    assert saved.cavs_[:, :12].any(axis=1).tolist() == [True, False]
    data = om.load_dataset(folder / "manifest", stores)
    heard, truth = fused.scaled(data.X)[:, 12:], truth[np.isin(ids, data.ids)]
    train = np.isin(data.groups, ["film2", "film5", "film8"])  # fold 0 tests, fold 1 validates
    oracle = SVC(C=0.1, kernel="linear", class_weight="balanced").fit(heard[train], truth[train])
    values = oracle.decision_function(heard) / np.linalg.norm(oracle.coef_)
    np.testing.assert_allclose(saved.transform(fused.scaled(data.X))[:, 1], values, atol=2e-3)
    C = np.c_[np.arange(len(data)) % 2, truth]
    shuffled = random_label_cavs(saved, fused.scaled(data.X), C, runs=2, random_state=0)
    assert shuffled[:, :12].any(axis=1).tolist() == [True, False]
    command = ("models", "explain", line["folder"], *stores)
    [clip] = json.loads(run_obygaze(*command, fit.ids[0], "--json", code=0).stdout)
    why = clip["explanation"]["why"]
    parts = {part["concept"]: part["amount"] for part in why["contributions"]}
    assert [parts[name] for name in entry.concepts] == pytest.approx(entry.amounts[0], rel=1e-4)
    options = ("--manifest", folder / "manifest", "--draws", 2, "--json")
    ranks = json.loads(run_obygaze(*command, *options, "--significance", code=0).stdout)
    assert ranks["significance"][1]["auc"] > 0.8
    scores = json.loads(run_obygaze(*command, *options, "--intervene", code=0).stdout)
    right = (fit.probabilities > 0.5) == fit.labels
    assert scores["intervene"]["curves"][0]["accuracy"][0] == pytest.approx(right.mean())


SLIPS = [
    ({"stores": ["see.zarr"], "fusion": "late"}, "fusion is for several"),
    ({"stores": ["see.zarr"], "concept_stores": {"Voice": "see"}}, "concept_stores is for several"),
    ({"fusion": "lat"}, "late"),
    ({"missing": "zero"}, "mean"),
    ({"concept_stores": {"Voice": "herr"}}, "concept_stores: unknown store 'herr'"),
    ({"concept_stores": {"Voice": "hear"}}, "no estimator learns concepts from hear"),
    ({"concept_stores": {"Voise": "hear"}}, "Voice"),
    ({"concept_stores": {"Voice": 3}}, "clap"),
    ({"estimators": [{"name": "logistic", "stores": ["herr"]}]}, "hear"),
    ({"estimators": [{"name": "logistic", "fusion": "lat"}]}, "late"),
]


@pytest.mark.parametrize(("keys", "fact"), SLIPS)
def test_slips_of_several_stores(senses, tmp_path, keys, fact):
    with pytest.raises(ExperimentError) as caught:
        om.run_experiment(experiment(senses[0], **keys), tmp_path / "run")
    assert fact in str(caught.value)
