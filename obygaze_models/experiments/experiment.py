"""An experiment as data: what is learnt, from which features, and how it is judged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_features.manifests import LabelScheme
from obygaze_models.estimators.registry import make_estimator
from obygaze_models.estimators.targets import NEGATIVES
from obygaze_models.experiments.features import POOLINGS
from obygaze_models.experiments.protocol import PROTOCOLS
from obygaze_models.experiments.task import ConceptTask, LevelsTask, LevelTask, Task

__all__ = ["ALL", "Experiment", "Problem", "folder_name"]

ALL = "all"
"""In place of concepts: all that can be seen."""
CALLED = "as"
"""The key of an estimator's table under which it is listed, where its name will not do."""
AGAINST = "negatives"
"""The key of an estimator's table for the set of negatives of its concepts."""


_LISTED = re.compile(r"[^\W_].*")


def folder_name(text: str) -> str:
    """Letters, digits and a few signs, on any file system."""
    return re.sub(r"[^\w+.]+", "-", text)


@dataclass(frozen=True)
class EstimatorSpec:
    """An estimator by name, its parameters, and the set of negatives of its concepts."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    negatives: str = "a"

    def __post_init__(self) -> None:
        if self.negatives not in NEGATIVES:
            raise ExperimentError(
                f"estimator {self.name!r}: "
                f"{unknown_name('set of negatives', str(self.negatives), NEGATIVES)}"
            )
        make_estimator(self.name, self.options)

    @property
    def table(self) -> dict[str, Any]:
        """The options as a table of an experiment has them."""
        return ({AGAINST: self.negatives} if self.negatives != "a" else {}) | dict(self.options)


@dataclass(frozen=True)
class Problem:
    """What is learnt, and on which tests what was learnt is judged."""

    train: Task
    tests: tuple[Task, ...]


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run's scores.

    One of three kinds of task is given: `positives` and `train_negatives`, or `levels`, or
    `concepts`.

    Parameters
    ----------
    name
        What the experiment is called in tables and pages.
    manifest, store
        Folders of the labelled items and of their features.
    split
        The manifest's fold column. Without one `leak-free`, `paper` and `split` deal the
        labelled clips over ten folds, and `released` takes the authors' file for the task.
        `leave-film-out` takes the clips that it has, and not its folds; `official` needs one.
    positives, train_negatives
        The levels that are told apart in training and validation; here and below by their codes
        or names.
    test_negatives
        The negatives of each test set, against the same positives. Empty: as in training.
    levels
        Levels that are a class each.
    concepts
        Concepts, each to be detected; or ``("all",)`` for all that can be seen.
    negatives
        The paper's set of negatives of concepts: ``a``, ``b`` or ``c``; see `ConceptTask`.
    labels
        The manifest's label set; None for its default one.
    array, pooling
        The store's array, and what makes one vector a clip of its tokens, if it has several:
        ``max``, ``mean`` or ``first``.
    protocol
        ``leak-free``, ``released``, ``paper``, ``leave-film-out``, ``split`` or ``official``.
    estimators
        What to train: names; or tables with ``name``, its options, and ``as``, under which it
        is listed.
    seed
        Fixes the clips drawn, the estimators' own chance and, without a split, the folds.
    seeds
        Do all runs once with each of these for the draws and the estimators; the folds stay those
        of `seed`. Empty: with `seed` alone.
    """

    name: str
    manifest: Path
    store: Path | str
    split: str | None = None
    positives: tuple[str, ...] = ()
    train_negatives: tuple[str, ...] = ()
    test_negatives: tuple[tuple[str, ...], ...] = ()
    levels: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    negatives: str = "a"
    labels: str | None = None
    array: str = "native"
    pooling: str | None = None
    protocol: str = PROTOCOLS[0]
    estimators: tuple[str | Mapping[str, Any], ...] = ("mlp",)
    seed: int = 0
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for what, value, known in (
            ("protocol", self.protocol, PROTOCOLS),
            ("pooling", self.pooling, POOLINGS),
            ("set of negatives", self.negatives, NEGATIVES),
        ):
            if value is not None and value not in known:
                raise ExperimentError(f"{self.name!r}: {unknown_name(what, value, known)}")
        given = {
            "positives": self.positives or self.train_negatives or self.test_negatives,
            "levels": self.levels,
            "concepts": self.concepts,
        }
        if sum(map(bool, given.values())) > 1:
            first, second, *_ = (kind for kind, value in given.items() if value)
            raise ExperimentError(f"{self.name!r} has {first} and {second}; one task at a time")
        for key, meant in (("positives", ["S"]), ("train_negatives", ["EN"])):
            if not (self.levels or self.concepts or getattr(self, key)):
                shown = str(meant).replace("'", '"')
                raise ExperimentError(f"{self.name!r}: {key} is missing; add {key} = {shown}")
        if self.protocol == "paper" and self.levels:
            raise ExperimentError(
                f"{self.name!r}: the paper's protocol is for two classes; for {len(self.levels)} "
                "take leak-free"
            )
        if not self.concepts:
            tests = self._level_problem.tests
            if len({task.name for task in tests}) < len(tests):
                raise ExperimentError(
                    f"{self.name!r} has the same test set twice in test_negatives"
                )
        _ = self.learners

    @property
    def learners(self) -> dict[str, EstimatorSpec]:
        """The name under which each estimator is listed, and what to fit."""
        found: dict[str, EstimatorSpec] = {}
        for one in self.estimators:
            options = {"name": one} if isinstance(one, str) else dict(one)
            name = str(options.pop("name"))
            listed = str(options.pop(CALLED, name))
            if listed in found:
                raise ExperimentError(
                    f"two estimators are called {listed!r} in {self.name!r}; give one another "
                    f'name: {{name = "{name}", {CALLED} = "..."}}'
                )
            if not _LISTED.fullmatch(listed):
                raise ExperimentError(
                    f"{self.name!r}: {listed!r} cannot name an estimator; begin with a letter or "
                    "digit"
                )
            try:
                found[listed] = EstimatorSpec(name, options, str(options.pop(AGAINST, "a")))
            except ExperimentError as problem:
                raise ExperimentError(f"{self.name!r}: {problem}") from None
        folders = {folder_name(listed).casefold(): listed for listed in found}
        if len(folders) < len(found):
            raise ExperimentError(
                f"{self.name!r}: two estimators would be kept in one folder; give them names that "
                "differ in more than signs and case"
            )
        oracles = [name for name, one in found.items() if one.name.startswith("oracle-")]
        if self.concepts and oracles:
            raise ExperimentError(
                f"{self.name!r}: {oracles[0]} reads the annotated concepts, and these are what is "
                "asked for; leave it out"
            )
        return found

    @property
    def goal(self) -> str:
        """What is learnt and tested, in words."""
        if self.concepts:
            which = "all visual concepts" if ALL in self.concepts else ", ".join(self.concepts)
            return f"{which} (against {NEGATIVES[self.negatives]})"
        problem = self._level_problem
        return f"{problem.train.name}, test on {', '.join(task.name for task in problem.tests)}"

    @property
    def feature(self) -> str:
        """The array, and how it is pooled."""
        return f"{self.array}, {self.pooling} over tokens" if self.pooling else self.array

    def in_codes(self, scheme: LabelScheme) -> Experiment:
        """The same, its levels by their codes, whichever of a level's names it was given."""

        def coded(levels: Sequence[str]) -> tuple[str, ...]:
            return tuple(map(scheme.level, levels))

        try:
            return replace(
                self,
                positives=coded(self.positives),
                train_negatives=coded(self.train_negatives),
                test_negatives=tuple(map(coded, self.test_negatives)),
                levels=coded(self.levels),
            )
        except ManifestError as problem:
            raise ExperimentError(f"{self.name!r}: {problem}") from None

    def problems(self, scheme: LabelScheme) -> list[Problem]:
        """What is learnt: one problem, or one for each concept."""
        if not self.concepts:
            return [self._level_problem]
        wanted: Sequence[str] = self.concepts
        if ALL in wanted:
            wanted = scheme.visual_concepts
            if not wanted:
                raise ExperimentError(f"the label scheme {scheme.name!r} has no concepts")
        try:
            names = list(dict.fromkeys(map(scheme.concept, wanted)))
        except ManifestError as problem:
            raise ExperimentError(f"{self.name!r}: {problem}") from None
        tasks = [ConceptTask(name, self.negatives) for name in names]
        return [Problem(task, (task,)) for task in tasks]

    @property
    def _level_problem(self) -> Problem:
        if self.levels:
            task = LevelsTask(self.levels)
            return Problem(task, (task,))
        tests = self.test_negatives or (self.train_negatives,)
        return Problem(
            LevelTask(self.positives, self.train_negatives),
            tuple(LevelTask(self.positives, levels) for levels in tests),
        )
