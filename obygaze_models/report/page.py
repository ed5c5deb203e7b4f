"""Reports as single HTML pages that need no network and no other files."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features import Manifest, Timelines
from obygaze_features.common.files import refuse_to_overwrite, write_text
from obygaze_features.common.package import need
from obygaze_features.common.text import counted, for_shell, format_time
from obygaze_features.errors import ExperimentError
from obygaze_features.page.html import Html, document, number, read_thumbnails, script_json
from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.experiments.annotators import compare_with_each
from obygaze_models.experiments.tables import AnyRun, Run, as_run
from obygaze_models.explain.clips import Clip
from obygaze_models.report.annotation import Annotation, Source, labelled_by, open_annotation
from obygaze_models.report.annotators import (
    gamma_figure,
    levels_figure,
    load_annotators,
    marked_films,
    overlap,
)
from obygaze_models.report.concepts import concept_figures, concept_tables
from obygaze_models.report.explorer import explorer_data, in_scene_order
from obygaze_models.report.film_timelines import film_timelines, video_data
from obygaze_models.report.films import film_strips
from obygaze_models.report.findings import beside_annotators, findings
from obygaze_models.report.glossary import about, citation, eyebrow, glossary, page_title
from obygaze_models.report.headline import Headline, headline
from obygaze_models.report.limits import alarms, cautions, concept_notes, limits
from obygaze_models.report.results import MAX_ROWS, differences, results, score_cell
from obygaze_models.report.runs import (
    ReportRun,
    ScoreTable,
    default_run,
    prepare_runs,
    score_tables,
)
from obygaze_models.report.score_figure import score_figure

if TYPE_CHECKING:
    from jinja2 import Environment

Origin = AnyRun | Manifest | Timelines
"""Anything that a page can be made from."""
SCRIPTS = ("data.js", "strips.js", "timeline.js", "link.js", "clip.js", "explorer.js")


def report(
    sources: Origin | Sequence[Origin],
    output: str | Path,
    *,
    title: str | None = None,
    thumbnails: str | Path | None = None,
    frames: str | Path | None = None,
    moments: str | Path | None = None,
    timelines: str | Path | None = None,
    videos: str | Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Write annotations, or the results of runs, as one HTML page, and return its path.

    All data is HTML-escaped.

    Parameters
    ----------
    sources
        One or more runs, in the order of the page. For a page without a model: a manifest with
        labels, or timelines, which are shown minute by minute. Folder paths are accepted.
    output
        The path of the page.
    title
        The page's title. By default, the name of the only run, or a description of the content.
    thumbnails
        A folder of pictures (ID.jpg) to embed. Do not share a page with pictures.
    frames, moments
        CSV files of ``obygaze models moments``, shown on the time axis of each film.
    timelines
        A folder of annotators' segments, shown above the frames.
    videos
        A folder with a video of each film or of each clip, for playing clips on the page.
    overwrite
        Replace an existing page.
    """
    refuse_to_overwrite(Path(output), overwrite=overwrite)
    pages = _templates()
    runs, annotation = open_sources(sources)
    _require_classes(runs)
    page_sources: list[Source] = [annotation] if annotation else [*runs]
    main: Source = annotation or default_run(runs)
    tables = score_tables(runs)
    annotators = load_annotators(main)
    head = headline(tables, main, annotators)
    clips = {clip.id: clip for source in page_sources for clip in source.clips.values()}
    images = {} if thumbnails is None else read_thumbnails(Path(thumbnails), clips)
    ordered = in_scene_order(clips)
    segments = timelines or (annotation.timelines if annotation else None)
    lanes = film_timelines(ordered, frames, moments, segments)
    script = '\n"use strict";\n{\n' + "\n".join(map(_template, SCRIPTS)) + "}\n"
    played = video_data(ordered, videos, Path(output))
    opens = head.opens.results if head.rows else None
    title = title or page_title(runs, main)
    body: str = pages.get_template("page.html").render(
        _findings(head, runs, tables)
        | _annotated(head, page_sources, ordered)
        | _models(head, runs, tables),
        title=title,
        rule=annotation.rule if annotation else "",
        protocols=PROTOCOLS,
        explorer=script_json(
            explorer_data(opens, page_sources, images, lanes) | {"videos": played}
        ),
        played=played["of"],
        unplayed=played["missing"],
        images=len(images),
        clips=len(clips),
        number=number,
        clock=format_time,
    )
    style = _template("explorer.css")
    write_text(Path(output), document(title, Html(body), style=style, script=script))
    return Path(output)


def _require_classes(runs: Sequence[ReportRun]) -> None:
    """Raise if a run does not predict classes, because pages support only classes."""
    for run in runs:
        record = run.record
        if any(record.task(test).target.is_numeric for test in record.tests):
            raise ExperimentError(
                f"{record.experiment.name!r}: a page supports only classes, not numbers. To print "
                "the scores and compare the models, use: "
                f"obygaze models compare {for_shell(run.run.folder)}"
            )


def _templates() -> Environment:
    jinja2 = need("jinja2", extra="report")
    pages: Environment = jinja2.Environment(
        loader=jinja2.PackageLoader("obygaze_models.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages


def _findings(
    head: Headline, runs: Sequence[ReportRun], tables: Sequence[ScoreTable]
) -> dict[str, Any]:
    """Return the content of the first screen, and the cautions."""
    return {
        "head": head,
        "results": results(head, tables),
        "differences": differences(head, runs),
        "score_cell": score_cell,
        "max_results": MAX_ROWS,
        "alarms": alarms(head, runs) if runs else [],
        "findings": findings(head),
        "beside": beside_annotators(head) if runs else [],
        "limits": limits(head),
        "score_figure": score_figure(head),
        "cautions": cautions(runs, head.run) if runs else [],
    }


def _annotated(
    head: Headline, sources: Sequence[Source], ordered: Sequence[Clip]
) -> dict[str, Any]:
    """Return the content about films, annotators and terms."""
    main, annotators = head.source, head.annotators
    marked = marked_films(main, annotators)
    films = film_strips(head, ordered)
    titles = {strip.film: strip.title for strip in films.films} if films else {}
    gammas = gamma_figure(annotators, titles) if annotators and films else None
    compared = compare_with_each(head.row.run.run) if head.metric else {}
    agreed = compared or (annotators and annotators.kappas)
    return {
        "noun": main.noun,
        "top": " or ".join(main.about.levels.get(code, code) for code in main.positives),
        "levels": main.about.levels,
        "eyebrow": eyebrow(sources),
        "about": about(sources),
        "citation": citation(sources),
        "glossary": glossary(sources, kappa=bool(agreed), gamma=gammas is not None),
        "films": films,
        "titles": titles,
        "annotators": annotators,
        "labelled_by": labelled_by(main),
        "compared": compared,
        "tasks": {test: head.row.run.record.task(test) for test in compared},
        "gamma_figure": gammas,
        "marked": marked,
        "levels_figure": levels_figure(marked),
        "overlap": overlap(main, annotators),
    }


def _models(
    head: Headline, runs: Sequence[ReportRun], tables: Sequence[ScoreTable]
) -> dict[str, Any]:
    """Return the content about models: scores, stores, concepts and leaks."""
    return {
        "runs": runs,
        "tables": tables,
        "concept_figures": concept_figures(head, runs),
        "concepts": concept_tables(runs),
        "concept_notes": concept_notes(runs),
    }


def open_sources(
    sources: Origin | Sequence[Origin],
) -> tuple[list[ReportRun], Annotation | None]:
    """Open the sources as runs, or as annotations if the source is a manifest or timelines."""
    if isinstance(sources, Run | Manifest | Timelines | str | Path):
        sources = [sources]
    annotations = [annotation for part in sources if (annotation := open_annotation(part))]
    if len(annotations) == len(sources) == 1:
        return [], annotations[0]
    if annotations or not sources:
        raise ExperimentError(
            "a report needs one label source (a manifest or timelines), or one or more runs (got "
            f"{counted(len(annotations), 'label source')} and "
            f"{counted(len(sources) - len(annotations), 'run')}). Pass one label source, or runs"
        )
    runs = [as_run(run) for run in sources if isinstance(run, Run | str | Path)]
    return prepare_runs(runs), None


def _template(name: str) -> str:
    folder = files("obygaze_models.report") / "templates"
    return (folder / name).read_text(encoding="utf-8")
