"""Concepts: their part in a prediction, chance, corrections, and errors."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize, root
from scipy.special import expit
from scipy.stats import t
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import obygaze_models as om

# Attributions of arrays, and factors of any errors, which commands give only of their own runs.
from obygaze_models.explain.attributions import attribute
from obygaze_models.studies.reproduce.films import error_factors
from tests.kit.clips import logistic_on, with_output
from tests.kit.floats import close


def add_up(model, clips):
    X = clips.X[:10]
    for x, expected in zip(X, model.predict_proba(X), strict=True):
        reasons = attribute(model, x[None], classes=("rest", "S")).of_clip(0)
        assert reasons["label"] == "S"  # even where "rest" is predicted
        parts = reasons["contributions"]
        total = reasons["intercept"] + sum(part["amount"] for part in parts)
        logit = np.log(expected[1] / expected[0])
        assert [total, reasons["logit"]] == close([logit, logit], eps=1e-5)
        yield x, {part["concept"]: part for part in parts}


@pytest.mark.parametrize("output", ["distance", "decision"])
def test_a_linear_heads_parts_add_up_to_its_logit(clips, output):
    model = logistic_on(with_output(clips.bank, output), l1_ratio=0.5).fit(clips.X, clips.y)
    for x, parts in add_up(model, clips):
        [scores] = model.concept_scores([x])
        measured = dict(zip(clips.data.concept_names, scores, strict=True))
        assert parts.keys() == measured.keys()
        for name, part in parts.items():
            assert part["amount"] == close(part["weight"] * measured[name])


def test_a_models_cut_moves_the_intercept(clips):
    model = logistic_on(clips.bank).fit(clips.X, clips.y)
    uncut = attribute(model, clips.X)
    moved = attribute(om.Model(model, om.About(cut=0.25)), clips.X)
    assert moved.logit - uncut.logit == close(np.log(3))


def test_parts_add_up_in_a_pipeline_whose_head_has_a_temperature(clips):
    last = om.ConceptBottleneck(om.ConceptBank(C=1.0), om.LinearSVMProbe(C=1.0))
    model = make_pipeline(StandardScaler(), last)
    model.fit(clips.X, clips.y, conceptbottleneck__concepts=clips.data.concepts)
    assert last.head_.temperature_ != 1
    assert len([*add_up(model, clips)]) == 10


#: Scores as a tree may meet them: equal, equal but for the last bits, and far apart.
NEAR = [1.0, 1 + 1e-9, 1 + 2**-23, 1 + 2**-24, 0.123456, 0.1234564, 0.1234561, -2.0, 0.0]
SCORES = st.sampled_from([*NEAR, -3.0, 2.0, 3.0, 1e3])


@given(arrays(np.float64, (12, 2), elements=SCORES), arrays(bool, 12))
def test_a_path_agrees_with_scikit_learns(scores, labels):
    """Its trees compare float32 values, in which near scores are equal or in another order."""
    tree = DecisionTreeClassifier(random_state=0).fit(scores, labels)
    bank = FunctionTransformer(feature_names_out=lambda *_: ["Look", "Body"]).fit(scores)
    model = om.ConceptBottleneck()
    model.bank_ = bank
    model.head_ = tree
    model.classes_ = np.array(["EN", "S"])
    model.n_features_in_ = 2
    visited = tree.decision_path(scores)
    leaves = tree.apply(scores)
    for row, steps in enumerate(attribute(model, scores).steps):
        nodes = [node for node in visited[row].indices if node != leaves[row]]
        for node, step in zip(nodes, steps, strict=True):
            column = tree.tree_.feature[node]
            assert step.concept == ("Look", "Body")[column]
            assert step.value == scores[row, column]
            assert step.threshold == tree.tree_.threshold[node]
            assert step.above == (tree.tree_.children_right[node] in visited[row].indices)


def share_at_least(values, null):
    return (1 + (null >= values - 1e-9).sum()) / (1 + len(null))


def test_a_concepts_use_is_compared_with_that_of_shuffled_labels(clips, network):
    """The derivatives are torch's, and the directions those of scikit-learn's SVM."""
    bank = clips.bank
    marks = clips.data.concepts[:, clips.bank.columns_].astype(int)
    marks[::7] = -1
    known = marks[:, 0] >= 0
    parts = []
    for weight, offset in zip(network.coefs_, network.intercepts_, strict=True):
        linear = torch.nn.Linear(*weight.shape, dtype=torch.float64)
        linear.weight.data = torch.tensor(weight.T, dtype=torch.float64)
        linear.bias.data = torch.tensor(offset, dtype=torch.float64)
        parts += [linear, torch.nn.ReLU()]
    forward = torch.nn.Sequential(*parts[:-1])
    leaf = torch.tensor(clips.X, dtype=torch.float64, requires_grad=True)
    forward(leaf)[:, 0].sum().backward()
    gradients = leaf.grad.numpy()
    chance = np.random.RandomState(3)
    null = []
    for run in range(12):
        labels = chance.permutation(marks[known, run % len(bank.names_)])
        svm = SVC(kernel="linear", C=1.0, class_weight="balanced").fit(clips.X[known], labels)
        null.append(svm.coef_[0] / np.linalg.norm(svm.coef_))
    null = np.array(null)

    model = om.Model(make_pipeline(FunctionTransformer(), network))
    table = om.tcav(model, clips.X, bank, clips.X, marks, code=0, runs=12, random_state=3)
    slopes = gradients @ null.T
    by_chance = (slopes > 0).mean(axis=0)
    assert table["random_score"].to_numpy() == close(by_chance.mean())
    for concept, cav in zip(table.itertuples(), bank.cavs_, strict=True):
        along = gradients @ cav
        assert concept.score == (along > 0).mean()
        assert concept.slope == close(along.mean())
        far = share_at_least(abs(concept.score - 0.5), abs(by_chance - 0.5))
        assert concept.p == close(far)
        steep = share_at_least(abs(concept.slope), abs(slopes.mean(axis=0)))
        assert concept.slope_p == close(steep)
    # The correction by Holm: the smallest p counts once for each concept.
    smallest = len(table) * table["p"].min()
    assert table["p_holm"].min() == close(min(1, smallest))
    assert (table["p_holm"] >= table["p"]).all()


def test_a_clip_without_gradient_counts_half(clips):
    model = om.MLPProbe((4,), early_stopping=False, max_iter=1, random_state=0)
    model.fit(clips.X, clips.y)
    model.intercepts_[0] = np.full(4, -1e6, np.float32)
    marks = clips.data.concepts[:, clips.bank.columns_]
    table = om.tcav(model, clips.X, clips.bank, clips.X, marks, runs=3)
    assert {*table["score"]} == {0.5}
    assert {*table["p"]} == {1.0}


NAMES = ["Body", "Look", "Posture", "EN", "HN", "S"]
LEVELS = ["EN", "HN", "NS", "S"]  # no clip is NS


def regress(wrong, marks, films, names=NAMES, **options):
    """Return the factors of errors, from marks that are a column for each name."""
    own = [[name for name, has in zip(names, row, strict=True) if has] for row in marks]
    level = ["".join(name for name in row if name in LEVELS) for row in own]
    concepts = ["|".join(name for name in row if name not in LEVELS) for row in own]
    clips = pd.DataFrame({"film": films, "level": level, "concepts": concepts})
    return error_factors(clips, wrong, LEVELS, **options)


def draw_clips(clips=400, films=4):
    """Return clips of films with marks; the first concept causes errors and S prevents them."""
    chance = np.random.default_rng(0)
    levels = chance.choice(3, clips, p=[0.6, 0.2, 0.2])
    is_level = np.eye(3, dtype=bool)[levels]
    marks = np.column_stack([chance.random((clips, 3)) < 0.3, is_level])
    odds = marks @ [1.5, 0, 0, 0, 0, -1.2] - 1
    wrong = chance.random(clips) < 1 / (1 + np.exp(-odds))
    return wrong, marks, [f"tt{at}" for at in chance.integers(0, films, clips)]


WRONG, MARKS, FILMS = draw_clips()


def minimised(wrong, marks):
    """Return the coefficients at which the slope of the penalised loss is 0."""

    def slope(beta):
        beyond = expit(beta[0] + marks @ beta[1:]) - wrong
        return np.append(beyond.sum(), beyond @ marks + beta[1:])

    def loss(beta):
        logits = beta[0] + marks @ beta[1:]
        losses = np.logaddexp(0, logits) - logits * wrong
        return losses.sum() + beta[1:] @ beta[1:] / 2

    flat = np.zeros(1 + marks.shape[1])
    near = minimize(loss, flat, jac=slope, method="BFGS").x
    return root(slope, near, tol=1e-12).x[1:]


def values(of_film, attribute="value"):
    return [getattr(factor, attribute) for factor in of_film.factors.values()]


def test_coefficients_minimise_the_penalised_loss():
    result = regress(WRONG, MARKS, FILMS, draws=20)
    assert [entry.film for entry in result] == [None, "tt0", "tt1", "tt2", "tt3"]
    for entry in result:
        rows = np.array([entry.film in (None, film) for film in FILMS])
        assert (entry.clips, entry.wrong) == (rows.sum(), WRONG[rows].sum())
        assert list(entry.factors) == NAMES
        expected = minimised(WRONG[rows], MARKS[rows])
        assert values(entry) == pytest.approx(expected, abs=1e-4)


def test_intervals_of_a_film_resample_its_clips():
    wrong, marks, films = draw_clips(150, 1)
    total, of_film = regress(wrong, marks, films, draws=800)
    chance = np.random.default_rng(99)
    draws = [chance.integers(0, 150, 150) for _ in range(150)]
    drawn = [minimised(wrong[rows], marks[rows]) for rows in draws]
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    assert values(of_film, "low") == pytest.approx(low, abs=0.3)
    assert values(of_film, "high") == pytest.approx(high, abs=0.3)
    # One film says nothing about other films.
    assert {*values(total, "low"), *values(total, "high")} == {None}
    assert values(total) == close(values(of_film))


def test_intervals_over_films_are_a_jackknife_with_a_t_interval():
    wrong, marks, films = draw_clips(600, 6)
    total = regress(wrong, marks, films, draws=1)[0]
    films = np.array(films)
    kept = [films != film for film in np.unique(films)]
    without = [minimised(wrong[rows], marks[rows]) for rows in kept]
    half = t.ppf(0.975, 5) * 5**0.5 * np.std(without, axis=0)
    middle = np.array(values(total))
    assert values(total, "low") == pytest.approx(middle - half, abs=1e-3)
    assert values(total, "high") == pytest.approx(middle + half, abs=1e-3)
    # In cross-validation, the variance is 1 + 6 / 5 times as large.
    crossed = regress(wrong, marks, films, draws=1, cross_validated=True)[0]
    assert values(crossed) == values(total)
    wider = middle + 2.2**0.5 * half
    assert values(crossed, "high") == pytest.approx(wider, abs=1e-3)


def test_a_film_without_errors_or_without_variety_has_no_factors():
    films = np.array(FILMS)
    here = films == "tt3"
    wrong = np.where(films == "tt2", True, WRONG & (films != "tt1"))
    marks = MARKS.copy()
    marks[here, :2] = [False, True]
    total, _, faultless, hopeless, uniform = regress(wrong, marks, FILMS, draws=20)
    assert faultless.factors == hopeless.factors == {}
    assert (faultless.wrong, hopeless.wrong) == (0, hopeless.clips)
    assert values(uniform)[:2] == [None, None]
    expected = minimised(wrong[here], marks[here][:, 2:])
    assert values(uniform)[2:] == pytest.approx(expected, abs=1e-4)
    assert None not in values(total)
