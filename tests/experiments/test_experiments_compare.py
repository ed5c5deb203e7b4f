"""Two models on the same clips: against a plain loop with scikit-learn, and closed cases."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
)

import obygaze_models as om
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.manifest import save_parts
from obygaze_models.experiments.compare import compare_runs
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.record import seal
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.run_folder import Results, read_results
from obygaze_models.intervals import paired_differences
from obygaze_models.metrics import METRICS, TREC
from tests.figures.drawn import tips
from tests.world import make_world, write_store

BINARY = {
    "f1": lambda y, p: f1_score(y, p > 0.5, zero_division=np.nan),
    "f1_weighted": lambda y, p: f1_score(y, p > 0.5, average="weighted", zero_division=0),
    "precision": lambda y, p: precision_score(y, p > 0.5, zero_division=np.nan),
    "recall": lambda y, p: recall_score(y, p > 0.5, zero_division=np.nan),
    "auroc": roc_auc_score,
    "average_precision": average_precision_score,
    "balanced_accuracy": lambda y, p: balanced_accuracy_score(y, p > 0.5),
}
CLASSES = {
    "f1_macro": lambda y, p: f1_score(y, p.argmax(1), average="macro", zero_division=0),
    "f1_weighted": lambda y, p: f1_score(y, p.argmax(1), average="weighted", zero_division=0),
    "accuracy": lambda y, p: accuracy_score(y, p.argmax(1)),
    "balanced_accuracy": lambda y, p: balanced_accuracy_score(y, p.argmax(1)),
}


def plain_loop(score, labels, first, second, films, *, seed, replicates):
    """The differences over draws of films, each draw's clips written out one by one."""
    names = sorted(set(films))
    drawn = np.random.default_rng(seed).multinomial(
        len(names), np.full(len(names), 1 / len(names)), size=replicates
    )
    rows_of = {name: np.flatnonzero(np.array(films) == name) for name in names}
    differences = []
    for times in drawn:
        rows = np.concatenate(
            [np.tile(rows_of[name], often) for name, often in zip(names, times, strict=True)]
        )
        if len(np.unique(labels[rows])) > 1:
            differences.append(score(labels[rows], first[rows]) - score(labels[rows], second[rows]))
    return np.array(differences)


@pytest.mark.gate
@pytest.mark.parametrize(("scores", "classes"), [(BINARY, 2), (CLASSES, 3)])
def test_differences_are_those_of_a_plain_loop(scores, classes):
    chance = np.random.default_rng(classes)
    films = [f"film{number}" for number in chance.integers(0, 6, 90)]
    labels = chance.integers(0, classes, 90)
    if classes == 2:
        first, second = (0.3 * labels + 0.7 * chance.random(90) for _ in range(2))
    else:
        first, second = (
            0.4 * np.eye(3)[labels] + 0.6 * chance.dirichlet(np.ones(3), 90) for _ in range(2)
        )
    differences = paired_differences(labels, first, second, films, seed=4, replicates=200)
    for name, score in scores.items():
        difference = differences[name]
        assert difference.first == pytest.approx(score(labels, first))
        assert difference.difference == pytest.approx(score(labels, first) - score(labels, second))
        draws = plain_loop(score, labels, first, second, films, seed=4, replicates=200)
        assert difference.interval == pytest.approx(np.quantile(draws, [0.025, 0.975]))
        draws = np.where(abs(draws) < 1e-12, 0, draws)
        assert difference.ahead == pytest.approx(
            (draws > 0).mean() + (draws == 0).mean() / 2, abs=0.011
        )
        assert difference.interval[0] < difference.difference < difference.interval[1]


def test_same_models_differ_by_nothing_swapped_ones_by_the_opposite():
    chance = np.random.default_rng(0)
    films, labels = list("aabbccdd") * 6, chance.integers(0, 2, 48)
    first, second = chance.random((2, 48))
    for difference in paired_differences(labels, first, first, films).values():
        assert (difference.difference, difference.interval, difference.ahead) == (0, (0, 0), 0.5)
    there = paired_differences(labels, first, second, films)
    back = paired_differences(labels, second, first, films)
    for name, difference in there.items():
        assert back[name].difference == -difference.difference
        assert back[name].interval == pytest.approx([-end for end in difference.interval[::-1]])
        assert back[name].ahead == pytest.approx(1 - difference.ahead)


def test_the_better_model_is_ahead_in_every_draw():
    labels = np.tile([0, 1, 1], 8)
    films = np.repeat(list("abcd"), 6).tolist()
    right, wrong = labels * 0.98 + 0.01, 0.99 - labels * 0.98
    differences = paired_differences(labels, right, wrong, films)
    assert {difference.ahead for difference in differences.values()} == {1.0}
    assert differences["f1"].difference == 1
    assert differences["calibration_error"].difference < 0


def test_one_film_gives_no_interval():
    differences = paired_differences(np.array([0, 1]), np.array([0.2, 0.7]), np.ones(2), ["a", "a"])
    assert differences["f1_weighted"].difference == pytest.approx(2 / 3)
    assert differences["f1_weighted"].interval is None
    assert differences["f1_weighted"].ahead is None


@pytest.fixture(scope="module")
def make_run(world, tmp_path_factory):
    """Makes runs of a small experiment; `make(name, estimators=...)`."""
    folder = tmp_path_factory.mktemp("compared")
    base = Experiment(
        "Sure", world.manifest, world.store, split="ten", positives=("S",),
        train_negatives=("HN",), test_negatives=(("HN",), ("EN", "HN")),
        estimators=("logistic", "majority"),
    )  # fmt: skip

    def make(name: str, **changed: object) -> Results:
        if not (folder / name).exists():
            run_experiment(replace(base, **changed), folder / name)
        return read_results(folder / name)

    return make


@pytest.fixture(scope="module")
def noisy_store(world, tmp_path_factory):
    """The same clips with features that tell much less."""
    path = tmp_path_factory.mktemp("other") / "noisy.zarr"
    noise = np.random.default_rng(8).normal(size=world.features.shape).astype(np.float32)
    rows = dict(zip(world.ids, world.features * 0.3 + noise, strict=True))
    write_store(path, Manifest.load(world.manifest), rows)
    return path


def mean_by_clip(results: Results, model: str, test: str) -> dict[str, tuple[int, float]]:
    by_clip: dict[str, list[tuple[int, float]]] = {}
    for fit in results.said:
        if (fit.model, fit.test) == (model, test):
            for clip, label, p in zip(fit.ids, fit.labels, fit.probabilities, strict=True):
                by_clip.setdefault(clip, []).append((int(label), float(p)))
    return {
        clip: (fits[0][0], float(np.mean([p for _, p in fits]))) for clip, fits in by_clip.items()
    }


def test_two_runs_by_their_mean_probabilities(make_run, noisy_store):
    a, b = make_run("good"), make_run("noisy", store=noisy_store)
    compared = compare_runs([a, b])
    assert [
        (comparison.test, comparison.first.name, comparison.second.name)
        for comparison in compared.comparisons
    ] == [
        (test, f"good: {model}", f"noisy: {model}")
        for model in ("logistic", "majority")
        for test in ("HN vs S", "EN+HN vs S")
    ]
    assert compared.left_out == ()
    for comparison in compared.comparisons:
        model = comparison.first.model
        first_of, second_of = (mean_by_clip(results, model, comparison.test) for results in (a, b))
        assert set(first_of) == set(second_of)
        ids = sorted(first_of)
        labels = np.array([first_of[clip][0] for clip in ids])
        means = [np.array([mean[clip][1] for clip in ids]) for mean in (first_of, second_of)]
        assert (comparison.clips, comparison.films) == (len(ids), 4)
        assert comparison.scores["auroc"].first == pytest.approx(roc_auc_score(labels, means[0]))
        assert comparison.scores["auroc"].second == pytest.approx(roc_auc_score(labels, means[1]))
        right = [(mean > 0.5) == labels for mean in means]
        only = [int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())]
        assert [comparison.only_first, comparison.only_second] == only
        tail = 2 * binom.cdf(min(only), sum(only), 0.5) if sum(only) else 1
        assert comparison.p_value == pytest.approx(min(1, tail))
        assert comparison.notes == ()
    assert compared.comparisons[0].scores["auroc"].difference > 0.05


def test_a_run_against_its_copy_differs_by_nothing(make_run, tmp_path):
    a = make_run("good")
    shutil.copytree(a.run.folder, tmp_path / "copy")
    for comparison in compare_runs([a, read_results(tmp_path / "copy")]).comparisons:
        assert (comparison.only_first, comparison.only_second, comparison.p_value) == (0, 0, 1)
        assert all(score.difference in (0, None) for score in comparison.scores.values())


def test_models_of_a_run_and_named_models_across_runs(make_run, noisy_store):
    a, b = make_run("good"), make_run("noisy", store=noisy_store)
    [comparison, _] = compare_runs([a]).comparisons
    assert (comparison.first.name, comparison.second.name) == ("logistic", "majority")
    named = compare_runs([a, b], models=["logistic", "majority"]).comparisons
    assert len({(comparison.first.name, comparison.second.name) for comparison in named}) == 6
    with pytest.raises(ExperimentError, match="did you mean logistic"):
        compare_runs([a, b], models=["logistics"])
    with pytest.raises(ExperimentError, match="nothing to compare logistic with"):
        compare_runs([a], models=["logistic"])


def test_notes_say_how_runs_differ(make_run, world, tmp_path):
    """Another label set in which two clips changed, another protocol, a model only one has."""
    manifest = Manifest.load(world.manifest)
    shutil.copytree(world.manifest, tmp_path / "manifest")
    labels = manifest.labels("all")
    levels = list(labels.levels)
    # Rows of the last fold, which alone is tested in the leak-free run.
    last = [row for row, fold in enumerate(world.folds) if fold == 9]
    for row in [row for row in last if levels[row] == "S"][:2]:
        levels[row] = "HN"
    levels[next(row for row in last if levels[row] == "EN")] = "NS"
    save_parts(tmp_path / "manifest", [replace(labels, name="others", levels=levels)])
    a = make_run("good")
    b = make_run(
        "others", manifest=tmp_path / "manifest", labels="others", protocol="split",
        estimators=("logistic", "knn"), test_negatives=(("HN",), ("EN", "HN"), ("EN",)),
    )  # fmt: skip
    compared = compare_runs([a, b])
    [hard, every] = compared.comparisons
    said = " / ".join(hard.notes)
    assert "different label sets: all in good, others in others" in said
    assert "different protocols: leak-free in good, split in others" in said
    assert compared.left_out == (
        "no counterpart of that name in another run: good: majority, others: knn; "
        "to compare these with each other: --model majority --model knn",
        "EN vs S is a test set of others: logistic, not of good: logistic",
    )
    tested = mean_by_clip(a, "logistic", "EN+HN vs S")
    there = mean_by_clip(b, "logistic", "EN+HN vs S")
    alike = {clip for clip in tested if clip in there and tested[clip][0] == there[clip][0]}
    assert every.clips == len(alike) == len(tested) - 3
    text = " / ".join(every.notes)
    extra = len(set(there) - set(tested))
    assert f"left out: {extra} clips of EN+HN vs S that only others has" in text
    runs = len([fit for fit in b.said if (fit.model, fit.test) == ("logistic", "EN vs S")])
    assert f"good is the mean of 9 fits, others of {runs};" in text
    assert "left out: 1 clip of EN+HN vs S that only good has" in text
    assert "left out: 2 clips of EN+HN vs S annotated otherwise in the two" in text


def test_clips_that_leaked_are_counted(make_run, tmp_path):
    a = make_run("good")
    shutil.copytree(a.run.folder, tmp_path / "leaky")
    path = tmp_path / "leaky/run.json"
    record = json.loads(path.read_text())
    record["leaked"] = sorted(mean_by_clip(a, "logistic", "HN vs S"))[:3]
    path.write_text(json.dumps(record | {"sha256": seal(record)}))
    comparison = compare_runs([a, read_results(tmp_path / "leaky")]).comparisons[0]
    [note] = comparison.notes
    assert note.startswith(f"LEAKAGE: 3 of these {comparison.clips} clips of HN vs S are in a ")
    assert note.endswith(" of leaky")


def test_runs_over_other_items_or_other_clips_are_refused(make_run, tmp_path):
    a = make_run("good")
    elsewhere = make_world(tmp_path / "elsewhere")
    manifest = Manifest.load(elsewhere.manifest)
    rows = list(range(0, 200, 2)) + list(range(1, 200, 2))
    shuffled = replace(manifest, items=manifest.items.take(rows))
    shuffled.save(tmp_path / "shuffled")
    b = make_run("shuffled", manifest=tmp_path / "shuffled")
    with pytest.raises(ExperimentError, match=r"are over different items: those of toy \("):
        compare_runs([a, b])


def test_only_shared_clips_are_compared(make_run):
    a = make_run("good")

    def part(kept: slice) -> Results:
        said = [
            replace(
                fit, ids=fit.ids[kept], labels=fit.labels[kept],
                probabilities=fit.probabilities[kept],
            )
            for fit in a.said
        ]  # fmt: skip
        return replace(a, said=said)

    with pytest.raises(ExperimentError, match="they have other clips in HN vs S"):
        compare_runs([part(slice(0, 4)), part(slice(4, 8))])
    [comparison, *_] = compare_runs([part(slice(0, 6)), part(slice(2, 8))]).comparisons
    assert comparison.clips == 4


def test_the_command(obygaze, make_run, noisy_store, tmp_path):
    a = make_run("good-split", protocol="split").run.folder
    b = make_run("noisy-split", protocol="split", store=noisy_store).run.folder
    result = obygaze("models", "compare", a, b, "--metric", "auroc", "-o", tmp_path / "d.svg")
    assert result.exit_code == 0, result.output
    compared = om.compare(a, b)
    assert compared.table("auroc") in result.stdout
    assert " ".join(result.stdout.split()).startswith(compared.headline("auroc"))
    assert max(len(line) for line in result.stdout.splitlines()[:-1]) <= 100
    comparison, another, *_ = compared.comparisons
    low, high = comparison.scores["auroc"].interval
    assert f"{comparison.test}: {comparison.clips} clips, 4 films; AUROC" in result.stdout
    difference = comparison.scores["auroc"].difference
    assert f"{difference:+.3f}  {low:+.3f} to {high:+.3f}" in result.stdout
    # The figure has a point of logistic for each test set; `tips` has the last.
    last = another.scores["auroc"]
    said = f"{last.difference:+.2f} ({last.interval[0]:+.2f} to {last.interval[1]:+.2f})"
    assert tips(tmp_path / "d.svg")["logistic, difference"] == said.replace("-", "−")

    as_json = json.loads(obygaze("models", "compare", a, b, "--json").stdout)
    assert as_json["comparisons"][0]["scores"]["auroc"]["interval"] == [low, high]
    assert "f1_weighted" in as_json["comparisons"][0]["scores"]
    assert obygaze("models", "compare", a, a).exit_code == 2
    wrong = obygaze("models", "compare", a, b, "--metric", "aurc")
    assert "did you mean auroc?" in wrong.stderr
    (tmp_path / "half").mkdir()
    (tmp_path / "half/run.json").write_bytes((a / "run.json").read_bytes())
    half = obygaze("models", "compare", a, tmp_path / "half")
    assert (half.exit_code, half.stderr.count("\n")) == (1, 1)
    assert "is not complete" in half.stderr


def test_compare_takes_runs_results_and_folders(make_run, noisy_store):
    a, b = make_run("good"), make_run("noisy", store=noisy_store)
    compared = om.compare(a.run, b)
    assert compared == om.compare(str(a.run.folder), b.run.folder)
    assert str(compared) == compared.table("f1")
    assert compared.figure("auroc").axes
    with pytest.raises(UsageError, match="did you mean auroc"):
        compared.table("aurco")


def test_help_names_every_metric_that_is_compared(obygaze):
    text = " ".join(obygaze("models", "compare", "--help").stdout.split())
    assert [key for key in METRICS if key not in text] == [TREC]


def test_each_comparison_has_a_metric_of_its_own(obygaze, make_run, tmp_path):
    """Two classes have no macro F1, and three no positive class: neither is an error."""
    levels = {
        "positives": (), "train_negatives": (), "test_negatives": (), "levels": ("EN", "HN", "S"),
        "protocol": "split",
    }  # fmt: skip
    pair = [make_run("good").run.folder, make_run("classes", **levels).run.folder]
    alone = obygaze("models", "compare", *pair)
    assert (alone.exit_code, "is a test set of good: logistic, not" in alone.stderr) == (1, True)
    again = (
        make_run("again", seed=5).run.folder,
        make_run("classes-again", seed=5, **levels).run.folder,
    )
    result = obygaze("models", "compare", *pair, *again, "-o", tmp_path / "d.svg")
    assert result.exit_code == 0, result.output
    assert "films; F1 positive\n" in result.stdout
    assert "films; F1 macro\n" in result.stdout
    assert "EN / HN / S: 150 clips, F1 macro" in (tmp_path / "d.svg").read_text(encoding="utf-8")
    assert obygaze("models", "compare", *pair, *again, "--metric", "auroc").exit_code == 0
    lacking = obygaze("models", "compare", *pair, *again, "--metric", "f1_macro")
    assert "NOTE: left out: HN vs S, which has other classes and so no f1_macro" in lacking.stderr
    assert "HN vs S" not in lacking.stdout
    wrong = obygaze("models", "compare", *pair, *again, "--metric", "F2")
    assert (wrong.exit_code, "did you mean f1?" in wrong.stderr) == (2, False)
    wrong = obygaze("models", "compare", *pair, *again, "--metric", "F1")
    assert (wrong.exit_code, "did you mean f1?" in wrong.stderr) == (2, True)


def test_of_few_clips_no_interval_is_shown(obygaze, make_run, noisy_store):
    pair = [make_run("good").run.folder, make_run("noisy", store=noisy_store).run.folder]
    result = obygaze("models", "compare", *pair)
    assert "too few clips to say" in result.stdout
    assert " to +" not in result.stdout
    as_json = json.loads(obygaze("models", "compare", *pair, "--json").stdout)
    assert as_json["comparisons"][0]["smallest"] == 5


def test_one_model_alone_asks_for_a_second_run(make_run):
    alone = make_run("alone", estimators=("logistic",))
    with pytest.raises(ExperimentError, match="has one model, logistic; give a second run"):
        compare_runs([alone])


def test_a_note_names_other_training_tasks(make_run):
    a, b = make_run("good"), make_run("easy", train_negatives=("EN",))
    notes = compare_runs([a, b]).comparisons[0].notes
    assert notes == ("different training tasks: HN vs S in good, EN vs S in easy",)


def test_the_scores_that_models_run_prints_stand_below(make_run, noisy_store):
    """A mean over clips' mean probabilities is another number than the mean of the fits' scores."""
    good, noisy = make_run("good-split", protocol="split"), make_run("noisy", store=noisy_store)
    printed = {
        (results.run.folder.name, scores.model, scores.test): scores.mean["auroc"]
        for results in (good, noisy)
        for scores in results.run.record.scores
    }
    compared = compare_runs([good, noisy], models=["logistic"])
    for comparison in compared.comparisons:
        sides = comparison.first, comparison.second
        for side, mean in zip(sides, comparison.means["auroc"], strict=True):
            assert mean == printed[side.run, side.model, comparison.test]
        line = ", ".join(
            f"{side.name} {printed[side.run, side.model, comparison.test]:.3f}" for side in sides
        )
        text = " ".join(compared.table("auroc").split())
        assert f"print the mean of the fits' scores instead: {line}." in text


def test_the_headline_says_whether_models_differ(make_run, noisy_store):
    good = make_run("good-split", protocol="split")
    noisy = make_run("noisy-split", protocol="split", store=noisy_store)
    alone = compare_runs([good, noisy], models=["logistic"])
    clear = [
        comparison
        for comparison in alone.comparisons
        if np.prod(comparison.scores["auroc"].interval) > 0
    ]
    assert len(clear) == len(alone.comparisons) == 2
    widest = max(clear, key=lambda comparison: comparison.scores["auroc"].difference)
    difference = widest.scores["auroc"].difference
    assert alone.headline("auroc").startswith(
        "2 of 2 comparisons differ clearly; the most: good-split: logistic is better than "
        f"noisy-split: logistic on {widest.test}: AUROC {difference:+.3f} (95% interval "
    )
    assert " is worse than " not in alone.headline("calibration_error")
    same = replace(alone, comparisons=[replace(clear[0], second=clear[0].first)])
    same.comparisons[0].scores["auroc"] = replace(
        clear[0].scores["auroc"], difference=-0.0001, interval=(-0.1, 0.0001)
    )
    assert " do not differ clearly on " in same.headline("auroc")
    assert "AUROC 0.000 (95% interval -0.100 to 0.000)" in same.headline("auroc")
    assert "-0.000" not in same.table("auroc")


def test_a_note_names_another_balance(make_run, obygaze):
    """Whether an experiment names the protocol's own balance or leaves it out is the same."""
    a, b = make_run("good"), make_run("unbalanced", balance="none")
    note = "different balance: undersample in good, none in unbalanced"
    assert om.compare(a, b).comparisons[0].notes == (note,)
    assert om.compare(a, make_run("named", balance="undersample")).comparisons[0].notes == ()
    films = make_run("films", protocol="leave-film-out", split=None)
    assert om.compare(b, films).comparisons[0].notes[0].startswith("different protocols")
    assert "different balance" not in " ".join(om.compare(b, films).comparisons[0].notes)
    folders = a.run.folder, b.run.folder
    result = obygaze("models", "compare", *folders, "--json")
    assert json.loads(result.stdout)["comparisons"][0]["notes"] == [note]
    assert f"NOTE: {note}" in obygaze("models", "compare", *folders).stderr
