"""The commands of ``obygaze annotations``, which turn annotators' timelines into clip labels."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import obygaze_features as of
from obygaze_features.common.cli import (
    PATH,
    column_option,
    echo,
    exit_if,
    film_option,
    folder_argument,
    json_option,
    levels_option,
    output_option,
    output_options,
    overwrite_option,
    show,
)
from obygaze_features.common.formatting import counted, format_time
from obygaze_features.errors import AnnotationError

if TYPE_CHECKING:
    from obygaze_features.annotations.agreement import Agreement
    from obygaze_features.annotations.remarks import Remark
    from obygaze_features.manifests.labels import LabelSet

#: The maximum number of concepts, films and stretches that are shown.
SHOWN = 10
#: The maximum number of annotators whose pairs are shown.
MAX_PAIRED = 3
NOT_IN_TERMINAL = ("film", "last", "seconds", "distance", "gamma_uniform")
film_table_option = click.option(
    "--film-table",
    "films",
    type=PATH,
    help="A CSV table with the column film and, optionally, title and end (seconds or h:mm:ss).",
)


@click.group("annotations")
def annotation_commands() -> None:
    """Turn annotators' timelines into clip labels.

    For any number of annotators: import their files into one folder of timelines, project the
    timelines onto clips, measure how far the annotators agree, and merge their labels.

    \b
    Examples:
      obygaze annotations import csv segments.csv -o timelines/mine
      obygaze annotations project timelines/mine --grid 60 -o manifests/minutes
      obygaze annotations agreement manifests/minutes
      obygaze annotations merge manifests/minutes
    """


@annotation_commands.command()
@click.argument("folder", type=PATH, default=Path("forrest-gump"))
@overwrite_option
def example(folder: Path, overwrite: bool) -> None:
    """Write the emotions that nine people marked in a film into a new FOLDER.

    The film is Forrest Gump, and is not included. FOLDER (default: forrest-gump) has segments.csv,
    films.csv with the film's end, and README.md with the source.

    \b
    Examples:
      obygaze annotations example nine
      obygaze annotations import csv nine/segments.csv --film-table nine/films.csv \\
        -o timelines/nine --levels none,low,high --column level=arousal --column concepts=emotion
    """
    from obygaze_features.common.files import new_folder
    from obygaze_features.common.package import reference_file

    with new_folder(folder, overwrite=overwrite, marker="segments.csv") as new:
        for name in ("segments.csv", "films.csv", "README.md"):
            shutil.copyfile(reference_file(f"forrest-gump/{name}"), new / name)
    echo(f"5,152 segments of 1 film by 9 annotators -> {folder}")
    echo("obygaze annotations example --help has the command that imports them")


@annotation_commands.group("import")
def import_() -> None:
    """Make timelines from annotators' files.

    \b
    Example:
      obygaze annotations import elan films/*.eaf -o timelines/mine
    """


def _save(timelines: of.Timelines, output: Path, *, overwrite: bool) -> None:
    from obygaze_features.annotations.remarks import LEFT_OUT, remark_rows

    left_out = [remark for remark in timelines.remarks if remark.done == LEFT_OUT]
    if not timelines.segments:
        problem = f"no readable segments in {timelines.source or timelines.name}"
        for remark in left_out[:3]:
            problem += f"; {remark.where}: {remark.what}"
        raise AnnotationError(problem)
    timelines.save(output, overwrite=overwrite)
    echo(f"{timelines.describe_size()} -> {output}\n{timelines.scheme.order}")
    if timelines.remarks:
        show(remark_rows(timelines.remarks))
    if left_out:
        echo(f"left out: {len(left_out):,}")
    echo(f"next: obygaze annotations project {shlex.quote(str(output))} --grid 60 -o MANIFEST")
    exit_if(left_out)


@import_.command()
@click.argument("source", type=PATH)
@film_table_option
@output_options("The timelines' folder.")
def mobygaze(source: Path, films: Path | None, output: Path, overwrite: bool) -> None:
    """Read MObyGaze's segments of 20 films.

    SOURCE is mobygaze_dataframe.csv from https://github.com/husky-helen/MObyGaze. Frames are
    converted to seconds with each row's own frame rate; the end frame is part of the segment. Exits
    with code 3 if rows were left out.

    \b
    Example:
      obygaze annotations import mobygaze mobygaze_dataframe.csv -o timelines/mobygaze
    """
    _save(of.Timelines.from_mobygaze(source, films), output, overwrite=overwrite)


@import_.command()
@click.argument("sources", nargs=-1, required=True, type=PATH)
@click.option(
    "--film-name",
    "film",
    help="The film of all SOURCES (default: the film that each file is named after).",
)
@film_table_option
@levels_option
@output_options("The timelines' folder.")
def elan(sources: tuple[Path, ...], output: Path, overwrite: bool, **options: Any) -> None:
    """Read ELAN files.

    SOURCES are .eaf files or folders of them. Each file belongs to one film. Each tier belongs to
    one annotator, named in the tier's Annotator field, or else by the tier's name. If a file has
    only one tier that has no annotator and whose name is a default (default, annotator1) or is used
    in several folders, the name of the file's folder is used instead, unless a single SOURCE is the
    file or its folder.

    An annotation has a level and, after a colon, concepts: "Sure: Body, Look". Alternatively,
    levels, concepts and comments are in dependent tiers whose names contain these words. Tiers
    without any known level are not read. Files from `obygaze annotations export`, and files made
    from a template of `obygaze manifests thesaurus`, contain their levels and concepts, so they
    need no --levels. If no level is known, the error lists the files' pick-lists.

    Times are those of the video that a file links to, whose name is kept. Nothing that a file
    refers to is opened. Exits with code 3 if annotations of a tier that is read were left out.

    \b
    Example:
      obygaze annotations import elan films -o timelines/mine
    """
    _save(of.Timelines.from_elan(*sources, **options), output, overwrite=overwrite)


@import_.command()
@click.argument("source", type=PATH)
@column_option("film, annotator, start, end, concepts, comment, level", "annotator=who")
@film_table_option
@levels_option
@output_options("The timelines' folder.")
def csv(source: Path, output: Path, overwrite: bool, **options: Any) -> None:
    """Read any CSV table of segments, with a column mapping.

    Each row is a segment. Columns called film, annotator, start, end, level (or label), concepts
    and comment are recognised; map other names with --column. Times are in seconds (75.5) or
    h:mm:ss (0:01:15.5). Separate several concepts in a cell with bars, commas or semicolons. A
    file, media or video column can also name the film: "New Moon.mp4" belongs to New Moon. Exits
    with code 3 if rows were left out.

    \b
    Example:
      obygaze annotations import csv segments.csv --levels static,busy -o timelines/mine
    """
    _save(of.Timelines.from_csv(source, **options), output, overwrite=overwrite)


@annotation_commands.command("show")
@folder_argument("timelines")
@film_option("Only these films.")
@json_option
def show_timelines(timelines: Path, films: Sequence[str] | None, as_json: bool) -> None:
    """Show the number of segments and the marked time of each film and annotator.

    Time in several overlapping segments of an annotator counts once. In JSON, times are in seconds.

    \b
    Example:
      obygaze annotations show timelines/mobygaze --film "Pulp Fiction"
    """
    loaded = of.Timelines.load(timelines)
    if films is not None:
        loaded = loaded.of_films(films)
    rows = loaded.coverage
    if not as_json:
        times = [*loaded.scheme.codes, "covered", "film_lasts"]
        rows = [_with_times(row, times) for row in rows]
    result = {
        "name": loaded.name,
        "source": loaded.source,
        "licence": loaded.licence,
        "segments": len(loaded.segments),
        "annotators": loaded.annotators,
        "films": rows,
    }
    _show(result, loaded.remarks, as_json)


@annotation_commands.command()
@folder_argument("timelines")
@output_option("The folder for the files.")
def export(timelines: Path, output: Path) -> None:
    """Write one ELAN file per film, with one tier per annotator.

    Files are named after the films' titles. They can be imported again without loss: each contains
    the levels and concepts to choose from, the data set's name, source, licence and citation, and
    the exact times of segments that you do not move. Each ELAN file links to the video that was
    annotated in ELAN. Existing files are never replaced, because people edit them. Overlapping
    segments of an annotator are written to further tiers, because ELAN does not allow overlaps in a
    tier. For a spreadsheet, open the segments.csv of the timelines.

    \b
    Example:
      obygaze annotations export timelines/mobygaze -o for-elan
    """
    from obygaze_features.annotations.export_elan import elan_files
    from obygaze_features.common.files import write_files

    files = elan_files(of.Timelines.load(timelines))
    write_files({output / name: text for name, text in files.items()})
    echo(f"{counted(len(files), 'file')} for ELAN, one per film -> {output}")


@annotation_commands.command()
@folder_argument("timelines")
@click.option(
    "--grid",
    required=True,
    metavar="GRID",
    help="A manifest of clips with start and end, or the length of a clip (60 or 0:01:00).",
)
@output_options(
    "The manifest's folder (default: add the labels to the grid's manifest).",
    required=False,
)
@click.option(
    "--threshold",
    type=float,
    default=0.2,
    help="The share of a clip that a segment must cover to count.",
)
@json_option
def project(
    timelines: Path,
    grid: str,
    output: Path | None,
    threshold: float,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Label clips with the levels and concepts of segments.

    A segment counts for a clip if it covers at least --threshold of the clip. The highest level
    among these segments wins, with the concepts of all segments at this level. A clip without such
    a segment gets the lowest level. Each annotator's labels become a label set, which covers the
    clips of the films that this annotator marked; `obygaze annotations merge` combines label sets.
    Exits with code 3 if anything was left out.

    \b
    Example:
      obygaze annotations project timelines/mine --grid 60 -o manifests/minutes
    """
    projected = of.project(of.Timelines.load(timelines), grid, threshold)
    clips = projected.grid
    remarks = projected.remarks + projected.save(output, overwrite=overwrite)
    result = {
        "manifest": str(output or clips.folder),
        "threshold": threshold,
        "clips": len(clips),
        "label_sets": _level_rows(projected.label_sets, clips.scheme.codes),
    }
    _show(result, remarks, as_json)
    _exit_if_left_out(remarks)


@annotation_commands.command()
@folder_argument("manifest")
@click.option(
    "--labels",
    "names",
    multiple=True,
    metavar="NAME",
    help="A label set to merge; repeatable (default: every annotator's).",
)
@click.option("--name", default="merged", help="The merged label set's name.")
@click.option(
    "--rule",
    default="highest",
    metavar="RULE",
    help="highest (default), majority, median, or at-least-K such as at-least-3.",
)
@overwrite_option
@json_option
def merge(
    manifest: Path,
    names: tuple[str, ...],
    name: str,
    rule: str,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Merge several annotators' label sets into one.

    \b
    The rules give a clip
      highest     the highest level that anybody gave, as in the ObyGaze12 paper
      majority    the commonest level, and no label if two are equally common
      median      the highest level that more than half of the annotators reached
      at-least-K  the highest level that K annotators reached

    With many annotators, "highest" makes most clips high, because one vote is enough. A concept
    needs the same votes from the annotators behind the clip's level: one, more than half (majority
    and median), or K. The output counts clips without a label, and labelled clips of a single
    annotator.

    If the manifest has no default label set, the merged one becomes the default. Otherwise, name it
    where you use it (--labels merged, or labels = "merged" in an experiment).

    \b
    Example:
      obygaze annotations merge manifests/minutes
    """
    from obygaze_features.annotations.merge import chosen_labels, merge_labels, save_labels

    loaded = of.Manifest.load(manifest)
    chosen = chosen_labels(loaded, names)
    merged = merge_labels(chosen, loaded, name, rule)
    remarks = save_labels(loaded, [merged], manifest, default=name, overwrite=overwrite)
    codes = loaded.shared_scheme(chosen).codes
    result = {
        "manifest": str(manifest),
        "labels": name,
        "default_labels": loaded.default_labels or name,
        "rule": rule,
        "label_sets": _level_rows([*chosen, merged], codes),
        "of_one_annotator": merged.extra["annotators"].count("1"),
        "without_a_label": merged.about["undecided"],
    }
    _show(result, remarks, as_json)


@annotation_commands.command()
@folder_argument("manifest")
@click.option(
    "--labels",
    multiple=True,
    help="An annotator's label set; pass at least two (default: all annotators').",
)
@output_options("A folder for CSV tables.", required=False)
@json_option
def agreement(
    manifest: Path,
    labels: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Measure how much annotators agree, and where they differ.

    MANIFEST is the folder that `obygaze annotations project` made of all annotators' timelines.

    Prints Krippendorff's alpha of all annotators: of all levels (nominal, and ordinal: "in order"),
    of each level and of the concepts that are marked most, with the mean share of clips that an
    annotator marks, and, from five films on, with the ends of a 95% interval. Then come, for each
    film, alpha and the means of its pairs: the paper's gamma (of labelled clips, in closed form)
    and Cohen's kappa; for the paper's levels, also gamma without the clips that either annotator
    calls Not Sure. For up to three annotators, also each pair: the share of clips with the same
    level, kappa, the number of clips at each pair of levels, and the longest stretches where they
    differ. --json and -o have all concepts, pairs and stretches.

    gamma = 1 - d/e, where d is the mean distance between two annotators' levels, and e is that mean
    when one annotator's levels are in random order (for gamma_uniform: when all levels are equally
    likely). Other programs' gamma compares segments instead.

    Only annotators' label sets are compared: those that were projected from timelines, imported
    with --annotator, or named by you. Label sets that a rule made are refused; merged ones are
    refused beside their sources. Films whose annotators share no labelled clip are left out; the
    exit code is then 3.

    \b
    Example:
      obygaze annotations agreement manifests/minutes
    """
    found = of.agreement(manifest, labels)
    if output is not None:
        found.save(output, overwrite=overwrite)
    if as_json:
        result = found.to_json()
    else:
        result = _agreement_shown(found) | {"tables": output and str(output)}
    _show(result, found.remarks, as_json)
    _exit_if_left_out(found.remarks)


def _agreement_shown(found: Agreement) -> dict[str, Any]:
    """Return what the terminal shows: all annotators together, and the pairs if there are few."""
    names = found.votes.names
    concepts = sorted(found.concepts, key=itemgetter("share"), reverse=True)
    shown = {
        "manifest": found.votes.manifest.name,
        "means": found.means,
        "all_concepts": len(concepts),
        "all_films": len(found.films),
        "levels": found.levels,
        "concepts": concepts[:SHOWN],
        "films": found.films[:SHOWN],
    }
    if len(names) <= MAX_PAIRED:
        shown["pairs"] = found.pairs
        shown["pair_levels"] = found.pair_levels
        shown["all_differences"] = len(found.differences)
        longest = found.differences[:SHOWN]
        shown["differences"] = [_with_times(row, ("start", "end")) for row in longest]
    hidden = {*NOT_IN_TERMINAL, *("share_of_" + name for name in names)}
    for table, rows in shown.items():
        if isinstance(rows, list):
            shown[table] = _without(rows, hidden)
    return shown


def _without(rows: Sequence[Mapping[str, Any]], hidden: set[str]) -> list[dict[str, Any]]:
    """Return rows without some columns, and without those that are empty."""
    filled = set()
    for row in rows:
        filled |= {name for name, value in row.items() if value is not None}
    return [{name: row[name] for name in row if name in filled - hidden} for row in rows]


def _with_times(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a row with these columns as h:mm:ss instead of seconds."""
    times = {}
    for name in names:
        if row.get(name) is not None:
            times[name] = format_time(round(row[name]))
    return {**row, **times}


def _level_rows(label_sets: Sequence[LabelSet], codes: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each label set, with its number of clips at each level."""
    rows = []
    for labels in label_sets:
        levels = {code: labels.levels.count(code) for code in codes}
        rows.append({"labels": labels.name, "clips": len(labels), **levels})
    return rows


def _show(result: dict[str, Any], remarks: Sequence[Remark], as_json: bool) -> None:
    """Print a result and the kinds of remarks; or as JSON, with all remarks."""
    from obygaze_features.annotations.remarks import remark_rows

    rows = remark_rows(remarks)
    if as_json:
        rows = list(map(asdict, remarks))
    show(result | {"remarks": rows}, as_json)


def _exit_if_left_out(remarks: Sequence[Remark]) -> None:
    from obygaze_features.annotations.remarks import LEFT_OUT

    exit_if(any(remark.done == LEFT_OUT for remark in remarks))
