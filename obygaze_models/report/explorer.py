"""The data for the explorer of a page: clips and predictions as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from obygaze_models.explain.parts import mean_parts, name_log_odds, questions
from obygaze_models.report.people import People
from obygaze_models.report.scores import Tested
from obygaze_models.report.sources import Labels, is_timed
from obygaze_models.results.scores import values_of as probabilities_of


def explorer_data(
    labels: Labels,
    people: People | None,
    entries: Sequence[Tested],
    main: Tested | None,
) -> dict[str, Any]:
    """Return a page's clips by film, in order, and a view for each test of a classifier.

    ``tested`` has the distinct sets of tested clips, to which a view refers by number. ``first`` is
    the film with the largest share of clips at the counted levels. ``votes`` has how many
    annotators gave each clip these levels, if there are too many annotators for a lane each.
    """
    concepts = labels.concepts
    place = {name: number for number, name in enumerate(concepts)}
    ids = [clip.id for clip in labels.clips]
    row_of = {clip: row for row, clip in enumerate(ids)}
    shown = [entry for entry in entries if not entry.task.target.is_numeric]
    views = [_view(entry, row_of) for entry in shown]
    tested: list[list[int]] = []
    for view in views:
        if view["at"] not in tested:
            tested.append(view["at"])
        view["at"] = tested.index(view["at"])
    films = []
    marked = []
    for film, clips in labels.films.items():
        title = clips[0].title or film
        films.append({"id": film, "title": title, "timed": is_timed(clips)})
        marked.append(np.mean([clip.level in labels.positives for clip in clips]))
    levels = []
    for code, name in labels.levels.items():
        levels.append({"code": code, "name": name, "colour": labels.colours[code]})
    votes = None
    if people is not None and people.is_many:
        votes = {"of": people.votes.tolist(), "level": labels.top, "ramp": people.ramp}
    return {
        "unit": labels.unit,
        "films": films,
        "levels": levels,
        "concepts": concepts,
        "ids": ids,
        **_clips(labels, place),
        "annotators": _annotators(labels, ids, place),
        "votes": votes,
        "tested": tested,
        "views": views,
        "first": int(np.argmax(marked)),
        "view": shown.index(main) if main in shown else 0,
    }


def _clips(labels: Labels, place: Mapping[str, int]) -> dict[str, list[Any]]:
    """Return the film, time, level and concepts of each clip, as columns."""
    rank = {code: number for number, code in enumerate(labels.levels)}
    columns: dict[str, list[Any]] = {
        name: [] for name in ("film", "number", "start", "end", "level", "shows")
    }
    for number, clips in enumerate(labels.films.values()):
        for clip in clips:
            columns["film"].append(number)
            columns["number"].append(clip.number)
            columns["start"].append(_rounded(clip.start, 2))
            columns["end"].append(_rounded(clip.end, 2))
            columns["level"].append(rank.get(clip.level))
            columns["shows"].append([place[name] for name in clip.concepts])
    if None not in columns["start"]:
        columns["number"] = [None] * len(labels.clips)
    return columns


def _annotators(
    labels: Labels,
    ids: Sequence[str],
    place: Mapping[str, int],
) -> list[dict[str, Any]]:
    """Return each annotator's level and concepts of each clip."""
    rank = {code: number for number, code in enumerate(labels.levels)}
    annotators = []
    for own in labels.annotators.values():
        levels = [rank.get(own.level_of.get(clip, "")) for clip in ids]
        shows = [[place[c] for c in own.concepts_of.get(clip, ())] for clip in ids]
        annotators.append({"name": own.display_name, "level": levels, "shows": shows})
    return annotators


def _rounded(value: float | None, digits: int) -> float | None:
    return round(value, digits) if value is not None and np.isfinite(value) else None


def _view(entry: Tested, row_of: Mapping[str, int]) -> dict[str, Any]:
    """Return a model's mean prediction for each clip that it was tested on.

    Probabilities, of each class or of the second of two, are in thousandths.
    """
    means = entry.means
    means = means[means["id"].isin([*row_of])]
    columns = np.atleast_2d(probabilities_of(means).T)
    view: dict[str, Any] = {
        "run": entry.run.name,
        "model": entry.model,
        "test": entry.task.title,
        "classes": [kind.words for kind in entry.task.classes],
        "at": [row_of[clip] for clip in means["id"]],
        "label": means["label"].tolist(),
        "called": means["called"].tolist(),
        "p": np.rint(1000 * columns).astype(int).tolist(),
    }
    reasons = entry.run.reasons
    learned = entry.run.trained_on(entry.task.key)
    own = reasons[(reasons["model"] == entry.model) & (reasons["task"] == learned)]
    if len(own):
        view["why"] = _reasons(entry, own, means["id"].tolist())
    return view


def _reasons(entry: Tested, reasons: pd.DataFrame, ids: list[str]) -> dict[str, Any]:
    """Return each prediction's parts, as means over fits, or the questions of a tree."""
    steps = questions(reasons)
    if not len(steps):
        names = [kind.words for kind in entry.task.classes]
        parts = []
        for own in mean_parts(reasons, ids):
            parts.append([[name, _rounded(part, 3)] for name, part in own])
        return {"of": name_log_odds(names), "parts": parts}
    first = steps.groupby("id")["fit"].transform("min")
    by_clip: dict[str, list[str]] = {}
    for step in steps[steps["fit"] == first].itertuples(index=False):
        sign = ">" if step.above else "≤"
        text = f"{step.concept} {step.value:.3g} {sign} {step.threshold:.3g}"
        by_clip.setdefault(str(step.id), []).append(text)
    return {"of": "a tree", "steps": [by_clip.get(clip, []) for clip in ids]}
