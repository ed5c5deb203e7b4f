"""The authors' split files, and the exact ids of the runs that their code makes of them."""

from __future__ import annotations

from pathlib import Path

import click

from obygaze_features.common.cli import overwrite_option
from obygaze_features.common.tables import read_table
from obygaze_features.common.text import counted, for_shell, shorten
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.shared import source_argument
from obygaze_features.manifests.manifest import Manifest, save_parts
from obygaze_features.manifests.runs import RunSet, released_runs
from obygaze_features.manifests.splits import Split, problems

__all__ = ["read_released_splits"]

#: The split files that the released code trains on; the others it only tests on.
TRAINED = ("02_EN_S", "02_HN_S")
CLASSES = {"Easy Neg": "EN", "Hard Neg": "HN", "Sure": "S", "S": "S", "EN_HN": "EN_HN"}


def read_released_splits(source: Path, manifest: Manifest) -> tuple[list[Split], list[RunSet]]:
    """Read the folders ``balanced_level`` and ``movieset``, and rebuild the released runs.

    Parameters
    ----------
    source
        The folder that holds either or both.
    manifest
        The manifest of ``obygaze12``; every id must be in it.
    """
    files = [*sorted(source.glob("balanced_level/*.csv")), *sorted(source.glob("movieset/*.csv"))]
    if not files:
        raise ManifestError(
            f"{source} holds no split files; the folder with balanced_level/ or movieset/ is meant"
        )
    splits = [_read(path, manifest) for path in files]
    with_media = {item.id for item in manifest if item.media}
    runs = [released_runs(split, with_media) for split in splits if split.name in TRAINED]
    return splits, runs


def _read(path: Path, manifest: Manifest) -> Split:
    table = read_table(path, delimiter=";", required=["id", "label", "fold"])
    for row, message in problems(table):
        raise table.problem(row, message)
    by_film = path.parent.name == "movieset"
    classes = []
    for row, (identifier, label) in enumerate(zip(table["id"], table["label"], strict=True)):
        if identifier not in manifest:
            raise table.problem(row, f"id {shorten(identifier)} is not in the manifest")
        if by_film:
            # 0 and 1 stand for the two classes in the file's name, say HN_S.
            negative, _, positive = path.stem.replace("ENHN", "EN+HN").partition("_")
            names = {"0": negative.replace("+", "_"), "1": positive}
        else:
            names = CLASSES
        if label not in names:
            raise table.problem(row, f"unknown label {label!r} (known: {', '.join(names)})")
        classes.append(names[label])
    return Split(
        f"movieset_{path.stem}" if by_film else path.stem,
        table["id"],
        [int(fold) for fold in table["fold"]],
        classes,
        about={"method": "released by the authors", "file": f"{path.parent.name}/{path.name}"},
    )


@click.command("obygaze12-splits")
@source_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("manifests", "obygaze12"),
    show_default=True,
    help="The manifest that gets the splits.",
)
@overwrite_option
def command(source: Path, output: Path, overwrite: bool) -> None:
    """The authors' splits and runs.

    SOURCE is the folder that holds balanced_level/ and movieset/ (LinearProbing/ in the authors'
    repository has the first). They are added to a manifest that was imported before.

    \b
    Example:
      obygaze manifests import obygaze12-splits LinearProbing -o manifests/obygaze12
    """
    splits, runs = read_released_splits(source, Manifest.load(output))
    save_parts(output, [*splits, *runs], overwrite=overwrite)
    for split in splits:
        click.echo(
            f"split {split.name}: {counted(len(split), 'clip')}, {split.last_fold + 1} folds"
        )
    for run_set in runs:
        sizes = [len(run.train) for run in run_set.runs]
        click.echo(
            f"runs {run_set.name}: {len(sizes)} runs, trained on {min(sizes)} to {max(sizes)} clips"
        )
    click.echo(f"next: obygaze manifests audit {for_shell(output)}")
