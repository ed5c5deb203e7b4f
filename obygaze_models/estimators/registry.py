"""The registry of estimators that an experiment can name.

To add an estimator to obygaze, add a file and an entry here. Other packages add estimators by
entry points, such as ``forest = "my_package.forest:Forest"`` in the table
``[project.entry-points."obygaze.estimators"]``. Any scikit-learn regressor, or classifier with
`predict_proba`, can be named as ``"package.module:Class"``. Errors in the code of other packages
are reported in one line.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points, packages_distributions, version
from typing import Any

from sklearn.base import is_classifier, is_regressor

from obygaze_features.common.names import unknown_name
from obygaze_features.common.plugins import describe_error, load_object, package_of, plugin_package
from obygaze_features.errors import ExperimentError, first_line
from obygaze_models.estimators.baselines import GUESSES
from obygaze_models.estimators.classes import Chance, keywords, set_seed

ENTRY_POINT_GROUP = "obygaze.estimators"
_CLASS = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


@dataclass(frozen=True)
class Entry:
    """The recipe for an estimator.

    Parameters
    ----------
    path
        ``module:Class``.
    title
        A line for readers; by default, the first line of the class's docstring.
    parameters
        The parameters that differ from the class's defaults. A part is named as ``module:Class``,
        and the part's parameters as ``part__parameter``.
    """

    path: str
    title: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


_BOTTLENECK = "obygaze_models.estimators.bottlenecks:ConceptBottleneck"
_BANK = {"bank": "obygaze_models.estimators.concepts:ConceptBank"}
_TREE = {"head": "sklearn.tree:DecisionTreeClassifier", "head__max_depth": 10}
_LOGISTIC = {"head": "obygaze_models.estimators.logistic:LogisticProbe", "head__C": 0.1}
_ELASTIC_NET = {"head": "obygaze_models.estimators.logistic:LogisticProbe", "head__l1_ratio": 0.5}

ESTIMATORS = {
    "mlp": Entry(
        "obygaze_models.estimators.mlp:MLPProbe", "The paper's network, with early stopping."
    ),
    "mlp-author": Entry(
        "obygaze_models.estimators.mlp:MLPProbe",
        "The network as the released code trains it.",
        {"author": True},
    ),
    "svm": Entry(
        "obygaze_models.estimators.svm:LinearSVMProbe",
        "A linear SVM, with C chosen on validation clips.",
    ),
    "logistic": Entry("obygaze_models.estimators.logistic:LogisticProbe", "Logistic regression."),
    "knn": Entry(
        "sklearn.neighbors:KNeighborsClassifier",
        "A vote of the nearest training clips.",
        {"metric": "cosine"},
    ),
    "frame-mil": Entry(
        "obygaze_models.estimators.attention:FrameMIL",
        "The mean of a clip's highest frame scores; needs the 'frames' array.",
    ),
    "film-prior": Entry(
        "obygaze_models.estimators.baselines:FilmPrior",
        "The classes' shares in a clip's film, before balancing.",
    ),
    "majority": Entry(
        "sklearn.dummy:DummyClassifier",
        "The classes' shares in the training folds before balancing.",
        {"strategy": "prior"},
    ),
    "pcbm-tree": Entry(_BOTTLENECK, "A decision tree on concept scores.", _BANK | _TREE),
    "pcbm-logistic": Entry(
        _BOTTLENECK, "Logistic regression on concept scores.", _BANK | _LOGISTIC
    ),
    "pcbm-elastic-net": Entry(
        _BOTTLENECK, "A sparse linear rule on concept scores.", _BANK | _ELASTIC_NET
    ),
    "random-directions": Entry(
        _BOTTLENECK,
        "A bottleneck of random directions, as many as there are concepts.",
        {"bank": "obygaze_models.estimators.concepts:RandomDirections"} | _TREE,
    ),
}
REGRESSORS = {
    "ridge": Entry("sklearn.linear_model:Ridge", "Ridge regression."),
    "svr": Entry("sklearn.svm:SVR", "Support vector regression."),
    "knn-regressor": Entry(
        "sklearn.neighbors:KNeighborsRegressor",
        "The mean of the nearest training clips' numbers.",
        {"metric": "cosine"},
    ),
    "mlp-regressor": Entry(
        "sklearn.neural_network:MLPRegressor",
        "A network that predicts numbers, with early stopping on held-out clips.",
        {"early_stopping": True},
    ),
}
"""The estimators that predict numbers."""


def plugins() -> dict[str, EntryPoint]:
    """Return the plug-ins by name, without those whose names are already taken."""
    found: dict[str, EntryPoint] = {}
    for plugin in entry_points(group=ENTRY_POINT_GROUP):
        if plugin.name not in ESTIMATORS | REGRESSORS:
            found.setdefault(plugin.name, plugin)
    return found


def find_entry(name: str) -> Entry:
    """Return the entry for a name: built in, from an installed package, or ``module:Class``."""
    built_in = ESTIMATORS | REGRESSORS
    if name in built_in:
        return built_in[name]
    if _is_class(name):
        return Entry(name)
    provided = plugins()
    if name in provided:
        return Entry(provided[name].value)
    any_other = "a scikit-learn estimator as package.module:Class"
    raise ExperimentError(unknown_name("estimator", name, [*built_in, *provided, any_other]))


def make_estimator(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    random_state: Chance = None,
) -> Any:
    """Return an unfitted estimator with checked options.

    Parameters
    ----------
    name
        A name in `ESTIMATORS` or `REGRESSORS`, the name of an entry point, or ``module:Class``.
    options
        The estimator's parameters as in `get_params`, such as ``bank__C``. A part may be
        ``module:Class``.
    random_state
        The random state of the estimator and its parts, unless the options set it.

    Examples
    --------
    >>> make_estimator("mlp", {"hidden_layer_sizes": [64]}, random_state=0)
    MLPProbe(hidden_layer_sizes=[64], random_state=0)
    """
    entry = find_entry(name)
    options = dict(options or {})
    paths = (entry.path, *entry.parameters.values(), *options.values())
    with plugin_errors([str(path).partition(":")[0] for path in paths if _is_class(path)]):
        estimator = _make(name, entry, options)
        require_estimator(estimator)
        return set_seed(estimator, random_state)


def require_estimator(estimator: Any) -> None:
    """Raise `ExperimentError` unless an object is a regressor, or predicts probabilities."""
    is_model = hasattr(estimator, "fit")
    has_classes = is_model and is_classifier(estimator) and hasattr(estimator, "predict_proba")
    if not (has_classes or (is_model and is_regressor(estimator))):
        raise ExperimentError(
            f"{type(estimator).__name__} is neither a regressor nor a classifier with "
            "predict_proba. Use om.make_estimator(NAME), CalibratedClassifierCV of "
            "sklearn.calibration or another class, and pass several models as {name: estimator}"
        )


def _make(name: str, entry: Entry, options: Mapping[str, Any]) -> Any:
    """Make an estimator and its parts."""
    parameters = dict(entry.parameters)
    for key in options:  # the options of a part that is replaced are not the new part's
        for other in entry.parameters:
            if other.startswith(f"{key}__"):
                del parameters[other]
    parameters |= options
    for key, value in parameters.items():
        if _is_class(value):
            parameters[key] = _load_estimator(name, value)()
    return _make_with(name, _load_estimator(name, entry.path), parameters)


def _make_with(name: str, estimator_class: Any, parameters: Mapping[str, Any]) -> Any:
    """Make an estimator, set the parameters of its parts, and check all parameters."""
    accepted = inspect.signature(estimator_class).parameters
    try:
        estimator = estimator_class(
            **{key: value for key, value in parameters.items() if key in accepted}
        )
    except TypeError as problem:
        raise ExperimentError(f"estimator {name!r} cannot be made: {problem}") from None
    for key in sorted(parameters.keys() - accepted.keys()):
        names = estimator.get_params(deep=True)
        if key not in names:
            raise ExperimentError(f"estimator {name!r}: {unknown_name('option', key, names)}")
        estimator.set_params(**{key: parameters[key]})
    try:  # check now, not only in `fit`
        for part in parts_of(estimator):
            if hasattr(part, "_parameter_constraints"):
                part._validate_params()
    except ValueError as problem:
        raise ExperimentError(f"estimator {name!r}: {problem}") from None
    return estimator


def _load_estimator(name: str, path: str) -> Any:
    """Import an estimator's class; raise for anything else, so that nothing else is called."""
    estimator_class = load_object(path, ExperimentError)
    if not (
        isinstance(estimator_class, type)
        and hasattr(estimator_class, "fit")
        and hasattr(estimator_class, "get_params")
    ):
        raise ExperimentError(
            f"estimator {name!r}: {path} is not a scikit-learn estimator. Define fit, and inherit "
            "from ClassifierMixin or RegressorMixin, and from BaseEstimator"
        )
    return estimator_class


def describe_estimators() -> dict[str, dict[str, Any]]:
    """Return the title, the options with their defaults, and the package of each estimator."""
    described = {name: _describe(name) for name in (*ESTIMATORS, *REGRESSORS)}
    for name, plugin in sorted(plugins().items()):
        described[name] = _describe(name, plugin)
    return described


def _describe(name: str, plugin: EntryPoint | None = None) -> dict[str, Any]:
    entry = find_entry(name)
    options = {}
    try:
        with plugin_errors([entry.path.partition(":")[0]]):
            estimator = make_estimator(name)
            for key, value in estimator.get_params(deep=True).items():
                if key == "memory" or key.endswith("random_state"):
                    continue
                if hasattr(value, "get_params"):
                    value = type(value).__name__
                options[key] = value
            if "concepts" in keywords(estimator.fit):
                options["negatives"] = None
            if not (isinstance(estimator, GUESSES) or hasattr(estimator, "_validation_teaches")):
                options["threshold"] = None
            about = inspect.getdoc(type(estimator)) or name
            title = entry.title or about.splitlines()[0]
    except ExperimentError as problem:
        title = f"cannot be loaded: {first_line(problem)}"
        options = {}
        if plugin is not None:
            title += f"; entry point {name} = {plugin.value}"
    package = "obygaze" if plugin is None else plugin_package(plugin)
    return {"title": title, "options": options, "package": package}


def _is_class(value: Any) -> bool:
    return isinstance(value, str) and _CLASS.fullmatch(value) is not None


def trusted_classes() -> set[str]:
    """Return the paths of the classes with an entry point, which saved models may contain.

    Nothing else in their packages is trusted. If whole packages were trusted, a forged file could
    call any function that their modules have imported.
    """
    trusted = set()
    for plugin in entry_points(group=ENTRY_POINT_GROUP):
        with suppress(Exception, SystemExit):  # third-party code may raise anything
            trusted.add(class_path(load_object(plugin.value, ExperimentError)))
    return trusted


def class_path(cls: type) -> str:
    """Return the path of a class: ``module:Class``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def parts_of(estimator: Any) -> list[Any]:
    """Return an estimator and all estimators among its parameters."""
    values = estimator.get_params(deep=True).values()
    inner = [value for value in values if hasattr(value, "fit") and not isinstance(value, type)]
    return [estimator, *inner]


def modules_of(estimator: Any) -> list[str]:
    """Return the modules of an estimator and its parts, for `plugin_errors`."""
    return [type(part).__module__ for part in parts_of(estimator)]


def best_of(estimator: Any) -> Any:
    """Return the best estimator of a fitted search, or any other model itself."""
    return getattr(estimator, "best_estimator_", estimator)


@contextmanager
def plugin_errors(modules: Collection[str]) -> Iterator[None]:
    """Convert all errors to `ExperimentError` if a module is a plug-in's.

    Parameters
    ----------
    modules
        The modules of an estimator and of its parts. In estimators of this project, scikit-learn
        is not a plug-in.
    """
    packages = {package_of(module) for module in modules}
    ours = {"obygaze_models", "sklearn"} if "obygaze_models" in packages else set[str]()
    foreign = packages - ours
    try:
        with chdir("."):  # relative paths stay valid
            yield
    except ExperimentError:
        raise
    except (Exception, SystemExit) as problem:  # third-party code may raise anything
        if not foreign:
            raise
        raise ExperimentError(describe_error(problem)) from problem


def plugin_versions(estimator: Any) -> dict[str, str]:
    """Return the versions of the packages that define an estimator and its parts.

    This project, scikit-learn and modules of no installed package are left out.
    """
    foreign = set(map(package_of, modules_of(estimator))) - {"obygaze_models", "sklearn"}
    if not foreign:  # it takes a quarter of a second to list all packages
        return {}

    installed = dict(packages_distributions())
    for plugin in entry_points(group=ENTRY_POINT_GROUP):  # the list lacks some editable packages
        if plugin.dist is not None:
            installed[package_of(plugin.value)] = [plugin.dist.name]
    versions = {}
    for package in sorted(foreign):
        for name in installed.get(package, ()):
            versions[name] = version(name)
    return versions
