"""``obygaze models moments | evaluate-moments``: when in a film it happens."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.common.cli import (
    PATH,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.text import counted, for_shell, format_time
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_models.commands._shared import echo_warnings

if TYPE_CHECKING:
    from obygaze_models.explain.moment_scores import AnnotatorScores, MomentScores
    from obygaze_models.explain.moments import Moments


MAX_ROWS_SHOWN = 20


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
@click.option("--min-length", type=float, help="Drop shorter moments, in seconds.  [default: 2]")
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
    min_length: float | None,
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
    from obygaze_features.common.files import (
        refuse_to_overwrite,
        require_folder_name,
        write_files,
    )
    from obygaze_models.experiments.exports import moment_files
    from obygaze_models.experiments.record import RECORD
    from obygaze_models.experiments.run_folder import load_run
    from obygaze_models.explain.moments import find_moments
    from obygaze_models.saved.inference import predict_frames

    drawings = [path for path in outputs if path.suffix.lower() in SUFFIXES]
    csv_files = [path for path in outputs if path not in drawings]
    figures = [*drawings, *([figure] if figure else [])]
    if len(csv_files) != 1 or len(figures) > 1:
        raise UsageError("-o takes one CSV file, and one figure if you like (.svg, .pdf or .png)")
    output, figure = csv_files[0], next(iter(figures), None)
    named = [path.resolve() for path in (output, frames, figure) if path]
    if len(set(named)) < len(named):
        raise UsageError("-o, --frames and --figure need different files")
    for path in filter(None, (output, frames)):
        refuse_to_overwrite(path, overwrite=overwrite)
    if elan:
        require_folder_name(elan)
    if figure:
        check_figure_path(figure, overwrite=overwrite)
    elif film or timelines:
        raise UsageError("--film and --timelines are for a picture; add one: -o FILE.svg")
    opened = of.open_store(store)
    clips = None if manifest is None else of.Manifest.load(manifest)
    options: dict[str, Any] = {
        "manifest": clips,
        "threshold": threshold,
        "close_gaps": close_gaps,
    }
    if min_length is not None:
        options["min_length"] = min_length
    if (model / RECORD).is_file():
        done = load_run(model).moments(estimator, task=task, store=opened, **options)
    elif estimator or task:
        raise UsageError(f"--estimator and --task choose from a run; {model} is a single model")
    else:
        done = find_moments(predict_frames(model, opened), opened.items, **options)
    files = {output: done.to_csv()}
    if frames:
        files[frames] = done.frames.to_csv()
    documents: dict[Path, str] = {}
    no_elan = ""
    if elan:
        try:
            documents = {elan / name: text for name, text in moment_files(done).items()}
        except ExperimentError as problem:
            no_elan = str(problem)
        if overwrite:
            refuse_edited(documents)
        files |= documents
    drawn = None
    if figure:
        from obygaze_models.explain.moment_figure import moment_figure

        drawn = moment_figure(
            done,
            film,
            timelines=None if timelines is None else of.Timelines.load(timelines),
            manifest=clips,
        )
    write_files(files, overwrite=overwrite)
    _echo_moments(done)
    click.echo(f"a row a moment -> {output}")
    if frames:
        click.echo(f"a row a frame -> {frames}")
    if no_elan:
        click.secho(f"NOTE: no files for ELAN: {no_elan}", fg="yellow", err=True)
    elif elan:
        click.echo(f"{counted(len(documents), 'file')} for ELAN -> {elan}")
    if drawn is not None and figure:
        save_figure(drawn, figure, overwrite=overwrite)
        click.echo(f"a picture -> {figure}")
    echo_warnings(done.warnings)
    if frames:
        tables = f"{for_shell(output)} {for_shell(frames)}"
        click.echo(f"next: obygaze models evaluate-moments {tables} TIMELINES")


def _echo_moments(done: Moments) -> None:
    from obygaze_features.common.tables import align

    rows = [
        [
            _cut(moment.axis.name, 40),
            format_time(moment.start),
            format_time(moment.end),
            f"{moment.score:.2f}",
        ]
        for moment in done.moments[:MAX_ROWS_SHOWN]
    ]
    if rows:
        click.echo(align(["film", "start", "end", "score"], rows))
    if (more := len(done.moments) - MAX_ROWS_SHOWN) > 0:
        click.echo(f"and {counted(more, 'more moment', 'more moments')}")
    films = {axis for axis in done.frames.axes if not axis.clip}
    clips = {axis.clip for axis in done.frames.axes if axis.clip}
    where = [counted(len(films), "film")] if films else []
    if clips:
        where.append(
            f"{counted(len(clips), 'clip')} whose position in the film is not known: their times "
            "count from the start of the clip"
        )
    limits = sorted({round(limit, 3) for limit in done.thresholds.values()})
    used = f"a threshold of {limits[0]:.3f}"
    if len(limits) > 1:
        used = f"thresholds of {limits[0]:.3f} to {limits[-1]:.3f}"
    click.echo(f"{counted(len(done.moments), 'moment')} at {used} in {' and '.join(where)}")


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
    from obygaze_models.explain import moment_scores
    from obygaze_models.explain.moments import Moments

    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    scored = moment_scores.evaluate_moments(
        Moments.from_csv(moments_table, frames_table),
        of.Timelines.load(timelines),
        positives=[level.strip() for level in (positives or "").split(",") if level.strip()],
    )
    if as_json:
        echo_json(asdict(scored))
    else:
        click.echo("\n\n".join(_describe_annotator(entry, scored) for entry in scored.annotators))
    if output:
        rows = scored.rows()
        names = ("annotator", "film", "scorer", "measure", "value", "low", "high")
        write_text(output, format_rows(rows, names))
        click.echo(f"a row a score -> {output}", err=as_json)
    for note in scored.notes:
        click.secho(f"NOTE: {note}", fg="yellow", err=True)


def _describe_annotator(entry: AnnotatorScores, scored: MomentScores) -> str:
    """What one annotator's segments say: the measures over films, then each film."""
    from obygaze_features.common.tables import align
    from obygaze_models.explain.moment_measures import TIOUS
    from obygaze_models.explain.moment_scores import MEASURES

    films = entry.films
    segments = sum(film.segments for film in films)
    seconds = sum(film.seconds for film in films)
    share = sum(film.positive_seconds for film in films) / seconds
    title = (
        f"{_cut(entry.annotator, 30)}: {counted(segments, 'segment')} of "
        f"{_cut(' or '.join(scored.positives), 30)} in {counted(len(films), 'film')}, "
        f"{share:.1%} of {format_time(round(seconds))}"
    )
    rows = [
        [
            MEASURES[key],
            _number(score.value),
            "too few films"
            if score.interval is None
            else " to ".join(map(_number, score.interval)),
            _number(score.constant),
            _number(score.random),
        ]
        for key, score in entry.scores.items()
    ]
    table = align(["measure", "the model", "95% interval", "constant", "random"], rows)
    by_film = [
        [
            _cut(film.film, 24),
            f"{film.positive_seconds / film.seconds:.1%}",
            film.segments,
            film.moments,
            *(_number(film.scores[key]) for key in MEASURES if key != "map_mean"),
        ]
        for film in films
    ]
    names = [*(f"mAP {tiou:g}" for tiou in TIOUS)]
    header = ["film", "positive", "segments", "moments", "frame AP", "AUROC", *names]
    return f"{title}\n{table}\n\n{align(header, by_film)}"


def _cut(text: str, width: int) -> str:
    """A name that fits in a table."""
    return text if len(text) <= width else text[: width - 3] + "..."


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"
