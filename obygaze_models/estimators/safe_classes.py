"""The classes that a loaded model may contain, and the checks of its parts.

scikit-learn's compiled code does not check the arrays of a fitted model, so a forged model could
make it access memory outside the arrays. Therefore a model may contain only installed plug-ins and
the classes in `SAFE`, most of which predict with NumPy or torch. Trees are stored as `TreeArrays`;
nearest neighbours are fitted again. Forests and kernel machines are excluded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.registry import ESTIMATORS, REGRESSORS

_ESTIMATORS = "obygaze_models.estimators."
_PARTS = """
    concepts:ConceptBank concepts:RandomDirections fusion:BlockScaler
    trees:TreeArrays
"""
_SKLEARN = """
    decomposition:PCA discriminant_analysis:LinearDiscriminantAnalysis
    dummy:DummyClassifier frozen:FrozenEstimator linear_model:LinearRegression
    linear_model:LogisticRegression linear_model:LogisticRegressionCV linear_model:Ridge
    linear_model:RidgeClassifier linear_model:RidgeClassifierCV
    naive_bayes:BernoulliNB naive_bayes:ComplementNB naive_bayes:GaussianNB
    naive_bayes:MultinomialNB neighbors:KNeighborsClassifier pipeline:Pipeline
    preprocessing:LabelBinarizer preprocessing:MaxAbsScaler preprocessing:MinMaxScaler
    preprocessing:Normalizer preprocessing:RobustScaler preprocessing:StandardScaler
    svm:LinearSVC tree:DecisionTreeClassifier
"""
_REGISTERED = ESTIMATORS | REGRESSORS
SAFE = {
    *(entry.path for entry in _REGISTERED.values() if entry.path.startswith(_ESTIMATORS)),
    *(_ESTIMATORS + name for name in _PARTS.split()),
    *(f"sklearn.{name}" for name in _SKLEARN.split()),
}
"""The classes that a model may contain. Private modules are left out of their paths."""


def check_part(part: Any) -> None:
    """Raise if a loaded estimator's parts do not match; make it predict in a single process."""
    state = vars(part)
    if state.get("n_jobs") is not None:
        part.n_jobs = 1
    if {"cavs_", "names_"} <= state.keys() and len(state["names_"]) != len(state["cavs_"]):
        raise ExperimentError("a concept bank's names do not match its directions")
    shapes = {np.shape(state[name]) for name in {"mean_", "scale_"} & state.keys()}
    if shapes - {(), (state.get("n_features_in_"),)}:
        raise ExperimentError("a scaler's means or scales do not match its columns")
