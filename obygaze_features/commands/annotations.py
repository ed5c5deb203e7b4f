"""``obygaze annotations``: from annotators' timelines to labels of clips."""

from __future__ import annotations

import click

from obygaze_features.annotations.importers import IMPORTERS
from obygaze_features.common.commands import LazyGroup

__all__ = ["annotation_commands"]


@click.group("annotations")
def annotation_commands() -> None:
    """From annotators' timelines to labels of clips.

    \b
    Examples:
      obygaze annotations import mobygaze mobygaze_dataframe.csv -o timelines/mobygaze
      obygaze annotations show timelines/mobygaze
      obygaze annotations export timelines/mobygaze --elan -o films
    """


@annotation_commands.group("import", cls=LazyGroup, lazy=IMPORTERS)
def import_() -> None:
    """Make timelines from annotators' files.

    \b
    Examples:
      obygaze annotations import mobygaze mobygaze_dataframe.csv -o timelines/mobygaze
      obygaze annotations import elan films/*.eaf -o timelines/mine
      obygaze annotations import csv --help
    """
