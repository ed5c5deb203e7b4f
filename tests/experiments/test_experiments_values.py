"""Scores of numbers against scikit-learn and scipy, also weighted."""

import numpy as np
from scipy import stats
from sklearn.metrics import mean_absolute_error, r2_score

import obygaze_models as om

# Scores of weighted clips are compared with those of repeated clips.
from obygaze_models.scoring.metrics import score, weighted_scores
from tests.kit.floats import close

NUMBER = "number"


def drawn(clips=60, seed=0):
    chance = np.random.default_rng(seed)
    labels = chance.integers(0, 4, clips)
    return labels, np.round(labels + chance.normal(size=clips), 1)


def test_scores_of_numbers_equal_scikit_learn_and_scipy():
    labels, values = drawn()
    spearman = stats.spearmanr(labels, values).statistic
    pearson = stats.pearsonr(labels, values).statistic
    scores = {"spearman": spearman, "pearson": pearson}
    scores |= {"r2": r2_score(labels, values), "mae": mean_absolute_error(labels, values)}
    assert score(labels, values, target_key=NUMBER) == close(scores)
    constant = score(labels, np.full(len(labels), 1.1), target_key=NUMBER)
    assert constant["spearman"] is constant["pearson"] is None


def test_weights_count_as_repeated_clips():
    labels, values = drawn()
    times = np.random.default_rng(1).integers(0, 4, (5, len(labels)))
    weighted = weighted_scores(labels, values, times.astype(float), target_key=NUMBER)
    for row, repeat in enumerate(times):
        expected = score(np.repeat(labels, repeat), np.repeat(values, repeat), target_key=NUMBER)
        assert {key: own[row] for key, own in weighted.items()} == close(expected)


def test_films_with_a_single_rating_are_left_out_of_the_mean():
    labels, values = drawn(120)
    films = np.repeat(list("abcdef"), 20)
    labels[films == "c"] = 2
    scores = om.score(labels.astype(float), values, films)
    row = scores.loc["within"].loc["pearson"]
    own = [films == film for film in "abdef"]
    by_film = [stats.pearsonr(labels[film], values[film]).statistic for film in own]
    assert row["mean"] == close(np.mean(by_film))
    assert row["groups"] == 5
    interval = stats.t.interval(0.95, 4, np.mean(by_film), stats.sem(by_film))
    assert (row["low"], row["high"]) == close(interval)


def test_correlations_across_films_are_of_clips_that_the_same_fit_rated():
    labels, values = drawn(90)
    films = np.arange(90) // 5
    fold = films % 3
    table = om.score(labels.astype(float), values, films, folds=fold)
    scores = table.loc["across", "mean"]
    fits = [fold == number for number in range(3)]
    parts = [stats.spearmanr(labels[fit], values[fit]).statistic for fit in fits]
    assert scores["spearman"] == close(np.mean(parts))
    assert scores["r2"] == close(r2_score(labels, values))
