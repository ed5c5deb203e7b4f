"""The film explorer's data for the page's script: columns of small integers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import map_cells
from obygaze_features.common.text import group_by
from obygaze_features.manifests import LabelSet
from obygaze_models.data.protocols import find_protocol
from obygaze_models.data.tasks import two_classes
from obygaze_models.experiments.scores import values_of
from obygaze_models.experiments.tables import ManifestRecord
from obygaze_models.explain.clips import Clip
from obygaze_models.explain.parts import mean_parts, name_log_odds, questions
from obygaze_models.report.annotation import Annotation, Source
from obygaze_models.report.film_timelines import (
    by_film,
    grid_length,
    is_timed,
    level_columns,
)
from obygaze_models.report.glossary import citation, concept_meanings
from obygaze_models.report.runs import ModelResults, ReportRun, default_model

Array = NDArray[Any]
MAX_LABEL_SETS = 6
"""The maximum number of annotator lanes per film."""


def explorer_data(
    opens: ModelResults | None,
    sources: Sequence[Source],
    thumbnails: Mapping[str, str],
    timelines: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the data of the explorer, which opens on a model, or else on annotations.

    ``clips`` has the distinct sets of annotated clips, usually just one. ``runs``, and ``views``
    (one for each model of a run), refer to sets by number and to clips by index. A column
    ``{"unit", "of"}`` has integers in this unit, with None for missing values. ``timelines`` is the
    result of `film_timelines`.
    """
    sets: dict[tuple[Any, ...], int] = {}  # the content of a set of clips -> its number
    clips: list[dict[str, Any]] = []
    run_data: list[dict[str, Any]] = []
    views: list[dict[str, Any]] = []
    for run in sources:
        ordered = in_scene_order(run.clips)
        levels = run.about.levels
        # A set of clips includes their labels. Folds and reasons belong to runs.
        key = (
            *levels.items(),
            *((clip.id, clip.title, clip.start, clip.level, clip.concepts) for clip in ordered),
        )
        if key not in sets:
            sets[key] = len(sets)
            names = [name for name in run.annotators if name != run.about.labels]
            others = [run.manifest.labels(name) for name in names if run.manifest]
            clips.append(_clips(ordered, run.about, others[:MAX_LABEL_SETS]))
        run_data.append(
            {
                "name": run.name,
                "clips": sets[key],
                "labels": run.about.labels,
                "cite": citation([run]),
                "data": f"{run.about.name} {run.about.version}".strip(),
                "unused": _unused(ordered),
                "view": len(views),
            }
        )
        if isinstance(run, Annotation):
            views.append(_view_of_labels(run))
            continue
        opened = opens if opens in run.models else default_model(run)
        run_data[-1] |= {
            "feature": run.feature,
            "protocol": run.protocol,
            "about": run.in_groups(find_protocol(run.protocol).title),
            "view": len(views) + run.models.index(opened),
        }
        index = {clip.id: number for number, clip in enumerate(ordered)}
        views += [_view(run, results, index) for results in run.models]
    return {
        "clips": clips,
        "runs": run_data,
        "views": views,
        "run": next((run.number for run in sources if opens in run.models), 0),
        "total": len({clip for run in sources for clip in run.clips}),
        "pictures": dict(thumbnails),
        "timelines": timelines or {"films": {}},
    }


def _unused(clips: Sequence[Clip]) -> dict[str, list[int]]:
    """Return the indices of the clips that a run did not use, by reason."""
    numbers = [number for number, clip in enumerate(clips) if clip.used]
    return group_by(numbers, lambda number: clips[number].used)


def in_scene_order(clips: Mapping[str, Clip]) -> list[Clip]:
    """Sort clips by film, and the clips of each film by time if all are timed, else by number."""
    films = by_film(clips.values())
    for same_film in films.values():
        if is_timed(same_film):
            same_film.sort(key=lambda clip: clip.start or 0.0)
        elif all(clip.number is not None for clip in same_film):
            same_film.sort(key=lambda clip: clip.number or 0)
    return [clip for same_film in films.values() for clip in same_film]


def _clips(
    clips: Sequence[Clip], about: ManifestRecord, others: Sequence[LabelSet]
) -> dict[str, Any]:
    levels, meanings = about.levels, concept_meanings(about)
    codes = list(dict.fromkeys([*levels, *(clip.level for clip in clips)]))
    ids = [clip.id for clip in clips]
    others = [
        labels
        for labels in others
        if labels.level_of.keys() & {*ids} and set(labels.level_of.values()) <= set(codes)
    ]
    named = {name for labels in others for names in labels.concepts_of.values() for name in names}
    concepts = sorted(named.union(*(clip.concepts for clip in clips)))
    films = by_film(clips)

    @cache  # most clips show the same few sets of concepts
    def places(marked: tuple[str, ...]) -> list[int]:
        return sorted(map(concepts.index, marked))

    # File names are left out if all files are named after their clip or film.
    usual = all(clip.media in ("", clip.id if clip.start is None else clip.film) for clip in clips)
    return {
        "films": [
            {
                "id": film,
                "title": same[0].title or film,
                "timed": is_timed(same),
                "grid": grid_length(same) > 0,
                "long": max((clip.end or 0.0 for clip in same), default=0.0) >= 3600,
            }
            for film, same in films.items()
        ],
        "levels": level_columns({code: levels.get(code, code) for code in codes}),
        "concepts": concepts,
        "meanings": [meanings.get(name, "") for name in concepts],
        "ids": ids,
        "media": [] if usual else [clip.media for clip in clips],
        "film": [number for number, same in enumerate(films.values()) for _ in same],
        "number": [clip.number for clip in clips],
        "start": _seconds([clip.start for clip in clips]),
        "end": _seconds([clip.end for clip in clips]),
        "level": [codes.index(clip.level) for clip in clips],
        "shows": [places(clip.concepts) for clip in clips],
        "sets": [
            {
                "name": labels.name,
                "level": [codes.index(level) if (level := labels.level_of.get(clip)) else None
                          for clip in ids],
                "shows": [places(labels.concepts_of.get(clip, ())) for clip in ids],
            }
            for labels in others
        ],
    }  # fmt: skip


def _seconds(seconds: list[float | None]) -> list[float | None]:
    """Round seconds to hundredths, or return [] if no clip has a time."""
    if all(value is None for value in seconds):
        return []
    return map_cells(lambda value: None if value is None else round(value, 2), seconds)


def _view_of_labels(source: Annotation) -> dict[str, Any]:
    """Return a view without a model, in which the highest level is the positive class."""
    others = [code for code in source.about.levels if code not in source.positives]
    task = two_classes(source.about.levels, source.positives, others)
    columns: dict[str, list[Any]] = {name: [] for name in ("at", "label", "called", "p", "fits")}
    classes = msgspec.to_builtins(task.classes)
    return {"run": source.number, "model": "", "task": "", "classes": classes, **columns}


def _view(run: ReportRun, results: ModelResults, index: Mapping[str, int]) -> dict[str, Any]:
    means = results.predictions
    positions = np.array([index[clip] for clip in means["id"]])
    order = np.argsort(positions)
    means = means.iloc[order]
    probabilities = values_of(means)
    columns = probabilities.T if probabilities.ndim == 2 else [probabilities]
    view: dict[str, Any] = {
        "run": run.number,
        "model": results.model,
        "task": results.task,
        "classes": msgspec.to_builtins(results.classes),
        "at": positions[order].tolist(),
        "label": means["label"].tolist(),
        "called": means["called"].tolist(),
        "p": [number_column(column, unit=0.001) for column in columns],
        "fits": means["fits"].tolist(),
    }
    if means["fits"].max() > 1:
        view |= {
            "low": number_column(means["low"].to_numpy(), unit=0.001),
            "high": number_column(means["high"].to_numpy(), unit=0.001),
        }
    if results.gives_reasons:
        view["why"] = _reasons(results, means["id"].tolist())
    return view


def _reasons(results: ModelResults, ids: list[str]) -> dict[str, Any]:
    """Return each prediction's parts, as means over fits, or a tree's questions."""
    kind = results.reasons["kind"].iloc[0]
    if kind == "path":
        return _paths(results, ids)
    parts = mean_parts(results.reasons, ids)
    amounts = parts.amounts
    data: dict[str, Any] = {
        "kind": kind,
        "of": name_log_odds([kind.title for kind in results.classes]),
        "concepts": parts.concepts,
        "values": [number_column(column) for column in parts.values.T],
        "amounts": [number_column(column, like=amounts) for column in amounts.T],
        "order": parts.order.tolist(),
        "total": number_column(parts.total, like=amounts),
    }
    if parts.intercept is not None:
        data["intercept"] = number_column(parts.intercept, like=amounts)
    return data


def _paths(results: ModelResults, ids: list[str]) -> dict[str, Any]:
    """Return each clip's questions in the fit whose probability is nearest to the mean."""
    concepts = results.reasons["concept"].unique().tolist()
    means = results.predictions
    mean = dict(zip(means["id"], values_of(means).tolist(), strict=True))
    labelled = results.reasons[results.reasons["class"] != ""].drop_duplicates(["fit", "id"])
    nearest: dict[str, tuple[float, int]] = {}
    for number, clip in zip(labelled["fit"].tolist(), labelled["id"].tolist(), strict=True):
        probabilities = results.by_fit.get(number, {})
        if clip in probabilities:
            distance = float(np.abs(np.subtract(probabilities[clip], mean[clip])).max())
            if clip not in nearest or distance < nearest[clip][0]:
                nearest[clip] = distance, number
    fit = [nearest[clip][1] if clip in nearest else -1 for clip in ids]
    probability = np.full(len(ids), np.nan)
    for row, clip in enumerate(ids):
        if clip in nearest:
            probability[row] = np.atleast_1d(results.by_fit[fit[row]][clip])[-1]
    row_of = {clip: row for row, clip in enumerate(ids)}
    paths: list[list[tuple[int, float, bool, float]]] = [[] for _ in ids]
    for step in questions(results.reasons).itertuples(index=False):
        row = row_of.get(str(step.id), -1)
        if row >= 0 and fit[row] == step.fit:
            concept = concepts.index(step.concept)
            value = float(format(step.value, ".4g"))
            threshold = float(format(step.threshold, ".4g"))
            paths[row].append((concept, value, bool(step.above), threshold))
    return {
        "kind": "path",
        "concepts": concepts,
        "paths": paths,
        "fit": fit,
        "own": number_column(probability, unit=0.001),
    }


def number_column(
    values: Array, *, unit: float | None = None, like: Array | None = None
) -> dict[str, Any]:
    """Return values as integers in a unit.

    By default, the largest value (of `like`, if passed) has three digits.
    """
    if unit is None:
        finite = np.abs(values if like is None else like)
        finite = finite[np.isfinite(finite)]
        largest = float(finite.max()) if finite.size else 0.0
        unit = 10.0 ** (math.floor(math.log10(largest)) - 2) if largest > 0 else 1.0
    return {
        "unit": float(format(unit, ".1g")),
        "of": [None if math.isnan(value) else round(value / unit) for value in values.tolist()],
    }
