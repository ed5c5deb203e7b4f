"""Command-line options that several importers share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from obygaze_features.common.cli import PATH, Command, join_options
from obygaze_features.errors import UsageError

source_argument = click.argument("source", type=PATH)
annotator_option = click.option(
    "--annotator",
    metavar="NAME",
    help="The annotator, if one person made all labels, so that annotators can be compared.",
)
film_table_option = click.option("--film-table", "films", type=PATH,
    help="A table of films: film, title, end (seconds or h:mm:ss).",
)  # fmt: skip


def _note_download(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta["download"] = value


def _check_source(ctx: click.Context, param: click.Parameter, source: Path | None) -> Path | None:
    is_download = ctx.meta["download"] or ctx.params["url"] is not None
    if (source is None) != is_download:
        raise UsageError("pass either SOURCE or --download")
    return source


#: The argument SOURCE, and the options to download it instead; sets `source` and `url`.
source_or_download_options: Callable[[Command], Command] = join_options(
    click.argument("source", type=PATH, required=False, callback=_check_source),
    click.option(
        "--download", is_flag=True, is_eager=True, expose_value=False, callback=_note_download,
        help="Download the file from its public address.",
    ),
    click.option(
        "--url", is_eager=True, help="Another address for the same file; the checksum must match."
    ),
)  # fmt: skip
