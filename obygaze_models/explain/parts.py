"""The parts of concepts in the log-odds of predictions, with one sign wherever they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from obygaze_models.experiments.explanations import Explained


Array = NDArray[Any]

#: The part of what a hybrid reads past its concepts.
NOT_CONCEPTS = "not explained by concepts"


def name_log_odds(classes: Sequence[str]) -> str:
    """What parts add up to: of two classes always the second's, whichever is predicted."""
    return f"log-odds of {classes[1]}" if len(classes) == 2 else "logit of the predicted class"


@dataclass(frozen=True, eq=False)
class MeanParts:
    """Parts of N clips, as means over the fits that tested each.

    Parameters
    ----------
    concepts
        Their names.
    values, amounts
        What each clip measures, and each concept's part, [N, K]. The parts are NaN for clips
        without a fit, and for those whose fits predict different ones of several classes: they
        are of different sums.
    intercept, residual
        [N], where there is such a part.
    """

    concepts: tuple[str, ...]
    values: Array
    amounts: Array
    intercept: Array | None
    residual: Array | None

    @property
    def order(self) -> Array:
        """The columns by the size of the clip's part, the largest first, [N, K]."""
        return np.argsort(-np.abs(self.amounts), axis=1, kind="stable")

    def of_clip(self, row: int) -> tuple[tuple[str, float], ...]:
        """The concepts' parts, the largest first, then what concepts do not explain."""
        amounts = self.amounts[row]
        if np.isnan(amounts).any():
            return ()
        parts = [(self.concepts[place], float(amounts[place])) for place in self.order[row]]
        if self.residual is not None:
            parts.append((NOT_CONCEPTS, float(self.residual[row])))
        return tuple(parts)


def average_parts(
    explained: Iterable[Explained], classes: Sequence[str], ids: Sequence[str]
) -> MeanParts:
    """The mean parts of a model's fits; those that do not add up are left out.

    Parameters
    ----------
    explained
        The fits' explanations.
    classes
        The names of the classes; of two the second is the positive one.
    ids
        The clips, in the order of the rows.
    """
    entries = [entry for entry in explained if entry.kind == "sum"]
    concepts = tuple(dict.fromkeys(name for entry in entries for name in entry.concepts))
    row_of = {clip: row for row, clip in enumerate(ids)}
    labels: list[set[str]] = [set() for _ in ids]
    fits, shape = np.zeros(len(ids)), (len(ids), len(concepts))
    values, amounts, measured = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    rest: dict[str, Array] = {}
    for entry in entries:
        own = [place for place, clip in enumerate(entry.ids) if clip in row_of]
        rows = np.array([row_of[entry.ids[place]] for place in own], dtype=np.intp)
        columns = np.array([concepts.index(name) for name in entry.concepts], dtype=np.intp)
        cells = np.ix_(rows, columns)
        names = [entry.labels[place] for place in own]
        for row, name in zip(rows.tolist(), names, strict=True):
            labels[row].add(classes[1] if len(classes) == 2 else name)
        other = np.array([len(classes) == 2 and name != classes[1] for name in names])
        sign = np.where(other, -1.0, 1.0)
        fits[rows] += 1
        measured[cells] += 1
        values[cells] += entry.values[own]
        if entry.amounts is not None:
            amounts[cells] += sign[:, None] * entry.amounts[own]
        for key in ("intercept", "residual"):
            if (part := getattr(entry, key)) is not None:
                rest.setdefault(key, np.zeros(len(ids)))[rows] += sign * part[own]
    number = np.where([len(names) == 1 for names in labels], fits, np.nan)
    return MeanParts(
        concepts,
        values / np.maximum(measured, 1),
        amounts / number[:, None],
        *(rest[key] / number if key in rest else None for key in ("intercept", "residual")),
    )
