"""``obygaze models moments | evaluate-moments``: when in a film it happens."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from obygaze_features.common.cli import (
    PATH,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.text import counted, for_shell
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_models.commands._shared import echo_warnings


@click.command()
@folder_argument("model")
@store_argument("store")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=PATH,
    required=True,
    help="A CSV file: a row a moment. Another -o draws a film: .svg, .pdf or .png.",
)
@click.option("--frames", type=PATH, help="A CSV file: a row a frame and its probability.")
@click.option("--elan", type=PATH, metavar="FOLDER", help="A folder that gets an .eaf a film.")
@click.option("--figure", type=PATH, help="The figure, as a second -o.")
@click.option("--film", help="Which film is drawn, by its id or title.  [default: the first]")
@click.option("--timelines", type=PATH, help="Draw the segments of these timelines.")
@click.option(
    "--manifest",
    type=PATH,
    help="Draw the labels of this manifest. It also gives clips their position in the film if the "
    "store has none.",
)
@click.option(
    "--threshold",
    type=float,
    help="The probability that frames must reach.  [default: the model's, from validation clips]",
)
@click.option("--min-length", default=2.0, help="Drop shorter moments, in seconds.  [default: 2]")
@click.option(
    "--close-gaps",
    type=float,
    help="Join moments less far apart, in seconds.  [default: 5, at most a tenth of the film or "
    "clip]",
)
@click.option("--estimator", help="Of a run: which estimator, if several read frames.")
@click.option("--task", help="Of a run: what it tells apart, if there are several tasks.")
@overwrite_option
def moments(
    model: Path,
    store: Path | str,
    outputs: tuple[Path, ...],
    frames: Path | None,
    elan: Path | None,
    figure: Path | None,
    film: str | None,
    timelines: Path | None,
    manifest: Path | None,
    threshold: float | None,
    min_length: float,
    close_gaps: float | None,
    estimator: str | None,
    task: str | None,
    overwrite: bool,
) -> None:
    """Find the moments of films in which a MODEL sees what it was trained on.

    MODEL is a saved model that reads frames (attention-probe, frame-mil), or a run: then each clip
    is predicted by the models that were tested on it. STORE has the frames and their times. A
    moment is an interval in which frames reach the threshold, in seconds of the film; of clips
    whose position in the film is not known, in seconds of the clip. Of more than two classes, the
    probability of the last counts.

    \b
    Examples:
      obygaze models moments models/mil stores/xclip.zarr -o moments.csv
      obygaze models moments runs/mil stores/xclip.zarr -o moments.csv --frames frames.csv
      obygaze models moments models/mil stores/xclip.zarr -o moments.csv --elan for-elan
      obygaze models moments models/mil stores/xclip.zarr -o moments.csv -o moments.png \\
        --film tt0097576 --timelines timelines/mine
    """
    import obygaze_features as of
    from obygaze_features.common.elan import refuse_edited
    from obygaze_features.common.figures import SUFFIXES, check_figure_path, save_figure
    from obygaze_features.common.files import refuse_to_overwrite, require_folder_name, write_files
    from obygaze_models.experiments.exports import moment_files
    from obygaze_models.experiments.record import RECORD
    from obygaze_models.experiments.run_folder import load_run
    from obygaze_models.explain.moments import find_moments, moment_figure
    from obygaze_models.saved.inference import predict_frames

    figures = [path for path in outputs if path.suffix.lower() in SUFFIXES]
    tables = [path for path in outputs if path not in figures]
    figures += [figure] if figure else []
    if len(tables) != 1 or len(figures) > 1:
        raise UsageError("-o takes one CSV file, and one figure if you like (.svg, .pdf or .png)")
    tables += [frames] if frames else []
    if len({path.resolve() for path in (*tables, *figures)}) < len(tables) + len(figures):
        raise UsageError("-o, --frames and --figure need different files")
    for path in tables:
        refuse_to_overwrite(path, overwrite=overwrite)
    if elan:
        require_folder_name(elan)
    for path in figures:
        check_figure_path(path, overwrite=overwrite)
    if (film or timelines) and not figures:
        raise UsageError("--film and --timelines are for a picture; add one: -o FILE.svg")
    opened = of.open_store(store)
    clips = None if manifest is None else of.Manifest.load(manifest)
    options: dict[str, Any] = {"manifest": clips, "threshold": threshold}
    options |= {"min_length": min_length, "close_gaps": close_gaps}
    if (model / RECORD).is_file():
        done = load_run(model).moments(estimator, task=task, store=opened, **options)
    elif estimator or task:
        raise UsageError(f"--estimator and --task choose from a run; {model} is a single model")
    else:
        done = find_moments(predict_frames(model, opened), opened.items, **options)
    files = {tables[0]: done.to_csv()}
    lines = [done.describe(), f"a row a moment -> {tables[0]}"]
    if frames:
        files[frames] = done.frames.to_csv()
        lines.append(f"a row a frame -> {frames}")
    problem = ""
    if elan:
        try:
            documents = {elan / name: text for name, text in moment_files(done).items()}
        except ExperimentError as error:
            problem = f"no files for ELAN: {error}"
        else:
            if overwrite:
                refuse_edited(documents)
            files |= documents
            lines.append(f"{counted(len(documents), 'file')} for ELAN -> {elan}")
    segments = None if timelines is None else of.Timelines.load(timelines)
    drawn = [moment_figure(done, film, timelines=segments, manifest=clips) for _ in figures]
    write_files(files, overwrite=overwrite)
    click.echo("\n".join(lines))
    if problem:
        click.secho(f"NOTE: {problem}", fg="yellow", err=True)
    for picture, path in zip(drawn, figures, strict=True):
        save_figure(picture, path, overwrite=overwrite)
        click.echo(f"a picture -> {path}")
    echo_warnings(done.warnings)
    if frames:
        named = " ".join(map(for_shell, tables))
        click.echo(f"next: obygaze models evaluate-moments {named} TIMELINES")


@click.command("evaluate-moments")
@folder_argument("moments_table")
@folder_argument("frames_table")
@folder_argument("timelines")
@click.option(
    "--positives",
    metavar="LEVEL,LEVEL",
    help="Segments of which levels a model should find.  [default: the highest, as Sure]",
)
@click.option("--csv", "output", type=PATH, help="A CSV file: a row a score.")
@overwrite_option
@json_option
def evaluate_moments(
    moments_table: Path,
    frames_table: Path,
    timelines: Path,
    positives: str | None,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Score moments and frames by the segments of annotators' TIMELINES.

    MOMENTS_TABLE and FRAMES_TABLE are written by obygaze models moments, or have the columns film,
    start, end, score, and film, id, start, end, probability. TIMELINES is a folder that obygaze
    annotations import wrote, of MObyGaze, ELAN or a table. Each annotator counts on their own.
    Beside each score is what a scorer gets that gives all frames the same probability, and what
    random ones get.

    \b
    Examples:
      obygaze models evaluate-moments moments.csv frames.csv timelines/mobygaze
      obygaze models evaluate-moments moments.csv frames.csv timelines/mine --positives S,HN --json
    """
    import obygaze_features as of
    from obygaze_features.common.files import refuse_to_overwrite, write_text
    from obygaze_features.common.tables import format_rows
    from obygaze_models.explain.moment_scores import evaluate_moments
    from obygaze_models.explain.moments import Moments

    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    scored = evaluate_moments(
        Moments.from_csv(moments_table, frames_table),
        of.Timelines.load(timelines),
        positives=[level.strip() for level in (positives or "").split(",") if level.strip()],
    )
    if as_json:
        echo_json(asdict(scored))
    else:
        click.echo(scored.describe())
    if output:
        rows = scored.rows()
        names = ("annotator", "film", "scorer", "measure", "value", "low", "high")
        write_text(output, format_rows(rows, names))
        click.echo(f"a row a score -> {output}", err=as_json)
    for note in scored.notes:
        click.secho(f"NOTE: {note}", fg="yellow", err=True)
