"""What is known of each clip, row by row: all that learners and tasks look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

__all__ = ["Known"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Known:
    """Clips in columns.

    Parameters
    ----------
    ids
        Clip ids.
    levels
        The level code of each.
    concepts
        Booleans [N, K]: which concepts were annotated.
    concept_names
        The names of the K concepts.
    films
        The film of each; empty where the manifest names none.
    folds
        The fold of each in the column that the protocol trains by; -1 where it has none.
    features
        float32 [N, D].
    """

    ids: list[str]
    levels: list[str]
    concepts: Array
    concept_names: tuple[str, ...]
    films: list[str]
    folds: Array
    features: Array

    def __len__(self) -> int:
        return len(self.ids)
