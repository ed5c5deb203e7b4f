"""Entries in an experiment's list of estimators: the name, the options and the data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sklearn.base import is_regressor

from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.data.targets import NEGATIVES
from obygaze_models.estimators.classes import keywords, reads_of
from obygaze_models.estimators.registry import (
    PluginError,
    best_of,
    find_entry,
    make_estimator,
    modules_of,
    plugin_errors,
)

AGAINST = "negatives"
"""The key in an estimator's table for the negatives of its concepts."""
CUT, ON_VALIDATION = "threshold", "validation"
"""The key of an estimator's threshold, and its value for a choice on validation clips."""


def folder_name(text: str) -> str:
    """Return a folder name that is valid on every file system."""
    return re.sub(r"[^\w+.]+", "-", text)


@dataclass(frozen=True)
class EstimatorSpec:
    """An entry in the list of estimators: its name, its options and the data that it uses.

    The estimator reads the stores in `use`, by default all. If `numbers` is True, it can be a
    regressor.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    negatives: str = "a"
    threshold: str | None = None
    use: tuple[str, ...] = ()
    numbers: bool = False

    def __post_init__(self) -> None:
        if self.negatives not in NEGATIVES:
            raise ExperimentError(
                f"estimator {self.name!r}: "
                f"{unknown_name('set of negatives', str(self.negatives), NEGATIVES)}"
            )
        if self.threshold not in (None, ON_VALIDATION):
            raise ExperimentError(
                f"estimator {self.name!r}: {CUT} must be {ON_VALIDATION!r} (got "
                f"{self.threshold!r}). Leave it out for a threshold of 0.5"
            )
        try:
            json.dumps(dict(self.options))
        except (TypeError, ValueError) as problem:
            raise ExperimentError(
                f"estimator {self.name!r}: an option cannot be written to run.json ({problem}). "
                "Use numbers, strings, or lists and tables of these"
            ) from None
        with suppress(PluginError):  # each fit reports it
            accepted = keywords(self.estimator.fit)
            if self.negatives != "a" and "concepts" not in accepted:
                raise ExperimentError(
                    f"estimator {self.name!r} uses no concepts, so the option {AGAINST} = "
                    f"{self.negatives!r} has no effect. Remove it"
                )
            if self.threshold and getattr(self.estimator, "_validation_teaches", False):
                raise ExperimentError(
                    f"estimator {self.name!r} also learns from validation clips, so its "
                    f"{CUT} cannot be chosen on them. Remove it, or use another estimator"
                )

    @cached_property
    def estimator(self) -> Any:
        """The unfitted estimator. `PluginError` is raised if another package's code fails."""
        return make_estimator(self.name, self.options, numbers=self.numbers)

    def _ask(self, question: Callable[[Any], Any], unknown: Any) -> Any:
        """Call `question` with the estimator; return `unknown` if a plug-in fails."""
        with suppress(PluginError), plugin_errors(modules_of(self.estimator)):
            return question(self.estimator)
        return unknown

    @cached_property
    def reads(self) -> str:
        """The kind of input that the estimator reads; see `reads_of`."""
        return str(self._ask(lambda estimator: reads_of(best_of(estimator)), ""))

    @property
    def fuses(self) -> bool:
        """True if the estimator can read features from several stores. Guesses read no features."""
        return self.reads == "features" and not find_entry(self.name).before_balancing

    @property
    def predicts_numbers(self) -> bool:
        """True if the estimator is a regressor."""
        return bool(self._ask(is_regressor, False))

    @property
    def has_bank(self) -> bool:
        """True if the estimator learns a bank of concepts."""
        return bool(self._ask(lambda estimator: "bank__balance" in estimator.get_params(), True))

    @cached_property
    def uses_validation(self) -> bool:
        """True if the estimator uses validation clips to stop early, choose settings or learn."""
        names = self._ask(lambda estimator: keywords(estimator.fit), frozenset())
        return bool(self.threshold) or any(name.endswith("_val") for name in names)

    @property
    def table(self) -> dict[str, Any]:
        """The options as written in an experiment's table."""
        keys = {AGAINST: self.negatives, CUT: self.threshold, "stores": [*self.use]}
        defaults: dict[str, Any] = {AGAINST: "a", CUT: None, "stores": []}
        return {k: v for k, v in keys.items() if v != defaults[k]} | dict(self.options)
