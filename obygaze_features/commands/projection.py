"""`obygaze annotations project`, `merge` and `sweep`: from timelines to labels of clips."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.tables import align
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_features.annotations.keeping import Kept
    from obygaze_features.annotations.remarks import Remark
    from obygaze_features.manifests.labels import LabelSet

__all__ = ["merge", "project", "sweep"]

grid_option = click.option(
    "--grid",
    required=True,
    metavar="GRID",
    help="A manifest whose clips have start and end; a time (60 or 0:01:00); or a CSV file of "
    "shots or scenes with film, start, end (seconds or h:mm:ss) and, if you like, id.",
)


@click.command()
@folder_argument("timelines")
@grid_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="A new manifest's folder; by default the labels go into the grid, where it is a manifest.",
)
@click.option(
    "--threshold",
    default="0.2",
    show_default=True,
    help="The share of a clip that a segment must cover to count for it.",
)
@overwrite_option
@json_option
def project(
    timelines: Path,
    grid: str,
    output: Path | None,
    threshold: str,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Give clips the levels and concepts of annotators' segments.

    A segment counts for a clip if it covers at least --threshold of it. Of those that count the
    highest level wins, with the concepts of all that have it; where none counts, the clip has the
    lowest level. Each annotator becomes a label set, over the clips of the films that they
    annotated; `obygaze annotations merge` makes one of them. Ends with exit code 3 if something
    was left out.

    \b
    Examples:
      obygaze annotations project timelines --grid 60 -o manifests/mine
      obygaze annotations project timelines --grid shots.csv --threshold 0.3 -o manifests/mine
      obygaze annotations project timelines --grid manifests/mine
    """
    from obygaze_features.annotations.grids import read_grid
    from obygaze_features.annotations.keeping import keep_labels
    from obygaze_features.annotations.projection import project as project_on
    from obygaze_features.annotations.timelines import Timelines

    share = _share(threshold, "--threshold")
    loaded = Timelines.load(timelines)
    clips, odd = read_grid(grid, loaded)
    folder = output or clips.folder
    if folder is None:
        raise UsageError(f"the grid {grid} is no manifest that labels could go into; name one: -o")
    found = project_on(loaded, clips, threshold=share)
    kept = keep_labels(found.grid, found.label_sets, folder, overwrite=overwrite)
    remarks = [*odd, *found.remarks, *_removed(kept)]
    if as_json:
        echo_json(
            {
                "manifest": str(folder),
                "threshold": share,
                "clips": len(clips),
                "label_sets": {one.name: _levels(one) for one in found.label_sets},
                "remarks": [vars(one) for one in remarks],
            }
        )
    else:
        click.echo(f"{counted(len(clips), 'clip')}, threshold {share:g} -> {folder}")
        _echo_levels(found.label_sets, clips.scheme.codes)
        _echo_remarks(remarks)
        for line in _next(kept, folder, [labels.name for labels in found.label_sets]):
            click.echo(f"next: {line}")
    _exit_if_left_out(remarks)


@click.command()
@folder_argument("manifest")
@click.option(
    "--labels",
    "names",
    multiple=True,
    metavar="NAME",
    help="A label set to merge, once for each; by default all that were projected.",
)
@click.option("--name", default="merged", show_default=True, help="The merged label set's name.")
@overwrite_option
@json_option
def merge(
    manifest: Path, names: tuple[str, ...], name: str, overwrite: bool, as_json: bool
) -> None:
    """Make one label set of several annotators'.

    The highest level wins; concepts are united among those who gave it. A clip that only one
    annotator has is taken from that one, and the films of such clips are named. The merged label
    set is what is meant where no other is named, unless the manifest has a default one already.

    \b
    Examples:
      obygaze annotations merge manifests/mine
      obygaze annotations merge manifests/mine --labels annotator1 --labels annotator3 --name ours
    """
    from obygaze_features.annotations.keeping import keep_labels
    from obygaze_features.annotations.merge import merge as merge_sets
    from obygaze_features.annotations.merge import to_merge
    from obygaze_features.manifests.manifest import Manifest

    loaded = Manifest.load(manifest)
    chosen = to_merge(loaded, names)
    found = merge_sets(chosen, loaded, name)
    kept = keep_labels(loaded, [found.labels], manifest, default=name, overwrite=overwrite)
    remarks = [*found.remarks, *_removed(kept)]
    if as_json:
        echo_json(
            {
                "manifest": str(manifest),
                "labels": name,
                "of": {one.name: _levels(one) for one in chosen},
                **_levels(found.labels),
                "default_labels": kept.default,
                "remarks": [vars(one) for one in remarks],
            }
        )
        return
    _echo_levels([*chosen, found.labels], loaded.shared_scheme(chosen).codes)
    default_or_not = "the default" if kept.default == name else f"{kept.default} stays the default"
    click.echo(f"{name} -> {manifest / 'labels' / f'{name}.csv'} ({default_or_not})")
    _echo_remarks(remarks)


@click.command()
@folder_argument("timelines")
@grid_option
@click.option(
    "--thresholds",
    default=".1,.2,.3,.4",
    show_default=True,
    metavar="T,...",
    help="The shares of a clip that a segment must cover.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the table, as CSV.",
)
@overwrite_option
@json_option
def sweep(
    timelines: Path,
    grid: str,
    thresholds: str,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """What the threshold makes of the labels.

    Projects and merges at each threshold, and counts: clips of each level, and concepts a clip in
    the mean. Nothing is saved but the table. Ends with exit code 3 if something was left out.

    \b
    Examples:
      obygaze annotations sweep timelines --grid 60
      obygaze annotations sweep timelines --grid manifests/mine --thresholds .2,.5 -o sweep.csv
    """
    from obygaze_features.annotations.grids import read_grid
    from obygaze_features.annotations.sweep import sweep as sweep_over
    from obygaze_features.annotations.sweep import sweep_csv
    from obygaze_features.annotations.timelines import Timelines
    from obygaze_features.common.files import new_file, refuse_to_overwrite

    asked = [_share(text, "--thresholds") for text in thresholds.split(",")]
    if output is not None:
        refuse_to_overwrite(output, overwrite=overwrite)
    loaded = Timelines.load(timelines)
    clips, odd = read_grid(grid, loaded)
    found, more = sweep_over(loaded, clips, asked)
    remarks = [*odd, *more]
    if output is not None:
        with new_file(output, overwrite=overwrite) as path:
            path.write_text(sweep_csv(found), encoding="utf-8")
    if as_json:
        rows = [one.to_json() for one in found]
        echo_json({"thresholds": rows, "remarks": [vars(one) for one in remarks]})
    else:
        header = ["threshold", "clips", *clips.scheme.codes, "concepts a clip"]
        click.echo(
            align(
                header,
                [
                    [
                        f"{one.threshold:g}",
                        f"{one.clips:,}",
                        *(f"{n:,} ({one.shares[level]:.1%})" for level, n in one.levels.items()),
                        f"{one.concepts_per_clip:.3f}",
                    ]
                    for one in found
                ],
            )
        )
        _echo_remarks(remarks)
        if output is not None:
            click.echo(f"table -> {output}")
    _exit_if_left_out(remarks)


def _share(text: str, option: str) -> float:
    """A share, as a number or in per cent."""
    number = text.strip()
    try:
        return float(number[:-1]) / 100 if number.endswith("%") else float(number)
    except ValueError:
        raise UsageError(f"{option} takes numbers such as 0.2 or 20%, not {text!r}") from None


def _removed(kept: Kept) -> list[Remark]:
    from obygaze_features.annotations.remarks import Remark

    return [
        Remark(
            name,
            "",
            "",
            f"was merged of {join_some(of)}, which are replaced",
            "removed; merge anew",
        )
        for name, of in kept.removed.items()
    ]


def _next(kept: Kept, folder: Path, projected: Sequence[str]) -> list[str]:
    """The commands that merge anew what was removed, or else for the first time."""
    from obygaze_features.annotations.merge import MERGED
    from obygaze_features.manifests.manifest import Manifest

    command = f"obygaze annotations merge {shlex.quote(str(folder))}"
    if kept.removed:
        named = {
            name: "".join(f" --labels {one}" for one in of) for name, of in kept.removed.items()
        }
        return [f"{command}{labels} --name {name}" for name, labels in named.items()]
    if len(projected) < 2:
        return []
    # One of that name may be somebody's own, which no advice of ours replaces.
    taken = Manifest.load(folder).label_names
    numbered = (f"{MERGED}-{number}" for number in count(2))
    free = next(name for name in chain([MERGED], numbered) if name not in taken)
    return [command if free == MERGED else f"{command} --name {free}"]


def _levels(labels: LabelSet) -> dict[str, Any]:
    return {"clips": len(labels), "levels": Counter(labels.levels)}


def _echo_levels(label_sets: Sequence[LabelSet], codes: Sequence[str]) -> None:
    rows = []
    for labels in label_sets:
        counts = Counter(labels.levels)
        numbers = [f"{counts[code]:,}" for code in codes]
        rows.append([labels.name, f"{len(labels):,}", *numbers])
    click.echo(align(["labels", "clips", *codes], rows))


def _echo_remarks(remarks: Sequence[Remark]) -> None:
    from obygaze_features.annotations.remarks import remark_lines

    for line in remark_lines(remarks, "--json has all"):
        click.echo(line)


def _exit_if_left_out(remarks: Sequence[Remark]) -> None:
    from obygaze_features.annotations.remarks import any_left_out

    if any_left_out(remarks):
        click.get_current_context().exit(3)
