"""Scores, intervals and guesses against scikit-learn, trec_eval and loops; model comparisons."""

import json
import re
import shutil
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
from statsmodels.stats.multitest import multipletests

import obygaze_models as om
from obygaze_features.common.files import sha256_of
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.manifests import Manifest
from obygaze_models.data.warnings import RunWarning
from obygaze_models.mediaeval.runs import format_run, read_run_file, trec_average_precision
from obygaze_models.scoring import metrics
from obygaze_models.scoring.metrics import METRICS, TREC, score, weighted_scores
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows, refused, tips
from tests.kit.floats import close
from tests.kit.intervals import cross_validated_interval
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


def test_models_are_compared_with_the_first_ones_headline(good, noisy):
    compared = om.compare(good, str(noisy.folder))
    names = ["good-films: majority", "noisy: logistic", "noisy: majority"]
    assert [(row.model.name, row.test) for row in compared.comparisons] == [
        (name, test) for name in names for test in ("HN vs S", "EN+HN vs S")
    ]
    assert {row.reference.name for row in compared.comparisons} == {"good-films: logistic"}
    assert compared.warnings == ()
    for row in compared.comparisons:
        first = auroc_by_film(good, "logistic", row.test)
        run = good if row.model.run == "good-films" else noisy
        second = auroc_by_film(run, row.model.model, row.test)
        score = row.scores["auroc"]
        assert score.reference.value == close(np.mean([*first.values()]))
        assert score.model.value == close(np.mean([*second.values()]))
        differences = [second[film] - first[film] for film in first]
        assert score.difference.interval == close(cross_validated_interval(differences))
    with pytest.raises(UsageError, match="did you mean auroc"):
        compared.table("aurco")


def test_models_are_ranked_by_another_metric(good, noisy):
    compared = om.compare(good, noisy, metric="f1")
    assert str(compared) == om.compare(good, noisy).table("f1") != str(om.compare(good, noisy))
    with pytest.raises(UsageError, match="did you mean f1"):
        om.compare(good, noisy, metric="f11")


def test_the_run_its_table_and_compare_agree(good, noisy):
    listed = {
        (name, row["model"], row["test"]): row["mean"]
        for name, run in (("good-films", good), ("noisy", noisy))
        for row in run.scores()
        if row["metric"] == "auroc"
    }
    for row in om.compare(good, noisy).comparisons:
        key = row.model.run, row.model.model, row.test
        assert row.scores["auroc"].model.value == close(listed[key])


def test_pooled_scores_use_the_clips_of_all_films(tmp_path):
    """On the example, words minus length is +.064 pooled, and +.041 as a mean over films."""
    example = tmp_path / "example"
    run_obygaze("models", "example", example)
    words, length = (om.run_experiment(example / f"{name}.toml", tmp_path / name)
                     for name in ("level", "length"))  # fmt: skip
    areas = [
        roc_auc_score([row["label"] == "positive" for row in rows],
                      [float(row["probability"]) for row in rows])
        for rows in (rows_of(run, "logistic", "EN vs S") for run in (length, words))
    ]  # fmt: skip
    [by_film], [pooled] = (
        om.compare(length, words, pooled=pooled).comparisons for pooled in (False, True)
    )
    score = pooled.scores["auroc"]
    assert (score.reference.value, score.model.value) == close(areas)
    assert score.difference.value == close(areas[1] - areas[0]) == pytest.approx(0.0639, abs=5e-5)
    assert by_film.scores["auroc"].difference.value == pytest.approx(0.0411, abs=5e-4)
    printed = str(om.compare(length, words, pooled=True))
    assert "scored together" in printed


def test_p_values_are_adjusted_for_all_comparisons_of_a_metric(good, noisy):
    rows = om.compare(good, noisy).comparisons
    scores = [row.scores["auroc"] for row in rows]
    raw = [score.difference.p_value for score in scores]
    adjusted = multipletests(raw, method="holm")[1]
    assert [score.p_value for score in scores] == close(adjusted.tolist())
    assert [row.differs("auroc") for row in rows] == (adjusted < 0.05).tolist()


def test_the_headline_says_which_models_differ(good, noisy):
    alone = om.compare(good, noisy, models=["logistic"])
    clear = [row for row in alone.comparisons if row.differs("auroc")]
    assert len(clear) == len(alone.comparisons) == 2
    widest = min(clear, key=lambda row: row.scores["auroc"].difference.value)
    difference = widest.scores["auroc"].difference.value
    assert alone.headline("auroc").startswith(
        f"2 of 2 differ. On {widest.test}, noisy: logistic is worse than good-films: logistic: "
        f"AUROC {difference:+.3f} (95% interval "
    )
    score = clear[0].scores["auroc"]
    tiny = replace(score.difference, value=-0.0001, interval=(-0.1, 0.0001))
    same = replace(clear[0], scores={"auroc": replace(score, difference=tiny, p_value=0.9)})
    alone = replace(alone, comparisons=[same])
    assert " do not differ clearly: " in alone.headline("auroc")
    assert "AUROC 0.000 (95% interval -0.100 to 0.000" in alone.headline("auroc")
    assert "-0.000" not in alone.table("auroc")


def test_models_are_compared_within_and_across_runs(run, good, noisy):
    [comparison, _] = om.compare(good).comparisons
    assert (comparison.model.name, comparison.reference.name) == ("majority", "logistic")
    named = om.compare(good, noisy, models=["majority"]).comparisons
    assert {row.model.name for row in named} == {"noisy: majority"}
    assert {row.reference.name for row in named} == {"good-films: majority"}
    alone = run("alone", estimators=("majority",))
    for runs, models, fact in (
        ([good, noisy], ["logistics"], "did you mean logistic"),
        ([good], ["logistic"], "no model to compare with logistic"),
        ([alone], [], "has only the model majority"),
    ):
        with pytest.raises(ExperimentError, match=fact):
            om.compare(*runs, models=models)


def test_notes_say_how_runs_differ(run, world, good, tmp_path):
    manifest = Manifest.load(world.manifest)
    labels = manifest.labels("all")
    level_of = dict(labels.level_of)
    # Clips of the last fold, the only fold tested in the leak-free run.
    sure, easy = world.clips("S", folds=[9])[:2], world.clips("EN", folds=[9])[0]
    level_of |= dict.fromkeys(sure, "HN") | {easy: "NS"}
    others = replace(labels, name="others", levels=[*level_of.values()])
    manifest.with_parts(labels=[others]).save(tmp_path / "manifest")
    a = run("good")
    b = run(
        "others", manifest=tmp_path / "manifest", labels="others", protocol="split",
        estimators=("logistic", "knn"), test_negatives=(("HN",), ("EN", "HN"), ("EN",)),
    )  # fmt: skip
    compared = om.compare(a, b, models=["logistic"])
    [_, full] = compared.comparisons
    fact = "EN vs S is a test set of others: logistic, not of good: logistic"
    assert compared.warnings[-1] == RunWarning("not-tested", "EN vs S", fact)
    tested, there = (
        {row["id"] for row in rows_of(run, "logistic", "EN+HN vs S")} for run in (a, b)
    )
    assert full.clips == len(tested) - 3
    assert [note.code for note in full.differences] == ["labels", "protocol"]
    assert [note.code for note in full.notes] == ["left-out"] * 3
    text = " / ".join(note.text for note in (*full.differences, *full.notes))
    for note in (
        "different label sets: all in good, others in others",
        "different protocols: leak-free in good, split in others",
        f"left out: {len(there - tested)} clips of EN+HN vs S that only others",
        "left out: 1 clip of EN+HN vs S that only good has",
        "left out: 2 clips of EN+HN vs S with different labels",
    ):
        assert note in text

    guess = {"estimators": ("majority",)}
    unbalanced = run("unbalanced", train_negatives=("EN",), balance="none", **guess)
    notes = (
        "different balance: undersample in good, none in unbalanced",
        "different training tasks: HN vs S in good, EN vs S in unbalanced",
    )
    [*_, comparison] = om.compare(a, unbalanced).comparisons
    assert [*comparison.notes, *(note.text for note in comparison.differences)] == [*notes]
    # Naming the default balance of the protocol is the same as leaving it out.
    films = run("by-film", protocol="split", balance="undersample", **guess)
    compared = om.compare(a, films).comparisons[0]
    assert "balance" not in [note.code for note in compared.differences]
    output = run_obygaze("models", "compare", films.folder, unbalanced.folder).output
    assert output.index("different protocols: split in by-film") < output.index("AUROC")
    sparse = run_obygaze("models", "compare", a.folder, unbalanced.folder)
    assert f"WARNING: {notes[0]}" in sparse.stderr
    assert "too few clips for an interval" in sparse.stdout


def test_runs_of_different_groups_are_not_compared(run):
    by_film, by_file = run("good"), run("by-file", groups="media")
    message = "one is averaged over media, the other over film"
    result = run_obygaze("models", "compare", by_film.folder, by_file.folder, "--model", "logistic")
    refused(result, message)


def test_clips_that_leaked_are_counted(run, tmp_path):
    a = run("good")
    shutil.copytree(a.folder, tmp_path / "leaky")
    path, table = tmp_path / "leaky/run.json", tmp_path / "leaky/clips.csv"
    chosen = sorted({row["id"] for row in rows_of(a, "logistic", "HN vs S")})[:3]
    head, *lines = table.read_text().splitlines()
    marked = [f"{line}yes" if line.partition(",")[0] in chosen else line for line in lines]
    table.write_text("\n".join([head, *marked, ""]))
    record = json.loads(path.read_text())
    record |= {"leaked": 3, "files": record["files"] | {"clips.csv": sha256_of(table)}}
    path.write_text(json.dumps(record))
    result = run_obygaze("models", "compare", a.folder, tmp_path / "leaky")
    leaked = r"LEAKAGE: 3 of these \d+ clips of HN vs S were used to train or validate leaky, "
    assert re.search(leaked, " ".join(result.stderr.split()))


def test_only_shared_clips_are_compared(run, world, tmp_path):
    manifest = Manifest.load(world.manifest)
    split, guess = manifest.split("ten"), {"estimators": ("majority",)}
    turned = replace(split, name="turned", folds=[(fold + 1) % 10 for fold in split.folds])
    manifest.with_parts(splits=[turned]).save(tmp_path / "turned")
    part = manifest.select(ids=[clip for clip in world.ids if clip[:3] != "tt3"])
    write_store(tmp_path / "part.zarr", part, world.rows)
    order = [*range(0, 200, 2), *range(1, 200, 2)]
    replace(manifest, items=manifest.items.take(order)).save(tmp_path / "other")
    a = run("guess", **guess)
    fewer = run("fewer", store=tmp_path / "part.zarr", **guess)
    [comparison, *_] = om.compare(a, fewer).comparisons
    tested = {row["id"] for row in rows_of(a, "majority", "HN vs S")}
    assert comparison.clips == sum(clip[:3] != "tt3" for clip in tested) < len(tested)
    elsewhere = run("turned", manifest=tmp_path / "turned", split="turned", **guess)
    with pytest.raises(ExperimentError, match="no test clips of HN vs S in common"):
        om.compare(a, elsewhere)
    with pytest.raises(ExperimentError, match=r"have different items: one uses toy \("):
        om.compare(a, run("other", manifest=tmp_path / "other", **guess))


def test_compare_prints_and_draws_the_comparison(good, noisy, tmp_path):
    a, b = good.folder, noisy.folder
    result = run_obygaze("models", "compare", a, b, "--metric", "auroc", "-o", tmp_path / "d.svg")
    assert result.exit_code == 0, result.output
    compared = om.compare(a, b)
    assert compared.table("auroc") in result.stdout
    # The figure has a point of each model for each test set; `tips` has the last.
    row = next(r for r in reversed(compared.comparisons) if r.model.name == "noisy: logistic")
    difference = row.scores["auroc"].difference
    text = "{:+.2f} ({:+.2f} to {:+.2f})".format(difference.value, *difference.interval)
    assert tips(tmp_path / "d.svg")["noisy: logistic, difference"] == text.replace("-", "−")
    help_text = run_obygaze("models", "compare", "--help").stdout
    assert [key for key in METRICS if key not in help_text] == [TREC]
    refused(run_obygaze("models", "compare", a, b, "--metric", "aurc"), "mean auroc?", code=2)
