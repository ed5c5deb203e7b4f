import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obygaze_models.experiments.metrics import score

clips = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.2, 0.4, 0.5, 0.7, 1.0])), min_size=1
)


def counted(pairs):
    """Every metric from first principles, by counting; None where it is 0 / 0."""
    tp = sum(label and p >= 0.5 for label, p in pairs)
    fp = sum(not label and p >= 0.5 for label, p in pairs)
    fn = sum(label and p < 0.5 for label, p in pairs)
    tn = len(pairs) - tp - fp - fn
    share = (tp + fn) / len(pairs)
    ranked = [(p, q) for label, p in pairs if label for other, q in pairs if not other]
    hits = [p for label, p in pairs if label]
    above = [[label for label, q in pairs if q >= p] for p in hits]

    def ratio(top, bottom):
        return top / bottom if bottom else None

    return {
        "f1": ratio(2 * tp, 2 * tp + fp + fn),
        "f1_weighted": share * (ratio(2 * tp, 2 * tp + fp + fn) or 0)
        + (1 - share) * (ratio(2 * tn, 2 * tn + fp + fn) or 0),
        "precision": ratio(tp, tp + fp),
        "recall": ratio(tp, tp + fn),
        "auroc": ratio(sum((p > q) + (p == q) / 2 for p, q in ranked), len(ranked)),
        "average_precision": ratio(sum(sum(at) / len(at) for at in above), len(hits)),
    }


@given(clips)
def test_scores_are_what_counting_gives(pairs):
    labels, probabilities = map(np.array, zip(*pairs, strict=True))
    expected = counted(pairs)
    scores = score(labels, probabilities)
    assert list(scores) == list(expected)
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
    }


def test_both_f1_differ_on_the_same_predictions():
    labels = np.array([1] * 2 + [0] * 8)
    scores = score(labels, np.array([0.9, 0.1] + [0.1] * 8))
    assert scores["f1"] == pytest.approx(2 / 3)
    assert scores["f1_weighted"] == pytest.approx(0.2 * 2 / 3 + 0.8 * 16 / 17)
