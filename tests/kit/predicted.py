"""A run's table of predictions by model and test set."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from obygaze_models import Run


class FitOf(NamedTuple):
    """The predictions of one fit on one test set."""

    model: str
    fit: int
    test: str
    ids: list[str]
    labels: np.ndarray[Any, Any]
    probabilities: np.ndarray[Any, Any]

    @property
    def called(self) -> np.ndarray[Any, Any]:
        if self.probabilities.ndim == 2:
            return self.probabilities.argmax(axis=1)
        return (self.probabilities > 0.5).astype(int)


def fits_of(run: Run) -> list[FitOf]:
    """Return the fits in the order of the table."""
    rows: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in run.predictions.to_dict("records"):
        rows.setdefault((row["model"], row["fit"], row["test"]), []).append(row)
    fits = []
    for key, own in rows.items():
        shares = [[v for k, v in row.items() if k.startswith("probability")] for row in own]
        table = np.array(shares)
        labels = np.array([row["label"] for row in own])
        ids = [row["id"] for row in own]
        fits.append(FitOf(*key, ids, labels, table[:, 0] if table.shape[1] == 1 else table))
    return fits


def table_of(fits: list[FitOf]) -> pd.DataFrame:
    """Return a table of predictions of two classes in the format of a run."""
    parts = [
        pd.DataFrame(
            {"model": fit.model, "test": fit.test, "fit": fit.fit, "id": fit.ids}
            | {"label": fit.labels, "probability": fit.probabilities}
        )
        for fit in fits
    ]
    joined = pd.concat(parts, ignore_index=True)
    return joined.astype({"model": "category", "test": "category"})
