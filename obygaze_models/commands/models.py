"""``obygaze models``: run and compare experiments; train, apply and explain models."""

from __future__ import annotations

import textwrap
from pathlib import Path

import click
from msgspec import to_builtins

import obygaze_models as om
from obygaze_features.common.cli import (
    PATH,
    echo,
    echo_json,
    exit_if,
    folder_argument,
    json_option,
    overwrite_option,
    show,
)
from obygaze_features.common.printer import terminal_columns
from obygaze_models.commands._shared import echo_warnings, path_option
from obygaze_models.commands.explain import explain, moments
from obygaze_models.commands.predict import evaluate, predict, train


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
    """Write the shipped example into a new FOLDER (default: mobygaze).

    It covers 20 films, but does not include them. It has a store with the words spoken in each
    minute (as numbers), a manifest with the minutes' labels from two annotators, and experiments;
    its README.md says what each experiment tests. A run takes a few seconds to a minute.

    \b
    Examples:
      obygaze models example mobygaze
      obygaze models run mobygaze/level.toml -o runs/level
      obygaze report runs/level
    """
    from obygaze_models.data.example import copy_example

    copy_example(folder, overwrite=overwrite)
    echo(f"the words of 2,567 minutes of 20 films -> {folder}")


@models.command()
@folder_argument("experiment")
@path_option(
    "-o",
    "--output",
    help="The run folder; by default runs/NAME for an experiment NAME.toml.",
)
@path_option(
    "--predictions",
    multiple=True,
    help="Your own model's predictions (columns id, fit, probability), to be scored as well.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be trained and tested; write nothing.",
)
@overwrite_option
@json_option
def run(
    experiment: Path,
    output: Path | None,
    predictions: tuple[Path, ...],
    dry_run: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Train and test the models of an EXPERIMENT file.

    Writes a folder with run.json, tables of clips, fits, predictions and scores, and the models.
    Finished fits are kept in OUTPUT.partial, so the same command resumes after an interruption
    (with --overwrite it starts again). The exit code is 3 if fits or tests were skipped.

    An EXPERIMENT is a TOML file, such as those of obygaze models example. The positives and
    negatives are levels of the manifest, and paths are relative to the file:

    \b
      name = "Sure against the negatives"
      manifest = "manifests/mine"
      store = "stores/xclip.zarr"
      positives = ["S"]
      train_negatives = ["EN", "HN"]
      estimators = ["mlp"]          # see: obygaze models list --json; a table sets options:
      # estimators = ["mlp", {name = "mlp", as = "wide", hidden_layer_sizes = [512]}]

    Instead of positives and negatives, an experiment can tell three or more levels apart, detect
    concepts, or predict the numbers of a column. The other keys are optional:

    \b
      levels = ["EN", "HN", "S"]   concepts = ["Body"] or "all"   column = "tension"
      test_negatives   lists of levels, one for each test set
      negatives        for concepts: "a", "b" or "c"
      labels           the label set, if not the manifest's default
      protocol         how clips are divided, by default "split": see below
      split            the fold column, if the manifest has several
      groups, gap      the column that keeps clips together; seconds between training and test
      balance          "undersample" (default for classes), "weights" or "none"
      array, frames    arrays of the store, by default "native" and "frames"
      predictions      tables of predictions by other models
      score            the metric that ranks models
      seed, seeds      for drawing clips and for networks

    Protocols: split tests each fold of the split in turn (if the manifest has no split, folds of
    whole films are drawn; split = "clips" mixes films); leak-free tests only the last fold;
    leave-film-out tests in turn each film with at least 10 clips of each class (fewer:
    {name = "leave-film-out", min_clips = 1}); official (the default for split = "official") uses a
    benchmark's own sets; paper and released follow the paper's text and its code. With
    leave-film-out, another film validates models that need it (several: validation_films = 5), so
    three films are needed.

    A fit is skipped if it has no training clips of a class: make fewer folds with obygaze manifests
    split. In the table of kappas, "difference" is a model's mean kappa with the annotators, minus
    their mean kappa with each other.

    \b
    Example:
      obygaze models run experiments/sure-against-easy.toml
    """
    from obygaze_models.experiments.run import make_plan
    from obygaze_models.experiments.warnings import plan_warnings
    from obygaze_models.results.run import describe_unused
    from obygaze_models.results.scores import records
    from obygaze_models.results.summary import describe_run, headline

    loaded = om.load_experiment(experiment, predictions=predictions)
    if dry_run:
        plan = make_plan(loaded)
        facts = {
            "protocol": plan.protocol,
            "split": plan.split,
            "balance": plan.balance,
            "tests": [task.title for task in plan.tests],
            "used": int((plan.clips["used"] == "").sum()),
            "unused": describe_unused(plan.clips),
            "fits": plan.counts(),
            "predictions": [*loaded.predictions],
        }
        show(facts, as_json)
        if not as_json:
            echo_warnings(plan_warnings(plan))
        return
    done = om.run_experiment(
        loaded,
        output or Path("runs", experiment.stem),
        overwrite=overwrite,
    )
    if as_json:
        echo_json(to_builtins(done.header) | {"scores": records(done.scores())})
    else:
        for line in headline(done).splitlines():
            echo(textwrap.fill(line, terminal_columns()), bold=True)
        echo(f"Wrote {done.folder}")
        echo(f"\n{describe_run(done)}")
    echo_warnings(done.warnings)
    exit_if(done.header.skipped)


@models.command("list")
@click.argument("folder", required=False, type=PATH)
@json_option
def list_models(folder: Path | None, as_json: bool) -> None:
    """List the estimators, or the models in a FOLDER.

    With --json, also lists each estimator's options, with their default values.

    \b
    Example:
      obygaze models list
    """
    from obygaze_models.estimators.registry import describe_estimators
    from obygaze_models.saved.model import read_models

    rows = []
    if folder is None:
        for name, estimator in describe_estimators().items():
            row = {
                "name": name,
                "estimator": estimator["title"],
                "package": estimator["package"],
            }
            if as_json:
                row["options"] = to_builtins(estimator["options"], enc_hook=repr)
            rows.append(row)
    else:
        for name, about in read_models(folder).items():
            rows.append(
                {
                    "model": name,
                    "estimator": about.estimator,
                    "task": about.learned.key,
                    "classes": about.learned.class_titles,
                    "array": about.needs.array,
                }
            )
    show(rows, as_json)


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
    help="The score to show, such as f1, auroc or brier for two classes, f1_macro for more, or "
    "spearman for numbers; an unknown name such as x lists all.  "
    "[default: the first run's main metric]",
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="Compare separately for each value of a column of clips.csv, such as film.",
)
@json_option
def compare(
    runs: tuple[Path, ...],
    models: tuple[str, ...],
    metric: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Compare models with the same classes, of one or more RUNs.

    The models are compared with a reference: the first model of the first run, or the first
    --model. Scores are of the clips that a model and the reference were both tested on: within
    films (the mean over films), and across films. Differences are paired, and have 95% intervals
    if there are enough films. The text below the table names the test that p is from.

    \b
    Examples:
      obygaze models compare runs/xclip runs/vivit
      obygaze models compare runs/xclip runs/vivit --by film
    """
    from obygaze_models.results.scores import records

    compared = om.compare(*runs, models=models, metric=metric, by=by)
    if as_json:
        echo_json(records(compared.table))
        echo_warnings(compared.warnings)
    else:
        echo(str(compared))


for command in (train, evaluate, predict, moments, explain):
    models.add_command(command)
