"""The commands of `obygaze features`, which turn clips, images and texts into feature stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import obygaze_features as of
from obygaze_features.commands._shared import device_option, echo_failures
from obygaze_features.commands.extract import extract
from obygaze_features.common.cli import (
    PATH,
    echo,
    exit_if,
    film_option,
    folder_argument,
    json_option,
    levels_option,
    output_option,
    output_options,
    overwrite_option,
    show,
)
from obygaze_features.common.names import unknown_name
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_features.backbones import KnownCheckpoint


@click.group()
def features() -> None:
    """Turn clips, images and texts into feature stores.

    \b
    Example:
      obygaze features extract manifests/mine --videos films --backbone xclip-kinetics -o stores
    """


features.add_command(extract)


@features.command()
@folder_argument("manifest")
@film_option("Only clips of these films.")
@click.option(
    "--videos",
    type=PATH,
    required=True,
    help="The folder of the clips, or of the films that contain them.",
)
@output_option("The folder for the pictures, ID.jpg for each clip.")
@click.option(
    "--page",
    type=PATH,
    help="Also write a page to label the clips with the keyboard. New pictures are larger.",
)
@levels_option
@overwrite_option
@json_option
def thumbnails(
    manifest: Path,
    films: tuple[str, ...] | None,
    videos: Path,
    output: Path,
    page: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a small picture of each clip's middle frame.

    The pictures are for your own report: they come from films and must not be shared. Existing
    pictures are kept, so the same command resumes after an interruption. Clips that cannot be read
    are listed, and the exit code is then 3.

    PAGE.html needs no network. It shows one clip after another; press 1, 2, 3 ... for your levels,
    and save labels.csv for `obygaze manifests label`. --levels and --overwrite are for the page.

    \b
    Examples:
      obygaze features thumbnails manifests/mine --videos films -o thumbnails
      obygaze features thumbnails manifests/mine --videos films -o pictures --page labels.html \\
          --levels none,some,much
    """
    from obygaze_features.extraction import Options
    from obygaze_features.extraction.thumbnails import WARNING, write_label_page, write_thumbnails

    loaded = of.Manifest.load(manifest)
    selected = Options(films=films)
    result = write_thumbnails(loaded, videos, output, selected, width=480 if page else 160)
    if page:
        write_label_page(loaded, output, page, selected, **options)
    failed = result["failed"]
    echo_failures(failed)
    if not as_json:
        result |= {"failed": [*failed]}
    show(result, as_json)
    echo(WARNING, fg="yellow", err=True)
    exit_if(failed)


@features.command()
@folder_argument("manifest")
@click.option("--images", type=PATH, required=True, help="The folder of the images.")
@click.option(
    "--backbone",
    metavar="[NAME=]PATH",
    required=True,
    help="A model of the family clip, siglip or xclip: a name from `obygaze features backbones`, "
    "or your own checkpoint.",
)
@click.option(
    "--text",
    required=True,
    help="The text to look for; {COLUMN} is replaced by each image's value in that column.",
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="Average over each value of a column, such as film.  [default: over all images]",
)
@output_options("The folder for the maps.")
@device_option
@json_option
def saliency(
    manifest: Path,
    images: Path,
    backbone: str,
    device: str | None,
    output: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Draw where a network finds a text in images.

    Computes Grad-CAM for the cosine similarity of image and text, at the first layer norm of the
    vision tower's last layer. OUTPUT gets maps.npy and images.csv (a map and a row per image, in
    the same order), groups.csv (the means), and groups/ and images/ (the maps over the pictures).
    For the means, each image's map is divided by its highest value; all groups are drawn on the
    same scale.

    Images that cannot be read are listed, and the exit code is then 3.

    \b
    Example:
      obygaze features saliency manifests/women --images images --text "a photo of a person" \\
          --backbone clip-vit-base-patch32 -o saliency
    """
    from obygaze_features.saliency.maps import load_grad_cam_model, write_saliency

    model = load_grad_cam_model(backbone, device)
    result = write_saliency(of.Manifest.load(manifest), images, model, folder=output, **options)
    show(result, as_json)
    if not as_json:
        echo(f"-> {output}")
    exit_if(result["failed"])


@features.command("caption-scores")
@folder_argument("table")
@output_options("The CSV file of scores; a JSON file of the same name records the models.")
@click.option(
    "--language-model",
    metavar="MODEL",
    default="gpt2",
    help="gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2, OWNER/NAME on the Hugging Face Hub, "
    "or a folder.",
)
@click.option(
    "--sentence-encoder",
    metavar="MODEL",
    default="roberta-large-nli-stsb-mean-tokens",
    help="A sentence-transformers model (like all-mpnet-base-v2), OWNER/NAME on the Hugging Face "
    "Hub, or a folder.",
)
@click.option(
    "--variants",
    is_flag=True,
    help="Score each caption with 'man' and 'woman' in place of [MASK] or the noun for a person.",
)
@device_option
@json_option
def caption_scores(
    table: Path,
    output: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Score captions with a language model and a sentence encoder.

    The scores are input for `obygaze bias gender-score`. TABLE is a CSV file with the columns id,
    caption and object (the label of the object in the picture); other columns are kept, such as
    confidence (the classifier's confidence in that label), which gender-score needs. OUTPUT also
    has the columns probability (the mean probability of the caption's tokens) and similarity (of
    the caption to the object).

    With --variants, each caption is scored with 'man' and with 'woman' in place of [MASK] or its
    noun for a person, in columns that end in _man and _woman; captions where this is not possible
    are listed and left out. The captions themselves are scored only if none of them has [MASK].

    Captions that are too long for the language model are listed and left out; the exit code is then
    3.

    \b
    Example:
      obygaze features caption-scores captions.csv -o scores.csv
    """
    from obygaze_features.language.caption_scores import score_captions

    result = score_captions(table, output, **options)
    show(result, as_json)
    if not as_json:
        echo(f"-> {output}")
    exit_if(result["too_long"])


@features.command()
@folder_argument("folder")
@click.option("--count", "films", type=click.IntRange(1), default=3, help="The number of films.")
@click.option("--scenes", type=click.IntRange(1), default=4, help="The number of clips per film.")
@click.option("--seconds", type=click.FloatRange(0.1), default=2.0, help="Seconds per clip.")
@click.option(
    "--title",
    "titles",
    multiple=True,
    help="Make a film with this title, in one file, instead of --count films; repeatable.",
)
@overwrite_option
def demo(folder: Path, **options: Any) -> None:
    """Make a small synthetic data set of clips and annotations.

    Everything in it is generated. Use it to try the software without a film, with the backbone
    tiny-xclip, whose weights are random. FOLDER gets videos/ and annotations.csv, a table for
    `obygaze manifests import csv`.

    \b
    Example:
      obygaze features demo demo/data --count 12 --scenes 8
    """
    from obygaze_features.video.synthetic import write_synthetic_dataset

    annotations = write_synthetic_dataset(folder, **options)
    echo(f"SYNTHETIC clips -> {folder / 'videos'}\ntheir annotations -> {annotations}")


@features.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--download", is_flag=True, help="Download the named models, for use offline.")
@json_option
def backbones(names: tuple[str, ...], download: bool, as_json: bool) -> None:
    """List the backbones, or describe those named.

    NAME is a name from the list; with --download, also a model for `obygaze features
    caption-scores`, or OWNER/NAME on the Hugging Face Hub. Other commands also take any other
    checkpoint of a listed family, as NAME=FOLDER or OWNER/NAME, and timm:NAME (timm:NAME@LAYER
    uses the output of a layer). HF_HOME sets the folder of downloads.

    \b
    Example:
      obygaze features backbones vivit
    """
    from obygaze_features.backbones import known_checkpoints
    from obygaze_features.backbones.checkpoints import resolve, resolve_backbone
    from obygaze_features.language.models import TEXT_MODELS

    known = known_checkpoints()
    if download:
        for name in names:
            if name in TEXT_MODELS:
                checkpoint = resolve(name, TEXT_MODELS)
            else:
                checkpoint = resolve_backbone(name)
            echo(f"{name}: {checkpoint.path}")
        return
    rows = []
    if not names:
        rows = [_row(checkpoint) for checkpoint in known.values()]
    for name in names:
        if name not in known:
            raise UsageError(unknown_name("backbone", name, known))
        rows.append(_facts(known[name]))
    show(rows[0] if len(rows) == 1 else rows, as_json)


def _row(checkpoint: KnownCheckpoint) -> dict[str, Any]:
    source = checkpoint.repository or "your own file"
    if checkpoint.write:
        source = "made here, no download"
    if checkpoint.package:
        source = checkpoint.package.remedy
    takes = "none, it reads texts"
    if checkpoint.sampling:
        takes = checkpoint.sampling.words
    return {
        "name": checkpoint.name,
        "takes": takes,
        "from": source,
        "licence": checkpoint.credits.get("licence"),
    }


def _facts(checkpoint: KnownCheckpoint) -> dict[str, Any]:
    from obygaze_features.backbones import families

    [family] = [family for family in families() if checkpoint in family.checkpoints]
    return {
        **_row(checkpoint),
        "title": checkpoint.title,
        "family": family.name,
        "embeds_texts": family.embeds_texts,
        **checkpoint.credits,
    }
