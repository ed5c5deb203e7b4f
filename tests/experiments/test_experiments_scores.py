"""Scores, intervals and guesses against scikit-learn, trec_eval and loops; model comparisons."""

import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as theirs
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_models.scoring import metrics
from obygaze_models.scoring.metrics import score, weighted_scores
from obygaze_models.studies.mediaeval.runs import format_run, read_run_file, trec_average_precision
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows
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
    kinds = ["ACCEDE{:05d}", "v{}", "clip-{}.mp4", "Ä{}", "{}"]
    ids = [kinds[seed % 5].format(number) for number in chance.permutation(1000)[:count]]
    levels = chance.integers(1, 12)
    scores = chance.integers(0, levels, count) / levels - 0.5 * (seed % 2)
    scores += chance.choice([0, 1e-9], count)  # ties once they are rounded
    scores *= 10.0 ** int(chance.choice([0, 39]))  # or beyond 32 bits
    positives = [clip for clip in ids if chance.random() < 0.3] or ids[:1]
    positives += [f"never-{number}" for number in range(seed % 4)]
    value = trec_average_precision(ids, scores, positives)
    assert value == pytest.approx(trec_eval(ids, scores, positives, ids), abs=1e-12)
    assert trec_average_precision(ids, scores, []) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_run_files_survive_a_round_trip(values):
    ids, scores = [f"v{row}" for row in range(len(values))], np.array(values)
    text = format_run("violence", ids, scores, "mlp-own-data")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run").write_text(text.replace(" ", "\t", 3) + "\n")
        read = read_run_file(Path(folder, "run"))
    assert read["rank"] == [str(row + 1) for row in range(len(ids))]
    read_scores = map(float, read["score"])
    assert dict(zip(read["id"], read_scores, strict=True)) == dict(zip(ids, values, strict=True))
    assert {*read["topic"], *read["tag"]} == {"violence", "mlp-own-data"}


def test_guesses_score_as_published():
    """Shares are of the whole dataset, as in the paper's versions 1 and 2, and of test folds."""
    for share, guess, positive, weighted in (
        (0.236, "random", 0.32, 0.54), (0.191, "all positive", 0.32, 0.06),
        (31 / 75, "random", 0.45, 0.50), (31 / 105, "random", 0.37, 0.52),
    ):  # fmt: skip
        scores = metrics.baselines(share)[guess]
        assert (round(scores["f1"], 2), round(scores["f1_weighted"], 2)) == (positive, weighted)


@pytest.mark.parametrize("positives", [1, 50, 99])
@pytest.mark.parametrize("name", ["all positive", "majority"])
def test_constant_guesses_score_as_by_scikit_learn(name, positives):
    labels = np.arange(100) < positives
    says = name == "all positive" or positives >= 50
    predictions = np.full(100, says)
    scores = metrics.baselines(positives / 100)[name]
    assert scores["f1"] == close(f1_score(labels, predictions))
    assert scores["f1_weighted"] == close(f1_score(labels, predictions, average="weighted"))
    assert scores["auroc"] == roc_auc_score(labels, predictions)
    assert scores["average_precision"] == average_precision_score(labels, predictions)
    assert scores["recall"] == says
    assert metrics.baselines(0.2)["majority"]["precision"] is None


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


def rows_of(run, model, test):
    rows = csv_rows(run.folder / "predictions.csv")
    return [row for row in rows if (row["model"], row["test"]) == (model, test)]


def auroc_by_film(run, model, test):
    """Return the AUROC of each film, as scikit-learn's mean over its fits."""
    by_film = defaultdict(list)
    for row in rows_of(run, model, test):
        pair = row["label"] == "positive", float(row["probability"])
        by_film[row["id"][:3], row["fit"]].append(pair)
    areas = defaultdict(list)
    for (film, _), pairs in by_film.items():
        areas[film].append(roc_auc_score(*zip(*pairs, strict=True)))
    return {film: np.mean(values) for film, values in sorted(areas.items())}


def test_models_are_compared_with_the_first_one(good, noisy):
    compared = om.compare(good, str(noisy.folder))
    names = ["good-films: majority", "noisy: logistic", "noisy: majority"]
    table = compared.table.query("metric == 'auroc' and over == 'within'")
    assert [*zip(table["model"], table["test"], strict=True)] == [
        (name, test) for name in names for test in ("HN vs S", "EN+HN vs S")
    ]
    assert {*table["reference"]} == {"good-films: logistic"}
    assert {row["metric"] for row in compared.rows} == {"auroc"}
    assert compared.warnings == []
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


def test_models_are_compared_on_the_clips_of_each_value(good, noisy):
    table = om.compare(good, noisy, models=["logistic"], by="film").table
    own = table.query("metric == 'auroc' and test == 'HN vs S' and over == 'within'")
    areas = [auroc_by_film(run, "logistic", "HN vs S") for run in (good, noisy)]
    assert dict(zip(own["value"], own["score_reference"], strict=True)) == close(areas[0])
    assert dict(zip(own["value"], own["score"], strict=True)) == close(areas[1])
    assert own["low"].isna().all()
    assert {*own["films"]} == {1}
    assert {*own["clips"]} == {20}
    with pytest.raises(ExperimentError, match="unknown column 'films'; did you mean film"):
        om.compare(good, noisy, by="films")


def test_scores_are_given_for_each_value_of_a_column_of_the_clips(world, make_run, tmp_path):
    manifest = Manifest.load(world.manifest)
    film = dict(zip(world.ids, manifest.items.films, strict=True))
    # Outside has all films; inside has four, and the roof one, so no interval.
    place = [("roof" if film[clip] == "tt2" else "inside") if row % 3 == 0 else "outside"
             for row, clip in enumerate(world.ids)]  # fmt: skip
    extra = {**manifest.items.extra, "place": place, "model": place, "label of ada": place}
    replace(manifest, items=replace(manifest.items, extra=extra)).save(tmp_path / "m")
    run = make_run("places", manifest=tmp_path / "m", protocol="leave-film-out",
                   test_negatives=(("HN",),))  # fmt: skip
    assert run.clips["place"].tolist() == place
    assert "label of ada" not in run.clips
    table = run.scores(by="place").query("over == 'within'").set_index(["value", "metric"])
    assert table[["mean", "low", "high"]].dtypes.eq(float).all()
    areas = defaultdict(list)
    tested = run.predictions.assign(film=run.predictions["id"].map(film))
    tested["place"] = tested["id"].map(dict(zip(world.ids, place, strict=True)))
    for (value, _), own in tested.groupby(["place", "film"]):
        areas[value].append(roc_auc_score(own["label"], own["probability"]))
    for value, films in areas.items():
        row = table.loc[value, "auroc"]
        assert row["mean"] == close(np.mean(films))
        assert (row["clips"], row["films"]) == ((tested["place"] == value).sum(), len(films))
        assert (row[["low", "high"]].isna().all()) == (value != "outside")


def test_models_are_compared_within_and_across_runs(run, good, noisy):
    table = om.compare(good, noisy, models=["majority"]).table
    assert {*table["model"]} == {"noisy: majority"}
    assert {*table["reference"]} == {"good-films: majority"}
    for runs, models, fact in (
        ([good, noisy], ["logistics"], "did you mean logistic"),
        ([good], ["logistic"], "no model to compare with logistic"),
        ([run("alone", estimators=("majority",))], [], "no model to compare with majority"),
    ):
        with pytest.raises(ExperimentError, match=fact):
            om.compare(*runs, models=models)


def test_notes_say_how_runs_differ(run, world, tmp_path):
    manifest = Manifest.load(world.manifest)
    labels = manifest.labels("all")
    level_of = dict(labels.level_of)
    # Clips of the last fold, the only fold tested in the leak-free run.
    sure, easy = world.clips("S", folds=[9])[:2], world.clips("EN", folds=[9])[0]
    level_of |= dict.fromkeys(sure, "HN") | {easy: "NS"}
    others = replace(labels, name="others", levels=[*level_of.values()])
    manifest.with_parts(others).save(tmp_path / "manifest")
    a = run("good")
    b = run(
        "others", manifest=tmp_path / "manifest", labels="others", protocol="split",
        estimators=("logistic",), test_negatives=(("HN",), ("EN", "HN"), ("EN",)),
    )  # fmt: skip
    compared = om.compare(a, b, models=["logistic"])
    table = compared.table.query("test == 'EN+HN vs S' and over == 'across'")
    clips = table["clips"].iloc[0]
    tested, there = (
        {row["id"] for row in rows_of(run, "logistic", "EN+HN vs S")} for run in (a, b)
    )
    assert clips == len(tested) - 3
    left = len(there | tested) - clips
    texts = [warning.text for warning in compared.warnings]
    assert any(text.startswith(f"left out {left} clips of EN+HN vs S") for text in texts)
    assert "different labels: others in others, all in good" in texts
    assert "different protocol: split in others, leak-free in good" in texts
    assert (
        "others: logistic and good: logistic have different test sets, classes or groups (EN vs S)"
        in texts
    )
    by_file = run("by-file", groups="media")
    with pytest.raises(ExperimentError, match="different test sets, classes or groups"):
        om.compare(a, by_file, models=["logistic"])


def test_only_shared_clips_are_compared(run, world, tmp_path):
    manifest = Manifest.load(world.manifest)
    split, guess = manifest.split("ten"), {"estimators": ("majority",), "test_negatives": ()}
    turned = replace(split, name="turned", folds=[(fold + 1) % 10 for fold in split.folds])
    manifest.with_parts(turned).save(tmp_path / "turned")
    part = manifest.select(ids=[clip for clip in world.ids if clip[:3] != "tt3"])
    write_store(tmp_path / "part.zarr", part, world.rows)
    order = [*range(0, 200, 2), *range(1, 200, 2)]
    replace(manifest, items=manifest.items.take(order)).save(tmp_path / "other")
    a = run("guess", **guess)
    fewer = run("fewer", store=tmp_path / "part.zarr", **guess)
    clips = om.compare(a, fewer).table.iloc[0]["clips"]
    tested = {row["id"] for row in rows_of(a, "majority", "HN vs S")}
    assert clips == sum(clip[:3] != "tt3" for clip in tested) < len(tested)
    elsewhere = run("turned", manifest=tmp_path / "turned", split="turned", **guess)
    with pytest.raises(ExperimentError, match="no clips of HN vs S with equal labels"):
        om.compare(a, elsewhere)
    with pytest.raises(ExperimentError, match="have different items"):
        om.compare(a, run("other", manifest=tmp_path / "other", **guess))


def test_compare_prints_and_draws_the_comparison(good, noisy, tmp_path):
    a, b = good.folder, noisy.folder
    options = ("--by", "level", "--metric", "f1", "--model", "logistic")
    result = run_obygaze("models", "compare", a, b, *options, "-o", tmp_path / "d.svg", code=0)
    compared = om.compare(a, b, models=["logistic"], by="level", metric="f1")
    assert str(compared) in result.stdout
    svg = (tmp_path / "d.svg").read_text()
    drawn = sum(row["difference"] is not None for row in compared.rows)
    assert 0 < drawn == sum(svg.count(f", {over}<") for over in ("within", "across"))
    with pytest.raises(ExperimentError, match="unknown metric 'f2'"):
        om.compare(a, b, metric="f2")
