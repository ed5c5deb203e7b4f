"""``obygaze models explain | moments | evaluate-moments``: why a model decides so, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import obygaze_features as of
import obygaze_models as om
from obygaze_features.common.cli import (
    ADDRESS,
    Seconds,
    echo,
    echo_json,
    figure_options,
    film_option,
    folder_argument,
    json_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.elan import refuse_edited
from obygaze_features.common.figures import SUFFIXES, check_figure_path, save_figure
from obygaze_features.common.files import (
    refuse_to_overwrite,
    require_folder_name,
    write_files,
    write_text,
)
from obygaze_features.common.tables import align, format_rows
from obygaze_features.common.text import counted, for_shell
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_models.commands._shared import echo_warnings, option, path_option

BAR = 24
"""The longest bar, in characters that every terminal and file can show."""


@click.command()
@folder_argument("model")
@click.argument("named", metavar="STORE... [ID...]", nargs=-1, required=True)
@option(
    "--nearest",
    type=click.IntRange(min=0),
    default=5,
    help="How many similar clips of the store to list.",
)
@path_option("--concepts", help="A saved bottleneck, whose concepts --tcav looks for in a network.")
@click.option("--tcav", "analysis", flag_value="tcav", help="How a network uses --concepts.")
@click.option(
    "--significance",
    "analysis",
    flag_value="significance",
    help="Whether a bottleneck's concepts beat shuffled labels.",
)
@path_option("--manifest", help="The annotations, for --tcav and --significance.")
@click.option("--labels", metavar="NAME", help="The manifest's label set.  [default: its own]")
@option("--draws", type=click.IntRange(min=1), default=200, help="Random directions.")
@option("--seed", default=0, help="Fixes the random draws.")
@json_option
def explain(
    model: Path,
    named: tuple[str, ...],
    nearest: int,
    concepts: Path | None,
    analysis: str | None,
    manifest: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Explain a saved MODEL's predictions of clips of a STORE, or its concepts.

    With IDs: a linear bottleneck shows each concept's part in the logit, and the parts add up; a
    tree says which concepts it finds in the clip; a late fusion shows the part of each store. Other
    models, such as networks, give no reasons. Give as many stores as the model was trained on.

    Without IDs, on the annotated clips of --manifest that the model has not seen: --tcav counts
    how often a network's logit rises along each concept, --significance ranks clips by each
    concept, both against directions of shuffled labels. Their JSON can be shown in a page:
    obygaze report RUN --analysis FILE.

    \b
    Examples:
      obygaze models explain runs/x/models/pcbm-tree/EN-vs-S-0 stores/xclip.zarr tt0108160-001
      obygaze models explain runs/x/models/mlp/EN-vs-S-0 stores/xclip.zarr tt0108160-001 \\
        --nearest 10 --json
      obygaze models explain runs/x/models/mlp/EN-vs-S-0 stores/xclip.zarr --tcav \\
        --concepts runs/x/models/pcbm-tree/EN-vs-S-0 --manifest manifests/obygaze12
      obygaze models explain runs/x/models/pcbm-tree/EN-vs-S-0 stores/xclip.zarr \\
        --significance --manifest manifests/obygaze12 --json > significance.json
    """
    import msgspec

    from obygaze_models.explain.analyses import analyse, describe_analysis
    from obygaze_models.explain.attributions import explain_clips
    from obygaze_models.saved.about import read_about, say_seen

    about = read_about(model)
    count = about.said.features.stores
    stores, ids = [*map(ADDRESS, named[:count])], named[count:]
    if analysis is not None:
        if ids:
            raise UsageError(f"--{analysis} uses all annotated clips; leave out the IDs")
        if manifest is None:
            raise UsageError(f"--{analysis} needs annotations; add --manifest FOLDER")
        result = analyse(analysis, model, stores, manifest, concepts, **options)
        if as_json:
            echo_json(msgspec.to_builtins(result))
        else:
            table = describe_analysis(result)
            echo(f"{align(table.header, table.rows)}\n\n{table.note}")
    else:
        if not ids:
            raise UsageError("name clips (ID...), or add --tcav or --significance")
        if concepts is not None:
            raise UsageError(
                "--concepts is for --tcav; of single clips a network gives no reasons, and a "
                "bottleneck has its own concepts"
            )
        clips = explain_clips(model, stores, ids, nearest=nearest)
        if as_json:
            echo_json(msgspec.to_builtins(clips))
        else:
            echo("\n\n".join(map(_describe_clip, clips)))
            echo_warnings(say_seen({clip["id"]: clip["seen_in_training"] for clip in clips}))
    echo_warnings(about.said.warnings)


def _describe_clip(clip: dict[str, Any]) -> str:
    explanation = clip["explanation"]
    label, probabilities = explanation["label"], explanation["probabilities"]
    others = [f"{name} {p:.2f}" for name, p in probabilities.items() if name != label]
    lines = [f"{clip['id']}: {label}, probability {probabilities[label]:.2f} ({', '.join(others)})"]
    lines += _reasons(explanation["why"], list(probabilities))
    if clip["nearest"]:
        rows = [[other["id"], f"{other['cosine']:.3f}"] for other in clip["nearest"]]
        table = align(["nearest clips", "cosine"], rows)
        lines += ["", *(f"  {line}" for line in table.splitlines())]
    return "\n".join(lines)


def _reasons(why: dict[str, Any] | None, classes: list[str]) -> list[str]:
    from obygaze_models.explain.parts import name_log_odds

    if why is None:
        return ["  no reasons: the model gives none, or the clip's features are zeros only"]
    if "steps" in why:
        shares = ", ".join(f"{share:.0%} {name}" for name, share in why["shares"].items())
        return [
            *("  " + part.sentence("the store's clips") for part in why["conditions"]),
            f"  the training clips that end there: {shares}",
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
        f"  together {why['logit']:+.2f}: the {name_log_odds(classes)}",
    ]


@click.command()
@folder_argument("model")
@store_argument("store")
@path_option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    required=True,
    help="A CSV file: a row a moment; or a picture of a film: .svg, .pdf or .png. Repeatable.",
)
@path_option("--frames", help="A CSV file: a row a frame and its probability.")
@path_option("--elan", metavar="FOLDER", help="A folder that gets an .eaf a film.")
@path_option("--figure", help="The figure, as a second -o.")
@film_option("Which one film is drawn; by default the first.", "film")
@path_option("--timelines", help="Draw the segments of these timelines.")
@path_option(
    "--manifest",
    help="Draw the labels of this manifest. It also gives clips their position in the film if the "
    "store has none.",
)
@click.option(
    "--threshold",
    type=float,
    help="The probability that frames must reach.  [default: the model's, from validation clips]",
)
@click.option(
    "--min-length", type=Seconds(0), default=2.0, help="Drop shorter moments, in seconds."
)
@click.option(
    "--close-gaps",
    type=Seconds(0),
    help="Join moments less far apart, in seconds; the frames between are below the threshold.  "
    "[default: 5, at most a tenth of the film, or of a clip without a place in one]",
)
@click.option("--estimator", help="Of a run: which estimator, if several read frames.")
@click.option("--task", help="Of a run: what it tells apart, if there are several tasks.")
@figure_options
@overwrite_option
def moments(
    model: Path,
    store: Path | str,
    outputs: tuple[Path, ...],
    frames: Path | None,
    elan: Path | None,
    figure: Path | None,
    film: Sequence[str],
    timelines: Path | None,
    manifest: Path | None,
    estimator: str | None,
    task: str | None,
    overwrite: bool,
    **options: Any,
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
    from obygaze_models.experiments.record import RECORD
    from obygaze_models.explain.moments import moment_figure
    from obygaze_models.saved.about import say_seen

    table, picture = _split_outputs(outputs, figure)
    tables = [path for path in (table, frames) if path]
    _check_outputs(tables, picture, elan, overwrite=overwrite)
    if (film or timelines) and not picture:
        hold = "CSV files hold all films (column film)"
        raise UsageError(f"--film and --timelines are for a picture, {hold}; add one: -o FILE.svg")
    opened = of.open_store(store)
    clips = options["manifest"] = None if manifest is None else of.Manifest.load(manifest)
    if (model / RECORD).is_file():
        done = om.load_run(model).moments(estimator, task=task, store=opened, **options)
    elif estimator or task:
        raise UsageError(f"--estimator and --task choose from a run; {model} is a single model")
    else:
        done = om.find_moments(om.predict_frames(model, opened), opened.items, **options)
    files, lines = {}, [done.describe()]
    if table:
        files[table] = done.to_csv()
        lines.append(f"a row a moment -> {table}")
    if frames:
        files[frames] = done.frames.to_csv()
        lines.append(f"a row a frame -> {frames}")
    documents, problem = _elan_documents(done, elan)
    if overwrite:
        refuse_edited(documents)
    if elan and not problem:
        lines.append(f"{counted(len(documents), 'file')} for ELAN -> {elan}")
    segments = None if timelines is None else of.Timelines.load(timelines)
    drawn = moment_figure(done, film, timelines=segments, manifest=clips) if picture else None
    write_files(files | documents, overwrite=overwrite)
    echo("\n".join(lines))
    echo_warnings(problem, heading="NOTE")
    if picture and drawn:
        save_figure(drawn, picture, overwrite=overwrite)
        echo(f"a picture -> {picture}")
    seen = dict(zip(done.frames.ids, done.frames.seen, strict=True))
    echo_warnings([*done.warnings, *say_seen(seen)])
    if table and frames:
        named = " ".join(map(for_shell, tables))
        echo(f"next: obygaze models evaluate-moments {named} TIMELINES")


def _split_outputs(outputs: Sequence[Path], figure: Path | None) -> tuple[Path | None, Path | None]:
    """Return the table and the picture among some outputs, of which there may be one each."""
    pictures = [path for path in outputs if path.suffix.lower() in SUFFIXES]
    tables = [path for path in outputs if path not in pictures]
    if figure:
        pictures.append(figure)
    if len(tables) > 1 or len(pictures) > 1:
        raise UsageError("-o takes one CSV file, and one figure (.svg, .pdf or .png)")
    return next(iter(tables), None), next(iter(pictures), None)


def _check_outputs(
    tables: Sequence[Path], picture: Path | None, elan: Path | None, *, overwrite: bool
) -> None:
    """Raise if two outputs are one file, or one cannot be written."""
    paths = [*tables, picture] if picture else tables
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("-o, --frames and --figure need different files")
    for path in tables:
        if path.suffix.lower() != ".csv":
            raise UsageError(f"-o and --frames take a CSV file (got {path}); name it {path}.csv")
        refuse_to_overwrite(path, overwrite=overwrite)
    if elan:
        require_folder_name(elan)
    if picture:
        check_figure_path(picture, overwrite=overwrite)


def _elan_documents(done: om.Moments, elan: Path | None) -> tuple[dict[Path, str], list[str]]:
    """Return the ELAN documents of moments, if asked for, or why there are none."""
    from obygaze_models.experiments.elan_documents import moment_files

    if elan is None:
        return {}, []
    try:
        return {elan / name: text for name, text in moment_files(done).items()}, []
    except ExperimentError as error:
        return {}, [f"no files for ELAN: {error}"]


@click.command("evaluate-moments")
@folder_argument("moments_table")
@folder_argument("frames_table")
@folder_argument("timelines")
@click.option(
    "--positives",
    metavar="LEVEL,LEVEL",
    help="Segments of which levels a model should find.  [default: the timelines' highest]",
)
@path_option("-o", "--csv", "output", help="A CSV file: a row a score; it draws no picture.")
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
    random ones get. For a picture: obygaze models moments -o FILE.svg --timelines FOLDER.

    \b
    Examples:
      obygaze models evaluate-moments moments.csv frames.csv timelines/mobygaze
      obygaze models evaluate-moments moments.csv frames.csv timelines/mine --positives S,HN --json
    """
    if output and output.suffix.lower() in SUFFIXES:
        raise UsageError("scores are a table; a picture is drawn by: obygaze models moments -o")
    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    scored = om.evaluate_moments(
        om.Moments.from_csv(moments_table, frames_table),
        of.Timelines.load(timelines),
        positives=[level.strip() for level in (positives or "").split(",") if level.strip()],
    )
    if as_json:
        echo_json(asdict(scored))
    else:
        echo(scored.describe())
    if output:
        names = ("annotator", "film", "scorer", "measure", "value", "low", "high")
        write_text(output, format_rows(scored.rows(), names))
        echo(f"a row a score -> {output}", err=as_json)
    echo_warnings(scored.notes, heading="NOTE")
