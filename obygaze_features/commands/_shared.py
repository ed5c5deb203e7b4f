"""Options and reports that several commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import click

from obygaze_features.common.cli import echo
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import ObygazeError

MAX_FAILURES_SHOWN = 20
"""The maximum number of failures shown in the terminal; ``--json`` and the store list them all."""
VIDEOS_HELP = "The folder of the clips, or of the films that contain them."
device_option = click.option(
    "--device", help="cpu, cuda, cuda:1 or mps; default: a GPU if there is one."
)


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


def echo_failures(failures: Mapping[str, str], *, all_in: str) -> None:
    """Print the first failures, one line per reason, and say where to find the full list."""
    by_reason: dict[str, list[str]] = {}
    for item_id, reason in failures.items():
        by_reason.setdefault(reason, []).append(item_id)
    lines = [f"{join_some(ids, 1)}: {reason}" for reason, ids in by_reason.items()]
    for line in lines[:MAX_FAILURES_SHOWN]:
        echo(f"  {line}", err=True)
    if rest := sum(map(len, list(by_reason.values())[MAX_FAILURES_SHOWN:])):
        echo(f"  and {rest:,} more: {all_in}", err=True)
