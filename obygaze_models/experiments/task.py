"""A task: which levels are told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError

__all__ = ["UNUSED", "LevelTask"]

UNUSED = -1


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
        return f"{'+'.join(self.negatives)} vs {'+'.join(self.positives)}"

    @property
    def levels(self) -> set[str]:
        """All levels that take part."""
        return {*self.positives, *self.negatives}

    def labels(self, levels: Sequence[str]) -> NDArray[Any]:
        """1 where a clip's level is positive, 0 where it is negative, else `UNUSED`."""
        value_of = dict.fromkeys(self.positives, 1) | dict.fromkeys(self.negatives, 0)
        return np.array([value_of.get(level, UNUSED) for level in levels], dtype=np.int64)
