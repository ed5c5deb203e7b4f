"""Scores of numbers and ordered levels against scikit-learn and scipy, also weighted."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.metrics import cohen_kappa_score, mean_absolute_error, r2_score

from obygaze_models.estimators.ordered import OrderedProbe
from obygaze_models.estimators.outputs import fit_spread, move_spread, predict_outputs
from obygaze_models.scoring.intervals import ScoredClips, estimate_scores, score_groups
from obygaze_models.scoring.metrics import column_titles, score, weighted_scores
from obygaze_models.scoring.values import NUMBER, ORDERED, weighted_kappa


def drawn(clips=60, seed=0):
    chance = np.random.default_rng(seed)
    labels = chance.integers(0, 4, clips)
    return labels, np.round(labels + chance.normal(size=clips), 1)


def test_scores_of_numbers_equal_scikit_learn_and_scipy():
    labels, values = drawn()
    scores = score(labels, values, kind=NUMBER)
    assert scores == pytest.approx({
        "r2": r2_score(labels, values),
        "mae": mean_absolute_error(labels, values),
        "spearman": stats.spearmanr(labels, values).statistic,
        "pearson": stats.pearsonr(labels, values).statistic,
    })  # fmt: skip
    assert [*column_titles(scores)] == ["r2", "mae", "spearman", "pearson"]


def test_the_kappa_of_predicted_levels_equals_scikit_learn():
    labels, values = drawn()
    called = np.clip(np.rint(values), 0, 3)
    scores = score(labels, called, kind=ORDERED)
    assert scores["weighted_kappa"] == pytest.approx(
        cohen_kappa_score(labels, called.astype(int), weights="quadratic")
    )
    assert [*scores] == ["weighted_kappa", "mae", "spearman"]
    a, b = labels, values  # Lin (1989), by his formula
    lin = 2 * np.cov(a, b, bias=True)[0, 1] / (a.var() + b.var() + (a.mean() - b.mean()) ** 2)
    assert score(a, b, kind=ORDERED)["weighted_kappa"] == pytest.approx(lin)


@pytest.mark.parametrize("kind", [NUMBER, ORDERED])
def test_weights_count_as_repeated_clips(kind):
    labels, values = drawn()
    times = np.random.default_rng(1).integers(0, 4, (5, len(labels)))
    weighted = weighted_scores(labels, values, times.astype(float), kind=kind)
    for row, repeat in enumerate(times):
        expected = score(np.repeat(labels, repeat), np.repeat(values, repeat), kind=kind)
        assert {key: own[row] for key, own in weighted.items()} == pytest.approx(expected)


def test_a_constant_prediction_has_no_correlation_and_no_kappa():
    labels, _ = drawn()
    scores = score(labels, np.full(len(labels), 1.1), kind=NUMBER)
    assert scores["spearman"] is scores["pearson"] is None
    assert scores["r2"] <= 0
    assert weighted_kappa(labels, np.full(60, 1.1), np.ones((1, 60))) == pytest.approx(0, abs=1e-9)


def test_films_with_a_single_rating_are_left_out_of_the_mean():
    labels, values = drawn(120)
    films = np.repeat(list("abcdef"), 20)
    labels[films == "c"] = 2
    clips = ScoredClips([str(n) for n in range(120)], labels, values, films.tolist(), kind=NUMBER)
    groups = score_groups(clips)
    assert groups.left_out == ["c"]
    by_film = [stats.pearsonr(labels[films == f], values[films == f]).statistic for f in "abdef"]
    estimate = estimate_scores(groups)["pearson"]
    assert estimate.value == pytest.approx(np.mean(by_film))
    interval = stats.t.interval(0.95, 4, np.mean(by_film), stats.sem(by_film))
    assert estimate.interval == pytest.approx(interval)
    pooled = score_groups(clips, pooled=True)
    overall = estimate_scores(pooled)["spearman"]
    assert overall.value == pytest.approx(stats.spearmanr(labels, values).statistic)


@pytest.mark.night
@pytest.mark.parametrize("kind", [NUMBER, ORDERED])
def test_intervals_cover_zero_in_93_to_97_percent_without_effect(kind):
    """Features and labels are independent. Ten films train and ten others test.

    Where each film is left out in turn, the films' scores share training clips, and without any
    effect fewer intervals hold zero: of classes, too.
    """
    chance = np.random.default_rng(1)
    films, clips, draws = 10, 24, 1200
    film = np.repeat(np.arange(2 * films), clips)
    train, test = film < films, film >= films
    hits = dict.fromkeys(["weighted_kappa", "spearman"] if kind == ORDERED
                         else ["spearman", "pearson"], 0)  # fmt: skip
    for _ in range(draws):
        X = chance.normal(size=(len(film), 4))
        labels = chance.integers(0, 4, len(X)) if kind == ORDERED else chance.normal(size=len(X))
        if kind == ORDERED:
            model = OrderedProbe(C=0.1).fit(X[train], labels[train])
            table = predict_outputs(model, X, ORDERED, 4)
            values = move_spread(table, fit_spread(table[train], labels[train]))[:, 0]
        else:
            values = Ridge().fit(X[train], labels[train]).predict(X)
        X, labels, values = X[test], labels[test], values[test]
        ids, names = [str(row) for row in range(len(X))], film[test].astype(str).tolist()
        estimates = estimate_scores(
            score_groups(ScoredClips(ids, labels, values, names, kind=kind))
        )
        for key in hits:
            low, high = estimates[key].interval
            hits[key] += low <= 0 <= high
    assert all(0.93 <= count / draws <= 0.97 for count in hits.values()), hits
