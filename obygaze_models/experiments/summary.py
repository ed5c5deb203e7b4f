"""A run's scores as the table that the terminal and the page show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["METRICS", "Cell", "Row", "summary_rows"]

METRICS = {
    "f1": "F1 positive",
    "f1_weighted": "F1 weighted",
    "auroc": "AUROC",
    "average_precision": "AP",
}


@dataclass(frozen=True)
class Cell:
    """A mean over runs and its standard deviation; a guess has none, being a closed form."""

    mean: float | None
    std: float | None = None

    def __str__(self) -> str:
        if self.mean is None:
            return "undefined"
        return f"{self.mean:.2f}" + ("" if self.std is None else f" ({self.std:.2f})")


@dataclass(frozen=True)
class Row:
    """One estimator, or one way of guessing: its cells by test set and metric."""

    name: str
    is_guess: bool
    cells: dict[str, dict[str, Cell]]


def summary_rows(record: Mapping[str, Any]) -> list[Row]:
    """The estimators in the experiment's order, then the guesses."""
    cells: dict[str, dict[str, dict[str, Cell]]] = {}
    for of in record["scores"]:
        cells.setdefault(of["model"], {})[of["test"]] = {
            metric: Cell(of["mean"][metric], of["std"][metric]) for metric in METRICS
        }
    guesses: dict[str, dict[str, dict[str, Cell]]] = {}
    for test, of in record["tests"].items():
        for name, scores in of["baselines"].items():
            guesses.setdefault(name, {})[test] = {m: Cell(scores[m]) for m in METRICS}
    return [
        *(Row(name, False, of) for name, of in cells.items()),
        *(Row(name, True, of) for name, of in guesses.items()),
    ]
