"""``obygaze models train | predict | evaluate``: commands for a single model."""

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
from obygaze_features.common.elan import refuse_edited
from obygaze_features.common.files import refuse_to_overwrite, write_files
from obygaze_features.common.printer import align
from obygaze_features.common.text import counted, for_shell, join_some
from obygaze_features.errors import UsageError
from obygaze_models.commands._shared import echo_warnings, path_option, stores_argument

if TYPE_CHECKING:
    from obygaze_models.experiments.run import TrainedModel
    from obygaze_models.saved.inference import PartScore


MAX_ROWS_SHOWN = 20


@click.command()
@folder_argument("experiment")
@click.option("--estimator", help="The estimator to train.  [default: the experiment's first]")
@click.option("--concept", help="The concept to learn, if there are several.  [default: the first]")
@output_options(
    "The model's folder; by default models/NAME for an experiment NAME.toml.", required=False
)
@json_option
def train(
    experiment: Path, output: Path | None, estimator: str | None, as_json: bool, **options: Any
) -> None:
    """Train a model on all labelled clips of an EXPERIMENT.

    If the estimator uses validation clips, the last fold that has clips of every class is held out
    for validation. If no single fold has clips of every class, the last few folds are held out. No
    clips are left to test the model on, so run the experiment to see how well such a model
    performs. With the official protocol, the test set is left out, so the model is the same as the
    run's.

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
    parts = [f"{model.task}: trained on {_describe_training(model)}"]
    if model.seen > model.trained + model.validated:
        use = "learn its concepts" if "concepts" in model.facts else "count classes"
        parts.append(f"including the clips used to {use}, it has seen {model.seen:,}")
    echo(f"{'; '.join(parts)} -> {model.path}")
    echo(f"card -> {model.path / 'README.md'}")
    echo_warnings(model.warnings)
    from obygaze_models.saved.about import read_about

    stores = " ".join(["STORE"] * read_about(model.path).description.features.stores)
    echo(f"next: obygaze models predict {for_shell(model.path)} {stores}")


def _describe_training(model: TrainedModel) -> str:
    """Describe how many clips a model was trained on, and why other clips were not used."""
    text = counted(model.trained, "clip")
    if model.drawn_away:
        total = counted(model.trained + model.drawn_away + model.validated, "clip")
        drawn_away = counted(model.drawn_away, "was", "were")
        text = f"{model.trained:,} of {total}: {drawn_away} left out at random so that classes "
        text += "are the same size"
    if model.validated:
        text += f", {model.validated:,} held out for validation"
    return text


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
    Examples:
      obygaze models predict models/sure stores/xclip-kinetics.zarr -o predictions.csv
      obygaze models predict models/sure stores/spans.zarr --elan for-elan
      obygaze models predict runs/first/models/mlp/EN-vs-S-0 stores/xclip-kinetics.zarr --json
      obygaze models predict runs/first -o predictions.csv --elan for-elan
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
    Examples:
      obygaze models evaluate models/sure stores/xclip-kinetics.zarr manifests/obygaze12
      obygaze models evaluate models/sure theirs.zarr manifests/theirs --labels experts --json
    """
    from obygaze_features.items.items import group_noun

    scored = om.evaluate(model, stores, manifest, labels=labels)
    group = group_noun(scored.grouped_by)
    if as_json:
        echo_json(asdict(scored))
    else:
        _echo_part(scored.task, scored.every, scored.measure)
        if scored.unseen.clips and scored.seen:
            echo()
            _echo_part("not seen in training", scored.unseen, scored.measure)
        if 0 < scored.apart.clips < scored.unseen.clips:
            echo()
            _echo_part(f"of {group}s not seen in training", scored.apart, scored.measure)
        if scored.missing:
            missing = counted(len(scored.missing), "clip")
            echo(f"no features for {missing}, such as {join_some(scored.missing, 5)}")
    echo_warnings(scored.warnings)
    if scored.seen:
        rest = "; only the rest test it" if scored.unseen.clips else ", so no clip is a fair test"
        echo_warnings(
            [
                f"{len(scored.seen):,} of these {counted(scored.every.clips, 'clip')} were used to "
                f"train the model{rest}"
            ]
        )
    if shared := scored.unseen.clips - scored.apart.clips:
        clips = counted(shared, "unseen clip is", "unseen clips are")
        echo_warnings([f"{clips} from {group}s used in training, not from a new {group}"])


def _echo_part(name: str, part: PartScore, measure: str | None) -> None:
    """Print the scores on a set of clips, and the scores of guessing with the same shares."""
    from obygaze_models.scoring.metrics import column_titles

    titles = column_titles(part.scores, measure)
    clips = counted(part.clips, "clip")
    if part.classes == 1:
        echo(f"{name}: {clips}, all of the same class, so there is nothing to score")
        return
    if "f1" in part.scores:
        clips = f"{part.positives:,} of {part.clips:,} positive"
    table = [
        [row, *("undefined" if scores.get(key) is None else f"{scores[key]:.2f}" for key in titles)]
        for row, scores in {"the model": part.scores, **part.baselines}.items()
    ]
    echo(align([f"{name}: {clips}, all together", *titles.values()], table))
