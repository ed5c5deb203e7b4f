"""Runs as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from obygaze_features.common.files import refuse_to_overwrite, write_text
from obygaze_features.common.package import need
from obygaze_features.errors import ExperimentError
from obygaze_features.page.html import Html, document, number
from obygaze_features.store import open_store
from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.experiments.messages import leaks_by_test
from obygaze_models.experiments.run_folder import AnyRun, Run, as_run
from obygaze_models.experiments.summary import UNCALIBRATED
from obygaze_models.explain.analyses import read_analysis
from obygaze_models.report.annotators import gamma_figure, load_annotators
from obygaze_models.report.concepts import concept_figures, concept_tables
from obygaze_models.report.explorer import (
    explorer_data,
    in_scene_order,
    read_thumbnails,
    script_json,
)
from obygaze_models.report.film_timelines import film_timelines
from obygaze_models.report.films import film_strips
from obygaze_models.report.findings import (
    alarms,
    cautions,
    concept_notes,
    findings,
    headline,
    limits,
    score_figure,
)
from obygaze_models.report.glossary import about, citation, eyebrow, glossary
from obygaze_models.report.runs import default_run, prepare_runs, score_tables

SCRIPTS = ("data.js", "strips.js", "timeline.js", "link.js", "clip.js", "explorer.js")


def report(
    runs: AnyRun | Sequence[AnyRun],
    output: str | Path,
    *,
    title: str | None = None,
    thumbnails: str | Path | None = None,
    analyses: Sequence[str | Path] = (),
    nearest: str | Path | None = None,
    frames: str | Path | None = None,
    moments: str | Path | None = None,
    timelines: str | Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the results of runs as one HTML page, and return its path.

    Whatever comes from data is escaped.

    Parameters
    ----------
    runs
        A run or several, or their folders, in the order of the page.
    output
        The page.
    title
        By default the name of the run.
    thumbnails
        A folder of pictures ID.jpg to hold inside the page; do not share such a page.
    analyses
        JSON files of ``obygaze models explain``, shown as tests of the models' concepts.
    nearest
        A store, by whose vectors the five clips nearest to each clip are found.
    frames, moments
        CSV files of ``obygaze models moments``, shown on the time axis of each film.
    timelines
        A folder of annotators' segments, shown above these.
    overwrite
        Replace an existing page.
    """
    refuse_to_overwrite(Path(output), overwrite=overwrite)
    jinja2 = need("jinja2", extra="report")
    several = [runs] if isinstance(runs, Run | str | Path) else runs
    if not several:
        raise ExperimentError("a report needs one run or more; name a run folder")
    prepared = prepare_runs([as_run(run) for run in several])
    names = dict.fromkeys(run.record.manifest.name for run in prepared)
    title = title or (
        prepared[0].name if len(prepared) == 1 else f"{len(prepared)} runs on {', '.join(names)}"
    )
    tables, main = score_tables(prepared), default_run(prepared)
    annotators = load_annotators(main)
    head = headline(tables, prepared, annotators)
    clips = {clip.id: clip for run in prepared for clip in run.clips.values()}
    images = {} if thumbnails is None else read_thumbnails(Path(thumbnails), clips)
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("obygaze_models.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    store = None if nearest is None else open_store(nearest)
    ordered = in_scene_order(clips)
    lanes = film_timelines(ordered, frames, moments, timelines)
    script = '\n"use strict";\n{\n' + "\n".join(map(_template, SCRIPTS)) + "}\n"
    films, opens = film_strips(head, ordered), (head.best.run, head.best.results)
    titles = {strip.film: strip.title for strip in films.films} if films else {}
    body: str = pages.get_template("page.html").render(
        title=title,
        runs=prepared,
        head=head,
        tables=tables,
        alarms=alarms(head, prepared),
        eyebrow=eyebrow(prepared),
        findings=findings(head),
        limits=limits(head),
        score_figure=score_figure(head),
        about=about(prepared),
        glossary=glossary(prepared),
        films=films,
        annotators=annotators,
        compared=head.best.run.record.annotators,
        uncalibrated=UNCALIBRATED,
        levels=main.record.manifest.levels,
        gamma_figure=gamma_figure(annotators, titles) if annotators and films else None,
        concept_figures=concept_figures(head, prepared),
        concepts=concept_tables(prepared),
        analyses=[read_analysis(Path(path)) for path in analyses],
        cautions=cautions(prepared, head),
        leaks_by_test=leaks_by_test,
        concept_notes=concept_notes(prepared),
        citation=citation(prepared),
        protocols=PROTOCOLS,
        explorer=script_json(explorer_data(opens, prepared, images, store, lanes)),
        images=len(images),
        clips=len(clips),
        number=number,
    )
    style = _template("explorer.css")
    write_text(Path(output), document(title, Html(body), style=style, script=script))
    return Path(output)


def _template(name: str) -> str:
    folder = files("obygaze_models.report") / "templates"
    return (folder / name).read_text(encoding="utf-8")
