"""``obygaze models``: run and compare experiments; train, apply and explain models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import obygaze_models as om
from obygaze_features.common.cli import (
    PATH,
    echo,
    echo_json,
    folder_argument,
    json_option,
    output_options,
    overwrite_option,
)
from obygaze_features.common.figures import check_figure_path, save_figure
from obygaze_features.common.printer import align, fill
from obygaze_features.common.text import counted, for_shell, redact_url
from obygaze_features.errors import UsageError
from obygaze_models.commands._shared import (
    PARTLY_DONE,
    echo_warnings,
    path_option,
    run_folders,
    verbose_option,
)
from obygaze_models.commands.explain import explain, moments
from obygaze_models.commands.predict import evaluate, predict, train
from obygaze_models.data.warnings import RunWarning


@click.group()
def models() -> None:
    """Train and evaluate models on stores, on a CPU.

    \b
    Example:
      obygaze models run sure-against-easy.toml -o runs/first
    """


@models.command()
@click.argument("folder", type=PATH, default=Path("mobygaze"))
@overwrite_option
def example(folder: Path, overwrite: bool) -> None:
    """Write the shipped example into a new FOLDER.

    It covers 20 films, but does not include them. It has a store with the words spoken in each
    minute (as numbers), a manifest with the minutes' labels from two annotators, and four
    experiments. A run takes about half a minute.

    \b
    Examples:
      obygaze models example mobygaze
      obygaze models run mobygaze/level.toml -o runs/level
      obygaze report runs/level
    """
    from obygaze_models.data.example import EXPERIMENTS, copy_example

    copy_example(folder, overwrite=overwrite)
    echo(f"the words of 2,567 minutes of 20 films -> {folder}")
    echo(f"next: obygaze models run {for_shell(folder / EXPERIMENTS[0])} -o runs/level")


@models.command()
@folder_argument("experiment")
@path_option(
    "-o", "--output", help="The run folder; by default runs/NAME for an experiment NAME.toml."
)
@path_option(
    "--predictions",
    multiple=True,
    help="Your own model's predictions (columns id, fit, probability), to score with the run's.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be trained and tested, and how long it would take; write nothing.",
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
    """Train and test the models of an EXPERIMENT file.

    Writes a folder with run.json (scores, data, versions), predictions.csv, fits.csv and models.
    Finished fits are kept in OUTPUT.partial, so the same command resumes after an interruption
    (with --overwrite it starts again). Prints the result first, and names the films if only some of
    them are tested. The exit code is 3 if fits or tests were skipped. An EXPERIMENT is a TOML file.
    Its paths are relative to the file:

    \b
      name = "Sure against the negatives"
      manifest = "manifests/mine"
      store = "stores/xclip.zarr"
      positives = ["S"]
      train_negatives = ["EN", "HN"]
      estimators = ["mlp"]          # see: obygaze models list; or tables with options:
      # estimators = [{name = "mlp", threshold = "validation"}]

    \b
    Examples:
      obygaze models run experiments/sure-against-easy.toml
      obygaze models run sure-against-easy.toml -o runs/second --json
      obygaze models run sure-against-easy.toml --predictions mine.csv
      obygaze models run sure-against-easy.toml --dry-run
    """
    from msgspec import to_builtins

    from obygaze_models.experiments.record import RECORD

    loaded = om.load_experiment(experiment, predictions=predictions)
    if dry_run:
        _echo_plan(loaded, verbose=verbose, as_json=as_json)
        return
    if not as_json:
        stores = " + ".join(Path(redact_url(store)).name for store in loaded.stores)
        echo(
            f"{loaded.name}: train {', '.join(loaded.learners)} on {loaded.goal}; "
            f"features of {stores} ({loaded.feature})",
            err=True,
        )
    done = om.run_experiment(
        loaded,
        output or Path("runs", experiment.stem),
        overwrite=overwrite,
        log=lambda line: echo(line, err=True),
    )
    if as_json:
        echo_json(to_builtins(done.record))
    else:
        _echo_run(done, verbose=verbose)
    if skipped := done.record.skipped:
        if as_json:
            echo_warnings(warning for warning in done.record.warnings if warning.code == "skipped")
        parts = counted(len(skipped), "fit or test was", "fits and tests were")
        unscored = done.record.unscored
        without = f" (no scores for {', '.join(unscored)})" if unscored else ""
        echo(f"{parts} skipped{without}; {done.folder / RECORD} says why", err=True)
        click.get_current_context().exit(PARTLY_DONE)


def _echo_plan(experiment: om.Experiment, *, verbose: bool, as_json: bool) -> None:
    """Print what a run would do and skip, how long it would take, and warnings about its scores."""
    from msgspec import to_builtins

    from obygaze_models.experiments.messages import describe_plan, run_warnings
    from obygaze_models.experiments.outcome import Outcome
    from obygaze_models.experiments.plan import make_plan

    plan = make_plan(experiment)
    seconds, failed = plan.estimate()
    outcome = Outcome(plan, [*plan.skipped, *failed])
    warnings = run_warnings(outcome)
    if as_json:
        planned = outcome.planned(warnings) | {"fits": plan.fold_counts(), "seconds": seconds}
        echo_json(to_builtins(planned))
        return
    echo(describe_plan(plan))
    for skip in failed:
        echo(f"would be skipped: {skip.what}: {skip.why}")
    echo(f"about {seconds:.0f} s on this machine, judging by one fit of each estimator")
    echo_warnings([note for note in warnings if note.code != "skipped"], verbose=verbose)


def _echo_run(done: om.Run, *, verbose: bool) -> None:
    """Print warnings that void the scores, then the run's result, tables and other warnings."""
    from obygaze_models.data.warnings import group_warnings
    from obygaze_models.experiments.summary import describe_run, headline

    voids = [warning for warning in done.record.warnings if warning.voids_scores]
    warnings = [warning for warning in done.record.warnings if not warning.voids_scores]
    echo_warnings(voids, verbose=verbose)
    for line in headline(done.record):
        echo(line, bold=True)
    echo_warnings(group_warnings(warnings)[:1])
    record, folder = done.record, for_shell(done.folder)
    page = f"for a page: obygaze report {folder}"
    if any(record.task(test).target.is_numeric for test in record.tests):
        page = f"for each clip's prediction: obygaze models predict {folder}"
    echo(f"Wrote {done.folder}; {page}")
    echo(f"\n{describe_run(done, verbose=verbose)}")
    echo_warnings(warnings, skip=0 if verbose else 1, verbose=verbose)


@models.command("list")
@click.argument("folder", required=False, type=PATH)
@json_option
def list_models(folder: Path | None, as_json: bool) -> None:
    """List the estimators, or the models in a FOLDER.

    \b
    Examples:
      obygaze models list
      obygaze models list runs/first
    """
    from obygaze_models.estimators.registry import describe_estimators
    from obygaze_models.saved.about import read_models

    if folder is None:
        estimators = describe_estimators()
        if as_json:
            echo_json(estimators)
        else:
            _echo_estimators(estimators)
        return
    models = read_models(folder)
    if as_json:
        echo_json(models)
        return
    described = {name: about.description for name, about in models.items()}
    table = [[name, own.estimator, own.task, len(own.seen)] for name, own in described.items()]
    echo(align(["model", "estimator", "task", "clips seen"], table, left=3))


def _echo_estimators(estimators: Mapping[str, Mapping[str, Any]]) -> None:
    for name, estimator in estimators.items():
        options = ", ".join(f"{key} = {value!r}" for key, value in estimator["options"].items())
        package = estimator["package"]
        origin = "" if package == "obygaze" else f" ({package})"
        echo(f"{name:<18} {estimator['title']}{origin}")
        if options:
            echo(f"{'':<18} options: {options}")


class _MetricOption(click.Option):
    """An option whose help lists the metrics, which are imported only to print the help."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from obygaze_models.scoring.metrics import METRICS, TREC

        names, text = super().get_help_record(ctx) or ("", "")
        return names, text.format(", ".join(key for key in METRICS if key != TREC))


@models.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=PATH)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Compare only models with this name, in all runs; repeatable.",
)
@click.option(
    "--metric",
    cls=_MetricOption,
    help="The score to show: {}.  [default: the metric of the first run's experiment]",
)
@click.option(
    "--pooled", is_flag=True, help="Score all clips together instead of averaging over films."
)
@output_options("A figure: .svg, .pdf or .png.", required=False)
@verbose_option
@json_option
def compare(
    runs: tuple[Path, ...],
    models: tuple[str, ...],
    pooled: bool,
    metric: str | None,
    output: Path | None,
    overwrite: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Compare models of one or more RUNs in a ranked table.

    Models are compared with a reference: the model in the first run's headline, or the first
    --model. Both are scored film by film, on the clips that both were tested on. The score is the
    mean over films. The difference is paired by film and has a 95% interval. p is from a paired
    t-test, its variance widened where fits share training clips, adjusted for the number of
    comparisons by Holm's method.

    \b
    Examples:
      obygaze models compare runs/xclip runs/vivit
      obygaze models compare runs/xclip --model mlp --model pcbm-tree --metric f1
      obygaze models compare runs/xclip runs/vivit -o differences.svg
    """
    if output:
        check_figure_path(output, overwrite=overwrite)
    opened = [om.load_run(folder) for folder in run_folders(runs)]
    compared = om.compare(*opened, models=models, metric=metric, pooled=pooled)
    table = compared.table(metric)
    differences = [note for own in compared.comparisons for note in own.differences]
    notes = [
        RunWarning(
            "no-metric", own.test, f"{own.test} is left out: {metric} is undefined for its classes"
        )
        for own in compared.comparisons
        if metric not in (None, *own.scores)
    ]
    notes += [note for own in compared.comparisons for note in own.notes]
    notes += compared.left_out
    grave = [note for run in opened for note in run.warnings if note.voids_scores]
    grave += [leak for comparison in compared.comparisons for leak in comparison.leaks]
    echo_warnings(grave)
    echo_warnings(differences, heading="NOTE", verbose=verbose)
    if as_json:
        echo_json(asdict(compared))
    else:
        echo(fill(compared.headline(metric), 100), bold=True)
        echo(f"\n{table}")
    echo_warnings(notes, heading="NOTE", verbose=verbose)
    if output:
        save_figure(compared.figure(metric), output, overwrite=overwrite)
        echo(f"Wrote {output}", err=as_json)


@models.command()
@folder_argument("experiment")
@click.option(
    "--films",
    show_default="2,5,10,15, up to the largest possible",
    help="Numbers of films to train on.",
)
@click.option(
    "--draws",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Random draws of films for each number of films.",
)
@output_options("A figure: .svg, .pdf or .png.", required=False)
@json_option
def curve(
    experiment: Path,
    films: str | None,
    draws: int,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Score an EXPERIMENT with fewer annotated films.

    For each number of films, films are drawn at random from each training set. Each model is
    trained on the clips of these films and tested as in a run. A score is the mean over the tested
    films, with its 95% interval. The last columns show the change from the previous number of
    films.

    \b
    Examples:
      obygaze models curve mobygaze/level.toml
      obygaze models curve mobygaze/level.toml --films 3,6,12 --draws 10 -o curve.svg
    """
    if output:
        check_figure_path(output, overwrite=overwrite)
    try:
        sizes = None if films is None else [int(size) for size in films.split(",")]
    except ValueError:
        raise UsageError(
            f"--films must be whole numbers (got {films}). For example, write 2,5,10"
        ) from None
    drawn = om.learning_curve(experiment, sizes, draws=draws, log=lambda line: echo(line, err=True))
    if as_json:
        echo_json(asdict(drawn))
    else:
        echo(str(drawn))
    if output:
        save_figure(drawn.figure(), output, overwrite=overwrite)
        echo(f"Wrote {output}", err=as_json)


@models.command()
@folder_argument("run")
@json_option
def check(run: Path, as_json: bool) -> None:
    """Recompute a RUN's scores, and compare with its run.json.

    Loading a run only checks the digests of its files. This command recomputes every score,
    including intervals and scores of guessing. The exit code is 1 if anything differs.

    \b
    Examples:
      obygaze models check runs/first
      obygaze models check runs/first --json
    """
    opened = om.load_run(*run_folders([run]))
    differences = opened.check()
    if as_json:
        echo_json({"run": str(opened.folder), "differences": differences})
    else:
        scores = counted(len(opened.record.scores), "model score", "model scores")
        echo("\n".join(differences) or f"{opened.folder}: {scores} match its predictions")
    if differences:
        click.get_current_context().exit(1)


for command in (train, evaluate, predict, moments, explain):
    models.add_command(command)
