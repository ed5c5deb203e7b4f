"""``obygaze models train | predict | evaluate``: commands for a single model."""

from __future__ import annotations

from collections.abc import Iterator
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
    show,
)
from obygaze_features.common.elan import refuse_edited
from obygaze_features.common.files import refuse_to_overwrite, write_files
from obygaze_features.errors import UsageError
from obygaze_models.commands._shared import echo_warnings, path_option, stores_argument

if TYPE_CHECKING:
    from obygaze_models.saved.inference import PartScore


MAX_ROWS_SHOWN = 20


@click.command()
@folder_argument("experiment")
@click.option("--estimator", help="The estimator to train.  [default: the experiment's first]")
@output_options(
    "The model's folder; by default models/NAME for an experiment NAME.toml.", required=False
)
@json_option
def train(
    experiment: Path, output: Path | None, estimator: str | None, overwrite: bool, as_json: bool
) -> None:
    """Train a model on all labelled clips of an EXPERIMENT.

    If the estimator uses validation clips, the last fold that has clips of every class is held out
    for validation. If no single fold has clips of every class, the last few folds are held out. No
    clips are left to test the model on, so run the experiment to see how well such a model
    performs. With the official protocol, the test set is left out, so the model is the same as the
    run's.

    \b
    Example:
      obygaze models train experiments/sure-against-easy.toml -o models/sure
    """
    model = om.train_model(
        experiment,
        output or Path("models", experiment.stem),
        estimator=estimator,
        overwrite=overwrite,
        log=lambda line: echo(line, err=True),
    )
    echo_warnings(model.warnings)
    facts = {**asdict(model), "path": str(model.path)}
    if not as_json:
        keys = ("path", "task", "trained", "validated", "drawn_away", "seen")
        facts = {key: facts[key] for key in keys}
    show(facts, as_json)


@click.command()
@folder_argument("model")
@click.argument("stores", metavar="[STORE]...", nargs=-1, type=ADDRESS)
@click.option("--ids", metavar="ID,ID", help="Predict only these clips.")
@path_option("-o", "--output", help="A CSV file with one row per clip.")
@path_option(
    "--elan",
    metavar="FOLDER",
    help="A folder for ELAN, with one .eaf file per media file; ideally the folder of the media "
    "files. Only clips with a start and an end are written.",
)
@click.option("--estimator", help="For a run: the estimator.  [default: all]")
@overwrite_option
@json_option
def predict(
    model: Path,
    stores: tuple[Path | str, ...],
    ids: str | None,
    output: Path | None,
    elan: Path | None,
    estimator: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Predict clips of a STORE, or export a run's predictions.

    The store must have the features that the model was trained on, or features made in the same
    way. Pass several stores if the model was trained on several. Without an output option, the
    first clips are printed.

    MODEL can also be a run, which needs no STORE. Its held-out predictions are written: each clip
    is predicted by the fits that were not trained on it. Each row also has the film's title, and
    the level and concepts from the annotators. If the contributions of a model's concepts sum to
    the log-odds, they are written as well.

    \b
    Example:
      obygaze models predict models/sure stores/xclip-kinetics.zarr -o predictions.csv
    """
    from obygaze_models.experiments.exports import Outputs
    from obygaze_models.experiments.predict import predict_model, predict_run
    from obygaze_models.experiments.record import RECORD

    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    clips = [clip.strip() for clip in ids.split(",")] if ids else None
    max_rows = 0 if as_json or output or elan else MAX_ROWS_SHOWN
    outputs = Outputs(output, elan, max_rows)
    if (model / RECORD).is_file():
        if stores:
            raise UsageError(f"{model} is a run. Leave out STORE")
        written = predict_run(om.load_run(model), outputs, estimator=estimator, ids=clips)
    else:
        _check_model(model, stores, estimator)
        written = predict_model(model, stores, outputs, ids=clips)
    echo_warnings(written.seen)
    if overwrite:
        refuse_edited(written.files)
    write_files(written.files, overwrite=overwrite)
    if as_json:
        echo_json([*written.rows])
    for line in written.text:
        echo(line, err=as_json)
    echo_warnings(written.warnings)


def _check_model(model: Path, stores: tuple[Path | str, ...], estimator: str | None) -> None:
    """Raise an error if the model or its store is missing, or if an option is only for a run."""
    if not model.exists():
        raise UsageError(f"{model} does not exist. Pass a saved model or a run")
    if estimator:
        raise UsageError(f"--estimator needs a run, but {model} is a single model")
    if not stores:
        raise UsageError("no clips to predict. Pass a store: obygaze models predict MODEL STORE")


@click.command()
@folder_argument("model")
@stores_argument
@folder_argument("manifest")
@click.option("--labels", help="The manifest's label set.  [default: its default]")
@json_option
def evaluate(
    model: Path, stores: tuple[Path | str, ...], manifest: Path, labels: str | None, as_json: bool
) -> None:
    """Score a MODEL on the annotated clips of a MANIFEST.

    STORE has the features. All clips are scored together, not film by film as in a run. Separate
    scores are shown for clips that the model has not seen in training, and for clips of films that
    it has not seen. The scores of guessing with the same share of positives are shown for
    comparison.

    \b
    Example:
      obygaze models evaluate models/sure stores/xclip-kinetics.zarr manifests/obygaze12
    """
    scored = om.evaluate(model, stores, manifest, labels=labels)
    group = scored.grouped_by
    rows = [*_score_rows("all clips", scored.every)]
    if scored.seen and scored.unseen.clips:
        rows += _score_rows("not seen in training", scored.unseen)
    if 0 < scored.apart.clips < scored.unseen.clips:
        rows += _score_rows(f"of another {group} than in training", scored.apart)
    facts = {
        "task": scored.task,
        "clips": scored.every.clips,
        "seen_in_training": len(scored.seen),
        "unseen": scored.unseen.clips,
        f"of_another_{group}": scored.apart.clips,
        "without_features": scored.missing,
    }
    show(facts | {"scores": rows}, as_json)
    echo_warnings(scored.warnings)
    if scored.seen:
        echo_warnings(["clips seen in training are no fair test; look at the other rows"])


def _score_rows(name: str, part: PartScore) -> Iterator[dict[str, Any]]:
    """Yield the scores on a set of clips, and the scores of guessing with the same shares."""
    size = {"on": name, "clips": part.clips, "positive": part.positives}
    if part.classes == 1:  # nothing to score
        yield size
        return
    for predicted_by, scores in {"the model": part.scores, **part.baselines}.items():
        yield {**size, "by": predicted_by, **scores}
