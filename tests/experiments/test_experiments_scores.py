"""Scores, intervals and guesses against scikit-learn, trec_eval and loops; model comparisons."""

from dataclasses import replace

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as theirs

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest

# Scores of weighted clips and of guesses, and trec_eval's, are compared with other libraries.
from obygaze_models.scoring.metrics import baselines, score, weighted_scores
from obygaze_models.studies.mediaeval.runs import trec_average_precision
from tests.conftest import run_obygaze
from tests.kit.floats import close
from tests.kit.intervals import (
    cross_validated_interval,
    cross_validated_p,
    holm_by_closed_tests,
)
from tests.kit.run import write_store

BINARY = {
    "f1": lambda y, p: theirs.f1_score(y, p > 0.5, zero_division=np.nan),
    "f1_weighted": lambda y, p: theirs.f1_score(y, p > 0.5, average="weighted", zero_division=0),
    "precision": lambda y, p: theirs.precision_score(y, p > 0.5, zero_division=np.nan),
    "recall": lambda y, p: theirs.recall_score(y, p > 0.5, zero_division=np.nan),
    "auroc": lambda y, p: theirs.roc_auc_score(y, p) if len({*y}) > 1 else np.nan,
    "average_precision": lambda y, p: theirs.average_precision_score(y, p) if any(y) else np.nan,
    "balanced_accuracy": lambda y, p: (
        theirs.balanced_accuracy_score(y, p > 0.5) if len({*y}) > 1 else np.nan
    ),
    "brier": theirs.brier_score_loss,
    "log_loss": lambda y, p: theirs.log_loss(y, p, labels=[0, 1]),
}
CLASSES = {
    "f1_macro": lambda y, p: theirs.f1_score(y, p.argmax(1), average="macro", zero_division=0),
    "f1_weighted": lambda y, p: theirs.f1_score(
        y, p.argmax(1), average="weighted", zero_division=0
    ),
    "accuracy": lambda y, p: theirs.accuracy_score(y, p.argmax(1)),
    "balanced_accuracy": lambda y, p: theirs.balanced_accuracy_score(y, p.argmax(1)),
    "auroc": lambda y, p: theirs.roc_auc_score(y, p, multi_class="ovr"),
    "brier": theirs.brier_score_loss,
    "log_loss": theirs.log_loss,
}
PROBABILITY = st.sampled_from([0.0, 0.13, 0.18, 0.2, 0.4, 0.5, 0.7, 0.97, 1.0])
PAIRS = st.lists(st.tuples(st.integers(0, 1), PROBABILITY), min_size=1)


def numbers(scores):
    return {name: np.nan if value is None else value for name, value in scores.items()}


@given(PAIRS, st.integers(0, 2**32))
def test_scores_of_two_classes_equal_scikit_learn(pairs, seed):
    labels, probabilities = map(np.array, zip(*pairs, strict=True))
    expected = {name: call(labels, probabilities) for name, call in BINARY.items()}
    assert numbers(score(labels, probabilities)) == close(expected)
    check_weights(labels, probabilities, seed)


@given(st.integers(0, 2**32))
def test_scores_of_several_classes_equal_scikit_learn(seed):
    chance = np.random.default_rng(seed)
    labels = np.concatenate([[0, 1, 2], chance.integers(0, 3, 12)])
    probabilities = chance.dirichlet(np.ones(3), 15)
    scores = numbers(score(labels, probabilities))
    expected = {name: call(labels, probabilities) for name, call in CLASSES.items()}
    assert {name: scores[name] for name in CLASSES} == close(expected)
    check_weights(labels, probabilities, seed)
    few = labels < 2  # the third class can still be predicted
    expected = CLASSES["f1_macro"](labels[few], probabilities[few])
    assert score(labels[few], probabilities[few])["f1_macro"] == close(expected)


def check_weights(labels, probabilities, seed):
    weights = np.random.default_rng(seed).integers(0, 4, (3, len(labels)))
    weights[:, 0] += 1
    values_of = weighted_scores(labels, probabilities, weights.astype(float))
    for row, times in enumerate(weights):
        expected = score(np.repeat(labels, times), np.repeat(probabilities, times, axis=0))
        actual = {name: values[row] for name, values in values_of.items()}
        expected = {name: value for name, value in numbers(expected).items() if name in actual}
        assert actual == close(expected)


def trec_eval(ids, scores, positives, judged=()):
    relevant = dict.fromkeys([*judged], 0) | dict.fromkeys(positives, 1)
    evaluator = pytrec_eval.RelevanceEvaluator({"q": relevant}, {"map"})
    run = dict(zip(ids, map(float, scores), strict=True))
    return evaluator.evaluate({"q": run})["q"]["map"]


@given(st.integers(0, 2**32))
def test_average_precision_equals_trec_eval(seed):
    chance = np.random.default_rng(seed)
    count = int(chance.integers(1, 80))
    kind = ["ACCEDE{:05d}", "v{}", "clip-{}.mp4", "Ä{}", "{}"][seed % 5]
    ids = [kind.format(number) for number in chance.permutation(1000)[:count]]
    levels = chance.integers(1, 12)
    scores = chance.integers(0, levels, count) / levels - 0.5 * (seed % 2)
    scores += chance.choice([0, 1e-9], count)  # ties once they are rounded
    scores *= 10.0 ** int(chance.choice([0, 39]))  # or beyond 32 bits
    positives = [clip for clip in ids if chance.random() < 0.3] or ids[:1]
    positives += [f"never-{number}" for number in range(seed % 4)]
    value = trec_average_precision(ids, scores, positives)
    assert value == pytest.approx(trec_eval(ids, scores, positives, ids), abs=1e-12)
    assert trec_average_precision(ids, scores, []) is None


@pytest.mark.parametrize("positives", [1, 50, 99])
def test_constant_guesses_score_as_by_scikit_learn(positives):
    labels = np.arange(100) < positives
    guesses = baselines(positives / 100)
    for name, says in {"all positive": True, "majority": positives >= 50}.items():
        scores = guesses[name]
        constant = np.full(100, says)
        assert scores["f1"] == close(theirs.f1_score(labels, constant))
        weighted = theirs.f1_score(labels, constant, average="weighted")
        assert scores["f1_weighted"] == close(weighted)
        assert scores["average_precision"] == theirs.average_precision_score(labels, constant)
        assert (scores["auroc"], scores["recall"]) == (0.5, says)
    # As published: a coin for 31 positives of 75.
    coin = baselines(31 / 75)["random"]
    assert round(coin["f1"], 2) == 0.45
    assert round(coin["f1_weighted"], 2) == 0.5
    assert baselines(0.2)["majority"]["precision"] is None


@pytest.fixture(scope="module")
def run(make_run):

    def run(name, **changed):
        base = {"test_negatives": (("HN",), ("EN", "HN")), "estimators": ("logistic", "majority")}
        return make_run(name, **(base | changed))

    return run


@pytest.fixture(scope="module")
def noisy(world, run, tmp_path_factory):
    """A run on the same clips with less informative features."""
    path = tmp_path_factory.mktemp("other") / "noisy.zarr"
    noise = np.random.default_rng(8).normal(size=world.features.shape).astype(np.float32)
    rows = dict(zip(world.ids, world.features * 0.1 + noise, strict=True))
    write_store(path, Manifest.load(world.manifest), rows)
    return run("noisy", store=path, protocol="leave-film-out")


@pytest.fixture(scope="module")
def good(run):
    return run("good-films", protocol="leave-film-out")


def auroc_by_film(run, model, test):
    """Return the AUROC of each film, as scikit-learn's mean over its fits."""
    own = run.predictions.query("model == @model and test == @test")
    areas = {}
    films = own["id"].str[:3]
    for (film, _), fit in own.groupby([films, "fit"]):
        area = theirs.roc_auc_score(fit["label"], fit["probability"])
        areas.setdefault(film, []).append(area)
    return {film: np.mean(values) for film, values in areas.items()}


def test_models_are_compared_with_the_first_one(good, noisy):
    with pytest.raises(ExperimentError, match="unknown metric 'f2'"):
        om.compare(good, metric="f2")
    compared = om.compare(good, str(noisy.folder))
    names = ["good-films: majority", "noisy: logistic", "noisy: majority"]
    table = compared.table.query("metric == 'auroc' and over == 'within'")
    assert table["model"].tolist() == np.repeat(names, 2).tolist()
    assert table["test"].tolist() == ["HN vs S", "EN+HN vs S"] * 3
    assert {*table["reference"]} == {"good-films: logistic"}
    raw = []
    for row in table.itertuples():
        first = auroc_by_film(good, "logistic", row.test)
        run, model = row.model.split(": ")
        second = auroc_by_film(good if run == "good-films" else noisy, model, row.test)
        differences = [second[film] - first[film] for film in first]
        assert row.score_reference == close(np.mean([*first.values()]))
        assert row.score == close(np.mean([*second.values()]))
        assert (row.low, row.high) == close(cross_validated_interval(differences))
        raw.append(cross_validated_p(differences))
    assert table["p_value"].tolist() == close(holm_by_closed_tests(raw))
    across = compared.table.query("over == 'across'")
    assert across["p_value"].isna().all()
    ranked = om.compare(good, noisy, metric="brier").rows
    own = [row for row in ranked if (row["test"], row["over"]) == ("HN vs S", "across")]
    scores = [row["score"] for row in own]
    assert scores == sorted(scores)  # the best first


def test_models_are_compared_on_the_clips_of_each_value(good, noisy):
    compared = om.compare([good, noisy], models=["logistic"], by="film", metric="auroc")
    table = compared.table.query("metric == 'auroc' and test == 'HN vs S' and over == 'within'")
    own = table.set_index("value")
    areas = [auroc_by_film(run, "logistic", "HN vs S") for run in (good, noisy)]
    assert own["score_reference"].to_dict() == close(areas[0])
    assert own["score"].to_dict() == close(areas[1])
    assert {*own["clips"]} == {20}
    folders = good.folder, noisy.folder
    options = ("--by", "film", "--metric", "auroc", "--model", "logistic")
    printed = run_obygaze("models", "compare", *folders, *options, code=0).stdout
    assert str(compared) in printed


def test_notes_say_how_runs_differ(run, world, tmp_path):
    manifest = Manifest.load(world.manifest)
    labels = manifest.labels("all")
    # Clips of the last fold, the only fold tested in the leak-free run.
    sure = world.clips("S", folds=[9])[:2]
    easy = world.clips("EN", folds=[9])[0]
    level_of = labels.level_of | dict.fromkeys(sure, "HN") | {easy: "NS"}
    others = replace(labels, name="others", levels=[*level_of.values()])
    manifest.with_parts(others).save(tmp_path / "manifest")
    tests = (("HN",), ("EN", "HN"), ("EN",))
    changes = {"labels": "others", "protocol": "split", "test_negatives": tests}
    a = run("good")
    b = run("others", manifest=tmp_path / "manifest", estimators=("logistic",), **changes)
    compared = om.compare(a, b, models=["logistic"])
    table = compared.table.query("test == 'EN+HN vs S' and over == 'across'")
    clips = table["clips"].iloc[0]
    asked = "test == 'EN+HN vs S' and model == 'logistic'"
    tested = {*a.predictions.query(asked)["id"]}
    there = {*b.predictions.query(asked)["id"]}
    assert clips == len(tested) - 3
    notes = "\n".join(map(str, compared.warnings))
    left_out = len(there | tested) - clips
    assert f"left out {left_out} clips of EN+HN vs S" in notes
    assert "different labels: others in others, all in good" in notes
    assert "different protocol: split in others, leak-free in good" in notes
    assert "have different test sets or classes (EN vs S)" in notes


def test_runs_without_shared_clips_are_refused(run, world, tmp_path):
    manifest = Manifest.load(world.manifest)
    guess = {"estimators": ("majority",), "test_negatives": ()}
    split = manifest.split("ten")
    turned = replace(split, name="turned", folds=[(fold + 1) % 10 for fold in split.folds])
    manifest.with_parts(turned).save(tmp_path / "turned")
    a = run("guess", **guess)
    elsewhere = run("turned", manifest=tmp_path / "turned", split="turned", **guess)
    with pytest.raises(ExperimentError, match="no clips of HN vs S with equal labels"):
        om.compare(a, elsewhere)
