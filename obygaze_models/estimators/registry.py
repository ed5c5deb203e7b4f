"""The estimators that an experiment can name. A new one: its file, and one line here.

Another line in `obygaze_models.estimators.safe_classes` says what a saved one must be.

Another package provides one by an entry point:
``[project.entry-points."obygaze.estimators"] forest = "my_package.forest:Forest"``; and any
scikit-learn classifier takes part as ``"package.module:Class"``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sklearn.base import BaseEstimator, is_classifier

from obygaze_features.common.plugins import Plugin
from obygaze_features.common.text import first_line, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import Chance, keywords, set_seed
from obygaze_models.estimators.plugins import load_class, plugin_errors, plugins

_CLASS = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")
_OWN = "obygaze_models.estimators."


@dataclass(frozen=True)
class Entry:
    """How an estimator is made.

    Parameters
    ----------
    path
        ``module:Class``.
    parameters
        Those that differ from the class's own; a part of it as ``module:Class``, and the
        part's parameters as ``part__parameter``.
    before_balancing
        Fit on all clips of the task in the training folds, also those that balancing leaves out.
    title
        One line for people; by default the first of the class's docstring.
    """

    path: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    before_balancing: bool = False
    title: str = ""


_BOTTLENECK = f"{_OWN}bottlenecks:ConceptBottleneck"
_BANK = {"bank": f"{_OWN}concepts:ConceptBank"}
_TREE = {"head": "sklearn.tree:DecisionTreeClassifier", "head__max_depth": 10}
_LOGISTIC = {"head": f"{_OWN}logistic:LogisticProbe", "head__C": 0.1}
_ELASTIC_NET = {"head": f"{_OWN}logistic:LogisticProbe", "head__l1_ratio": 0.5}

ESTIMATORS = {
    "mlp": Entry(f"{_OWN}mlp:MLPProbe", title="The paper's network, stopped by validation."),
    "mlp-author": Entry(
        f"{_OWN}mlp:MLPProbe",
        {"author": True},
        title="The network as the released code trains it.",
    ),
    "svm": Entry(f"{_OWN}svm:LinearSVMProbe", title="A linear SVM; validation chooses C."),
    "logistic": Entry(f"{_OWN}logistic:LogisticProbe", title="Logistic regression."),
    "knn": Entry(
        "sklearn.neighbors:KNeighborsClassifier",
        {"metric": "cosine"},
        title="The nearest training clips.",
    ),
    "attention-probe": Entry(
        f"{_OWN}attention:AttentionProbe",
        title="A learned weighted mean of a clip's frames; it reads the sequence of frames.",
    ),
    "frame-mil": Entry(
        f"{_OWN}attention:FrameMIL",
        title="A score a frame, the highest ones pooled; it reads the sequence of frames.",
    ),
    "film-prior": Entry(
        f"{_OWN}baselines:FilmPrior",
        before_balancing=True,
        title="How common the classes are in a clip's film, before balancing.",
    ),
    "majority": Entry(
        "sklearn.dummy:DummyClassifier",
        {"strategy": "prior"},
        before_balancing=True,
        title="The classes' shares in the training folds before balancing.",
    ),
    "pcbm-tree": Entry(
        _BOTTLENECK, _BANK | _TREE, title="A decision tree on distances from concepts."
    ),
    "pcbm-logistic": Entry(
        _BOTTLENECK, _BANK | _LOGISTIC, title="Logistic regression on distances from concepts."
    ),
    "pcbm-elastic-net": Entry(
        _BOTTLENECK, _BANK | _ELASTIC_NET, title="A sparse linear rule on distances from concepts."
    ),
    "pcbm-hybrid": Entry(
        f"{_OWN}bottlenecks:HybridBottleneck",
        _BANK | _LOGISTIC,
        title="A linear bottleneck and a residual; validation measures it without its concepts.",
    ),
    "oracle-tree": Entry(
        f"{_OWN}bottlenecks:OracleBottleneck",
        _TREE,
        title="A decision tree on the annotated concepts.",
    ),
    "oracle-logistic": Entry(
        f"{_OWN}bottlenecks:OracleBottleneck",
        _LOGISTIC,
        title="Logistic regression on the annotated concepts.",
    ),
    "random-directions": Entry(
        _BOTTLENECK,
        {"bank": f"{_OWN}concepts:RandomDirections"} | _TREE,
        title="A bottleneck of directions that mean nothing, as many as there are concepts.",
    ),
}


def find_entry(name: str) -> Entry:
    """The entry of a name: ours, an installed package's, or ``module:Class`` itself."""
    if name in ESTIMATORS:
        return ESTIMATORS[name]
    if _CLASS.fullmatch(name):
        return Entry(name)
    provided = {plugin.name: plugin.path for plugin in reversed(plugins())}
    if name in provided:
        return Entry(provided[name])
    any_other = "any scikit-learn classifier as package.module:Class"
    raise ExperimentError(unknown_name("estimator", name, [*ESTIMATORS, *provided, any_other]))


def ignored_plugins() -> list[Plugin]:
    """The entry points whose name is ours, or that of an earlier one."""
    names = [*ESTIMATORS, *(plugin.name for plugin in plugins())]
    return [
        plugin
        for row, plugin in enumerate(plugins(), len(ESTIMATORS))
        if plugin.name in names[:row]
    ]


def make_estimator(
    name: str, options: Mapping[str, Any] | None = None, *, random_state: Chance = None
) -> Any:
    """An unfitted estimator, its options checked; `PluginError` where a plug-in's code fails.

    Parameters
    ----------
    name
        Of `ESTIMATORS`, of an entry point, or ``module:Class``.
    options
        Its parameters, as `get_params` has them: ``bank__C``. A part may be ``module:Class``.
    random_state
        That of the estimator and its parts, where the options give none.

    Examples
    --------
    >>> make_estimator("mlp", {"hidden_layer_sizes": [64]}, random_state=0)
    MLPProbe(hidden_layer_sizes=[64], random_state=0)
    """
    entry = find_entry(name)
    options = dict(options or {})
    paths = (entry.path, *entry.parameters.values(), *options.values())
    with plugin_errors([str(path).partition(":")[0] for path in paths if _is_class(path)]):
        return _make(name, entry, options, random_state)


def _make(name: str, entry: Entry, options: Mapping[str, Any], random_state: Chance) -> Any:
    replaced = tuple(f"{key}__" for key in options if "__" not in key)
    parameters = {
        key: value for key, value in entry.parameters.items() if not key.startswith(replaced)
    } | dict(options)
    kind = load_class(entry.path)
    methods = ("fit", "get_params", "__sklearn_tags__")
    if missing := [method for method in methods if not hasattr(kind, method)]:
        raise ExperimentError(
            f"{entry.path} is not a scikit-learn classifier: it has no {', '.join(missing)}; "
            "inherit from ClassifierMixin and BaseEstimator"
        )
    parameters = {key: _make_part(name, key, value) for key, value in parameters.items()}
    own = inspect.signature(kind).parameters
    try:
        estimator = kind(**{key: value for key, value in parameters.items() if key in own})
    except TypeError as problem:
        raise ExperimentError(f"estimator {name!r} cannot be made: {problem}") from None
    for key in sorted(parameters.keys() - own.keys()):
        names = estimator.get_params(deep=True)
        if key not in names:
            raise ExperimentError(f"estimator {name!r}: {unknown_name('option', key, names)}")
        estimator.set_params(**{key: parameters[key]})
    _validate(name, estimator)
    if not is_classifier(estimator):
        raise ExperimentError(
            f"estimator {name!r} ({entry.path}) is not a classifier; take one, such as "
            "sklearn.naive_bayes:GaussianNB"
        )
    if not hasattr(estimator, "predict_proba"):
        raise ExperimentError(
            f"estimator {name!r} ({entry.path}) has no predict_proba, which experiments ask for; "
            "take a classifier that has one, or sklearn.calibration:CalibratedClassifierCV"
        )
    return set_seed(estimator, random_state)


def describe_estimators() -> dict[str, dict[str, Any]]:
    """For each estimator its title and its options with their defaults."""
    ignored = ignored_plugins()
    used = {plugin.name: plugin for plugin in plugins() if plugin not in ignored}
    described: dict[str, dict[str, Any]] = {}
    for name in (*ESTIMATORS, *sorted(used)):
        path = used[name].path if name in used else ESTIMATORS[name].path
        try:
            with plugin_errors([path.partition(":")[0]]):
                title, options = _describe(name)
        except ExperimentError as problem:
            title, options = f"cannot be loaded: {first_line(problem)}", {}
            if name in used:
                title += f"; entry point {name} = {path}"
        package = used[name].package if name in used else "obygaze"
        described[name] = {"title": title, "options": options, "package": package}
    for plugin in ignored:
        title = f"ignored: {plugin.path} has the name of another; rename its entry point"
        about = {"title": title, "options": {}, "package": plugin.package}
        described[f"{plugin.name} ({plugin.path})"] = about
    return described


def _describe(name: str) -> tuple[str, dict[str, Any]]:
    estimator = make_estimator(name)
    options = {
        key: type(value).__name__ if hasattr(value, "get_params") else value
        for key, value in estimator.get_params(deep=True).items()
        if key != "memory" and not key.endswith("random_state")
    }
    if "concepts" in keywords(estimator.fit):
        options["negatives"] = "a"
    doc = inspect.getdoc(type(estimator)) or name
    return find_entry(name).title or doc.splitlines()[0], options


def _is_class(value: Any) -> bool:
    return isinstance(value, str) and _CLASS.fullmatch(value) is not None


def _make_part(name: str, key: str, value: Any) -> Any:
    """A part that is given as ``module:Class``; other values as they are."""
    if not _is_class(value):
        return value
    kind = load_class(value)
    if not (isinstance(kind, type) and issubclass(kind, BaseEstimator)):
        raise ExperimentError(
            f"estimator {name!r}: {key} names {value}, which is not a scikit-learn estimator; "
            "give a class that inherits from BaseEstimator, or a value"
        )
    return kind()


def _validate(name: str, estimator: Any) -> None:
    """Raise now what `fit` would raise of parameters, of the parts, too."""
    for part in (estimator, *estimator.get_params(deep=False).values()):
        if isinstance(part, type) or not hasattr(part, "_parameter_constraints"):
            continue
        try:
            part._validate_params()
        except ValueError as problem:
            raise ExperimentError(f"estimator {name!r}: {problem}") from None
