"""``obygaze models write-run | score-run``: runs on a benchmark's test set, as files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.text import counted, for_shell, join_some
from obygaze_models.commands.warnings import echo_warnings

__all__ = ["score_run", "write_run"]

_MARKED = {
    True: "marked as using external data",
    False: "marked as using no external data",
    None: "not marked as using external data or not",
}
_labels = click.option("--labels", help="The label set.  [default: the manifest's default one]")
_split = click.option(
    "--split",
    default="official",
    show_default=True,
    help="The fold column whose last fold is the test set.",
)


@click.command("write-run")
@folder_argument("model")
@store_argument("store")
@folder_argument("manifest")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The run file."
)
@_labels
@_split
@click.option("--name", help="What the run is called.  [default: as the model is]")
@overwrite_option
def write_run(
    model: Path,
    store: Path | str,
    manifest: Path,
    output: Path,
    labels: str | None,
    split: str,
    name: str | None,
    overwrite: bool,
) -> None:
    """Rank the test clips of a MANIFEST by a MODEL, as a run file of trec_eval's.

    The run's tag ends in -external-data where the features are of a network that was trained on
    other data, as all but random weights were, and in -own-data where it was not.

    \b
    Example:
      obygaze models write-run models/violence stores/xclip.zarr manifests/accede -o violence.run
    """
    from obygaze_features.common.files import refuse_to_overwrite, write_text
    from obygaze_features.manifests import Manifest
    from obygaze_features.store import open_store
    from obygaze_models.run_scores import SPLIT
    from obygaze_models.run_scores import write_run as rank

    refuse_to_overwrite(output, overwrite=overwrite)
    made = rank(
        model,
        open_store(store),
        Manifest.load(manifest),
        labels=labels,
        split=split,
        name=name,
    )
    write_text(output, made.text)
    click.echo(f"{counted(made.clips, 'test clip')} ranked, tag {made.tag} -> {output}")
    if made.missing:
        lost = counted(len(made.missing), "test clip")
        click.echo(f"{lost} without features, such as {join_some(made.missing, 2)}")
    echo_warnings(made.warnings)
    if made.seen:
        seen = counted(len(made.seen), "test clip was", "test clips were")
        echo_warnings([f"{seen} used to train the model: this is no test"])
    also = f" --labels {labels}" if labels else ""
    also += f" --split {split}" if split != SPLIT else ""
    click.echo(f"next: obygaze models score-run {for_shell(output)} {for_shell(manifest)}{also}")


@click.command("score-run")
@folder_argument("run")
@folder_argument("manifest")
@_labels
@_split
@json_option
def score_run(run: Path, manifest: Path, labels: str | None, split: str, as_json: bool) -> None:
    """Score a RUN on the test clips of a MANIFEST, by the official measure of its labels.

    For violence a run file of trec_eval's, by its average precision; for valence and arousal a
    table of predictions (id, said), by accuracy. Test clips that a run leaves out count against it.

    \b
    Examples:
      obygaze models score-run violence.run manifests/accede --labels violence
      obygaze models score-run said.csv manifests/accede --labels valence --json
    """
    from obygaze_features.manifests import Manifest
    from obygaze_models.run_scores import score_run as score

    found = score(run, Manifest.load(manifest), labels=labels, split=split)
    if as_json:
        echo_json(asdict(found))
        return
    of = counted(found.clips, "test clip")
    if found.positives is not None:
        of = f"{found.positives:,} positive of {of}"
    value = "undefined" if found.value is None else f"{found.value:.4f}"
    click.echo(f"{found.labels}: {found.title} {value} ({of})")
    if found.missing:
        click.echo(f"{len(found.missing):,} not returned, such as {join_some(found.missing, 2)}")
    if found.outside:
        stand = join_some(found.outside, 2)
        click.echo(f"{len(found.outside):,} returned that are no labelled test clips: {stand}")
    if found.tag is not None:
        click.echo(f"{found.tag}: {_MARKED[found.external_data]}")
