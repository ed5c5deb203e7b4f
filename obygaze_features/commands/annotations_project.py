"""The commands `obygaze annotations project`, `merge` and `agreement`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import obygaze_features as of
from obygaze_features.common.cli import (
    echo,
    echo_json,
    exit_if,
    folder_argument,
    json_option,
    output_options,
    overwrite_option,
)
from obygaze_features.common.printer import align
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_features.annotations.merge import MergedLabels, SavedLabels
    from obygaze_features.annotations.remarks import Remark
    from obygaze_features.manifests.labels import LabelScheme, LabelSet

grid_option = click.option(
    "--grid",
    required=True,
    metavar="GRID",
    help="A manifest of clips with start and end, or the length of a clip (60 or 0:01:00).",
)


@click.command()
@folder_argument("timelines")
@grid_option
@output_options(
    "A new manifest's folder (default: add the labels to the grid's manifest).",
    required=False,
)
@click.option(
    "--threshold",
    default="0.2",
    help="The share of a clip that a segment must cover to count.",
)
@json_option
def project(
    timelines: Path, grid: str, output: Path | None, threshold: str, overwrite: bool, as_json: bool
) -> None:
    """Label clips with the levels and concepts of segments.

    A segment counts for a clip if it covers at least --threshold of the clip. The highest level
    among these segments wins, with the concepts of all segments at this level. A clip without such
    a segment gets the lowest level. Each annotator's labels become a label set, which covers the
    clips of the films that this annotator marked; `obygaze annotations merge` combines label sets.
    Exits with code 3 if anything was left out.

    \b
    Examples:
      obygaze annotations project timelines --grid 60 -o manifests/mine
      obygaze annotations project timelines --grid 0:00:30 --threshold 0.3 -o manifests/mine
      obygaze annotations project timelines --grid manifests/mine
    """
    share = _parse_share(threshold, "--threshold")
    projected = of.Timelines.load(timelines).project(grid, threshold=share)
    clips = projected.grid
    folder = output or clips.folder
    if folder is None:
        raise UsageError(f"--grid {grid} is a clip length; add -o MANIFEST to hold the labels")
    saved = projected.save(folder, overwrite=overwrite)
    remarks = [*projected.remarks, *_removed_remarks(saved)]
    if as_json:
        echo_json(
            {
                "manifest": str(folder),
                "threshold": share,
                "clips": len(clips),
                "label_sets": {labels.name: _levels(labels) for labels in projected.label_sets},
                "remarks": [remark.to_json() for remark in remarks],
            }
        )
    else:
        echo(f"{counted(len(clips), 'clip')}, threshold {share:g} -> {folder}")
        _echo_levels(projected.label_sets, clips.scheme.codes)
        _echo_remarks(remarks)
        for line in _next_commands(saved, folder, [s.name for s in projected.label_sets]):
            echo(f"next: {line}")
    exit_if_left_out(remarks)


@click.command()
@folder_argument("manifest")
@click.option(
    "--labels",
    "names",
    multiple=True,
    metavar="NAME",
    help="A label set to merge; repeatable (default: every annotator's).",
)
@click.option("--name", default="merged", help="The merged label set's name.")
@overwrite_option
@json_option
def merge(
    manifest: Path, names: tuple[str, ...], name: str, overwrite: bool, as_json: bool
) -> None:
    """Merge several annotators' label sets into one.

    The highest level wins, with every concept given by the annotators who chose that level. A clip
    that only one annotator labelled keeps that annotator's labels, and its film is listed. Of
    the clips that all annotators labelled, the command also counts how many have the highest level
    from all of them, and from any of them. The merged label set becomes the manifest's default
    unless the manifest already has one.

    \b
    Examples:
      obygaze annotations merge manifests/mine
      obygaze annotations merge manifests/mine --labels annotator1 --labels annotator3 --name ours
    """
    from obygaze_features.annotations.merge import labels_to_merge, merge_labels, save_labels

    loaded = of.Manifest.load(manifest)
    chosen = labels_to_merge(loaded, names)
    merged = merge_labels(chosen, loaded, name)
    saved = save_labels(loaded, [merged.labels], manifest, default=name, overwrite=overwrite)
    remarks = [*merged.remarks, *_removed_remarks(saved)]
    if as_json:
        echo_json(
            {
                "manifest": str(manifest),
                "labels": name,
                "of": {labels.name: _levels(labels) for labels in chosen},
                **_levels(merged.labels),
                "default_labels": saved.default,
                "of_all": merged.of_all,
                "remarks": [remark.to_json() for remark in remarks],
            }
        )
        return
    scheme = loaded.shared_scheme(chosen)
    _echo_levels([*chosen, merged.labels], scheme.codes)
    echo(_describe_merge(merged, scheme))
    default = "the default" if saved.default == name else f"{saved.default} stays the default"
    echo(f"{name} -> {manifest / 'labels' / f'{name}.csv'} ({default})")
    _echo_remarks(remarks)


@click.command()
@folder_argument("manifest")
@click.option(
    "--labels",
    multiple=True,
    help="An annotator's label set; at least two (default: all annotators').",
)
@output_options("A folder for CSV tables.", required=False)
@json_option
def agreement(
    manifest: Path, labels: tuple[str, ...], output: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Measure how much annotators agree, and where they differ.

    Prints the share of clips with the same level, who marks more, one annotator's score against the
    other (a rough guide to what a model can reach, but not a limit), and means over films. Tables
    follow. One has Cohen's kappa for each concept. One has measures for each film: kappa,
    Krippendorff's alpha (nominal, ordinal, and with the paper's distances), and the paper's gamma
    over all levels and without the clips that either annotator calls Not Sure. The others have the
    confusion of levels, and the longest stretches where annotators differ.

    gamma = 1 - d/e, where d is the mean distance between the annotators' levels, and e is that mean
    after one annotator's levels are shuffled. 'closed' is the limit for many shuffles.

    Only annotators' label sets are compared: those that were projected from timelines, imported
    with --annotator, or named by you. Label sets that a rule made from other label sets say nothing
    about how much people agree, and are refused.

    Films without a second annotator are listed and left out; the exit code is then 3.

    \b
    Examples:
      obygaze annotations agreement manifests/mine
      obygaze annotations agreement manifests/mine --labels ann --labels bea -o agreement
    """
    from obygaze_features.annotations.agreement_report import agreement_report
    from obygaze_features.annotations.remarks import describe_remarks
    from obygaze_features.common.files import refuse_to_overwrite

    if output is not None:
        refuse_to_overwrite(output, overwrite=overwrite)
    report = agreement_report(of.Manifest.load(manifest), labels)
    if output is not None:
        report.save(output, overwrite=overwrite)
    if as_json:
        echo_json(report.to_json())
    else:
        echo(report.describe(), strong=report.main_number)
        if report.remarks:
            echo("\n" + "\n".join(describe_remarks(report.remarks, "--json lists all")))
        if output is not None:
            echo(f"\nCSV tables (agreement, means, concepts, differences and others) -> {output}")
    exit_if_left_out(report.remarks)


def _describe_merge(merged: MergedLabels, scheme: LabelScheme) -> str:
    """Report how many clips have the highest level from all annotators, and how many from any.

    As in `obygaze annotations agreement`, these are clips that all annotators labelled. Clips that
    only some of them labelled are counted separately.
    """
    top, labels = scheme.levels[-1], merged.labels
    counts = zip(labels.levels, map(int, labels.extra["annotators"]), strict=True)
    annotators = Counter(count for level, count in counts if level == top.code)
    number, either = merged.of_all[top.code], annotators.pop(merged.sources, 0)
    words = ("both", "either", "one") if merged.sources == 2 else ("all", "any", "some")
    everybody, anybody, part = words
    text = f"{top.name}: {either:,} by {anybody} annotator, {number:,} of them by {everybody}"
    more = annotators.total()
    if either:
        share = f"{number / either:.0%}"
        text += f" ({share})" if more else f" ({share} of the clips merged as {top.name})"
    return f"{text}; {more:,} more in clips that only {part} annotated" if more else text


def _parse_share(text: str, option: str) -> float:
    """Parse a share, written as a number or a percentage."""
    number = text.strip()
    try:
        return float(number[:-1]) / 100 if number.endswith("%") else float(number)
    except ValueError:
        raise UsageError(f"{option} takes numbers such as 0.2 or 20% (got {text!r})") from None


def _removed_remarks(saved: SavedLabels) -> list[Remark]:
    from obygaze_features.annotations.remarks import Remark

    action = "removed; merge again"
    return [
        Remark(name, "", "", f"was merged from {join_some(sources)} before labels changed", action)
        for name, sources in saved.removed.items()
    ]


def _next_commands(saved: SavedLabels, folder: Path, projected: Sequence[str]) -> list[str]:
    """Return the commands that redo removed merges, or that merge for the first time."""
    command = f"obygaze annotations merge {shlex.quote(str(folder))}"
    if saved.removed:
        return [
            f"{command}{''.join(f' --labels {source}' for source in sources)} --name {name}"
            for name, sources in saved.removed.items()
        ]
    return [command] if len(projected) > 1 else []


def _levels(labels: LabelSet) -> dict[str, Any]:
    return {"clips": len(labels), "levels": Counter(labels.levels)}


def _echo_levels(label_sets: Sequence[LabelSet], codes: Sequence[str]) -> None:
    rows = []
    for labels in label_sets:
        counts = Counter(labels.levels)
        rows.append([labels.name, f"{len(labels):,}", *(f"{counts[code]:,}" for code in codes)])
    echo(align(["labels", "clips", *codes], rows))


def _echo_remarks(remarks: Sequence[Remark]) -> None:
    from obygaze_features.annotations.remarks import describe_remarks

    for line in describe_remarks(remarks, "--json lists all"):
        echo(line)


def exit_if_left_out(remarks: Sequence[Remark]) -> None:
    """Exit with code 3 if anything was left out."""
    from obygaze_features.annotations.remarks import LEFT_OUT

    exit_if(any(remark.done == LEFT_OUT for remark in remarks))
