"""``obygaze models``: run experiments; train, ask and explain models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.text import counted, for_shell, redact_url
from obygaze_features.errors import ExperimentError
from obygaze_models.commands._shared import echo_warnings, verbose_option
from obygaze_models.commands.compare import compare
from obygaze_models.commands.explain import explain
from obygaze_models.commands.moments import evaluate_moments, moments
from obygaze_models.commands.predict import evaluate, export, predict, train
from obygaze_models.commands.trec import score_run, write_run

if TYPE_CHECKING:
    from obygaze_models.experiments.run_folder import Run


PARTLY_DONE = 3
"""The exit code if fits or tests were skipped."""


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
@click.option(
    "--predictions",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A table id, fit, probability of a model of your own, which is scored like the others.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be trained and tested, and about how long it takes; write nothing.",
)
@overwrite_option
@verbose_option
@json_option
def run(
    experiment: Path,
    output: Path | None,
    predictions: tuple[Path, ...],
    dry_run: bool,
    overwrite: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Train and test what an EXPERIMENT file describes.

    Writes a folder with run.json (scores, data, versions), predictions.csv, history.jsonl and the
    models. Finished fits are kept in OUTPUT.partial: the same command resumes after an
    interruption, and with --overwrite starts anew. Ends with exit code 3 if fits or tests were
    skipped. Prints the result first; where only some of the films are tested, it names them. An
    EXPERIMENT is a TOML file; its paths are relative to it:

    \b
      name = "Sure against the negatives"
      manifest = "manifests/mine"
      store = "stores/xclip.zarr"
      positives = ["S"]
      train_negatives = ["EN", "HN"]
      estimators = ["mlp"]          # see: obygaze models list

    \b
    Examples:
      obygaze models run experiments/sure-against-easy.toml
      obygaze models run sure-against-easy.toml -o runs/second --json
      obygaze models run sure-against-easy.toml --predictions mine.csv
      obygaze models run sure-against-easy.toml --dry-run
    """
    from msgspec import to_builtins

    from obygaze_models.experiments.experiment import load_experiment
    from obygaze_models.experiments.record import RECORD
    from obygaze_models.experiments.run import run_experiment

    loaded = load_experiment(experiment)
    loaded = replace(loaded, predictions=(*loaded.predictions, *predictions))
    if dry_run:
        from obygaze_models.experiments.plan import make_plan

        plan = make_plan(loaded)
        click.echo(plan.describe())
        click.echo(f"about {plan.estimate():.0f} s on this machine, by one fit of each estimator")
        return
    if not as_json:
        stores = " + ".join(Path(redact_url(store)).name for store in loaded.stores)
        click.echo(
            f"{loaded.name}: train {', '.join(loaded.learners)} on {loaded.goal}; "
            f"{loaded.feature} features of {stores}",
            err=True,
        )
    done = run_experiment(
        loaded,
        output or Path("runs", experiment.stem),
        overwrite=overwrite,
        log=lambda line: click.echo(line, err=True),
    )
    if as_json:
        echo_json(to_builtins(done.record))
    else:
        _echo_run(done, verbose=verbose)
    if skipped := done.record.skipped:
        if as_json:
            echo_warnings(warning for warning in done.record.warnings if warning.code == "skipped")
        parts = counted(len(skipped), "fit or test was", "fits and tests were")
        without = ", ".join(done.record.unscored)
        click.echo(
            f"{parts} skipped{f' (no scores of {without})' * bool(without)}; "
            f"{done.folder / RECORD} says why",
            err=True,
        )
        click.get_current_context().exit(PARTLY_DONE)


def _echo_run(done: Run, *, verbose: bool) -> None:
    """The result, after what makes it void, and where to read on; then tables and warnings."""
    from obygaze_models.data.warnings import group_warnings
    from obygaze_models.experiments.summary import describe_run, headline

    voids = [warning for warning in done.record.warnings if warning.voids_scores]
    warnings = [warning for warning in done.record.warnings if not warning.voids_scores]
    echo_warnings(voids, verbose=verbose)
    for line in headline(done.record):
        click.secho(line, bold=True)
    echo_warnings(group_warnings(warnings)[:1])
    click.echo(f"Wrote {done.folder}; for a page to read: obygaze report {for_shell(done.folder)}")
    click.echo(f"\n{describe_run(done.record, verbose=verbose)}")
    echo_warnings(warnings, skip=0 if verbose else 1, verbose=verbose)


@models.command("list")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@json_option
def list_models(folder: Path | None, as_json: bool) -> None:
    """List the estimators that there are, or the models in a FOLDER.

    \b
    Examples:
      obygaze models list
      obygaze models list runs/first
    """
    from obygaze_features.common.tables import align
    from obygaze_models.estimators.registry import describe_estimators
    from obygaze_models.saved.about import read_about

    if folder is None:
        estimators = describe_estimators()
        if as_json:
            echo_json(estimators)
            return
        for name, estimator in estimators.items():
            options = ", ".join(f"{key} = {value!r}" for key, value in estimator["options"].items())
            package = estimator["package"]
            origin = "" if package == "obygaze" else f" ({package})"
            click.echo(f"{name:<18} {estimator['title']}{origin}")
            if options:
                click.echo(f"{'':<18} options: {options}")
        return
    if not folder.is_dir():
        raise ExperimentError(f"there is no folder {folder}")
    models = {
        str(path.parent.relative_to(folder)): read_about(path.parent)
        for path in sorted(folder.rglob("model.json"))
    }
    if not models:
        raise ExperimentError(f"{folder} holds no models; obygaze models run and train make some")
    if as_json:
        echo_json(models)
        return
    table = [
        [name, about["estimator"], about["task"], len(about["seen"])]
        for name, about in models.items()
    ]
    click.echo(align(["model", "estimator", "task", "clips seen"], table, left=3))


for command in (
    train, evaluate, compare, predict, moments, evaluate_moments, explain, export, write_run,
    score_run,
):  # fmt: skip
    models.add_command(command)
