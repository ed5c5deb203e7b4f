"""The commands of `obygaze features`, which turn clips, images and texts into feature stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.commands._shared import VIDEOS_HELP, device_option, echo_failures
from obygaze_features.commands.extract import extract
from obygaze_features.common.cli import (
    PATH,
    Seconds,
    echo,
    echo_json,
    exit_if,
    film_option,
    folder_argument,
    json_option,
    output_option,
    output_options,
    overwrite_option,
    show,
)
from obygaze_features.common.printer import align
from obygaze_features.common.text import counted
from obygaze_features.errors import UsageError, VideoError

if TYPE_CHECKING:
    from obygaze_features.backbones import Family, KnownCheckpoint
    from obygaze_features.store import ArraySpec


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
@click.option("--videos", type=PATH, required=True, help=VIDEOS_HELP)
@output_option("The folder for the pictures, ID.jpg for each clip.")
@json_option
def thumbnails(
    manifest: Path, films: tuple[str, ...], videos: Path, output: Path, as_json: bool
) -> None:
    """Write a small picture of each clip's middle frame.

    The pictures are for your own report: they come from films and must not be shared. Existing
    pictures are kept, so the same command resumes after an interruption. Clips that cannot be read
    are listed, and the exit code is then 3.

    \b
    Examples:
      obygaze features thumbnails manifests/mine --videos films -o thumbnails
      obygaze features thumbnails manifests/mine --videos films -o thumbnails --film tt0108160
    """
    from obygaze_features.extraction import Options
    from obygaze_features.extraction.thumbnails import WARNING, write_thumbnails
    from obygaze_features.manifests import Manifest

    result = write_thumbnails(Manifest.load(manifest), videos, output, Options(films=films))
    written, there, reasons = result["made"], result["there"], result["failed"]
    if as_json:
        echo_json(result)
    else:
        echo_failures(reasons, all_in="--json lists all")
    if reasons and not written and not there:
        raise VideoError(f"could not make any pictures ({counted(len(reasons), 'clip')} failed)")
    before = f", {there:,} kept" if there else ""
    without = f", {counted(len(reasons), 'clip')} failed" if reasons else ""
    echo(f"{counted(written, 'picture')} made{before}{without} -> {output}", err=as_json)
    echo(WARNING, fg="yellow", err=True)
    exit_if(reasons)


@features.command()
@folder_argument("manifest")
@click.option("--images", type=PATH, required=True, help="The folder of the images.")
@click.option(
    "--backbone",
    metavar="[NAME=]PATH",
    required=True,
    help="A CLIP, SigLIP or X-CLIP model: a name from `obygaze features backbones`, "
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
    help="Average over each group of images: film, or another column.  [default: over all]",
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
    vision tower's last layer. OUTPUT gets maps.npy and images.csv (one map and one row per image,
    in the same order), groups.csv (the means), groups/ and images/ (the maps over the pictures).
    For the means, each image's map is divided by its highest value; all groups are drawn on the
    same scale.

    Images that cannot be read are listed, and the exit code is then 3.

    \b
    Examples:
      obygaze features saliency manifests/women --images images --text "a photo of a person" \\
          --backbone clip-vit-base-patch32 -o saliency
      obygaze features saliency manifests/women --images images --backbone xclip-kinetics \\
          --text "a photo of an {emotion} person" --by condition -o saliency
    """
    from obygaze_features.manifests import Manifest
    from obygaze_features.saliency.maps import load_grad_cam_model, write_saliency

    model = load_grad_cam_model(backbone, device)
    result = write_saliency(Manifest.load(manifest), images, model, folder=output, **options)
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
    help="A sentence-transformers model, such as all-mpnet-base-v2, OWNER/NAME on the Hugging Face "
    "Hub, or a folder.",
)
@click.option(
    "--variants",
    is_flag=True,
    help="Also score each caption with 'man' and 'woman' instead of [MASK] or its gendered word.",
)
@device_option
@json_option
def caption_scores(
    table: Path,
    output: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Score captions by a language model and sentence encoder.

    The scores are input for `obygaze bias gender-score`. TABLE is a CSV file with the columns id,
    caption, object (the label of the object in the picture) and confidence (the classifier's
    confidence in that label); other columns are kept. OUTPUT has two more columns: probability (the
    mean probability of the caption's tokens) and similarity (of the caption to the object).
    With --variants, each caption is also scored with 'man' and with 'woman' in place of [MASK] or
    its noun for a person; captions where this is not possible are listed and left out.

    Captions that are too long for the language model are listed and left out; the exit code is then
    3.

    \b
    Examples:
      obygaze features caption-scores captions.csv -o scores.csv
      obygaze features caption-scores captions.csv -o scores.csv --variants \\
          --language-model distilgpt2 --sentence-encoder all-mpnet-base-v2
    """
    from obygaze_features.language.caption_scores import score_captions

    result = score_captions(table, output, **options)
    show(result, as_json)
    if not as_json:
        echo(f"-> {output}")
    exit_if(result["too_long"])


@features.command("make-clips")
@folder_argument("folder")
@click.option("--count", "films", type=click.IntRange(1), default=3, help="The number of films.")
@click.option("--scenes", type=click.IntRange(1), default=4, help="Clips per film.")
@click.option("--seconds", type=Seconds(0.1), default=2.0, help="Length of each clip.")
@click.option("--title", "titles", multiple=True, help="Make a film with this title, in one file.")
@overwrite_option
def make_clips(folder: Path, **options: Any) -> None:
    """Write a small synthetic data set of clips and annotations.

    Everything in it is generated. Use it to try the software without a film.

    \b
    Examples:
      obygaze features make-clips demo/data
      obygaze features make-clips demo/data --count 12 --scenes 8
      obygaze features make-clips demo/data --title "Night Bus" --title "Two Rivers"
    """
    from obygaze_features.video.synthetic import write_synthetic_dataset

    annotations = write_synthetic_dataset(folder, **options)
    clips = (len(options["titles"]) or options["films"]) * options["scenes"]
    echo(f"{clips} SYNTHETIC clips in {folder / 'videos'}")
    echo(f"synthetic annotations of these clips in {annotations}")


@features.command()
@json_option
def backbones(as_json: bool) -> None:
    """List the backbones with their origins and arrays.

    Families that also accept images or texts embed them as the array `native`. Any other checkpoint
    of a listed family works, too, as NAME=FOLDER or as OWNER/NAME on the Hugging Face Hub.

    \b
    Examples:
      obygaze features backbones
      obygaze features backbones --json
    """
    if as_json:
        echo_json(_cards())
    else:
        echo("\n\n".join(_describe_backbones()))


@features.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def prefetch(names: tuple[str, ...]) -> None:
    """Download backbones for a machine without network access.

    NAME is a backbone from `obygaze features backbones`, a model for `obygaze features
    caption-scores`, or OWNER/NAME on the Hugging Face Hub. The command prints the folder of each
    model. Cached files are not downloaded again; HF_HOME sets the Hub's cache.

    \b
    Examples:
      obygaze features prefetch xclip-kinetics vivit
      obygaze features prefetch gpt2 roberta-large-nli-stsb-mean-tokens
      HF_HOME=/scratch/hub obygaze features prefetch microsoft/xclip-base-patch32
    """
    from obygaze_features.backbones.checkpoints import prefetch as prefetch_backbone
    from obygaze_features.language.models import TEXT_MODELS
    from obygaze_features.language.models import prefetch as prefetch_text_model

    for name in names:
        echo(f"Fetching {name}", err=True)
        path = prefetch_text_model(name) if name in TEXT_MODELS else prefetch_backbone(name)
        echo(f"{name}: {path}")


@features.command("make-weights")
@click.argument("name")
@folder_argument("folder")
@overwrite_option
def make_weights(name: str, folder: Path, overwrite: bool) -> None:
    """Write a checkpoint with random, untrained weights.

    NAME is tiny-xclip, tiny-vivit, tiny-clap or tiny-xclip-lsmdc. Use these checkpoints to try the
    software without a download. Features made with them mean nothing.

    \b
    Examples:
      obygaze features make-weights tiny-xclip demo/weights
    """
    from obygaze_features.backbones import known_checkpoints
    from obygaze_features.backbones.weights import write_random_weights

    writers = {item.name: item.write for item in known_checkpoints().values() if item.write}
    if name not in writers:
        raise UsageError(f"no random weights are named {name!r}; choose from {', '.join(writers)}")
    write_random_weights(writers[name], folder, overwrite=overwrite)
    echo(f"SYNTHETIC {name} with random weights in {folder}")


def _describe_backbones() -> Iterator[str]:
    """Yield a table of checkpoints, and each family's arrays."""
    from obygaze_features.backbones import families, known_checkpoints

    header = ["name", "sees or hears", "from", "keeps frames", "per clip"]
    rows = [
        [item.name, _takes(item), _source(item), _frames(item), f"{item.bytes_per_clip:,} B"]
        for item in known_checkpoints().values()
    ]
    yield align(header, rows, left=3)
    yield "Arrays of each family's first checkpoint (its other checkpoints differ in shape):"
    for family in families():
        yield _describe_family(family)
    yield "From timm: timm:NAME (NAME.random: untrained; NAME@LAYER: layer)"


def _describe_family(family: Family) -> str:
    checkpoint = family.checkpoints[0]
    lines = [f"{checkpoint.name}: {checkpoint.title}", f"  takes: {checkpoint.sampling.words}"]
    if others := [kind for kind, is_taken in _also_takes(family).items() if is_taken]:
        lines.append(f"  also takes {' and '.join(others)}")
    for array in checkpoint.arrays:
        size, note = f"{array.row_bytes:,} B", " (only on request)" if array.on_request else ""
        lines.append(
            f"  {array.name:<16}{_shape(array):>10} {array.dtype:<8}{size:>12}"
            f"  {array.meaning}{note}"
        )
    stated = "; ".join(f"{key} {text}" for key, text in checkpoint.credits.items())
    if about := checkpoint.how_to_get or stated:
        lines.append(f"  {about}")
    return "\n".join(lines)


def _cards() -> dict[str, object]:
    """Return the checkpoints as JSON values, by name."""
    from obygaze_features.backbones import families

    return {
        checkpoint.name: _as_json(checkpoint, family)
        for family in families()
        for checkpoint in family.checkpoints
    }


def _frames(checkpoint: KnownCheckpoint) -> str:
    return next((_shape(spec) for spec in checkpoint.arrays if spec.name == "frames"), "")


def _shape(array: ArraySpec) -> str:
    return " x ".join(map(str, array.shape))


def _takes(checkpoint: KnownCheckpoint) -> str:
    if window := _window_s(checkpoint):
        return f"{window:g} s of sound"
    return f"{checkpoint.sampling.frames} frames" if checkpoint.sampling.frames else "texts"


def _window_s(checkpoint: KnownCheckpoint) -> float | None:
    """Return the seconds of sound per window; None for a backbone that sees or reads."""
    return getattr(checkpoint.sampling, "window", None)


def _also_takes(family: Family) -> dict[str, bool]:
    hears = any(checkpoint.hears for checkpoint in family.checkpoints)
    images = not hears and (family.embeds_texts or family.embeds_images)
    return {"images": images, "texts": family.embeds_texts}


def _source(checkpoint: KnownCheckpoint) -> str:
    if checkpoint.write:
        return "made here, no download"
    return checkpoint.repository or f"your own file, see below: {checkpoint.name}=FILE"


def _as_json(checkpoint: KnownCheckpoint, family: Family) -> dict[str, object]:
    return {
        "title": checkpoint.title,
        "images_and_texts": family.embeds_texts and not checkpoint.hears,
        **_also_takes(family),
        "window_s": _window_s(checkpoint),
        "repository": checkpoint.repository,
        "needs_download": checkpoint.write is None,
        "obtain": checkpoint.how_to_get or None,
        **checkpoint.credits,
        "frames": checkpoint.sampling.frames,
        "sampling": checkpoint.sampling.words,
        "bytes_a_clip": checkpoint.bytes_per_clip,
        "arrays": {
            array.name: {
                "shape": array.shape,
                "dtype": array.dtype,
                "bytes": array.row_bytes,
                "meaning": array.meaning,
            }
            for array in checkpoint.arrays
        },
    }
