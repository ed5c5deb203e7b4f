"""`obygaze annotations agreement`: how far annotators agree, and where they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import obygaze_features as of
from obygaze_features.commands.annotations_project import exit_if_left_out
from obygaze_features.common.cli import (
    PATH,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)


@click.command()
@folder_argument("manifest")
@click.option(
    "--labels",
    multiple=True,
    help="A label set to compare; twice or more. By default those projected from annotators' "
    "timelines; where there are none, all that are not merged.",
)
@click.option(
    "--generator",
    type=click.Choice(["shuffled", "uniform"]),
    default="shuffled",
    show_default=True,
    help="How random sequences are drawn.",
)
@click.option(
    "--samples",
    type=click.IntRange(1, 1_000_000),
    default=62,
    show_default=True,
    help="How many random sequences.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Another seed, other random sequences.",
)
@click.option(
    "--differences",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="How many stretches to show in which they differ.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=PATH,
    help="A folder that gets all as CSV, or a figure of concepts and films: .svg, .pdf or .png. "
    "Repeatable.",
)
@overwrite_option
@json_option
def agreement(
    manifest: Path,
    labels: tuple[str, ...],
    differences: int,
    outputs: tuple[Path, ...],
    overwrite: bool,
    as_json: bool,
    **chance: Any,
) -> None:
    """How far annotators agree on a manifest's clips, and where they do not.

    First the means, how many clips have the same level, what one annotator scores against the
    other (a rough guide to what a model can reach, and no limit), and who marks more. Then
    Cohen's kappa of each concept; and for each film the paper's gamma over all levels and without
    the clips that either calls Not Sure, kappa, Krippendorff's alpha (nominal, ordinal, by the
    paper's distances); the confusion of levels, and the longest stretches in which they differ.

    gamma = 1 - d/e: d is the mean distance of the levels, e the same for random sequences. The
    paper does not say how it draws them: 'shuffled' puts one annotator's levels in random order,
    'uniform' draws two sequences with equal chances. 'closed' is the limit for many random
    sequences; p is the share of sequences that agree at least as well.

    Ends with exit code 3 if films lack a second annotator; they are named and left out.

    \b
    Examples:
      obygaze annotations agreement manifests/mine
      obygaze annotations agreement manifests/mine --labels ann --labels bea -o agreement
      obygaze annotations agreement manifests/mine -o agreement.pdf
      obygaze annotations agreement manifests/mine --generator uniform --json
    """
    from obygaze_features.annotations.agreement_report import agreement_report
    from obygaze_features.annotations.measures import Chance
    from obygaze_features.annotations.remarks import describe_remarks
    from obygaze_features.common.figures import SUFFIXES, save_figure
    from obygaze_features.common.files import refuse_to_overwrite, require_folder_name

    figures = [path for path in outputs if path.suffix.lower() in SUFFIXES]
    folders = [path for path in outputs if path not in figures]
    for path in outputs:
        require_folder_name(path, *SUFFIXES)
        refuse_to_overwrite(path, overwrite=overwrite)
    report = agreement_report(of.Manifest.load(manifest), labels, Chance(**chance))
    for path in folders:
        report.save(path, overwrite=overwrite)
    for path in figures:
        from obygaze_features.annotations.figures import agreement_figure

        save_figure(agreement_figure(report), path, overwrite=overwrite)
    if as_json:
        echo_json(report.to_json())
    else:
        click.echo(report.describe(differences=differences))
        if report.remarks:
            click.echo("\n" + "\n".join(describe_remarks(report.remarks, "--json has all")))
        if folders or figures:
            click.echo()
        for path in folders:
            click.echo(f"agreement, concepts, confusion, differences as CSV -> {path}")
        for path in figures:
            click.echo(f"figure -> {path}")
    exit_if_left_out(report.remarks)
