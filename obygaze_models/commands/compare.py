"""``obygaze models compare``: which of two models is better, and how certain that is."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from textwrap import fill

import click

from obygaze_features.common.cli import echo_json, json_option, overwrite_option
from obygaze_models.commands._shared import echo_warnings, run_folders, verbose_option
from obygaze_models.data.warnings import RunWarning


class _MetricOption(click.Option):
    """Names all metrics, which are looked up where help is asked for."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from obygaze_models.scoring.metrics import METRICS, TREC

        names, text = super().get_help_record(ctx) or ("", "")
        return names, text.format(", ".join(key for key in METRICS if key != TREC))


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Only models of this name, of all runs, each with each; give it several times.",
)
@click.option(
    "--metric",
    cls=_MetricOption,
    help="The score that is shown: {}.  [default: f1, of several classes f1_macro]",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A figure: .svg, .pdf or .png."
)
@overwrite_option
@verbose_option
@json_option
def compare(
    runs: tuple[Path, ...],
    models: tuple[str, ...],
    metric: str | None,
    output: Path | None,
    overwrite: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Compare models of one RUN or several, on the clips that both were tested on.

    Of several runs each model is compared with that of the same name in the others, of one its
    models with one another. Both are scored on the same clips and on the same draws of films: the
    interval is that of their difference, the first minus the second. Where an experiment has
    several fits, each clip's mean probability counts; `models run` prints the mean of the fits'
    scores, which stands below the table.

    \b
    Examples:
      obygaze models compare runs/xclip runs/vivit
      obygaze models compare runs/xclip --model mlp --model pcbm-tree --metric auroc
      obygaze models compare runs/xclip runs/vivit -o differences.svg
    """
    from obygaze_features.common.figures import check_figure_path
    from obygaze_models.experiments.compare import compare as compare_runs
    from obygaze_models.experiments.run_folder import load_run

    if output:
        check_figure_path(output, overwrite=overwrite)
    opened = [load_run(folder) for folder in run_folders(runs)]
    compared = compare_runs(*opened, models=models)
    table = compared.table(metric)
    notes = [
        f"left out: {comparison.test}, which has other classes and so no {metric}"
        for comparison in compared.comparisons
        if metric not in (None, *comparison.scores)
    ]
    notes += [note for comparison in compared.comparisons for note in comparison.notes]
    notes += compared.left_out
    warnings = [warning for run in opened for warning in run.warnings]
    alarms = [warning for warning in warnings if warning.voids_scores]
    if as_json:
        echo_json(asdict(compared))
        echo_warnings(alarms)
    else:
        echo_warnings(alarms)
        click.secho(fill(compared.headline(metric), 100), bold=True)
        click.echo(f"\n{table}")
    # One line for the notes that begin alike, such as "left out".
    kinds = [RunWarning(note.partition(":")[0], "", note) for note in notes]
    echo_warnings(notes if verbose else kinds, heading="NOTE", verbose=verbose)
    if output:
        from obygaze_features.common.figures import save_figure

        save_figure(compared.figure(metric), output, overwrite=overwrite)
        click.echo(f"Wrote {output}", err=as_json)
