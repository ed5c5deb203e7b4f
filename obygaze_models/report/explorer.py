"""The data of a page's script: clips and predictions as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from obygaze_features.common.figures import level_colour_names
from obygaze_models.experiments.scores import values_of as probabilities_of
from obygaze_models.explain.parts import mean_parts, name_log_odds, questions
from obygaze_models.report.scores import Tested
from obygaze_models.report.sources import Clip, Labels, is_timed

MAX_LANES = 6
"""The maximum number of annotators in the explorer."""


def explorer_data(labels: Labels, entries: Sequence[Tested], main: Tested | None) -> dict[str, Any]:
    """Return the clips of a page by film, in order, and a view for each model and test set.

    ``tested`` has the distinct sets of tested clips, to which a view refers by number.
    """
    marked = {name for clip in labels.clips for name in clip.concepts}
    for own in labels.annotators.values():
        marked.update(name for shown in own.concepts_of.values() for name in shown)
    names = sorted(marked)
    place = {name: number for number, name in enumerate(names)}
    codes = [*labels.levels]
    films = labels.films
    ids = [clip.id for clip in labels.clips]
    row_of = {clip: row for row, clip in enumerate(ids)}
    annotators = [
        {
            "name": name,
            "level": [_rank(codes, own.level_of.get(clip)) for clip in ids],
            "shows": [[place[c] for c in own.concepts_of.get(clip, ())] for clip in ids],
        }
        for name, own in [*labels.annotators.items()][:MAX_LANES]
    ]
    views = [_view(entry, row_of) for entry in entries if not entry.task.target.is_numeric]
    tested: list[list[int]] = []
    for view in views:
        if view["at"] not in tested:
            tested.append(view["at"])
        view["at"] = tested.index(view["at"])
    return {
        "unit": labels.unit,
        "films": [
            {
                "id": film,
                "title": own[0].title or film,
                "timed": is_timed(own),
            }
            for film, own in films.items()
        ],
        "levels": [
            {"code": code, "name": labels.levels[code], "colour": colour}
            for code, colour in zip(codes, level_colour_names(codes), strict=True)
        ],
        "concepts": names,
        "ids": ids,
        "film": [number for number, own in enumerate(films.values()) for _ in own],
        "number": [clip.number if clip.start is None else None for clip in labels.clips],
        "start": [_rounded(clip.start, 2) for clip in labels.clips],
        "end": [_rounded(clip.end, 2) for clip in labels.clips],
        "level": [_rank(codes, clip.level) for clip in labels.clips],
        "shows": [[place[name] for name in clip.concepts] for clip in labels.clips],
        "annotators": annotators,
        "tested": tested,
        "views": views,
        "first": max(
            range(len(films)), key=lambda n: _share([*films.values()][n], labels.positives)
        ),
        "view": entries.index(main) if main and not main.task.target.is_numeric else 0,
    }


def _share(clips: Sequence[Clip], levels: Sequence[str]) -> float:
    return sum(clip.level in levels for clip in clips) / len(clips)


def _rank(codes: Sequence[str], level: str | None) -> int | None:
    return codes.index(level) if level in codes else None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None or np.isnan(value) else round(value, digits)


def _view(entry: Tested, row_of: Mapping[str, int]) -> dict[str, Any]:
    """Return a model's mean prediction for each clip that it was tested on.

    Probabilities are in thousandths, of each class, or of the second of two.
    """
    means = entry.means
    means = means[means["id"].isin([*row_of])]
    values = probabilities_of(means)
    columns = values.T if values.ndim == 2 else values[None]
    view: dict[str, Any] = {
        "run": entry.run.experiment.name,
        "model": entry.model,
        "test": entry.task.title,
        "classes": [kind.words for kind in entry.task.classes],
        "at": [row_of[clip] for clip in means["id"]],
        "label": means["label"].tolist(),
        "called": means["called"].tolist(),
        "p": np.rint(1000 * columns).astype(int).tolist(),
    }
    reasons = entry.run.reasons
    own = reasons[(reasons["model"] == entry.model) & (reasons["kind"] != "sensitivity")]
    if len(own):
        view["why"] = _reasons(entry, own, means["id"].tolist())
    return view


def _reasons(entry: Tested, reasons: pd.DataFrame, ids: list[str]) -> dict[str, Any]:
    """Return each prediction's parts, as means over fits, or the questions of a tree."""
    steps = questions(reasons)
    if not len(steps):
        names = [kind.words for kind in entry.task.classes]
        parts = [
            [[name, _rounded(part, 3)] for name, part in own]
            for own in mean_parts(reasons, ids).listed()
        ]
        return {"of": name_log_odds(names), "parts": parts}
    first = steps.groupby("id")["fit"].transform("min")
    by_clip: dict[str, list[str]] = {}
    for step in steps[steps["fit"] == first].itertuples(index=False):
        sign = ">" if step.above else "≤"
        text = f"{step.concept} {step.value:.3g} {sign} {step.threshold:.3g}"
        by_clip.setdefault(str(step.id), []).append(text)
    return {"of": "a tree", "steps": [by_clip.get(clip, []) for clip in ids]}
