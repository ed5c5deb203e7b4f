"""Figures of how a model decides, and of what goes with its errors."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.heads import TreeHead
from obygaze_models.explain.error_factors import error_factors
from obygaze_models.figures.factors import factors
from obygaze_models.figures.marks import Series
from obygaze_models.figures.tree import tree
from obygaze_models.persistence import load_model
from obygaze_models.report.explorer import default_run, default_view
from obygaze_models.report.numbers import Html, html, key_of
from obygaze_models.report.pictures import Picture
from obygaze_models.report.shown import Shown

__all__ = ["errors", "first_tree"]

FEW_CLIPS = 40
"""With fewer test clips a film, factors of errors are only drawn of all films together."""


def first_tree(runs: Sequence[Shown]) -> Picture | None:
    """Figure 5: the first levels of the first tree of the explorer's first run, or of another."""
    main = default_run(runs)
    for run in [main, *(one for one in runs if one is not main)]:
        for one in run.results.explained:
            if one.kind != "path":
                continue
            found = _tree_of(run, one.model, one.task, one.run)
            if found is None:
                continue
            head, concepts, classes = found
            svg = tree(
                head,
                concepts,
                [Series(name, place % 6 + 1) for place, name in enumerate(classes)],
                title=f"The first questions of {one.model}",
                description=f"A tree of {len(head.left)} nodes over {len(concepts)} concepts.",
                key=key_of("tree", run.number, one.model, one.run),
            )
            caption = html(
                "{} of {}, fit {}: questions to what a clip measures along each concept; shares "
                "are of training clips. Each fit has a tree of its own.",
                one.model,
                run.name,
                one.run,
            )
            return Picture(Html(svg), caption)
    return None


def _tree_of(
    run: Shown, model: str, task: str, fit: int
) -> tuple[TreeHead, list[str], list[str]] | None:
    """A tree that was saved with the run; None where it is not there any more."""
    folder = run.results.run.folder
    try:
        lines = (folder / "models.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        said = json.loads(line)
        if (said["model"], said["task"], said["run"]) != (model, task, fit):
            continue
        path = folder / said["folder"]
        if not path.resolve().is_relative_to(folder.resolve()):
            return None
        try:
            loaded, about = load_model(path)
        except ExperimentError:
            return None
        if isinstance(getattr(loaded, "head_", None), TreeHead):
            names = [str(name) for name in loaded.bank_.get_feature_names_out()]
            return loaded.head_, names, list(about["classes"])
    return None


def errors(runs: Sequence[Shown]) -> Picture | None:
    """Figure 6: what goes with the errors of the explorer's first model, film by film."""
    run = default_run(runs)
    if run.record["experiment"]["concepts"]:
        return None
    view = default_view(run)
    clips = [run.clips[one] for one in view.ids]
    wrong = view.called != view.labels
    concepts = sorted({name for one in clips for name in one.concepts})
    levels = [
        code for code in run.record["manifest"]["levels"] if any(one.level == code for one in clips)
    ]
    marks = np.array(
        [
            [*(name in one.concepts for name in concepts), *(one.level == code for code in levels)]
            for one in clips
        ]
    )
    films = [one.film for one in clips]
    found = error_factors(wrong, marks, [*concepts, *levels], films)
    few = len(clips) / max(1, len(set(films))) < FEW_CLIPS
    svg = factors(
        found[:1] if few else found,
        {one.film: one.title for one in clips},
        title="What goes with errors",
        description="Coefficients of a ridge logistic regression of wrong on concepts and levels.",
        key=key_of("errors", run.number),
    )
    caption = html(
        "{} of {}, {} test clips, {} wrong. Each point: how much the log-odds of being wrong rise "
        "where a clip is marked so, others held; intervals by drawing clips anew, of all films by "
        "drawing films.{}",
        view.model,
        run.name,
        f"{len(clips):,}",
        f"{int(wrong.sum()):,}",
        " A film has too few test clips here to be drawn on its own; leave films out for that."
        if few
        else "",
    )
    return Picture(Html(svg), caption)
