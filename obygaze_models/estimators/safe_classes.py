"""The classes that a loaded model may contain, and the checks of their arrays.

scikit-learn's compiled code does not check the arrays of a fitted model, so a forged model could
make it access memory outside of the arrays. Therefore, apart from installed plug-ins, a model may
only contain classes in `SAFE`, which predict with NumPy or torch. Trees are stored as `TreeArrays`;
nearest neighbours are fitted again. Forests and kernel machines are excluded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.fusion import StoreFusion
from obygaze_models.estimators.registry import ESTIMATORS

MAX_CLIP_NUMBERS = 2**24
"""The maximum number of features of a clip: 64 MB in single precision."""
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

_VECTORS = """
    center_ class_log_prior_ class_prior_ classes_ explained_variance_ intercept_ intercepts_ mean_
    min_ offset scale_ scales_ shares_ threshold xbar_
"""
_MATRICES = """
    cavs_ coef_ coefs_ components_ feature_log_prob_ film_shares_ layer query scalings_ theta_
    value
"""
MAX_AXES = dict.fromkeys(_VECTORS.split(), 1) | dict.fromkeys(_MATRICES.split(), 2)
"""The maximum number of axes of the arrays that a prediction reads.

If an array had more axes, NumPy could broadcast a row of numbers to a table of any size. The sizes
of the axes are checked by a prediction on a single clip.
"""


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
    """Raise if a model could access memory outside its arrays, or needs too much memory.

    The model's parts are changed to predict in a single process.
    """
    if unsafe := unsafe_classes(model, trusted):
        raise ExperimentError(f"the model contains {', '.join(unsafe)}, which cannot be checked")
    for name, part in _parts(model):
        state = getattr(part, "__dict__", {})
        if state.get("n_jobs") is not None:
            part.n_jobs = 1
        _check_state(name, state)
        if isinstance(part, StoreFusion) and hasattr(part, "models_"):
            part.check_fitted_parts()


def refit_neighbours(model: Any) -> Any:
    """Fit the nearest-neighbour models in a model again from their clips and labels."""
    for _, part in _parts(model):
        if type(part) is KNeighborsClassifier and hasattr(part, "_fit_X"):
            part.fit(part._fit_X, part.classes_[part._y])
    return model


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
        return value.tolist() if value.dtype.kind == "O" else ()
    if type(value) in (list, tuple, set):
        return tuple(value)
    if type(value) is dict:
        return (*value, *value.values())
    return None


def _check_state(name: str, state: Mapping[str, Any]) -> None:
    """Raise if an array is too large, has too many axes, or has values that are not finite."""
    sizes = [_size(name, key, state.get(key, 1)) for key in ("n_features_in_", "n_classes_")]
    for key, array in _arrays(state):
        axes = MAX_AXES.get(key.rstrip("0123456789"))
        if axes is not None and not (1 <= array.ndim <= axes and array.size):
            raise ExperimentError(f"{name}.{key} has shape {array.shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ExperimentError(f"{name}.{key} has values that are not finite")
        sizes += array.shape
    _size(name, "clip size", max(sizes) * _size(name, "n_frames_in_", state.get("n_frames_in_", 1)))
    if {"cavs_", "names_"} <= state.keys() and len(state["names_"]) != len(state["cavs_"]):
        raise ExperimentError(f"{name} has names that do not match its directions")
    for key, value in state.items():
        if key.startswith("_") and isinstance(value, int | np.integer) and value > sizes[0]:
            raise ExperimentError(f"{name}.{key} is {value}, more than the number of features")


def _arrays(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in a part's attributes, including arrays in lists and dictionaries."""
    for key, value in state.items():
        if isinstance(value, dict):
            yield from _arrays({str(inner): item for inner, item in value.items()})
        elif isinstance(value, list | tuple):
            yield from ((key, item) for item in value if isinstance(item, np.ndarray))
        elif isinstance(value, np.ndarray):
            yield key, value


def _size(name: str, key: str, value: Any) -> int:
    if not isinstance(value, int | np.integer) or not 0 <= value <= MAX_CLIP_NUMBERS:
        raise ExperimentError(f"{name}: {key} is {repr(value)[:60]}, not 0 to {MAX_CLIP_NUMBERS}")
    return int(value)
