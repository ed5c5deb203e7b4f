"""Two models on the same clips, by what their runs' files say."""

import json
import re
import shutil
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import obygaze_models as om
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.manifests import Manifest
from obygaze_models.experiments.record import seal
from obygaze_models.scoring.metrics import METRICS, TREC
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows, refused, tips
from tests.kit.run import write_store


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
