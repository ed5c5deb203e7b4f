"""Figures of how a model decides, and of what goes with its errors."""

from __future__ import annotations

import re
from collections.abc import Sequence

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.trees import TreeArrays, as_tree
from obygaze_models.experiments.run_folder import saved_models
from obygaze_models.explain.error_factors import factors_of_clips
from obygaze_models.figures import error_factors, inline_svg, level_series, tree_outline
from obygaze_models.persistence import load_model
from obygaze_models.published import NETWORKS, estimator_of
from obygaze_models.report.explorer import default_run, default_view
from obygaze_models.report.numbers import Html, html, number
from obygaze_models.report.pictures import Picture
from obygaze_models.report.shown import Shown, View

__all__ = ["errors", "first_tree"]

_YEAR = re.compile(r" \(\d{4}\)$")
FEW_CLIPS = 40
"""With fewer test clips a film, factors of errors are only drawn of all films together."""


def first_tree(runs: Sequence[Shown]) -> Picture | None:
    """Figure 5: the first levels of the first tree of the explorer's first run, or of another."""
    main = default_run(runs)
    for run in [main, *(one for one in runs if one is not main)]:
        for one in run.results.explained:
            if one.kind != "path":
                continue
            found = _tree_of(run, one.model, one.task, one.fit)
            if found is None:
                continue
            head, concepts, classes = found
            figure = tree_outline(
                head,
                concepts,
                level_series({name: name for name in classes}),
                title=f"The first questions of {one.model}",
                description=f"A tree of {len(head.left)} nodes over {len(concepts)} concepts.",
            )
            caption = html(
                "{} of {}, fit {}: questions to what a clip measures along each concept; shares "
                "are of training clips. Each fit has a tree of its own.",
                one.model,
                run.name,
                one.fit,
            )
            return Picture(Html(inline_svg(figure)), caption)
    return None


def _tree_of(
    run: Shown, model: str, task: str, fit: int
) -> tuple[TreeArrays, list[str], list[str]] | None:
    """A tree that was saved with the run; None where it is not there any more."""
    for said in saved_models(run.results.run):
        if (said["model"], said["task"], said["fit"]) == (model, task, fit):
            try:
                loaded, about = load_model(run.results.run.folder / said["folder"])
            except ExperimentError:
                return None
            tree = as_tree(getattr(loaded, "head_", None))
            if tree is not None and hasattr(loaded, "concept_names"):
                return tree, list(loaded.concept_names()), list(about["classes"])
    return None


def errors(runs: Sequence[Shown]) -> Picture | None:
    """Figure 6: what goes with a model's errors, film by film; see `_judged`."""
    run, view = _judged(runs)
    if run.record.experiment["concepts"]:
        return None
    said = view.said
    clips = [run.clips[one] for one in said.ids]
    found = factors_of_clips(clips, said.wrong, list(run.record.manifest.levels))
    few = len(clips) / len({one.film for one in clips}) < FEW_CLIPS
    figure = error_factors(
        found[:1] if few else found,
        {one.film: _YEAR.sub("", one.title) for one in clips},
        title=f"What goes with the errors of {view.model}",
        description="Coefficients of a ridge logistic regression of wrong on concepts and levels.",
    )
    caption = html(
        "{} of {}, {} test clips, {} wrong. Each point: how much the log-odds of being wrong rise "
        "where a clip is marked so, others held; intervals by drawing clips anew, of all films by "
        "drawing films.{}",
        view.model,
        run.name,
        number(len(clips), "judged", run.number, view.model, "clips", form=","),
        number(int(said.wrong.sum()), "judged", run.number, view.model, "wrong", form=","),
        " A film has too few test clips here to be drawn on its own; leave films out for that."
        if few
        else "",
    )
    return Picture(Html(inline_svg(figure)), caption)


def _judged(runs: Sequence[Shown]) -> tuple[Shown, View]:
    """A network that never saw the film, as in the paper's figure; else the explorer's first."""
    for run in runs:
        for view in run.views if run.protocol == "leave-film-out" else ():
            if estimator_of(run.record, view.model) in NETWORKS:
                return run, view
    run = default_run(runs)
    return run, default_view(run)
