"""``obygaze models``: train and evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.commands import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)

if TYPE_CHECKING:
    from obygaze_models.experiments.run import Run

__all__ = ["models"]


@click.group()
def models() -> None:
    """Train and evaluate models on stores, on a CPU.

    \b
    Example:
      obygaze models run sure-against-easy.toml -o runs/first
    """


@models.command()
@folder_argument("experiment")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The run folder; by default runs/ and the experiment file's name.",
)
@overwrite_option
@json_option
def run(experiment: Path, output: Path | None, overwrite: bool, as_json: bool) -> None:
    """Train and test what an EXPERIMENT file describes.

    Writes a folder with run.json (scores, data, versions), predictions.csv and history.jsonl.

    \b
    Examples:
      obygaze models run experiments/sure-against-easy.toml
      obygaze models run sure-against-easy.toml -o runs/second --json
    """
    from obygaze_models.experiments.experiment import load_experiment
    from obygaze_models.experiments.run import run_experiment

    loaded = load_experiment(experiment)
    if not as_json:
        tests = ", ".join(task.name for task in loaded.test_tasks)
        click.echo(
            f"{loaded.name}: train {', '.join(loaded.estimators)} on {loaded.train_task.name}, "
            f"test on {tests}; {loaded.array} features of {loaded.store.name}"
        )
    done = run_experiment(loaded, output or Path("runs", experiment.stem), overwrite=overwrite)
    if as_json:
        echo_json(done.record)
    else:
        _echo_run(done)


def _echo_run(done: Run) -> None:
    from obygaze_features.common.tables import align
    from obygaze_models.experiments.join import Join
    from obygaze_models.experiments.summary import METRICS, summary_rows

    joined = Join(**done.record["join"])
    click.echo(f"{joined.used} of {joined.labelled} labelled clips have a fold and features")
    for line in joined.lines():
        click.echo(f"  {line}")
    click.echo()
    rows = summary_rows(done.record)
    for test, of in done.record["tests"].items():
        header = [f"{test}: {of['positives']} of {of['clips']} positive", *METRICS.values()]
        click.echo(align(header, [[row.name, *row.cells[test].values()] for row in rows]))
        click.echo()
    click.echo(f"Mean (standard deviation) over {len(done.record['draws'])} runs.")
    for caution in done.record["cautions"]:
        click.secho(f"CAUTION: {caution}", fg="yellow", bold=True, err=True)
    click.echo(f"Wrote {done.folder}; for a page to read: obygaze report {done.folder}")
