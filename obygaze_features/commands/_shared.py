"""Options and reports that several commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import click

from obygaze_features.common.cli import PATH, echo
from obygaze_features.common.text import join_some
from obygaze_features.errors import ObygazeError

MAX_FAILURES_SHOWN = 20
"""The maximum number of failures shown in the terminal; the store lists them all."""
VIDEOS_HELP = "The folder of the clips, or of the films that contain them."
device_option = click.option(
    "--device", help="cpu, cuda, cuda:1 or mps; default: a GPU if there is one."
)


source_argument = click.argument("source", type=PATH, required=False)
"""The argument SOURCE; a public file is downloaded if `source` is None."""


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


def echo_failures(failures: Mapping[str, str]) -> None:
    """Print the first failures, one line per reason."""
    by_reason: dict[str, list[str]] = {}
    for item_id, reason in failures.items():
        by_reason.setdefault(reason, []).append(item_id)
    for reason, ids in [*by_reason.items()][:MAX_FAILURES_SHOWN]:
        echo(f"  {join_some(ids, 1)}: {reason}", err=True)
