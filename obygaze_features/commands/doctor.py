"""``obygaze doctor``: the state of the installation."""

from __future__ import annotations

import click

from obygaze_features.common.cli import echo_json, json_option

__all__ = ["doctor"]


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """What is installed, and what is missing for which job.

    Ends with exit code 1 if what every job needs is not there.

    \b
    Example:
      obygaze doctor
    """
    from obygaze_features.doctor import describe_diagnosis, diagnose

    found = diagnose()
    if as_json:
        echo_json(found.to_json())
    else:
        click.echo(describe_diagnosis(found))
    if not found.jobs[0].ready:
        click.get_current_context().exit(1)
