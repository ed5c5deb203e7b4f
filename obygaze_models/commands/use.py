"""``obygaze models train | evaluate | export | list``: models for use, one at a time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.text import counted, for_shell
from obygaze_features.errors import ExperimentError
from obygaze_models.commands.warnings import echo_warnings

if TYPE_CHECKING:
    from obygaze_models.scoring import Part

__all__ = ["evaluate", "export", "list_models", "train"]


@click.command()
@folder_argument("experiment")
@click.option("--estimator", help="Which of the experiment's estimators.  [default: the first]")
@click.option("--concept", help="Which of its concepts, if it has several.  [default: the first]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The model's folder; by default models/ and the experiment file's name.",
)
@overwrite_option
@json_option
def train(
    experiment: Path,
    estimator: str | None,
    concept: str | None,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Train one model for use, on all labelled clips of an EXPERIMENT.

    Only the last fold is held out, to stop the training. Nothing is left to test the model on: run
    the experiment to see how well such a model does. By the official protocol the test set has no
    part: the model is that of a run.

    \b
    Examples:
      obygaze models train experiments/sure-against-easy.toml -o models/sure
      obygaze models train sure-against-easy.toml --estimator pcbm-tree -o models/tree
    """
    from obygaze_models.experiments.experiment import load_experiment
    from obygaze_models.experiments.train import train_model

    done = train_model(
        load_experiment(experiment),
        output or Path("models", experiment.stem),
        estimator=estimator,
        concept=concept,
        overwrite=overwrite,
    )
    if as_json:
        echo_json({**asdict(done), "path": str(done.path)})
        return
    for line in done.join.lines():
        click.echo(f"  {line}")
    said = f"{done.validated:,} held out to choose and to stop"
    if done.seen > done.trained + done.validated:
        which = "its concepts were learnt from" if "concepts" in done.facts else "it counted"
        said += f"; with all that {which}, it has seen {done.seen:,}"
    click.echo(f"{done.task}: trained on {counted(done.trained, 'clip')}, {said} -> {done.path}")
    click.echo(f"card -> {done.path / 'README.md'}")
    echo_warnings(done.warnings)
    click.echo(f"next: obygaze models predict {for_shell(done.path)} STORE")


@click.command()
@folder_argument("model")
@store_argument("store")
@folder_argument("manifest")
@click.option("--labels", help="Which label set of the manifest.  [default: its default one]")
@json_option
def evaluate(
    model: Path, store: Path | str, manifest: Path, labels: str | None, as_json: bool
) -> None:
    """Score a MODEL on the annotated clips of a MANIFEST, by the features of a STORE.

    Clips that the model has seen in training are counted, and the others scored apart. Beside
    each stands what guessing scores at the same share of positives.

    \b
    Examples:
      obygaze models evaluate models/sure stores/xclip-kinetics.zarr manifests/obygaze12
      obygaze models evaluate models/sure theirs.zarr manifests/theirs --labels experts --json
    """
    from obygaze_features.manifests import Manifest
    from obygaze_features.store import open_store
    from obygaze_models.scoring import score_model

    found = score_model(model, open_store(store), Manifest.load(manifest), labels=labels)
    if as_json:
        echo_json(asdict(found))
    else:
        _echo_part(found.task, found.every, found.measure)
        if found.unseen.clips and found.seen:
            click.echo()
            _echo_part("not seen in training", found.unseen, found.measure)
        if found.missing:
            some = ", ".join(found.missing[:5])
            lost = counted(len(found.missing), "clip")
            click.echo(f"{lost} have no features here, such as {some}")
    echo_warnings(found.warnings)
    if found.seen:
        what = "on all of them this is no test" if found.unseen.clips else "this is no test"
        echo_warnings(
            [
                f"{len(found.seen):,} of these {counted(found.every.clips, 'clip')} were used to "
                f"train the model: {what}"
            ]
        )


def _echo_part(name: str, part: Part, measure: str | None) -> None:
    """Scores on some clips, and what guessing scores at their share of positives."""
    from obygaze_features.common.tables import align
    from obygaze_models.metrics import column_titles

    titles = column_titles(part.scores, measure)
    held = counted(part.clips, "clip")
    if "f1" in part.scores:
        held = f"{part.positives:,} of {part.clips:,} positive"
    table = [
        [who, *("undefined" if of.get(key) is None else f"{of[key]:.2f}" for key in titles)]
        for who, of in {"the model": part.scores, **part.baselines}.items()
    ]
    click.echo(align([f"{name}: {held}", *titles.values()], table))
    if part.classes == 1:
        click.echo("they are all of one class: there is nothing to tell apart, nor to guess")


@click.command()
@folder_argument("model")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The ONNX file."
)
@overwrite_option
def export(model: Path, output: Path, overwrite: bool) -> None:
    """Write a MODEL as ONNX, for programs that do not speak Python.

    Networks, logistic regression and bottlenecks with a linear head can be written.

    \b
    Example:
      obygaze models export models/sure -o sure.onnx
    """
    from obygaze_models.onnx_export import export_onnx

    export_onnx(model, output, overwrite=overwrite)
    click.echo(f"features in, probabilities out -> {output}")


@click.command("list")
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
    from obygaze_models.persistence import read_about

    if folder is None:
        known = describe_estimators()
        if as_json:
            echo_json(known)
            return
        for name, one in known.items():
            options = ", ".join(f"{key} = {value!r}" for key, value in one["options"].items())
            click.echo(f"{name:<18} {one['title']}")
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
