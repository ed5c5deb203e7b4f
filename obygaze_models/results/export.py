"""Held-out predictions of a run as a table, and predictions and moments as ELAN documents."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from obygaze_features.common.elan import Annotation, Document, Tier, milliseconds, to_eaf
from obygaze_features.common.formatting import format_signed
from obygaze_features.common.grouping import group_by
from obygaze_features.common.names import file_names
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import media_stem
from obygaze_features.manifests import Items
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_models.data.run_warning import RunWarning
from obygaze_models.explain.parts import mean_parts
from obygaze_models.results.run import Run, place_table
from obygaze_models.results.scores import average_over_fits, split_by
from obygaze_models.saved.predict import Predictions

PLACES = "^(id|film|title|media|start|end|level|concepts|group|(label|concepts) of .*)$"
"""A pattern for the columns of ``clips.csv`` that are written beside predictions."""
SHARES = "^(probability|value)"
"""A pattern for the columns with probabilities or predicted numbers."""


def held_out(run: Run) -> pd.DataFrame:
    """Return the annotations and the mean prediction of each test clip, by model and test.

    Each clip is predicted by the fits that tested it. For linear concept models, the column
    ``parts`` has the concepts' contributions to the log-odds.
    """
    reasons = run.reasons
    tables = []
    for (model, test), fits in split_by(run.predictions, "model", "test").items():
        task = run.task(test)
        mean = average_over_fits(fits).rename(columns={"called": "prediction"})
        if not task.target.is_numeric:
            titles = np.array(task.class_titles, dtype=object)
            mean["prediction"] = titles[mean["prediction"]]
            mean = mean.drop(columns="label")  # the level says it
        is_own = (reasons["model"] == model) & (reasons["task"] == run.trained_on(test))
        texts = []
        for amounts in mean_parts(reasons[is_own], mean["id"].tolist()):
            texts.append(
                "|".join(f"{concept} {format_signed(amount)}" for concept, amount in amounts)
            )
        tables.append(mean.assign(parts=texts, model=model, test=test))
    rows = run.clips.filter(regex=PLACES).merge(pd.concat(tables), on="id")
    return rows.sort_values(["model", "test", "title", "film", "start", "id"], ignore_index=True)


def with_places(predictions: Predictions, items: Items) -> pd.DataFrame:
    """Return a model's predictions with the place of each clip in its film."""
    about = predictions.about
    table = predictions.table.merge(place_table(items), on="id")
    return table.assign(model=about.estimator, test=about.learned.key)


def to_elan(table: pd.DataFrame, warnings: Iterable[RunWarning]) -> dict[str, str]:
    """Return ELAN documents by file name: one per film and media file.

    A document has a tier for each model and test.
    """
    shares = table.filter(regex=SHARES).columns
    rows: list[Any] = table.to_dict("records")
    for row in rows:
        row["details"] = {"clip": row["id"]} | {key: f"{row[key]:.3f}" for key in shares}
        row["tier"] = f"{row['model']}: {row['test']}"
    return _documents(rows, "prediction", warnings)


def moment_files(
    moments: pd.DataFrame,
    title: str,
    warnings: Iterable[RunWarning],
) -> dict[str, str]:
    """Return ELAN documents by file name, one per film with moments."""
    rows: list[Any] = moments[moments["time_in"] == "film"].to_dict("records")
    for row in rows:
        clips = ", ".join(row["clips"].split(SEPARATOR))
        row["details"] = {"mean probability": f"{row['score']:.3f}", "clips": clips}
        row |= {"tier": title, "prediction": "moment", "seen": row["seen_in_training"]}
    return _documents(rows, "moment", warnings)


def _documents(
    rows: list[dict[str, Any]],
    noun: str,
    warnings: Iterable[RunWarning],
) -> dict[str, str]:
    """Return ELAN documents by file name, one per film and media file of timed rows."""
    placed = [row for row in rows if np.isfinite([row["start"], row["end"]]).all()]
    files = group_by(placed, itemgetter("film", "media"))
    if not files:
        raise ExperimentError(
            f"no {noun} has a start and an end in a film, which ELAN needs. Write "
            "a CSV table instead"
        )
    properties = {f"warning {number}": str(text) for number, text in enumerate(warnings, 1)}
    stems = [media_stem(media) or film or "no-film" for film, media in files]
    documents = {}
    for name, ((_, media), timed) in zip(file_names(stems, ".eaf"), files.items(), strict=True):
        tiers = []
        for tier, same in group_by(timed, itemgetter("tier")).items():
            annotations = []
            for row in same:
                details = row["details"]
                if row.get("seen", "no") != "no":
                    details["seen in training"] = row["seen"]
                times = milliseconds(row["start"], row["end"])
                annotations.append(Annotation(*times, str(row["prediction"]), details))
            tiers.append(Tier(tier, noun, annotations))
        documents[name] = to_eaf(Document(tiers, media, properties))
    return documents
