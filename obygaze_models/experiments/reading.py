"""Experiments as TOML files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.store.remote import is_url
from obygaze_models.experiments.experiment import ALL, Experiment

__all__ = ["load_experiment"]

_WANTED = {
    "name": "a text",
    "manifest": "a folder",
    "store": "a folder, an archive or a URL",
    "split": "the name of a split",
    "positives": 'a list of levels, such as ["S"]',
    "train_negatives": 'a list of levels, such as ["HN"]',
    "test_negatives": 'a list of lists of levels, such as [["EN"], ["EN", "HN"]]',
    "levels": 'a list of levels, such as ["EN", "HN", "S"]',
    "concepts": f'a list of concepts, such as ["Look"], or "{ALL}"',
    "negatives": 'the set of a concept\'s negatives, "a", "b" or "c"',
    "labels": "the name of a label set",
    "array": "the name of an array",
    "pooling": 'the name of a pooling, such as "max"',
    "protocol": 'the name of a protocol, such as "leak-free"',
    "estimators": 'a list of names, or of tables such as {name = "mlp", max_iter = 50},',
    "seed": "a whole number from 0 up",
    "seeds": "a list of different whole numbers from 0 up",
}
_REQUIRED = ("name", "manifest", "store")


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
            raise ExperimentError(f"{path}: {unknown_name('key', key, _WANTED)}")
    if missing := [key for key in _REQUIRED if key not in table]:
        raise ExperimentError(
            f"{path}: {missing[0]} is missing; add {missing[0]} = ..., {_WANTED[missing[0]]}"
        )
    values = {}
    for key, value in table.items():
        values[key] = _read(key, value, path.parent)
        if values[key] is None:
            raise ExperimentError(f"{path}: {key} is {value!r}, where {_WANTED[key]} is meant")
    try:
        return Experiment(**values)
    except ExperimentError as problem:
        raise ExperimentError(f"{path}: {problem}") from None


def _read(key: str, value: Any, folder: Path) -> Any:
    """A TOML value as the experiment holds it; None if it is not what is wanted."""
    match key, value:
        case "store", str() if is_url(value):
            return value
        case "manifest" | "store", str() if value:
            return folder / value
        case "concepts", "all":
            return (ALL,)
        case "positives" | "train_negatives" | "levels" | "concepts", list() if _are_texts(value):
            return tuple(value)
        case "estimators", list() if value and all(map(_is_estimator, value)):
            return tuple(value)
        case "test_negatives", list() if _are_texts(value):
            return (tuple(value),)
        case "test_negatives", list() if value and all(map(_are_texts, value)):
            return tuple(map(tuple, value))
        case "seed", int() if _is_seed(value):
            return value
        case "seeds", list() if value and all(map(_is_seed, value)):
            return tuple(value) if len(set(value)) == len(value) else None
        case _, str() if value and _WANTED[key].startswith(("a text", "the ")):
            return value
    return None


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) and v for v in value)


def _is_estimator(value: Any) -> bool:
    name = value.get("name") if isinstance(value, dict) else value
    return isinstance(name, str) and bool(name)
