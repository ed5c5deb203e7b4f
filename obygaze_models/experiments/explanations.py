"""``explanations.jsonl``: what a run's models made of the concepts of each test clip.

A line a model and run. Numbers are kept to six digits; a tree's questions are written with the
place of the concept among the line's concepts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.errors import ExperimentError
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.estimators.fusion import StoreFusion
from obygaze_models.experiments.fit import FitResult
from obygaze_models.explain.attributions import Attribution, Kind, Step, attribute, bank_of

Array = NDArray[Any]
_NUMBERS = ("values", "amounts", "intercept")


@dataclass(frozen=True, eq=False)
class Explained:
    """What one model of one run made of its test clips' concepts; see `Attribution`.

    Parameters
    ----------
    model, task, fit
        Whose.
    kind
        ``sum``, ``path``, ``sensitivity`` or ``stores``.
    concepts
        Their names.
    ids, labels
        The clips, and for each the class that its amounts speak for: none where its features are
        zeros only, as nothing is said or seen in it.
    values, amounts
        What each clip measures along each concept, and each concept's part in the logit,
        [N, K]; a tree has no amounts.
    intercept
        [N], where there is such a thing.
    steps
        A tree's questions to each clip, as `Step`.
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
    steps: list[list[Any]] | None = None


def explain_models(data: ClipDataset, results: Sequence[FitResult]) -> str:
    """The lines of all models that have concepts, and of networks beside one that has.

    A network is read by the concepts of the first bottleneck of the same task and run.
    """
    lines, banks = [], dict[tuple[str, int], Any]()
    read = [(r.planned, r.fit) for r in results if r.fit is not None and r.fit.reads == "features"]
    for planned, fit in read:
        if (bank := bank_of(fit.estimator)) is not None:
            banks.setdefault((planned.task.key, planned.fold.index), bank)
    for planned, fit in progress(read, "explain", unit="model"):
        model, task, fold = fit.estimator, planned.task, planned.fold
        bank = banks.get((task.key, fold.index))
        fused = isinstance(model, StoreFusion)
        late, other = fused and model.stacker_ is not None, fused or hasattr(model, "bank_")
        if not late and (bank is None or (other and bank_of(model) is None)):
            continue  # directions that mean nothing, or of another scale, explain nothing
        X = data.X[fold.test_rows]
        attribution = attribute(model, X, classes=task.class_titles, bank=bank, cut=fit.cut)
        if attribution is not None:
            labels = np.where(np.nan_to_num(X).any(axis=1), attribution.labels, "").tolist()
            ids = [data.ids[row] for row in fold.test_rows.tolist()]
            about = {"model": planned.name, "task": task.key, "fit": fold.index}
            lines.append(_line(about, ids, replace(attribution, labels=labels)))
    return "".join(lines)


def parse_explanations(text: str) -> list[Explained]:
    """What `explain_models` made; numbers as they are written."""
    return [_explained(line) for line in text.splitlines()]


def read_explanations(path: Path) -> list[Explained]:
    """All lines of a file that `explain_models` made."""
    try:
        return parse_explanations(path.read_text(encoding="utf-8"))
    except (ValueError, IndexError) as problem:
        raise ExperimentError(f"{path} is damaged ({problem}); run the experiment again") from None


def _line(about: dict[str, Any], ids: list[str], attribution: Attribution) -> str:
    place = {name: at for at, name in enumerate(attribution.concepts)}
    numbers = {key: _short(getattr(attribution, key)) for key in _NUMBERS}
    steps: Any = attribution.steps and [
        [[place[step.concept], _digits(step.threshold), step.above] for step in path]
        for path in attribution.steps
    ]
    kind, concepts, labels = attribution.kind, attribution.concepts, attribution.labels
    record = about | {"kind": kind, "concepts": concepts, "ids": ids, "labels": labels}
    record |= numbers | {"steps": steps}
    return json.dumps(record, separators=(",", ":")) + "\n"


def _explained(line: str) -> Explained:
    entry = msgspec.json.decode(line, type=Explained, dec_hook=_as_array)
    size, steps = (len(entry.ids), len(entry.concepts)), entry.steps
    parts = {key: getattr(entry, key) for key in _NUMBERS if getattr(entry, key) is not None}
    parts["values"] = parts["values"].reshape(size)
    sizes = {len(entry.labels), len(entry.ids if steps is None else steps)}
    if sizes != {size[0]} or any(part.shape != size[: part.ndim] for part in parts.values()):
        raise ValueError("a list of another length than there are clips or concepts")
    answered: list[Any] | None = steps and [
        [
            Step(entry.concepts[place], float(parts["values"][row, place]), threshold, above)
            for place, threshold, above in msgspec.convert(path, list[tuple[int, float, bool]])
        ]
        for row, path in enumerate(steps)
    ]
    return replace(entry, **parts, steps=answered)


def _as_array(kind: type, value: Any) -> Array:
    return np.array(value, dtype=np.float64)


def _short(array: Array | None) -> Any:
    if array is None:
        return None
    return np.array([_digits(value) for value in array.flat]).reshape(array.shape).tolist()


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
