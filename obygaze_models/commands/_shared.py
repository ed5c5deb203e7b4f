"""Code that the commands share: options and warnings."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import click

from obygaze_features.common.cli import ADDRESS, PATH, echo
from obygaze_models.data.run_warning import RunWarning, group_warnings

path_option = partial(click.option, type=PATH)
"""`click.option` for an option that takes a path."""
stores_argument = click.argument(
    "stores",
    metavar="STORE...",
    nargs=-1,
    required=True,
    type=ADDRESS,
)
"""The store or stores, in the order in which the model was trained on them."""


def echo_warnings(warnings: Iterable[RunWarning | str]) -> None:
    """Print warnings on standard error, one line each; duplicates are printed once."""
    for line in group_warnings(warnings):
        echo(f"WARNING: {line}", fg="yellow", bold=True, err=True)
