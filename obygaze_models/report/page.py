"""Runs as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from obygaze_features.common.files import refuse_to_overwrite, write_text
from obygaze_features.common.package import need
from obygaze_features.errors import ExperimentError
from obygaze_models.experiments.run_folder import Results
from obygaze_models.report import diagnosis, pictures
from obygaze_models.report.arrange import group_runs
from obygaze_models.report.caveats import (
    cautions,
    caveats,
    concept_notes,
    differences,
    leak_rows,
)
from obygaze_models.report.concepts import concept_tables
from obygaze_models.report.explorer import default_run, explorer_data, script_json
from obygaze_models.report.films import film_tables
from obygaze_models.report.findings import findings, score_key
from obygaze_models.report.glossary import about, glossary
from obygaze_models.report.numbers import Html, number
from obygaze_models.report.shown import Shown, shown_runs
from obygaze_models.report.thumbnails import read_thumbnails

__all__ = ["render_report", "write_report"]

SCRIPTS = (
    "explorer-data.js", "theme.js", "explorer-strips.js", "explorer-clip.js", "explorer.js",
)  # fmt: skip


def write_report(
    runs: Sequence[Results],
    output: Path,
    *,
    title: str | None = None,
    thumbnails: Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the page of one or several runs, and give its path.

    Parameters
    ----------
    runs
        As `read_results` reads them, in the order in which they are to stand.
    output
        The file to write.
    title
        The page's; by default the only run's name.
    thumbnails
        A folder of pictures ``ID.jpg`` to hold inside the page, which is then not to be shared.
    overwrite
        Replace what lies at `output`.
    """
    refuse_to_overwrite(output, overwrite=overwrite)
    write_text(output, render_report(runs, title=title, thumbnails=thumbnails))
    return output


def render_report(
    runs: Sequence[Results], *, title: str | None = None, thumbnails: Path | None = None
) -> str:
    """The page of runs as HTML. Whatever comes from data is escaped."""
    jinja2 = need("jinja2", extra="report")
    if not runs:
        raise ExperimentError("a report is of one run or more; name a run folder")
    shown = shown_runs(runs)
    groups = group_runs(shown)
    ids = dict.fromkeys(one for run in shown for one in run.clips)
    images = {} if thumbnails is None else read_thumbnails(thumbnails, ids)
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("obygaze_models.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _script()
    page: str = pages.get_template("page.html").render(
        title=title or _title(shown),
        runs=shown,
        main=default_run(shown),
        groups=groups,
        cautions=cautions(shown),
        findings=findings(groups, shown),
        about=about(shown),
        glossary=glossary(shown),
        differences=differences(shown),
        caveats=caveats(groups, shown),
        leaks=leak_rows(shown),
        concept_notes=concept_notes(shown),
        films=film_tables(shown),
        concepts=concept_tables(shown),
        annotated=pictures.annotated(shown),
        group_scores=pictures.group_scores,
        concept_scores=pictures.concept_scores,
        tree=diagnosis.first_tree(shown),
        errors=diagnosis.errors(shown),
        explorer=script_json(explorer_data(shown, images)),
        images=len(images),
        clips=len(ids),
        number=number,
        score_key=score_key,
        style=Html(_template("style.css")),
        script=Html(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return page


def _title(runs: Sequence[Shown]) -> str:
    if len(runs) == 1:
        return runs[0].name
    names = dict.fromkeys(str(run.record.manifest.name) for run in runs)
    return f"{len(runs)} runs on {', '.join(names)}"


def _script() -> str:
    """The page's script; its policy names the digest, so that no other one runs."""
    return '\n"use strict";\n{\n' + "\n".join(map(_template, SCRIPTS)) + "}\n"


def _template(name: str) -> str:
    folder = files("obygaze_models.report") / "templates"
    return (folder / name).read_text(encoding="utf-8")
