"""``obygaze manifests import``: manifests from annotations, folders, prompts and tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

import obygaze_features as of
from obygaze_features.commands.import_group import ImportGroup
from obygaze_features.common import cli
from obygaze_features.common.cli import Command, echo
from obygaze_features.common.text import counted, for_shell
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.options import source_argument


def output_options(importer: str) -> Callable[[Command], Command]:
    """Return the options for the folder of an importer's manifest."""
    return cli.output_options("The manifest's folder.", default=Path("manifests", importer))


@click.group("import", cls=ImportGroup, makes="Manifest", options=output_options)
def import_() -> None:
    """Make a manifest from annotations, films, images or a table.

    Importers of other packages are listed below ours; use module:function as the name to call one
    that is not listed.

    \b
    Examples:
      obygaze manifests import obygaze12 ObyGaze12_thresh_02.csv -o manifests/obygaze12
      obygaze manifests import folder /data/films -o manifests/mine
      obygaze manifests import csv --help
      obygaze manifests import my_lab.marks:import_manifest marks.xml -o manifests/marks
    """


@import_.command("obygaze12-splits")
@source_argument
@cli.output_options("The manifest to add the splits to.", default=Path("manifests", "obygaze12"))
def obygaze12_splits(source: Path, output: Path, overwrite: bool) -> None:
    """Add the authors' splits and runs to a manifest.

    SOURCE is the folder that has balanced_level/ and movieset/ (LinearProbing/ in the authors'
    repository has the first). The manifest must have been imported before.

    \b
    Example:
      obygaze manifests import obygaze12-splits LinearProbing -o manifests/obygaze12
    """
    from obygaze_features.manifests.importers.obygaze12 import read_released_splits
    from obygaze_features.manifests.manifest import save_parts

    splits, runs = read_released_splits(source, of.Manifest.load(output))
    save_parts(output, [*splits, *runs], overwrite=overwrite)
    for split in splits:
        echo(f"split {split.name}: {counted(len(split), 'clip')}, {split.last_fold + 1} folds")
    for run_set in runs:
        sizes = [len(run.train) for run in run_set.runs]
        echo(
            f"runs {run_set.name}: {len(sizes)} runs, trained on {min(sizes)} to {max(sizes)} clips"
        )
    echo(f"next: obygaze manifests audit {for_shell(output)}")


@import_.saves
def _save(manifest: of.Manifest, output: Path, *, overwrite: bool) -> None:
    """Save and describe a new manifest; print the next command."""
    if not len(manifest):
        raise ManifestError("the source has no items, only a header; nothing was written")
    manifest.save(output, overwrite=overwrite)
    echo(f"{manifest.describe_size()} -> {output}")
    if manifest.label_names:
        names = [
            f"{n} (default)" if n == manifest.default_labels else n for n in manifest.label_names
        ]
        echo(f"label sets: {', '.join(names)}\n{manifest.scheme.order}")
    for note in manifest.notes:
        echo(note)
    if manifest.label_names or "text" in manifest.items.kinds:
        command = "stats" if manifest.label_names else "show"
        echo(f"next: obygaze manifests {command} {for_shell(output)}")
    else:
        folder = for_shell(output)
        echo(f"next, if you have labels: obygaze manifests label {folder} LABELS.csv")
