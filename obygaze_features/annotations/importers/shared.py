"""What importers of timelines share: the table of films, their options, the closing words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from obygaze_features.annotations.cells import moment, unguarded
from obygaze_features.annotations.remarks import LEFT_OUT, any_left_out, remark_lines
from obygaze_features.annotations.timelines import Film, Timelines
from obygaze_features.common.cli import echo_json, json_option, overwrite_option
from obygaze_features.common.tables import map_columns, read_table
from obygaze_features.common.text import counted, for_shell, shorten
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests.items import safe_id

__all__ = ["finish", "output_options", "read_films"]

COLUMNS = ("film", "title", "end")
F = TypeVar("F", bound=Callable[..., Any])


def output_options(function: F) -> F:
    """The options ``--films``, ``--output``, ``--overwrite`` and ``--json``."""
    films = click.option(
        "--films",
        "films",
        type=click.Path(path_type=Path),
        help="A table of films: film, title, end (seconds or h:mm:ss).",
    )
    output = click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        required=True,
        help="The timelines' folder.",
    )
    decorated: F = films(output(overwrite_option(json_option(function))))
    return decorated


def read_films(path: Path | None) -> dict[str, Film]:
    """The films of a table ``film,title,end``; titles and ends may be missing."""
    if path is None:
        return {}
    meanings = dict.fromkeys((*COLUMNS, "start"), ())
    table = map_columns(read_table(path, delimiter=None), meanings, required=["film"])
    if table.columns.keys().isdisjoint(COLUMNS[1:]) or "start" in table.columns:
        raise AnnotationError(
            f"{path} is no table of films, which has the columns film, title, end; "
            f"there are {', '.join(table.columns)}"
        )
    films: dict[str, Film] = {}
    seen: set[str] = set()
    for row, cells in enumerate(table.rows()):
        name, end = unguarded(cells["film"].strip()), cells.get("end", "").strip()
        try:
            if safe_id(name) in seen:
                raise AnnotationError(f"film {shorten(name)} is there already")
            known = moment(end, "end", table.delimiter) if end else None
            if known == 0:
                raise AnnotationError(f"film {shorten(name)} ends where it starts")
        except AnnotationError as error:
            raise table.problem(row, str(error)) from None
        seen.add(safe_id(name))
        films[name] = Film(unguarded(cells.get("title", "").strip()), known)
    return films


def finish(timelines: Timelines, output: Path, *, overwrite: bool, as_json: bool) -> None:
    """Save, say what is there and what was odd; exit code 3 if rows were left out."""
    if not timelines.segments:
        first = "; ".join(["", *remark_lines(timelines.remarks[:1], "")])
        raise AnnotationError(f"{timelines.name} holds no segment that can be read{first}")
    timelines.save(output, overwrite=overwrite)
    if as_json:
        echo_json(
            {
                "output": str(output),
                "segments": len(timelines.segments),
                "films": list(timelines.films),
                "annotators": timelines.annotators,
                "remarks": [vars(one) for one in timelines.remarks],
            }
        )
    else:
        _say(timelines, output)
    if any_left_out(timelines.remarks):
        click.get_current_context().exit(3)


def _say(timelines: Timelines, output: Path) -> None:
    films, annotators = len(timelines.films), len(timelines.annotators)
    click.echo(
        f"{counted(len(timelines.segments), 'segment')} of {counted(films, 'film')} by "
        f"{counted(annotators, 'annotator')} -> {output}"
    )
    for line in remark_lines(timelines.remarks, f"{output / 'remarks.csv'} has all"):
        click.echo(line)
    if left_out := sum(one.done == LEFT_OUT for one in timelines.remarks):
        click.echo(f"{counted(left_out, 'row')} left out")
    click.echo(f"next: obygaze annotations show {for_shell(output)}")
