"""``obygaze models train | predict | evaluate | export``: one model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import obygaze_models as om
from obygaze_features.common.cli import (
    ADDRESS,
    echo,
    echo_json,
    folder_argument,
    json_option,
    output_options,
    overwrite_option,
)
from obygaze_features.common.elan import keep_preferences, refuse_edited
from obygaze_features.common.files import refuse_to_overwrite, write_files
from obygaze_features.common.tables import align
from obygaze_features.common.text import counted, for_shell, join_some
from obygaze_features.errors import UsageError
from obygaze_models.commands._shared import echo_warnings, path_option, stores_argument

if TYPE_CHECKING:
    from obygaze_models.saved.inference import PartScore


MAX_ROWS_SHOWN = 20


@click.command()
@folder_argument("experiment")
@click.option("--estimator", help="Which of the experiment's estimators.  [default: the first]")
@click.option("--concept", help="Which of its concepts, if it has several.  [default: the first]")
@output_options(
    "The model's folder; by default models/ and the experiment file's name.", required=False
)
@json_option
def train(
    experiment: Path, output: Path | None, estimator: str | None, as_json: bool, **options: Any
) -> None:
    """Train one model for use, on all labelled clips of an EXPERIMENT.

    Only one fold is held out, to stop the training: the last with clips of every class, or the last
    few folds if no single one has. So nothing is left to test the model on: run the experiment to
    see how well such a model does. By the official protocol the test set takes no part: the model
    is that of a run.

    \b
    Examples:
      obygaze models train experiments/sure-against-easy.toml -o models/sure
      obygaze models train sure-against-easy.toml --estimator pcbm-tree -o models/tree
    """
    model = om.train_model(
        experiment,
        output or Path("models", experiment.stem),
        estimator=estimator,
        log=lambda line: echo(line, err=True),
        **options,
    )
    if as_json:
        echo_json({**asdict(model), "path": str(model.path)})
        return
    for line in model.join.brief.lines():
        echo(f"  {line}")
    held_out = f"{model.validated:,} held out to choose and to stop"
    if model.seen > model.trained + model.validated:
        use = "its concepts were learnt from" if "concepts" in model.facts else "it counted"
        held_out += f"; with all clips that {use}, it has seen {model.seen:,}"
    trained = counted(model.trained, "clip")
    echo(f"{model.task}: trained on {trained}, {held_out} -> {model.path}")
    echo(f"card -> {model.path / 'README.md'}")
    echo_warnings(model.warnings)
    from obygaze_models.saved.about import read_about

    stores = " ".join(["STORE"] * read_about(model.path).said.features.stores)
    echo(f"next: obygaze models predict {for_shell(model.path)} {stores}")


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
@path_option("-o", "--output", help="A CSV file that gets a row a clip.")
@path_option(
    "--csv", "tables", metavar="FOLDER", help="A folder that gets a table a film, for spreadsheets."
)
@path_option(
    "--elan",
    metavar="FOLDER",
    help="A folder that gets an .eaf for each media file, for ELAN; best the folder of the media "
    "files. Only clips with a start and an end appear in it.",
)
@path_option(
    "--annotations",
    metavar="FOLDER",
    help="Of a run, with --elan: the annotators' .eaf files, copied with the models' tiers.",
)
@click.option("--estimator", help="Of a run: which estimator.  [default: all]")
@click.option(
    "--divided",
    is_flag=True,
    help="Of a run: only the clips on which not all annotators and the model agree, and who stands "
    "alone; first those of which the model is surest.",
)
@click.option(
    "--next",
    "count",
    type=click.IntRange(1),
    metavar="N",
    help="Only the N clips to annotate next: those that the model is least sure of, or on which a "
    "run's fits differ most, far from each other and of many films.",
)
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
    divided: bool,
    count: int | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Predict the clips of a STORE by a MODEL, annotated or not; or write a run's predictions.

    The store must have the features that the model was trained on, or ones made the same way; give
    several stores if it was trained on several. Without an output the first clips are printed.

    A run in place of MODEL needs no store: its held-out predictions are written, each clip's by
    the fits that were not trained on it, with the film's title, the annotators' level and
    concepts, and the concepts' parts in the log-odds where they add up. With --next a run takes a
    store as a model does: all fits of its model are asked about the clips that none has seen.

    \b
    Examples:
      obygaze models predict models/sure stores/xclip-kinetics.zarr -o predictions.csv
      obygaze models predict models/sure stores/xclip-kinetics.zarr --band 0.4 0.6
      obygaze models predict models/sure stores/xclip-kinetics.zarr --csv tables
      obygaze models predict models/sure stores/spans.zarr --elan for-elan
      obygaze models predict runs/first/models/mlp/EN-vs-S-0 stores/xclip-kinetics.zarr --json
      obygaze models predict runs/first --csv tables
      obygaze models predict runs/first --elan both --annotations for-elan
      obygaze models predict runs/first --divided -o divided.csv --elan to-discuss
      obygaze models predict runs/first stores/xclip-kinetics.zarr --next 50 -o next.csv
    """
    from obygaze_models.experiments.exports import Outputs
    from obygaze_models.experiments.next_clips import predict_next
    from obygaze_models.experiments.predict import predict_model, predict_run
    from obygaze_models.experiments.record import RECORD

    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    clips = [clip.strip() for clip in ids.split(",")] if ids else None
    max_rows = 0 if as_json or output or tables or elan else MAX_ROWS_SHOWN
    outputs = Outputs(output, tables, elan, annotations, max_rows)
    if count is not None:
        if not stores or ids or band or annotations or divided:
            raise UsageError("--next takes a STORE, and no --ids, --band, --annotations, --divided")
        written = predict_next(model, stores, count, outputs, estimator=estimator)
    elif (model / RECORD).is_file():
        if stores or band:
            raise UsageError("a run's held-out predictions need no STORE and have no --band")
        if annotations and not elan:
            raise UsageError("--annotations needs --elan, the folder of the copies")
        written = predict_run(
            om.load_run(model), outputs, estimator=estimator, ids=clips, divided=divided
        )
    else:
        _check_model(model, stores, for_a_run=bool(annotations or estimator or divided))
        written = predict_model(model, stores, outputs, ids=clips, band=band)
    echo_warnings(written.seen)
    if overwrite:
        refuse_edited(written.files)
    kept = [*keep_preferences(written.files)]
    write_files(written.files, overwrite=overwrite)
    if as_json:
        echo_json([*written.rows])
    for line in [*written.text, *kept]:
        echo(line, err=as_json)
    echo_warnings(written.warnings)


def _check_model(model: Path, stores: tuple[Path | str, ...], *, for_a_run: bool) -> None:
    """Raise if a single model is missing, has no store, or has options that are for a run."""
    if not model.exists():
        raise UsageError(f"{model} does not exist")
    if for_a_run:
        raise UsageError(
            f"--annotations, --estimator and --divided are for a run; {model} is a single model"
        )
    if not stores:
        raise UsageError("a model predicts the clips of a store; name it: STORE")


@click.command()
@folder_argument("model")
@stores_argument
@folder_argument("manifest")
@click.option("--labels", help="Which label set of the manifest.  [default: its default one]")
@json_option
def evaluate(
    model: Path, stores: tuple[Path | str, ...], manifest: Path, labels: str | None, as_json: bool
) -> None:
    """Score a MODEL on the annotated clips of a MANIFEST, by the features of a STORE.

    Clips that the model has seen in training are counted, and the others are scored separately.
    Beside each score is what guessing scores at the same share of positives.

    \b
    Examples:
      obygaze models evaluate models/sure stores/xclip-kinetics.zarr manifests/obygaze12
      obygaze models evaluate models/sure theirs.zarr manifests/theirs --labels experts --json
    """
    scored = om.evaluate(model, stores, manifest, labels=labels)
    if as_json:
        echo_json(asdict(scored))
    else:
        _echo_part(scored.task, scored.every, scored.measure)
        if scored.unseen.clips and scored.seen:
            echo()
            _echo_part("not seen in training", scored.unseen, scored.measure)
        if scored.missing:
            missing = counted(len(scored.missing), "clip")
            echo(f"{missing} have no features here, such as {join_some(scored.missing, 5)}")
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
    from obygaze_models.scoring.metrics import column_titles

    titles = column_titles(part.scores, measure)
    clips = counted(part.clips, "clip")
    if "f1" in part.scores:
        clips = f"{part.positives:,} of {part.clips:,} positive"
    table = [
        [row, *("undefined" if scores.get(key) is None else f"{scores[key]:.2f}" for key in titles)]
        for row, scores in {"the model": part.scores, **part.baselines}.items()
    ]
    echo(align([f"{name}: {clips}", *titles.values()], table))
    if part.classes == 1:
        echo("they are all of one class: there is nothing to tell apart, nor to guess")


@click.command()
@folder_argument("model")
@output_options("The ONNX file.")
def export(model: Path, output: Path, overwrite: bool) -> None:
    """Write a MODEL as ONNX, for programs in other languages than Python.

    Networks, logistic regression and bottlenecks with a linear head can be written.

    \b
    Example:
      obygaze models export models/sure -o sure.onnx
    """
    from obygaze_models.experiments.exports import export_onnx

    export_onnx(model, output, overwrite=overwrite)
    echo(f"features in, probabilities out -> {output}")
