import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
)

from obygaze_models.intervals import ScoredClips, film_intervals
from obygaze_models.metrics import score, weighted_scores

clips = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.2, 0.4, 0.5, 0.7, 1.0])), min_size=1
)


def counted(pairs):
    """Every metric from first principles, by counting; None where it is 0 / 0."""
    tp = sum(label and p > 0.5 for label, p in pairs)
    fp = sum(not label and p > 0.5 for label, p in pairs)
    fn = sum(label and p <= 0.5 for label, p in pairs)
    tn = len(pairs) - tp - fp - fn
    share = (tp + fn) / len(pairs)
    ranked = [(p, q) for label, p in pairs if label for other, q in pairs if not other]
    hits = [p for label, p in pairs if label]
    above = [[label for label, q in pairs if q >= p] for p in hits]
    bins = [[(label, p) for label, p in pairs if min(9, int(p * 10)) == k] for k in range(10)]

    def ratio(top, bottom):
        return top / bottom if bottom else None

    both = tp + fn and tn + fp
    return {
        "f1": ratio(2 * tp, 2 * tp + fp + fn),
        "f1_weighted": share * (ratio(2 * tp, 2 * tp + fp + fn) or 0)
        + (1 - share) * (ratio(2 * tn, 2 * tn + fp + fn) or 0),
        "precision": ratio(tp, tp + fp),
        "recall": ratio(tp, tp + fn),
        "auroc": ratio(sum((p > q) + (p == q) / 2 for p, q in ranked), len(ranked)),
        "average_precision": ratio(sum(sum(at) / len(at) for at in above), len(hits)),
        "balanced_accuracy": (tp / (tp + fn) + tn / (tn + fp)) / 2 if both else None,
        "calibration_error": sum(abs(sum(p - label for label, p in b)) for b in bins) / len(pairs),
    }


@given(clips)
def test_scores_are_what_counting_gives(pairs):
    labels, probabilities = map(np.array, zip(*pairs, strict=True))
    expected = counted(pairs)
    scores = score(labels, probabilities)
    assert set(scores) == set(expected)
    for metric, value in scores.items():
        assert value == (None if expected[metric] is None else pytest.approx(expected[metric]))


def test_one_class_only_leaves_what_is_undefined_open():
    scores = score(np.zeros(3, int), np.array([0.1, 0.2, 0.3]))
    assert scores == {
        "f1": None,
        "f1_weighted": 1.0,
        "precision": None,
        "recall": None,
        "auroc": None,
        "average_precision": None,
        "balanced_accuracy": None,
        "calibration_error": pytest.approx(0.2),
    }


@given(clips)
def test_scores_are_scikit_learns(pairs):
    labels, probabilities = map(np.array, zip(*pairs, strict=True))
    predicted = (probabilities > 0.5).astype(int)
    scores = score(labels, probabilities)
    both = len(set(labels)) == 2
    expected = {
        "f1": f1_score(labels, predicted) if (labels | predicted).any() else None,
        "f1_weighted": f1_score(labels, predicted, average="weighted", zero_division=0),
        "precision": precision_score(labels, predicted) if predicted.any() else None,
        "recall": recall_score(labels, predicted) if labels.any() else None,
        "auroc": roc_auc_score(labels, probabilities) if both else None,
        "average_precision": average_precision_score(labels, probabilities)
        if labels.any()
        else None,
    }
    for metric, value in expected.items():
        assert scores[metric] == (None if value is None else pytest.approx(value)), metric


def test_both_f1_differ_on_the_same_predictions():
    labels = np.array([1] * 2 + [0] * 8)
    scores = score(labels, np.array([0.9, 0.1] + [0.1] * 8))
    assert scores["f1"] == pytest.approx(2 / 3)
    assert scores["f1_weighted"] == pytest.approx(0.2 * 2 / 3 + 0.8 * 16 / 17)


def three_classes(seed, count=60):
    chance = np.random.default_rng(seed)
    labels = chance.integers(0, 3, count)
    probabilities = chance.dirichlet(np.ones(3), count)
    return labels, probabilities


def test_several_classes_as_scikit_learn_scores_them():
    labels, probabilities = three_classes(3)
    predicted = probabilities.argmax(axis=1)
    scores = score(labels, probabilities)
    assert scores["f1_macro"] == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert scores["f1_weighted"] == pytest.approx(f1_score(labels, predicted, average="weighted"))
    assert scores["accuracy"] == pytest.approx(accuracy_score(labels, predicted))
    assert scores["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, predicted))
    area = roc_auc_score(labels, probabilities, multi_class="ovr")
    assert scores["auroc"] == pytest.approx(area)


@given(clips, st.integers(0, 2**32))
def test_a_weight_is_a_clip_so_many_times(pairs, seed):
    labels, probabilities = map(np.array, zip(*pairs, strict=True))
    weights = np.random.default_rng(seed).integers(0, 4, (3, len(labels)))
    weights[:, 0] += 1
    values_of = weighted_scores(labels, probabilities, weights.astype(float))
    for row, times in enumerate(weights):
        expected = score(np.repeat(labels, times), np.repeat(probabilities, times))
        assert values_of.keys() == expected.keys()
        for metric, value in expected.items():
            assert values_of[metric][row] == pytest.approx(
                np.nan if value is None else value, nan_ok=True
            )


@given(st.integers(0, 2**32))
def test_a_weight_is_so_many_clips_of_several_classes(seed):
    labels, probabilities = three_classes(seed, 12)
    weights = np.random.default_rng(seed).integers(0, 3, (2, 12)) + np.eye(2, 12, dtype=int)
    values_of = weighted_scores(labels, probabilities, weights.astype(float))
    for row, times in enumerate(weights):
        expected = score(np.repeat(labels, times), np.repeat(probabilities, times, axis=0))
        for metric, values in values_of.items():
            value = expected[metric]
            assert values[row] == pytest.approx(np.nan if value is None else value, nan_ok=True)


def by_plain_loop(runs, seed, replicates):
    """Draw films, repeat their clips, score each run, average by what share was drawn."""
    films = sorted({film for run in runs for film in run.films})
    drawn = np.random.default_rng(seed).multinomial(
        len(films), np.full(len(films), 1 / len(films)), size=replicates
    )
    means = []
    for counts in drawn:
        times_of = dict(zip(films, counts, strict=True))
        total, weight = 0.0, 0.0
        for run in runs:
            times = [times_of[film] for film in run.films]
            if sum(times):
                value = score(np.repeat(run.labels, times), np.repeat(run.probabilities, times))[
                    "f1"
                ]
                if value is not None:
                    total += value * sum(times) / len(times)
                    weight += sum(times) / len(times)
        if weight:
            means.append(total / weight)
    return np.quantile(means, [0.025, 0.975]).tolist()


@pytest.mark.parametrize("film_a_run", [False, True])
def test_intervals_are_those_of_a_plain_loop(film_a_run):
    chance = np.random.default_rng(1)
    runs = []
    for number in range(4):
        films = [f"f{number}"] * 40 if film_a_run else chance.choice(["a", "b", "c"], 40).tolist()
        labels = chance.integers(0, 2, 40)
        runs.append(
            ScoredClips(labels, np.clip(labels * 0.3 + chance.random(40) * 0.7, 0, 1), films)
        )
    values_of = film_intervals(runs, seed=5, replicates=40)["f1"]
    assert values_of == pytest.approx(by_plain_loop(runs, 5, 40))
    assert film_intervals(runs, seed=5, replicates=40)["f1"] == values_of


def test_films_that_differ_widen_the_interval():
    """The same 60 clips, once in sixty films and once in two: alike within, unlike between."""
    labels = np.tile([0, 1], 30)
    predicted = np.where(np.arange(60) < 30, labels, 1 - labels).astype(float)
    narrow, wide = (
        film_intervals([ScoredClips(labels, predicted, films)], seed=0)["balanced_accuracy"]
        for films in ([f"{n:02}" for n in range(60)], ["a"] * 30 + ["b"] * 30)
    )
    assert wide == (0, 1)
    assert narrow[1] - narrow[0] < 0.4


def test_one_film_has_no_interval():
    sample = ScoredClips(np.array([0, 1]), np.array([0.1, 0.9]), ["a", "a"])
    assert set(film_intervals([sample], seed=0).values()) == {None}
