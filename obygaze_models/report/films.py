"""Scores film by film: of films that were left out, or of each film's clips in a test fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from obygaze_models.metrics import Scores, f1_titles, score
from obygaze_models.published import published_film
from obygaze_models.report.html import Html, html, number
from obygaze_models.report.runs import ModelResults, ReportRun, default_run

__all__ = ["FilmTable", "film_tables"]

MAX_TABLES = 3
"""With more runs, only those that left films out and the explorer's first have a table."""


@dataclass(frozen=True)
class FilmTable:
    """A table: `column_groups` are headings and the titles of their columns; cells are HTML.

    `count_title` names the class whose clips are counted.
    """

    title: str
    caption: str
    count_title: str
    column_groups: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[tuple[Html, ...], ...]


def film_tables(runs: Sequence[ReportRun]) -> list[FilmTable]:
    """A table a run and, where films were left out, a test set."""
    chosen = [
        run
        for run in runs
        if not run.record.experiment["concepts"]
        and any(clip.film for clip in run.clips.values())
        and (
            len(runs) <= MAX_TABLES or run.protocol == "leave-film-out" or run is default_run(runs)
        )
    ]
    tables = []
    for run in chosen:
        if run.protocol == "leave-film-out":
            tables += [_left_out(run, test) for test in run.record.tests]
        else:
            tables.append(_in_fold(run))
    return tables


def _left_out(run: ReportRun, test: str) -> FilmTable:
    scores = [entry for entry in run.record.scores if entry.test == test]
    titles = {clip.film: clip.title for clip in run.clips.values()}
    averages = f1_titles(multiclass=bool(run.record.experiment["levels"]))
    train = run.train_of(test)
    films = list(dict.fromkeys(film for entry in scores for film in entry.groups))
    papers = {
        (entry.model, film): paper
        for entry in scores
        for film in films
        if (paper := published_film(run.record, entry.model, train, test, film))
    }
    with_paper = list(dict.fromkeys(model for model, _ in papers))
    column_groups = []
    for entry in scores:
        column_groups.append((str(entry.model), tuple(averages.values())))
        if entry.model in with_paper:
            column_groups.append(("Paper", ("Table 4",)))
    rows = []
    for film in films:
        cells = [html("{}", titles.get(film, film)), *_counts(run, film, test)]
        for entry in scores:
            for metric in averages:
                key = "film", run.number, entry.model, test, film, metric
                group = entry.groups.get(film)
                cells.append(
                    html(
                        "{} <small>({})</small>",
                        number(group.mean[metric], *key, "mean"),
                        number(group.std[metric], *key, "std"),
                    )
                    if group
                    else number(None)
                )
            if entry.model in with_paper:
                paper = papers.get((entry.model, film))
                cells.append(
                    html(
                        "{} <small>({})</small>",
                        number(paper.mean, "published", "Table 4", film),
                        number(paper.std, "published", "Table 4", film, "std"),
                    )
                    if paper
                    else number(None)
                )
        rows.append(tuple(cells))
    note = ""
    if with_paper:
        note = (
            f" The paper’s Table 4 stands beside {', '.join(with_paper)}; which average it printed "
            "is not said, its code scores networks by weighted F1."
        )
    return FilmTable(
        f"{run.name}: {test}",
        "Each film in turn was left out of training and tested; mean and, in brackets, standard "
        f"deviation over the fits that tested it, one for each validation film.{note}",
        _count_title(run),
        tuple(column_groups),
        tuple(rows),
    )


def _in_fold(run: ReportRun) -> FilmTable:
    multiclass = bool(run.record.experiment["levels"])
    averages = f1_titles(multiclass=multiclass)
    films = list(dict.fromkeys(clip.film for clip in run.clips.values() if clip.film))
    titles = {clip.film: clip.title for clip in run.clips.values()}
    by_model = {results.model: _by_film(run, results) for results in run.models}
    rows = []
    for film in films:
        cells = [html("{}", titles[film]), *_counts(run, film)]
        for results in run.models:
            scores = by_model[results.model].get(film, {})
            for metric in averages:
                key = "film", run.number, results.model, "pooled", film, metric
                cells.append(number(scores.get(metric), *key))
        rows.append(tuple(cells))
    return FilmTable(
        run.name,
        "Scores of each film’s test clips, by the mean probability over the fits. Of few clips a "
        "score says little: their numbers stand beside them.",
        _count_title(run),
        tuple((results.model, tuple(averages.values())) for results in run.models),
        tuple(rows),
    )


def _by_film(run: ReportRun, results: ModelResults) -> dict[str, Scores]:
    means = results.predictions
    films = np.array([run.clips[clip].film for clip in means.ids])
    return {
        str(film): score(means.labels[films == film], means.probabilities[films == film])
        for film in np.unique(films)
    }


def _counts(run: ReportRun, film: str, test: str = "") -> list[Html]:
    """Test clips of a film, and how many of them are of the last class."""
    label_of = {
        clip: label
        for fit in run.results.said
        if test in ("", fit.test)
        for clip, label in zip(fit.ids, fit.labels.tolist(), strict=True)
        if run.clips[clip].film == film
    }
    last = len(run.models[0].classes) - 1
    key = "film", run.number, film, test or "all"
    return [
        number(len(label_of), *key, "clips", form=","),
        number(sum(label == last for label in label_of.values()), *key, "positives", form=","),
    ]


def _count_title(run: ReportRun) -> str:
    classes = run.models[0].classes
    return "Positive" if len(classes) == 2 else classes[-1]
