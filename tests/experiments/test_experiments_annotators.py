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
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.manifests import LabelSet, Manifest
from obygaze_models.experiments.annotators import differing_clips
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
    merged = merge_labels(sets, manifest)
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


def test_kappas_equal_those_of_scikit_learn(study: Study, run: om.Run) -> None:
    experiment = study()
    first, second = (labels_of(experiment, name) for name in NAMES)
    answers = shares_of(run)
    clips = [clip for clip in answers if clip in first and clip in second]
    called = np.array([answers[clip] for clip in clips]) > 0.5
    a, b = ([own[clip] for clip in clips] for own in (first, second))
    [compared] = run.record.annotators.values()
    model = rater(run)
    assert (compared.annotators, compared.clips, compared.films) == ([*NAMES], len(clips), FILMS)
    assert compared.agreement == close(theirs.cohen_kappa_score(a, b))
    assert rater(run, "ada").kappa == {"bo": compared.agreement}
    for name, own in (("ada", a), ("bo", b)):
        assert model.kappa[name] == close(theirs.cohen_kappa_score(own, called))
    mean = np.mean([model.kappa[name] or 0.0 for name in NAMES])
    assert model.difference == close(mean - (compared.agreement or 0.0))
    differ = {clip for clip in clips if first[clip] != second[clip]}
    test = next(iter(run.record.annotators))
    assert differing_clips(run, test) == differ
    clip_of = clips_of(run)
    scored, wrong = [clip_of[clip] for clip in answers], np.arange(len(answers)) % 3 == 0
    [factors] = factors_of_clips(scored, wrong, LEVELS, by_film=False, differing=differ)
    assert (factors.factors[-1].name, factors.factors[-1].clips) == (DIFFER, len(differ))


def compare(votes, models, films):
    classes = ("EN", "S")
    return annotators.compare_with_annotators(
        votes,
        models,
        films,
        classes,
    )


def votes_and_models() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], list[str]]:
    chance = np.random.default_rng(0)
    truth = chance.integers(0, 2, 1200)

    def judge(mistakes: float) -> np.ndarray:
        return np.where(chance.random(1200) < mistakes, 1 - truth, truth)

    shares = {"poor": 0.4, "alike": 0.2, "better": 0.01}
    models = {name: judge(share).astype(float) for name, share in shares.items()}
    films = [f"film{row % 12}" for row in range(1200)]
    return {"ada": judge(0.2), "bo": judge(0.2)}, models, films


def test_the_sentence_says_less_more_or_inconclusive():
    votes, models, films = votes_and_models()
    compared = compare(votes, models, films)
    words = {"poor": "agrees less", "alike": "inconclusive", "better": "agrees more"}
    for name, verdict in words.items():
        first, last = compared.sentence(name).split(". ")
        assert compared.which_clips in first, "a claim names the clips that it is about"
        assert last.endswith(f"{verdict}.")
        comparison = next(rater for rater in compared.raters if rater.name == name)
        assert comparison.interval[0] < comparison.difference < comparison.interval[1]
    for few_films in (["one"] * 1200, ["one", "two"] * 600):
        uncertain = compare(votes, models, few_films).sentence("poor")
        assert "too few films" in uncertain
        assert "less" not in uncertain


def test_the_interval_is_a_jackknife_over_films():
    votes, models, films = votes_and_models()
    film_of = np.array(films)
    model = models["alike"]

    def difference(rows: np.ndarray) -> float:
        kappa = theirs.cohen_kappa_score
        ada, bo, own = votes["ada"][rows], votes["bo"][rows], model[rows]
        return (kappa(ada, own) + kappa(bo, own)) / 2 - kappa(ada, bo)

    whole = difference(film_of != "")
    names = np.unique(film_of)
    pseudovalues = [12 * whole - 11 * difference(film_of != name) for name in names]
    jackknife = stats.ttest_1samp(pseudovalues, 0).confidence_interval(0.95)
    half = (jackknife.high - jackknife.low) / 2
    compared = compare(votes, {"alike": model}, films)
    assert compared.raters[0].interval == close((whole - half, whole + half))


def test_models_and_annotators_are_compared_on_the_clips_of_all():
    votes, models, films = votes_and_models()
    models["ada"] = np.where(np.arange(1200) < 600, models["better"], np.nan)  # named as one is
    votes["cy"] = np.where(np.arange(1200) < 900, votes["ada"], -1)
    compared = compare(votes, models, films)
    assert compared.clips == 600
    part = slice(0, 600)
    kappa = theirs.cohen_kappa_score(votes["cy"][part], models["poor"][part])
    assert compared.raters[0].kappa["cy"] == close(kappa)
    [same] = [r for r in compared.raters if (r.name, r.kind) == ("cy", "annotator")]
    assert same.kappa["ada"] == 1
    assert compare(votes, models | {"none": np.full(1200, np.nan)}, films) is None


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
    merged = merge_labels(sets, manifest, "both")
    manifest.with_parts(labels=[merged, *sets]).save(tmp_path / "manifest")
    experiment = structs.replace(named, manifest=tmp_path / "manifest", labels=["test", "id"])
    run = om.run_experiment(experiment, tmp_path / "run")
    assert run.record.manifest.labels == "both"
    first = next(iter(run.annotations()["EN vs S"].values()))
    assert set(first) <= {*names}
