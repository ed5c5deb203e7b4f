"""Tasks: the classes to predict, and the clips that take part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from obygaze_features.common.arrays import Array
from obygaze_features.common.names import as_list, unknown_name
from obygaze_features.errors import ExperimentError, errors_as
from obygaze_features.manifests import LabelScheme, LabelSet
from obygaze_models.data.targets import (
    CARRIERS,
    EASY,
    NEGATIVES,
    NUMBERED,
    TARGETS,
    UNUSED,
    Target,
    concept_targets,
    default_negatives,
)
from obygaze_models.scoring.metrics import ACCURACY, CLASSES, METRICS, TREC
from obygaze_models.scoring.number_scores import NUMBER

NUMBERS = "numbers"
"""The key in a label set's JSON file that names its column of numbers."""


class Class(msgspec.Struct, frozen=True):
    """A class of a task.

    Parameters
    ----------
    key
        The key in data, such as ``positive``, ``level:S`` or ``concept:Look``.
    title
        The name for tables, from level codes: ``EN+HN``.
    words
        The name for use in sentences, from level names: ``Easy Negative or Hard Negative``.
    levels
        The codes of its levels; empty if the class depends on a concept.
    """

    key: str
    title: str
    words: str
    levels: tuple[str, ...] = ()


class Counts(NamedTuple):
    """The number of all clips, of clips in each class, and of positives if there are two classes.

    For numbers, all clips count as a single class.
    """

    clips: int
    positives: int | None
    classes: dict[str, int]


class Task(msgspec.Struct, frozen=True):
    """What a model predicts: classes or a number. Of two classes, the second is positive.

    Parameters
    ----------
    key
        The name in files and tables: ``EN+HN vs S``.
    title
        The name for use in sentences, from level names.
    classes
        The classes.
    concept, negatives
        The concept to detect, and the code of its negatives, which are the clips without the
        concept in EN (``a``), in EN, HN and S (``b``), or in HN and S (``c``). Positives are HN and
        S clips with the concept. If the levels are not ObyGaze's, all clips take part, and only
        ``b`` is allowed.
    target_key
        The key of the target in `TARGETS`.
    """

    key: str
    title: str
    classes: tuple[Class, ...]
    concept: str = ""
    negatives: str = ""
    target_key: str = CLASSES

    def __post_init__(self) -> None:
        if self.target_key not in TARGETS:
            raise ValueError(unknown_name("target", self.target_key, TARGETS))

    @property
    def target(self) -> Target:
        """The target, which encodes labels and scores predictions."""
        return TARGETS[self.target_key]

    @property
    def is_binary(self) -> bool:
        """True if there are two classes, of which the second is positive."""
        return len(self.classes) == 2

    @property
    def class_keys(self) -> list[str]:
        """The keys of the classes."""
        return [label_class.key for label_class in self.classes]

    @property
    def class_titles(self) -> list[str]:
        """The names of the classes for use in tables."""
        return [label_class.title for label_class in self.classes]

    @property
    def levels(self) -> set[str]:
        """The levels that take part; for a concept, in ObyGaze's scheme (see `levels_of`)."""
        if self.concept:
            return {*CARRIERS} if self.negatives == "c" else {EASY, *CARRIERS}
        return {level for label_class in self.classes for level in label_class.levels}

    def codes(self, levels: Sequence[str], shows: Any = (), *, is_obygaze: bool = True) -> Array:
        """Return the class of clips by their levels, and by whether each shows the concept."""
        if self.concept:
            column = np.reshape(shows, (-1, 1))
            targets = concept_targets(levels, column, self.negatives, is_obygaze=is_obygaze)
            return targets[:, 0].astype(np.int64)
        code_of: dict[str, int] = {}
        for code, label_class in enumerate(self.classes):
            code_of |= dict.fromkeys(label_class.levels, code)
        return np.array([code_of.get(level, UNUSED) for level in levels], dtype=np.int64)

    def format_labels(self, labels: Array) -> Array:
        """Format labels as cells of a CSV file: the keys of the classes, or numbers."""
        if self.target.is_numeric:
            return labels.astype(object)
        return np.array(self.class_keys, dtype=object)[labels]

    def read_labels(self, cells: Array) -> Array:
        """Convert cells to labels; `UNUSED` for unknown classes."""
        import pandas as pd

        if self.target.is_numeric:
            return cells.astype(np.float64)
        return np.asarray(pd.Index(self.class_keys).get_indexer(pd.Index(cells)))

    def count(self, labels: Array) -> Counts:
        """Count all clips, the clips of each class, and the positives if there are two classes."""
        count = Counter(self.target.strata(labels).tolist())
        classes = {key: count[code] for code, key in enumerate(self.class_keys)}
        positives = None
        if self.is_binary:
            positives = count[1]
        return Counts(clips=len(labels), positives=positives, classes=classes)

    def missing(self, labels: Array, *, least: int | None = None) -> list[str]:
        """Return the titles of the classes without clips, if fewer than `least` classes have clips.

        By default, every class needs clips. Numbers need two clips.
        """
        if self.target.is_numeric:
            return [f"{self.title}, or only one"] if len(labels) < 2 else []
        present = np.unique(labels)
        missing = [title for code, title in enumerate(self.class_titles) if code not in present]
        enough = len(self.classes) if least is None else least
        return missing if len(self.classes) - len(missing) < enough else []

    @property
    def use(self) -> str:
        """The use of metrics: ``binary``, ``multiclass`` or ``numeric``."""
        if self.target.is_numeric:
            return "numeric"
        return "binary" if self.is_binary else "multiclass"

    def default_score(self) -> str:
        """Return the score that ranks models by default.

        For two classes, it is AUROC, because F1 can be high even for a model that predicts positive
        for all clips.
        """
        return {"numeric": "spearman", "binary": "auroc", "multiclass": "f1_macro"}[self.use]


def two_classes(
    names: Mapping[str, str],
    positives: Sequence[str],
    negatives: Sequence[str],
) -> Task:
    """Return the task of distinguishing positive levels from negative levels.

    >>> two_classes({"EN": "Easy Negative", "S": "Sure"}, ["S"], ["EN"]).title
    'Easy Negative vs Sure'
    """
    if shared := sorted(set(positives) & set(negatives)):
        raise ExperimentError(f"level {shared[0]} is both positive and negative. Use it once")
    negative = _class_of("negative", negatives, names)
    positive = _class_of("positive", positives, names)
    if negative.title == positive.title:  # A+B may be one level or two levels
        raise ExperimentError(f"both classes are called {negative.title}. Rename a level")
    key = " vs ".join([negative.title, positive.title])
    title = " vs ".join([negative.words, positive.words])
    return Task(key, title, (negative, positive))


def level_classes(names: Mapping[str, str], levels: Sequence[str]) -> Task:
    """Return the task of predicting three or more levels, each as a class."""
    if len(set(levels)) < max(3, len(levels)):
        raise ExperimentError(
            "a task needs three or more different classes, or a positive and a negative one "
            f"(got {', '.join(levels)})"
        )
    classes = tuple(_class_of(f"level:{level}", [level], names) for level in levels)
    title = " / ".join(label_class.words for label_class in classes)
    return Task(" / ".join(levels), title, classes)


def number_task(column: str) -> Task:
    """Return the task of predicting the number in a column."""
    label_class = Class(f"level:{NUMBERED}", column, column, (NUMBERED,))
    return Task(column, column, (label_class,), target_key=NUMBER)


def require_own_keys(tasks: Iterable[Task]) -> None:
    """Raise if different tasks have the same key, because ``A+B`` may be one level or two."""
    with_key: dict[str, Task] = {}
    for task in tasks:
        if with_key.setdefault(task.key, task) != task:
            raise ExperimentError(f"two different tasks are called {task.key}. Rename a level")


def _class_of(key: str, levels: Sequence[str], names: Mapping[str, str]) -> Class:
    return Class(key, "+".join(levels), _any_of(levels, names), tuple(levels))


def _any_of(levels: Sequence[str], names: Mapping[str, str]) -> str:
    return " or ".join(names.get(code, code) for code in levels)


def make_task(
    scheme: LabelScheme,
    *,
    positives: Sequence[str] = (),
    negatives: Sequence[str] | str = (),
    levels: Sequence[str] = (),
    concept: str | None = None,
) -> Task:
    """Return the task that these arguments describe.

    The task of a concept is to distinguish clips that show it from its negatives.
    """

    def codes(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(scheme.level(str(name)) for name in as_list(names))

    kinds = {"positives": positives, "levels": levels, "concept": concept}
    several = [name for name, value in kinds.items() if value]
    if len(several) > 1:
        raise ExperimentError(f"{several[0]} and {several[1]} are both set. Use only one of them")
    with errors_as(ExperimentError):
        if concept:
            if negatives and not isinstance(negatives, str):
                raise ExperimentError(
                    f"the negatives of a concept are one of {', '.join(NEGATIVES)} "
                    f"(got {', '.join(negatives)}). To compare levels, leave concept out"
                )
            code = str(negatives or default_negatives(scheme))
            if code not in NEGATIVES:
                raise ExperimentError(unknown_name("negatives", code, NEGATIVES))
            name = scheme.concept(str(concept))
            words = NEGATIVES[code]
            if code == "a":
                words = _any_of([EASY], scheme.name_of)
            elif code == "c":
                words = f"{_any_of(CARRIERS, scheme.name_of)} without"
            classes = (
                Class(f"without:{name}", f"no {name}", f"no {name}"),
                Class(f"concept:{name}", name, name),
            )
            key = f"{name} vs {NEGATIVES[code]}"
            return Task(key, f"{name} vs {words}", classes, name, code)
        if levels:
            return level_classes(scheme.name_of, codes(levels))
        if not (positives and negatives):
            missing = "negatives" if positives else "positives"
            raise ExperimentError(
                f"there are no {missing}. Name the levels of both the positives and the negatives"
            )
        return two_classes(scheme.name_of, codes(positives), codes(negatives))


def levels_of(tasks: Iterable[Task], labels: LabelSet, scheme: LabelScheme) -> set[str]:
    """Return the levels that take part in any of the tasks."""
    levels: set[str] = set()
    for task in tasks:
        if task.concept and not scheme.is_obygaze:
            levels |= set(labels.levels)
        else:
            levels |= task.levels
    return levels


def measure_of(labels: LabelSet) -> str | None:
    """Return the official measure that a label set's JSON file names, or None."""
    measure = labels.about.get("measure")
    official = [key for key, metric in METRICS.items() if metric.official]
    if measure is not None and measure not in official:
        raise ExperimentError(
            f"labels/{labels.name}.json: {unknown_name('measure', str(measure), official)}"
        )
    return measure


def official_measure(labels: LabelSet, scheme: LabelScheme, tasks: Sequence[Task]) -> str | None:
    """Return the label set's official measure, or None if it does not apply to the tasks.

    Average precision applies to the highest level against all others, accuracy to all levels
    if there are three or more.
    """
    measure = measure_of(labels)
    highest = scheme.codes[-1:]

    def fits(task: Task) -> bool:
        if task.concept or task.target.is_numeric or task.levels != {*scheme.codes}:
            return False
        if task.is_binary:
            return measure == TREC and task.classes[1].levels == tuple(highest)
        return measure == ACCURACY

    return measure if all(map(fits, tasks)) else None
