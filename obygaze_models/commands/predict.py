"""``obygaze models train | predict | evaluate | export``: models for use, one at a time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.common.cli import (
    ADDRESS,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.text import counted, for_shell, join_some
from obygaze_features.errors import UsageError
from obygaze_models.commands._shared import echo_warnings, stores_argument

if TYPE_CHECKING:
    from obygaze_features.store import Store
    from obygaze_models.saved.inference import PartScore, Predictions


MAX_ROWS_SHOWN = 20


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

    Only the last fold is held out, to stop the training, so nothing is left to test the model on:
    run the experiment to see how well such a model does. By the official protocol the test set
    takes no part: the model is that of a run.

    \b
    Examples:
      obygaze models train experiments/sure-against-easy.toml -o models/sure
      obygaze models train sure-against-easy.toml --estimator pcbm-tree -o models/tree
    """
    from obygaze_models.experiments.experiment import load_experiment
    from obygaze_models.experiments.train import train_model

    model = train_model(
        load_experiment(experiment, only=estimator or 0),
        output or Path("models", experiment.stem),
        estimator=estimator,
        concept=concept,
        overwrite=overwrite,
        log=lambda line: click.echo(line, err=True),
    )
    if as_json:
        echo_json({**asdict(model), "path": str(model.path)})
        return
    for line in model.join.lines():
        click.echo(f"  {line}")
    held_out = f"{model.validated:,} held out to choose and to stop"
    if model.seen > model.trained + model.validated:
        use = "its concepts were learnt from" if "concepts" in model.facts else "it counted"
        held_out += f"; with all clips that {use}, it has seen {model.seen:,}"
    trained = counted(model.trained, "clip")
    click.echo(f"{model.task}: trained on {trained}, {held_out} -> {model.path}")
    click.echo(f"card -> {model.path / 'README.md'}")
    echo_warnings(model.warnings)
    click.echo(f"next: obygaze models predict {for_shell(model.path)} STORE")


@click.command()
@folder_argument("model")
@click.argument("stores", metavar="[STORE]...", nargs=-1, type=ADDRESS)
@click.option("--ids", metavar="ID,ID", help="Only these clips.")
@click.option(
    "--band",
    type=(float, float),
    metavar="LOW HIGH",
    help="Predict 'unsure' where the probability of the second class is from LOW to HIGH.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A CSV file that gets a row a clip."
)
@click.option(
    "--csv",
    "tables",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A folder that gets a table a film, for spreadsheets.",
)
@click.option(
    "--elan",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A folder that gets an .eaf for each media file, for ELAN; best the folder of the media "
    "files. Only clips with a start and an end appear in it.",
)
@click.option(
    "--annotations",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Of a run, with --elan: the annotators' .eaf files, copied with the models' tiers.",
)
@click.option("--estimator", help="Of a run: which estimator.  [default: all]")
@overwrite_option
@json_option
def predict(
    model: Path,
    stores: tuple[Path | str, ...],
    ids: str | None,
    band: tuple[float, float] | None,
    output: Path | None,
    tables: Path | None,
    elan: Path | None,
    annotations: Path | None,
    estimator: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Predict the clips of a STORE by a MODEL, annotated or not; or write a run's predictions.

    The store must have the features that the model was trained on, or ones made the same way; give
    several stores if it was trained on several. Without an output the first clips are printed.

    A run in place of MODEL needs no store: its held-out predictions are written, each clip's by
    the fits that were not trained on it, with the film's title, the annotators' level and
    concepts, and the concepts' parts in the log-odds where they add up.

    \b
    Examples:
      obygaze models predict models/sure stores/xclip-kinetics.zarr -o predictions.csv
      obygaze models predict models/sure stores/xclip-kinetics.zarr --band 0.4 0.6
      obygaze models predict models/sure stores/xclip-kinetics.zarr --csv tables
      obygaze models predict models/sure stores/spans.zarr --elan for-elan
      obygaze models predict runs/first/models/mlp/EN-vs-S-0 stores/xclip-kinetics.zarr --json
      obygaze models predict runs/first --csv tables
      obygaze models predict runs/first --elan both --annotations for-elan
    """
    from obygaze_features.common.files import refuse_to_overwrite, write_text
    from obygaze_models.data.stores import open_stores
    from obygaze_models.experiments.record import RECORD
    from obygaze_models.saved.about import SEEN_RENAMED
    from obygaze_models.saved.inference import predict as predict_clips

    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    clips = [clip.strip() for clip in ids.split(",")] if ids else None
    if (model / RECORD).is_file():
        if stores or band:
            raise UsageError("a run's held-out predictions need no STORE and have no --band")
        if annotations and not elan:
            raise UsageError("--annotations needs --elan, the folder of the copies")
        outputs = {"table": output, "tables": tables, "elan": elan, "annotations": annotations}
        _write_held_out(model, clips, estimator, outputs, overwrite=overwrite, as_json=as_json)
        return
    if annotations or estimator:
        raise UsageError(f"--annotations and --estimator are for a run; {model} is a single model")
    if not stores:
        if not model.exists():
            raise UsageError(f"{model} does not exist")
        raise UsageError("a model predicts the clips of a store; name it: STORE")
    opened = open_stores(stores)
    predictions = predict_clips(model, opened, ids=clips, band=band)
    written = _write_films(predictions, opened, tables, elan, overwrite=overwrite)
    if seen := predictions.seen.count("yes"):
        total = counted(len(predictions.ids), "clip")
        echo_warnings(
            [f"{seen:,} of {total} were used to train the model: on these this is no test"]
        )
    if renamed := predictions.seen.count(SEEN_RENAMED):
        echo_warnings(
            [f"{renamed:,} show seconds of files that it was trained on, under other ids"]
        )
    if as_json:
        echo_json(_rows(predictions))
    elif output is None and not written:
        _echo_first(predictions)
    predicted = predictions.predicted
    counts = ", ".join(f"{predicted.count(name):,} {name}" for name in dict.fromkeys(predicted))
    click.echo(f"{counted(len(predictions.ids), 'clip')}: {counts}", err=as_json)
    if output:
        write_text(output, predictions.to_csv())
        click.echo(f"a row a clip -> {output}", err=as_json)
    for line in written:
        click.echo(line, err=as_json)
    echo_warnings(predictions.warnings)


def _write_held_out(
    folder: Path,
    ids: list[str] | None,
    estimator: str | None,
    outputs: dict[str, Any],
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write a run's held-out predictions, or print the first."""
    from obygaze_features.common.elan import refuse_edited
    from obygaze_features.common.files import write_files
    from obygaze_models.experiments.exports import HELD_OUT, export_files, held_out
    from obygaze_models.experiments.exports import describe_held_out as describe
    from obygaze_models.experiments.run_folder import load_run

    run = load_run(folder)
    rows = held_out(run, model=estimator, ids=ids)
    files, lines = export_files(rows, HELD_OUT, **outputs)
    if overwrite:
        refuse_edited(files)
    write_files(files, overwrite=overwrite)
    if as_json:
        echo_json([row.cells for row in rows])
    for line in [*describe(rows, 0 if files or as_json else MAX_ROWS_SHOWN), *lines]:
        click.echo(line, err=as_json)
    echo_warnings(
        [warning for warning in run.warnings if warning.voids_scores or warning.code == "leak"]
    )


def _rows(predictions: Predictions) -> list[dict[str, object]]:
    return [
        {
            "id": clip,
            "prediction": predicted,
            "probabilities": dict(zip(predictions.classes, probabilities, strict=True)),
            "seen_in_training": seen,
        }
        for clip, predicted, probabilities, seen in zip(
            predictions.ids,
            predictions.predicted,
            predictions.probabilities.tolist(),
            predictions.seen,
            strict=True,
        )
    ]


def _echo_first(predictions: Predictions) -> None:
    from obygaze_features.common.tables import align

    probabilities = predictions.probabilities[:MAX_ROWS_SHOWN].tolist()
    table = [
        [clip, predicted, *(f"{value:.3f}" for value in values)]
        for clip, predicted, values in zip(
            predictions.ids, predictions.predicted, probabilities, strict=False
        )
    ]
    click.echo(align(["clip", "prediction", *predictions.classes], table, left=2))
    if (more := len(predictions.ids) - MAX_ROWS_SHOWN) > 0:
        click.echo(f"and {counted(more, 'more clip', 'more clips')}; -o writes all to a file")


def _write_films(
    predictions: Predictions,
    store: Store,
    tables: Path | None,
    elan: Path | None,
    *,
    overwrite: bool,
) -> list[str]:
    """Write the tables and ELAN files that were asked for; a line about each folder."""
    if tables is None and elan is None:
        return []
    from obygaze_features.common.elan import refuse_edited
    from obygaze_features.common.files import write_files
    from obygaze_models.experiments.exports import export_files, model_rows

    rows, warnings = model_rows(predictions, store.items), predictions.warnings
    files, lines = export_files(rows, "prediction", tables=tables, elan=elan, warnings=warnings)
    if overwrite:
        refuse_edited(files)
    write_files(files, overwrite=overwrite)
    return lines


@click.command()
@folder_argument("model")
@stores_argument
@folder_argument("manifest")
@click.option("--labels", help="Which label set of the manifest.  [default: its default one]")
@json_option
def evaluate(
    model: Path,
    stores: tuple[Path | str, ...],
    manifest: Path,
    labels: str | None,
    as_json: bool,
) -> None:
    """Score a MODEL on the annotated clips of a MANIFEST, by the features of a STORE.

    Clips that the model has seen in training are counted, and the others are scored separately.
    Beside each score is what guessing scores at the same share of positives.

    \b
    Examples:
      obygaze models evaluate models/sure stores/xclip-kinetics.zarr manifests/obygaze12
      obygaze models evaluate models/sure theirs.zarr manifests/theirs --labels experts --json
    """
    from obygaze_models.saved.inference import evaluate as evaluate_model

    scored = evaluate_model(model, stores, manifest, labels=labels)
    if as_json:
        echo_json(asdict(scored))
    else:
        _echo_part(scored.task, scored.every, scored.measure)
        if scored.unseen.clips and scored.seen:
            click.echo()
            _echo_part("not seen in training", scored.unseen, scored.measure)
        if scored.missing:
            missing = counted(len(scored.missing), "clip")
            click.echo(f"{missing} have no features here, such as {join_some(scored.missing, 5)}")
    echo_warnings(scored.warnings)
    if scored.seen:
        consequence = "on all of them this is no test" if scored.unseen.clips else "this is no test"
        echo_warnings(
            [
                f"{len(scored.seen):,} of these {counted(scored.every.clips, 'clip')} were used to "
                f"train the model: {consequence}"
            ]
        )


def _echo_part(name: str, part: PartScore, measure: str | None) -> None:
    """The scores on some clips, and what guessing scores at their share of positives."""
    from obygaze_features.common.tables import align
    from obygaze_models.scoring.metrics import column_titles

    titles = column_titles(part.scores, measure)
    clips = counted(part.clips, "clip")
    if "f1" in part.scores:
        clips = f"{part.positives:,} of {part.clips:,} positive"
    table = [
        [row, *("undefined" if scores.get(key) is None else f"{scores[key]:.2f}" for key in titles)]
        for row, scores in {"the model": part.scores, **part.baselines}.items()
    ]
    click.echo(align([f"{name}: {clips}", *titles.values()], table))
    if part.classes == 1:
        click.echo("they are all of one class: there is nothing to tell apart, nor to guess")


@click.command()
@folder_argument("model")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The ONNX file."
)
@overwrite_option
def export(model: Path, output: Path, overwrite: bool) -> None:
    """Write a MODEL as ONNX, for programs in other languages than Python.

    Networks, logistic regression and bottlenecks with a linear head can be written.

    \b
    Example:
      obygaze models export models/sure -o sure.onnx
    """
    from obygaze_models.experiments.exports import export_onnx

    export_onnx(model, output, overwrite=overwrite)
    click.echo(f"features in, probabilities out -> {output}")
