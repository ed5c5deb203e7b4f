"""Labels of several annotators: models are compared with each."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from pympi.Elan import Eaf
from scipy import stats
from sklearn import metrics as theirs

import obygaze_features as of
import obygaze_models as om
from obygaze_features.annotations.agreement import compare_label_sets
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.manifests import LabelSet, Manifest
from obygaze_models.experiments.annotators import annotators_f1, differing_clips
from obygaze_models.explain.error_factors import DIFFER, factors_of_clips
from obygaze_models.scoring import annotators
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows
from tests.kit.floats import close
from tests.kit.predicted import clips_of, fits_of
from tests.kit.run import LEVELS, labelled, write_store

FILMS, CLIPS = 5, 96
NAMES = ("ada", "bo")
Study = Callable[..., om.Experiment]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """``study(labels="ada")``: clips labelled by two annotators with different habits.

    Features tell whether a clip is Sure, and with what probability.
    """
    folder, chance = tmp_path_factory.mktemp("study"), np.random.default_rng(5)
    ids = [f"film{film}-{clip:03}" for film in range(FILMS) for clip in range(CLIPS)]
    features = chance.normal(size=(len(ids), 8)).astype(np.float32)
    is_sure = chance.random(len(ids)) < 1 / (1 + np.exp(-2 * features[:, 0]))
    sets = []
    for name, mark in zip(NAMES, (0.9, 0.6), strict=True):
        marks = chance.random(len(ids)) < mark * (0.1 + 0.9 * is_sure)
        levels = np.where(marks, "S", "EN").tolist()
        levels[10] = "HN"  # is of no class of the task
        levels[11] = "HN" if sets else "S"  # without a class for one annotator
        own = slice(len(sets), None)
        rows = (ids[own], levels[own], [()] * len(ids[own]))
        sets.append(LabelSet(name, *rows, about={"annotator": name}))
    manifest = labelled(ids, ["NS"] * len(ids), seconds=60)
    merged = merge_labels(sets, manifest).labels
    manifest = manifest.with_parts(labels=[merged, *sets])
    manifest.save(folder / "manifest")
    write_store(folder / "toy.zarr", manifest, dict(zip(ids, features, strict=True)))
    experiment = om.Experiment(
        name="study", manifest=folder / "manifest", store=folder / "toy.zarr", positives=["S"],
        train_negatives=["EN"], protocol="leave-film-out", balance="none", labels=NAMES,
        estimators=["logistic"],
    )  # fmt: skip
    return lambda **changes: structs.replace(experiment, **changes)


@pytest.fixture(scope="module")
def run(study: Study, tmp_path_factory: pytest.TempPathFactory) -> om.Run:
    return om.run_experiment(study(), tmp_path_factory.mktemp("runs") / "run")


def labels_of(experiment: om.Experiment, name: str) -> dict[str, int]:
    level_of = Manifest.load(experiment.manifest).labels(name).level_of
    return {clip: ("EN", "S").index(level) for clip, level in level_of.items() if level != "HN"}


def shares_of(run: om.Run) -> dict[str, float]:
    answers: dict[str, list[float]] = {}
    for fit in fits_of(run):
        for clip, share in zip(fit.ids, fit.probabilities.tolist(), strict=True):
            answers.setdefault(clip, []).append(share)
    return {clip: float(np.mean(shares)) for clip, shares in answers.items()}


def rater(run: om.Run, name: str = "logistic") -> annotators.Rater:
    [compared] = run.record.annotators.values()
    return next(rater for rater in compared.raters if rater.name == name)


def test_scores_equal_those_of_scikit_learn(study: Study, run: om.Run) -> None:
    experiment = study()
    first, second = (labels_of(experiment, name) for name in NAMES)
    answers = shares_of(run)
    clips = [clip for clip in answers if clip in first and clip in second]
    shares, (a, b) = (
        np.array([answers[clip] for clip in clips]),
        ([own[clip] for clip in clips] for own in (first, second)),
    )
    called = shares > 0.5
    [compared] = run.record.annotators.values()
    model, annotator = rater(run), rater(run, "ada")
    assert (compared.annotators, compared.clips, compared.films) == ([*NAMES], len(clips), FILMS)
    assert compared.agreement == close(theirs.cohen_kappa_score(a, b))
    assert annotator.f1["bo"] == compared.f1 == close(theirs.f1_score(a, b))
    film_of = np.array([clip[:5] for clip in clips])
    f1_of_all = theirs.f1_score(a, b)
    pseudovalues = []
    for film in np.unique(film_of):
        others = film_of != film
        f1_of_others = theirs.f1_score(np.array(a)[others], np.array(b)[others])
        pseudovalues.append(FILMS * f1_of_all - (FILMS - 1) * f1_of_others)
    jackknife = stats.ttest_1samp(pseudovalues, 0).confidence_interval(0.95)
    half = (jackknife.high - jackknife.low) / 2
    assert compared.f1_interval == close((f1_of_all - half, f1_of_all + half))
    test = next(iter(run.record.annotators))
    manifest = Manifest.load(experiment.manifest)
    common = {clip: (first[clip], second[clip]) for clip in first.keys() & second.keys()}
    everywhere = theirs.f1_score(*zip(*common.values(), strict=True))
    pairs = [compare_label_sets(manifest, *NAMES)]
    assert annotators_f1(run.record, test, pairs) == close((compared.f1, everywhere))
    differ = {clip for clip in clips if first[clip] != second[clip]}
    assert differing_clips(run, test) == differ
    clip_of = clips_of(run)
    scored, wrong = [clip_of[clip] for clip in answers], np.arange(len(answers)) % 3 == 0
    [factors] = factors_of_clips(scored, wrong, LEVELS, by_film=False, differing=differ)
    assert (factors.factors[-1].name, factors.factors[-1].clips) == (DIFFER, len(differ))
    for name, own in (("ada", a), ("bo", b)):
        assert model.kappa[name] == close(theirs.cohen_kappa_score(own, called))
        assert model.f1[name] == close(theirs.f1_score(own, called))
        areas = [
            theirs.roc_auc_score(np.array(own)[film_of == film], shares[film_of == film])
            for film in np.unique(film_of)
        ]
        assert model.auroc[name] == close(np.mean(areas))
        guess = theirs.f1_score(own, [1] * len(own))
        assert rater(run, "all positive").f1[name] == close(guess)
    doubled = np.concatenate([a, b]), np.concatenate([shares, shares])
    assert model.brier == close(theirs.brier_score_loss(*doubled))
    assert model.cross_entropy == close(theirs.log_loss(*doubled))
    constant = rater(run, "same for all clips")
    assert constant.brier == close(doubled[0].mean() * (1 - doubled[0].mean()))
    mean = np.mean([model.kappa[name] or 0.0 for name in NAMES])
    assert model.difference == close(mean - (compared.agreement or 0.0))
    assert set(rater(run, annotators.ESTIMATE).kappa) == {*NAMES}
    assert set(model.kappa) == {*NAMES, annotators.ESTIMATE}


def em_by_hand(votes: np.ndarray, classes: int) -> np.ndarray:
    """Compute the two steps of Dawid and Skene from the sums in their paper."""
    answers = np.array([votes == label for label in range(classes)], float)  # label, rater, clip
    truth = answers.sum(axis=1) / answers.sum(axis=(0, 1))
    for _ in range(3000):
        habit = np.einsum("kn,lan->kal", truth, answers)
        habit /= habit.sum(axis=2, keepdims=True)
        chances = np.where(votes >= 0, np.einsum("kal,lan->kan", habit, answers), 1).prod(axis=1)
        joint = truth.mean(axis=1)[:, None] * chances
        truth = joint / joint.sum(axis=0)
    return truth.T


@pytest.mark.parametrize(("raters", "classes"), [(2, 2), (3, 2), (4, 3)])
def test_estimated_truth_follows_dawid_and_skene(raters: int, classes: int) -> None:
    chance = np.random.default_rng(raters)
    truth = chance.integers(0, classes, 30)
    wrong = chance.integers(0, classes, (raters, 30))
    votes = np.where(chance.random((raters, 30)) < 0.75, truth, wrong)
    votes[0, :4] = -1
    expected = em_by_hand(votes, classes)
    np.testing.assert_allclose(annotators.dawid_skene(votes, classes), expected, atol=1e-3)


def votes_and_models() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], list[str]]:
    chance = np.random.default_rng(0)
    truth = chance.integers(0, 2, 1200)

    def judge(mistakes: float) -> np.ndarray:
        return np.where(chance.random(1200) < mistakes, 1 - truth, truth)

    shares = {"poor": 0.4, "alike": 0.2, "better": 0.01}
    models = {name: judge(share) * 0.8 + 0.1 for name, share in shares.items()}
    films = [f"film{row % 12}" for row in range(1200)]
    return {"ada": judge(0.2), "bo": judge(0.2)}, models, films


def test_the_sentence_says_less_more_or_neither():
    votes, models, films = votes_and_models()
    compared = annotators.compare_with_annotators(votes, models, films, ("EN", "S"))
    words = {
        "poor": "agrees less with",
        "alike": "is inconclusive",
        "better": "agrees more with",
    }
    for name, verdict in words.items():
        first, *_ = compared.sentence(name).split(". ")
        assert compared.which_clips in first, "a claim names the clips that it is about"
        assert verdict in compared.sentence(name)
        comparison = next(rater for rater in compared.raters if rater.name == name)
        assert comparison.interval[0] < comparison.difference < comparison.interval[1]
    for few_films in (["one"] * 1200, ["one", "two"] * 600):
        uncertain = annotators.compare_with_annotators(votes, models, few_films, ("EN", "S"))
        assert "too few films" in uncertain.sentence("poor")
        assert "less" not in uncertain.sentence("poor")


def test_intervals_of_f1_stay_within_its_range():
    """The jackknife of five films, of which one is hard, would end above 1."""
    films = [f"f{film}" for film in range(5) for _ in range(20)]
    ada = np.tile([0, 1], 50)
    bo = np.where(np.arange(100) < 20, 1 - ada, ada)
    model = np.where(np.arange(100) < 16, 1 - ada, ada).astype(float)
    votes = {"ada": ada, "bo": bo}
    compared = annotators.compare_with_annotators(
        votes, {"m": model}, films, ("calm", "tense"), cross_validated=True
    )
    [rater] = [rater for rater in compared.raters if rater.kind == "model"]
    ends = [compared.f1_interval, *rater.f1_interval.values()]
    assert max(high for _, high in ends) == 1.0
    assert all(0.0 <= low <= high <= 1.0 for low, high in ends)


def test_a_model_is_compared_on_its_test_clips():
    votes, models, films = votes_and_models()
    before = annotators.compare_with_annotators(votes, {"poor": models["poor"]}, films, ("EN", "S"))
    asked = np.where(np.arange(1200) < 60, models["better"], np.nan)
    votes["cy"] = np.where(np.arange(1200) < 900, votes["ada"], -1)
    of_three = annotators.compare_with_annotators(
        votes, models | {"ada": asked}, films, ("EN", "S")
    )
    assert (before.clips, of_three.clips) == (1200, 900)
    counts = {rater.name: rater.clips for rater in of_three.raters if rater.kind == "model"}
    assert counts == {"poor": 900, "alike": 900, "better": 900, "ada": 60}  # named as one is
    assert of_three.sentence("ada").endswith("on the 60 clips that it predicted.")
    assert of_three.f1_sentence("ada") == ""
    assert "against cy; annotator against annotator" in of_three.f1_sentence("poor")
    model = of_three.raters[0]
    part = slice(0, 900)
    kappa = theirs.cohen_kappa_score(votes["cy"][part], models["poor"][part] > 0.5)
    assert model.kappa["cy"] == close(kappa)
    [same] = [r for r in of_three.raters if (r.name, r.kind) == ("cy", "annotator")]
    assert same.kappa["ada"] == 1


def test_each_annotators_labels_are_in_the_table(study: Study, run: om.Run, tmp_path: Path) -> None:
    experiment = study()
    first, second = (labels_of(experiment, name) for name in NAMES)
    outputs = ("--elan", tmp_path / "all", "-o", tmp_path / "a.csv")
    assert run_obygaze("models", "predict", run.folder, *outputs).exit_code == 0
    film = Eaf(str(tmp_path / "all/film0.eaf"))
    holes = [n for n in film.get_annotation_data_for_tier("logistic: EN vs S") if "no pred" in n[2]]
    assert sorted(holes) == [(600_000, 660_000, "no prediction: Hard Negative")]
    merged = Manifest.load(experiment.manifest).labels("merged").level_of
    for row in csv_rows(tmp_path / "a.csv"):
        assert merged[row["clip"]] == row["merged"]
        named = {"EN": 0, "S": 1, "": None, "HN": None}
        assert [named[row[f"label of {name}"]] for name in NAMES] == [
            own.get(row["clip"]) for own in (first, second)
        ]
    copy = shutil.copytree(run.folder, tmp_path / "other")
    compared = run_obygaze("models", "compare", run.folder, copy).stdout
    assert f"F1 of run: logistic: {rater(run).f1['ada']:.2f} (" in compared
    path = copy / "annotators.csv"
    path.write_text(path.read_text().replace(",negative,", ",positive,", 1))
    for read in (om.Run.predictions, om.Run.annotations):
        with pytest.raises(of.ObygazeError, match="changed"):
            read(om.load_run(copy))


SLIPS = [
    ({"labels": ["ada", "cy"]}, "cy"),
    ({"labels": ["ada", "merged"]}, "obygaze annotations merge"),
    ({"labels": ["ada"]}, 'labels = "ada"'),
]


@pytest.mark.parametrize(("changes", "fact"), SLIPS)
def test_invalid_labels_are_refused(study, changes, fact, tmp_path):
    with pytest.raises(of.ObygazeError, match=fact):
        om.run_experiment(study(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_single_annotator_gives_no_comparison(study: Study, tmp_path: Path) -> None:
    run = om.run_experiment(study(labels="ada"), tmp_path / "run")
    assert run.record.annotators == {}
    assert not (run.folder / "annotators.csv").exists()
    assert run.annotations() == {}


def test_annotators_may_have_the_names_of_columns_and_models(study: Study, tmp_path: Path) -> None:
    named = study(estimators=[{"name": "logistic", "as": "id"}], protocol="split")
    manifest = Manifest.load(named.manifest)
    names = ("id", "test")
    sets = [replace(manifest.labels(old), name=new) for old, new in zip(NAMES, names, strict=True)]
    merged = merge_labels(sets, manifest, "both").labels
    manifest.with_parts(labels=[merged, *sets]).save(tmp_path / "manifest")
    experiment = structs.replace(named, manifest=tmp_path / "manifest", labels=["test", "id"])
    run = om.run_experiment(experiment, tmp_path / "run")
    assert run.record.manifest.labels == "both"
    first = next(iter(run.annotations()["EN vs S"].values()))
    assert set(first) <= {*names}
