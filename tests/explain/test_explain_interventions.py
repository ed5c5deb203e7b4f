import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score, f1_score

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.bottlenecks import HybridBottleneck
from obygaze_models.estimators.classes import as_logits
from obygaze_models.estimators.concepts import RandomDirections
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.explain.interventions import Annotated, intervene
from tests.estimators.clips import logistic_on, tree_on, with_output

DRAWS = 4


def models(clips):
    yield tree_on(clips.bank, max_depth=4, random_state=0), clips.y
    yield logistic_on(with_output(clips.bank, "decision"), C=1), clips.y
    yield logistic_on(clips.bank, C=10), clips.levels
    yield HybridBottleneck(FrozenEstimator(clips.bank), LogisticProbe(C=1)), clips.y


def sides(clips):
    train = clips.known.folds < 4
    parts = [Annotated(clips.X[of], clips.known.concepts[of]) for of in (train, ~train)]
    return train, *parts


@pytest.mark.parametrize("which", range(4))
def test_interventions_are_those_done_clip_by_clip(clips, which):
    model, y = list(models(clips))[which]
    train, known, asked = sides(clips)
    model.fit(clips.X[train], y[train])
    found = intervene(
        model, clips.known.concept_names, known, asked, y[~train], draws=DRAWS, random_state=6
    )
    assert found.concepts == clips.known.concept_names
    assert found.clips == (~train).sum()

    scale = clips.bank.scales_ if model.bank_.output == "decision" else np.ones(3)
    distances = clips.bank.transform(clips.X)
    mean = {
        (concept, shown): (distances * scale)[train][
            clips.known.concepts[train, concept] == shown, concept
        ].mean()
        for concept in range(3)
        for shown in (False, True)
    }
    assert found.present == pytest.approx([mean[one, True] for one in range(3)])
    assert found.absent == pytest.approx([mean[one, False] for one in range(3)])

    def said(row, corrected):
        measured = distances[row] * scale
        for concept in corrected:
            measured[concept] = mean[concept, bool(clips.known.concepts[row, concept])]
        if isinstance(model, HybridBottleneck):
            scores = as_logits(model.head_.decision_function(measured[None]))
            logits = scores + model.residual_logits(clips.X[[row]])
            return model.classes_[logits.argmax()]
        return model.classes_[model.head_.predict_proba(measured[None]).argmax()]

    def score(order_of):
        accuracy, f1 = [], []
        for count in range(4):
            calls = [said(row, order_of(row)[:count]) for row in np.flatnonzero(~train)]
            accuracy.append(accuracy_score(y[~train], calls))
            average = "binary" if len(model.classes_) == 2 else "macro"
            f1.append(f1_score(y[~train], calls, average=average))
        return accuracy, f1

    chance = np.random.RandomState(6)
    orders = [chance.permutation(3).tolist() for _ in range(DRAWS)]
    runs = [score(lambda row, order=order: order) for order in orders]
    random, uncertain = found.curves
    assert (random.order, random.draws) == ("random", DRAWS)
    assert random.accuracy == pytest.approx(np.mean([run[0] for run in runs], axis=0))
    assert random.f1 == pytest.approx(np.mean([run[1] for run in runs], axis=0))
    assert random.accuracy_std == pytest.approx(np.std([run[0] for run in runs], axis=0))
    assert random.f1_std == pytest.approx(np.std([run[1] for run in runs], axis=0))

    nearest = score(lambda row: sorted(range(3), key=lambda one: abs(distances[row, one])))
    assert (uncertain.order, uncertain.draws) == ("uncertainty", 1)
    assert uncertain.accuracy == pytest.approx(nearest[0])
    assert uncertain.f1 == pytest.approx(nearest[1])

    # Untouched it is the model itself; with all corrected the order does not matter.
    own = accuracy_score(y[~train], model.predict(clips.X[~train]))
    assert random.accuracy[0] == uncertain.accuracy[0] == pytest.approx(own)
    assert random.accuracy[-1] == uncertain.accuracy[-1]
    assert max(random.accuracy_std[1:3]) > 0


def test_the_annotations_columns_are_found_by_name(clips):
    model = logistic_on(clips.bank, C=1).fit(clips.X, clips.y)
    names, marks = clips.known.concept_names, clips.known.concepts
    plain = Annotated(clips.X, marks)
    turned = Annotated(clips.X, np.column_stack([np.ones(240, bool), marks[:, ::-1]]))
    first = intervene(model, names, plain, plain, clips.y)
    assert intervene(model, ("other", *names[::-1]), turned, turned, clips.y) == first


def test_nothing_positive_and_nothing_called_so_has_no_f1(clips):
    model = logistic_on(clips.bank, C=1).fit(clips.X, clips.y)
    model.head_.intercept_[:] = -100
    known = Annotated(clips.X, clips.known.concepts)
    negative = clips.y == 0
    asked = Annotated(clips.X[negative], clips.known.concepts[negative])
    found = intervene(model, clips.known.concept_names, known, asked, clips.y[negative])
    for curve in found.curves:
        assert curve.f1 == curve.f1_std == (None,) * 4
        assert curve.accuracy == (1,) * 4


def test_refuses_what_cannot_be_corrected(clips):
    known = Annotated(clips.X, clips.known.concepts)
    model = logistic_on(clips.bank, C=1).fit(clips.X, clips.y)
    with pytest.raises(ExperimentError, match="have no concept 'Look'"):
        intervene(model, ("Type of plan",), known, known, clips.y)
    bare = Annotated(clips.X, clips.known.concepts * [1, 0, 1])
    with pytest.raises(ExperimentError, match="all 240 training clips are not marked with 'Look'"):
        intervene(model, clips.known.concept_names, bare, known, clips.y)
    meaningless = logistic_on(RandomDirections(2, random_state=0).fit(clips.X))
    meaningless.fit(clips.X, clips.y)
    with pytest.raises(ExperimentError, match="no concept 'random 1'"):
        intervene(meaningless, clips.known.concept_names, known, known, clips.y)
