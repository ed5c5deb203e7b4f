"""The classes that a loaded model may contain, and the checks of their arrays.

scikit-learn's compiled code does not check the arrays of a fitted model, so a forged model could
make it access memory outside of the arrays. Therefore, apart from installed plug-ins, a model may
only contain classes in `SAFE`, which predict with NumPy or torch. Trees are stored as `TreeArrays`;
nearest neighbours are fitted again. Forests and kernel machines are excluded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.fusion import StoreFusion
from obygaze_models.estimators.registry import ESTIMATORS

MAX_DEPTH, MAX_VALUES = 15, 2**20
"""The maximum depth of nested values (five nested pipelines), and the maximum number of values."""
_PLAIN = (str, bytes, int, float, complex, type(None), slice, np.generic, np.random.RandomState)


_ESTIMATORS = "obygaze_models.estimators"
OWN = frozenset(
    {entry.path for entry in ESTIMATORS.values() if entry.path.startswith(f"{_ESTIMATORS}.")}
    | {
        f"{_ESTIMATORS}.concepts:ConceptBank",
        f"{_ESTIMATORS}.concepts:RandomDirections",
        f"{_ESTIMATORS}.fusion:StoreFusion",
        f"{_ESTIMATORS}.trees:TreeArrays",
        "sklearn.tree:DecisionTreeClassifier",  # unfitted; a fitted tree is `TreeArrays`
        "sklearn.dummy:DummyClassifier",
        "sklearn.neighbors:KNeighborsClassifier",
    }
)
"""The classes that are saved as JSON and arrays. All other classes are saved as skops files."""

_SKLEARN = """
    :CyHalfBinomialLoss decomposition:PCA discriminant_analysis:LinearDiscriminantAnalysis
    frozen:FrozenEstimator linear_model:Hinge linear_model:LogisticRegression
    linear_model:LogisticRegressionCV linear_model:ModifiedHuber linear_model:Perceptron
    linear_model:LinearRegression linear_model:Ridge linear_model:RidgeClassifier
    linear_model:RidgeClassifierCV linear_model:SGDClassifier linear_model:SquaredHinge
    naive_bayes:BernoulliNB naive_bayes:ComplementNB naive_bayes:GaussianNB
    naive_bayes:MultinomialNB pipeline:Pipeline preprocessing:LabelBinarizer
    preprocessing:MaxAbsScaler preprocessing:MinMaxScaler preprocessing:Normalizer
    preprocessing:RobustScaler preprocessing:StandardScaler svm:LinearSVC
"""
SAFE = OWN | {f"sklearn.{name}".replace(".:", ":") for name in _SKLEARN.split()}
"""The classes that a model may contain. Private modules are left out of their paths."""


def class_path(name: str) -> str:
    """Return the key of ``package.module.Class`` in `SAFE`: ``package.module:Class``."""
    *modules, kind = name.split(".")
    return f"{'.'.join(module for module in modules if module[0] != '_')}:{kind}"


def class_name(value: Any) -> str:
    """Return the class of a value, or the name of a function, as ``package.module.name``."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(kind, '__module__', 'builtins')}.{kind.__qualname__}"


def unsafe_classes(model: Any, trusted: Collection[str] = ()) -> list[str]:
    """Return the classes within a model that are neither in `SAFE` nor in `trusted`."""
    names = {class_name(part) for _, part in _parts(model)}
    return sorted(name for name in names if class_path(name) not in SAFE and name not in trusted)


def check_fitted(model: Any, trusted: Collection[str] = ()) -> None:
    """Raise if a model has classes that are not allowed, or arrays that are not finite.

    The model's parts are changed to predict in a single process.
    """
    if unsafe := unsafe_classes(model, trusted):
        raise ExperimentError(f"the model contains {', '.join(unsafe)}, which cannot be checked")
    for name, part in _parts(model):
        state = getattr(part, "__dict__", {})
        if state.get("n_jobs") is not None:
            part.n_jobs = 1
        if {"cavs_", "names_"} <= state.keys() and len(state["names_"]) != len(state["cavs_"]):
            raise ExperimentError(f"{name} has names that do not match its directions")
        if isinstance(part, StoreFusion) and hasattr(part, "models_"):
            part.check_fitted_parts()


def _parts(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and the object for every object in a model, except plain values."""
    waiting = [("model", model, 0)]
    for _ in range(MAX_VALUES):
        if not waiting:
            return
        name, value, depth = waiting.pop()
        items = _items(value)
        if items is not None:
            waiting += [(name, item, depth + 1) for item in items]
        elif not isinstance(value, _PLAIN):
            if depth > MAX_DEPTH:
                break
            yield name, value
            if type(value) is KNeighborsClassifier:
                continue  # it was fitted again, so scikit-learn set its attributes
            for key, item in getattr(value, "__dict__", {}).items():
                if key != "_metadata_request":  # not saved
                    waiting.append((f"{name}.{key}", item, depth + 1))
    raise ExperimentError("the model has too many parts, or parts that are nested too deeply")


def _items(value: Any) -> Collection[Any] | None:
    """Return the objects in a container, or None if a value is not a container.

    The objects in a dict are its keys and values. Arrays of numbers count as empty.
    """
    if type(value) is np.ndarray:
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ExperimentError("the model has numbers that are not finite")
        return value.tolist() if value.dtype.kind == "O" else ()
    if type(value) in (list, tuple, set):
        return tuple(value)
    if type(value) is dict:
        return (*value, *value.values())
    return None
