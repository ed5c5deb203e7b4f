"""The commands of ``obygaze annotations``, which turn annotators' timelines into clip labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

import obygaze_features as of
from obygaze_features.commands.annotations_project import (
    agreement,
    exit_if_left_out,
    merge,
    project,
)
from obygaze_features.commands.import_group import ImportGroup
from obygaze_features.common.cli import (
    PATH,
    echo,
    echo_json,
    film_option,
    folder_argument,
    join_options,
    json_option,
    output_options,
)
from obygaze_features.common.printer import align
from obygaze_features.common.text import counted, for_shell, format_time, join_some
from obygaze_features.errors import AnnotationError, UsageError

MAX_ROWS_SHOWN = 40


@click.group("annotations")
def annotation_commands() -> None:
    """Turn annotators' timelines into clip labels.

    \b
    Examples:
      obygaze annotations import csv segments.csv -o timelines/mine
      obygaze annotations project timelines/mine --grid 60 -o manifests/mine
      obygaze annotations merge manifests/mine
      obygaze annotations agreement manifests/mine
    """


save_options = join_options(output_options("The timelines' folder."), json_option)


@click.group("import", cls=ImportGroup, makes="Timelines", options=lambda name: save_options)
def import_() -> None:
    """Make timelines from annotators' files.

    \b
    Examples:
      obygaze annotations import mobygaze mobygaze_dataframe.csv -o timelines/mobygaze
      obygaze annotations import elan films/*.eaf -o timelines/mine
      obygaze annotations import csv --help
    """


annotation_commands.add_command(import_)


@import_.saves
def _save(timelines: of.Timelines, output: Path, *, overwrite: bool, as_json: bool) -> None:
    """Save and describe timelines and remarks; exit with code 3 if anything was left out."""
    from obygaze_features.annotations.remarks import LEFT_OUT, TIER, describe_remarks

    remarks = timelines.remarks
    if not timelines.segments:
        first_remark = sorted(remarks, key=lambda remark: remark.done != LEFT_OUT)[:1]
        first = "; ".join(["", *describe_remarks(first_remark, "")])
        source = timelines.source or timelines.name
        raise AnnotationError(f"no readable segments in {source}{first}")
    timelines.save(output, overwrite=overwrite)
    if as_json:
        echo_json(
            {
                "output": str(output),
                "segments": len(timelines.segments),
                "films": list(timelines.films),
                "annotators": timelines.annotators,
                "remarks": [remark.to_json() for remark in remarks],
            }
        )
    else:
        echo(f"{timelines.describe_size()} -> {output}\n{timelines.scheme.order}")
        for line in describe_remarks(remarks, str(output / "remarks.csv"), timelines.titles):
            echo(line)
        left_out = [remark for remark in remarks if remark.done == LEFT_OUT]
        kinds = (remark.code.partition(":")[0] for remark in left_out)
        nouns = Counter("tier" if kind == TIER else "row" for kind in kinds)
        counts = [counted(nouns[noun], noun) for noun in ("row", "tier") if nouns[noun]]
        if counts:
            echo(f"{' and '.join(counts)} left out")
        echo(f"next: obygaze annotations show {for_shell(output)}")
    exit_if_left_out(remarks)


@annotation_commands.command()
@folder_argument("timelines")
@film_option("Only these films.")
@json_option
def show(timelines: Path, films: Sequence[str], as_json: bool) -> None:
    """Show the segments and marked time of each film and annotator.

    Time is listed by level. Time in several overlapping segments of an annotator counts once.

    \b
    Examples:
      obygaze annotations show timelines/mobygaze
      obygaze annotations show timelines/mobygaze --film "Pulp Fiction"
      obygaze annotations show timelines/mobygaze --json
    """
    from obygaze_features.annotations.remarks import describe_remarks
    from obygaze_features.items.films import find_films

    loaded = of.Timelines.load(timelines)
    if films:
        loaded = loaded.of_films(find_films(films, loaded.titles))
    if as_json:
        echo_json(loaded.to_json())
        return
    rows = [
        [
            loaded.titles[row.film],
            row.annotator,
            f"{row.segments:,}",
            *(format_time(round(seconds)) for seconds in row.levels.values()),
            format_time(round(row.covered)),
            f"{row.covered / end:.0%}" if (end := loaded.films[row.film].end) else "",
        ]
        for row in loaded.coverage
    ]
    codes = loaded.scheme.codes
    header = ["film", "annotator", "segments", *codes, "covered", "of film"]
    if not any(row[-1] for row in rows):
        header, *rows = (row[:-1] for row in (header, *rows))
    echo(f"{loaded.name}: {loaded.describe_size()}")
    echo(align(header, rows[:MAX_ROWS_SHOWN], left=2))
    if (more := len(rows) - MAX_ROWS_SHOWN) > 0:
        echo(f"and {more:,} more; --json lists all")
    for line in describe_remarks(loaded.remarks, str(timelines / "remarks.csv"), loaded.titles):
        echo(line)


@annotation_commands.command()
@folder_argument("timelines")
@click.option(
    "--manifest",
    type=PATH,
    help="Add a tier for each of this manifest's label sets.",
)
@click.option(
    "--videos",
    type=PATH,
    help="A folder of films, named by id or title, so that each ELAN file opens with its film.",
)
@output_options("The folder for the files.")
def export(
    timelines: Path, manifest: Path | None, videos: Path | None, output: Path, overwrite: bool
) -> None:
    """Write one ELAN file per film, with one tier per annotator.

    Files are named after the films' titles. They can be imported again without loss: each contains
    the levels and concepts to choose from, the data set's name, source, licence and citation, and
    the exact times of segments that you do not move. With --manifest, the tier "to discuss" shows
    where annotators differ. Unchanged .eaf files are replaced with --overwrite; files that were
    edited, or that obygaze did not write, are never replaced. For a spreadsheet, open the
    segments.csv of the timelines.

    \b
    Examples:
      obygaze annotations export timelines/mobygaze -o for-elan
      obygaze annotations export timelines/mobygaze --videos films -o for-elan
      obygaze annotations export timelines/mobygaze --manifest manifests/m60 -o for-elan
    """
    from obygaze_features.annotations.export import elan_files, link_videos
    from obygaze_features.common.elan import refuse_edited
    from obygaze_features.common.files import require_folder_name, write_files

    require_folder_name(output)
    loaded = of.Timelines.load(timelines)
    clips = None if manifest is None else of.Manifest.load(manifest)
    links = {} if videos is None else link_videos(loaded, videos, output)
    documents = elan_files(loaded, clips, links)
    files = {output / name: text for name, text in documents.items()}
    if overwrite:
        refuse_edited(files)
    write_files(files, overwrite=overwrite)
    echo(f"{counted(len(documents), 'file')} for ELAN, one per film -> {output}")
    _hint_at_elan(loaded, links, has_clips=clips is not None)


def _hint_at_elan(loaded: of.Timelines, links: Mapping[str, str], *, has_clips: bool) -> None:
    unlinked = [loaded.titles[film] for film in loaded.by_film if links and film not in links]
    if unlinked:
        echo(f"no video found for {join_some(unlinked)}")
    if not has_clips and len(loaded.annotators) > 1:
        echo('add --manifest MANIFEST for a tier "to discuss" that shows where annotators differ')


@annotation_commands.command()
@folder_argument("timelines")
@folder_argument("manifest")
@film_option("Only these films.")
@output_options("The folder for the figures; or, for a single film, a file: .svg, .pdf or .png.")
def figure(
    timelines: Path,
    manifest: Path,
    films: Sequence[str],
    output: Path,
    overwrite: bool,
) -> None:
    """Draw each film's timelines, projected labels and merged labels.

    Draws one figure per film, like the paper's figure 4: each annotator's segments, the levels of
    the clips below them, and then the merged levels. The higher the level, the taller the bar.
    Needs matplotlib: pip install 'obygaze[report]'.

    \b
    Examples:
      obygaze annotations figure timelines/mine manifests/mine -o figures
      obygaze annotations figure timelines/mine manifests/mine --film Juno -o juno.pdf
    """
    from obygaze_features.annotations.figures import film_figure, films_with_clips
    from obygaze_features.common.figures import SUFFIXES, check_figure_path, save_figure
    from obygaze_features.common.files import require_folder_name
    from obygaze_features.common.text import file_names
    from obygaze_features.items.films import find_films

    require_folder_name(output, *SUFFIXES)
    segments, clips = of.Timelines.load(timelines), of.Manifest.load(manifest)
    drawable = films_with_clips(segments, clips)
    if not drawable:
        raise AnnotationError(
            f"{manifest} has no clips of the films in {timelines}; project the timelines "
            f"first (obygaze annotations project {timelines} --grid 60 -o MANIFEST)"
        )
    titles = {film: segments.titles[film] for film in drawable}
    chosen = find_films(films, titles) or drawable
    as_file = output.suffix.lower() in SUFFIXES
    if as_file and len(chosen) > 1:
        count = f"there are {len(chosen)} figures"
        raise UsageError(f"{output} is one file, but {count}; pass a single --film, or a folder")
    names = file_names([titles[film] for film in chosen], ".svg")
    files = [output if as_file else output / name for name in names]
    paths = dict(zip(chosen, files, strict=True))
    for path in paths.values():
        check_figure_path(path, overwrite=overwrite)
    for film, path in paths.items():
        save_figure(film_figure(segments, clips, film), path, overwrite=overwrite)
    echo(f"{counted(len(paths), 'figure')}, one per film -> {output}")
    merges = any(clips.labels(name).merged_from for name in clips.label_names)
    if not merges and len({*segments.annotators} & {*clips.label_names}) > 1:
        echo(f"no merged labels to draw; make them with: obygaze annotations merge {manifest}")


for command in (project, merge, agreement):
    annotation_commands.add_command(command)
