"""A task: what is told apart, as a whole number for each clip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.targets import NEGATIVES, concept_targets
from obygaze_models.experiments.known import Known

__all__ = ["UNUSED", "ConceptTask", "LevelTask", "LevelsTask", "Task", "task_from"]

UNUSED = -1
"""The label of clips that take no part."""
Array = NDArray[Any]

EASY, CARRIERS = "EN", ("HN", "S")
"""The paper's levels: clips without any concept, and those whose concepts are learnt from."""


class Task(Protocol):
    """What experiments ask of a task."""

    @property
    def name(self) -> str:
        """As tables and files name it."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The name of each label, from 0 on; of two the second is the positive one."""

    @property
    def levels(self) -> set[str]:
        """The levels whose clips take part."""

    def labels(self, known: Known) -> Array:
        """A class for each clip, or `UNUSED`."""


@dataclass(frozen=True)
class LevelTask:
    """Clips of some levels against clips of others; the remaining levels take no part."""

    positives: tuple[str, ...]
    negatives: tuple[str, ...]

    def __post_init__(self) -> None:
        if both := sorted(set(self.positives) & set(self.negatives)):
            raise ExperimentError(f"level {both[0]} is both positive and negative")

    @property
    def name(self) -> str:
        """As in ``EN+HN vs S``."""
        return " vs ".join(self.classes)

    @property
    def classes(self) -> tuple[str, ...]:
        """Negatives, then positives."""
        return "+".join(self.negatives), "+".join(self.positives)

    @property
    def levels(self) -> set[str]:
        """All levels that take part."""
        return {*self.positives, *self.negatives}

    def labels(self, known: Known) -> Array:
        """1 where a clip's level is positive, 0 where it is negative, else `UNUSED`."""
        return _codes(known.levels, [self.negatives, self.positives])


@dataclass(frozen=True)
class LevelsTask:
    """Each level a class of its own."""

    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.classes)) < max(3, len(self.classes)):
            raise ExperimentError(
                f"levels is {', '.join(self.classes)}, where three or more different ones are "
                "meant; for two take positives and train_negatives"
            )

    @property
    def name(self) -> str:
        """As in ``EN / HN / S``."""
        return " / ".join(self.classes)

    @property
    def levels(self) -> set[str]:
        """All levels that take part."""
        return set(self.classes)

    def labels(self, known: Known) -> Array:
        """The place of a clip's level among the classes, else `UNUSED`."""
        return _codes(known.levels, [(level,) for level in self.classes])


@dataclass(frozen=True)
class ConceptTask:
    """Clips that show a concept against clips that do not.

    Positives are HN and S clips with the concept. Negatives are one of the paper's three sets:
    ``a`` EN clips only, ``b`` those and HN and S clips without it, ``c`` the latter only.
    """

    concept: str
    negatives: str = "a"

    @property
    def name(self) -> str:
        """As in ``Look vs EN``."""
        return f"{self.concept} vs {NEGATIVES[self.negatives]}"

    @property
    def classes(self) -> tuple[str, ...]:
        """Without it, with it."""
        return f"no {self.concept}", self.concept

    @property
    def levels(self) -> set[str]:
        """All levels that take part."""
        return {*CARRIERS} if self.negatives == "c" else {EASY, *CARRIERS}

    def labels(self, known: Known) -> Array:
        """1 with the concept, 0 in the set of negatives, else `UNUSED`."""
        column = known.concept_names.index(self.concept)
        shown = known.concepts[:, column : column + 1]
        return concept_targets(known.levels, shown, self.negatives)[:, 0].astype(np.int64)


def task_from(said: Mapping[str, Any]) -> Task:
    """The task of a record that holds its fields, as `vars` gives them.

    >>> task_from({"positives": ["S"], "negatives": ["EN", "HN"]}).name
    'EN+HN vs S'
    """
    values: dict[str, Any] = {
        key: tuple(one) if isinstance(one, list) else one for key, one in said.items()
    }
    kinds: list[type[Task]] = [LevelTask, LevelsTask, ConceptTask]
    for kind in kinds:
        if kind.__dataclass_fields__.keys() == values.keys():  # type: ignore[attr-defined]
            return kind(**values)
    raise ExperimentError(f"no task has the fields {', '.join(said)}")


def _codes(levels: Sequence[str], groups: Sequence[Sequence[str]]) -> Array:
    code_of = {level: code for code, group in enumerate(groups) for level in group}
    return np.array([code_of.get(level, UNUSED) for level in levels], dtype=np.int64)
