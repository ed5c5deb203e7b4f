"""The classes that a model may hold, and what their fitted arrays must be.

scikit-learn's compiled code trusts the arrays of a fitted model: those of a forged one make it
read or write outside of them. So a model is made only of classes in `SAFE`, whose prediction is
numpy's, or whose arrays are checked first. Trees, forests and kernel machines are not among them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from obygaze_features.errors import ExperimentError

MAX_CLIP_NUMBERS = 2**24
"""How many numbers a clip may have: 64 MB in single precision."""
_PLAIN = (str, bytes, int, float, complex, type(None), slice, np.generic, np.random.RandomState)


@dataclass(frozen=True)
class Fitted:
    """What a class's fitted attributes must be; one that is missing is left to its prediction.

    Parameters
    ----------
    arrays
        The shape of each array: a name for each size, which is the same wherever the name is.
        ``H*D`` is a product. ``#`` counts from 0 through a list or numbered names; ``#+`` is the
        next number. ``<C`` after the sizes: whole numbers from 0 to below C.
    numbers
        The name of the size that each number is.
    values
        The values that an attribute may have.
    is_own
        Saved as JSON and arrays; others in a skops file.
    """

    arrays: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Collection[Any]] = field(default_factory=dict)
    is_own: bool = False


def _own(name: str, arrays: Mapping[str, str], numbers: Mapping[str, str], **values: Any) -> None:
    SAFE[name] = Fitted({"classes_": "C", **arrays}, numbers, values, is_own=True)


def _sklearn(names: str, **arrays: str) -> None:
    numbers = {"n_features_in_": "D"} if arrays else {}
    SAFE.update({f"sklearn{name}": Fitted(arrays, numbers) for name in names.split()})


_ESTIMATORS = "obygaze_models.estimators"
_D = {"n_features_in_": "D"}
_DIRECTIONS = {"cavs_": "K D", "intercepts_": "K", "scales_": "K"}
_LINEAR = {"coef_": "R D", "intercept_": "R"}
_LAYERS = {"coefs_.#": "L# L#+", "intercepts_.#": "L#+"}
_METRICS = ("cosine", "euclidean", "manhattan", "minkowski")

SAFE: dict[str, Fitted] = {}
"""Class, without the private modules in its path -> what its fitted attributes must be."""

_own(f"{_ESTIMATORS}.mlp:MLPProbe", _LAYERS, {"n_features_in_": "L0"})
_own(f"{_ESTIMATORS}.svm:LinearSVMProbe", _LINEAR, _D)
_own(f"{_ESTIMATORS}.logistic:LogisticProbe", _LINEAR, _D)
_own(
    f"{_ESTIMATORS}.attention:AttentionProbe",
    {"mean_": "D", "weights_.value": "D G", "weights_.gate": "D G", "weights_.query": "Q H",
     "weights_.layer": "H*D O", "weights_.offset": "O", "weights_.position": "H T"},
    {**_D, "n_frames_in_": "T", "heads": "H"},
)  # fmt: skip
_own(
    f"{_ESTIMATORS}.attention:FrameMIL",
    {"mean_": "L0", "weights_.layer#": "L# L#+", "weights_.offset#": "L#+"},
    {"n_features_in_": "L0"},
)
_own(
    f"{_ESTIMATORS}.baselines:FilmPrior", {"shares_": "C", "films_": "F", "film_shares_": "F C"}, {}
)
_own(f"{_ESTIMATORS}.concepts:ConceptBank", _DIRECTIONS, _D)
_own(f"{_ESTIMATORS}.concepts:RandomDirections", _DIRECTIONS, _D)
_BOTTLENECK = {"bank_.cavs_": "K D"}, {**_D, "head_.n_features_in_": "K"}
_RESIDUAL = {"mean_logits_": "C", "residual_coef_": "C D", "residual_intercept_": "C"}
_own(f"{_ESTIMATORS}.bottlenecks:ConceptBottleneck", *_BOTTLENECK)
_own(f"{_ESTIMATORS}.bottlenecks:HybridBottleneck", _BOTTLENECK[0] | _RESIDUAL, _BOTTLENECK[1])
_own(f"{_ESTIMATORS}.bottlenecks:OracleBottleneck", {}, {})
_own(f"{_ESTIMATORS}.trees:TreeArrays", {"threshold": "N", "value": "N C"}, {})
_own("sklearn.tree:DecisionTreeClassifier", {}, {})  # unfitted; fitted it is `TreeArrays`
_own("sklearn.dummy:DummyClassifier", {"class_prior_": "C"}, {"n_classes_": "C"}, n_outputs_=(1,))
_own(
    "sklearn.neighbors:KNeighborsClassifier",
    {"_fit_X": "N D", "_y": "N <C"},
    {**_D, "n_samples_fit_": "N"},
    _fit_method=("brute",), _tree=(None,), metric=_METRICS, effective_metric_=_METRICS[:3],
    effective_metric_params_=({},), metric_params=(None,), weights=("uniform", "distance"),
    outputs_2d_=(False,), n_jobs=(None, *range(-1, 65)),
)  # fmt: skip
_sklearn(".decomposition:FastICA", components_="K D", mean_="D")
_sklearn(
    ".decomposition:PCA .decomposition:IncrementalPCA",
    components_="K D", mean_="D", explained_variance_="K",
)  # fmt: skip
_sklearn(".decomposition:TruncatedSVD", components_="K D")
_sklearn(".discriminant_analysis:LinearDiscriminantAnalysis", **_LINEAR, xbar_="D", scalings_="D S")
_sklearn(
    ".discriminant_analysis:QuadraticDiscriminantAnalysis",
    **{"means_": "C D", "priors_": "C", "rotations_.#": "D S#", "scalings_.#": "S#"},
)
_sklearn(".feature_selection:VarianceThreshold", variances_="D")
_sklearn(
    ".gaussian_process:_BinaryGaussianProcessClassifierLaplace",
    X_train_="N D", y_train_="N", pi_="N", W_sr_="N", L_="N N",
)  # fmt: skip
_sklearn(
    ".linear_model:LogisticRegression .linear_model:LogisticRegressionCV .linear_model:Perceptron "
    ".linear_model:RidgeClassifier .linear_model:RidgeClassifierCV .linear_model:SGDClassifier "
    ".svm:LinearSVC",
    **_LINEAR,
)
_sklearn(
    ".naive_bayes:BernoulliNB .naive_bayes:ComplementNB .naive_bayes:MultinomialNB",
    feature_log_prob_="C D", class_log_prior_="C",
)  # fmt: skip
_sklearn(".naive_bayes:GaussianNB", theta_="C D", var_="C D", class_prior_="C")
SAFE["sklearn.neural_network:MLPClassifier"] = Fitted(_LAYERS, {"n_features_in_": "L0"})
_sklearn(".preprocessing:MaxAbsScaler", scale_="D")
_sklearn(".preprocessing:MinMaxScaler", scale_="D", min_="D")
_sklearn(".preprocessing:PowerTransformer", lambdas_="D")
_sklearn(".preprocessing:QuantileTransformer", references_="Q", quantiles_="Q D")
_sklearn(".preprocessing:RobustScaler", center_="D", scale_="D")
_sklearn(".preprocessing:StandardScaler", mean_="D", scale_="D")
# Without arrays of their own, or parts of those above, such as the loss of an `SGDClassifier`.
_sklearn(
    ".frozen:FrozenEstimator .gaussian_process:GaussianProcessClassifier "
    ".gaussian_process.kernels:ConstantKernel .gaussian_process.kernels:Product "
    ".gaussian_process.kernels:RBF .linear_model:Hinge .linear_model:ModifiedHuber "
    ".linear_model:SquaredHinge :CyHalfBinomialLoss .multiclass:OneVsOneClassifier "
    ".multiclass:OneVsRestClassifier .neural_network:AdamOptimizer .neural_network:SGDOptimizer "
    ".pipeline:FeatureUnion .pipeline:Pipeline .preprocessing:Binarizer "
    ".preprocessing:LabelBinarizer .preprocessing:Normalizer"
)


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
    names = {class_name(part) for _, part in _parts(model, "model", set())}
    return sorted(name for name in names if class_path(name) not in SAFE and name not in trusted)


def check_fitted(model: Any, trusted: Collection[str] = ()) -> None:
    """Raise where a model could make compiled code read memory, or take more than a file holds."""
    if unsafe := unsafe_classes(model, trusted):
        raise ExperimentError(f"it holds {', '.join(unsafe)}, which cannot be checked")
    for name, part in _parts(model, "model", set()):
        _check_part(part, name, SAFE.get(class_path(class_name(part)), Fitted()))


def _parts(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Every object within a value but plain ones, and where it is."""
    if isinstance(value, _PLAIN) or id(value) in seen:
        return
    seen.add(id(value))
    if type(value) is np.ndarray:
        items = value.tolist() if value.dtype.kind == "O" else ()
    elif type(value) in (list, tuple, set):
        items = value
    elif type(value) is dict:
        items = (*value, *value.values())
    else:
        yield name, value
        for key, item in getattr(value, "__dict__", {}).items():
            if key != "_metadata_request":  # which is not saved
                yield from _parts(item, f"{name}.{key}", seen)
        return
    for item in items:
        yield from _parts(item, name, seen)


def _check_part(part: Any, name: str, fitted: Fitted) -> None:
    for key, allowed in fitted.values.items():
        if hasattr(part, key) and getattr(part, key) not in allowed:
            raise ExperimentError(
                f"{name}.{key} is {str(getattr(part, key))[:60]!r}, and can only be checked as "
                f"{' or '.join(map(repr, list(allowed)[:4]))}"
            )
    sizes: dict[str, int] = {}
    for path, form in fitted.arrays.items():
        for number in range(1000) if "#" in path else (0,):
            array = _find(part, path.replace("#", str(number)))
            if array is None:
                break
            if not isinstance(array, int | float):
                names = form.replace("#+", str(number + 1)).replace("#", str(number)).split()
                _check_array(array, f"{name}.{path.replace('#', str(number))}", names, sizes)
    for path, size in fitted.numbers.items():
        value = _find(part, path)
        if value is not None and size in sizes and value != sizes[size]:
            raise ExperimentError(f"{name}.{path} is {value!r}, and its arrays have {sizes[size]}")
    width, frames = getattr(part, "n_features_in_", 1), getattr(part, "n_frames_in_", 1)
    if not all(isinstance(number, int | np.integer) for number in (width, frames)):
        raise ExperimentError(f"{name} has a size that is not a whole number")
    if width * frames > MAX_CLIP_NUMBERS:
        raise ExperimentError(
            f"{name} reads {width * frames} numbers a clip; {MAX_CLIP_NUMBERS} are the most"
        )


def _check_array(value: Any, name: str, names: list[str], sizes: dict[str, int]) -> None:
    if type(value) is not np.ndarray or not (value.ndim > 0 and value.size):
        raise ExperimentError(f"{name} is not an array with numbers")
    bound = names.pop()[1:] if names[-1].startswith("<") else None
    expected = []
    for size, label in zip(value.shape, names, strict=False):
        if "*" in label:
            factors = [sizes.get(factor, -1) for factor in label.split("*")]
            expected.append(int(np.prod(factors)))
        else:
            expected.append(sizes.setdefault(label, size))
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
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list | tuple):
            value = value[int(key)] if int(key) < len(value) else None
        else:
            value = getattr(value, key, None)
    return value
