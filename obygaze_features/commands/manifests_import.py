"""``obygaze manifests import``: manifests from annotations, folders, prompts and tables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

import obygaze_features as of
from obygaze_features.commands.import_plugins import ImportGroup
from obygaze_features.common import cli
from obygaze_features.common.cli import PATH, echo, join_options, levels_option, table_options
from obygaze_features.common.text import counted, for_shell
from obygaze_features.errors import ManifestError, UsageError

F = TypeVar("F", bound=Callable[..., Any])

source_argument = click.argument("source", type=PATH)
name_option = click.option("--name", help="The manifest's name; by default the file's.")


def output_options(default: str) -> Callable[[F], F]:
    """Where the manifest goes."""
    return cli.output_options("The manifest's folder.", default=Path("manifests", default))


def download_options(function: Callable[..., Any]) -> Any:
    """The argument SOURCE, or the options that replace it: the command gets `source` and `url`."""

    @join_options(
        click.argument("source", type=PATH, required=False),
        click.option("--download", is_flag=True, help="Download the file from its public address."),
        click.option("--url", help="Another address of the same file; its checksum must match."),
    )
    @functools.wraps(function)
    def checked(*, source: Path | None, download: bool, url: str | None, **options: Any) -> Any:
        if (source is None) != (download or url is not None):
            raise UsageError("give either SOURCE or --download")
        return function(source=source, url=url, **options)

    return checked


@click.group("import", cls=ImportGroup, makes="Manifest", options=output_options)
def import_() -> None:
    """Make a manifest from annotations, a folder of videos or images, prompts or a table.

    Importers of other packages are listed below ours; module:function in place of a name calls one
    that is not listed.

    \b
    Examples:
      obygaze manifests import obygaze12 ObyGaze12_thresh_02.csv -o manifests/obygaze12
      obygaze manifests import folder /data/films -o manifests/mine
      obygaze manifests import csv --help
      obygaze manifests import my_lab.marks:import_manifest marks.xml -o manifests/marks
    """


@import_.importer("obygaze12")
@download_options
@click.option(
    "--rule",
    type=click.Choice(["paper", "released", "raw"]),
    default="paper",
    help="The default label set; all three are written.",
)
def obygaze12(**options: Any) -> of.Manifest:
    """The annotations of the ObyGaze12 paper.

    SOURCE is ObyGaze12_thresh_02.csv of the authors' repository; or let --download fetch it.

    \b
    Examples:
      obygaze manifests import obygaze12 ObyGaze12_thresh_02.csv -o manifests/obygaze12
      obygaze manifests import obygaze12 --download
    """
    return of.Manifest.from_obygaze12(**options)


@import_.command("obygaze12-splits")
@source_argument
@cli.output_options("The manifest that gets the splits.", default=Path("manifests", "obygaze12"))
def obygaze12_splits(source: Path, output: Path, overwrite: bool) -> None:
    """The authors' splits and runs.

    SOURCE is the folder that has balanced_level/ and movieset/ (LinearProbing/ in the authors'
    repository has the first). They are added to a manifest that was imported before.

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


@import_.importer("accede")
@source_argument
@click.option(
    "--threshold",
    type=float,
    default=0.15,
    help="Without a file of affect classes: scores beyond this are positive, or active.",
)
@click.option(
    "--values",
    "scale",
    type=click.Choice(["1-5", "scores"]),
    default="1-5",
    help="The scale of the values in ACCEDEranking.txt.",
)
def accede(**options: Any) -> of.Manifest:
    """LIRIS-ACCEDE and MediaEval 2015: violence, valence and arousal.

    SOURCE is the folder of their text files: MEDIAEVALsets.txt, MEDIAEVALviolence.txt,
    MEDIAEVALaffect.txt, and the same of ACCEDE. Where there is no file of affect classes they
    are computed from the values in ACCEDEranking.txt.

    \b
    Examples:
      obygaze manifests import accede annotations -o manifests/accede
      obygaze manifests import accede annotations --threshold 0.2 --values scores
    """
    return of.Manifest.from_accede(**options)


@import_.importer("folder")
@source_argument
@click.option(
    "--ids",
    type=click.Choice(["moviegraphs", "names"]),
    help="How ids are made; by default of each file by its name.",
)
@click.option(
    "--kind",
    type=click.Choice(["clip", "image"]),
    help="Which files to list.  [default: clips, but images where there are no videos]",
)
def folder(**options: Any) -> of.Manifest:
    """Any folder of videos, sound files or images.

    SOURCE has them, or a folder for each film; of images, for each group. Folders may be nested.
    A sound file (.wav, .mp3 ...) is a clip unless a video of the same name is beside it.
    tt0108160_scene_1.avi becomes tt0108160-001, as in the annotations, but with --ids names.
    Then add labels: obygaze manifests label --help.

    \b
    Examples:
      obygaze manifests import folder /data/moviegraphs -o manifests/moviegraphs
      obygaze manifests import folder my-films -o manifests/mine
      obygaze manifests import folder photos --kind image -o manifests/photos
    """
    return of.Manifest.from_folder(**options)


@import_.importer("prompts")
@source_argument
@click.option(
    "--template",
    "templates",
    multiple=True,
    metavar="TEXT",
    help="With {} where the stimulus goes; give it several times.  "
    "[default: the battery's, or {}; a {}; a photo of a {}; an image of a {}; a picture of a {}]",
)
@click.option(
    "--article",
    type=click.Choice(["letter", "always-a"]),
    default="letter",
    help="An a right before the stimulus: an before a vowel (an engineer), or always a (a "
    "engineer), as some published prompts are.",
)
@name_option
def prompts(**options: Any) -> of.Manifest:
    """Texts: each stimulus in each template.

    SOURCE is a CSV table that has the column stimulus, and if you like set; or a battery of
    association tests, emotion, professions or a JSON file. The manifest keeps set, stimulus and
    template, so that texts can be chosen by them. An id is the set and the text.

    \b
    Examples:
      obygaze manifests import prompts emotion -o manifests/emotion
      obygaze manifests import prompts stimuli.csv -o manifests/prompts
      obygaze manifests import prompts stimuli.csv -o manifests/prompts --article always-a \\
        --template "{}" --template "a photo of a {}"
    """
    return of.Manifest.from_prompts(**options)


annotator_option = click.option(
    "--annotator",
    metavar="NAME",
    help="Whose labels they are, if one person's: annotators are compared with each other.",
)


@import_.importer("csv")
@source_argument
@table_options("id, kind, film, media, text, start, end, level, concepts, ratio", "id=clip")
@levels_option
@name_option
@annotator_option
def csv(**options: Any) -> of.Manifest:
    """Any CSV table, with a column mapping.

    Columns called id, film, media (or video, file_name, path ...), start, end, level (or label)
    and concepts are understood; name others with --column. Without ids, or where ids are names of
    files, ids are made of the files' names. Times are seconds or h:mm:ss. Several concepts in a
    cell are separated by a bar: Body|Look. A row without a level is a clip without a label.
    Spans of a file (start, end) without a film are of the film that the file is named after.

    \b
    Examples:
      obygaze manifests import csv annotations.csv -o manifests/mine
      obygaze manifests import csv clips.csv -o manifests/mine \\
        --column id=clip --column media=video --column level=tension --levels calm,tense
    """
    return of.Manifest.from_csv(**options)


@import_.saves
def _save(manifest: of.Manifest, output: Path, *, overwrite: bool) -> None:
    """Save a new manifest; print what it holds, where it is and the next command."""
    if not len(manifest):
        raise ManifestError("the source holds no items, only a header; nothing was written")
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
