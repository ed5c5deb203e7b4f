"""``obygaze models explain | moments``: explanations and moments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import obygaze_features as of
import obygaze_models as om
from obygaze_features.common.cli import (
    ADDRESS,
    echo,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
    show,
    store_argument,
)
from obygaze_features.common.elan import refuse_edited
from obygaze_features.common.files import (
    refuse_to_overwrite,
    require_folder_name,
    write_files,
)
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_models.commands._shared import echo_warnings, path_option


@click.command()
@folder_argument("model")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--store",
    "stores",
    type=ADDRESS,
    multiple=True,
    required=True,
    help="The features of the clips; once for each store that the model was trained on.",
)
@json_option
def explain(
    model: Path,
    ids: tuple[str, ...],
    stores: tuple[Path | str, ...],
    as_json: bool,
) -> None:
    """Explain a MODEL's predictions for clips.

    A linear bottleneck shows each concept's contribution to the logit. The contributions and the
    intercept add up to the logit. A tree shows its questions on the clip's concepts.
    Other models, such as networks, give no reasons. With a single store, the five most similar
    clips are listed.

    \b
    Example:
      obygaze models explain runs/x/models/pcbm-tree/EN-vs-S-0 tt0108160-001 --store x.zarr
    """
    import msgspec

    from obygaze_models.explain.attributions import explain_clips
    from obygaze_models.saved.about import describe_seen, read_about

    about = read_about(model)
    clips = explain_clips(model, stores, ids)
    if as_json:
        echo_json(msgspec.to_builtins(clips))
    else:
        for clip in clips:
            show(_facts(clip))
        echo_warnings(describe_seen({clip["id"]: clip["seen_in_training"] for clip in clips}))
    echo_warnings(about.description.warnings)


def _facts(clip: dict[str, Any]) -> dict[str, Any]:
    """Return a clip's prediction, with its reasons and the nearest clips as rows."""
    explanation = clip["explanation"]
    facts = {
        "id": clip["id"],
        "predicted": explanation["label"],
        "probabilities": explanation["probabilities"],
    }
    why = explanation["why"]
    if why is None:
        facts["reasons"] = "none from this type of model, or all features of the clip are zero"
    elif "steps" in why:
        facts["shares_in_the_leaf"] = why["shares"]
        facts["questions"] = [asdict(step) for step in why["steps"]]
    else:
        facts["log_odds"] = why["logit"]
        facts["at_rest"] = why["intercept"]
        facts["parts"] = why["contributions"]
    return facts | {"nearest": clip["nearest"]}


@click.command()
@folder_argument("model")
@store_argument("store")
@path_option("-o", "--output", "output", required=True, help="A CSV file with a row per moment.")
@path_option("--frames", help="A CSV file with one row per frame.")
@path_option("--elan", metavar="FOLDER", help="A folder for one .eaf file per film.")
@click.option(
    "--threshold",
    type=float,
    help="The minimum probability of a moment's frames.  [default: the model's, from validation]",
)
@overwrite_option
def moments(
    model: Path,
    store: Path | str,
    output: Path,
    frames: Path | None,
    elan: Path | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Find the moments in films that a MODEL rates positive.

    MODEL is a saved model that reads frames (frame-mil), or a run. In a run, each
    clip is predicted by the models that were tested on it. STORE has the frames and their times. A
    moment is an interval in which frames reach the threshold, in seconds of the film (or of the
    clip, if its position in the film is unknown). With more than two classes, the probability of
    the last class is used.

    \b
    Example:
      obygaze models moments models/mil stores/xclip.zarr -o moments.csv
    """
    from obygaze_models.experiments.record import RECORD
    from obygaze_models.saved.about import describe_seen

    for path in filter(None, (output, frames)):
        if path.suffix.lower() != ".csv":
            raise UsageError(f"-o and --frames take a CSV file (got {path}). Name it {path}.csv")
        refuse_to_overwrite(path, overwrite=overwrite)
    if frames and frames.resolve() == output.resolve():
        raise UsageError("-o and --frames must be different files")
    if elan:
        require_folder_name(elan)

    opened = of.open_store(store)
    if (model / RECORD).is_file():
        done = om.load_run(model).moments(store=opened, **options)
    else:
        frames_of = om.predict_frames(model, opened)
        done = om.find_moments(frames_of, opened.items, **options)

    files = {output: done.to_csv()}
    lines = [done.describe(), f"a row per moment -> {output}"]
    if frames:
        files[frames] = done.frames.to_csv()
        lines.append(f"a row per frame -> {frames}")
    documents, problem = _elan_documents(done, elan)
    if overwrite:
        refuse_edited(documents)
    if elan and not problem:
        lines.append(f"{counted(len(documents), 'file')} for ELAN -> {elan}")

    write_files(files | documents, overwrite=overwrite)
    echo("\n".join(lines))
    echo_warnings(problem, heading="NOTE")
    seen = dict(zip(done.frames.ids, done.frames.seen, strict=True))
    echo_warnings([*done.warnings, *describe_seen(seen)])


def _elan_documents(done: om.Moments, elan: Path | None) -> tuple[dict[Path, str], list[str]]:
    """Return the ELAN documents of the moments, or the reason why no document is written."""
    from obygaze_models.experiments.elan_documents import moment_files

    if elan is None:
        return {}, []
    try:
        return {elan / name: text for name, text in moment_files(done).items()}, []
    except ExperimentError as error:
        return {}, [f"no files for ELAN: {error}"]
