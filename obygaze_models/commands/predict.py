"""``obygaze models predict``: what a saved model says of clips, as tables and for ELAN."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.text import counted
from obygaze_models.commands.warnings import echo_warnings

if TYPE_CHECKING:
    from obygaze_features.store import Store
    from obygaze_models.scoring import Predictions

__all__ = ["predict"]

#: Without a file so many clips are printed.
SHOWN = 20


@click.command()
@folder_argument("model")
@store_argument("store")
@click.option("--ids", metavar="ID,ID", help="Only these clips.")
@click.option(
    "--band",
    type=(float, float),
    metavar="LOW HIGH",
    help="Say 'unsure' where the probability of the second class is from LOW to HIGH.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A CSV file that gets a row a clip."
)
@click.option(
    "--csv",
    "tables",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A folder that gets a table a film, for spreadsheets.",
)
@click.option(
    "--elan",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A folder that gets an .eaf for each file that the clips are spans of, for ELAN; best "
    "the one that the files lie in. Only clips with a start and an end have a place in it.",
)
@overwrite_option
@json_option
def predict(
    model: Path,
    store: Path | str,
    ids: str | None,
    band: tuple[float, float] | None,
    output: Path | None,
    tables: Path | None,
    elan: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Ask a MODEL about the clips of a STORE, annotated or not.

    The store must hold the features that the model was trained on, or ones made alike. Without
    an output the first clips are printed.

    \b
    Examples:
      obygaze models predict models/sure stores/xclip-kinetics.zarr -o predictions.csv
      obygaze models predict models/sure stores/xclip-kinetics.zarr --band 0.4 0.6
      obygaze models predict models/sure stores/xclip-kinetics.zarr --csv tables
      obygaze models predict models/sure stores/spans.zarr --elan for-elan
      obygaze models predict runs/first/models/mlp/EN-vs-S-0 stores/xclip-kinetics.zarr --json
    """
    from obygaze_features.common.files import refuse_to_overwrite, write_text
    from obygaze_features.common.tables import align
    from obygaze_features.store import open_store
    from obygaze_models.scoring import RENAMED
    from obygaze_models.scoring import predict as ask

    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    wanted = [one.strip() for one in ids.split(",")] if ids else None
    opened = open_store(store)
    found = ask(model, opened, ids=wanted, band=band)
    written = _export(found, opened, tables, elan, overwrite=overwrite)
    classes, shares = found.about["classes"], found.probabilities.tolist()
    if as_json:
        echo_json(
            [
                {
                    "id": one,
                    "said": said,
                    "probabilities": dict(zip(classes, of, strict=True)),
                    "seen_in_training": seen,
                }
                for one, said, of, seen in zip(
                    found.ids, found.said, shares, found.seen, strict=True
                )
            ]
        )
    elif output is None and not written:
        table = [
            [one, said, *(f"{value:.3f}" for value in of)]
            for one, said, of in zip(found.ids, found.said, shares, strict=True)
        ]
        click.echo(align(["clip", "said", *classes], table[:SHOWN], left=2))
        if (more := len(table) - SHOWN) > 0:
            click.echo(f"and {counted(more, 'more clip', 'more clips')}; -o writes all to a file")
    counts = ", ".join(f"{found.said.count(one):,} {one}" for one in dict.fromkeys(found.said))
    click.echo(f"{counted(len(found.ids), 'clip')}: {counts}", err=as_json)
    if seen := found.seen.count("yes"):
        click.echo(f"{seen:,} of them are among the clips that it was trained on", err=as_json)
    if renamed := found.seen.count(RENAMED):
        click.echo(
            f"{renamed:,} show seconds of files that it was trained on under other ids",
            err=as_json,
        )
    if output:
        write_text(output, found.to_csv())
        click.echo(f"a row a clip -> {output}", err=as_json)
    for line in written:
        click.echo(line, err=as_json)
    echo_warnings(found.warnings)


def _export(
    found: Predictions,
    store: Store,
    tables: Path | None,
    elan: Path | None,
    *,
    overwrite: bool,
) -> list[str]:
    """Write the files a film that were asked for; a line about each folder."""
    if tables is None and elan is None:
        return []
    from obygaze_features.common.elan import refuse_edited
    from obygaze_features.common.files import write_files
    from obygaze_models.elan import elan_files
    from obygaze_models.exports import film_tables

    items = store.items
    files: dict[Path, str] = {}
    lines = []
    if tables:
        made = film_tables(found, items)
        files |= {tables / name: text for name, text in made.items()}
        lines.append(f"{counted(len(made), 'table')}, one a film -> {tables}")
    if elan:
        made = elan_files(found, items)
        files |= {elan / name: text for name, text in made.items()}
        lines.append(f"{counted(len(made), 'file')} for ELAN -> {elan}")
        if lost := sum(items[items.row(one)].start is None for one in found.ids):
            lines.append(
                f"{counted(lost, 'clip')} not in them: the manifest gives no start and end in "
                "the film"
            )
    if overwrite:
        refuse_edited(files)
    write_files(files, overwrite=overwrite)
    return lines
