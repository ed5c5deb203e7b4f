"""Pages of annotations and runs: single HTML files that need no network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from obygaze_features.annotations.agreement_measures import confusion
from obygaze_features.common.files import refuse_to_overwrite, require_suffix, write_text
from obygaze_features.common.formatting import counted, format_number, format_time
from obygaze_features.common.package import need
from obygaze_features.page.html import Html, document, number, read_thumbnails, script_json
from obygaze_models.report.cautions import alarms, cautions
from obygaze_models.report.explorer import explorer_data
from obygaze_models.report.films import films_of
from obygaze_models.report.people import (
    ALPHA_AXIS,
    People,
    compare_people,
    concept_table,
    level_table,
    people_of,
)
from obygaze_models.report.scores import Tested, leading, results, tested, verdicts
from obygaze_models.report.sources import Labels, Origin, citation, meanings, open_sources
from obygaze_models.report.timelines import film_segments, video_data
from obygaze_models.results.annotators import compare_with_each
from obygaze_models.results.run import Run

SCRIPTS = ("data.js", "lanes.js", "clip.js", "explorer.js", "films.js")


@cache
def open_templates() -> Any:
    """Return the environment of the templates, which compiles each of them once."""
    jinja2 = need("jinja2", extra="report")
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("obygaze_models.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["vs"] = versus
    return templates


def report(
    sources: Origin | Sequence[Origin],
    output: str | Path,
    *,
    title: str | None = None,
    thumbnails: str | Path | None = None,
    timelines: str | Path | None = None,
    videos: str | Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Write annotations, or the results of runs, as one HTML page, and return its path.

    All data is HTML-escaped.

    Parameters
    ----------
    sources
        One or more runs on the same labels. For a page without a model: a manifest with labels, or
        timelines, which are shown minute by minute. Folder paths are accepted.
    output
        The path of the page.
    title
        The page's title. By default, the name of the only run, or a description of the content.
    thumbnails
        A folder of pictures (ID.jpg) to embed. Do not share a page with pictures.
    timelines
        A folder of annotators' segments, shown in the lanes of each film.
    videos
        A folder with a video of each film or of each clip, for playing clips on the page.
    overwrite
        Replace an existing page.
    """
    output = Path(output)
    require_suffix(output, ".html")
    refuse_to_overwrite(output, overwrite=overwrite)
    templates = open_templates()
    labels, runs = open_sources(sources)
    people = people_of(labels)
    entries = tested(runs)
    main = leading(entries) if entries else None
    data = explorer_data(labels, people, entries, main)
    ids = labels.clips["id"]
    data["pictures"] = {} if thumbnails is None else read_thumbnails(Path(thumbnails), ids)
    data["segments"] = film_segments(labels, timelines or labels.timelines)
    data["videos"] = video_data(labels, videos, output)
    title = title or _title(labels, runs)
    values = _annotated(labels, people, main) | {"entries": entries, "main": main, "runs": runs}
    if main is not None:
        values |= _learned(labels, main, entries)
    body: str = templates.get_template("page.html").render(
        values,
        title=title,
        alarms=alarms(runs),
        cautions=cautions(runs),
        data=script_json(data),
        unplayed=data["videos"]["missing"],
        number=number,
        percent=partial(number, form="%"),
        whole=partial(number, form=","),
        bare=bare,
        format=tick,
        format_time=format_time,
        alpha_axis=ALPHA_AXIS,
    )
    folder = files("obygaze_models.report") / "templates"
    scripts = [(folder / name).read_text(encoding="utf-8") for name in SCRIPTS]
    script = '\n"use strict";\n{\n' + "\n".join(scripts) + "}\n"
    page = document(title, Html(body), script=script, plays_videos=videos is not None)
    write_text(output, page)
    return output


def bare(value: float | None, form: str = "") -> Html:
    """Return a number as `number` does, without a percent sign."""
    return Html(number(value, form=form).replace("%<", "<"))


def versus(value: float | None) -> str:
    """Return what a score is compared with, for the small text beside it."""
    return "" if value is None else f"vs {format_number(value)}"


def tick(value: float, form: str) -> str:
    """Format a number for an axis."""
    return format_number(value, ".0%" if form == "%" else ".1f")


def _title(labels: Labels, runs: Sequence[Run]) -> str:
    """Return the title: the only run's name, or what is shown and of how many films."""
    if len(runs) == 1:
        return runs[0].name
    shown = counted(len(labels.clips), labels.unit)
    if labels.has_films:
        shown = counted(len(labels.films), "film")
    if runs:
        return f"What models find in {shown}"
    if labels.annotators and not labels.by_a_rule:
        return f"What annotators marked in {shown}"
    return f"Labels of {shown}"


def _annotated(labels: Labels, people: People | None, main: Tested | None) -> dict[str, Any]:
    """Return the values about films, annotators and concepts."""
    concepts = concept_table(labels, people)
    names = [row.name for row in concepts.rows]
    values = {
        "labels": labels,
        "unit": labels.unit,
        "people": people,
        "films": films_of(labels, people, main),
        "concepts": concepts,
        "meanings": meanings(labels, names),
        "citation": citation(labels),
        "confusion": [],
        "kappas": None,
        "verdicts": None,
    }
    if people is None:
        return values
    values["marks"] = people.share(slice(None))
    tops = {labels.top: labels.positives}
    groups = {name: [code] for code, name in labels.levels.items()}
    values["marked_top"] = level_table(people, tops).rows[0]
    values["agreement"] = level_table(people, groups if main is None else tops)
    if len(people.names) == 2:
        first, second = people.codes
        values["confusion"] = confusion(first, second, len(labels.levels)).tolist()
    else:
        values["kappas"] = compare_people(people)
    return values


def _learned(labels: Labels, main: Tested, entries: Sequence[Tested]) -> dict[str, Any]:
    """Return the values about models."""
    run = main.run
    tables = results(entries, labels)
    leads = [row for table in tables for row in table.rows if row.entry is main]
    values = {
        "results": tables,
        "finding": leads[0],
        "full": leads[1] if len(leads) > 1 else None,
        "is_apart": not (run.header.also_trained or run.clips["leaked"].any()),
        "verdicts": verdicts(main),
    }
    compared = compare_with_each(run).get(main.task.key)
    if compared is not None:
        values["kappas"] = compared
    return values
