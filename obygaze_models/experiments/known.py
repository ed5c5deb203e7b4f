"""What is known of each clip of an experiment, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

__all__ = ["Known"]


@dataclass(frozen=True, eq=False)
class Known:
    """Labels and features of N clips, joined by id."""

    ids: list[str]
    levels: list[str]
    concepts: NDArray[Any]
    concept_names: tuple[str, ...]
    films: list[str]
    folds: NDArray[Any]
    features: NDArray[Any]
