"""Which clips a protocol trains, stops and tests with: by plain loops, and by hand."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models.data.folds import find_leaks
from obygaze_models.data.tasks import UNUSED


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


def make(kind, folds, labels, tests=None, *, last=None, seed=0):
    tests = {"x": labels} if tests is None else tests
    return kind(folds, last=last, random_state=seed).make_folds(labels, tests)


def leave_film_out(films, labels):
    return om.LeaveFilmOut(balance="none").make_folds(labels, {"x": labels}, groups=films)


def rows_of(draw):
    return draw.train, draw.validation, draw.tests["x"]


@given(labelled_folds(), st.integers(0, 2**32))
def test_train_validation_and_test_never_meet(clips, seed):
    folds, labels = clips
    last = int(folds.max())
    draws, again = (make(om.LeakFree, folds, labels, seed=seed) for _ in range(2))
    assert len({draw.seed for draw in draws}) == len(draws) == last
    for fold, draw in enumerate(draws):
        assert set(folds[draw.tests["x"]]) == {last}
        assert set(folds[draw.validation]) == {fold}
        full = np.concatenate(rows_of(draw)).tolist()
        assert len(full) == len(set(full))
        assert UNUSED not in labels[full]
        assert -1 not in folds[full]
        pool = (folds >= 0) & (folds != fold) & (folds != last)
        smaller = min((labels[pool] == 0).sum(), (labels[pool] == 1).sum())
        assert (labels[draw.train] == 0).sum() == (labels[draw.train] == 1).sum() == smaller
        assert (draw.train == again[fold].train).all()
    assert find_leaks(draws, [f"clip-{row}" for row in range(len(folds))]) == []
    # Every fit draws its own negatives.
    folds, labels = np.repeat([0, 1, 2, 3], 50), np.tile([1, 0, 0, 0, 0], 40)
    first, second, _ = make(om.LeakFree, folds, labels, seed=seed)
    assert set(first.train[folds[first.train] == 2]) != set(second.train[folds[second.train] == 2])


@given(labelled_folds(), st.integers(0, 2**32))
def test_any_split_tests_every_clip_once(clips, seed):
    folds, labels = clips
    last = int(folds.max())
    draws = make(om.ManifestSplit, folds, labels, seed=seed)
    tested = np.concatenate([draw.tests["x"] for draw in draws])
    assert sorted(tested.tolist()) == np.flatnonzero((labels >= 0) & (folds >= 0)).tolist()
    for fold, draw in enumerate(draws):
        assert set(folds[draw.tests["x"]]) == {fold}
        assert set(folds[draw.validation]) == {(fold + 1) % (last + 1)}
        assert not {fold, (fold + 1) % (last + 1), -1} & set(folds[draw.train])
        assert len(set(Counter(labels[draw.train].tolist()).values())) == 1


@pytest.mark.parametrize(("labels", "validating"), [
    ([0, 1] * 2 + [0] * 4 + [0, 1] * 4, [2, 2, 3, 0]),
    ([0] * 4 + [1] * 4 + [0] * 4, [1, 2, 0]),  # none has all classes: the next one
    ([0, 1, 0, 1] + [1] * 4 + [0] * 4, [1, 0, 0]),  # one has, for all others
])  # fmt: skip
def test_a_fold_of_one_class_does_not_validate(labels, validating):
    draws = make(om.ManifestSplit, np.arange(len(labels)) // 4, np.array(labels))
    assert [set(draw.validation // 4) for draw in draws] == [{fold} for fold in validating]


def paper_by_hand(clips, negatives):
    """The text: 8 folds, all positives, as many folds of negatives as balance best."""
    positives = sum(level == "S" and fold < 8 for level, fold in clips)
    count = sum(level in negatives and fold < 8 for level, fold in clips)
    best = min(range(1, 9), key=lambda k: abs(k / 8 * count - positives))

    def rows(keep):
        return {row for row, (level, fold) in enumerate(clips) if keep(level, fold)}

    held = [rows(lambda level, fold, part=part: fold == part and level in {"S", *negatives})
            for part in (8, 9)]  # fmt: skip
    for run in range(8):
        drawn = {(run + step) % 8 for step in range(best)}
        folds = {"S": range(8)} | dict.fromkeys(negatives, drawn)
        yield (rows(lambda level, fold, folds=folds: fold in folds.get(level, ())), *held)


@pytest.mark.parametrize("sure", [180, 20, 900])
@pytest.mark.parametrize("negatives", [("EN",), ("HN",), ("EN", "HN")])
def test_the_papers_text(negatives, sure):
    sizes = {"EN": 430, "HN": 170, "S": sure, "NS": 40}
    clips = [(level, row % 10) for level, size in sizes.items() for row in range(size)]
    folds = np.array([fold for _, fold in clips])
    code_of = {"S": 1} | dict.fromkeys(negatives, 0)
    labels = np.array([code_of.get(level, UNUSED) for level, _ in clips])
    draws = make(om.PaperSplit, folds, labels)
    assert [tuple(set(rows.tolist()) for rows in rows_of(draw)) for draw in draws] == [
        *paper_by_hand(clips, negatives)
    ]
    assert len({draw.seed for draw in draws}) == 8


def test_each_film_is_left_out_in_turn():
    chance = np.random.default_rng(4)
    films = [f"tt{number}" for number in chance.integers(0, 5, 300)]
    labels = chance.choice([0, 1, UNUSED], 300)
    labels[[film == "tt2" for film in films]] = 0  # no positive: never tests, but trains
    draws = leave_film_out(films, labels)
    used = [(row, film) for row, film in enumerate(films) if labels[row] != UNUSED]
    pairs = [pair for pair in product(["tt0", "tt1", "tt3", "tt4"], repeat=2) if len({*pair}) == 2]
    assert [tuple(rows.tolist() for rows in rows_of(draw)) for draw in draws] == [
        (
            [row for row, film in used if film not in (test, second)],
            [row for row, film in used if film == second],
            [row for row, film in used if film == test],
        )
        for test, second in pairs
    ]
    assert [draw.group for draw in draws] == [test for test, _ in pairs]
    assert all("tt2" in {films[row] for row in draw.train} for draw in draws)


def test_ten_clips_of_each_class_make_a_film_eligible():
    films = np.repeat([*"abcd"], 20).tolist()
    labels = np.repeat([0, 1, 0, 1, 1, 0, 0, 1], [10, 10, 12, 8, 9, 11, 9, 11])
    with pytest.raises(ExperimentError, match=r"10 clips of each class, and 1 of 4"):
        leave_film_out(films, labels)
    labels[59] = 1  # the film c has ten of each, too
    draws = leave_film_out(films, labels)
    assert [draw.name for draw in draws] == ["without a, stopped by c", "without c, stopped by a"]


def test_official_sets_train_validate_and_test():
    """Without a validation set, a tenth of each class validates, by the seed."""
    folds = np.array([0, 0, 0, 1, 1, 2, 2, -1])
    labels = np.array([0, 1, -1, 0, 1, 0, 1, 1])
    [draw] = make(om.OfficialSplit, folds, labels)
    assert [rows.tolist() for rows in rows_of(draw)] == [[0, 1], [3, 4], [5, 6]]
    labels = np.array([0] * 95 + [1] * 20 + [0, 1])
    folds = np.array([0] * 115 + [1, 1])
    [draw], [second] = (make(om.OfficialSplit, folds, labels, seed=seed) for seed in (0, 1))
    assert np.bincount(labels[draw.validation]).tolist() == [10, 2]
    assert sorted([*draw.train, *draw.validation]) == list(range(115))
    assert draw.tests["x"].tolist() == [115, 116]
    assert second.validation.tolist() != draw.validation.tolist()
    with pytest.raises(ExperimentError, match="official sets are two or more"):
        make(om.OfficialSplit, np.zeros(3), np.zeros(3))


def test_leaks_are_found_by_id_and_by_what_models_saw():
    folds, labels = np.repeat([0, 1, 2], 4), np.tile([0, 1], 6)
    draws = make(om.LeakFree, folds, labels)
    ids = [f"clip-{row}" for row in range(12)]
    assert find_leaks(draws, ids) == []
    [leak] = find_leaks(draws, ids, seen={1: np.array([0, 9])})
    assert (leak.fold, leak.test, leak.otherwise) == (1, "x", ["clip-9"])
    meeting = find_leaks(draws, ids, meet=lambda tested, used: sorted({*tested} - {*used})[:1])
    assert [leak.fold for leak in meeting] == [0, 1]
    assert all(leak.train == leak.validation == leak.otherwise == ["clip-10"] for leak in meeting)
    ids[8] = ids[0]
    leaks = find_leaks(draws, ids)
    assert [(leak.fold, leak.train, leak.validation, leak.clips) for leak in leaks] == [
        (0, [], ["clip-0"], 4),
        (1, ["clip-0"], [], 4),
    ]
