"""Scores, intervals and guesses, by scikit-learn, trec_eval, plain loops; and models compared."""

import json
import re
import shutil
import tempfile
from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as theirs
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

import obygaze_models as om
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.manifests import Manifest
from obygaze_models.estimators.baselines import baselines, simulated
from obygaze_models.experiments.record import seal
from obygaze_models.experiments.trec import format_run, read_run_file, run_tag
from obygaze_models.scoring.intervals import ScoredClips, film_intervals, paired_differences
from obygaze_models.scoring.metrics import (
    METRICS,
    TREC,
    score,
    trec_average_precision,
    trec_ranks,
    weighted_scores,
)
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows, refused, tips
from tests.kit.run import write_store


def calibration_error(labels, probabilities):
    """Clips are sorted by the first digit of their probability; 1 is among those of 0.9."""
    gaps = defaultdict(float)
    for label, probability in zip(labels, probabilities, strict=True):
        digit = "9" if probability == 1 else f"{probability:.2f}"[2]
        gaps[digit] += probability - label
    return sum(map(abs, gaps.values())) / len(labels)


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
    "calibration_error": calibration_error,
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
def test_scores_of_two_classes(pairs, seed):
    labels, probabilities = map(np.array, zip(*pairs, strict=True))
    expected = {name: call(labels, probabilities) for name, call in BINARY.items()}
    assert numbers(score(labels, probabilities)) == pytest.approx(expected, nan_ok=True)
    check_weights(labels, probabilities, seed)


@given(st.integers(0, 2**32))
def test_scores_of_several_classes(seed):
    chance = np.random.default_rng(seed)
    labels = np.concatenate([[0, 1, 2], chance.integers(0, 3, 12)])
    probabilities = chance.dirichlet(np.ones(3), 15)
    scores = numbers(score(labels, probabilities))
    expected = {name: call(labels, probabilities) for name, call in CLASSES.items()}
    assert {name: scores[name] for name in CLASSES} == pytest.approx(expected)
    check_weights(labels, probabilities, seed)


def check_weights(labels, probabilities, seed):
    weights = np.random.default_rng(seed).integers(0, 4, (3, len(labels)))
    weights[:, 0] += 1
    values_of = weighted_scores(labels, probabilities, weights.astype(float))
    for row, times in enumerate(weights):
        expected = score(np.repeat(labels, times), np.repeat(probabilities, times, axis=0))
        actual = {name: values[row] for name, values in values_of.items()}
        expected = {name: value for name, value in numbers(expected).items() if name in actual}
        assert actual == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("film_a_fit", [False, True])
def test_intervals_are_those_of_a_plain_loop(film_a_fit):
    """Draw films, repeat their clips, score each fit, average by what share was drawn."""
    chance, fits = np.random.default_rng(1), []
    for number in range(5):
        films = [f"f{number}"] * 40 if film_a_fit else chance.choice([*"abcde"], 40).tolist()
        labels = chance.integers(0, 2, 40)
        fits.append(ScoredClips(labels, labels * 0.3 + chance.random(40) * 0.7, films))
    names, films = np.unique([film for fit in fits for film in fit.films], return_inverse=True)
    shares, means = np.full(len(names), 1 / len(names)), []
    for times in np.random.default_rng(5).multinomial(len(names), shares, size=40):
        drawn, scores, weights = np.repeat(np.arange(200), times[films]), [], []
        for number, fit in enumerate(fits):
            rows = drawn[drawn // 40 == number] - 40 * number
            value = score(fit.labels[rows], fit.probabilities[rows])["f1"] if len(rows) else None
            if value is not None:
                scores.append(value)
                weights.append(len(rows) / 40)
        if scores:
            means.append(np.average(scores, weights=weights))
    intervals = film_intervals(fits, seed=5, replicates=40)
    assert intervals["f1"] == pytest.approx(np.quantile(means, [0.025, 0.975]))
    assert film_intervals(fits, seed=5, replicates=40) == intervals


def test_clips_without_a_film_are_in_no_draw():
    chance = np.random.default_rng(1)
    films = [*chance.choice([*"abcde"], 100), *[""] * 20]
    labels = chance.integers(0, 2, 120)
    first, second = (labels * 0.3 + chance.random(120) * 0.7 for _ in range(2))
    alone = ScoredClips(labels[:100], first[:100], films[:100])
    whole = film_intervals([ScoredClips(labels, first, films)], seed=5)
    for key, interval in film_intervals([alone], seed=5).items():
        assert whole[key] == pytest.approx(interval)
    differences = paired_differences(labels, first, second, films)
    named = paired_differences(labels[:100], first[:100], second[:100], films[:100])
    for key, difference in differences.items():
        assert difference.interval == pytest.approx(named[key].interval)
        assert difference.first != named[key].first  # the score is of all clips
    four = ["" if film == "e" else film for film in films]
    assert not any(film_intervals([ScoredClips(labels, first, four)], seed=5).values())
    assert not any(film_intervals([ScoredClips(labels, first, [""] * 120)], seed=5).values())


def test_four_films_tell_nothing_and_the_better_model_is_ahead():
    labels = np.tile([0, 1, 1], 20)
    first, second = labels * 0.98 + 0.01, 0.99 - labels * 0.98
    few = film_intervals([ScoredClips(labels, first, [*"abcd"] * 15)], seed=0)
    assert set(few.values()) == {None}
    [score] = {(d.interval, d.ahead) for d in paired_differences(
        labels, first, second, [*"abcd"] * 15).values()}  # fmt: skip
    assert score == (None, None)
    differences = paired_differences(labels, first, second, [*"abcde"] * 12)
    assert {difference.ahead for difference in differences.values()} == {1.0}
    for same in paired_differences(labels, first, first, [*"abcde"] * 12).values():
        assert (same.difference, same.interval, same.ahead) == (0, (0, 0), 0.5)


def trec_eval(ids, scores, positives, judged=()):
    relevant = dict.fromkeys([*judged], 0) | dict.fromkeys(positives, 1)
    evaluator = pytrec_eval.RelevanceEvaluator({"q": relevant}, {"map"})
    run = dict(zip(ids, map(float, scores), strict=True))
    return evaluator.evaluate({"q": run})["q"]["map"]


@given(st.integers(0, 2**32))
def test_random_rankings_with_ties(seed):
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


def test_an_official_score_has_an_interval_over_films():
    """A film that is drawn twice counts as if its clips were there twice, at the same ranks."""
    chance = np.random.default_rng(4)
    labels, scores = chance.integers(0, 2, 60), chance.integers(0, 9, 60) / 8
    ids, films = [f"v{row}" for row in range(60)], [f"film {row % 6}" for row in range(60)]
    scored = ScoredClips(labels, scores, films, trec_ranks(ids, scores))
    low, high = film_intervals([scored], seed=1)["trec_average_precision"]
    positives = [clip for clip, label in zip(ids, labels, strict=True) if label]
    assert low < trec_average_precision(ids, scores, positives) < high
    distinct = replace(scored, probabilities=scored.trec / 60, trec=None)
    intervals = film_intervals([distinct], seed=1)
    assert intervals["average_precision"] == (low, high)
    assert "trec_average_precision" not in intervals


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.sampled_from([True, False, None]))
def test_a_run_file_is_read_as_it_was_written(values, external):
    ids, scores = [f"v{row}" for row in range(len(values))], np.array(values)
    tag = "run1" if external is None else run_tag("mlp", external_data=external)
    text = format_run("violence", ids, scores, tag)
    ranks = [int(line.split()[3]) for line in text.splitlines()]
    assert ranks == list(range(1, len(ids) + 1))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run").write_text(text.replace(" ", "\t", 3) + "\n")
        read = read_run_file(Path(folder, "run"))
    assert dict(zip(read.names, read.scores, strict=True)) == dict(zip(ids, values, strict=True))
    assert (read.topic, read.tag, read.external_data) == ("violence", tag, external)


def test_published_numbers():
    """At the share of the whole dataset, as the paper's v1 and v2 print them, and of test folds."""
    for share, guess, positive, weighted in (
        (0.236, "random", 0.32, 0.54), (0.191, "all positive", 0.32, 0.06),
        (31 / 75, "random", 0.45, 0.50), (31 / 105, "random", 0.37, 0.52),
    ):  # fmt: skip
        scores = baselines(share)[guess]
        assert (round(scores["f1"], 2), round(scores["f1_weighted"], 2)) == (positive, weighted)


@pytest.mark.parametrize("positives", [1, 50, 99])
@pytest.mark.parametrize("name", ["all positive", "majority"])
def test_constant_guesses_score_as_scikit_learn_says(name, positives):
    labels = np.arange(100) < positives
    says = name == "all positive" or positives >= 50
    predictions = np.full(100, says)
    scores = baselines(positives / 100)[name]
    assert scores["f1"] == pytest.approx(f1_score(labels, predictions))
    assert scores["f1_weighted"] == pytest.approx(f1_score(labels, predictions, average="weighted"))
    assert scores["auroc"] == roc_auc_score(labels, predictions)
    assert scores["average_precision"] == average_precision_score(labels, predictions)
    assert scores["recall"] == says
    assert baselines(0.2)["majority"]["precision"] is None


def test_a_fair_coin_scores_as_all_of_its_throws_do():
    """Every way in which a coin may fall for five clips, each scored by scikit-learn."""
    labels = np.array([1, 1, 0, 0, 0])
    names = ("f1", "f1_weighted", "precision", "recall")
    throws = [[BINARY[name](labels, np.array(throw)) for name in names]
              for throw in product([0, 1], repeat=5)]  # fmt: skip
    coin = simulated(5, 2, seed=0)
    for key, summary in (("mean", np.nanmean), ("std", np.nanstd)):
        expected = dict(zip(names, summary(throws, axis=0), strict=True))
        assert coin[key] == pytest.approx(expected, abs=0.015)


@pytest.fixture(scope="module")
def run(make_run):

    def run(name, **changed):
        base = {"test_negatives": (("HN",), ("EN", "HN")), "estimators": ("logistic", "majority")}
        return make_run(name, **(base | changed))

    return run


@pytest.fixture(scope="module")
def noisy(world, run, tmp_path_factory):
    """The same clips with features that tell much less; by the split's folds."""
    path = tmp_path_factory.mktemp("other") / "noisy.zarr"
    noise = np.random.default_rng(8).normal(size=world.features.shape).astype(np.float32)
    rows = dict(zip(world.ids, world.features * 0.3 + noise, strict=True))
    write_store(path, Manifest.load(world.manifest), rows)
    return run("noisy", store=path, protocol="split")


@pytest.fixture(scope="module")
def good(run):
    return run("good-split", protocol="split")


def mean_by_clip(run, model, test):
    by_clip, labels = defaultdict(list), {}
    for row in csv_rows(run.folder / "predictions.csv"):
        if (row["model"], row["test"]) == (model, test):
            by_clip[row["id"]].append(float(row["probability"]))
            labels[row["id"]] = int(row["label"])
    return {clip: (labels[clip], np.mean(values)) for clip, values in by_clip.items()}


def test_models_of_a_name_are_compared_across_runs(good, noisy):
    """Not the runs' own scores, which are means over fits, but of mean probabilities."""
    compared = om.compare(good, str(noisy.folder))
    assert [(row.test, row.first.name, row.second.name) for row in compared.comparisons] == [
        (test, f"good-split: {model}", f"noisy: {model}")
        for model in ("logistic", "majority")
        for test in ("HN vs S", "EN+HN vs S")
    ]
    assert compared.left_out == ()
    comparison = compared.comparisons[0]
    for side, run in zip(("first", "second"), (good, noisy), strict=True):
        labels, means = zip(*mean_by_clip(run, "logistic", "HN vs S").values(), strict=True)
        score = getattr(comparison.scores["auroc"], side)
        assert score == pytest.approx(roc_auc_score(labels, means))
    with pytest.raises(UsageError, match="did you mean auroc"):
        compared.table("aurco")


def test_the_headline_says_whether_models_differ(good, noisy):
    alone = om.compare(good, noisy, models=["logistic"])
    clear = [c for c in alone.comparisons if np.prod(c.scores["auroc"].interval) > 0]
    assert len(clear) == len(alone.comparisons) == 2
    widest = max(clear, key=lambda comparison: comparison.scores["auroc"].difference)
    difference = widest.scores["auroc"].difference
    assert alone.headline("auroc").startswith(
        "2 of 2 comparisons differ clearly; the most: good-split: logistic is better than "
        f"noisy: logistic on {widest.test}: AUROC {difference:+.3f} (95% interval "
    )
    same = replace(alone, comparisons=[replace(clear[0], second=clear[0].first)])
    same.comparisons[0].scores["auroc"] = replace(
        clear[0].scores["auroc"], difference=-0.0001, interval=(-0.1, 0.0001)
    )
    assert " do not differ clearly on " in same.headline("auroc")
    assert "AUROC 0.000 (95% interval -0.100 to 0.000)" in same.headline("auroc")
    assert "-0.000" not in same.table("auroc")


def test_models_of_a_run_and_named_models_across_runs(run, good, noisy):
    [comparison, _] = om.compare(good).comparisons
    assert (comparison.first.name, comparison.second.name) == ("logistic", "majority")
    named = om.compare(good, noisy, models=["logistic", "majority"]).comparisons
    assert len({(comparison.first.name, comparison.second.name) for comparison in named}) == 6
    alone = run("alone", estimators=("majority",))
    for runs, models, fact in (
        ([good, noisy], ["logistics"], "did you mean logistic"),
        ([good], ["logistic"], "nothing to compare logistic with"),
        ([alone], [], "has one model, majority; give a second run"),
    ):
        with pytest.raises(ExperimentError, match=fact):
            om.compare(*runs, models=models)


def test_notes_say_how_runs_differ(run, world, good, tmp_path):
    manifest = Manifest.load(world.manifest)
    labels = manifest.labels("all")
    level_of = dict(labels.level_of)
    # Clips of the last fold, which alone is tested in the leak-free run.
    sure, easy = world.clips("S", folds=[9])[:2], world.clips("EN", folds=[9])[0]
    level_of |= dict.fromkeys(sure, "HN") | {easy: "NS"}
    others = replace(labels, name="others", levels=[*level_of.values()])
    manifest.with_parts(labels=[others]).save(tmp_path / "manifest")
    a = run("good")
    b = run(
        "others", manifest=tmp_path / "manifest", labels="others", protocol="split",
        estimators=("logistic", "knn"), test_negatives=(("HN",), ("EN", "HN"), ("EN",)),
    )  # fmt: skip
    compared = om.compare(a, b)
    [_, full] = compared.comparisons
    assert compared.left_out == (
        "no counterpart of that name in another run: good: majority, others: knn; "
        "to compare these with each other: --model majority --model knn",
        "EN vs S is a test set of others: logistic, not of good: logistic",
    )
    tested, there = (mean_by_clip(run, "logistic", "EN+HN vs S") for run in (a, b))
    assert full.clips == len(tested) - 3
    text = " / ".join(full.notes)
    for note in (
        "different label sets: all in good, others in others",
        "different protocols: leak-free in good, split in others",
        f"left out: {len(set(there) - set(tested))} clips of EN+HN vs S that only others",
        "good is the mean of 9 fits, others of 10;",
        "left out: 1 clip of EN+HN vs S that only good has",
        "left out: 2 clips of EN+HN vs S annotated otherwise in the two",
    ):
        assert note in text

    guess = {"estimators": ("majority",)}
    unbalanced = run("unbalanced", train_negatives=("EN",), balance="none", **guess)
    notes = (
        "different balance: undersample in good, none in unbalanced",
        "different training tasks: HN vs S in good, EN vs S in unbalanced",
    )
    assert om.compare(a, unbalanced).comparisons[0].notes == notes
    # Whether an experiment names the protocol's own balance or leaves it out is the same.
    films = run("by-film", protocol="split", balance="undersample", **guess)
    assert "different balance" not in " ".join(om.compare(a, films).comparisons[0].notes)
    said = run_obygaze("models", "compare", films.folder, unbalanced.folder).output
    assert said.index("different protocols: split in by-film") < said.index("F1")
    sparse = run_obygaze("models", "compare", a.folder, unbalanced.folder)
    assert f"NOTE: {notes[0]}" in sparse.stderr
    assert "too few clips to say" in sparse.stdout


def test_clips_that_leaked_are_counted(run, tmp_path):
    a = run("good")
    shutil.copytree(a.folder, tmp_path / "leaky")
    path = tmp_path / "leaky/run.json"
    record = json.loads(path.read_text())
    record["leaked"] = sorted(mean_by_clip(a, "logistic", "HN vs S"))[:3]
    path.write_text(json.dumps(record | {"sha256": seal(record)}))
    result = run_obygaze("models", "compare", a.folder, tmp_path / "leaky")
    leaked = r"LEAKAGE: 3 of these \d+ clips of HN vs S were used to train or to stop leaky, "
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
    tested = mean_by_clip(a, "majority", "HN vs S")
    assert comparison.clips == sum(clip[:3] != "tt3" for clip in tested) < len(tested)
    elsewhere = run("turned", manifest=tmp_path / "turned", split="turned", **guess)
    with pytest.raises(ExperimentError, match="they have other clips in HN vs S"):
        om.compare(a, elsewhere)
    with pytest.raises(ExperimentError, match=r"are over different items: those of toy \("):
        om.compare(a, run("other", manifest=tmp_path / "other", **guess))


def test_the_command(good, noisy, tmp_path):
    a, b = good.folder, noisy.folder
    result = run_obygaze("models", "compare", a, b, "--metric", "auroc", "-o", tmp_path / "d.svg")
    assert result.exit_code == 0, result.output
    compared = om.compare(a, b)
    assert compared.table("auroc") in result.stdout
    # The figure has a point of logistic for each test set; `tips` has the last.
    score = compared.comparisons[1].scores["auroc"]
    text = f"{score.difference:+.2f} ({score.interval[0]:+.2f} to {score.interval[1]:+.2f})"
    assert tips(tmp_path / "d.svg")["logistic, difference"] == text.replace("-", "−")
    help_text = run_obygaze("models", "compare", "--help").stdout
    assert [key for key in METRICS if key not in help_text] == [TREC]
    refused(run_obygaze("models", "compare", a, b, "--metric", "aurc"), "mean auroc?", code=2)
