"""Scores film by film: of films that were left out, or of each film's clips in a test fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from obygaze_models.metrics import Scores, f1_titles, score
from obygaze_models.published import published_film
from obygaze_models.report.explorer import default_run
from obygaze_models.report.numbers import Html, html, number
from obygaze_models.report.shown import Shown, View

__all__ = ["FilmTable", "film_tables"]

FEW = 3
"""So many runs have a table each; of more those that left films out, and the explorer's first."""


@dataclass(frozen=True)
class FilmTable:
    """A table: each of `heads` stands above the titles of its columns, cells are HTML.

    `counted` names the class whose clips are counted.
    """

    title: str
    caption: str
    counted: str
    heads: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[tuple[Html, ...], ...]


def film_tables(runs: Sequence[Shown]) -> list[FilmTable]:
    """A table a run and, where films were left out, a test set."""
    chosen = [
        run
        for run in runs
        if not run.record.experiment["concepts"]
        and any(one.film for one in run.clips.values())
        and (len(runs) <= FEW or run.protocol == "leave-film-out" or run is default_run(runs))
    ]
    tables = []
    for run in chosen:
        if run.protocol == "leave-film-out":
            tables += [_left_out(run, test) for test in run.record.tests]
        else:
            tables.append(_in_fold(run))
    return tables


def _left_out(run: Shown, test: str) -> FilmTable:
    scores = [of for of in run.record.scores if of.test == test]
    titles = {one.film: one.title for one in run.clips.values()}
    averages = f1_titles(multiclass=bool(run.record.experiment["levels"]))
    train = run.train_of(test)
    films = list(dict.fromkeys(film for of in scores for film in of.groups))
    papers = {
        (of.model, film): paper
        for of in scores
        for film in films
        if (paper := published_film(run.record, of.model, train, test, film))
    }
    beside = list(dict.fromkeys(model for model, _ in papers))
    heads = []
    for of in scores:
        heads.append((str(of.model), tuple(averages.values())))
        if of.model in beside:
            heads.append(("Paper", ("Table 4",)))
    rows = []
    for film in films:
        cells = [html("{}", titles.get(film, film)), *_counts(run, film, test)]
        for of in scores:
            for metric in averages:
                key = "film", run.number, of.model, test, film, metric
                said = of.groups.get(film)
                cells.append(
                    html(
                        "{} <small>({})</small>",
                        number(said.mean[metric], *key, "mean"),
                        number(said.std[metric], *key, "std"),
                    )
                    if said
                    else number(None)
                )
            if of.model in beside:
                paper = papers.get((of.model, film))
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
    if beside:
        note = (
            f" The paper’s Table 4 stands beside {', '.join(beside)}; which average it printed is "
            "not said, its code scores networks by weighted F1."
        )
    return FilmTable(
        f"{run.name}: {test}",
        "Each film in turn was left out of training and tested; mean and, in brackets, standard "
        f"deviation over the fits that tested it, one for each validation film.{note}",
        _counted(run),
        tuple(heads),
        tuple(rows),
    )


def _in_fold(run: Shown) -> FilmTable:
    several = bool(run.record.experiment["levels"])
    averages = f1_titles(multiclass=several)
    films = list(dict.fromkeys(one.film for one in run.clips.values() if one.film))
    titles = {one.film: one.title for one in run.clips.values()}
    by_model = {view.model: _by_film(run, view) for view in run.views}
    rows = []
    for film in films:
        cells = [html("{}", titles[film]), *_counts(run, film)]
        for view in run.views:
            scores = by_model[view.model].get(film, {})
            for metric in averages:
                key = "film", run.number, view.model, "pooled", film, metric
                cells.append(number(scores.get(metric), *key))
        rows.append(tuple(cells))
    return FilmTable(
        run.name,
        "Scores of each film’s test clips, by the mean probability over the fits. Of few clips a "
        "score says little: their numbers stand beside them.",
        _counted(run),
        tuple((view.model, tuple(averages.values())) for view in run.views),
        tuple(rows),
    )


def _by_film(run: Shown, view: View) -> dict[str, Scores]:
    said = view.said
    films = np.array([run.clips[one].film for one in said.ids])
    return {
        str(film): score(said.labels[films == film], said.probabilities[films == film])
        for film in np.unique(films)
    }


def _counts(run: Shown, film: str, test: str = "") -> list[Html]:
    """Test clips of a film, and how many of them are of the last class."""
    label_of = {
        one: label
        for said in run.results.said
        if test in ("", said.test)
        for one, label in zip(said.ids, said.labels.tolist(), strict=True)
        if run.clips[one].film == film
    }
    last = len(run.views[0].classes) - 1
    key = "film", run.number, film, test or "all"
    return [
        number(len(label_of), *key, "clips", form=","),
        number(sum(label == last for label in label_of.values()), *key, "positives", form=","),
    ]


def _counted(run: Shown) -> str:
    classes = run.views[0].classes
    return "Positive" if len(classes) == 2 else classes[-1]
