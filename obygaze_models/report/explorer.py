"""The data for the explorer of a page: clips and predictions as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from obygaze_features.common.formatting import format_number, format_time
from obygaze_models.explain.parts import mean_parts, name_log_odds, questions
from obygaze_models.report.people import People
from obygaze_models.report.scores import Tested
from obygaze_models.report.sources import Labels, is_timed
from obygaze_models.results.scores import values_of


def explorer_data(
    labels: Labels,
    people: People | None,
    entries: Sequence[Tested],
    main: Tested | None,
) -> dict[str, Any]:
    """Return a page's clips by film, in order, and a view for each test of a model.

    ``tested`` has the distinct sets of tested clips, to which a view refers by number. ``first`` is
    the film with the largest share of clips at the counted levels, if possible a tested one.
    ``votes`` has how many annotators gave each clip these levels, if there are too many annotators
    for a lane each.
    """
    clips = labels.clips
    ids = clips["id"]
    views = [_view(entry, ids) for entry in entries]
    tested = []
    for view in views:
        if view["at"] not in tested:
            tested.append(view["at"])
        view["at"] = tested.index(view["at"])

    films = []
    for film, of_film in labels.films.items():
        films.append({"id": film, "title": labels.titles[film], "timed": is_timed(of_film)})
    shown = clips
    if main is not None:
        shown = clips[ids.isin(main.table["id"])]
    marked = shown["level"].isin(labels.positives).groupby(shown["film"]).mean()
    levels = []
    for code, name in labels.levels.items():
        levels.append({"name": name, "colour": labels.colours[code]})
    scenes = ids.where(clips["number"].isna(), "scene " + clips["number"].astype(str))
    times = clips["start"].round().map(format_time, na_action="ignore").astype(object)
    votes = None
    if people is not None and people.is_many:
        votes = {"of": people.votes.tolist(), "level": labels.top, "ramp": people.ramp}
    annotators = []
    for each in labels.annotators.values():
        marks = _marks(labels, ids.map(each.level_of), ids.map(each.concepts_of))
        annotators.append({"name": each.display_name, **marks})
    return {
        "unit": labels.unit,
        "films": films,
        "levels": levels,
        "concepts": labels.concepts,
        "ids": ids.tolist(),
        "film": clips["film"].factorize()[0].tolist(),
        "scene": times.where(clips["start"].notna(), scenes).tolist(),
        "start": _cells(clips["start"].round(2)),
        "end": _cells(clips["end"].round(2)),
        **_marks(labels, clips["level"], clips["concepts"]),
        "annotators": annotators,
        "votes": votes,
        "tested": tested,
        "views": views,
        "first": [*labels.films].index(str(marked.idxmax())),
        "view": entries.index(main) if main else 0,
    }


def _cells(column: pd.Series) -> list[Any]:
    """Return the values of a column, with None for missing ones."""
    return column.astype(object).where(column.notna(), None).tolist()


def _marks(labels: Labels, levels: pd.Series, concepts: pd.Series) -> dict[str, list[Any]]:
    """Return the rank of each clip's level, and the numbers of its concepts."""
    rank = {code: number for number, code in enumerate(labels.levels)}
    place = {name: number for number, name in enumerate(labels.concepts)}
    known = concepts.where(concepts.notna(), "")
    shows = [[place[name] for name in names] for names in known]
    return {"level": _cells(levels.map(rank).astype("Int64")), "shows": shows}


def _view(entry: Tested, ids: pd.Series) -> dict[str, Any]:
    """Return a model's mean prediction for each clip that it was tested on.

    ``p`` has the numbers, or the probabilities of the last class. ``off`` has how far each is from
    its label (with several classes, 1 minus the probability of the label). For numbers, ``range``
    has the lowest and the highest, labels included.
    """
    means = entry.means
    means = means[means["id"].isin(ids)]
    labels = means["label"].to_numpy()
    p = values_of(means)
    off = np.abs(p.T - labels)
    if p.ndim == 2:
        off = 1 - p[np.arange(len(p)), labels]
        p = p[:, -1]
    view = {
        "run": entry.run.name,
        "model": entry.model,
        "test": entry.task.title,
        "at": ids.reset_index().set_index("id")["index"][means["id"]].tolist(),
        "label": labels.tolist(),
        "p": p.round(3).tolist(),
        "off": off.round(3).tolist(),
        "classes": [label_class.words for label_class in entry.task.classes],
    }
    if entry.task.target.is_numeric:
        both = np.stack([labels, p])
        return view | {"range": [both.min(), both.max()]}
    view["called"] = means["called"].tolist()
    reasons = entry.run.reasons
    learned = entry.run.trained_on(entry.task.key)
    of_model = reasons[(reasons["model"] == entry.model) & (reasons["task"] == learned)]
    if len(of_model):
        view["why"] = _reasons(entry, of_model, means["id"].tolist())
    return view


def _reasons(entry: Tested, reasons: pd.DataFrame, ids: list[str]) -> dict[str, Any]:
    """Return each prediction's parts, as means over fits, or the questions of a tree."""
    steps = questions(reasons)
    if not len(steps):
        names = [label_class.words for label_class in entry.task.classes]
        reasons_of = []
        for amounts in mean_parts(reasons, ids):
            reasons_of.append([f"{name} {format_number(part, '+.2f')}" for name, part in amounts])
        return {"of": "Parts that add up to the " + name_log_odds(names), "reasons": reasons_of}
    first = steps.groupby("id")["fit"].transform("min")
    by_clip: dict[str, list[str]] = {}
    for step in steps[steps["fit"] == first].itertuples(index=False):
        sign = ">" if step.above else "≤"
        text = f"{step.concept} {step.value:.3g} {sign} {step.threshold:.3g}"
        by_clip.setdefault(str(step.id), []).append(text)
    texts = [by_clip.get(clip, []) for clip in ids]
    return {"of": "The questions of one of the trees", "reasons": texts}
