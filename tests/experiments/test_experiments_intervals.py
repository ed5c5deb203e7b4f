"""Scores within and across films, intervals and comparisons, against scipy and brute force."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

import obygaze_models as om

# An oracle of films' own scores needs them one by one, which om.score does not return.
from obygaze_models.scoring.intervals import (
    MIN_SHARE,
    ScoredClips,
    estimate_differences,
    estimate_scores,
    score_groups,
)
from tests.kit.floats import close

SCORERS = {
    "auroc": roc_auc_score,
    "average_precision": average_precision_score,
    "f1": lambda labels, p: f1_score(labels, p > 0.5),
}


def some_clips(films=8, size=30, share=0.4, seed=0):
    """Return clips of several films, each rated once."""
    chance = np.random.default_rng(seed)
    names = [f"film {row // size}" for row in range(films * size)]
    labels = (chance.random(films * size) < share).astype(np.int64)
    ids = [f"{film}-{row}" for row, film in enumerate(names)]
    ratings = 0.2 * labels + 0.8 * chance.random(len(ids))
    return ScoredClips(ids, labels, ratings, names)


def by_film(clips, scorer, rows=slice(None)):
    labels = clips.labels[rows]
    scores = clips.probabilities[rows]
    films = np.array(clips.groups)[rows]
    own = [films == film for film in np.unique(films)]
    return np.array([scorer(labels[film], scores[film]) for film in own])


@pytest.mark.parametrize("key", SCORERS)
def test_a_score_within_films_is_their_mean_with_scipys_t_interval(key):
    clips = some_clips()
    values = by_film(clips, SCORERS[key])
    estimate = estimate_scores(score_groups(clips)).within[key]
    assert estimate.value == close(values.mean())
    test = stats.ttest_1samp(values, 0)
    assert estimate.interval == close(tuple(test.confidence_interval(0.95)))
    assert (estimate.groups, estimate.effective, estimate.clips) == (8, 8, 240)


def test_differences_are_paired_by_film():
    first = some_clips(seed=1)
    noise = np.random.default_rng(2).normal(0, 0.2, len(first.ids))
    second = replace(first, probabilities=np.clip(first.probabilities + noise, 0, 1))
    pairs = estimate_differences(score_groups(first), score_groups(second))
    comparison = pairs["within"]["auroc"]
    test = stats.ttest_rel(by_film(first, roc_auc_score), by_film(second, roc_auc_score))
    assert comparison.difference.p_value == close(test.pvalue)
    assert comparison.difference.interval == close(tuple(test.confidence_interval(0.95)))
    across = pairs["across"]["auroc"]
    areas = [roc_auc_score(clips.labels, clips.probabilities) for clips in (first, second)]
    assert across.difference.value == close(areas[0] - areas[1])


def pairs_in_order(labels, ratings, fits):
    """Count by brute force the pairs of clips that the same fit rated, and those in order."""
    positive = np.flatnonzero(labels == 1)
    negative = np.flatnonzero(labels == 0)
    pairs = [(a, b) for a, b in product(positive, negative) if fits[a] == fits[b]]
    signs = [np.sign(ratings[a] - ratings[b]) for a, b in pairs]
    return (np.mean(signs) + 1) / 2  # a tie is half in order


def in_folds(classes=2, films=12, folds=4):
    """Return classes, rounded ratings, films of 2 to 7 clips, and folds of whole films."""
    chance = np.random.default_rng(classes)
    film = np.repeat(np.arange(films), chance.integers(2, 8, films))
    y = chance.permutation(np.arange(len(film)) % classes)
    ratings = chance.dirichlet(np.ones(classes), len(film)).round(1)
    if classes == 2:
        ratings = ratings[:, 1]
    return y, ratings, film, film % folds


@pytest.mark.parametrize("classes", [2, 3])
def test_auroc_across_films_counts_the_pairs_that_the_same_fit_rated(classes):
    y, p, films, folds = in_folds(classes)
    areas = [pairs_in_order(y, p, folds)] if classes == 2 else []
    if classes > 2:
        areas = [pairs_in_order(y == code, column, folds) for code, column in enumerate(p.T)]
    scores = om.score(y, p, films, folds=folds).loc["across"]
    assert scores.loc["auroc", "mean"] == close(np.mean(areas))
    assert (scores["clips"] == len(y)).all()
    alone = om.score(y, p, films, folds=films).loc["across"]
    assert np.isnan(float(alone.loc["auroc", "mean"]))
    assert alone.loc["balanced_accuracy", "mean"] == scores.loc["balanced_accuracy", "mean"]


def test_a_score_across_films_has_a_jackknife_widened_for_folds():
    y, p, films, folds = in_folds(films=20)
    row = om.score(y, p, films, folds=folds).loc["across"].loc["auroc"]
    without = []
    for film in range(20):
        own = films != film
        without.append(pairs_in_order(y[own], p[own], folds[own]))
    spread = 19 * np.var(without)
    sizes = [np.bincount(films[y == code]) for code in (0, 1)]
    effective = min(own.sum() ** 2 / (own**2).sum() for own in sizes)
    error = (spread * (1 + 4 / 3)) ** 0.5  # 4 folds
    half = stats.t.ppf(0.975, effective - 1) * error
    assert row["low"] == close(max(0, row["mean"] - half))
    assert row["high"] == close(min(1, row["mean"] + half))
    assert row["effective"] == close(effective)
    assert row["groups"] == 20
    few = films.copy()
    few[np.arange(len(y)) % 9 < 8] = 0  # one large film
    row = om.score(y, p, few, folds=few % 4).loc["across"].loc["auroc"]
    assert np.isnan(row["low"])


@pytest.mark.parametrize("positives", [0, 1, 2])
def test_films_without_two_clips_of_each_class_have_no_score_of_their_own(positives):
    clips = some_clips()
    own = np.flatnonzero(np.array(clips.groups) == "film 3")
    clips.labels[own] = np.arange(len(own)) < positives
    groups = score_groups(clips)
    estimates = estimate_scores(groups)
    assert groups.left_out == ["film 3"] * (positives < 2)
    films = 7 + (positives == 2)
    within = estimates.within["auroc"]
    assert (within.groups, within.clips) == (films, 30 * films)
    across = estimates.across["auroc"]
    assert (across.groups, across.clips) == (8, 240)


@pytest.mark.parametrize("films", [4, 5])
def test_fewer_than_five_films_have_no_interval(films):
    estimate = estimate_scores(score_groups(some_clips(films=films))).within["auroc"]
    assert (estimate.interval is not None) == (films == 5)


@pytest.mark.parametrize(("over", "share"), [("within", MIN_SHARE / 2), ("across", 0.4)])
def test_skewed_scores_of_rare_positives_or_a_fixed_split_have_no_interval(over, share):
    """benchmarks/intervals.py shows that such intervals would not cover."""
    estimates = getattr(estimate_scores(score_groups(some_clips(size=200, share=share))), over)
    lacking = {key for key, estimate in estimates.items() if estimate.interval is None}
    assert lacking == {"average_precision", "precision", "recall"}
