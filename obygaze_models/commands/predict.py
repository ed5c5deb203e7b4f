"""``obygaze models train | predict | evaluate``: commands for a single model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import obygaze_models as om
from obygaze_features.common.cli import (
    ADDRESS,
    echo_json,
    folder_argument,
    json_option,
    names_option,
    output_options,
    overwrite_option,
    show,
)
from obygaze_features.common.files import require_suffix, write_files
from obygaze_features.common.tables import format_rows
from obygaze_features.errors import UsageError
from obygaze_models.commands._shared import echo_warnings, path_option, stores_argument

SHOWN = "^(id|model|test|prediction|probability.*|value|seen)$"
"""A pattern for the columns of predictions that are printed."""


@click.command()
@folder_argument("experiment")
@click.option("--estimator", help="The estimator to train.  [default: the experiment's first]")
@output_options(
    "The model's folder; by default models/NAME for an experiment NAME.toml.",
    required=False,
)
@json_option
def train(
    experiment: Path,
    output: Path | None,
    estimator: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Train a model on the labelled clips of all folds of an EXPERIMENT, after balancing.

    If the estimator uses validation clips, the last fold that has and leaves clips of every class
    is held out for validation. If there is none, each fold that adds a class is held out, the last
    fold first. No clips are left to test the model on, so run the experiment to see how well such a
    model performs. With the official protocol, the test set is left out, so the model is the same
    as the run's.

    \b
    Example:
      obygaze models train experiments/sure-against-easy.toml -o models/sure
    """
    path = output or Path("models", experiment.stem)
    model = om.train_model(experiment, path, estimator=estimator, overwrite=overwrite)
    facts = {"path": path.as_posix(), "task": model.about.learned.key, **model.counts}
    show(facts, as_json)


@click.command()
@folder_argument("model")
@click.argument("stores", metavar="[STORE]...", nargs=-1, type=ADDRESS)
@names_option("--ids", metavar="ID,...", help="Predict only these clips.")
@path_option("-o", "--output", help="A CSV file of the predictions.")
@path_option(
    "--elan",
    metavar="FOLDER",
    help="A folder for new ELAN files, one per media file; ideally the folder of the media "
    "files. ELAN files are never replaced. Only clips with a start and an end are written.",
)
@overwrite_option
@json_option
def predict(
    model: Path,
    stores: tuple[Path | str, ...],
    ids: list[str] | None,
    output: Path | None,
    elan: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Predict clips of a STORE, or export a run's predictions.

    The store must have the features that the model was trained on, or features made in the same
    way. Pass several stores if the model was trained on several. Without an output option, the
    first clips are printed. A single "probability" is for the positive (second) class. The column
    "seen" is "clip" for clips that were used in training, "film" for other clips of their films,
    and "no" for the rest.

    MODEL can also be a run, which needs no STORE. Its predictions of test clips are written: each
    clip is predicted by the fits that tested it. Each row also has the film's title, and the level
    and concepts from the annotators. For linear bottlenecks, it also has the concepts'
    contributions to the log-odds.

    \b
    Example:
      obygaze models predict models/sure stores/xclip-kinetics.zarr -o predictions.csv
    """
    from obygaze_models.data.stores import open_stores
    from obygaze_models.results.export import held_out, to_elan, with_places
    from obygaze_models.results.run import HEADER
    from obygaze_models.results.scores import records

    if output:
        require_suffix(output, ".csv")
    is_run = (model / HEADER).is_file()
    if is_run == bool(stores) or (ids and is_run):
        raise UsageError("a model needs a STORE, and a run takes neither a STORE nor --ids")
    if is_run:
        done = om.load_run(model)
        table = held_out(done)
        warnings = done.warnings
        placed = table
    else:
        predictions = om.predict(model, list(stores), ids=ids)
        table = predictions.table
        warnings = predictions.warnings
        placed = with_places(predictions, open_stores(list(stores)).items)
    rows = records(table)
    files: dict[Path, str] = {}
    if elan:
        files |= {elan / name: text for name, text in to_elan(placed, warnings).items()}
    if output:
        files[output] = format_rows(rows)
    write_files(files, overwrite=overwrite)
    if as_json:
        echo_json(rows)
    else:
        facts: dict[str, Any] = {"predictions": len(table)}
        if not is_run and "value" not in table:
            facts["by_class"] = table["prediction"].value_counts().head(10).to_dict()
        facts["wrote"] = [str(path) for path in files]
        if not files:
            facts["first"] = table.filter(regex=SHOWN).head(20).to_dict("records")
        show(facts)
    echo_warnings(warnings)


@click.command()
@folder_argument("model")
@stores_argument
@folder_argument("manifest")
@click.option("--labels", help="The label set.  [default: the manifest's default]")
@json_option
def evaluate(
    model: Path,
    stores: tuple[Path | str, ...],
    manifest: Path,
    labels: str | None,
    as_json: bool,
) -> None:
    """Score a MODEL on the annotated clips of a MANIFEST.

    STORE has the features. All clips are scored together, not film by film as in a run. Separate
    scores are shown for clips that the model has not seen in training, and for clips of films that
    it has not seen. Only the last are a fair test. The scores of guesses are shown for comparison,
    except for three or more classes.

    \b
    Example:
      obygaze models evaluate models/sure stores/xclip-kinetics.zarr manifests/obygaze12
    """
    from obygaze_models.results.scores import records

    scored = om.evaluate(model, stores, manifest, labels=labels)
    show(records(scored), as_json)
    echo_warnings(["only clips of unseen films are a fair test"])
