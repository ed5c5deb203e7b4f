"""The commands of ``obygaze manifests``, which manage lists of clips with labels and splits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import obygaze_features as of
from obygaze_features.common.cli import (
    PATH,
    column_option,
    echo,
    exit_if,
    folder_argument,
    json_option,
    levels_option,
    output_options,
    overwrite_option,
    show,
)
from obygaze_features.common.formatting import counted, join_some
from obygaze_features.errors import ManifestError
from obygaze_features.items.items import group_noun
from obygaze_features.manifests.folds import whole_groups

labels_option = click.option("--labels", help="The label set (default: the manifest's default).")
annotator_option = click.option(
    "--annotator",
    metavar="NAME",
    help="The person who made all labels, for comparing annotators.",
)


@click.group()
def manifests() -> None:
    """Manage lists of clips with their labels and splits.

    \b
    Examples:
      obygaze manifests import folder films -o manifests/mine
      obygaze manifests label manifests/mine labels.csv --levels low,high
      obygaze manifests show manifests/mine
    """


@manifests.group("import")
def import_() -> None:
    """Make a manifest from annotations, films, images or a table.

    \b
    Example:
      obygaze manifests import folder /data/films -o manifests/mine
    """


def _save(manifest: of.Manifest, output: Path, *, overwrite: bool) -> None:
    if not len(manifest):
        raise ManifestError("the source has no items; nothing was written")
    manifest.save(output, overwrite=overwrite)
    echo(f"{counted(len(manifest), 'item')} -> {output}")
    if manifest.label_names:
        echo(manifest.scheme.order)
    for note in manifest.notes:
        echo(note)


@import_.command()
@click.argument("source", type=PATH)
@click.option(
    "--splits",
    type=PATH,
    metavar="FOLDER",
    help="Also add the authors' splits and runs, from the folder with balanced_level/, movieset/ "
    "or both.",
)
@output_options("The manifest's folder.", default=Path("manifests", "obygaze12"))
def obygaze12(source: Path, splits: Path | None, output: Path, overwrite: bool) -> None:
    """Read the annotations of the ObyGaze12 paper.

    SOURCE is ObyGaze12_thresh_02.csv from https://github.com/husky-helen/ObyGaze12, whose folder
    LinearProbing has the splits. There are three label sets: raw, as annotated; and paper (the
    default) and released, with visual concepts only. A clip without visual concepts is an Easy
    Negative in paper; released leaves it out, unless it was annotated as an Easy Negative.

    \b
    Example:
      obygaze manifests import obygaze12 ObyGaze12_thresh_02.csv --splits LinearProbing
    """
    from obygaze_features.manifests.importers.obygaze12 import read_released_splits

    manifest = of.Manifest.from_obygaze12(source)
    if splits is not None:
        folds, runs = read_released_splits(splits, manifest)
        manifest = manifest.with_parts(*folds, *runs)
    _save(manifest, output, overwrite=overwrite)


@import_.command()
@click.argument("source", type=PATH)
@output_options("The manifest's folder.", default=Path("manifests", "accede"))
def accede(source: Path, output: Path, overwrite: bool) -> None:
    """Read LIRIS-ACCEDE's violence, valence and arousal.

    SOURCE is the folder with the text files of MediaEval 2015, ACCEDE or both.

    \b
    Example:
      obygaze manifests import accede annotations -o manifests/accede
    """
    _save(of.Manifest.from_accede(source), output, overwrite=overwrite)


@import_.command()
@click.argument("source", type=PATH)
@click.option(
    "--kind",
    type=click.Choice(["clip", "image"]),
    help="The files to list.  [default: clips, or images if there are images and no videos]",
)
@click.option(
    "--every",
    type=click.FloatRange(0.1),
    help="Cut each film into spans of this many seconds; each id includes the start: Juno-90s.",
)
@output_options("The manifest's folder.", default=Path("manifests", "folder"))
def folder(source: Path, output: Path, overwrite: bool, **options: Any) -> None:
    """List the videos, sound files or images in a folder.

    SOURCE contains the files, or one folder per film or group of images. Folders may be nested.
    tt0108160_scene_1.avi becomes tt0108160-001, as in ObyGaze12. With --every, a film ends with its
    last picture, and a remainder of less than a second is left out. Labels are added afterwards, by
    `obygaze manifests label`.

    \b
    Example:
      obygaze manifests import folder my-films --every 10 -o manifests/mine
    """
    _save(of.Manifest.from_folder(source, **options), output, overwrite=overwrite)


@import_.command()
@click.argument("source", type=PATH)
@click.option(
    "--template",
    "templates",
    multiple=True,
    metavar="TEXT",
    help="A text with {} for the stimulus; repeatable (default: the battery's, or 5 common ones).",
)
@click.option(
    "--article",
    type=click.Choice(["letter", "always-a"]),
    default="letter",
    help="The article before the stimulus: 'an' before a vowel (an engineer), or always 'a' (a "
    "engineer), as in some published prompts.",
)
@output_options("The manifest's folder.", default=Path("manifests", "prompts"))
def prompts(
    source: Path,
    templates: tuple[str, ...],
    article: str,
    output: Path,
    overwrite: bool,
) -> None:
    """Make texts by putting each stimulus into each template.

    SOURCE is a CSV table with a column stimulus and optionally a column set; or a battery of
    association tests: emotion, professions or a JSON file.

    \b
    Example:
      obygaze manifests import prompts stimuli.csv --template "a photo of a {}" -o manifests/prompts
    """
    made = of.Manifest.from_prompts(source, templates, article=article)
    _save(made, output, overwrite=overwrite)


@import_.command()
@click.argument("source", type=PATH)
@column_option("id, kind, film, media, text, start, end, level, concepts, ratio", "id=clip")
@levels_option
@annotator_option
@output_options("The manifest's folder.", default=Path("manifests", "csv"))
def csv(source: Path, output: Path, overwrite: bool, **options: Any) -> None:
    """Read any CSV table of clips, with or without labels.

    Columns called id, kind, film, media (or video, file_name, path ...), text, start, end, level
    (or label), concepts and ratio are recognised; map other names with --column. Paths are within
    the folder of videos, and the first folder names the film: Juno/clip 1.mp4. If there are no ids,
    or the ids are file names, ids are made from the files. Times are in seconds or h:mm:ss.
    Separate several concepts in a cell with bars, commas or semicolons. A row without a level is an
    unlabelled clip. If several people annotated the same clips, add the labels of each with
    `obygaze manifests label --annotator`; if they marked times, use `obygaze annotations import
    csv`.

    \b
    Example:
      obygaze manifests import csv clips.csv --column level=tension --levels calm,tense
    """
    _save(of.Manifest.from_csv(source, **options), output, overwrite=overwrite)


@manifests.command("show")
@folder_argument("manifest")
@labels_option
@click.option("--by-film", is_flag=True, help="Also show each film's levels.")
@json_option
def show_manifest(manifest: Path, labels: str | None, by_film: bool, as_json: bool) -> None:
    """Show a manifest's contents and counts.

    \b
    Example:
      obygaze manifests show manifests/obygaze12 --by-film
    """
    from obygaze_features.manifests.statistics import manifest_facts

    show(manifest_facts(of.Manifest.load(manifest), labels, by_film=by_film), as_json)


@manifests.command()
@folder_argument("manifest")
@click.argument("source", type=PATH)
@output_options("The new manifest's folder.", default=Path("manifests", "words"))
@click.option(
    "--shift",
    type=float,
    default=0.0,
    help="Shift all subtitles by this many seconds; a negative number makes them earlier.",
)
def subtitles(manifest: Path, source: Path, output: Path, overwrite: bool, shift: float) -> None:
    """Make a manifest of the words spoken in each clip.

    SOURCE is an SRT or WebVTT file named after its film's id, title or video (tt0467406.srt, "Juno
    (2007).en.vtt"), or a folder of such files, one per film. Each text has the id and the columns
    of its clip. A subtitle that spans several clips goes to the clip that contains most of it.
    Exits with code 3 if a film has no subtitles, or if files or subtitles could not be used.

    Only the new manifest contains the words. Stores extracted from it do not.

    \b
    Example:
      obygaze manifests subtitles manifests/mine subtitles -o manifests/words
    """
    from obygaze_features.manifests.subtitles import with_subtitles

    words = with_subtitles(of.Manifest.load(manifest), source, shift=shift)
    words.save(output, overwrite=overwrite)
    silent = words.items.texts.count("")
    echo(f"{counted(len(words), 'item')} -> {output}; {silent:,} without words")
    for note in words.notes:
        echo(note, err=True)
    exit_if(words.notes)


@manifests.command()
@folder_argument("manifest")
@folder_argument("table")
@column_option("id (or media), level, concepts, ratio", "level=tension")
@levels_option
@click.option("--name", help="The label set's name (default: the annotator's or the table's).")
@annotator_option
@overwrite_option
def label(manifest: Path, table: Path, overwrite: bool, **options: Any) -> None:
    """Add the labels of a TABLE to a manifest.

    Each row of the CSV table identifies a clip by its id, file path or file name (in a column
    named id, media, video, file_name ...) and gives its level (in a column named level or label).
    Times are not read: for a table with times, see `obygaze annotations import csv`, and then
    `project --grid MANIFEST`. Of several label sets, name the one to use in experiments (labels =
    "NAME") and commands, or set default_labels in manifest.json. Exits with code 3 if a row with a
    level matches no clip.

    \b
    Example:
      obygaze manifests label manifests/mine labels.csv --levels low,high
    """
    from obygaze_features.manifests.importers.csv_table import read_labels

    loaded = of.Manifest.load(manifest)
    labels, unmatched = read_labels(table, loaded, **options)
    loaded.add(labels, overwrite=overwrite)
    file = manifest / "labels" / f"{labels.name}.csv"
    echo(f"{len(labels):,} of {len(loaded):,} items labelled -> {file}")
    echo(loaded.label_scheme(labels.name).order)
    if unmatched:
        echo(f"rows without an item: {join_some(unmatched)}", err=True)
    exit_if(unmatched)


@manifests.command()
@folder_argument("manifest")
@click.option("--videos", type=PATH, help="Also find each clip's file in this folder of films.")
@json_option
def check(manifest: Path, videos: Path | None, as_json: bool) -> None:
    """List problems of a manifest, at most one per table, and clips without a file.

    If there are no problems, --videos looks for the clips' files. A clip's file is its media path
    or, without one, FILM/ID.* or ID.* (for a span, also FILM.*), with the extension of any video,
    sound or image format.
    Exits with code 1 if the manifest has problems, and with code 3 if files are missing or
    ambiguous.

    \b
    Example:
      obygaze manifests check manifests/mine --videos /data/films
    """
    from obygaze_features.items.media import locate
    from obygaze_features.manifests.manifest import check

    problems = check(manifest)
    facts = {
        "manifest": str(manifest),
        "problems": len(problems),
        "list": [{"problem": text} for text in problems],
    }
    if problems or videos is None:
        show(facts, as_json)
        exit_if(problems, 1)
        return
    located = locate(of.Manifest.load(manifest), videos)
    facts |= {**vars(located), "found": len(located.found)}
    show(facts, as_json)
    exit_if(located.missing or located.ambiguous)


@manifests.command()
@click.option(
    "--elan",
    type=PATH,
    required=True,
    metavar="FILE",
    help="The template (.etf).",
)
@levels_option
@overwrite_option
def thesaurus(elan: Path, levels: str | None, overwrite: bool) -> None:
    """Write an ELAN template with the levels and concepts of ObyGaze or of your own scheme.

    To annotate your own film, create a new ELAN file from the template: ELAN then offers the levels
    and concepts, with their meanings. Read your annotations with `obygaze annotations import elan`.

    \b
    Example:
      obygaze manifests thesaurus --levels tension.toml --elan tension.etf
    """
    from obygaze_features.annotations.export_elan import elan_template
    from obygaze_features.common.files import require_suffix, write_files
    from obygaze_features.manifests.labels import choose_scheme

    scheme = choose_scheme(levels) or of.obygaze_scheme()
    require_suffix(elan, ".etf")
    write_files({elan: elan_template(scheme)}, overwrite=overwrite)
    echo(f"Wrote {elan}")


@manifests.command()
@folder_argument("manifest")
@click.option(
    "--labels",
    help="Split only clips with a label in this label set (default: the manifest's default; for "
    "one fold per group, all clips).",
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="Keep films, media (files) or the groups of another column of items.csv in one fold each. "
    "With clips, folds mix films.  [default: film, if clips have films]",
)
@click.option(
    "--folds",
    type=int,
    help="The number of folds.  [default: one per group, or 10 for over 20 groups or for clips]",
)
@click.option("--name", help="The split's name (default: leak-free, leave-film-out or similar).")
@overwrite_option
def split(
    manifest: Path,
    by: str | None,
    folds: int | None,
    name: str | None,
    overwrite: bool,
    labels: str | None,
) -> None:
    """Split a manifest's clips into folds.

    Films stay whole, so each fold tests films that its model has not seen. Up to 20 films get a
    fold each. With more, or with --folds, the levels are spread about evenly over the folds.

    All experiments that use the split have the same folds, so their scores can be compared.
    Use --by media if spans overlap in time (for instance, spans of two annotators), or if
    consecutive spans of a file are alike. With --by clips, each film is in several folds, and
    scores say nothing about new films.

    \b
    Example:
      obygaze manifests split manifests/obygaze12 --by film
    """
    loaded = of.Manifest.load(manifest)
    items = loaded.items
    column = by or "film"
    kept = f" of whole {group_noun(column)}s"
    if by == "clips" or (by is None and not any(items.films)):
        new = of.stratified(loaded, folds=folds or 10, labels=labels)
        kept = ", which mix films" if any(items.films) else ""
    elif folds is None:
        new = whole_groups(loaded, groups=column, labels=labels)
    else:
        new = of.stratified(loaded, folds=folds, labels=labels, groups=column)
    new = replace(new, name=name or new.name)
    loaded.add(new, overwrite=overwrite)
    file = manifest / "splits" / f"{new.name}.csv"
    echo(f"{counted(len(new), 'clip')} in {counted(len(new.sizes), 'fold')}{kept} -> {file}")


@manifests.command()
@folder_argument("manifest")
@click.option("--train", multiple=True, metavar="SPLIT", help="The splits to train models on.")
@click.option("--test", multiple=True, metavar="SPLIT", help="The splits to test models on.")
@json_option
def audit(manifest: Path, as_json: bool, **options: Any) -> None:
    """Find test clips that are also training clips.

    Searches the training pools of splits and the training sets of runs for test clips, and for
    clips that overlap one in time. The column neighbours counts the other test clips that are
    within 5 seconds of a training clip in the same file. By default, every split that has runs (or
    every split, if none has runs) is compared with every split as a test set. Scores on test clips
    that are training clips also measure memorisation. To avoid neighbours, keep files whole
    (`manifests split --by media`), or set gap = 5 in the experiment.

    \b
    Example:
      obygaze manifests audit manifests/obygaze12 --train 02_HN_S --test 02_ENHN_S
    """
    from obygaze_features.manifests.audit import audit

    show(audit(of.Manifest.load(manifest), **options), as_json)
