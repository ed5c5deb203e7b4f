"""Tasks: which class each clip is of, as a whole number; and the targets of concepts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError, errors_as
from obygaze_models.scoring.metrics import ACCURACY, METRICS, TREC

if TYPE_CHECKING:
    from obygaze_features.manifests import LabelScheme, LabelSet
    from obygaze_models.data.dataset import ClipDataset

UNUSED = -1
"""The label of clips that take no part."""
Array = NDArray[Any]

EASY, CARRIERS = "EN", ("HN", "S")
"""ObyGaze's levels of clips without any concept, and of those that concepts are learned from."""
#: The paper's three sets of negatives (its solid bars, its hatched ones, and a third), in short.
NEGATIVES = {"a": "EN", "b": "all without", "c": "HN+S without"}


@dataclass(frozen=True)
class LevelTask:
    """Clips of some levels against clips of others; the remaining levels take no part."""

    positives: tuple[str, ...]
    negatives: tuple[str, ...]

    def __post_init__(self) -> None:
        if shared := sorted(set(self.positives) & set(self.negatives)):
            raise ExperimentError(f"level {shared[0]} is both positive and negative")

    @property
    def name(self) -> str:
        """As in ``EN+HN vs S``."""
        return " vs ".join(self.classes)

    @property
    def classes(self) -> tuple[str, ...]:
        """Negatives, then positives."""
        return "+".join(self.negatives), "+".join(self.positives)

    @property
    def class_levels(self) -> tuple[tuple[str, ...], ...]:
        """The levels of each class."""
        return self.negatives, self.positives

    def in_words(self, names: Mapping[str, str]) -> str:
        """Name it by its levels' names."""
        return " vs ".join(class_words(self, names))

    @property
    def levels(self) -> set[str]:
        """All levels that take part."""
        return {*self.positives, *self.negatives}

    def labels(self, data: ClipDataset) -> Array:
        """1 where a clip's level is positive, 0 where it is negative, else `UNUSED`."""
        return _codes(data.levels, self.class_levels)


@dataclass(frozen=True)
class LevelsTask:
    """Each level is a class."""

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
    def class_levels(self) -> tuple[tuple[str, ...], ...]:
        """The levels of each class."""
        return tuple((level,) for level in self.classes)

    def in_words(self, names: Mapping[str, str]) -> str:
        """Name it by its levels' names."""
        return " / ".join(class_words(self, names))

    @property
    def levels(self) -> set[str]:
        """All levels that take part."""
        return set(self.classes)

    def labels(self, data: ClipDataset) -> Array:
        """The place of a clip's level among the classes, else `UNUSED`."""
        return _codes(data.levels, self.class_levels)


@dataclass(frozen=True)
class ConceptTask:
    """Clips that show a concept against clips that do not.

    Positives are HN and S clips with the concept. Negatives are one of the paper's three sets:
    ``a`` EN clips only, ``b`` those and HN and S clips without it, ``c`` the latter only. Where
    the levels are not ObyGaze's, all clips take part, and only ``b`` has a meaning.
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
    def class_levels(self) -> tuple[tuple[str, ...], ...]:
        """None of either class: annotators' marks decide."""
        return (), ()

    def in_words(self, names: Mapping[str, str]) -> str:
        """Name it by its negatives' names."""
        negatives = {"a": _any_of([EASY], names), "c": f"{_any_of(CARRIERS, names)} without"}
        return f"{self.concept} vs {negatives.get(self.negatives, NEGATIVES[self.negatives])}"

    @property
    def levels(self) -> set[str]:
        """All levels that take part."""
        return {*CARRIERS} if self.negatives == "c" else {EASY, *CARRIERS}

    def labels(self, data: ClipDataset) -> Array:
        """1 with the concept, 0 in the set of negatives, else `UNUSED`."""
        column = data.concept_names.index(self.concept)
        return clip_targets(data, self.negatives)[:, column].astype(np.int64)


Task = LevelTask | LevelsTask | ConceptTask
"""Which class each clip is of: its name, in tables and files; the names of its classes, of two of
which the second is the positive one; the levels of each class; the levels that take part; and the
labels of clips. `in_words` has the levels' names in place of their codes."""


def class_words(task: Task, names: Mapping[str, str]) -> list[str]:
    """Name a task's classes by their levels' names; a class without levels has its own.

    >>> class_words(LevelTask(("S",), ("EN", "HN")), {"EN": "Easy Negative", "HN": "Hard Negative"})
    ['Easy Negative or Hard Negative', 'S']
    """
    return [
        _any_of(levels, names) if levels else name
        for name, levels in zip(task.classes, task.class_levels, strict=True)
    ]


def _any_of(levels: Sequence[str], names: Mapping[str, str]) -> str:
    return " or ".join(names.get(code, code) for code in levels)


@dataclass(frozen=True)
class Problem:
    """What is learned, and on which tests what was learnt is judged."""

    train: Task
    tests: tuple[Task, ...]


def make_task(
    scheme: LabelScheme,
    *,
    positives: Sequence[str] = (),
    negatives: Sequence[str] | str = (),
    levels: Sequence[str] = (),
    concept: str | None = None,
) -> Task | None:
    """The task of `obygaze_models.load_dataset`, its levels by code or name; None without one."""

    def codes(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(scheme.level(name) for name in ([names] if isinstance(names, str) else names))

    kinds = {"positives": positives, "levels": levels, "concept": concept}
    several = [name for name, value in kinds.items() if value]
    if len(several) > 1:
        raise ExperimentError(f"{several[0]} and {several[1]} are both there; one task at a time")
    with errors_as(ExperimentError):
        if concept:
            return ConceptTask(
                scheme.concept(concept),
                negatives if isinstance(negatives, str) and negatives else "a",
            )
        if levels:
            return LevelsTask(codes(levels))
        if positives or negatives:
            if not (positives and negatives):
                missing = "negatives" if positives else "positives"
                raise ExperimentError(f"{missing} is missing; a task of two classes takes both")
            return LevelTask(codes(positives), codes(negatives))
    return None


def task_from(fields: Mapping[str, Any]) -> Task:
    """The task of a record that holds its fields, as `vars` gives them.

    >>> task_from({"positives": ["S"], "negatives": ["EN", "HN"]}).name
    'EN+HN vs S'
    """
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
    }
    for kind in (LevelTask, LevelsTask, ConceptTask):
        if {field.name for field in dataclasses.fields(kind)} == values.keys():
            return kind(**values)
    raise ExperimentError(f"no task has the fields {', '.join(fields)}")


def levels_of(tasks: Iterable[Task], labels: LabelSet, scheme: LabelScheme) -> set[str]:
    """The levels whose clips take part in any of the tasks."""
    levels: set[str] = set()
    for task in tasks:
        if isinstance(task, ConceptTask) and not scheme.is_obygaze:
            if task.negatives != "b":
                raise ExperimentError(
                    f'negatives = "{task.negatives}" takes ObyGaze\'s levels, which the label set '
                    f'{labels.name} does not have; write negatives = "b" (all clips without '
                    f"{task.concept})"
                )
            levels |= set(labels.levels)
        else:
            levels |= task.levels
    return levels


def _codes(levels: Sequence[str], groups: Sequence[Sequence[str]]) -> Array:
    code_of = {level: code for code, group in enumerate(groups) for level in group}
    return np.array([code_of.get(level, UNUSED) for level in levels], dtype=np.int64)


def concept_targets(
    levels: Sequence[str],
    concepts: NDArray[Any],
    negatives: str,
    *,
    is_obygaze: bool = True,
) -> NDArray[Any]:
    """1 where a clip shows a concept, 0 where it is a negative of it, else -1; [N, K].

    Not Sure clips take no part, nor does an Easy Negative that is marked with the concept. Where
    the levels are not ObyGaze's (`LabelScheme.is_obygaze`), whatever their codes, each clip shows
    the concept or is a negative of it.
    """
    if negatives not in NEGATIVES:
        raise ExperimentError(
            f"negatives {negatives!r} are not known; choose "
            + "; ".join(f"{name} ({text})" for name, text in NEGATIVES.items())
        )
    has_concept = np.asarray(concepts, dtype=bool)
    if not is_obygaze:
        return has_concept.astype(np.int8)
    easy, annotated = (np.isin(levels, group)[:, None] for group in ((EASY,), CARRIERS))
    among = {"a": easy, "b": easy | annotated, "c": annotated}[negatives]
    targets = np.full(has_concept.shape, -1, dtype=np.int8)
    targets[among & ~has_concept] = 0
    targets[annotated & has_concept] = 1
    return targets


def clip_targets(data: ClipDataset, negatives: str) -> NDArray[Any]:
    """Return the `concept_targets` of clips, by the scheme of their levels."""
    is_obygaze = data.scheme.is_obygaze
    return concept_targets(data.levels, data.concepts, negatives, is_obygaze=is_obygaze)


def measure_of(labels: LabelSet) -> str | None:
    """The measure that a label set names in its JSON file, if any."""
    measure = labels.about.get("measure")
    official = [key for key, metric in METRICS.items() if metric.official]
    if measure is not None and measure not in official:
        raise ExperimentError(
            f"labels/{labels.name}.json: {unknown_name('measure', str(measure), official)}"
        )
    return measure


def official_measure(labels: LabelSet, scheme: LabelScheme, tasks: Sequence[Task]) -> str | None:
    """The label set's measure, if the tasks are what it is officially scored on.

    Average precision is of the highest level against all others, accuracy is over all levels.
    """
    measure, highest = measure_of(labels), scheme.codes[-1:]

    def fits(task: Task) -> bool:
        if isinstance(task, LevelTask):
            others = task.positives == highest and set(task.negatives) == set(scheme.codes[:-1])
            return measure == TREC and others
        return (
            measure == ACCURACY and isinstance(task, LevelsTask) and task.levels == {*scheme.codes}
        )

    return measure if all(map(fits, tasks)) else None


def uses_external_data(backbone: Mapping[str, Any]) -> bool:
    """Whether a backbone learned from other data than a benchmark's: all but random weights did.

    MediaEval asks that such runs be marked.
    """
    return not backbone.get("config", {}).get("synthetic")
