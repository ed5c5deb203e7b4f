"""``obygaze models explain | moments``: explanations and moments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import obygaze_features as of
import obygaze_models as om
from obygaze_features.common.cli import (
    ADDRESS,
    Seconds,
    echo,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.elan import refuse_edited
from obygaze_features.common.files import (
    refuse_to_overwrite,
    require_folder_name,
    write_files,
)
from obygaze_features.common.printer import align
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_models.commands._shared import echo_warnings, path_option

if TYPE_CHECKING:
    from obygaze_models.explain.attributions import Step

BAR = 24
"""The length of the longest bar, in characters."""


@click.command()
@folder_argument("model")
@click.argument("named", metavar="STORE... ID...", nargs=-1, required=True)
@json_option
def explain(model: Path, named: tuple[str, ...], as_json: bool) -> None:
    """Explain a MODEL's predictions for clips.

    A linear bottleneck shows each concept's contribution to the logit. The contributions and the
    intercept add up to the logit. A tree shows its questions on the clip's concepts.
    Other models, such as networks, give no reasons. Pass as many stores as the model was trained
    on. With a single store, the five most similar clips are listed.

    \b
    Examples:
      obygaze models explain runs/x/models/pcbm-tree/EN-vs-S-0 stores/xclip.zarr tt0108160-001
      obygaze models explain runs/x/models/mlp/EN-vs-S-0 stores/xclip.zarr tt0108160-001 --json
    """
    import msgspec

    from obygaze_models.explain.attributions import explain_clips
    from obygaze_models.saved.about import describe_seen, read_about

    about = read_about(model)
    count = about.description.features.stores
    stores, ids = [*map(ADDRESS, named[:count])], named[count:]
    if not ids:
        raise UsageError("no clips to explain. Pass their IDs after the store")
    clips = explain_clips(model, stores, ids)
    if as_json:
        echo_json(msgspec.to_builtins(clips))
    else:
        echo("\n\n".join(map(_describe_clip, clips)))
        echo_warnings(describe_seen({clip["id"]: clip["seen_in_training"] for clip in clips}))
    echo_warnings(about.description.warnings)


def _describe_clip(clip: dict[str, Any]) -> str:
    explanation = clip["explanation"]
    label, probabilities = explanation["label"], explanation["probabilities"]
    others = [f"{name} {p:.2f}" for name, p in probabilities.items() if name != label]
    lines = [f"{clip['id']}: {label}, probability {probabilities[label]:.2f} ({', '.join(others)})"]
    lines += _reasons(explanation["why"], list(probabilities))
    if clip["nearest"]:
        rows = [[match["id"], f"{match['cosine']:.3f}"] for match in clip["nearest"]]
        table = align(["nearest clips", "cosine"], rows)
        lines += ["", *(f"  {line}" for line in table.splitlines())]
    return "\n".join(lines)


def _reasons(why: dict[str, Any] | None, classes: list[str]) -> list[str]:
    from obygaze_models.explain.parts import name_log_odds

    if why is None:
        return ["  no reasons: this type of model gives none, or all features of the clip are zero"]
    if "steps" in why:
        shares = ", ".join(f"{share:.0%} {name}" for name, share in why["shares"].items())
        return [
            *("  " + _describe_step(step) for step in why["steps"]),
            f"  training clips that reach this leaf: {shares}",
        ]
    rows = [(part["concept"], part["amount"]) for part in why["contributions"]]
    rows.append(("(intercept)", why["intercept"]))
    width = max(len(name) for name, _ in rows)
    longest = max(abs(amount) for _, amount in rows) or 1.0
    return [
        *(
            f"  {name.ljust(width)}  {amount:+7.2f}  "
            f"{('+' if amount > 0 else '-') * round(BAR * abs(amount) / longest)}".rstrip()
            for name, amount in rows
        ),
        f"  sum {why['logit']:+.2f}: the {name_log_odds(classes)}",
    ]


def _describe_step(step: Step) -> str:
    sign = ">" if step.above else "<="
    return f"{step.concept} {step.value:.4g} {sign} {step.threshold:.4g}"


@click.command()
@folder_argument("model")
@store_argument("store")
@path_option("-o", "--output", "output", required=True, help="A CSV file with a row per moment.")
@path_option("--frames", help="A CSV file with one row per frame.")
@path_option("--elan", metavar="FOLDER", help="A folder for one .eaf file per film.")
@path_option(
    "--manifest", help="A manifest with the times of clips in films, if the store lacks them."
)
@click.option(
    "--threshold",
    type=float,
    help="The minimum probability of a moment's frames.  [default: the model's, from validation]",
)
@click.option(
    "--min-length", type=Seconds(0), default=2.0, help="Drop moments shorter than this, in seconds."
)
@click.option(
    "--close-gaps",
    type=Seconds(0),
    help="Join moments separated by a gap shorter than this, in seconds.  "
    "[default: 5, but at most a tenth of the film (or of a clip with no position)]",
)
@click.option("--estimator", help="For a run: the estimator, if several read frames.")
@click.option("--task", help="For a run: the task, if there are several.")
@overwrite_option
def moments(
    model: Path,
    store: Path | str,
    output: Path,
    frames: Path | None,
    elan: Path | None,
    manifest: Path | None,
    estimator: str | None,
    task: str | None,
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
    Examples:
      obygaze models moments models/mil stores/xclip.zarr -o moments.csv
      obygaze models moments runs/mil stores/xclip.zarr -o moments.csv --frames frames.csv
      obygaze models moments models/mil stores/xclip.zarr -o moments.csv --elan for-elan
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
    options["manifest"] = None if manifest is None else of.Manifest.load(manifest)
    if (model / RECORD).is_file():
        done = om.load_run(model).moments(estimator, task=task, store=opened, **options)
    elif estimator or task:
        raise UsageError(f"--estimator and --task need a run, but {model} is a single model")
    else:
        done = om.find_moments(om.predict_frames(model, opened), opened.items, **options)

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
