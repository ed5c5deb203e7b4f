"""Options and reports that several commands share."""

from __future__ import annotations

from collections.abc import Mapping

import click

from obygaze_features.common.cli import echo
from obygaze_features.common.formatting import join_some
from obygaze_features.common.grouping import group_by

MAX_FAILURES_SHOWN = 20
"""The maximum number of reasons for failures that are shown in the terminal."""
device_option = click.option(
    "--device",
    help="cpu, cuda, cuda:1 or mps; default: a GPU if there is one.",
)


def echo_failures(failures: Mapping[str, str]) -> None:
    """Print the first reasons for failures, each with its first id, one per line."""
    by_reason = group_by(failures, lambda id_: failures[id_])
    for reason, ids in [*by_reason.items()][:MAX_FAILURES_SHOWN]:
        echo(f"  {join_some(ids, 1)}: {reason}", err=True)
