import time
import warnings

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold, cross_val_score
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.concepts import ConceptBank, DegenerateConcept
from obygaze_models.estimators.svm_solver import GRAM_ROWS
from obygaze_models.tasks import concept_targets
from tests.estimators.clips import CONCEPTS


@pytest.fixture(scope="module")
def parts(labelled):
    """Features and targets of the training folds and of fold 8."""
    targets = concept_targets(labelled.levels, labelled.concepts, "b")
    train, held = np.flatnonzero(labelled.folds < 8), np.flatnonzero(labelled.folds == 8)
    return labelled.X[train], targets[train], labelled.X[held], targets[held]


def fit(parts, *, names=CONCEPTS, kind="svm", **options):
    X, Y, X_val, Y_val = parts
    bank = ConceptBank(kind, **options)
    return bank.fit(X, Y, concept_names=names, X_val=X_val, concepts_val=Y_val)


@pytest.fixture(scope="module")
def bank(parts):
    return fit(parts, C=(0.5, 1.0, 10.0))


def test_each_direction_is_an_svms_normal(bank, parts):
    X, Y, X_val, _ = parts
    assert bank.get_feature_names_out().tolist() == list(CONCEPTS)
    for column in range(len(CONCEPTS)):
        theirs = SVC(kernel="linear", C=bank.C_[column], class_weight="balanced")
        theirs.fit(X, Y[:, column])
        normal, length = theirs.coef_[0], np.linalg.norm(theirs.coef_)
        assert bank.cavs_[column] == pytest.approx(normal / length, abs=1e-6)
        decisions = theirs.decision_function(X_val)
        assert bank.transform(X_val)[:, column] == pytest.approx(decisions / length, abs=1e-5)
        bank.output = "decision"
        assert bank.transform(X_val)[:, column] == pytest.approx(decisions, abs=1e-5)
        bank.output = "distance"


def test_quality_is_measured_on_validation(bank, parts):
    _, _, X_val, Y_val = parts
    for column, quality in enumerate(bank.quality_):
        distances, truth = bank.transform(X_val)[:, column], Y_val[:, column]
        assert quality["on"] == "validation"
        assert quality["auc"] == pytest.approx(roc_auc_score(truth, distances))
        assert quality["f1"] == pytest.approx(f1_score(truth, distances > 0))
        assert quality["balanced_accuracy"] == pytest.approx(
            balanced_accuracy_score(truth, distances > 0)
        )
        assert quality["positives"] + quality["negatives"] == len(truth)
        assert quality["auc"] == pytest.approx(max(quality["aucs"].values()), abs=1e-12)
        assert quality["solver"] == "libsvm"


def test_cosines_find_the_directions_that_made_the_features(bank, labelled):
    directions = np.random.default_rng(5).normal(size=(9, 64))[:8]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    alike = bank.cavs_ @ directions.T
    assert (alike.argmax(axis=1) == np.arange(8)).all()
    assert bank.cosines() == pytest.approx(np.corrcoef(bank.cavs_), abs=0.1)
    assert np.diag(bank.cosines()) == pytest.approx(1)


def test_mean_difference_by_hand(parts):
    X, Y, _, _ = parts
    bank = fit(parts, kind="mean-difference")
    positive, negative = X[Y[:, 2] == 1].mean(0), X[Y[:, 2] == 0].mean(0)
    assert bank.cavs_[2] @ (positive - negative) == pytest.approx(
        np.linalg.norm(positive - negative), rel=1e-5
    )
    assert bank.C_ == [None] * 8
    assert np.mean([quality["auc"] for quality in bank.quality_]) > 0.7


def test_clips_of_minus_one_take_no_part(parts):
    X, Y, X_val, Y_val = parts
    some = np.random.default_rng(0).random(len(X)) < 0.7
    masked = np.where(some[:, None], Y, -1)
    left_out, cut = (
        fit((*data, X_val, Y_val), C=1.0) for data in [(X, masked), (X[some], Y[some])]
    )
    assert left_out.cavs_ == pytest.approx(cut.cavs_, abs=1e-9)


def test_subsampling_takes_as_many_of_either_kind(parts):
    _, Y, _, _ = parts
    bank = fit(parts, C=1.0, balance="subsample", random_state=0)
    for quality, column in zip(bank.quality_, Y.T, strict=True):
        fewer = min((column == 1).sum(), (column == 0).sum())
        assert quality["training_positives"] == quality["training_negatives"] == fewer
    again = fit(parts, C=1.0, balance="subsample", random_state=0)
    assert (again.cavs_ == bank.cavs_).all()


def test_a_concept_that_cannot_be_learnt_is_named_and_skipped(parts):
    X, Y, X_val, Y_val = parts
    Y = Y.copy()
    Y[:, 1] = np.minimum(Y[:, 1], 0)
    bank = fit((X, Y, X_val, Y_val), C=1.0)
    assert bank.skipped_ == {"Look": f"no positive among {len(X)} training clips"}
    assert "Look" not in bank.names_
    assert bank.transform(X_val).shape == (len(X_val), 7)
    with pytest.raises(ExperimentError, match="no concept can be learned: a has no positive"):
        ConceptBank(C=1.0).fit(X, np.zeros((len(X), 1)), concept_names=["a"])


def test_a_concept_without_positives_in_validation_still_has_a_direction(parts):
    X, Y, X_val, Y_val = parts
    Y_val = Y_val.copy()
    Y_val[:, 1] = np.minimum(Y_val[:, 1], 0)
    with pytest.warns(DegenerateConcept, match="Look: too few validation clips of one kind"):
        bank = fit((X, Y, X_val, Y_val), C=(0.5, 1.0, 10.0))
    assert bank.C_[1] == 1.0
    assert bank.quality_[1]["on"] == "training"


@pytest.mark.gate
@pytest.mark.parametrize("size", [1, 30])
def test_features_without_signal_end_in_a_second_or_two(size):
    chance = np.random.default_rng(2)
    X = size * chance.normal(size=(1_200, 128))
    Y = (chance.random((1_200, 8)) < 0.3).astype(int)
    start = time.perf_counter()
    with threadpool_limits(1):
        bank = fit((X[:1_000], Y[:1_000], X[1_000:], Y[1_000:]))
    assert time.perf_counter() - start < 30  # with libsvm alone: minutes
    assert max(one["duality_gap"] for one in bank.quality_) < 1e-2
    assert {one["solver"] for one in bank.quality_} <= {"libsvm", "newton"}


def test_a_degenerate_c_warns(parts):
    with pytest.warns(DegenerateConcept, match=r"Look: at C = 0\.0001 every dual"):
        bank = fit(parts, C=0.0001)
    assert len(bank.warnings_) == 8
    assert bank.quality_[0]["bounded"] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(parts, C=10.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, Y: {"concepts": Y[:-1]}, "do not fit"),
        (lambda X, Y: {"concepts": Y + 1}, "a concept is 1 .*, 0 .* or -1"),
        (lambda X, Y: {"concepts": Y / 2}, "a concept is 1 .*, 0 .* or -1"),
        (lambda X, Y: {"concepts": Y, "X_val": X}, "need both X_val and concepts_val"),
        (lambda X, Y: {"concepts": Y, "concept_names": ["a"]}, "1 concept name"),
        (lambda X, Y: {"y": Y[:, 0]}, r"none were given; pass fit\(X, y, concepts=C\)"),
        (lambda X, Y: {"concepts": Y[:, :0]}, "mark no concepts"),
    ],
)
def test_data_that_do_not_fit_are_one_line(parts, change, message):
    X, Y = parts[:2]
    with pytest.raises(ExperimentError, match=message):
        ConceptBank().fit(X, **change(X, Y))


def test_without_validation_folds_choose_c_as_logistic_regression_cv_does(parts):
    """The C of the highest mean AUC over the folds, then one fit on all clips."""
    X, Y, _, _ = parts
    Cs = (0.5, 1.0, 10.0)
    bank = ConceptBank(C=Cs).fit(X, Y)
    for column in range(2):
        y = Y[:, column]
        model = SVC(kernel="linear", class_weight="balanced")
        means = [cross_val_score(model.set_params(C=C), X, y, scoring="roc_auc").mean() for C in Cs]
        assert list(bank.quality_[column]["aucs"].values()) == pytest.approx(means, abs=1e-6)
        assert bank.C_[column] == Cs[int(np.argmax(np.round(means, 9)))]
        theirs = model.set_params(C=bank.C_[column]).fit(X, y)
        assert bank.cavs_[column] * bank.scales_[column] == pytest.approx(theirs.coef_[0], abs=1e-5)
        assert bank.quality_[column]["on"] == "cross-validation"


def test_a_film_stays_in_one_fold(parts, labelled):
    """Clips of a film share a shift of their own: folds that part films see through it."""
    X, Y, _, _ = parts
    films = np.array(labelled.groups)[labelled.folds < 8]
    bank = ConceptBank(C=(0.1, 1.0)).fit(X, Y, groups=films)
    folds = StratifiedGroupKFold(5).split(X, Y[:, 0], films)
    model = SVC(kernel="linear", class_weight="balanced", C=1.0)
    mean = cross_val_score(model, X, Y[:, 0], scoring="roc_auc", cv=list(folds)).mean()
    assert bank.quality_[0]["aucs"]["1.0"] == pytest.approx(mean, abs=1e-6)


def test_refit_learns_once_more_with_the_chosen_c(parts):
    X, Y, X_val, Y_val = parts
    bank = fit(parts, C=(0.5, 1.0), refit=True)
    for column, C in enumerate(bank.C_):
        theirs = SVC(kernel="linear", C=C, class_weight="balanced")
        theirs.fit(np.vstack([X, X_val]), np.concatenate([Y[:, column], Y_val[:, column]]))
        assert bank.cavs_[column] * bank.scales_[column] == pytest.approx(theirs.coef_[0], abs=1e-5)
    assert bank.quality_ == fit(parts, C=(0.5, 1.0)).quality_


def test_columns_of_a_data_frame_are_the_concepts(parts):
    pandas = pytest.importorskip("pandas")
    X, Y, _, _ = parts
    bank = ConceptBank(C=1.0).fit(X, pandas.DataFrame(Y, columns=CONCEPTS))
    assert bank.get_feature_names_out().tolist() == list(CONCEPTS)


def test_the_papers_three_sets_of_negatives():
    levels = ["EN", "HN", "HN", "S", "S", "NS"]
    shown = np.array([[0], [1], [0], [1], [0], [1]])
    assert concept_targets(levels, shown, "a")[:, 0].tolist() == [0, 1, -1, 1, -1, -1]
    assert concept_targets(levels, shown, "b")[:, 0].tolist() == [0, 1, 0, 1, 0, -1]
    assert concept_targets(levels, shown, "c")[:, 0].tolist() == [-1, 1, 0, 1, 0, -1]
    with pytest.raises(ExperimentError, match="'d' are not known; choose a"):
        concept_targets(levels, shown, "d")


@pytest.mark.parametrize("negatives", ["a", "b", "c"])
def test_with_levels_of_ones_own_every_clip_counts(negatives):
    levels, shown = ["quiet", "chase", "chase"], np.array([[1], [1], [0]])
    assert concept_targets(levels, shown, negatives)[:, 0].tolist() == [1, 1, 0]
    # A part of the clips that has only the paper's levels is judged as the whole.
    part = concept_targets(["EN", "NS"], shown[:2], negatives, all_levels={"EN", "NS", "X"})
    assert part[:, 0].tolist() == [1, 1]


def test_many_clips_concepts_are_learned_as_if_alone():
    """Of many clips several concepts are learned at a time; of one, there is nothing beside it."""
    chance = np.random.default_rng(0)
    X = chance.normal(size=(GRAM_ROWS + 100, 6))
    Y = (X[:, :3] + chance.normal(size=(len(X), 3)) > 0.5).astype(int)
    together = ConceptBank(C=0.1).fit(X, Y)
    for column in range(3):
        alone = ConceptBank(C=0.1).fit(X, Y[:, [column]])
        assert (together.cavs_[column] == alone.cavs_[0]).all()
        assert (together.C_[column], together.quality_[column]) == (alone.C_[0], alone.quality_[0])
