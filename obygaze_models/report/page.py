"""A run as one HTML page that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obygaze_features.common.extras import need
from obygaze_features.common.files import refuse_to_overwrite, write_text
from obygaze_models.experiments.join import Join
from obygaze_models.experiments.run import Run
from obygaze_models.experiments.summary import film_rows, main_metric, metrics_of, summary_rows

__all__ = ["render_report", "write_report"]


def write_report(run: Run, output: Path, *, overwrite: bool = False) -> Path:
    """Write the page of a run, and give its path."""
    refuse_to_overwrite(output, overwrite=overwrite)
    write_text(output, render_report(run))
    return output


def render_report(run: Run) -> str:
    """The page of a run as HTML. Whatever comes from data is escaped."""
    jinja2 = need("jinja2", extra="report")
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("obygaze_models.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    record = run.record
    page: str = pages.get_template("page.html").render(
        record=record,
        metrics=metrics_of(record),
        rows=summary_rows(record),
        films=film_rows(record),
        findings=_findings(record),
        caveats=_caveats(record),
    )
    return page


def _findings(record: Mapping[str, Any]) -> list[str]:
    """A sentence for each model and test set: its main score beside the best guess's."""
    metric = main_metric(record)
    title = {"f1": "positive-class F1", "f1_macro": "macro F1"}[metric]
    sentences = []
    for of in record["scores"]:
        test, reached = record["tests"][of["test"]], of["mean"][metric]
        where = ", ".join(f"{count} are {name}" for name, count in test["classes"].items())
        if test["positives"] is not None:
            where = f"{test['positives']} of {test['clips']} clips are positive"
        if reached is None:
            said = f"has no {title}: nothing was called positive"
        else:
            said = f"reaches a {title} of {reached:.2f}{_interval(of, metric)}"
        guesses = {name: scores[metric] for name, scores in test["baselines"].items()}
        beside = ""
        if guesses:
            best = max(guesses, key=guesses.__getitem__)
            above = reached is not None and reached > guesses[best]
            beside = (
                f", {'above' if above else 'not above'} the best guess ({best}: "
                f"{guesses[best]:.2f})"
            )
        sentences.append(f"On {of['test']}, where {where}, {of['model']} {said}{beside}.")
    return sentences


def _interval(of: Mapping[str, Any], metric: str) -> str:
    ends = of["interval"].get(metric)
    if ends is None:
        return ""
    return f" (95% interval over draws of {of['films']} films: {ends[0]:.2f} to {ends[1]:.2f})"


def _caveats(record: Mapping[str, Any]) -> list[str]:
    """What this run's data do not allow one to conclude."""
    return [
        *(_about_test(name, test) for name, test in record["tests"].items()),
        _about_runs(record),
        _about_leaks(record["leaked"]),
        *_about_films(record["films"]),
        *_about_join(Join(**record["join"])),
    ]


def _about_test(name: str, test: Mapping[str, Any]) -> str:
    if test["positives"] is None:
        return (
            f"{name}: macro F1 counts each class alike, weighted F1 each clip; the smallest class "
            f"has {min(test['classes'].values())} of the {test['clips']} test clips."
        )
    return (
        f"{name}: {test['share']:.0%} of the {test['clips']} test clips are positive. F1 and AP "
        "depend on this share: compare within this test set, with the guesses at the same share. "
        f"One positive clip more or less found moves recall by {1 / test['positives']:.3f}."
    )


def _about_runs(record: Mapping[str, Any]) -> str:
    runs = len({draw["run"] for draw in record["draws"]})
    if record["protocol"] in ("leave-film-out", "split"):
        return (
            f"The {runs} runs test different clips. Their standard deviation says how much scores "
            "differ between those, not how sure the mean is; for that see the interval."
        )
    return (
        f"The {runs} runs share one test fold. Their standard deviation says how much the choice "
        "of training clips and chance matter, not how another test set would score; the interval "
        "over draws of films says more of that."
    )


def _about_leaks(leaked: list[str]) -> str:
    if not leaked:
        return "No test clip was used for training or for stopping; this was checked id by id."
    return (
        f"{len(leaked)} test clips were used for training or for stopping: the scores are too high."
    )


def _about_films(films: Mapping[str, int]) -> list[str]:
    if not films["also_trained"]:
        return []
    return [
        f"Of the {films['tested']} films in the test sets, {films['also_trained']} have other "
        "clips in training: the scores say little about a film that was never seen."
    ]


def _about_join(joined: Join) -> list[str]:
    used = f"{joined.used} of the {joined.labelled} clips with a label that is used here"
    return [f"{used} have a fold and features.", *(f"{line}." for line in joined.lines())]
