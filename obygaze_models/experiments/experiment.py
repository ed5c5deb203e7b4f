"""An experiment as data: what is learnt, from which features, and how it is judged."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.registry import ESTIMATORS
from obygaze_models.experiments.task import LevelTask

__all__ = ["Experiment", "load_experiment"]


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run's scores.

    Parameters
    ----------
    name
        What the experiment is called in tables and pages.
    manifest, store
        Folders of the labelled items and of their features.
    array
        The store's array, one vector a clip.
    split
        The manifest's fold column; its last fold is the test fold.
    labels
        The manifest's label set; None for its default one.
    positives, train_negatives
        The levels that are told apart in training and validation.
    test_negatives
        The negatives of each test set, against the same positives. Empty: as in training.
    estimators
        Names of the estimators to train.
    seed
        Fixes the negatives drawn and the estimators' own chance.
    """

    name: str
    manifest: Path
    store: Path
    split: str
    positives: tuple[str, ...]
    train_negatives: tuple[str, ...]
    test_negatives: tuple[tuple[str, ...], ...] = ()
    labels: str | None = None
    array: str = "native"
    estimators: tuple[str, ...] = ("mlp",)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.estimators:
            if name not in ESTIMATORS:
                raise ExperimentError(f"{_unknown('estimator', name, ESTIMATORS)} in {self.name!r}")
        tests = self.test_tasks
        if len({task.name for task in tests}) < len(tests):
            raise ExperimentError(f"{self.name!r} has the same test set twice in test_negatives")

    @property
    def train_task(self) -> LevelTask:
        """The levels told apart in training and validation."""
        return LevelTask(self.positives, self.train_negatives)

    @property
    def test_tasks(self) -> list[LevelTask]:
        """The levels told apart in each test set."""
        negatives = self.test_negatives or (self.train_negatives,)
        return [LevelTask(self.positives, levels) for levels in negatives]


_WANTED = {
    "name": "a text",
    "manifest": "a folder",
    "store": "a folder",
    "split": "the name of a split",
    "positives": 'a list of levels, such as ["S"]',
    "train_negatives": 'a list of levels, such as ["HN"]',
    "test_negatives": 'a list of lists of levels, such as [["EN"], ["EN", "HN"]]',
    "labels": "the name of a label set",
    "array": "the name of an array",
    "estimators": 'a list of names, such as ["mlp"]',
    "seed": "a whole number from 0 up",
}


def load_experiment(path: Path) -> Experiment:
    """Read an experiment from a TOML file; its paths are relative to the file's folder."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ExperimentError(f"{path} cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ExperimentError(f"{path} is not valid TOML: {problem}") from None
    for key in table:
        if key not in _WANTED:
            raise ExperimentError(f"{path}: {_unknown('key', key, _WANTED)}")
    required = [field.name for field in fields(Experiment)[:6]]
    if missing := [key for key in required if key not in table]:
        raise ExperimentError(
            f"{path}: {missing[0]} is missing; add {missing[0]} = {_WANTED[missing[0]]}"
        )
    values = {}
    for key, value in table.items():
        values[key] = _read(key, value, path.parent)
        if values[key] is None:
            raise ExperimentError(f"{path}: {key} is {value!r}, where {_WANTED[key]} is meant")
    return Experiment(**values)


def _read(key: str, value: Any, folder: Path) -> Any:
    """A TOML value as the experiment holds it; None if it is not what is wanted."""
    match key, value:
        case "manifest" | "store", str() if value:
            return folder / value
        case "name" | "split" | "labels" | "array", str() if value:
            return value
        case "positives" | "train_negatives" | "estimators", list() if _are_texts(value):
            return tuple(value)
        case "test_negatives", list() if _are_texts(value):
            return (tuple(value),)
        case "test_negatives", list() if value and all(map(_are_texts, value)):
            return tuple(map(tuple, value))
        case "seed", int() if value >= 0 and not isinstance(value, bool):
            return value
    return None


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) and v for v in value)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"unknown {what} {name!r}; " + (
        f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
    )
