import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obygaze_features.errors import ExperimentError
from obygaze_models.experiments.protocol import leak_free_draws, leaks, rows_to_test
from obygaze_models.experiments.task import UNUSED, LevelTask


@st.composite
def labelled_folds(draw):
    """Folds, each with both classes and clips of no class, in any order."""
    folds, labels = [], []
    for fold in range(draw(st.integers(3, 6))):
        for label in (0, 1, UNUSED):
            count = draw(st.integers(1, 6))
            folds += [fold] * count
            labels += [label] * count
    order = draw(st.permutations(range(len(folds))))
    return np.array(folds)[order], np.array(labels)[order]


@given(labelled_folds(), st.integers(0, 2**32))
def test_train_validation_and_test_never_meet(world, seed):
    folds, labels = world
    names = sorted(set(folds.tolist()))
    tested = rows_to_test(folds, labels, fold_names=names)
    draws = leak_free_draws(folds, labels, fold_names=names, seed=seed)

    assert set(folds[tested]) == {names[-1]}
    assert [draw.validation_fold for draw in draws] == names[:-1]
    assert len({draw.seed for draw in draws}) == len(draws)
    for draw in draws:
        parts = [set(rows.tolist()) for rows in (draw.train, draw.validation, tested)]
        assert sum(map(len, parts)) == len(set.union(*parts))
        assert set(folds[draw.validation]) == {draw.validation_fold}
        assert UNUSED not in labels[np.concatenate([draw.train, draw.validation, tested])]

        pool = (folds != draw.validation_fold) & (folds != names[-1])
        smaller = min((labels[pool] == 0).sum(), (labels[pool] == 1).sum())
        assert (labels[draw.train] == 0).sum() == (labels[draw.train] == 1).sum() == smaller


@given(labelled_folds(), st.integers(0, 2**32))
def test_the_seed_decides_the_draws(world, seed):
    folds, labels = world
    names = sorted(set(folds.tolist()))
    first, again = (leak_free_draws(folds, labels, fold_names=names, seed=seed) for _ in range(2))
    assert all((a.train == b.train).all() for a, b in zip(first, again, strict=True))


def test_every_run_draws_its_own_negatives():
    folds = np.repeat([0, 1, 2, 3], 50)
    labels = np.tile([1, 0, 0, 0, 0], 40)
    draws = leak_free_draws(folds, labels, fold_names=folds, seed=0)
    in_fold_2 = [set(d.train[folds[d.train] == 2].tolist()) for d in draws[:2]]
    assert in_fold_2[0] != in_fold_2[1]


def test_the_test_fold_does_not_move_when_its_clips_are_missing():
    folds, labels = np.repeat([0, 1, 2], 4), np.tile([0, 1], 6)
    with pytest.raises(ExperimentError, match="test fold 3 has 0 positive and 0 negative clips"):
        rows_to_test(folds, labels, fold_names=[0, 1, 2, 3])


def test_one_class_only_is_one_clear_line():
    folds, labels = np.repeat([0, 1, 2], 4), np.array([1, 1, 1, 1] + [0, 1] * 4)
    with pytest.raises(ExperimentError, match="validation fold 0 has 4 positive and 0 negative"):
        leak_free_draws(folds, labels, fold_names=folds, seed=0)


def test_two_folds_are_too_few():
    with pytest.raises(ExperimentError, match="has 2 folds"):
        leak_free_draws(np.array([0, 1]), np.array([0, 1]), fold_names=[0, 1], seed=0)


def test_leaks_are_found_by_id():
    folds, labels = np.repeat([0, 1, 2], 4), np.tile([0, 1], 6)
    draws = leak_free_draws(folds, labels, fold_names=folds, seed=0)
    ids = [f"clip-{row}" for row in range(12)]
    tested = rows_to_test(folds, labels, fold_names=folds)
    assert leaks(draws, ids, tested) == []
    ids[8] = ids[0]
    assert leaks(draws, ids, tested) == ["clip-0"]


def test_a_task_names_and_labels():
    task = LevelTask(positives=("S",), negatives=("EN", "HN"))
    assert task.name == "EN+HN vs S"
    assert task.labels(["S", "NS", "HN", "EN"]).tolist() == [1, UNUSED, 0, 0]


def test_a_level_cannot_be_on_both_sides():
    with pytest.raises(ExperimentError, match="level S is both"):
        LevelTask(positives=("S",), negatives=("EN", "S"))
