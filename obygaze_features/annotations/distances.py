"""How far apart two levels are, which gamma weighs differences by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from obygaze_features.common.package import reference_json
from obygaze_features.manifests.labels import LabelScheme

__all__ = ["Distances", "distances_of"]


@dataclass(frozen=True, eq=False)
class Distances:
    """A distance from 0 to 1 for each two levels; `name` says whose: ``paper`` or ``even``."""

    name: str
    codes: tuple[str, ...]
    matrix: np.ndarray

    @cached_property
    def rank(self) -> dict[str, int]:
        """Level -> row of the matrix."""
        return {code: place for place, code in enumerate(self.codes)}

    def without(self, code: str) -> Distances:
        """The distances among the other levels."""
        keep = [place for place, one in enumerate(self.codes) if one != code]
        return Distances(
            self.name, tuple(self.codes[place] for place in keep), self.matrix[np.ix_(keep, keep)]
        )


def distances_of(scheme: LabelScheme) -> Distances:
    """The paper's distances for its four levels; for the levels of others, even steps.

    Examples
    --------
    >>> from obygaze_features.manifests import Level, obygaze_scheme
    >>> distances_of(obygaze_scheme()).matrix[0].tolist()
    [0.0, 0.3, 0.7, 1.0]
    >>> mine = LabelScheme("mine", (Level("calm", "Calm"), Level("mid", "Mid"), Level("x", "X")))
    >>> distances_of(mine).matrix[0].tolist()
    [0.0, 0.5, 1.0]
    """
    said = reference_json("scheme-obygaze.json")["distances"]
    if set(scheme.codes) == set(said["levels"]):
        order = [said["levels"].index(code) for code in scheme.codes]
        return Distances("paper", scheme.codes, np.array(said["matrix"])[np.ix_(order, order)])
    steps = np.arange(len(scheme.codes))
    apart = np.abs(steps[:, None] - steps) / max(1, len(steps) - 1)
    return Distances("even", scheme.codes, apart)
