"""``obygaze models explain | moments``: explanations and moments."""

from __future__ import annotations

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
)
from obygaze_features.common.files import write_files
from obygaze_features.errors import UsageError
from obygaze_models.commands._shared import echo_warnings, path_option

NO_REASONS = "none: the model cannot give any, or the clip's features are all zero"


@click.command()
@folder_argument("model")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--store",
    "stores",
    type=ADDRESS,
    multiple=True,
    required=True,
    help="The features of the clips; repeatable, if the model was trained on several stores.",
)
@json_option
def explain(
    model: Path,
    ids: tuple[str, ...],
    stores: tuple[Path | str, ...],
    as_json: bool,
) -> None:
    """Explain a MODEL's predictions for clips.

    "prediction" is the predicted class, and "label" is the class of the logit: the second of two
    classes, or else the predicted class. With --json, both are called "label", and the class of
    the logit is in "why".

    A linear bottleneck shows each concept's contribution to the logit. The contributions and the
    intercept add up to the logit. A tree shows its questions on the clip's concepts, step by step.
    Other models, such as networks, give no reasons, and there are none for a clip whose features
    are all zero.

    \b
    Example:
      obygaze models explain runs/x/models/pcbm-tree/EN-vs-S-0 tt0108160-001 --store x.zarr
    """
    import msgspec

    from obygaze_models.explain.attributions import explain_clips

    loaded = om.load_model(model)
    clips = msgspec.to_builtins(explain_clips(loaded, stores, ids))
    if as_json:
        echo_json(clips)
    else:
        for clip in clips:
            explanation = clip.pop("explanation")
            why = explanation.pop("why") or {"reasons": NO_REASONS}
            explanation["prediction"] = explanation.pop("label")
            show({**clip, **explanation, **why})
    echo_warnings(loaded.about.warnings)


@click.command()
@folder_argument("model")
@click.argument("store", type=ADDRESS)
@path_option("-o", "--output", required=True, help="A CSV file with a row per moment.")
@path_option("--frames", help="A CSV file with one row per frame.")
@path_option(
    "--elan",
    metavar="FOLDER",
    help="A folder for new ELAN files (none is replaced), one per film with moments.",
)
@click.option(
    "--threshold",
    type=float,
    help="The probability that frames must reach.  [default: the model's threshold]",
)
@overwrite_option
def moments(
    model: Path,
    store: Path | str,
    output: Path,
    frames: Path | None,
    elan: Path | None,
    threshold: float | None,
    overwrite: bool,
) -> None:
    """Find the moments that a MODEL rates positive.

    MODEL is a saved model that reads frames (frame-mil), or a run. In a run, each clip is predicted
    by the models that were tested on it. STORE has the frames and their times. A moment is an
    interval of at least two seconds in which frames reach the threshold. Times are in seconds of
    the film (or of the clip, if its position in the film is unknown). Short gaps are closed where
    the frames come near the threshold. With more than two classes, the probability of the last
    class is used.

    The printed table has, for each film, the number of moments, the share of its clips' time that
    the moments cover, and the share of frames that reach the threshold.

    \b
    Example:
      obygaze models moments models/mil stores/xclip.zarr -o moments.csv
    """
    from obygaze_models.explain.moments import format_times, moment_shares
    from obygaze_models.results.export import moment_files
    from obygaze_models.results.frames import run_frames
    from obygaze_models.results.run import HEADER

    if frames and frames.resolve() == output.resolve():
        raise UsageError("-o and --frames must be different files")

    opened = of.open_store(store)
    if (model / HEADER).is_file():
        predicted = run_frames(om.load_run(model), opened)
    else:
        predicted = om.predict_frames(model, opened)
    table = om.frame_table(predicted, opened.items)
    found = om.find_moments(table, threshold=threshold)

    files = {output: format_times(found)}
    if frames:
        files[frames] = format_times(table)
    if elan:
        title = f"{predicted.about.estimator}: {predicted.about.learned.key}"
        for name, text in moment_files(found, title, predicted.warnings).items():
            files[elan / name] = text

    write_files(files, overwrite=overwrite)
    shares: Any = moment_shares(table, found, threshold).round(3).to_dict("records")
    show(shares)
    for path in files:
        echo(f"Wrote {path}")
    echo_warnings(predicted.warnings)
