"""How the estimators that read features, or nothing, are fitted in an experiment."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from obygaze_models.dataset import ClipDataset as Known
from obygaze_models.estimators.registry import Fitted

if TYPE_CHECKING:
    from obygaze_models.estimators.svm import SharedGram

__all__ = [
    "film_prior",
    "knn",
    "logistic",
    "majority",
    "mlp",
    "mlp_author",
    "rows_of_same_folds",
    "svm",
]

Array = NDArray[Any]

_GRAMS: WeakKeyDictionary[Known, SharedGram] = WeakKeyDictionary()


def mlp(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    *,
    hidden: tuple[int, ...] = (128,),
    class_weight: Literal["balanced"] | None = None,
    calibrate: bool = False,
    learning_rate: float = 1e-3,
    batch_size: int = 16,
    max_epochs: int = 100,
    patience: int = 5,
) -> Fitted:
    """The paper's network, its best epoch chosen on validation."""
    return _mlp(
        known,
        train,
        validation,
        labels,
        seed,
        hidden=hidden,
        class_weight=class_weight,
        calibrate=calibrate,
        learning_rate=learning_rate,
        batch_size=batch_size,
        max_epochs=max_epochs,
        patience=patience,
    )


def mlp_author(known: Known, train: Array, validation: Array, labels: Array, seed: int) -> Fitted:
    """The network as the released code trains it."""
    return _mlp(known, train, validation, labels, seed, author=True)


def svm(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    *,
    C: float | tuple[float, ...] | None = None,
    balanced: bool = True,
) -> Fitted:
    """A linear SVM; where no C is given, validation chooses."""
    from sklearn.exceptions import ConvergenceWarning

    from obygaze_models.estimators.concepts import DEFAULT_CS
    from obygaze_models.estimators.svm import LinearSVMClassifier

    model = LinearSVMClassifier(DEFAULT_CS if C is None else C, balanced)
    X, y = known.features, labels
    gram, rows = _shared_gram(known, train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is among the facts
        model.fit(X[train], y[train], X[validation], y[validation], gram=gram, rows=rows)
    facts = {
        "C": model.C_,
        "bounded": model.bounded_,
        "solver": model.solver_,
        "converged": model.converged_,
    }
    return _fitted(model, labels, (train, validation), facts=facts)


def logistic(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    *,
    C: float = 1.0,
) -> Fitted:
    """Logistic regression."""
    from obygaze_models.estimators.simple import LogisticClassifier

    model = LogisticClassifier(C).fit(known.features[train], labels[train])
    return _fitted(model, labels, (train,))


def knn(
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    *,
    n_neighbors: int = 5,
    metric: Literal["cosine", "euclidean"] = "cosine",
) -> Fitted:
    """The nearest training clips."""
    from obygaze_models.estimators.simple import NearestClips

    model = NearestClips(n_neighbors, metric).fit(known.features[train], labels[train])
    return _fitted(model, labels, (train,))


def film_prior(known: Known, train: Array, validation: Array, labels: Array, seed: int) -> Fitted:
    """How common the classes are in a clip's film, in the training folds before balancing."""
    from obygaze_models.estimators.simple import FilmPrior

    rows, _ = rows_of_same_folds(known, train, validation)
    rows = rows[labels[rows] >= 0]
    films = np.array(known.films)
    return _fitted(FilmPrior().fit(films[rows], labels[rows]), labels, (rows,), inputs=films)


def majority(known: Known, train: Array, validation: Array, labels: Array, seed: int) -> Fitted:
    """The classes' shares in the training folds before balancing."""
    from obygaze_models.estimators.simple import MajorityClassifier

    rows, _ = rows_of_same_folds(known, train, validation)
    rows = rows[labels[rows] >= 0]
    model = MajorityClassifier().fit(known.features[rows], labels[rows])
    return _fitted(model, labels, (rows,))


def rows_of_same_folds(known: Known, train: Array, validation: Array) -> tuple[Array, Array]:
    """All clips of the training folds, and all of the validation folds.

    What balancing and the task left out is there, too: Easy Negatives for concepts, and how
    common the classes are. Where training and validation share a fold, or a clip has none (-1),
    the fold column says nothing of the draw, and the very rows are returned.
    """
    folds, held = np.unique(known.folds[train]), np.unique(known.folds[validation])
    if len(np.intersect1d(folds, held)) or min(*folds, *held) < 0:
        return train, validation
    return np.flatnonzero(np.isin(known.folds, folds)), np.flatnonzero(np.isin(known.folds, held))


def _mlp(
    known: Known, train: Array, validation: Array, labels: Array, seed: int, **options: Any
) -> Fitted:
    from obygaze_models.estimators.mlp import MLPClassifier

    X = known.features
    model = MLPClassifier(**options, random_state=seed)
    model.fit(X[train], labels[train], X[validation], labels[validation])
    facts = {"best_epoch": model.best_epoch_, "temperature": model.temperature_}
    return _fitted(model, labels, (train, validation), facts=facts, history=model.history_)


def _shared_gram(known: Known, train: Array) -> tuple[SharedGram, Array]:
    """One matrix for all draws of an experiment, or one of the training clips if too many."""
    from obygaze_models.estimators.svm import GRAM_LIMIT, SharedGram

    if len(known.ids) > GRAM_LIMIT:
        return SharedGram(known.features[train]), np.arange(len(train))
    if known not in _GRAMS:
        _GRAMS[known] = SharedGram(known.features)
    return _GRAMS[known], train


def _fitted(model: Any, labels: Array, seen: tuple[Array, ...], **more: Any) -> Fitted:
    return Fitted(model, int(labels.max()) + 1, np.unique(np.concatenate(seen)), **more)
