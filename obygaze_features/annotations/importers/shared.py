"""What importers of timelines share: the table of films, their options, the closing words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from obygaze_features.annotations.cells import moment, unguarded
from obygaze_features.annotations.gathering import LEFT_OUT
from obygaze_features.annotations.timelines import Film, Remark, Timelines
from obygaze_features.common.commands import echo_json, json_option, overwrite_option
from obygaze_features.common.tables import read_table
from obygaze_features.common.words import counted, quote
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests.importers.shared import delimiter_of

__all__ = ["finish", "in_words", "output_options", "read_films"]

F = TypeVar("F", bound=Callable[..., Any])

SHOWN = 12


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
    table = read_table(path, delimiter=delimiter_of(path), required=["film"], marked=True)
    films: dict[str, Film] = {}
    for row, cells in enumerate(table.rows()):
        name, end = cells["film"], cells.get("end", "").strip()
        try:
            if name in films:
                raise AnnotationError(f"film {quote(name)} is there already")
            known = moment(end, "end") if end else None
            if known == 0:
                raise AnnotationError(f"film {quote(name)} ends where it starts")
        except AnnotationError as error:
            raise table.problem(row, str(error)) from None
        films[name] = Film(unguarded(cells.get("title", "").strip()), known)
    return films


def finish(timelines: Timelines, output: Path, *, overwrite: bool, as_json: bool) -> None:
    """Save, say what is there and what was odd; exit code 3 if rows were left out."""
    if not timelines.segments:
        first = f"; {in_words(timelines.remarks[0])}" if timelines.remarks else ""
        raise AnnotationError(f"the source holds no segment that can be read{first}")
    timelines.save(output, overwrite=overwrite)
    left_out = [one for one in timelines.remarks if one.done == LEFT_OUT]
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
        _say(timelines, output, len(left_out))
    if left_out:
        click.get_current_context().exit(3)


def _say(timelines: Timelines, output: Path, left_out: int) -> None:
    films, annotators = len(timelines.films), len(timelines.annotators)
    click.echo(
        f"{counted(len(timelines.segments), 'segment')} of {counted(films, 'film')} by "
        f"{counted(annotators, 'annotator')} -> {output}"
    )
    # What was left out first, as it is what is missed.
    remarks = sorted(timelines.remarks, key=lambda one: one.done != LEFT_OUT)
    for one in remarks[:SHOWN]:
        click.echo(in_words(one))
    if (more := len(remarks) - SHOWN) > 0:
        click.echo(f"and {more:,} more; {output / 'remarks.csv'} has all")
    if left_out:
        click.echo(f"{counted(left_out, 'row')} left out")
    click.echo(f"next: obygaze annotations show {output}")


def in_words(remark: Remark) -> str:
    """A remark as a line."""
    return f"{remark.where}: {remark.what} ({remark.done})"
