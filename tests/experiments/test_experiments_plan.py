"""Files of experiments and errors in them; which clips a protocol trains, stops and tests with."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import obygaze_features as of
import obygaze_models as om
from obygaze_features.errors import ExperimentError, ObygazeError
from obygaze_features.manifests import Manifest, obygaze_scheme

# Drawn labels go straight to splitters; EveryFold and LeaveFilmOut are public.
from obygaze_models.data.splitters import Clips, LeakFree, OfficialSets
from tests.kit.files import write

UNUSED = -1
FILE = ['name = "Sure"', 'manifest = "../manifests/obygaze12"', 'store = "/data/xclip.zarr"']
LEVELS = ['positives = ["S"]', 'train_negatives = ["HN"]']


def load(folder, *lines, task=LEVELS):
    return om.load_experiment(write(folder / "experiment.toml", *FILE, *task, *lines))


def names(experiment):
    tasks = experiment.tasks(obygaze_scheme())
    return [(task.key, [test.key for test in tests]) for task, tests in tasks.items()]


def test_an_experiment_is_read_from_a_file(tmp_path):
    experiment = load(tmp_path, 'test_negatives = [["EN"], ["EN", "HN"]]\nseed = 3')
    assert experiment.manifest == (tmp_path / "../manifests/obygaze12").as_posix()
    assert (experiment.store, experiment.seed) == ("/data/xclip.zarr", 3)
    assert names(experiment) == [("HN vs S", ["EN vs S", "EN+HN vs S"])]
    line = 'estimators = ["mlp", {name = "mlp", as = "narrow", hidden_layer_sizes = [8]}]'
    models = load(tmp_path, line).models()
    assert list(models) == ["mlp", "narrow"]
    weighted = load(tmp_path, 'balance = "weights"').models()["mlp"].estimator
    assert weighted.class_weight == "balanced"
    assert models["narrow"].estimator.hidden_layer_sizes == [8]
    concepts = load(tmp_path, task=['concepts = ["Look", "Clothes"]', 'negatives = "c"'])
    tasks = [name for name, _ in names(concepts)]
    assert tasks == ["Look vs HN+S without", "Clothing vs HN+S without"]
    every = [name for name, _ in names(load(tmp_path, task=['concepts = "all"']))]
    assert every == [f"{name} vs EN" for name in obygaze_scheme().visual_concepts]


SLIPS = [
    ("sead = 1", "unknown key 'sead'; did you mean seed?"),
    ('protocol = "paper"\nbalance = "none"', "protocol paper fixes the training clips"),
    ('concepts = ["Look"]', "set exactly one of positives"),
    ('estimators = ["mlp", "mlp"]', "two models are called mlp"),
    ('estimators = [{name = "mlp", threshold = "x"}]', "mlp: Invalid enum value 'x'"),
    ('negatives = "a"', "negatives needs concepts"),
    ("predictions = 3", "predictions: Expected `array`, got `int`"),
    ('protocol = "papr"', "unknown protocol 'papr'; did you mean paper?"),
]


@pytest.mark.parametrize(("line", "fact"), SLIPS)
def test_user_errors_in_a_file_are_one_line(tmp_path, line, fact):
    with pytest.raises(ExperimentError) as caught:
        load(tmp_path, line)
    assert fact in str(caught.value)
    assert "\n" not in str(caught.value)


CUT = {"name": "logistic", "threshold": "validation"}
NO_PAIR = {"positives": (), "train_negatives": (), "test_negatives": ()}
REFUSED = [
    ({"estimators": ("ridge",)}, "ridge cannot predict HN vs S"),
    ({"estimators": (CUT,), "levels": ("EN", "HN", "S")} | NO_PAIR, "threshold needs two classes"),
    ({"levels": ("EN", "HN", "S"), "protocol": "paper"} | NO_PAIR, "for two classes"),
    ({"concepts": ("all",)} | NO_PAIR, "'levels' has no visual concepts"),
    ({"estimators": (om.LinearSVMProbe(),)}, "Pass LinearSVMProbe objects to om.cross_validate"),
    ({"protocol": "released", "split": None}, "02_HN_S"),
    ({"protocol": "official", "split": None}, "the official protocol uses"),
    ({"score": "aurok"}, "unknown score 'aurok'; did you mean auroc?"),
    ({"groups": "serie", "split": ""}, "unknown column 'serie'; choose from film, media, kind"),
]


@pytest.mark.parametrize(("change", "fact"), REFUSED)
def test_an_impossible_experiment_leaves_no_run(experiment, tmp_path, change, fact):
    with pytest.raises(ObygazeError) as caught:
        om.run_experiment(structs.replace(experiment, **change), tmp_path / "of/mine/run")
    assert fact in str(caught.value)
    assert not [*tmp_path.glob("of/mine/*/models")]
    assert not (tmp_path / "of/mine/run").exists()


def test_the_only_split_of_a_manifest_is_used_if_it_keeps_films_whole(world, make_run, tmp_path):
    assert make_run("mixed", split=None).header.split == "5 folds by film, seed 0"
    manifest = Manifest.load(world.manifest)
    whole = of.Manifest("whole", manifest.items, manifest.scheme)
    whole = whole.with_parts(manifest.labels(), of.leave_film_out(manifest))
    whole.save(tmp_path / "whole")
    run = make_run("whole", manifest=tmp_path / "whole", split=None)
    assert run.header.split == "leave-film-out"


@st.composite
def labelled_folds(draw):
    """Draw folds that each have both classes and unlabelled clips, in any order."""
    folds = []
    labels = []
    for fold in range(draw(st.integers(3, 6))):
        for label in (0, 1, UNUSED):
            count = draw(st.integers(1, 6))
            folds += [fold] * count
            labels += [label] * count
    folds += [-1, -1]  # clips without a fold
    labels += [0, 1]
    order = draw(st.permutations(range(len(folds))))
    return np.array(folds)[order], np.array(labels)[order]


def divide(cv, labels, *, folds=(), films=()):
    """Return the rows of each fit."""
    clips = Clips(y=labels, folds=np.array(folds), groups=films, last=max(folds, default=-1))
    return [*cv.folds(clips, {"x": labels})]


def leave_film_out(films, labels, **options):
    return divide(om.LeaveFilmOut(balance="none", **options), labels, films=films)


def rows_where(mask):
    return np.flatnonzero(mask).tolist()


def rows_of(draw):
    return draw.train, draw.validation, draw.tests["x"]


@pytest.mark.parametrize("kind", [LeakFree, om.EveryFold])
@given(labelled_folds(), st.integers(0, 2**32))
def test_train_validation_and_test_never_meet(kind, clips, seed):
    folds, labels = clips
    last = int(folds.max())
    draws, again = (divide(kind(random_state=seed), labels, folds=folds) for _ in range(2))
    assert len({draw.seed for draw in draws}) == len(draws)
    for fold, draw in enumerate(draws):
        tested = last if kind is LeakFree else fold
        held = fold if kind is LeakFree else (fold + 1) % (last + 1)
        assert draw.tests["x"].tolist() == rows_where((folds == tested) & (labels >= 0))
        assert draw.validation.tolist() == rows_where((folds == held) & (labels >= 0))
        pool = (folds >= 0) & (folds != tested) & (folds != held)
        smaller = np.bincount(labels[pool & (labels >= 0)], minlength=2).min()
        assert pool[draw.train].all()
        assert len({*draw.train}) == len(draw.train)
        assert Counter(labels[draw.train].tolist()) == {0: smaller, 1: smaller}
        assert (draw.train == again[fold].train).all()


@pytest.mark.parametrize(
    ("labels", "validating"),
    [
        ([0, 1] * 2 + [0] * 4 + [0, 1] * 4, [2, 2, 3, 0]),
        ([0] * 4 + [1] * 4 + [0] * 4, [1, 2, 0]),  # none has all classes: the next one
    ],
)
def test_a_fold_of_one_class_does_not_validate(labels, validating):
    folds = np.arange(len(labels)) // 4
    draws = divide(om.EveryFold(), np.array(labels), folds=folds)
    assert [set(draw.validation // 4) for draw in draws] == [{fold} for fold in validating]


@pytest.mark.parametrize("sure", [180, 20, 900])
@pytest.mark.parametrize("negatives", [("EN",), ("HN",), ("EN", "HN")])
def test_the_paper_split_follows_the_papers_text(negatives, sure):
    """8 folds, all positives, and as many folds of negatives as balance them; by hand."""
    levels = np.repeat(["EN", "HN", "S", "NS"], [430, 170, sure, 40])
    folds = np.arange(len(levels)) % 10
    positive = levels == "S"
    negative = np.isin(levels, negatives)
    labels = np.where(positive, 1, np.where(negative, 0, UNUSED))
    early = folds < 8
    size = (negative & early).sum() / 8
    wanted = (positive & early).sum()
    best = min(range(1, 9), key=lambda count: abs(count * size - wanted))
    paper = om.Experiment(name="x", manifest="m", store="s", protocol="paper").splitter()
    draws = divide(paper, labels, folds=folds)
    assert len({draw.seed for draw in draws}) == len(draws) == 8
    for run, draw in enumerate(draws):
        drawn = np.isin(folds, (run + np.arange(best)) % 8)
        parts = (early & positive | drawn & negative, folds == 8, folds == 9)
        for rows, part in zip(rows_of(draw), parts, strict=True):
            assert sorted(rows) == rows_where(part & (labels >= 0))


def test_every_film_is_left_out_once():
    chance = np.random.default_rng(4)
    films = np.char.add("tt", chance.integers(0, 5, 300).astype(str))
    labels = chance.choice([0, 1, UNUSED], 300)
    labels[films == "tt2"] = 0  # no positive: never tests, but trains
    draws = leave_film_out(films, labels, validation_films=None)
    pairs = [*permutations(["tt0", "tt1", "tt3", "tt4"], 2)]
    for draw, (tested, held) in zip(draws, pairs, strict=True):
        assert draw.name == f"test {tested}, validation {held}"
        train, validation, test = rows_of(draw)
        assert {*films[test]} == {tested}
        assert {*films[validation]} == {held}
        assert {*films[train]} == {*films} - {tested, held}
        assert sorted([*train, *validation, *test]) == rows_where(labels >= 0)


def test_a_film_is_tested_if_it_has_ten_clips_of_each_class():
    films = np.repeat([*"abcd", ""], 20)
    labels = []
    for positives in (10, 8, 9, 11, 10):
        labels += [0] * (20 - positives) + [1] * positives
    labels = np.array(labels)
    with pytest.raises(ExperimentError, match="group for 20 of 100 clips"):
        leave_film_out(films, labels)
    labels[80:] = UNUSED  # clips without a film take no part
    with pytest.raises(ExperimentError, match=r"10 or more clips of each class.*got 1 of 5"):
        leave_film_out(films, labels)
    labels[40] = 1  # the film c has ten of each, too
    draws = leave_film_out(films, labels)
    assert [draw.name for draw in draws] == ["test a, validation c", "test c, validation a"]


def test_validation_films_may_be_drawn():
    films = np.repeat([*"abcdef"], 20)
    labels = np.tile([0, 1], 60)

    def draw(count, seed=0):
        folds = leave_film_out(films, labels, random_state=seed, validation_films=count)
        return {fold.name: [rows.tolist() for rows in rows_of(fold)] for fold in folds}

    every = draw(None)
    drawn = draw(2)
    assert drawn.items() <= every.items()
    tested = sorted(name[:6] for name in drawn)
    assert tested == sorted(f"test {film}" for film in films[::10])
    assert drawn == draw(2) != draw(2, seed=1)
    assert draw(5) == draw(9) == every
    assert len(draw(0)) == 6


def test_official_sets_train_validate_and_test():
    labels = np.array([0, 1, -1, 0, 1, 0, 1, 1])
    folds = [0, 0, 0, 1, 1, 2, 2, -1]
    [draw] = divide(OfficialSets(), labels, folds=folds)
    assert [rows.tolist() for rows in rows_of(draw)] == [[0, 1], [3, 4], [5, 6]]
    # Of two sets, a tenth of each class is drawn for validation.
    labels = np.repeat([0, 1, 0, 1], [95, 20, 1, 1])
    folds = [0] * 115 + [1, 1]
    [draw] = divide(OfficialSets(random_state=0), labels, folds=folds)
    assert np.bincount(labels[draw.validation]).tolist() == [10, 2]
    assert sorted([*draw.train, *draw.validation]) == list(range(115))
    [other] = divide(OfficialSets(random_state=1), labels, folds=folds)
    assert draw.validation.tolist() != other.validation.tolist()
