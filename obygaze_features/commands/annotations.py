"""``obygaze annotations``: from annotators' timelines to labels of clips."""

from __future__ import annotations

from pathlib import Path

import click

from obygaze_features.annotations.importers import IMPORTERS
from obygaze_features.commands.agreement import agreement
from obygaze_features.commands.projection import merge, project, sweep
from obygaze_features.commands.timeline_figure import figure
from obygaze_features.common.cli import (
    LazyGroup,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.text import counted
from obygaze_features.errors import UsageError

__all__ = ["annotation_commands"]


@click.group("annotations")
def annotation_commands() -> None:
    """From annotators' timelines to labels of clips.

    \b
    Examples:
      obygaze annotations import csv segments.csv -o timelines/mine
      obygaze annotations project timelines/mine --grid 60 -o manifests/mine
      obygaze annotations merge manifests/mine
      obygaze annotations agreement manifests/mine
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


@annotation_commands.command()
@folder_argument("timelines")
@json_option
def show(timelines: Path, as_json: bool) -> None:
    """What timelines hold: segments, and time by level, of each film and annotator.

    Where an annotator's segments overlap, the time counts once.

    \b
    Examples:
      obygaze annotations show timelines/mobygaze
      obygaze annotations show timelines/mobygaze --json
    """
    from obygaze_features.annotations.remarks import remark_lines
    from obygaze_features.annotations.summary import describe, in_lines
    from obygaze_features.annotations.timelines import Timelines

    loaded = Timelines.load(timelines)
    facts = describe(loaded)
    if as_json:
        echo_json(facts)
        return
    films, annotators = counted(len(loaded.by_film), "film"), len(loaded.annotators)
    click.echo(
        f"{loaded.name}: {counted(len(loaded.segments), 'segment')} of {films} by "
        f"{counted(annotators, 'annotator')}"
    )
    click.echo(in_lines(facts))
    for line in remark_lines(loaded.remarks, "--json has all"):
        click.echo(line)


@annotation_commands.command()
@folder_argument("timelines")
@click.option(
    "--elan", is_flag=True, help="A file of ELAN's for each film, with a tier for each annotator."
)
@click.option("--csv", is_flag=True, help="Tables for spreadsheets: segments.csv and films.csv.")
@click.option(
    "--manifest",
    type=click.Path(path_type=Path),
    help="Clips whose label sets are added: tiers of ELAN's, and the table clips.csv.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The files' folder."
)
@overwrite_option
def export(
    timelines: Path,
    elan: bool,
    csv: bool,
    manifest: Path | None,
    output: Path,
    overwrite: bool,
) -> None:
    """Write timelines for ELAN and for spreadsheets.

    What is written can be imported again, and is the same then: ELAN's times are milliseconds,
    and the exact ones are kept beside them for segments that nobody moves. An .eaf file that
    somebody else wrote, or edited since, is never replaced; CSV files are, with --overwrite.

    \b
    Examples:
      obygaze annotations export timelines/mobygaze --elan -o for-elan
      obygaze annotations export timelines/mobygaze --elan --csv --manifest manifests/m60 -o out
    """
    from obygaze_features.annotations.export import elan_files, tables
    from obygaze_features.annotations.timelines import Timelines
    from obygaze_features.common.elan import refuse_edited
    from obygaze_features.common.files import write_files
    from obygaze_features.manifests.manifest import Manifest

    if not (elan or csv):
        raise UsageError("say which files: --elan, --csv or both")
    loaded = Timelines.load(timelines)
    clips = None if manifest is None else Manifest.load(manifest)
    documents = elan_files(loaded, clips) if elan else {}
    made = tables(loaded, clips) if csv else {}
    files = {output / name: text for name, text in (documents | made).items()}
    if overwrite:
        refuse_edited(files)
    write_files(files, overwrite=overwrite)
    if documents:
        click.echo(f"{counted(len(documents), 'file')} for ELAN, one a film -> {output}")
    if made:
        click.echo(f"{', '.join(made)} -> {output}")


for command in (project, merge, sweep, agreement, figure):
    annotation_commands.add_command(command)
