"""The film explorer's data: columns of small whole numbers, as a script of the page reads them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.experiments.run_folder import Clip, Explained
from obygaze_models.experiments.summary import main_metric
from obygaze_models.report.arrange import PROTOCOLS
from obygaze_models.report.numbers import Html
from obygaze_models.report.shown import Shown, View

__all__ = ["default_run", "default_view", "explorer_data", "script_json"]

Array = NDArray[Any]


def explorer_data(runs: Sequence[Shown], thumbnails: Mapping[str, str]) -> dict[str, Any]:
    """All that the explorer shows.

    ``clips`` has the sets of annotated clips, mostly one; ``runs`` and ``views`` (a model of a
    run) refer to them by number, and to clips by their place in such a set. A column is
    ``{"unit", "of"}``: whole numbers in that unit, None where there is nothing.
    """
    sets: dict[tuple[Any, ...], int] = {}
    clips: list[dict[str, Any]] = []
    of_runs: list[dict[str, Any]] = []
    views: list[dict[str, Any]] = []
    for run in runs:
        ordered = _in_scene_order(run.clips)
        levels = run.record.manifest.levels
        # Two label sets of one manifest are two sets of clips; folds and reasons are the run's.
        key = (
            *levels,
            *((one.id, one.title, one.start, one.level, one.concepts) for one in ordered),
        )
        if key not in sets:
            sets[key] = len(sets)
            clips.append(_clips(ordered, levels))
        place = {one.id: at for at, one in enumerate(ordered)}
        reasons: dict[str, list[int]] = {}
        for one in ordered:
            if one.used:
                reasons.setdefault(one.used, []).append(place[one.id])
        first = default_view(run)
        of_runs.append(
            {
                "name": run.name,
                "feature": run.feature,
                "protocol": run.protocol,
                "about": PROTOCOLS[run.protocol],
                "clips": sets[key],
                "labels": run.record.manifest.labels,
                "fits": len({said.fit for said in run.results.said}),
                "unused": reasons,
                "view": len(views) + run.views.index(first),
            }
        )
        views += [_view(run.number, view, place) for view in run.views]
    return {
        "clips": clips,
        "runs": of_runs,
        "views": views,
        "run": default_run(runs).number,
        "total": len({one for run in runs for one in run.clips}),
        "pictures": dict(thumbnails),
    }


def default_run(runs: Sequence[Shown]) -> Shown:
    """The run that tested the most clips; of levels rather than of concepts."""
    return max(runs, key=lambda run: (not run.record.experiment["concepts"], run.tested))


def default_view(run: Shown) -> View:
    """The model with the best main score among those that explain themselves, if any do."""
    metric = main_metric(run.record)
    reached = {of.model: of.mean[metric] or 0.0 for of in reversed(run.record.scores)}
    return max(run.views, key=lambda view: (bool(view.explained), reached[view.model]))


def script_json(value: Any) -> Html:
    """JSON that cannot end the script element that holds it, nor begin another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(text)


def _in_scene_order(clips: Mapping[str, Clip]) -> list[Clip]:
    """Film by film; in time where all clips of a film have seconds, else by scene number."""
    films: dict[str, list[Clip]] = {}
    for one in clips.values():
        films.setdefault(one.film, []).append(one)
    for of in films.values():
        if _timed(of):
            of.sort(key=lambda one: one.start or 0.0)
        elif all(one.number is not None for one in of):
            of.sort(key=lambda one: one.number or 0)
    return [one for of in films.values() for one in of]


def _timed(clips: Sequence[Clip]) -> bool:
    return all(one.start is not None and one.end is not None for one in clips)


def _clips(clips: Sequence[Clip], levels: Mapping[str, str]) -> dict[str, Any]:
    codes = list(dict.fromkeys([*levels, *(one.level for one in clips)]))
    concepts = list(dict.fromkeys(name for one in clips for name in one.concepts))
    films: dict[str, list[Clip]] = {}
    for one in clips:
        films.setdefault(one.film, []).append(one)
    names = list(films)
    return {
        "films": [{"title": of[0].title, "timed": _timed(of)} for of in films.values()],
        "levels": [{"code": code, "name": levels.get(code, code)} for code in codes],
        "concepts": sorted(concepts),
        "ids": [one.id for one in clips],
        "film": [names.index(one.film) for one in clips],
        "number": [one.number for one in clips],
        "start": _short([one.start for one in clips]),
        "end": _short([one.end for one in clips]),
        "level": [codes.index(one.level) for one in clips],
        "shows": [sorted(sorted(concepts).index(name) for name in one.concepts) for one in clips],
    }


def _short(seconds: list[float | None]) -> list[float | None]:
    """Nothing at all where no clip has a time."""
    if all(one is None for one in seconds):
        return []
    return [None if one is None else round(one, 2) for one in seconds]


def _view(run: int, view: View, place: Mapping[str, int]) -> dict[str, Any]:
    told = view.said
    order = np.argsort([place[one] for one in told.ids])
    at = np.array([place[one] for one in told.ids])[order]
    said = told.probabilities[order]
    record: dict[str, Any] = {
        "run": run,
        "model": view.model,
        "task": view.task,
        "classes": list(view.classes),
        "at": at.tolist(),
        "label": told.labels[order].tolist(),
        "called": told.called[order].tolist(),
        "p": [_column(one, unit=0.001) for one in (said.T if said.ndim == 2 else [said])],
        "fits": told.fits[order].tolist(),
    }
    if told.fits.max() > 1:
        record |= {
            "low": _column(told.low[order], unit=0.001),
            "high": _column(told.high[order], unit=0.001),
        }
    if view.explained:
        ids = [told.ids[row] for row in order.tolist()]
        record["why"] = _why(view, ids)
    return record


def _why(view: View, ids: list[str]) -> dict[str, Any]:
    """Sums as means over the fits, which add up as well; a tree's questions of one fit."""
    kind = view.explained[0].kind
    concepts = list(dict.fromkeys(name for one in view.explained for name in one.concepts))
    row_of = {one: row for row, one in enumerate(ids)}
    if kind == "path":
        return _paths(view, concepts, ids, row_of)
    shape = (len(ids), len(concepts))
    fits = np.zeros(len(ids))
    values, amounts, measured = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    rest = {name: np.zeros(len(ids)) for name in ("intercept", "residual")}
    spoken = [""] * len(ids)
    for one in view.explained:
        rows = np.array([row_of[name] for name in one.ids], dtype=np.intp)
        columns = np.array([concepts.index(name) for name in one.concepts], dtype=np.intp)
        fits[rows] += 1
        measured[np.ix_(rows, columns)] += 1
        values[np.ix_(rows, columns)] += one.values
        if one.amounts is not None:
            amounts[np.ix_(rows, columns)] += one.amounts
        for name, total in rest.items():
            if (part := getattr(one, name)) is not None:
                total[rows] += part
        for row, label in zip(rows.tolist(), one.labels, strict=True):
            spoken[row] = label
    told = np.maximum(fits, 1)
    names = sorted(set(spoken))
    record: dict[str, Any] = {
        "kind": kind,
        "concepts": concepts,
        "labels": names,
        "speaks": [names.index(label) for label in spoken] if len(names) > 1 else [],
        "values": [
            _column(of / np.maximum(n, 1)) for of, n in zip(values.T, measured.T, strict=True)
        ],
        "amounts": [_column(of / told, like=amounts / told[:, None]) for of in amounts.T],
    }
    for name, total in rest.items():
        if any(getattr(one, name) is not None for one in view.explained):
            record[name] = _column(total / told, like=amounts / told[:, None])
    return record


def _paths(
    view: View, concepts: list[str], ids: list[str], row_of: Mapping[str, int]
) -> dict[str, Any]:
    """Of each clip the questions of the fit whose probability is nearest to the mean."""
    mean = dict(zip(view.said.ids, view.said.probabilities.tolist(), strict=True))
    chosen: dict[str, tuple[float, Explained, int]] = {}
    for one in view.explained:
        said = view.each.get(one.fit, {})
        for row, name in enumerate(one.ids):
            if name in said:
                far = float(np.abs(np.subtract(said[name], mean[name])).max())
                if name not in chosen or far < chosen[name][0]:
                    chosen[name] = far, one, row
    questions: dict[tuple[int, float, bool], int] = {}
    paths: list[list[int]] = [[] for _ in ids]
    values = np.full((len(ids), len(concepts)), np.nan)
    fit = [-1] * len(ids)
    own = np.full(len(ids), np.nan)
    for name, (_, one, row) in chosen.items():
        at = row_of[name]
        fit[at] = one.fit
        own[at] = np.atleast_1d(view.each[one.fit][name])[-1]
        values[at, [concepts.index(concept) for concept in one.concepts]] = one.values[row]
        for step in (one.steps or [])[row]:
            asked = concepts.index(step.concept), float(f"{step.threshold:.3g}"), step.above
            paths[at].append(questions.setdefault(asked, len(questions)))
    return {
        "kind": "path",
        "concepts": concepts,
        "values": [_column(of) for of in values.T],
        "questions": [[concept, threshold, int(above)] for concept, threshold, above in questions],
        "paths": paths,
        "fit": fit,
        "own": _column(own, unit=0.001),
    }


def _column(
    values: Array, *, unit: float | None = None, like: Array | None = None
) -> dict[str, Any]:
    """Whole numbers in a unit that leaves three digits to the largest (of `like`)."""
    if unit is None:
        finite = np.abs(values if like is None else like)
        finite = finite[np.isfinite(finite)]
        most = float(finite.max()) if finite.size else 0.0
        unit = 10.0 ** (math.floor(math.log10(most)) - 2) if most > 0 else 1.0
    return {
        "unit": float(f"{unit:.1g}"),
        "of": [None if math.isnan(one) else round(one / unit) for one in values.tolist()],
    }
