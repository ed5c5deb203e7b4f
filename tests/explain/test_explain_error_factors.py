import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from obygaze_features.errors import ExperimentError
from obygaze_models.explain.error_factors import error_factors

NAMES = ["Look", "Body", "Posture", "EN", "HN", "S"]


def made_up(clips=400, films=4, seed=0):
    """Clips of films with marks of which Look makes errors and S prevents them."""
    chance = np.random.default_rng(seed)
    levels = np.eye(3, dtype=bool)[chance.choice(3, clips, p=[0.6, 0.2, 0.2])]
    marks = np.column_stack([chance.random((clips, 3)) < 0.3, levels])
    odds = -1.0 + 1.5 * marks[:, 0] - 1.2 * marks[:, 5]
    wrong = chance.random(clips) < 1 / (1 + np.exp(-odds))
    return wrong, marks, [f"tt{at}" for at in chance.integers(0, films, clips)]


def scikit_learns(wrong, marks, penalty, **more):
    model = LogisticRegression(C=1 / penalty, **({"tol": 1e-10, "max_iter": 10_000} | more))
    return model.fit(marks.astype(float), wrong).coef_[0]


@pytest.mark.parametrize("penalty", [0.01, 1.0, 20.0])
def test_coefficients_are_scikit_learns(penalty):
    wrong, marks, films = made_up()
    found = error_factors(wrong, marks, NAMES, films, penalty=penalty, draws=20)
    assert [of.film for of in found] == [None, "tt0", "tt1", "tt2", "tt3"]
    for of in found:
        mine = np.array([of.film in (None, film) for film in films])
        assert (of.clips, of.wrong) == (mine.sum(), wrong[mine].sum())
        expected = scikit_learns(wrong[mine], marks[mine], penalty)
        assert [one.coefficient for one in of.factors] == pytest.approx(expected, abs=1e-4)
        assert [one.name for one in of.factors] == NAMES
        assert [one.clips for one in of.factors] == marks[mine].sum(axis=0).tolist()


def test_all_films_alone_have_the_same_factors():
    wrong, marks, films = made_up()
    every = error_factors(wrong, marks, NAMES, films, draws=50)
    assert error_factors(wrong, marks, NAMES, films, draws=50, by_film=False) == every[:1]


def test_one_wrong_clip_among_many_and_a_mark_that_parts_them():
    """Nearly separable: only the penalty keeps the coefficient finite."""
    wrong = np.zeros(1500, dtype=bool)
    wrong[7] = True
    marks = np.column_stack([wrong, np.arange(1500) % 2 == 0])
    found = error_factors(wrong, marks, ["a", "b"], ["tt1"] * 1500, penalty=0.001, draws=30)
    expected = scikit_learns(wrong, marks, 0.001)
    assert [one.coefficient for one in found[1].factors] == pytest.approx(expected, abs=1e-4)


def test_intervals_are_those_of_drawing_clips_anew():
    wrong, marks, _ = made_up(150, 1)
    _, of = error_factors(wrong, marks, NAMES, ["tt1"] * 150, draws=800)
    chance = np.random.default_rng(99)
    drawn = []
    for _ in range(200):
        rows = chance.integers(0, 150, 150)
        drawn.append(scikit_learns(wrong[rows], marks[rows], 1.0, tol=1e-4))
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    assert [one.low for one in of.factors] == pytest.approx(low, abs=0.25)
    assert [one.high for one in of.factors] == pytest.approx(high, abs=0.25)


def test_of_all_films_together_films_are_drawn():
    """Films that are the same, drawn anew, are the same again, however their clips differ."""
    wrong, marks, _ = made_up(80, 1)
    films = [film for film in ("tt1", "tt2", "tt3") for _ in range(80)]
    found = error_factors(np.tile(wrong, 3), np.tile(marks, (3, 1)), NAMES, films, draws=100)
    for one in found[0].factors:
        assert one.low == pytest.approx(one.coefficient, abs=1e-6)
        assert one.high == pytest.approx(one.coefficient, abs=1e-6)
    assert all(one.high - one.low > 0.1 for of in found[1:] for one in of.factors)


@pytest.mark.gate
def test_finds_what_errors_go_with():
    wrong, marks, films = made_up(1500, 8)
    every = {one.name: one for one in error_factors(wrong, marks, NAMES, films)[0].factors}
    assert every["Look"].low > 0.8
    assert every["S"].high < -0.2
    assert every["Posture"].low < 0 < every["Posture"].high


def test_one_film_says_nothing_of_other_films():
    wrong, marks, _ = made_up(100, 1)
    every, of = error_factors(wrong, marks, NAMES, ["tt1"] * 100, draws=50)
    assert {(one.low, one.high) for one in every.factors} == {(None, None)}
    coefficients = [one.coefficient for one in of.factors]
    assert [one.coefficient for one in every.factors] == pytest.approx(coefficients)
    assert all(one.low < one.coefficient < one.high for one in of.factors)


def test_a_film_without_errors_or_with_nothing_else_says_so():
    wrong, marks, films = made_up()
    in_film = np.array(films)
    wrong[in_film == "tt1"], wrong[in_film == "tt2"] = False, True
    _, _, none, every, _ = error_factors(wrong, marks, NAMES, films, draws=20)
    assert (none.factors, none.wrong, none.too_few) == ((), 0, "no wrong clip to compare with")
    assert (every.factors, every.wrong) == ((), every.clips)
    assert every.too_few == "no right clip to compare with"


def test_marks_that_never_vary_in_a_film_are_left_out_there():
    wrong, marks, films = made_up()
    in_film = np.array(films)
    marks[in_film == "tt1", 0], marks[in_film == "tt1", 1] = False, True
    found = error_factors(wrong, marks, NAMES, films, draws=20)
    here = in_film == "tt1"
    look, body, *others = found[2].factors
    assert (look.coefficient, look.low, look.high, look.clips) == (None, None, None, 0)
    assert (body.coefficient, body.clips) == (None, here.sum())
    expected = scikit_learns(wrong[here], marks[here][:, 2:], 1.0)
    assert [one.coefficient for one in others] == pytest.approx(expected, abs=1e-4)
    assert found[0].factors[0].coefficient is not None


@pytest.mark.parametrize("seed", range(6))
def test_where_half_of_the_draws_hold_one_kind_only_there_may_be_no_interval(seed):
    """Two films, one all wrong and one all right: a draw holds both as often as not."""
    wrong, marks = np.array([True, True, False, False]), np.array([[1, 0, 1, 0]]).T
    (one,) = error_factors(wrong, marks, ["a"], ["x", "x", "y", "y"], draws=5, seed=seed)[0].factors
    assert one.coefficient == pytest.approx(0, abs=1e-9)
    assert (one.low is None) == (one.high is None)
    if one.low is not None:
        assert one.low == pytest.approx(0, abs=1e-9)


def test_the_seed_fixes_the_intervals():
    wrong, marks, films = made_up()
    one, same, other = (
        error_factors(wrong, marks, NAMES, films, draws=30, seed=s) for s in (1, 1, 2)
    )
    assert one == same
    assert one != other


def test_says_what_does_not_fit():
    with pytest.raises(ExperimentError, match=r"3 clips, 3 films and 1 names .* \(3, 2\)"):
        error_factors(np.ones(3), np.ones((3, 2)), ["a"], ["x"] * 3)
    with pytest.raises(ExperimentError, match="need clips"):
        error_factors(np.ones(0), np.ones((0, 1)), ["a"], [])
    with pytest.raises(ExperimentError, match=r"above 0 \(got 0\)"):
        error_factors(np.ones(2), np.ones((2, 1)), ["a"], ["x"] * 2, penalty=0)
