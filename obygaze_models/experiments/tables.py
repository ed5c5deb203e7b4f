"""A run's tables as CSV: frames that are written the same on every machine, and read back."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from obygaze_features.common.plugins import one_line
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.facts import Facts
from obygaze_models.experiments.record import MAKE

FITS = {
    "model": "str", "task": "str", "fit": "int64", "name": "str", "seed": "int64",
    "trained": "int64", "validated": "int64", "drawn_from": "int64",
    "train_classes": "str", "validation_classes": "str",
    "estimator": "str", "reads": "str", "folder": "str", "not_saved": "str",
    "cut": "str", "facts": "str",
}  # fmt: skip
"""The columns of ``fits.csv``. pandas may misread the last digit of a cut."""
_JSON = {"train_classes": dict[str, int], "validation_classes": dict[str, int], "facts": Facts}
"""The columns with an object in each cell."""


def format_frame(frame: pd.DataFrame) -> str:
    """Return a frame as CSV text, with missing values as empty cells."""
    texts = frame.select_dtypes(exclude=["number", "boolean"])
    # Without quotes, a lone carriage return would be read as a line end.
    returns = any("\r" in str(cell) for name in texts for cell in texts[name].unique())
    return frame.to_csv(
        index=False,
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL,
    )


def read_frame(
    path: Path, columns: Mapping[str, str], check: Callable[[pd.DataFrame], None]
) -> pd.DataFrame:
    """Read columns of these types; raise `ExperimentError` if one is wrong, or `check` raises."""
    texts = [name for name, kind in columns.items() if kind in ("category", "str")]
    try:
        frame = pd.read_csv(
            path,
            usecols=[*columns],
            # Categories are texts first, since pandas would take digits for numbers.
            dtype=dict(columns) | dict.fromkeys(texts, "str"),
            keep_default_na=False,
            na_values={name: [""] for name in columns if name not in texts},
        )[[*columns]].astype(dict(columns))
        if frame[texts].isna().any(axis=None):
            raise ValueError("a row is too short")
        check(frame)
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as problem:
        raise ExperimentError(
            f"{path} is damaged ({one_line(problem)}). Run it again with: {MAKE}"
        ) from None
    return frame


def format_fits(fits: Sequence[Mapping[str, Any]]) -> str:
    """Return the content of ``fits.csv``."""
    frame = pd.DataFrame(fits, columns=[*FITS])
    return format_frame(frame.assign(**{name: frame[name].map(json.dumps) for name in _JSON}))


def read_fits(path: Path) -> pd.DataFrame:
    """Read ``fits.csv``, whose folders must be within the file's folder."""

    def check(fits: pd.DataFrame) -> None:
        root = path.parent.resolve()
        for folder in fits["folder"]:
            if not (root / folder).resolve().is_relative_to(root):
                raise ValueError(f"{folder} is not in the run")
        fits["cut"] = fits["cut"].map(lambda cell: float(cell or "nan")).astype(np.float64)
        for name, kind in _JSON.items():
            fits[name] = fits[name].map(msgspec.json.decode).astype(object)
            msgspec.convert(fits[name].tolist(), list[kind])  # type: ignore[valid-type]

    return read_frame(path, FITS, check)
