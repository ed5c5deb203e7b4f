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
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import obygaze_models as om
from obygaze_models.estimators.trees import TreeArrays
from obygaze_models.explain.attributions import Attribution, attribute
from obygaze_models.explain.parts import mean_parts
from obygaze_models.explain.tcav import logit_gradients, random_label_cavs
from obygaze_models.figures.dots import Dot
from obygaze_models.results.reasons import join_reasons, tabulate_reasons
from obygaze_models.scoring.intervals import holm
from obygaze_models.studies.reproduce.films import error_factors
from tests.kit.clips import logistic_on, torch_logits, with_output
from tests.kit.floats import close


def explain_clip(model, x, **options):
    return attribute(model, np.asarray(x)[None], **options).of_clip(0)


def logit(probabilities):
    return np.log(probabilities[1] / probabilities[0])


@pytest.mark.parametrize("output", ["distance", "decision"])
@pytest.mark.parametrize("l1_ratio", [0, 0.5])
def test_a_linear_heads_parts_add_up_to_its_logit(clips, l1_ratio, output):
    model = logistic_on(with_output(clips.bank, output), l1_ratio=l1_ratio).fit(clips.X, clips.y)
    for x, expected in zip(clips.X[:10], model.predict_proba(clips.X[:10]), strict=True):
        reasons = explain_clip(model, x, classes=("rest", "S"))
        assert reasons["label"] == "S"  # even where "rest" is predicted
        total = reasons["intercept"] + sum(part["amount"] for part in reasons["contributions"])
        assert total == close(logit(expected)) == close(reasons["logit"])
        measured = dict(zip(clips.data.concept_names, model.concept_scores([x])[0], strict=True))
        assert {part["concept"] for part in reasons["contributions"]} == set(measured)
        for part in reasons["contributions"]:
            assert part["amount"] == close(part["weight"] * measured[part["concept"]])


def test_parts_add_up_in_a_pipeline_whose_head_has_a_temperature(clips):
    last = om.ConceptBottleneck(om.ConceptBank(C=1.0), om.LinearSVMProbe(C=1.0))
    model = make_pipeline(StandardScaler(), last)
    model.fit(clips.X, clips.y, conceptbottleneck__concepts=clips.data.concepts)
    assert last.head_.temperature_ != 1
    for x, expected in zip(clips.X[:10], model.predict_proba(clips.X[:10]), strict=True):
        reasons = explain_clip(model, x, classes=("rest", "S"))
        total = reasons["intercept"] + sum(part["amount"] for part in reasons["contributions"])
        assert total == close(logit(expected), eps=1e-5)


#: Scores as a tree may meet them: equal, equal but for the last bits, and far apart.
NEAR = [1.0, 1 + 1e-9, 1 + 2**-23, 1 + 2**-24, 0.123456, 0.1234564, 0.1234561, -2.0, 0.0]
SCORES = st.sampled_from([*NEAR, -3.0, 2.0, 3.0, 1e3])


@given(
    arrays(np.float64, st.tuples(st.integers(1, 12), st.just(2)), elements=SCORES),
    arrays(np.float64, 15, elements=SCORES),
    arrays(np.int64, 15, elements=st.integers(0, 1)),
)
def test_a_path_agrees_with_its_branches(scores, thresholds, asked):
    places = np.arange(15)
    left, right = (np.where(places < 7, 2 * places + side, -1) for side in (1, 2))
    tree = TreeArrays(left, right, asked, thresholds, np.full((15, 2), 0.5), 2)
    model = om.ConceptBottleneck()
    model.bank_, model.head_, model.classes_ = FunctionTransformer(), tree, np.array(["EN", "S"])
    model.bank_.get_feature_names_out = lambda: ["Look", "Body"]
    for row, steps in enumerate(attribute(model, scores).steps):
        node = 0
        for step in steps:
            column = ("Look", "Body").index(step.concept)
            assert (column, step.threshold) == (asked[node], thresholds[node])
            assert step.value == scores[row, column]
            # scikit-learn's trees compare float32 values.
            assert step.above == (np.float64(np.float32(step.value)) > step.threshold)
            node = (right if step.above else left)[node]
        assert node == tree.apply(scores)[row]


@pytest.mark.parametrize("several", [False, True])
def test_a_networks_derivatives_equal_torchs(clips, network, several):
    if not several:
        network = om.MLPProbe((12, 6), early_stopping=False, max_iter=8, random_state=1)
        network.fit(clips.X, clips.y)
    forward = torch_logits(network)
    gradients = logit_gradients(network, clips.X[:10])
    for row, x in enumerate(clips.X[:10]):
        for code in range(len(network.classes_)):
            leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
            forward(leaf)[code].backward()
            assert gradients[code, row] == close(leaf.grad.numpy())


def test_models_without_concepts_have_no_reasons(clips, network):
    votes = KNeighborsClassifier(metric="cosine").fit(clips.X, clips.y)
    for model in (network, votes):
        assert attribute(model, clips.X) is None


def test_concepts_may_be_called_like_the_intercept():
    ids, names = ["a", "b"], ("(intercept)", "at rest (intercept)")
    values, rest = np.array([[1.0, 2.0], [3.0, -4.0]]), np.array([0.5, -0.5])
    tables = []
    for fit, weights in enumerate((np.ones((2, 2)), np.full((2, 2), 3.0))):
        fitted = Attribution("sum", names, ["S", "S"], values, weights, weights[0] * rest)
        tables.append(tabulate_reasons(ids, ["S"] * 2, fitted).assign(model="", task="", fit=fit))
    first, second = mean_parts(join_reasons(tables), ids)
    assert first == [("at rest (intercept)", 4), ("(intercept)", 2), ("at rest (intercept)", 1)]
    assert second == [("at rest (intercept)", -8), ("(intercept)", 6), ("at rest (intercept)", -1)]


def test_p_counts_random_directions_at_least_as_far(clips, network):
    bank, marks = clips.bank, clips.data.concepts[:, clips.bank.columns_]
    settings = {"runs": 60, "random_state": 3}
    model = om.Model(make_pipeline(FunctionTransformer(), network))
    table = om.tcav(model, clips.X, bank, clips.X, marks, code=0, **settings)
    null = random_label_cavs(bank, clips.X, marks, **settings)
    gradients = logit_gradients(network, clips.X)[0]
    for concept, cav in zip(table.itertuples(), bank.cavs_, strict=True):
        assert concept.score == (gradients @ cav > 0).mean()
        far = abs(concept.score - 0.5)
        as_far = sum(abs(float((gradients @ v > 0).mean()) - 0.5) >= far - 1e-9 for v in null)
        assert concept.p == close((1 + as_far) / 61)
        steep = abs((gradients @ cav).mean())
        as_steep = sum(abs((gradients @ v).mean()) >= steep - 1e-9 for v in null)
        assert concept.slope_p == close((1 + as_steep) / 61)
        assert abs(concept.slope) == close(steep)
    assert table["p_holm"].tolist() == holm(table["p"].tolist()).tolist()


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
    levels = np.eye(3, dtype=bool)[chance.choice(3, clips, p=[0.6, 0.2, 0.2])]
    marks = np.column_stack([chance.random((clips, 3)) < 0.3, levels])
    odds = -1.0 + 1.5 * marks[:, 0] - 1.2 * marks[:, 5]
    wrong = chance.random(clips) < 1 / (1 + np.exp(-odds))
    return wrong, marks, [f"tt{at}" for at in chance.integers(0, films, clips)]


WRONG, MARKS, FILMS = draw_clips()


def minimised(wrong, marks, penalty=1.0):
    """Return the coefficients at which the slope of the penalised loss is 0."""

    def slope(beta):
        beyond = expit(beta[0] + marks @ beta[1:]) - wrong
        return np.append(beyond.sum(), beyond @ marks + penalty * beta[1:])

    def loss(beta):
        logits = beta[0] + marks @ beta[1:]
        return (np.logaddexp(0, logits) - logits * wrong).sum() + penalty * beta[1:] @ beta[1:] / 2

    near = minimize(loss, np.zeros(1 + marks.shape[1]), jac=slope, method="BFGS").x
    return root(slope, near, tol=1e-12).x[1:]


def values(of_film, attribute="value"):
    return [getattr(factor, attribute) for factor in of_film.factors.values()]


@pytest.mark.parametrize("penalty", [0.01, 20.0])
def test_coefficients_minimise_the_penalised_loss(penalty):
    result = regress(WRONG, MARKS, FILMS, penalty=penalty, draws=20)
    assert [entry.film for entry in result] == [None, "tt0", "tt1", "tt2", "tt3"]
    for entry in result:
        rows = np.array([entry.film in (None, film) for film in FILMS])
        assert (entry.clips, entry.wrong) == (rows.sum(), WRONG[rows].sum())
        assert list(entry.factors) == NAMES
        expected = minimised(WRONG[rows], MARKS[rows], penalty)
        assert values(entry) == pytest.approx(expected, abs=1e-4)
    # Nearly separable: only the penalty keeps the coefficient finite.
    wrong = np.arange(1500) == 7
    marks = np.column_stack([wrong, np.arange(1500) % 2 == 0])
    result = regress(wrong, marks, ["tt1"] * 1500, ["a", "b"], penalty=0.001, draws=2)
    assert values(result[1]) == pytest.approx(minimised(wrong, marks, 0.001), abs=1e-4)


def test_intervals_resample_clips_or_films():
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
    # Over all films, the interval is a jackknife with a t interval.
    wrong, marks, films = draw_clips(600, 6)
    total = regress(wrong, marks, films, draws=1)[0]
    films = np.array(films)
    without = [minimised(wrong[films != f], marks[films != f]) for f in np.unique(films)]
    error = (5 / 6 * ((without - np.mean(without, axis=0)) ** 2).sum(axis=0)) ** 0.5
    half = t.ppf(0.975, 5) * error
    assert values(total, "low") == pytest.approx(np.array(values(total)) - half, abs=1e-3)
    assert values(total, "high") == pytest.approx(np.array(values(total)) + half, abs=1e-3)
    # In cross-validation, the variance is 1 + 6 / 5 times as large.
    crossed = regress(wrong, marks, films, draws=1, cross_validated=True)[0]
    assert values(crossed) == values(total)
    wider = np.array(values(total)) + 2.2**0.5 * half
    assert values(crossed, "high") == pytest.approx(wider, abs=1e-3)


def test_a_film_without_errors_or_without_variety_has_no_factors():
    films, wrong, marks = np.array(FILMS), WRONG.copy(), MARKS.copy()
    wrong[films == "tt1"], wrong[films == "tt2"] = False, True
    marks[films == "tt3", 0], marks[films == "tt3", 1] = False, True
    total, _, faultless, hopeless, uniform = regress(wrong, marks, FILMS, draws=20)
    assert faultless.factors == hopeless.factors == {}
    assert (faultless.wrong, hopeless.wrong) == (0, hopeless.clips)
    here = films == "tt3"
    assert [uniform.factors[name] for name in NAMES[:2]] == [Dot(None)] * 2
    expected = minimised(wrong[here], marks[here][:, 2:])
    assert values(uniform)[2:] == pytest.approx(expected, abs=1e-4)
    assert total.factors["Body"].value is not None


def test_without_a_film_with_all_errors_there_is_no_interval():
    films = np.repeat([f"tt{film}" for film in range(6)], 20)
    marks = np.arange(120)[:, None] % 3 == 0
    wrong = (films == "tt0") & (np.arange(120) % 2 == 0)
    total, of_film, *_ = regress(wrong, marks, films.tolist(), ["a"], draws=50)
    assert (total.factors["a"].low, total.factors["a"].high) == (None, None)
    assert of_film.factors["a"].low < 0 < of_film.factors["a"].high
