import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from obygaze_models.explain.error_factors import error_factors

NAMES = ["Look", "Body", "Posture", "EN", "HN", "S"]


def draw_clips(clips=400, films=4):
    """Clips of films with marks of which Look makes errors and S prevents them."""
    chance = np.random.default_rng(0)
    levels = np.eye(3, dtype=bool)[chance.choice(3, clips, p=[0.6, 0.2, 0.2])]
    marks = np.column_stack([chance.random((clips, 3)) < 0.3, levels])
    odds = -1.0 + 1.5 * marks[:, 0] - 1.2 * marks[:, 5]
    wrong = chance.random(clips) < 1 / (1 + np.exp(-odds))
    return wrong, marks, [f"tt{at}" for at in chance.integers(0, films, clips)]


WRONG, MARKS, FILMS = draw_clips()


def scikit_learns(wrong, marks, penalty=1.0):
    model = LogisticRegression(C=1 / penalty, solver="newton-cholesky", tol=1e-10)
    return model.fit(marks.astype(float), wrong).coef_[0]


def values(of_film, attribute="coefficient"):
    return [getattr(factor, attribute) for factor in of_film.factors]


@pytest.mark.parametrize("penalty", [0.01, 20.0])
def test_coefficients_are_scikit_learns(penalty):
    result = error_factors(WRONG, MARKS, NAMES, FILMS, penalty=penalty, draws=20)
    assert [entry.film for entry in result] == [None, "tt0", "tt1", "tt2", "tt3"]
    for entry in result:
        rows = np.array([entry.film in (None, film) for film in FILMS])
        assert (entry.clips, entry.wrong) == (rows.sum(), WRONG[rows].sum())
        expected = scikit_learns(WRONG[rows], MARKS[rows], penalty)
        assert values(entry) == pytest.approx(expected, abs=1e-4)
        assert values(entry, "clips") == MARKS[rows].sum(axis=0).tolist()
    other = error_factors(WRONG, MARKS, NAMES, FILMS, penalty=penalty, draws=20, seed=1)
    assert values(other[0]) == values(result[0])
    assert other != result  # the intervals are those of other draws
    # Nearly separable: only the penalty keeps the coefficient finite.
    wrong = np.arange(1500) == 7
    marks = np.column_stack([wrong, np.arange(1500) % 2 == 0])
    result = error_factors(wrong, marks, ["a", "b"], ["tt1"] * 1500, penalty=0.001, draws=2)
    assert values(result[1]) == pytest.approx(scikit_learns(wrong, marks, 0.001), abs=1e-4)


def test_intervals_draw_clips_of_a_film_and_films_of_all():
    wrong, marks, films = draw_clips(150, 1)
    every, of_film = error_factors(wrong, marks, NAMES, films, draws=800)
    chance = np.random.default_rng(99)
    draws = [chance.integers(0, 150, 150) for _ in range(150)]
    drawn = [scikit_learns(wrong[rows], marks[rows]) for rows in draws]
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    assert values(of_film, "low") == pytest.approx(low, abs=0.3)
    assert values(of_film, "high") == pytest.approx(high, abs=0.3)
    # One film says nothing of other films.
    assert {*values(every, "low"), *values(every, "high")} == {None}
    assert values(every) == pytest.approx(values(of_film))
    # Films that are the same, drawn anew, are the same again, however their clips differ.
    wrong, marks, _ = draw_clips(80, 1)
    films = [film for film in ("tt1", "tt2", "tt3") for _ in range(80)]
    wrong, marks = np.tile(wrong, 3), np.tile(marks, (3, 1))
    every, *result = error_factors(wrong, marks, NAMES, films, draws=100)
    assert values(every, "low") == pytest.approx(values(every), abs=1e-6)
    assert values(every, "high") == pytest.approx(values(every), abs=1e-6)
    assert all(factor.high - factor.low > 0.1 for film in result for factor in film.factors)


def test_a_film_without_errors_or_without_variety_says_so():
    films, wrong, marks = np.array(FILMS), WRONG.copy(), MARKS.copy()
    wrong[films == "tt1"], wrong[films == "tt2"] = False, True
    marks[films == "tt3", 0], marks[films == "tt3", 1] = False, True
    result = error_factors(wrong, marks, NAMES, FILMS, draws=20)
    assert (result[2].factors, result[2].wrong) == ((), 0)
    assert result[2].too_few == "no wrong clip to compare with"
    assert (result[3].factors, result[3].wrong) == ((), result[3].clips)
    assert result[3].too_few == "no right clip to compare with"
    here = films == "tt3"
    assert values(result[4], "clips")[:2] == [0, here.sum()]
    assert [values(result[4], name)[0] for name in ("coefficient", "low", "high")] == [None] * 3
    expected = scikit_learns(wrong[here], marks[here][:, 2:])
    assert values(result[4])[1] is None
    assert values(result[4])[2:] == pytest.approx(expected, abs=1e-4)
    assert result[0].factors[0].coefficient is not None


@pytest.mark.parametrize("seed", range(6))
def test_where_draws_hold_one_kind_there_may_be_no_interval(seed):
    """Two films, one all wrong and one all right: a draw holds both as often as not."""
    wrong, marks = np.array([True, True, False, False]), np.array([[1, 0, 1, 0]]).T
    every = error_factors(wrong, marks, ["a"], ["x", "x", "y", "y"], draws=5, seed=seed)[0]
    [factor] = every.factors
    assert factor.coefficient == pytest.approx(0, abs=1e-9)
    assert (factor.low, factor.high) in [(None, None), pytest.approx((0, 0), abs=1e-9)]
