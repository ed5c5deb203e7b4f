"""``obygaze manifests``: lists of clips with their labels and splits."""

from __future__ import annotations

from pathlib import Path

import click

from obygaze_features.common.cli import (
    LazyGroup,
    echo_json,
    folder_argument,
    json_option,
    levels_option,
    overwrite_option,
    table_options,
)
from obygaze_features.common.text import counted, for_shell
from obygaze_features.manifests.importers import IMPORTERS

__all__ = ["manifests"]

labels_option = click.option(
    "--labels", "--rule", "labels", help="The label set; by default the manifest's default one."
)


@click.group()
def manifests() -> None:
    """Lists of clips with their labels and splits.

    \b
    Examples:
      obygaze manifests import obygaze12 --download
      obygaze manifests import folder films -o manifests/mine
      obygaze manifests label manifests/mine labels.csv --levels low,high
      obygaze manifests stats manifests/obygaze12
      obygaze manifests locate manifests/obygaze12 --videos /data/moviegraphs
    """


@manifests.group("import", cls=LazyGroup, lazy=IMPORTERS)
def import_() -> None:
    """Make a manifest from annotations, a folder of videos or images, prompts or a table.

    \b
    Examples:
      obygaze manifests import obygaze12 ObyGaze12_thresh_02.csv -o manifests/obygaze12
      obygaze manifests import folder /data/films -o manifests/mine
      obygaze manifests import csv --help
    """


@manifests.command()
@folder_argument("manifest")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@json_option
def show(manifest: Path, ids: tuple[str, ...], as_json: bool) -> None:
    """What a manifest holds, or all about single items.

    \b
    Examples:
      obygaze manifests show manifests/obygaze12
      obygaze manifests show manifests/obygaze12 tt0108160-003
    """
    from obygaze_features.manifests.description import describe, describe_item
    from obygaze_features.manifests.manifest import Manifest

    loaded = Manifest.load(manifest)
    found = [describe_item(loaded, i) for i in ids] if ids else [describe(loaded)]
    if as_json:
        echo_json(found if ids else found[0])
        return
    click.echo("\n\n".join(map(_aligned, found)))


def _aligned(facts: dict[str, object]) -> str:
    width = max(map(len, facts))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in facts.items())


@manifests.command()
@folder_argument("manifest")
@folder_argument("table")
@table_options("id (or media), level, concepts, ratio", "level=tension")
@levels_option
@click.option("--name", help="The label set's name; by default the table's.")
@overwrite_option
def label(
    manifest: Path,
    table: Path,
    columns: dict[str, str],
    delimiter: str | None,
    levels: list[str] | None,
    name: str | None,
    overwrite: bool,
) -> None:
    """Add the labels of a TABLE to a manifest.

    A row of the CSV table names a clip by its id, its file or its file's name (in a column id,
    media, video, file_name ...), and has its level (in a column level or label). Ends with exit
    code 3 if rows name no clip of the manifest.

    \b
    Examples:
      obygaze manifests label manifests/mine labels.csv --levels low,high
      obygaze manifests label manifests/mine coding.csv --column id=clip --column level=tension
    """
    from obygaze_features.common.text import join_some
    from obygaze_features.manifests.importers.csv_table import read_labels
    from obygaze_features.manifests.manifest import Manifest, save_parts

    loaded = Manifest.load(manifest)
    label_set, strangers = read_labels(
        table, loaded, columns, delimiter=delimiter, levels=levels, name=name
    )
    save_parts(manifest, [label_set], overwrite=overwrite)
    click.echo(
        f"{len(label_set):,} of {counted(len(loaded), 'item')} labelled -> "
        f"{manifest / 'labels' / label_set.name}.csv"
    )
    if bare := [identifier for identifier in loaded.ids if identifier not in label_set.level_of]:
        click.echo(f"{counted(len(bare), 'item')} without a label: {join_some(bare, 3)}")
    if strangers:
        rows = counted(len(strangers), "row names", "rows name")
        click.echo(f"{rows} no item of {loaded.name}: {join_some(strangers, 3)}")
    click.echo(f"next: obygaze manifests stats {for_shell(manifest)} --labels {label_set.name}")
    if strangers:
        click.get_current_context().exit(3)


@manifests.command()
@folder_argument("manifest")
@json_option
def check(manifest: Path, as_json: bool) -> None:
    """Every problem of a manifest, with its file and line.

    Ends with exit code 1 if there is any.

    \b
    Example:
      obygaze manifests check manifests/obygaze12
    """
    from obygaze_features.manifests.check import check as find_problems

    problems = find_problems(manifest)
    if as_json:
        echo_json(problems)
    else:
        for problem in problems:
            click.echo(problem)
        click.echo(counted(len(problems), "problem") if problems else f"{manifest} is sound")
    if problems:
        click.get_current_context().exit(1)


@manifests.command()
@folder_argument("manifest")
@labels_option
@click.option("--split", help="Only the clips that this split has.")
@click.option("--by-film", is_flag=True, help="Also each film's levels.")
@click.option(
    "--figure",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also draw them, as .png, .pdf or .svg.",
)
@overwrite_option
@json_option
def stats(
    manifest: Path,
    labels: str | None,
    split: str | None,
    by_film: bool,
    figure: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Levels and concepts in figures, as in the paper's figure 2.

    \b
    Examples:
      obygaze manifests stats manifests/obygaze12 --figure levels.png
      obygaze manifests stats manifests/obygaze12 --labels released --by-film
    """
    from obygaze_features.manifests.films import film_titles
    from obygaze_features.manifests.manifest import Manifest
    from obygaze_features.manifests.statistics import describe, statistics

    loaded = Manifest.load(manifest)
    found = statistics(loaded, labels, split=split)
    titles = film_titles(loaded)
    if figure is not None:
        from obygaze_features.manifests.figure import draw

        draw(found, figure, titles, by_film=by_film, overwrite=overwrite)
    if as_json:
        echo_json(found.to_json())
        return
    click.echo(describe(found, titles, by_film=by_film))
    if figure is not None:
        click.echo(f"\nfigure -> {figure}")


@manifests.command()
@folder_argument("manifest")
@click.option(
    "--videos",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder of the films' folders, or of the files.",
)
@json_option
def locate(manifest: Path, videos: Path, as_json: bool) -> None:
    """Which clips' videos are there: found, missing, ambiguous.

    A clip is looked for as FILM/STEM.* and as STEM.*, whatever the extension. Ends with exit
    code 3 if some are missing or ambiguous.

    \b
    Example:
      obygaze manifests locate manifests/obygaze12 --videos /data/moviegraphs
    """
    from obygaze_features.manifests.locate import describe_located
    from obygaze_features.manifests.locate import locate as look
    from obygaze_features.manifests.manifest import Manifest

    found = look(Manifest.load(manifest), videos)
    if as_json:
        echo_json(found.to_json())
    else:
        click.echo(describe_located(found, videos))
    if found.missing or found.ambiguous:
        click.get_current_context().exit(3)


@manifests.command()
@folder_argument("left")
@folder_argument("right")
@json_option
def diff(left: Path, right: Path, as_json: bool) -> None:
    """What two manifests do not have in common.

    Ends with exit code 1 if there is a difference.

    \b
    Example:
      obygaze manifests diff manifests/obygaze12 manifests/ours
    """
    from obygaze_features.manifests.difference import describe_difference, difference
    from obygaze_features.manifests.manifest import Manifest

    found = difference(Manifest.load(left), Manifest.load(right))
    if as_json:
        echo_json(found.to_json())
    else:
        click.echo(describe_difference(found, str(left), str(right)))
    if not found.same:
        click.get_current_context().exit(1)


@manifests.command()
@folder_argument("manifest")
@labels_option
@click.option("--by-film", is_flag=True, help="One fold a film, to leave films out.")
@click.option("--folds", type=int, default=10, show_default=True, help="How many folds.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another deal.")
@click.option("--name", help="The split's name; by default leak-free or leave-film-out.")
@overwrite_option
def split(
    manifest: Path,
    labels: str | None,
    by_film: bool,
    folds: int,
    seed: int,
    name: str | None,
    overwrite: bool,
) -> None:
    """Deal the labelled clips into folds: one column for all of them.

    The levels are spread evenly. Whatever is trained and tested on such a split, train and test
    never meet. Spans that overlap in time (of two annotators, say) cannot be dealt singly: use
    --by-film.

    \b
    Examples:
      obygaze manifests split manifests/obygaze12
      obygaze manifests split manifests/obygaze12 --by-film
    """
    from obygaze_features.manifests.manifest import Manifest, save_parts
    from obygaze_features.manifests.splits import leave_film_out, stratified

    loaded = Manifest.load(manifest)
    if by_film:
        ids = loaded.labels(labels).ids if labels else None
        made = leave_film_out(name or "leave-film-out", loaded.items, ids)
    else:
        chosen = loaded.labels(labels)
        made = stratified(name or "leak-free", loaded.items, chosen, folds=folds, seed=seed)
    [path] = save_parts(manifest, [made], overwrite=overwrite)
    least, most = min(made.sizes), max(made.sizes)
    each = f"{least}" if least == most else f"{least} to {most}"
    click.echo(
        f"{counted(len(made), 'clip')} in {counted(len(made.sizes), 'fold')} of {each} -> {path}"
    )


@manifests.command()
@folder_argument("manifest")
@click.option("--train", multiple=True, metavar="SPLIT", help="Splits that models train on.")
@click.option("--test", multiple=True, metavar="SPLIT", help="Splits that they are tested on.")
@click.option("--test-fold", type=int, help="The fold that is tested on; by default the last.")
@click.option("--ids", "with_ids", is_flag=True, help="Also name the clips.")
@json_option
def audit(
    manifest: Path,
    train: tuple[str, ...],
    test: tuple[str, ...],
    test_fold: int | None,
    with_ids: bool,
    as_json: bool,
) -> None:
    """Which test clips are in a training pool, and in which run's training set.

    By default every split that has runs (every split, where none has) as training set against
    every split as test set.

    \b
    Examples:
      obygaze manifests audit manifests/obygaze12
      obygaze manifests audit manifests/obygaze12 --train 02_HN_S --test 02_ENHN_S --ids
    """
    from obygaze_features.manifests.audit import audit as look
    from obygaze_features.manifests.audit import describe_leaks
    from obygaze_features.manifests.manifest import Manifest

    leaks = look(Manifest.load(manifest), train=train, test=test, test_fold=test_fold)
    if as_json:
        echo_json([leak.to_json() for leak in leaks])
        return
    click.echo(describe_leaks(leaks))
    if with_ids:
        for leak in leaks:
            click.echo(f"\n{leak.test} in {leak.train}, {leak.where}: {' '.join(leak.ids)}")
