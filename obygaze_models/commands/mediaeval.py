"""``obygaze mediaeval``: write and score runs on a benchmark's test set."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from obygaze_features.common.cli import (
    echo,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.files import refuse_to_overwrite, write_text
from obygaze_features.common.text import counted, for_shell, join_some
from obygaze_models.commands._shared import echo_warnings, option, path_option, stores_argument

_EXTERNAL_DATA = {
    True: "marked as using external data",
    False: "marked as using no external data",
    None: "no statement on external data",
}
_labels = click.option("--labels", help="The label set.  [default: the manifest's default]")
_split = option(
    "--split", default="official", help="The fold column. Its last fold is the test set."
)


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
@path_option("-o", "--output", required=True, help="The run file.")
@_labels
@_split
@click.option("--name", help="The run's name.  [default: the model's]")
@overwrite_option
def write_run(
    model: Path,
    stores: tuple[Path | str, ...],
    manifest: Path,
    output: Path,
    labels: str | None,
    split: str,
    name: str | None,
    overwrite: bool,
) -> None:
    """Rank a MANIFEST's test clips with a MODEL and write a run file.

    The file is in trec_eval's format. Its tag ends in -external-data if the backbone of the
    features was pretrained on other data, or in -own-data if its weights are random.

    \b
    Example:
      obygaze mediaeval write-run models/violence stores/xclip.zarr manifests/accede -o violence.run
    """
    from obygaze_models.mediaeval.runs import SPLIT
    from obygaze_models.mediaeval.runs import write_run as write_run_file

    refuse_to_overwrite(output, overwrite=overwrite)
    run = write_run_file(model, stores, manifest, labels=labels, split=split, name=name)
    write_text(output, run.text)
    clips = counted(len(run.predictions.ids), "test clip")
    echo(f"{clips} ranked, tag {run.tag} -> {output}")
    if run.missing:
        missing = counted(len(run.missing), "test clip")
        echo(f"no features for {missing}, such as {join_some(run.missing, 2)}")
    echo_warnings(run.predictions.warnings)
    if count := sum(seen != "no" for seen in run.predictions.seen):
        seen = counted(count, "test clip was", "test clips were")
        echo_warnings([f"{seen} used to train the model, so this ranking is not a fair test"])
    options = f" --labels {labels}" if labels else ""
    options += f" --split {split}" if split != SPLIT else ""
    echo(f"next: obygaze mediaeval score-run {for_shell(output)} {for_shell(manifest)}{options}")


@mediaeval.command("score-run")
@folder_argument("run")
@folder_argument("manifest")
@_labels
@_split
@json_option
def score_run(run: Path, manifest: Path, labels: str | None, split: str, as_json: bool) -> None:
    """Score a RUN on a MANIFEST by the official measure.

    For violence, RUN is a trec_eval run file, scored by average precision. For valence and arousal,
    it is a CSV table with the columns id and prediction, scored by accuracy. Test clips missing
    from a run count against it.

    \b
    Examples:
      obygaze mediaeval score-run violence.run manifests/accede --labels violence
      obygaze mediaeval score-run predictions.csv manifests/accede --labels valence --json
    """
    from obygaze_models.mediaeval.runs import score_run as score_run_file

    scored = score_run_file(run, manifest, labels=labels, split=split)
    if as_json:
        echo_json(asdict(scored))
        return
    clips = counted(scored.clips, "test clip")
    if scored.positives is not None:
        clips = f"{scored.positives:,} of {clips} are positive"
    value = "undefined" if scored.value is None else f"{scored.value:.4f}"
    echo(f"{scored.labels}: {scored.title} {value} ({clips})")
    if scored.missing:
        missing = join_some(scored.missing, 2)
        echo(f"{len(scored.missing):,} missing from the run, such as {missing}")
    if scored.outside:
        outside = join_some(scored.outside, 2)
        echo(f"{len(scored.outside):,} in the run but not among the labelled test clips: {outside}")
    if scored.tag is not None:
        echo(f"{scored.tag}: {_EXTERNAL_DATA[scored.external_data]}")
