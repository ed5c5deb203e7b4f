"""Held-out predictions of a run as a table, and predictions and moments as ELAN documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from obygaze_features.common.elan import Annotation, Document, Tier, milliseconds, to_eaf
from obygaze_features.common.text import file_names, format_signed
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import media_stem
from obygaze_features.manifests import Items
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.scores import average_over_fits, split_by
from obygaze_models.experiments.tables import Run, place_table
from obygaze_models.explain.parts import mean_parts
from obygaze_models.saved.predict import Predictions

PLACES = "^(id|film|title|media|start|end|level|concepts|group|(label|concepts) of .*)$"
"""A pattern for the columns of ``clips.csv`` that are written beside predictions."""
SHARES = "^(probability|value)"
"""A pattern for the columns with predicted numbers."""


def held_out(run: Run) -> pd.DataFrame:
    """Return the annotations and the mean prediction of each test clip, by model and test.

    Each clip is predicted by fits that were not trained on it. The column ``parts`` has the
    concepts' contributions to the log-odds, for models whose contributions sum to them.
    """
    clips = run.clips.filter(regex=PLACES)
    tables = []
    for (name, test), fits in split_by(run.predictions, "model", "test").items():
        tables.append(_mean_predictions(run, name, test, fits))
    rows = clips.merge(pd.concat(tables), on="id")
    return rows.sort_values(["model", "test", "title", "film", "start", "id"], ignore_index=True)


def _mean_predictions(run: Run, model: str, test: str, fits: pd.DataFrame) -> pd.DataFrame:
    """Return a model's mean prediction of each clip of a test set, and its reasons."""
    task = run.task(test)
    mean = average_over_fits(fits).rename(columns={"called": "prediction"})
    if not task.target.is_numeric:
        titles = np.array(task.class_titles, dtype=object)
        mean["prediction"] = titles[mean["prediction"]]
        mean = mean.drop(columns="label")  # the level says it
    reasons = run.reasons
    is_own = (reasons["model"] == model) & (reasons["task"] == run.trained_on(test))
    parts = []
    for own in mean_parts(reasons[is_own], mean["id"].tolist()):
        parts.append("|".join(f"{concept} {format_signed(amount)}" for concept, amount in own))
    return mean.assign(parts=parts, model=model, test=test)


def with_places(predictions: Predictions, items: Items) -> pd.DataFrame:
    """Return a model's predictions with the place of each clip in its film."""
    about = predictions.about
    table = predictions.table.merge(place_table(items), on="id")
    return table.assign(model=about.estimator, test=about.learned.key)


def to_elan(table: pd.DataFrame, warnings: Iterable[RunWarning] = ()) -> dict[str, str]:
    """Return an ELAN document per media file (text by name), with a tier per model and test."""
    shares = table.filter(regex=SHARES).columns
    rows: list[Any] = table.to_dict("records")
    for row in rows:
        row["details"] = {"clip": row["id"]} | {key: f"{row[key]:.3f}" for key in shares}
        row["tier"] = f"{row['model']}: {row['test']}"
    return _documents(rows, "prediction", warnings)


def moment_files(
    moments: pd.DataFrame, title: str, warnings: Iterable[RunWarning] = ()
) -> dict[str, str]:
    """Return an ELAN document of the moments of each film (text by name)."""
    rows: list[Any] = moments[moments["time_in"] == "film"].to_dict("records")
    for row in rows:
        clips = ", ".join(row["clips"].split(SEPARATOR))
        row["details"] = {"mean probability": f"{row['score']:.3f}", "clips": clips}
        row |= {"tier": title, "prediction": "moment", "seen": row["seen_in_training"]}
    return _documents(rows, "moment", warnings)


def _documents(
    rows: list[dict[str, Any]], kind: str, warnings: Iterable[RunWarning]
) -> dict[str, str]:
    """Return an ELAN document for each film and media file of some rows: its text by its name."""
    files: dict[tuple[str, str], dict[str, list[Annotation]]] = {}
    for row in rows:
        if not np.isfinite([row["start"], row["end"]]).all():
            continue
        details = row["details"]
        if row.get("seen", "no") != "no":
            details["seen in training"] = row["seen"]
        note = Annotation(*milliseconds(row["start"], row["end"]), str(row["prediction"]), details)
        tiers = files.setdefault((row["film"], row["media"]), {})
        tiers.setdefault(row["tier"], []).append(note)
    if not files:
        raise ExperimentError(
            f"no {kind} has a start and an end in a film, which ELAN needs. Write a table instead: "
            f"-o {kind}s.csv"
        )
    properties = {f"warning {number}": str(text) for number, text in enumerate(warnings, start=1)}
    stems = [media_stem(media) or film or "no-film" for film, media in files]
    documents = {}
    for name, ((_, media), tiers) in zip(file_names(stems, ".eaf"), files.items(), strict=True):
        listed = [Tier(tier, kind, notes) for tier, notes in tiers.items()]
        documents[name] = to_eaf(Document(listed, media, properties))
    return documents
