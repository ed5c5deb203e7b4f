"""`obygaze features`: from film clips to stores of frame features."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from obygaze_features.commands._shared import (
    MAX_FAILURES_SHOWN,
    PARTLY_DONE,
    clip_options,
    echo_failures,
)
from obygaze_features.commands.backbones import backbones, make_weights, prefetch
from obygaze_features.commands.extract import extract
from obygaze_features.common.cli import (
    PATH,
    echo_json,
    emit,
    folder_argument,
    json_option,
    output_option,
    output_options,
    overwrite_option,
)
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import VideoError


@click.group()
def features() -> None:
    """From film clips to stores of frame features.

    \b
    Example:
      obygaze features extract manifests/mine --videos films --backbone xclip-kinetics -o stores
    """


@click.command()
@clip_options
@output_options("A CSV file that gets one row per clip.", required=False)
@json_option
@click.pass_context
def probe(
    ctx: click.Context,
    /,
    manifest: Path,
    videos: Path,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Check every clip's file, on CPU, before a GPU's time is spent on it.

    It decodes what extraction would: clips that cannot be decoded are named with the reason, and
    the exit code is then 3. It also reports what is unusual about the others: a variable frame
    rate, fewer frames than a backbone takes, a file that can only be decoded from its beginning.

    \b
    Examples:
      obygaze features probe manifests/mine --videos films
      obygaze features probe manifests/mine --videos films -o probe.csv
    """
    from obygaze_features.common.files import refuse_to_overwrite, write_text
    from obygaze_features.extraction.check_videos import (
        check_videos,
        describe_checks,
        format_checks,
    )
    from obygaze_features.manifests import Manifest

    if output:
        refuse_to_overwrite(output, overwrite=overwrite)
    rows = list(check_videos(Manifest.load(manifest), videos, **options))
    if output:
        write_text(output, format_checks(rows))
    emit(rows, as_json, describe_checks)
    if output and not as_json:
        click.echo(f"\none row per clip in {output}")
    if any(row["error"] for row in rows):
        ctx.exit(PARTLY_DONE)


@click.command()
@clip_options
@output_option("The folder that gets ID.jpg for each clip.")
@click.option(
    "--width", type=click.IntRange(16, 1920), default=160, show_default=True, help="In pixels."
)
@json_option
@click.pass_context
def thumbnails(
    ctx: click.Context,
    /,
    manifest: Path,
    videos: Path,
    output: Path,
    width: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a small picture of each clip, its middle frame, for a report of your own.

    Existing pictures are kept, so the same command resumes after an interruption; for another
    width, give another folder. A clip that cannot be read is named, and the exit code is then 3.
    These are pictures of films and must not be shared.

    \b
    Examples:
      obygaze features thumbnails manifests/mine --videos films -o thumbnails
      obygaze features thumbnails manifests/mine --videos films -o thumbnails --films tt0108160
    """
    from obygaze_features.extraction.thumbnails import WARNING, write_thumbnails
    from obygaze_features.manifests import Manifest

    result = write_thumbnails(Manifest.load(manifest), videos, output, width=width, **options)
    made, there, reasons = result["made"], result["there"], result["failed"]
    if as_json:
        echo_json(result)
    else:
        echo_failures(reasons, all_in="--json names all")
    if reasons and not made and not there:
        raise VideoError(f"not one of {counted(len(reasons), 'clip')} has a picture")
    before = f", {there:,} existed" if there else ""
    without = f", {counted(len(reasons), 'clip')} without" if reasons else ""
    click.echo(f"{counted(made, 'picture')} made{before}{without} -> {output}", err=as_json)
    click.secho(WARNING, fg="yellow", err=True)
    if reasons:
        ctx.exit(PARTLY_DONE)


@click.command()
@folder_argument("manifest")
@click.option("--images", type=PATH, required=True, help="The folder of the images.")
@click.option(
    "--backbone",
    metavar="[NAME=]PATH",
    required=True,
    help="A CLIP, SigLIP or X-CLIP, by a name that `obygaze features backbones` lists, "
    "or a checkpoint of your own.",
)
@click.option(
    "--text",
    required=True,
    help="The text to look for; {COLUMN} is replaced by the image's cell in that column.",
)
@click.option(
    "--by", metavar="COLUMN", help="Average over the images of each group: film, or a column of "
    "your own.  [default: over all]",
)  # fmt: skip
@click.option("--groups-only", is_flag=True, help="Draw groups, and not every image.")
@output_options("The folder of maps.")
@click.option("--device", help="cpu, cuda, cuda:1 or mps; by default a GPU if there is one.")
@json_option
@click.pass_context
def saliency(
    ctx: click.Context,
    manifest: Path,
    images: Path,
    backbone: str,
    text: str,
    by: str | None,
    groups_only: bool,
    output: Path,
    device: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Draw where in images a network finds a text, and the mean of each group of images.

    Grad-CAM of the cosine of image and text, at the first layer norm of the vision tower's last
    layer. OUTPUT gets maps.npy and images.csv (one map and one row per image, in the same order),
    groups.csv (the means), groups/ and images/ (heat maps, and heat over the pictures). For the
    means each image's map is divided by its highest value; all groups are drawn on one scale.

    An image that cannot be read is named, and the exit code is then 3.

    \b
    Examples:
      obygaze features saliency manifests/women --images images --text "a photo of a person" \\
          --backbone clip-vit-base-patch32 -o saliency
      obygaze features saliency manifests/women --images images --backbone xclip-kinetics \\
          --text "a photo of an {emotion} person" --by condition --groups-only -o saliency
    """
    from obygaze_features.common.files import refuse_to_overwrite
    from obygaze_features.manifests import Manifest
    from obygaze_features.saliency import load_grad_cam_model, write_saliency

    refuse_to_overwrite(output, overwrite=overwrite)
    result = write_saliency(
        Manifest.load(manifest),
        images,
        load_grad_cam_model(backbone, device),
        text,
        output,
        by=by,
        each=not groups_only,
        overwrite=overwrite,
    )
    if as_json:
        echo_json(asdict(result))
    else:
        echo_failures(result.failed, all_in="--json names all")
    if result.cut:
        texts = counted(len(result.cut), "text")
        click.echo(f"{texts} longer than {backbone} reads; the rest was cut off", err=True)
    if result.ungrouped:
        click.echo(
            f"{counted(len(result.ungrouped), 'image')} without a group, because {by} is empty: "
            f"{join_some(result.ungrouped, MAX_FAILURES_SHOWN)}",
            err=True,
        )
    failed = len(result.failed)
    maps, groups = sum(result.groups.values()), counted(len(result.groups), "group")
    without = f", {counted(failed, 'image')} without" if failed else ""
    click.echo(f"{counted(maps, 'map')} in {groups}{without} -> {output}", err=as_json)
    if failed:
        ctx.exit(PARTLY_DONE)


@click.command("caption-scores")
@folder_argument("table")
@output_options("The CSV file of scores; a JSON file of the same name says which models made them.")
@click.option(
    "--language-model",
    metavar="MODEL",
    default="gpt2",
    show_default=True,
    help="gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2, OWNER/NAME on the Hugging Face hub, "
    "or a folder.",
)
@click.option(
    "--sentence-encoder",
    metavar="MODEL",
    default="roberta-large-nli-stsb-mean-tokens",
    show_default=True,
    help="A name that sentence-transformers publishes, such as all-mpnet-base-v2, OWNER/NAME, or "
    "a folder.",
)
@click.option(
    "--variants",
    "with_variants",
    is_flag=True,
    help="Also each caption with man, and with woman, in place of [MASK] or of its gender word.",
)
@click.option("--device", help="cpu, cuda, cuda:1 or mps; by default a GPU if there is one.")
@json_option
@click.pass_context
def caption_scores(
    ctx: click.Context,
    table: Path,
    output: Path,
    language_model: str,
    sentence_encoder: str,
    with_variants: bool,
    device: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Score captions with a language model and a sentence encoder, for obygaze bias gender-score.

    TABLE is a CSV file with the columns id, caption, object (the label of what is in the picture)
    and confidence (the classifier's, of that label); others are kept. It gets the columns
    probability (the mean probability of the caption's tokens) and similarity (of caption and
    object). With --variants it gets those of the caption with man and with woman instead of its
    gender word; captions that have none are named and left out.

    Captions that the language model cannot read whole are named and left out; the exit code is
    then 3.

    \b
    Examples:
      obygaze features caption-scores captions.csv -o scores.csv
      obygaze features caption-scores captions.csv -o scores.csv --variants \\
          --language-model distilgpt2 --sentence-encoder all-mpnet-base-v2
    """
    from obygaze_features.common.files import refuse_to_overwrite
    from obygaze_features.language import load_language_model, load_sentence_encoder
    from obygaze_features.language.caption_scores import read_captions, score_captions

    refuse_to_overwrite(output, overwrite=overwrite)
    captions = read_captions(table, with_variants=with_variants)
    model = load_language_model(language_model, device)
    encoder = load_sentence_encoder(sentence_encoder, device)
    click.echo(f"Scoring with {model.name} and {encoder.name} ({model.device})", err=True)
    result = score_captions(captions, output, model, encoder, overwrite=overwrite)
    if as_json:
        echo_json(asdict(result))
    limit = encoder.max_tokens
    for items, reason in (
        (
            result.without_variants,
            "left out: no noun for a person, or other words of gender that would have to change",
        ),
        (result.cut, f"of which {encoder.name} reads only the first {limit} tokens"),
        (result.too_long, f"left out: longer than {model.name} reads"),
    ):
        if items:
            count = counted(len(items), "caption")
            click.echo(f"{count} {reason}: {join_some(items, MAX_FAILURES_SHOWN)}", err=True)
    if "confidence" not in captions.table.columns:
        click.echo("no column confidence; obygaze bias gender-score needs it", err=True)
    click.echo(f"{counted(result.scored, 'caption')} scored -> {output}", err=as_json)
    if result.too_long:
        ctx.exit(PARTLY_DONE)


@click.command("make-clips")
@folder_argument("folder")
@click.option("--films", type=click.IntRange(1), default=3, show_default=True, help="Films.")
@click.option(
    "--scenes", type=click.IntRange(1), default=4, show_default=True, help="Clips per film."
)
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Per clip."
)
@overwrite_option
def make_clips(folder: Path, films: int, scenes: int, seconds: float, overwrite: bool) -> None:
    """Write a small synthetic data set: made-up clips and their annotations.

    Nothing in it was filmed or annotated. Use it to try the software without a film.

    \b
    Examples:
      obygaze features make-clips demo/data
      obygaze features make-clips demo/data --films 12 --scenes 8
    """
    from obygaze_features.video.synthetic import write_synthetic_dataset

    annotations = write_synthetic_dataset(
        folder, films=films, scenes=scenes, seconds=seconds, overwrite=overwrite
    )
    click.echo(f"{films * scenes} SYNTHETIC clips in {folder / 'videos'}")
    click.echo(f"their synthetic annotations in {annotations}")


for command in (
    backbones,
    prefetch,
    probe,
    extract,
    thumbnails,
    saliency,
    caption_scores,
    make_clips,
    make_weights,
):
    features.add_command(command)
