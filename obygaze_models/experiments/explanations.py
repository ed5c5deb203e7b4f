"""``explanations.jsonl``: what a run's models made of the concepts of each test clip.

A line a model and run. Numbers are kept to six digits; a tree's questions are written with the
place of the concept among the line's concepts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.errors import ExperimentError
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.experiments.fit import FitResult

if TYPE_CHECKING:
    from obygaze_models.explain.attributions import Attribution, Step

Array = NDArray[Any]
Kind = Literal["sum", "path", "sensitivity"]
_Place = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, eq=False)
class Explained:
    """What one model of one run made of its test clips' concepts; see `Attribution`.

    Parameters
    ----------
    model, task, fit
        Whose.
    kind
        ``sum``, ``path`` or ``sensitivity``.
    concepts
        Their names.
    ids, labels
        The clips, and for each the class that its amounts speak for.
    values, amounts
        What each clip measures along each concept, and each concept's part in the logit,
        [N, K]; a tree has no amounts.
    intercept, residual
        [N], where there is such a thing.
    steps
        A tree's questions to each clip.
    """

    model: str
    task: str
    fit: int
    kind: Kind
    concepts: tuple[str, ...]
    ids: list[str]
    labels: list[str]
    values: Array
    amounts: Array | None = None
    intercept: Array | None = None
    residual: Array | None = None
    steps: list[list[Step]] | None = None


def explain_models(data: ClipDataset, results: Sequence[FitResult]) -> str:
    """The lines of all models that have concepts, and of networks beside one that has.

    A network is read by the concepts of the first bottleneck of the same task and run.
    """
    if not any(hasattr(result.fit and result.fit.model, "bank_") for result in results):
        return ""  # without loading what explains
    from obygaze_models.explain.attributions import attribute, bank_of

    banks: dict[tuple[str, int], Any] = {}
    for result in results:
        planned, fit = result.planned, result.fit
        bank = None if fit is None or fit.reads != "features" else bank_of(fit.model)
        if bank is not None:
            banks.setdefault((planned.task.name, planned.fold.index), bank)
    lines = []
    for result in progress(results, "explain", unit="model"):
        planned, fit = result.planned, result.fit
        about = {"model": planned.model, "task": planned.task.name, "fit": planned.fold.index}
        bank = banks.get((planned.task.name, planned.fold.index))
        if bank is None or fit is None or fit.reads != "features":
            continue
        if hasattr(fit.model, "bank_") and bank_of(fit.model) is None:
            continue  # directions that mean nothing explain nothing
        rows = planned.fold.test_rows
        attribution = attribute(fit.model, data.X[rows], classes=planned.task.classes, bank=bank)
        if attribution is not None:
            lines.append(_line(about, [data.ids[row] for row in rows.tolist()], attribution))
    return "".join(lines)


class _Line(msgspec.Struct):
    """A line of the file."""

    model: str
    task: str
    fit: int
    kind: Kind
    concepts: tuple[str, ...]
    ids: list[str]
    labels: list[str]
    values: list[list[float]]
    amounts: list[list[float]] | None = None
    intercept: list[float] | None = None
    residual: list[float] | None = None
    steps: list[list[tuple[_Place, float, bool]]] | None = None


def parse_explanations(text: str) -> list[Explained]:
    """What `explain_models` made; numbers as they are written."""
    return [_explained(msgspec.json.decode(line, type=_Line)) for line in text.splitlines()]


def read_explanations(path: Path) -> list[Explained]:
    """All lines of a file that `explain_models` made."""
    try:
        return parse_explanations(path.read_text(encoding="utf-8"))
    except (ValueError, IndexError) as problem:
        raise ExperimentError(f"{path} is damaged ({problem}); run the experiment again") from None


def _line(about: dict[str, Any], ids: list[str], attribution: Attribution) -> str:
    place = {name: at for at, name in enumerate(attribution.concepts)}
    record = {
        **about,
        "kind": attribution.kind,
        "concepts": list(attribution.concepts),
        "ids": ids,
        "labels": attribution.labels,
        "values": _short(attribution.values),
        "amounts": _short(attribution.amounts),
        "intercept": _short(attribution.intercept),
        "residual": _short(attribution.residual),
        "steps": None
        if attribution.steps is None
        else [
            [[place[step.concept], _digits(step.threshold), step.above] for step in steps]
            for steps in attribution.steps
        ],
    }
    return json.dumps(record, separators=(",", ":")) + "\n"


def _explained(line: _Line) -> Explained:
    names, clips = line.concepts, len(line.ids)
    values = np.array(line.values, dtype=np.float64).reshape(clips, len(names))
    steps = None
    if line.steps is not None:
        from obygaze_models.explain.attributions import Step

        steps = [
            [
                Step(names[place], float(values[row, place]), threshold, above)
                for place, threshold, above in of
            ]
            for row, of in enumerate(line.steps)
        ]
    arrays = {
        key: None if (part := getattr(line, key)) is None else np.array(part, dtype=np.float64)
        for key in ("amounts", "intercept", "residual")
    }
    for key, array in arrays.items():
        wanted = values.shape if key == "amounts" else values.shape[:1]
        if array is not None and array.shape != wanted:
            raise ValueError(f"{key} of shape {array.shape} where {wanted} is expected")
    if len(line.labels) != clips or (steps is not None and len(steps) != clips):
        raise ValueError("labels or steps of another number of clips")
    return Explained(
        line.model, line.task, line.fit, line.kind, names, line.ids, line.labels, values,
        steps=steps, **arrays,
    )  # fmt: skip


def _short(array: Array | None) -> Any:
    if array is None or array.ndim == 2:
        return None if array is None else [_short(row) for row in array]
    return [_digits(value) for value in array.tolist()]


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
