"""Code that the commands share: options and warnings."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import ADDRESS, PATH, echo
from obygaze_features.common.text import counted

if TYPE_CHECKING:
    from obygaze_models.data.warnings import RunWarning


option = partial(click.option, show_default=True)
"""`click.option` for an option whose help shows its default."""
path_option = partial(click.option, type=PATH)
"""`click.option` for an option that takes a path."""
stores_argument = click.argument(
    "stores", metavar="STORE...", nargs=-1, required=True, type=ADDRESS
)
"""The store or stores, in the order in which the model was trained on them."""

verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print all warnings and, for a run, the table of all films.",
)
MAX_WARNINGS_SHOWN = 5


def echo_warnings(warnings: Iterable[RunWarning | str], *, verbose: bool = True) -> None:
    """Print warnings on standard error, one line each.

    Parameters
    ----------
    warnings
        The warnings. Duplicates are printed once.
    verbose
        Print all warnings. Otherwise print up to `MAX_WARNINGS_SHOWN`.
    """
    from obygaze_models.data.warnings import group_warnings

    lines = group_warnings(warnings)
    if not verbose and len(lines) > MAX_WARNINGS_SHOWN:
        more = counted(len(lines) - MAX_WARNINGS_SHOWN, "more warning")
        lines = [*lines[:MAX_WARNINGS_SHOWN], f"{more}; -v prints all"]

    for line in lines:
        echo(f"WARNING: {line}", fg="yellow", bold=True, err=True)
