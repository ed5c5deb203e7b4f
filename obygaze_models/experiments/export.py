"""Held-out predictions of a run as a table, and predictions and moments as ELAN documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from obygaze_features.common.elan import Annotation, Document, Tier, milliseconds, to_eaf
from obygaze_features.common.tables import format_spreadsheet
from obygaze_features.common.text import file_names, format_signed, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import media_stem
from obygaze_features.manifests import Items
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.scores import average_over_fits, split_by, target_of
from obygaze_models.experiments.tables import Run
from obygaze_models.explain.parts import mean_parts
from obygaze_models.saved.predict import Predictions

SHARES = ("probability", "value")
"""The prefixes of columns with predicted numbers."""


def held_out(
    run: Run, *, model: str | None = None, ids: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return the annotations and the mean prediction of each test clip, by model and test.

    Each clip is predicted by fits that were not trained on it. The column ``parts`` has the
    concepts' contributions to the log-odds, for models whose contributions sum to them.
    """
    if model is not None and model not in run.models:
        raise ExperimentError(unknown_name("model", model, run.models))
    for clip in ids or ():
        if clip not in run.group_of:
            raise ExperimentError(unknown_name("clip", clip, run.group_of))
    tables = []
    for (name, test), fits in split_by(run.predictions, "model", "test").items():
        if model not in (None, name):
            continue
        task, mean = run.task(test), average_over_fits(fits)
        if target_of(fits).is_numeric:
            mean["prediction"] = mean["called"]
        else:
            mean["prediction"] = np.array(task.class_titles, dtype=object)[mean["called"]]
            mean = mean.drop(columns="label")  # the level says it
        reasons = run.reasons
        is_own = (reasons["model"] == name) & (reasons["task"] == run.trained_on(test))
        parts = mean_parts(reasons[is_own], mean["id"].tolist())
        mean["parts"] = [
            "|".join(f"{concept} {format_signed(amount)}" for concept, amount in own)
            for own in parts
        ]
        mean = mean.drop(columns=["called", "low", "high"])
        tables.append(mean.assign(model=name, test=test))
    clips = run.clips.drop(columns=["fold", "used", "leaked", "blank"])
    if ids is not None:
        clips = clips[clips["id"].isin(ids)]
    rows = clips.merge(pd.concat(tables), on="id")
    return rows.sort_values(["model", "test", "title", "film", "start", "id"], ignore_index=True)


def with_places(predictions: Predictions, items: Items) -> pd.DataFrame:
    """Return a model's predictions with the place of each clip in its film."""
    about, table = predictions.about, predictions.table
    rows = [items.row(clip) for clip in table["id"]]
    return table.assign(
        film=[items.films[row] for row in rows],
        media=[items.media[row] for row in rows],
        start=items.starts[rows],
        end=items.ends[rows],
        model=about.estimator,
        test=about.learned.key,
    )


def format_predictions(table: pd.DataFrame) -> str:
    """Format predictions as CSV, in which no cell is a formula."""
    columns: dict[str, list[str]] = {}
    for name in table.columns.tolist():
        numbers = table[name].dtype.kind == "f"
        columns[name] = [_cell(value, numbers) for value in table[name].tolist()]
    return format_spreadsheet(columns)


def _cell(value: Any, is_number: bool) -> str:
    if is_number:
        return "" if np.isnan(value) else f"{value:.6f}"
    return str(value)


def to_elan(table: pd.DataFrame, warnings: Iterable[RunWarning] = ()) -> dict[str, str]:
    """Return an ELAN document per media file (text by name), with a tier per model and test."""
    timed = table[np.isfinite(table["start"]) & np.isfinite(table["end"])]
    if timed.empty:
        raise ExperimentError(
            "none of the predictions has a start and an end in a film, which ELAN needs. Write a "
            "table instead: -o predictions.csv"
        )
    shares = _shares(table)
    files = {}
    for place, own in split_by(timed, "film", "media").items():
        tiers = []
        for (model, test), part in split_by(own, "model", "test").items():
            notes = []
            rows: list[Any] = part.to_dict("records")
            for row in rows:
                details = {"clip": row["id"]} | {key: f"{row[key]:.3f}" for key in shares}
                if row.get("seen", "no") != "no":
                    details["seen in training"] = row["seen"]
                span = milliseconds(row["start"], row["end"])
                notes.append(Annotation(*span, str(row["prediction"]), details))
            tiers.append(Tier(f"{model}: {test}", "prediction", notes))
        files[place] = tiers
    return _documents(files, warnings)


def moment_files(
    moments: pd.DataFrame, title: str, warnings: Iterable[RunWarning] = ()
) -> dict[str, str]:
    """Return an ELAN document of the moments of each film (text by name)."""
    placed = moments[moments["time_in"] == "film"]
    if placed.empty:
        raise ExperimentError("no moment has a position in a film, or there are no moments")
    files: dict[tuple[str, str], list[Tier]] = {}
    for film, rows in placed.groupby("film", sort=False):
        notes = []
        for moment in rows.to_dict("records"):
            clips = ", ".join(moment["clips"].split(SEPARATOR))
            details = {"mean probability": f"{moment['score']:.3f}", "clips": clips}
            if moment["seen_in_training"] != "no":
                details["seen in training"] = moment["seen_in_training"]
            span = milliseconds(moment["start"], moment["end"])
            notes.append(Annotation(*span, "moment", details))
        files[str(film), rows["media"].iloc[0]] = [Tier(title, "moment", notes)]
    return _documents(files, warnings)


def _documents(
    files: dict[tuple[str, str], list[Tier]], warnings: Iterable[RunWarning]
) -> dict[str, str]:
    """Return an ELAN document for each film and media file: its text by its name."""
    properties = {f"warning {number}": str(text) for number, text in enumerate(warnings, start=1)}
    stems = [media_stem(media) or film or "no-film" for film, media in files]
    documents = {}
    for name, ((_, media), tiers) in zip(file_names(stems, ".eaf"), files.items(), strict=True):
        documents[name] = to_eaf(Document(tiers, media, properties))
    return documents


def first_rows(table: pd.DataFrame, limit: int = 20) -> list[dict[str, Any]]:
    """Return the first predictions, with the columns to print."""
    names = ["id", "model", "test", "prediction", *_shares(table), "seen"]
    known = [name for name in names if name in table]
    rows: list[Any] = table[known].head(limit).to_dict("records")
    return rows


def _shares(table: pd.DataFrame) -> list[str]:
    """Return the names of the columns with probabilities or numbers."""
    return [name for name in table.columns.tolist() if name.startswith(SHARES)]
