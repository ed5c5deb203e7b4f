"""The estimators that an experiment can name. A new one: its function, and one line here."""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError

if TYPE_CHECKING:
    from obygaze_models.dataset import ClipDataset as Known

__all__ = ["ESTIMATORS", "Fitted", "Learner", "describe_estimators", "make_learner"]

Array = NDArray[Any]

#: Name -> the function that fits it; its keyword-only parameters are the options.
ESTIMATORS = {
    "mlp": "obygaze_models.estimators.learners:mlp",
    "mlp-author": "obygaze_models.estimators.learners:mlp_author",
    "svm": "obygaze_models.estimators.learners:svm",
    "logistic": "obygaze_models.estimators.learners:logistic",
    "knn": "obygaze_models.estimators.learners:knn",
    "film-prior": "obygaze_models.estimators.learners:film_prior",
    "majority": "obygaze_models.estimators.learners:majority",
    "pcbm-tree": "obygaze_models.estimators.bottlenecks:pcbm_tree",
    "pcbm-logistic": "obygaze_models.estimators.bottlenecks:pcbm_logistic",
    "pcbm-elastic-net": "obygaze_models.estimators.bottlenecks:pcbm_elastic_net",
    "pcbm-hybrid": "obygaze_models.estimators.bottlenecks:pcbm_hybrid",
    "oracle-tree": "obygaze_models.estimators.bottlenecks:oracle_tree",
    "oracle-logistic": "obygaze_models.estimators.bottlenecks:oracle_logistic",
    "random-directions": "obygaze_models.estimators.bottlenecks:random_directions",
}


@dataclass(frozen=True, eq=False)
class Fitted:
    """What came of a learner's fit.

    Parameters
    ----------
    model
        The fitted estimator; `obygaze_models.persistence.save_model` takes it.
    classes
        How many classes the labels have; those that training lacked get probability 0.
    seen
        The rows that had any part in the fit, labels, concepts or validation: what an audit
        for leaks has to look at.
    history
        An epoch a row, where there are epochs.
    facts
        What is worth keeping in a record: the chosen C, the best epoch, concept quality.
    inputs
        Which table of the known clips the model reads in place of features, if it does:
        their annotated concepts, or their films.
    """

    model: Any
    classes: int
    seen: Array
    history: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    inputs: Array | None = None

    def probabilities(self, X: Array, known_rows: Array | None = None) -> Array:
        """The probability of each class, [n, classes].

        Parameters
        ----------
        X
            Features [n, D].
        known_rows
            The clips' rows in what the learner was given; oracles and film priors need it.
        """
        if self.inputs is not None:
            if known_rows is None:
                raise ExperimentError(
                    f"a {type(self.model).__name__} predicts from annotations, not from features; "
                    "it can only be asked about labelled clips"
                )
            X = self.inputs[known_rows]
        table = np.zeros((len(X), self.classes))
        table[:, self.model.classes_] = self.model.predict_proba(X)
        return table


@dataclass(frozen=True)
class Learner:
    """An estimator's name and options, ready to be fitted."""

    name: str
    options: Mapping[str, Any]

    def fit(
        self, known: Known, train: Array, validation: Array, labels: Array, seed: int
    ) -> Fitted:
        """Learn from the training rows; the validation rows choose and stop.

        Parameters
        ----------
        known
            All clips of the experiment.
        train, validation
            Rows of `known`.
        labels
            A class from 0 up for each clip of `known`, negative where it takes no part.
        seed
            Fixes all chance.
        """
        function = _function(self.name)
        fitted: Fitted = function(known, train, validation, labels, seed, **self.options)
        return fitted


def make_learner(name: str, options: Mapping[str, Any] | None = None) -> Learner:
    """The learner of that name, its options checked.

    Examples
    --------
    >>> make_learner("mlp", {"hidden": [64]})
    Learner(name='mlp', options={'hidden': (64,)})
    """
    if name not in ESTIMATORS:
        raise ExperimentError(unknown_name("estimator", name, ESTIMATORS))
    function = _function(name)
    kinds = typing.get_type_hints(function)
    known = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    checked = {}
    for option, value in (options or {}).items():
        if option not in known:
            raise ExperimentError(f"estimator {name!r}: {unknown_name('option', option, known)}")
        checked[option] = tuple(value) if isinstance(value, list) else value
        if not _is_of(kinds[option], checked[option]):
            raise ExperimentError(
                f"option {option!r} of estimator {name!r} is {value!r}, "
                f"where {_in_words(kinds[option])} is meant"
            )
    return Learner(name, checked)


def describe_estimators() -> dict[str, dict[str, Any]]:
    """What each estimator is, in a line, and its options with what they are by default."""
    found: dict[str, dict[str, Any]] = {}
    for name in ESTIMATORS:
        function = _function(name)
        found[name] = {
            "title": (inspect.getdoc(function) or "").splitlines()[0],
            "options": {
                one.name: one.default
                for one in inspect.signature(function).parameters.values()
                if one.kind is one.KEYWORD_ONLY
            },
        }
    return found


def _function(name: str) -> Callable[..., Fitted]:
    module, _, attribute = ESTIMATORS[name].partition(":")
    function: Callable[..., Fitted] = getattr(importlib.import_module(module), attribute)
    return function


def _is_of(kind: Any, value: Any) -> bool:
    """Whether a value is of an option's type, as its annotation gives it."""
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return any(_is_of(one, value) for one in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        return isinstance(value, tuple) and bool(value) and all(_is_of(inner, v) for v in value)
    if typing.get_origin(kind) is dict:
        inner = typing.get_args(kind)[1]
        return (
            isinstance(value, dict)
            and bool(value)
            and all(_is_of(inner, v) for v in value.values())
        )
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, int | float) and kind in (int, float):
        return value > 0 and (kind is float or isinstance(value, int))
    return isinstance(value, kind)


def _in_words(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return " or ".join(_in_words(one) for one in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return f"a list, each {_in_words(typing.get_args(kind)[0])},"
    if typing.get_origin(kind) is dict:
        return f"a table, each entry {_in_words(typing.get_args(kind)[1])},"
    return {
        int: "a whole number above 0",
        float: "a number above 0",
        bool: "true or false",
        type(None): "nothing",
    }.get(kind, "a text")
