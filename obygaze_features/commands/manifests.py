"""The commands of ``obygaze manifests``, which manage lists of clips with labels and splits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import obygaze_features as of
from obygaze_features.commands.import_group import ImportGroup
from obygaze_features.common.cli import (
    PATH,
    Command,
    Seconds,
    column_option,
    echo,
    echo_json,
    emit,
    exit_if,
    folder_argument,
    json_option,
    levels_option,
    output_options,
    overwrite_option,
)
from obygaze_features.common.text import counted, for_shell, join_some
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests.importers.options import annotator_option, source_argument

labels_option = click.option("--labels", help="The label set (default: the manifest's default).")


@click.group()
def manifests() -> None:
    """Manage lists of clips with their labels and splits.

    \b
    Examples:
      obygaze manifests import obygaze12 --download
      obygaze manifests import folder films -o manifests/mine
      obygaze manifests label manifests/mine labels.csv --levels low,high
      obygaze manifests stats manifests/obygaze12
      obygaze manifests locate manifests/obygaze12 --videos /data/moviegraphs
    """


def save_options(importer: str) -> Callable[[Command], Command]:
    """Return the output options of an importer."""
    return output_options("The manifest's folder.", default=Path("manifests", importer))


@click.group("import", cls=ImportGroup, makes="Manifest", options=save_options)
def import_() -> None:
    """Make a manifest from annotations, films, images or a table.

    \b
    Examples:
      obygaze manifests import obygaze12 ObyGaze12_thresh_02.csv -o manifests/obygaze12
      obygaze manifests import folder /data/films -o manifests/mine
      obygaze manifests import csv --help
    """


manifests.add_command(import_)


@import_.command("obygaze12-splits")
@source_argument
@output_options("The manifest to add the splits to.", default=Path("manifests", "obygaze12"))
def obygaze12_splits(source: Path, output: Path, overwrite: bool) -> None:
    """Add the authors' splits and runs to a manifest.

    SOURCE is the folder that contains balanced_level/, movieset/ or both (in the authors'
    repository, LinearProbing/ contains balanced_level/). Import the manifest first.

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
    """Save a new manifest, print a summary, and suggest the next command."""
    if not len(manifest):
        raise ManifestError("the source has no items; nothing was written")
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


@manifests.command()
@folder_argument("manifest")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@json_option
def show(manifest: Path, ids: tuple[str, ...], as_json: bool) -> None:
    """Show a manifest's contents, or all about individual items.

    \b
    Examples:
      obygaze manifests show manifests/obygaze12
      obygaze manifests show manifests/obygaze12 tt0108160-003
    """
    from obygaze_features.manifests.statistics import describe_item, describe_manifest

    loaded = of.Manifest.load(manifest)
    facts = [describe_item(loaded, i) for i in ids] if ids else [describe_manifest(loaded)]
    emit(facts if ids else facts[0], as_json, lambda _: "\n\n".join(map(_aligned, facts)))


def _aligned(facts: dict[str, object]) -> str:
    width = max(map(len, facts))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in facts.items())


@manifests.command()
@folder_argument("manifest")
@click.argument("source", type=PATH)
@output_options("The new manifest's folder.", default=Path("manifests", "words"))
@click.option(
    "--shift",
    type=Seconds(),
    default=0.0,
    help="Shift all subtitles by this time; a negative number makes them earlier.",
)
@click.option(
    "--film-table",
    "films",
    type=PATH,
    help="A table (film, file) for files that are not named after a film's id, title or video.",
)
def subtitles(manifest: Path, source: Path, output: Path, overwrite: bool, **options: Any) -> None:
    """Make a manifest of the words spoken in each clip.

    SOURCE is an SRT or WebVTT file, or a folder with one such file per film, named after the film's
    id, title or video (tt0467406.srt, "Juno (2007).en.vtt"). It can also be MObyGaze's
    tractive_subtitles.sql, next to tractive_movies.sql. Each text has the id of its clip. A
    subtitle that spans several clips goes to the clip that contains most of it. Exits with code 3
    if files or subtitles could not be used.

    Only the new manifest contains the words. Stores extracted from it contain no words, so they
    can be shared.

    \b
    Examples:
      obygaze manifests subtitles manifests/mine subtitles -o manifests/words
      obygaze features extract manifests/words --backbone words
      obygaze manifests subtitles manifests/juno juno.srt --shift -1.5 -o manifests/juno-words
    """
    words = of.Manifest.load(manifest).with_subtitles(source, **options)
    words.save(output, overwrite=overwrite)
    silent = words.items.texts.count("")
    echo(f"{words.describe_size()} -> {output}; {silent:,} without words")
    for note in words.notes:
        echo(note, err=True)
    echo(f"next: obygaze features extract {for_shell(output)} --backbone words")
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
    Exits with code 3 if any row matches no clip.

    \b
    Examples:
      obygaze manifests label manifests/mine labels.csv --levels low,high
      obygaze manifests label manifests/mine coding.csv --column id=clip --column level=tension
      obygaze manifests label manifests/mine second.csv --annotator ben
    """
    from obygaze_features.manifests.importers.csv_table import read_labels

    loaded = of.Manifest.load(manifest)
    labels, unmatched = read_labels(table, loaded, **options)
    loaded.add_labels(labels, overwrite=overwrite)
    echo(
        f"{len(labels):,} of {counted(len(loaded), 'item')} labelled -> "
        f"{manifest / 'labels' / labels.name}.csv"
    )
    echo(loaded.label_scheme(labels.name).order)
    if bare := [identifier for identifier in loaded.ids if identifier not in labels.level_of]:
        echo(f"{counted(len(bare), 'item')} without a label: {join_some(bare, 3)}")
    if unmatched:
        rows = counted(len(unmatched), "row matches", "rows match")
        echo(f"{rows} no item of {loaded.name}: {join_some(unmatched, 3)}")
    echo(f"next: obygaze manifests stats {for_shell(manifest)} --labels {labels.name}")
    exit_if(unmatched)


@manifests.command()
@folder_argument("manifest")
@json_option
def check(manifest: Path, as_json: bool) -> None:
    """List every problem in a manifest, with its file and line.

    Exits with code 1 if there are any problems.

    \b
    Example:
      obygaze manifests check manifests/obygaze12
    """
    from obygaze_features.manifests.manifest import check

    problems = check(manifest)
    last = counted(len(problems), "problem") if problems else f"{manifest} has no problems"
    emit(problems, as_json, lambda lines: "\n".join([*lines, last]))
    exit_if(problems, 1)


@manifests.command()
@folder_argument("manifest")
@labels_option
@click.option("--split", help="Count only the clips in this split.")
@click.option("--by-film", is_flag=True, help="Also show each film's levels.")
@click.option("-o", "--output", "figure", type=PATH, help="Also draw a figure: .svg, .pdf or .png.")
@overwrite_option
@json_option
def stats(
    manifest: Path, by_film: bool, figure: Path | None, overwrite: bool, as_json: bool, **parts: Any
) -> None:
    """Count levels and concepts, as in the paper's figure 2.

    \b
    Examples:
      obygaze manifests stats manifests/obygaze12 -o levels.png
      obygaze manifests stats manifests/obygaze12 --labels released --by-film
    """
    from obygaze_features.common.figures import check_figure_path, save_figure
    from obygaze_features.items.films import film_titles
    from obygaze_features.manifests.statistics import (
        describe_statistics,
        statistics,
        statistics_figure,
    )

    loaded = of.Manifest.load(manifest)
    counts = statistics(loaded, **parts)
    titles = film_titles(loaded.items)
    if figure is not None:
        check_figure_path(figure, overwrite=overwrite)
        drawn = statistics_figure(counts, titles, by_film=by_film)
        save_figure(drawn, figure, overwrite=overwrite)
    if as_json:
        echo_json(counts.to_json())
        return
    echo(describe_statistics(counts, titles, by_film=by_film))
    if figure is not None:
        echo(f"\nfigure -> {figure}")


@manifests.command()
@click.argument("concept", required=False)
@click.option("--csv", type=PATH, metavar="FILE", help="Write a table for annotation guidelines.")
@click.option(
    "--elan",
    type=PATH,
    metavar="FILE",
    help="Write an ELAN template (.etf) with the levels and concepts to choose from.",
)
@levels_option
@overwrite_option
@json_option
def thesaurus(
    concept: str | None,
    csv: Path | None,
    elan: Path | None,
    levels: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Explain the levels and concepts of ObyGaze or your own scheme.

    Prints the sub-constructs (five in the paper), the levels, and the meaning, instances, examples
    and sources of every concept; with CONCEPT, only those of this concept. To annotate your own
    film, create a new ELAN file from the template, and read your annotations with `obygaze
    annotations import elan`.

    \b
    Examples:
      obygaze manifests thesaurus
      obygaze manifests thesaurus Look
      obygaze manifests thesaurus --elan obygaze.etf --csv guidelines.csv
      obygaze manifests thesaurus --levels tension.toml --elan tension.etf
    """
    from obygaze_features.annotations.export import elan_template
    from obygaze_features.common.files import write_files
    from obygaze_features.manifests.labels import choose_scheme
    from obygaze_features.manifests.thesaurus import (
        describe_thesaurus,
        thesaurus_csv,
        thesaurus_json,
    )

    scheme = choose_scheme("levels", levels) or of.obygaze_scheme()
    names = scheme.concept_names if concept is None else [scheme.concept(concept)]
    concepts = [entry for entry in scheme.concepts if entry.name in names]
    files = {}
    if csv is not None:
        files[csv] = thesaurus_csv(scheme, concepts)
    if elan is not None:
        if elan.suffix.lower() != ".etf":
            raise UsageError(f"{elan}: an ELAN template's name must end in .etf")
        files[elan] = elan_template(scheme)
    write_files(files, overwrite=overwrite)
    if as_json:
        echo_json(thesaurus_json(scheme, concepts))
    elif not files:
        echo(describe_thesaurus(scheme, concepts))
    for path in files:
        echo(f"Wrote {path}", err=as_json)


@manifests.command()
@folder_argument("manifest")
@click.option(
    "--videos", type=PATH, required=True, help="The folder with videos, or with a folder per film."
)
@json_option
def locate(manifest: Path, videos: Path, as_json: bool) -> None:
    """Find each clip's video, and list missing and ambiguous files.

    A clip's file is FILM/STEM.* or STEM.*, with the extension of any video or sound format. Exits
    with code 3 if any files are missing or ambiguous.

    \b
    Example:
      obygaze manifests locate manifests/obygaze12 --videos /data/moviegraphs
    """
    located = of.Manifest.load(manifest).locate(videos)
    emit(located.to_json(), as_json, lambda _: located.describe(videos))
    exit_if(located.missing or located.ambiguous)


@manifests.command()
@folder_argument("manifest")
@click.option(
    "--labels",
    help="Split only clips with a label in this label set (default: the manifest's default; with "
    "--by but not --folds, all clips).",
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="Group clips by film, media (file) or another column of items.csv, and keep each group in "
    "one fold. There is one fold per group, unless you pass --folds.",
)
@click.option("--folds", type=int, help="The number of folds.  [default: 10, or one per group]")
@click.option("--seed", type=int, default=0, help="The seed of the split.")
@click.option("--name", help="The split's name (default: leak-free, leave-film-out or similar).")
@overwrite_option
def split(
    manifest: Path,
    by: str | None,
    folds: int | None,
    seed: int,
    name: str | None,
    overwrite: bool,
    labels: str | None,
) -> None:
    """Split a manifest's clips into folds.

    By default, the labelled clips are split, and the levels are spread evenly. With --by but not
    --folds, all clips (or those in the label set --labels) are split, into one fold per group.

    All experiments that use the split have the same folds, so their scores can be compared.
    Use --by media if spans overlap in time (for instance, spans of two annotators), or if
    consecutive spans of a file are alike.

    \b
    Examples:
      obygaze manifests split manifests/obygaze12
      obygaze manifests split manifests/obygaze12 --by film
      obygaze manifests split manifests/series --by director --folds 5
    """
    from obygaze_features.items.items import group_noun, safe_id
    from obygaze_features.manifests.splits import describe_neighbours

    loaded = of.Manifest.load(manifest)
    if by and folds is None:
        name = name or f"leave-{safe_id(group_noun(by))}-out"
        new = of.leave_film_out(loaded, labels=labels, groups=by, name=name)
    else:
        name = name or (f"by-{safe_id(by)}" if by else "leak-free")
        settings = {"folds": 10 if folds is None else folds, "seed": seed}
        new = of.stratified(loaded, labels=labels, groups=by, name=name, **settings)
    loaded.add_split(new, overwrite=overwrite)
    least, largest = min(new.sizes), max(new.sizes)
    sizes = f"{least}" if least == largest else f"{least} to {largest}"
    echo(
        f"{counted(len(new), 'clip')} in {counted(len(new.sizes), 'fold')} of {sizes} -> "
        f"{manifest / 'splits' / new.name}.csv"
    )
    if near := describe_neighbours(loaded.items, new):
        echo(
            f"WARNING: {near}; such clips are so alike that scores will be too high. Keep files "
            "whole (--by media), or, with fewer than three files, set gap = 5 in the experiment",
            err=True,
        )
    if len(new.sizes) < 3:
        echo(
            f"WARNING: the split has {len(new.sizes)} folds; obygaze models run needs three, to "
            "train, validate and test. Make more folds, or group by another column",
            err=True,
        )


@manifests.command()
@folder_argument("manifest")
@click.option("--train", multiple=True, metavar="SPLIT", help="The splits to train models on.")
@click.option("--test", multiple=True, metavar="SPLIT", help="The splits to test models on.")
@click.option(
    "--gap",
    type=Seconds(0),
    default=5.0,
    help="The largest gap between neighbouring clips of a file, in seconds.",
)
@click.option("--ids", "with_ids", is_flag=True, help="Also list the clips.")
@json_option
def audit(manifest: Path, with_ids: bool, as_json: bool, **options: Any) -> None:
    """Find test clips that are also training clips.

    Searches the training pools of splits and the training sets of runs. Also counts and names test
    clips that have a training clip next to them in the same file. By default, every split that has
    runs (or every split, if none has runs) is compared with every split as a test set.

    \b
    Examples:
      obygaze manifests audit manifests/obygaze12
      obygaze manifests audit manifests/obygaze12 --train 02_HN_S --test 02_ENHN_S --ids
    """
    from obygaze_features.manifests.audit import audit, describe_leaks

    leaks = audit(of.Manifest.load(manifest), **options)
    if as_json:
        echo_json([leak.to_json() for leak in leaks])
        return
    echo(describe_leaks(leaks))
    if with_ids:
        for leak in leaks:
            echo(f"\n{leak.test} in {leak.train}, {leak.where}: {' '.join(leak.ids)}")
            if leak.neighbours:
                echo(f"neighbours: {' '.join(leak.neighbours)}")
