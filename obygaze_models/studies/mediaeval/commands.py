"""``obygaze mediaeval``: write and score runs on a benchmark's test set."""

from __future__ import annotations

from pathlib import Path

import click

import obygaze_features as of
from obygaze_features.common.cli import echo, folder_argument, json_option, output_options, show
from obygaze_models.commands._shared import echo_warnings, stores_argument

_labels = click.option("--labels", help="The label set.  [default: the manifest's default]")


@click.group()
def mediaeval() -> None:
    """Write and score runs on the test set of a benchmark.

    \b
    Example:
      obygaze mediaeval score-run violence.run manifests/accede
    """


@mediaeval.command("write-run")
@folder_argument("model")
@stores_argument
@folder_argument("manifest")
@_labels
@output_options("The run file.")
def write_run(
    model: Path,
    stores: tuple[Path | str, ...],
    manifest: Path,
    output: Path,
    labels: str | None,
    overwrite: bool,
) -> None:
    """Rank a MANIFEST's test clips with a MODEL and write a run file.

    The test set is the last fold of the fold column "official". The file is in trec_eval's format.
    Its tag ends in -external-data, or in -own-data if the weights of the features' backbone are
    random.

    \b
    Example:
      obygaze mediaeval write-run models/violence stores/xclip.zarr manifests/accede -o violence.run
    """
    from obygaze_models.studies.mediaeval.runs import write_run as write_run_file

    loaded = of.Manifest.load(manifest)
    result = write_run_file(model, stores, loaded, output, labels=labels, overwrite=overwrite)
    echo_warnings(result.pop("warnings"))
    if result["trained_on"]:
        echo_warnings(["the model was trained on test clips, so this ranking is not a fair test"])
    show(result)
    echo(f"-> {output}")


@mediaeval.command("score-run")
@folder_argument("run")
@folder_argument("manifest")
@_labels
@json_option
def score_run(run: Path, manifest: Path, labels: str | None, as_json: bool) -> None:
    """Score a RUN on a MANIFEST by the official measure.

    For violence, RUN is a trec_eval run file, scored by average precision. For valence and arousal,
    it is a CSV table with the columns id and prediction, scored by accuracy. Test clips missing
    from a run lower its score (in a ranking, only positive clips do). Clips outside the labelled
    test set are listed.

    \b
    Example:
      obygaze mediaeval score-run violence.run manifests/accede --labels violence
    """
    from obygaze_models.studies.mediaeval.runs import score_run as score_run_file

    show(score_run_file(run, of.Manifest.load(manifest), labels=labels), as_json)
