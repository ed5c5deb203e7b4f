from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Run, RunSet
from obygaze_models.dataset import ClipDataset
from obygaze_models.leaks import find_leaks
from obygaze_models.protocols import (
    LeakFree,
    LeaveFilmOut,
    ManifestSplit,
    OfficialSplit,
    PaperSplit,
    Released,
)
from obygaze_models.tasks import UNUSED, ConceptTask, LevelsTask, LevelTask


@st.composite
def labelled_folds(draw):
    """Folds, each with both classes and clips of no class, in any order."""
    folds, labels = [], []
    for fold in range(draw(st.integers(3, 6))):
        for label in (0, 1, UNUSED):
            count = draw(st.integers(1, 6))
            folds += [fold] * count
            labels += [label] * count
    folds += [-1, -1]  # clips without a fold
    labels += [0, 1]
    order = draw(st.permutations(range(len(folds))))
    return np.array(folds)[order], np.array(labels)[order]


def make(kind, folds, labels, tests, *, last, seed):
    return kind(folds, last=last, random_state=seed).make_folds(labels, tests)


def leave_film_out(films, labels, tests, *, seed):
    return LeaveFilmOut(random_state=seed).make_folds(labels, tests, groups=films)


def rows_of(draw):
    return draw.train, draw.validation, draw.tests["x"]


@given(labelled_folds(), st.integers(0, 2**32))
def test_train_validation_and_test_never_meet(world, seed):
    folds, labels = world
    last = int(folds.max())
    draws = make(LeakFree, folds, labels, {"x": labels}, last=last, seed=seed)

    assert len({draw.seed for draw in draws}) == len(draws) == last
    for fold, draw in enumerate(draws):
        assert set(folds[draw.tests["x"]]) == {last}
        assert set(folds[draw.validation]) == {fold}
        assert all(len(set(rows.tolist())) == len(rows) for rows in rows_of(draw))
        parts = [set(rows.tolist()) for rows in rows_of(draw)]
        assert sum(map(len, parts)) == len(set.union(*parts))
        assert UNUSED not in labels[np.concatenate(rows_of(draw))]
        assert -1 not in folds[np.concatenate(rows_of(draw))]

        pool = (folds >= 0) & (folds != fold) & (folds != last)
        smaller = min((labels[pool] == 0).sum(), (labels[pool] == 1).sum())
        assert (labels[draw.train] == 0).sum() == (labels[draw.train] == 1).sum() == smaller
    assert find_leaks(draws, [f"clip-{row}" for row in range(len(folds))]) == []


@given(labelled_folds(), st.integers(0, 2**32))
def test_any_split_tests_every_clip_once(world, seed):
    folds, labels = world
    last = int(folds.max())
    draws = make(ManifestSplit, folds, labels, {"x": labels}, last=last, seed=seed)
    tested = np.concatenate([draw.tests["x"] for draw in draws])
    assert sorted(tested.tolist()) == np.flatnonzero((labels >= 0) & (folds >= 0)).tolist()
    for fold, draw in enumerate(draws):
        assert set(folds[draw.tests["x"]]) == {fold}
        assert set(folds[draw.validation]) == {(fold + 1) % (last + 1)}
        assert not {fold, (fold + 1) % (last + 1), -1} & set(folds[draw.train])
        assert len(set(Counter(labels[draw.train].tolist()).values())) == 1


def test_a_fold_of_one_class_does_not_validate():
    folds, labels = np.repeat([0, 1, 2, 3], 4), np.array([0, 1] * 2 + [0] * 4 + [0, 1] * 4)
    draws = make(ManifestSplit, folds, labels, {"x": labels}, last=3, seed=0)
    assert [set(folds[draw.validation]) for draw in draws] == [{2}, {2}, {3}, {0}]


@given(labelled_folds(), st.integers(0, 2**32))
def test_the_seed_decides_the_draws(world, seed):
    folds, labels = world
    last = int(folds.max())
    first, again = (make(LeakFree, folds, labels, {}, last=last, seed=seed) for _ in range(2))
    assert all((a.train == b.train).all() for a, b in zip(first, again, strict=True))


def test_every_run_draws_its_own_negatives():
    folds = np.repeat([0, 1, 2, 3], 50)
    labels = np.tile([1, 0, 0, 0, 0], 40)
    draws = make(LeakFree, folds, labels, {}, last=3, seed=0)
    in_fold_2 = [set(d.train[folds[d.train] == 2].tolist()) for d in draws[:2]]
    assert in_fold_2[0] != in_fold_2[1]


def paper_by_hand(clips, positive, negative):
    """The text: 8 folds, all positives, as many folds of negatives as balance best."""
    count = {
        level: sum(1 for of, fold in clips if of in level and fold < 8)
        for level in (positive, negative)
    }
    best = min(range(1, 9), key=lambda k: abs(k / 8 * count[negative] - count[positive]))
    for run in range(8):
        folds = {(run + step) % 8 for step in range(best)}
        train = {
            row
            for row, (level, fold) in enumerate(clips)
            if fold < 8 and (level in positive or (level in negative and fold in folds))
        }
        both = (*positive, *negative)
        yield (
            train,
            {row for row, (level, fold) in enumerate(clips) if fold == 8 and level in both},
            {row for row, (level, fold) in enumerate(clips) if fold == 9 and level in both},
        )


@pytest.mark.parametrize("negative", [("EN",), ("HN",), ("EN", "HN")])
def test_the_papers_text(negative):
    sizes = {"EN": 430, "HN": 170, "S": 180, "NS": 40}
    clips = [(level, row % 10) for level, size in sizes.items() for row in range(size)]
    folds = np.array([fold for _, fold in clips])
    code_of = {"S": 1} | dict.fromkeys(negative, 0)
    labels = np.array([code_of.get(level, UNUSED) for level, _ in clips])
    draws = make(PaperSplit, folds, labels, {"x": labels}, last=9, seed=0)
    expected = list(paper_by_hand(clips, ("S",), negative))
    assert [tuple(set(rows.tolist()) for rows in rows_of(draw)) for draw in draws] == expected
    assert len({draw.seed for draw in draws}) == 8


def test_each_film_is_left_out_in_turn():
    chance = np.random.default_rng(4)
    films = [f"tt{number}" for number in chance.integers(0, 5, 300)]
    labels = chance.choice([0, 1, UNUSED], 300)
    labels[[film == "tt2" for film in films]] = 0  # no positive: never tests, but trains
    draws = leave_film_out(films, labels, {"x": labels}, seed=0)
    expected = []
    for test, other in product(["tt0", "tt1", "tt3", "tt4"], repeat=2):
        if test != other:
            used = [(row, film) for row, film in enumerate(films) if labels[row] != UNUSED]
            expected.append(
                (
                    [row for row, film in used if film not in (test, other)],
                    [row for row, film in used if film == other],
                    [row for row, film in used if film == test],
                )
            )
    assert [tuple(rows.tolist() for rows in rows_of(draw)) for draw in draws] == expected
    assert [draw.group for draw in draws] == [
        t for t in ("tt0", "tt1", "tt3", "tt4") for _ in "123"
    ]
    assert all("tt2" in {films[row] for row in draw.train} for draw in draws)


def test_films_without_both_classes_cannot_be_left_out():
    with pytest.raises(ExperimentError, match=r"two films .* and 1 of 2 have them"):
        leave_film_out(["a"] * 20 + ["b"] * 15, np.array([0, 1] * 10 + [0] * 15), {}, seed=0)


def test_ten_clips_of_each_class_make_a_film_eligible():
    films = ["a"] * 20 + ["b"] * 20 + ["c"] * 20 + ["d"] * 20
    labels = np.repeat([0, 1, 0, 1, 1, 0, 0, 1], [10, 10, 12, 8, 9, 11, 9, 11])
    with pytest.raises(ExperimentError, match=r"10 clips of each class, and 1 of 4"):
        leave_film_out(films, labels, {}, seed=0)
    labels[59] = 1  # the film c has ten of each, too
    draws = leave_film_out(films, labels, {}, seed=0)
    assert [draw.name for draw in draws] == ["without a, stopped by c", "without c, stopped by a"]
    assert [draw.index for draw in draws] == [0, 1]


@pytest.mark.parametrize("draws", [LeakFree, ManifestSplit, PaperSplit])
def test_two_folds_are_too_few(draws):
    with pytest.raises(ExperimentError, match="has 2 folds"):
        make(draws, np.array([0, 1]), np.array([0, 1]), {}, last=1, seed=0)


@pytest.mark.parametrize(("draws", "runs"), [(LeakFree, 2), (ManifestSplit, 3), (PaperSplit, 1)])
def test_three_folds_are_enough(draws, runs):
    folds, labels = np.repeat([0, 1, 2], 4), np.tile([0, 1], 6)
    made = make(draws, folds, labels, {"x": labels}, last=2, seed=0)
    assert [draw.index for draw in made] == list(range(runs))
    assert all(len(rows) == 4 for draw in made for rows in rows_of(draw))
    assert len({draw.name for draw in made}) == len({draw.seed for draw in made}) == runs


def test_runs_are_named_after_their_folds():
    folds, labels = np.repeat([0, 1, 2, 3], 4), np.tile([0, 1], 8)
    names = {
        draws.__name__: [draw.name for draw in make(draws, folds, labels, {}, last=3, seed=0)]
        for draws in (LeakFree, ManifestSplit, PaperSplit)
    }
    assert names == {
        "LeakFree": [f"validation fold {fold}" for fold in range(3)],
        "ManifestSplit": [f"test fold {fold}" for fold in range(4)],
        "PaperSplit": [f"negatives of folds {folds}" for folds in ("0, 1", "1, 0")],
    }


def test_where_no_fold_has_all_classes_the_next_one_validates():
    folds, labels = np.repeat([0, 1, 2], 4), np.repeat([0, 1, 0], 4)
    draws = make(ManifestSplit, folds, labels, {}, last=2, seed=0)
    assert [set(folds[draw.validation]) for draw in draws] == [{1}, {2}, {0}]


def test_the_only_fold_of_all_classes_validates_for_all_others():
    folds, labels = np.repeat([0, 1, 2], 4), np.array([0, 1, 0, 1] + [1] * 4 + [0] * 4)
    draws = make(ManifestSplit, folds, labels, {}, last=2, seed=0)
    assert [set(folds[draw.validation]) for draw in draws] == [{1}, {0}, {0}]


@pytest.mark.parametrize(
    ("positives", "negatives", "folds_of_negatives"),
    [(4, 4, 4), (9, 4, 4), (0, 4, 1), (1, 9, 1), (1, 2, 2), (3, 0, 4)],
)
def test_the_papers_negatives_are_one_to_all_folds(positives, negatives, folds_of_negatives):
    """So many positives and negatives a fold; four folds train."""
    folds = np.repeat(np.arange(6), positives + negatives)
    labels = np.tile([1] * positives + [0] * negatives, 6)
    draws = make(PaperSplit, folds, labels, {}, last=5, seed=0)
    assert len(draws) == 4
    for draw in draws:
        of_train = labels[draw.train]
        assert (of_train == 1).sum() == 4 * positives
        assert (of_train == 0).sum() == folds_of_negatives * negatives


def test_released_runs_are_the_lists_of_ids():
    runs = RunSet("02_EN_S", [Run("0", ["d", "a", "gone"], ["b"]), Run("7", ["c"], ["a", "f"])])
    labels = np.array([0, 1, 0, 1, UNUSED, UNUSED])
    tests = {"one": np.array([UNUSED, 0, 1, 1, 0, 0]), "two": labels}
    tested = {"one": frozenset("eab"), "two": frozenset("cdx")}
    draws = Released(list("abcdef"), runs, tested, random_state=4).make_folds(labels, tests)
    assert [(draw.index, draw.name) for draw in draws] == [
        (0, "02_EN_S run 0"),
        (1, "02_EN_S run 7"),
    ]
    assert [(draw.train.tolist(), draw.validation.tolist()) for draw in draws] == [
        ([0, 3], [1]),
        ([2], [0]),
    ]
    for draw in draws:
        assert {name: rows.tolist() for name, rows in draw.tests.items()} == {
            "one": [1, 4],
            "two": [2, 3],
        }
    assert draws[0].seed != draws[1].seed


def test_a_task_without_clips_trains_on_none():
    folds = np.repeat([0, 1, 2], 2)
    unused = np.full(6, UNUSED)
    for draw in (
        *make(LeakFree, folds, unused, {"x": unused}, last=2, seed=0),
        *make(OfficialSplit, folds, unused, {"x": unused}, last=2, seed=0),
        *make(OfficialSplit, folds % 2, unused, {"x": unused}, last=1, seed=0),
    ):
        assert not any(map(len, rows_of(draw)))


def test_leaks_are_found_by_id_and_by_what_models_saw():
    folds, labels = np.repeat([0, 1, 2], 4), np.tile([0, 1], 6)
    draws = make(LeakFree, folds, labels, {"x": labels}, last=2, seed=0)
    ids = [f"clip-{row}" for row in range(12)]
    assert find_leaks(draws, ids) == []
    other = find_leaks(draws, ids, seen={1: np.array([0, 9])})
    assert [(leak.fold, leak.test, leak.otherwise) for leak in other] == [(1, "x", ["clip-9"])]
    ids[8] = ids[0]
    found = find_leaks(draws, ids)
    assert [(leak.fold, leak.train, leak.validation) for leak in found] == [
        (0, [], ["clip-0"]),
        (1, ["clip-0"], []),
    ]
    assert [(leak.clips, leak.ids) for leak in found] == [(4, ["clip-0"])] * 2


def test_leaks_are_met_in_another_way_if_one_is_given():
    folds, labels = np.repeat([0, 1, 2], 4), np.tile([0, 1], 6)
    draws = make(LeakFree, folds, labels, {"x": labels, "y": labels}, last=2, seed=0)
    ids = [f"{row}" for row in range(12)]
    found = find_leaks(draws, ids, meet=lambda tested, used: sorted({*tested} - {*used})[:1])
    assert [(leak.fold, leak.test) for leak in found] == [(0, "x"), (0, "y"), (1, "x"), (1, "y")]
    assert all(leak.train == leak.validation == leak.otherwise == ["10"] for leak in found)


KNOWN = ClipDataset(
    ids=list("abcdef"),
    levels=["S", "NS", "HN", "EN", "HN", "EN"],
    concepts=np.array([[1, 0], [1, 0], [1, 1], [0, 0], [0, 1], [0, 0]], bool),
    concept_names=("Look", "Body"),
    groups=np.array(["f"] * 6),
    folds=np.zeros(6, int),
    X=np.zeros((6, 1), np.float32),
)


def test_tasks_name_and_label():
    task = LevelTask(positives=("S",), negatives=("EN", "HN"))
    assert task.name == "EN+HN vs S"
    assert task.labels(KNOWN).tolist() == [1, -1, 0, 0, 0, 0]
    levels = LevelsTask(("EN", "HN", "NS", "S"))
    assert levels.labels(KNOWN).tolist() == [3, 2, 1, 0, 1, 0]


def test_the_three_sets_of_negatives():
    """Look: with it a and c (S, HN; b is Not Sure); EN are d and f; HN without it is e."""
    found = {kind: ConceptTask("Look", kind).labels(KNOWN).tolist() for kind in "abc"}
    assert found == {
        "a": [1, -1, 1, 0, -1, 0],
        "b": [1, -1, 1, 0, 0, 0],
        "c": [1, -1, 1, -1, 0, -1],
    }
    assert ConceptTask("Look", "c").levels == {"HN", "S"}


def test_a_level_cannot_be_on_both_sides():
    with pytest.raises(ExperimentError, match="level S is both"):
        LevelTask(positives=("S",), negatives=("EN", "S"))
