"""What must be read beside a result, on standard error, so that no pipe takes it along."""

from __future__ import annotations

from collections.abc import Iterable

import click

__all__ = ["echo_warnings"]


def echo_warnings(warnings: Iterable[object]) -> None:
    """Print each on a line of its own."""
    for warning in warnings:
        click.secho(f"WARNING: {warning}", fg="yellow", bold=True, err=True)
