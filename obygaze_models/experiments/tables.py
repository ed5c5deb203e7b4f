"""Read and write a run's tables as CSV files that are the same on every machine.

``reasons.csv`` has a row for each fit, clip and concept: the clip's score on the concept
(``value``), and the concept's contribution (``part``) to the logit of a ``class`` (a key). The
class is empty if the clip's features are all zero, as in a clip without speech. The row of an
intercept has no value. Trees have no parts. They have a row for each question on a clip's path: the
number of the ``step``, and whether the value was ``above`` the ``threshold``. Numbers have six
significant digits.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from obygaze_features.common.plugins import one_line
from obygaze_features.common.progress import progress
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.outputs import Facts
from obygaze_models.experiments.record import MAKE
from obygaze_models.explain.parts import INTERCEPT, questions, values_of

if TYPE_CHECKING:
    from obygaze_models.data.dataset import ClipDataset
    from obygaze_models.experiments.fit import FitResult
    from obygaze_models.explain.attributions import Attribution

FITS = {
    "model": "str", "task": "str", "fit": "int64", "name": "str", "seed": "int64",
    "trained": "int64", "validated": "int64", "drawn_from": "int64",
    "train_classes": "str", "validation_classes": "str",
    "estimator": "str", "reads": "str", "folder": "str", "not_saved": "str",
    "cut": "str", "facts": "str",
}  # fmt: skip
"""The columns of ``fits.csv``. ``cut`` is read as text, because pandas may misread a last digit."""
_JSON = {"train_classes": dict[str, int], "validation_classes": dict[str, int], "facts": Facts}
"""The columns whose cells are JSON objects."""


def format_frame(frame: pd.DataFrame) -> str:
    """Format a frame as CSV, with missing values as empty cells."""
    texts = frame.select_dtypes(exclude=["number", "boolean"])
    # An unquoted carriage return would be read as the end of a line.
    returns = any("\r" in str(cell) for name in texts for cell in texts[name].unique())
    return frame.to_csv(
        index=False,
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL,
    )


def read_frame(
    path: Path, columns: Mapping[str, str], check: Callable[[pd.DataFrame], None]
) -> pd.DataFrame:
    """Read the columns of a CSV file by name and type.

    Raise `ExperimentError` if a value has the wrong type, or if `check` raises an error.
    """
    texts = [name for name, kind in columns.items() if kind in ("category", "str")]
    try:
        frame = pd.read_csv(
            path,
            usecols=[*columns],
            # Categories are read as text first, because pandas would convert digits to numbers.
            dtype=dict(columns) | dict.fromkeys(texts, "str"),
            keep_default_na=False,
            na_values={name: [""] for name in columns if name not in texts},
        )[[*columns]].astype(dict(columns))
        if frame[texts].isna().any(axis=None):
            raise ValueError("a row is too short")
        check(frame)
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as problem:
        raise ExperimentError(
            f"{path} is damaged ({one_line(problem)}). Run the experiment again: {MAKE}"
        ) from None
    return frame


def format_fits(fits: Sequence[Mapping[str, Any]]) -> str:
    """Format fits as ``fits.csv``."""
    frame = pd.DataFrame(fits, columns=[*FITS])
    return format_frame(frame.assign(**{name: frame[name].map(json.dumps) for name in _JSON}))


def read_fits(path: Path) -> pd.DataFrame:
    """Read ``fits.csv``. All model folders must be in the folder of this file."""

    def check(fits: pd.DataFrame) -> None:
        root = path.parent.resolve()
        for folder in fits["folder"]:
            if not (root / folder).resolve().is_relative_to(root):
                raise ValueError(f"{folder} is outside the run folder")
        fits["cut"] = fits["cut"].map(lambda cell: float(cell or "nan")).astype(np.float64)
        for name, kind in _JSON.items():
            fits[name] = fits[name].map(msgspec.json.decode).astype(object)
            msgspec.convert(fits[name].tolist(), list[kind])  # type: ignore[valid-type]

    return read_frame(path, FITS, check)


FIT = ["model", "task", "fit", "kind"]
COLUMNS = {
    "model": "category", "task": "category", "fit": "int64", "kind": "category",
    "id": "category", "class": "category", "concept": "category",
    "value": "float64", "part": "float64",
    "step": "Int64", "above": "boolean", "threshold": "float64",
}  # fmt: skip
"""The columns of ``reasons.csv`` and their types."""
NUMBERS = ["value", "part", "threshold"]
KINDS = {"sum", "path", "sensitivity"}
"""The kinds of reasons. Only earlier versions wrote ``sensitivity``: a network's derivatives."""


def explain_models(data: ClipDataset, results: Sequence[FitResult]) -> pd.DataFrame:
    """Return a table of the reasons that models with concepts give."""
    from obygaze_models.explain.attributions import attribute, bank_of

    tables = list[pd.DataFrame]()
    read = [(r.planned, r.fit) for r in results if r.fit is not None and r.fit.reads == "features"]
    for planned, fit in progress(read, "explain", unit="model"):
        model, task, fold = fit.estimator, planned.task, planned.fold
        if bank_of(model) is None:
            continue  # random directions explain nothing
        X = data.X[fold.test_rows]
        attribution = attribute(model, X, classes=task.class_keys, cut=fit.cut)
        if attribution is not None:
            ids = [data.ids[row] for row in fold.test_rows.tolist()]
            labels = np.where(np.nan_to_num(X).any(axis=1), attribution.labels, "")
            table = tabulate_reasons(ids, labels.tolist(), attribution)
            tables.append(table.assign(model=planned.name, task=task.key, fit=fold.index))
    return join_reasons(tables)


def join_reasons(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the reasons of all fits, in the form that `read_reasons` returns."""
    filled = [table for table in tables if len(table)]
    joined = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=[*COLUMNS])
    return joined[[*COLUMNS]].astype(COLUMNS)


def tabulate_reasons(ids: list[str], labels: list[str], attribution: Attribution) -> pd.DataFrame:
    """Return a fit's rows of ``reasons.csv``, without ``model``, ``task`` and ``fit``.

    `labels` has the class key of each clip, or "".
    """
    rows, concepts, values = np.arange(len(ids)), attribution.concepts, attribution.values
    measured = {"row": np.repeat(rows, len(concepts)), "concept": np.tile(concepts, len(ids))}
    blocks = [pd.DataFrame({**measured, "value": values.ravel()})]
    if attribution.amounts is not None:
        blocks[0]["part"] = attribution.amounts.ravel()
    if attribution.intercept is not None:
        intercept = {"row": rows, "concept": INTERCEPT, "part": attribution.intercept}
        blocks.append(pd.DataFrame(intercept))
    if attribution.steps is not None:
        answers = [
            (row, step.concept, step.value, number, step.above, step.threshold)
            for row, path in enumerate(attribution.steps)
            for number, step in enumerate(path)
        ]
        names = ["row", "concept", "value", "step", "above", "threshold"]
        blocks.append(pd.DataFrame(answers, columns=names))
    table = pd.concat(blocks).sort_values("row", kind="stable", ignore_index=True)
    table = table.reindex(columns=["row", *COLUMNS])
    table[NUMBERS] = table[NUMBERS].apply(_round)
    row = table.pop("row").to_numpy(dtype=np.intp)
    table["id"] = np.array(ids, dtype=object)[row]
    table["class"] = np.array(labels, dtype=object)[row]
    return table.assign(kind=attribution.kind)


def _round(numbers: pd.Series[Any]) -> NDArray[Any]:
    """Round numbers to six significant digits."""
    return np.char.mod("%.6g", numbers.to_numpy(dtype=np.float64)).astype(np.float64)


def read_reasons(path: Path) -> pd.DataFrame:
    """Read ``reasons.csv``; raise `ExperimentError` if it is incomplete or has invalid values."""
    return read_frame(path, COLUMNS, _check)


def _check(reasons: pd.DataFrame) -> None:
    answers, values = questions(reasons), values_of(reasons)
    if not KINDS.issuperset(reasons["kind"].cat.categories):
        raise ValueError("unknown kind of reasons")
    if answers[["value", "above", "threshold"]].isna().any(axis=None):
        raise ValueError("a question has no value or no answer")
    if np.isinf(reasons[NUMBERS].to_numpy()).any():
        raise ValueError("a number is infinite")
    once = values.drop_duplicates([*FIT, "id", "concept"]).groupby(FIT, observed=True).size()
    of_fit = pd.concat([values, answers]).groupby(FIT, observed=True)[["id", "concept"]].nunique()
    if once.sum() != len(values) or not once.equals(of_fit.prod(axis=1)):
        raise ValueError("a concept is missing or duplicated for a clip of a fit")
