"""Scores by film, intervals and comparisons, against scipy, brute force and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from obygaze_models.scoring.intervals import (
    MIN_SHARE,
    ScoredClips,
    estimate_differences,
    estimate_mean,
    estimate_scores,
    estimate_weighted,
    holm,
    jackknife,
    leave_each_out,
    score_groups,
    score_pooled,
)
from obygaze_models.scoring.metrics import TREC
from obygaze_models.studies.mediaeval.runs import trec_average_precision
from tests.kit.floats import close
from tests.kit.intervals import holm_by_closed_tests

SCORERS = {
    "auroc": roc_auc_score,
    "average_precision": average_precision_score,
    "f1": lambda labels, p: f1_score(labels, p > 0.5),
}


def some_clips(films=8, size=30, fits=1, share=0.4, seed=0):
    """Return clips of several films, each tested by the same number of fits."""
    chance = np.random.default_rng(seed)
    names = np.repeat([f"film {n}" for n in range(films)], size)
    labels = (chance.random(films * size) < share).astype(np.int64)
    ids = [f"{film}-{n}" for n, film in enumerate(names)]
    probabilities = [
        np.clip(0.2 * labels + 0.8 * chance.random(len(ids)), 0, 1) for _ in range(fits)
    ]
    rows = np.tile(np.arange(len(ids)), fits)
    return ScoredClips(
        [ids[row] for row in rows],
        labels[rows],
        np.concatenate(probabilities),
        names[rows].tolist(),
    )


def by_film(clips, scorer, rows=slice(None)):
    labels, scores = clips.labels[rows], clips.probabilities[rows]
    films = np.array(clips.groups)[rows]
    return np.array([scorer(labels[films == f], scores[films == f]) for f in np.unique(films)])


@pytest.mark.parametrize("key", SCORERS)
def test_a_score_is_the_mean_over_films_with_scipys_t_interval(key):
    clips = some_clips()
    values = by_film(clips, SCORERS[key])
    estimate = estimate_scores(score_groups(clips))[key]
    assert estimate.value == close(values.mean())
    test = stats.ttest_1samp(values, 0)
    assert estimate.interval == close(tuple(test.confidence_interval(0.95)))
    assert estimate.groups == 8


def test_differences_are_paired_by_film():
    first, second = some_clips(seed=1), some_clips(seed=1)
    noise = np.random.default_rng(2).normal(0, 0.2, len(second.ids))
    second = ScoredClips(
        second.ids, second.labels, np.clip(second.probabilities + noise, 0, 1), second.groups
    )
    comparison = estimate_differences(score_groups(first), score_groups(second))["auroc"]
    test = stats.ttest_rel(by_film(first, roc_auc_score), by_film(second, roc_auc_score))
    assert comparison.difference.p_value == close(test.pvalue)
    assert comparison.difference.interval == close(tuple(test.confidence_interval(0.95)))


def test_the_pooled_score_has_a_jackknife_over_films():
    clips = some_clips(films=6)
    estimate = estimate_weighted(score_pooled(clips)["auroc"])
    films = np.array(clips.groups)
    pooled = roc_auc_score(clips.labels, clips.probabilities)
    without = [
        roc_auc_score(clips.labels[films != f], clips.probabilities[films != f])
        for f in np.unique(films)
    ]
    assert estimate.value == close(pooled)
    error = (5 / 6 * ((np.array(without) - np.mean(without)) ** 2).sum()) ** 0.5
    half = stats.t.ppf(0.975, 5) * error
    assert estimate.interval == close((pooled - half, pooled + half))


@given(st.lists(st.floats(0, 1), min_size=5, max_size=12))
def test_the_jackknife_of_a_mean_is_its_t_interval(values):
    weights = leave_each_out(len(values))
    estimate = jackknife(weights @ np.array(values) / weights.sum(axis=1))
    plain = estimate_mean(np.array(values))
    assert estimate.value == close(plain.value)
    assert estimate.interval == pytest.approx(plain.interval, abs=1e-9)


def test_films_without_clips_of_each_class_do_not_count():
    clips = some_clips()
    labels = np.where(np.array(clips.groups) == "film 3", 0, clips.labels)
    parts = score_groups(ScoredClips(clips.ids, labels, clips.probabilities, clips.groups))
    assert parts.left_out == ["film 3"]
    assert estimate_scores(parts)["auroc"].groups == 7
    unnamed = ["" if film == "film 3" else film for film in clips.groups]
    parts = score_groups(ScoredClips(clips.ids, clips.labels, clips.probabilities, unnamed))
    assert len(parts.values) == 7


@pytest.mark.parametrize("films", [[""] * 240, ["only"] * 240])
def test_a_single_film_is_scored_without_an_interval(films):
    clips = some_clips()
    parts = score_groups(ScoredClips(clips.ids, clips.labels, clips.probabilities, films))
    estimate = estimate_scores(parts)["auroc"]
    assert parts.pooled
    assert estimate.value == close(roc_auc_score(clips.labels, clips.probabilities))
    assert estimate.interval is None


@pytest.mark.parametrize("films", [4, 5])
def test_fewer_than_five_films_have_no_interval(films):
    estimate = estimate_scores(score_groups(some_clips(films=films)))["auroc"]
    assert (estimate.interval is not None) == (films == 5)


def test_skewed_scores_of_rare_positives_have_no_interval():
    """benchmarks/intervals.py shows that such intervals would not cover."""
    estimates = estimate_scores(score_groups(some_clips(size=200, share=MIN_SHARE / 2)))
    lacking = {key for key, estimate in estimates.items() if estimate.interval is None}
    assert lacking == {"average_precision", "precision", "recall"}


def test_an_official_measure_pools_all_clips():
    clips = some_clips()
    official = ScoredClips(clips.ids, clips.labels, clips.probabilities, clips.groups, measure=TREC)
    estimate = estimate_scores(score_groups(official))[TREC]
    positives = [clip for clip, label in zip(clips.ids, clips.labels, strict=True) if label]
    expected = trec_average_precision(clips.ids, clips.probabilities, positives)
    assert estimate.value == close(expected)
    low, high = estimate.interval
    assert low < expected < high


def test_holm_equals_closed_tests():
    chance = np.random.default_rng(3)
    for size in range(1, 9):
        p_values = [*chance.random(size).round(1).tolist(), 0.0, 1.0]
        assert holm(p_values).tolist() == close(holm_by_closed_tests(p_values))
        assert np.isnan(holm([None, *p_values])[0])
