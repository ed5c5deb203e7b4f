from itertools import product
from math import comb

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from obygaze_models.estimators.baselines import baselines, simulated


def test_published_numbers():
    """At the share of the whole dataset, as the paper's v1 and v2 print them, and of test folds."""
    for share, guess, positive, weighted in (
        (0.236, "random", 0.32, 0.54), (0.191, "all positive", 0.32, 0.06),
        (31 / 75, "random", 0.45, 0.50), (31 / 105, "random", 0.37, 0.52),
    ):  # fmt: skip
        scores = baselines(share)[guess]
        assert (round(scores["f1"], 2), round(scores["f1_weighted"], 2)) == (positive, weighted)


@pytest.mark.parametrize("positives", [1, 50, 99])
@pytest.mark.parametrize("name", ["all positive", "majority"])
def test_constant_guesses_score_as_scikit_learn_says(name, positives):
    labels = np.arange(100) < positives
    says = name == "all positive" or positives >= 50
    predictions = np.full(100, says)
    scores = baselines(positives / 100)[name]
    assert scores["f1"] == pytest.approx(f1_score(labels, predictions))
    assert scores["f1_weighted"] == pytest.approx(f1_score(labels, predictions, average="weighted"))
    assert scores["auroc"] == roc_auc_score(labels, predictions)
    assert scores["average_precision"] == average_precision_score(labels, predictions)
    assert scores["recall"] == says
    assert baselines(0.2)["majority"]["precision"] is None


def test_a_simulated_coin_scores_as_every_coin_does():
    """Twelve clips, five positive: every number of heads on either side, and how likely it is."""
    labels = np.arange(12) < 5
    odds, scores = [], {"f1": [], "f1_weighted": []}
    for hits, slips in product(range(6), range(8)):
        heads = np.r_[np.arange(5) < hits, np.arange(7) < slips]
        odds.append(comb(5, hits) * comb(7, slips) / 2**12)
        scores["f1"].append(f1_score(labels, heads))
        scores["f1_weighted"].append(f1_score(labels, heads, average="weighted"))
    found = simulated(12, 5, seed=0)
    for name, values in scores.items():
        mean = np.average(values, weights=odds)
        assert found["mean"][name] == pytest.approx(mean, abs=0.02)
        spread = np.sqrt(np.average((np.array(values) - mean) ** 2, weights=odds))
        assert found["std"][name] == pytest.approx(spread, abs=0.02)
