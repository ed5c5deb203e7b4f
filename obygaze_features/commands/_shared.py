"""Options and reports that several commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from obygaze_features.common.cli import PATH, echo, join_options
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import ObygazeError, UsageError

MAX_FAILURES_SHOWN = 20
"""The maximum number of failures shown in the terminal; the store lists them all."""
VIDEOS_HELP = "The folder of the clips, or of the films that contain them."
device_option = click.option(
    "--device", help="cpu, cuda, cuda:1 or mps; default: a GPU if there is one."
)


def _note_download(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta["download"] = value


def _check_source(ctx: click.Context, param: click.Parameter, source: Path | None) -> Path | None:
    if (source is None) != ctx.meta["download"]:
        raise UsageError("pass either SOURCE or --download")
    return source


source_or_download = join_options(
    click.argument("source", type=PATH, required=False, callback=_check_source),
    click.option(
        "--download",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_note_download,
        help="Download the file from its public address.",
    ),
)
"""The argument SOURCE, and the option to download it instead, when `source` is None."""


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Print a message if the block is interrupted, to tell users that no finished work is lost."""
    try:
        yield
    except ObygazeError:
        raise
    except BaseException:  # Ctrl-C, for instance
        echo("Finished work is kept; run the same command again to resume.", err=True)
        raise


def echo_items(items: Sequence[str], noun: str, words: str) -> None:
    """Print the number and names of the affected items, if there are any."""
    if items:
        names = join_some(items, MAX_FAILURES_SHOWN)
        echo(f"{counted(len(items), noun)} {words}: {names}", err=True)


def echo_failures(failures: Mapping[str, str]) -> None:
    """Print the first failures, one line per reason."""
    by_reason: dict[str, list[str]] = {}
    for item_id, reason in failures.items():
        by_reason.setdefault(reason, []).append(item_id)
    for reason, ids in [*by_reason.items()][:MAX_FAILURES_SHOWN]:
        echo(f"  {join_some(ids, 1)}: {reason}", err=True)
