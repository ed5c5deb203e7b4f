"""The classes that a model may hold, and what their fitted arrays must be.

scikit-learn's compiled code trusts the arrays of a fitted model: those of a forged one make it
read or write outside of them. So a model is made only of classes in `SAFE`, whose prediction is
numpy's, or whose arrays are checked first. Trees, forests and kernel machines are not among them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.registry import ESTIMATORS

MAX_CLIP_NUMBERS = 2**24
"""How many numbers a clip may have: 64 MB in single precision."""
MAX_DEPTH, MAX_VALUES = 15, 2**20
"""How deep a part may be in objects and lists (a step of five pipelines); how many values."""
_PLAIN = (str, bytes, int, float, complex, type(None), slice, np.generic, np.random.RandomState)


Attributes = Mapping[str, str | tuple[Any, ...]]
"""What the fitted attributes of a class must be; all of them, as soon as it has one of the arrays.

The shape of each array: a name for each size, which is the same wherever the name is. ``H*D`` is a
product. ``#`` counts from 0 through a list or numbered names; ``#+`` is the next number. ``<C``
after the sizes: whole numbers from 0 to below C. ``=D``: a number, or the length of a list; ``<D``:
a number from 1 to D. A tuple: the values that it may have. With ``?`` an attribute may be None,
missing or a float, and a size may be missing.
"""
_ESTIMATORS = "obygaze_models.estimators"
_C, _D = {"classes_": "C"}, {"n_features_in_": "=D"}
_DIRECTIONS = {"cavs_": "K D", "intercepts_": "K", "scales_": "K", **_D}
_LINEAR = {"coef_": "R D", "intercept_": "R", **_D}
_BOTTLENECK = {**_C, "bank_.cavs_?": "K D", **_D, "head_.n_features_in_?": "=K"}
_METRICS = ("cosine", "euclidean", "manhattan", "minkowski")
OWN: dict[str, Attributes] = {
    f"{_ESTIMATORS}.mlp:MLPProbe": {
        **_C, "coefs_.#": "L# L#+", "intercepts_.#": "L#+", "n_features_in_": "=L0",
    },
    f"{_ESTIMATORS}.svm:LinearSVMProbe": _C | _LINEAR,
    f"{_ESTIMATORS}.logistic:LogisticProbe": _C | _LINEAR,
    f"{_ESTIMATORS}.attention:AttentionProbe": {
        **_C, "mean_": "D", "weights_.value?": "D G", "weights_.gate?": "D G",
        "weights_.query": "Q H", "weights_.layer": "H*D O", "weights_.offset": "O",
        "weights_.position?": "H T", **_D, "n_frames_in_": "=T", "heads": "=H",
    },
    f"{_ESTIMATORS}.attention:FrameMIL": {
        **_C, "mean_": "L0", "weights_.layer#": "L# L#+", "weights_.offset#": "L#+",
        "n_features_in_": "=L0",
    },
    f"{_ESTIMATORS}.baselines:FilmPrior": {
        **_C, "shares_": "C", "films_": "F", "film_shares_": "F C",
    },
    f"{_ESTIMATORS}.concepts:ConceptBank": {**_DIRECTIONS, "names_": "=K"},
    f"{_ESTIMATORS}.concepts:RandomDirections": _DIRECTIONS,
    f"{_ESTIMATORS}.bottlenecks:ConceptBottleneck": _BOTTLENECK,
    f"{_ESTIMATORS}.fusion:StoreFusion": {**_C, "means_": "D", "scales_": "D", **_D},
    f"{_ESTIMATORS}.trees:TreeArrays": {"threshold": "N", "value": "N C"},
    "sklearn.tree:DecisionTreeClassifier": {},  # unfitted; fitted it is `TreeArrays`
    "sklearn.dummy:DummyClassifier": {
        **_C, "class_prior_": "C", "n_classes_": "=C", "n_outputs_": (1,),
    },
    "sklearn.neighbors:KNeighborsClassifier": {
        **_C, "_fit_X": "N D", "_y": "N <C", **_D, "n_samples_fit_": "=N", "n_neighbors": "<N",
        "_fit_method": ("brute",), "_tree": (None,), "metric": _METRICS,
        "effective_metric_": _METRICS[:3], "effective_metric_params_": ({},),
        "metric_params": (None,), "weights": ("uniform", "distance"), "outputs_2d_": (False,),
    },
}  # fmt: skip
_SKLEARN: dict[str, Attributes] = {
    ".decomposition:PCA": {"components_": "K D", "mean_": "D", "explained_variance_": "K", **_D},
    ".discriminant_analysis:LinearDiscriminantAnalysis": {
        **_LINEAR, "xbar_?": "D", "scalings_?": "D S", "_max_components": "<D",
        "_n_features_out": "<D",
    },
    ".linear_model:LogisticRegression .linear_model:LogisticRegressionCV .linear_model:Perceptron "
    ".linear_model:RidgeClassifier .linear_model:RidgeClassifierCV .linear_model:SGDClassifier "
    ".svm:LinearSVC": {"coef_": "R? D", "intercept_?": "R", **_D},
    ".naive_bayes:BernoulliNB .naive_bayes:ComplementNB .naive_bayes:MultinomialNB": {
        "feature_log_prob_": "C D", "class_log_prior_": "C", **_D,
    },
    ".naive_bayes:GaussianNB": {"theta_": "C D", "var_": "C D", "class_prior_": "C", **_D},
    ".preprocessing:MaxAbsScaler": {"scale_": "D", **_D},
    ".preprocessing:MinMaxScaler": {"scale_": "D", "min_": "D", **_D},
    ".preprocessing:RobustScaler": {"center_?": "D", "scale_?": "D", **_D},
    ".preprocessing:StandardScaler": {"mean_": "D", "scale_?": "D", **_D},
    # Without arrays of their own, or parts of those above, such as the loss of an `SGDClassifier`.
    ".frozen:FrozenEstimator .linear_model:Hinge .linear_model:ModifiedHuber "
    ".linear_model:SquaredHinge :CyHalfBinomialLoss .pipeline:Pipeline "
    ".preprocessing:LabelBinarizer .preprocessing:Normalizer": {},
}  # fmt: skip

for _entry in ESTIMATORS.values():
    if _entry.path.startswith(f"{_ESTIMATORS}."):  # a new one of ours, whose arrays are NumPy's
        OWN.setdefault(_entry.path, {})

SAFE = OWN | {f"sklearn{name}": form for names, form in _SKLEARN.items() for name in names.split()}
"""Class, without the private modules in its path -> what its fitted attributes must be.

Those of `OWN` are saved as JSON and arrays, others in a skops file.
"""


def class_path(name: str) -> str:
    """The key in `SAFE` of a class: ``package.module.Class`` as ``package.module:Class``."""
    *modules, kind = name.split(".")
    return f"{'.'.join(module for module in modules if module[0] != '_')}:{kind}"


def class_name(value: Any) -> str:
    """A value's class, or the function that it is, as ``package.module.name``."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(kind, '__module__', 'builtins')}.{kind.__qualname__}"


def unsafe_classes(model: Any, trusted: Collection[str] = ()) -> list[str]:
    """The classes within a model that are neither in `SAFE` nor named in `trusted`."""
    names = {class_name(part) for _, part in _parts(model)}
    return sorted(name for name in names if class_path(name) not in SAFE and name not in trusted)


def check_fitted(model: Any, trusted: Collection[str] = ()) -> None:
    """Raise where a model could make compiled code read memory, or take more than a file holds.

    Its parts are set to predict in this process alone.
    """
    if unsafe := unsafe_classes(model, trusted):
        raise ExperimentError(f"it holds {', '.join(unsafe)}, which cannot be checked")
    for name, part in _parts(model):
        if getattr(part, "__dict__", {}).get("n_jobs") is not None:
            part.n_jobs = 1
        _check_part(part, name, SAFE.get(class_path(class_name(part)), {}))


def _parts(model: Any) -> Iterator[tuple[str, Any]]:
    """Every object within a model but plain ones, and where it is."""
    waiting = [("model", model, 0)]
    for _ in range(MAX_VALUES):
        if not waiting:
            return
        name, value, depth = waiting.pop()
        items: Collection[Any] = ()
        if type(value) is np.ndarray:
            items = value.tolist() if value.dtype.kind == "O" else ()
        elif type(value) in (list, tuple, set):
            items = value
        elif type(value) is dict:
            items = (*value, *value.values())
        elif not isinstance(value, _PLAIN):
            if depth > MAX_DEPTH:
                break
            yield name, value
            for key, item in getattr(value, "__dict__", {}).items():
                if key != "_metadata_request":  # which is not saved
                    waiting.append((f"{name}.{key}", item, depth + 1))
        waiting += [(name, item, depth + 1) for item in items]
    raise ExperimentError("it has too many parts, or parts in one another")


def _check_part(part: Any, name: str, attributes: Attributes) -> None:
    shapes = {path: form for path, form in attributes.items() if str(form)[:1] not in "(=<"}
    sizes: dict[str, int] = {}
    if any(_find(part, path.replace("#", "0")) is not None for path in (*shapes, *_D) if shapes):
        for path, form in shapes.items():
            for number in count() if "#" in path else (0,):
                key = path.replace("#", str(number))
                value = _find(part, key)
                if (value is None and number) or ("?" in path and isinstance(value, float | None)):
                    break
                names = str(form).replace("#+", str(number + 1)).replace("#", str(number)).split()
                _check_array(value, f"{name}.{key}", names, sizes)
        for path in (path for path in attributes if path not in shapes):
            _check_value(_find(part, path), f"{name}.{path}", attributes[path], sizes)
    width, frames = getattr(part, "n_features_in_", 1), getattr(part, "n_frames_in_", 1)
    if not isinstance(width, int | np.integer) or not isinstance(frames, int | np.integer):
        raise ExperimentError(f"{name} has a size that is not a whole number")
    if (total := max(width, *sizes.values(), 1) * frames) > MAX_CLIP_NUMBERS:
        raise ExperimentError(f"{name} needs {total} numbers a clip, more than {MAX_CLIP_NUMBERS}")


def _check_value(value: Any, name: str, form: str | tuple[Any, ...], sizes: dict[str, int]) -> None:
    allowed: Collection[Any] = form
    if isinstance(form, str):
        limit = sizes.get(form[1:])
        if limit is None or (value is None and "?" in name):
            return
        value = len(value) if isinstance(value, list) else value
        allowed = range(limit if form[0] == "=" else 1, limit + 1)
    if value not in allowed:
        texts = " or ".join(map(repr, allowed)) if isinstance(form, tuple) else f"at most {limit}"
        raise ExperimentError(f"{name} is {repr(value)[:60]}, and must be {texts}")


def _check_array(value: Any, name: str, names: list[str], sizes: dict[str, int]) -> None:
    if type(value) is not np.ndarray or not (value.ndim > 0 and value.size):
        raise ExperimentError(f"{name} is not an array with numbers")
    bound = names.pop()[1:] if names[-1].startswith("<") else None
    names = [size.strip("?") for size in names if "?" not in size or value.ndim == len(names)]
    expected = []
    for size, label in zip(value.shape, names, strict=False):
        factors = [sizes.get(factor, -1) for factor in label.split("*")]
        is_product = len(factors) > 1
        expected.append(math.prod(factors) if is_product else sizes.setdefault(label, size))
    if len(names) != value.ndim or expected != list(value.shape):
        shape = " x ".join(str(sizes.get(label, label)) for label in names)
        raise ExperimentError(f"{name} has the shape {value.shape}, not {shape}")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ExperimentError(f"{name} has numbers that are not finite")
    if bound is not None and (
        value.dtype.kind != "i" or not ((value >= 0) & (value < sizes.get(bound, 0))).all()
    ):
        raise ExperimentError(f"{name} has numbers outside of 0 to {sizes.get(bound, 0) - 1}")


def _find(value: Any, path: str) -> Any:
    """The attribute, item or value at a path; None where there is none."""
    for key in path.strip("?").split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list | tuple):
            value = value[int(key)] if int(key) < len(value) else None
        else:
            value = getattr(value, key, None)
    return value
