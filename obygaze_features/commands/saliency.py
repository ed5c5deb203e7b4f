"""`obygaze features saliency`: where in images a network finds a text."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from obygaze_features.commands._shared import MAX_FAILURES_SHOWN, PARTLY_DONE
from obygaze_features.common.cli import (
    PATH,
    echo_json,
    folder_argument,
    json_option,
    output_options,
)
from obygaze_features.common.text import counted, join_some


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
    layer. OUTPUT gets maps.npy and images.csv (a map and a row an image, in the same order),
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
    for item, reason in list(result.failed.items())[: 0 if as_json else MAX_FAILURES_SHOWN]:
        click.echo(f"  {item}: {reason}", err=True)
    failed = len(result.failed)
    if failed > MAX_FAILURES_SHOWN:
        click.echo(f"  and {failed - MAX_FAILURES_SHOWN} more (--json names all)", err=True)
    if result.cut:
        texts = counted(len(result.cut), "text")
        click.echo(f"{texts} longer than {backbone} reads; the rest was cut off", err=True)
    if result.ungrouped:
        click.echo(
            f"{counted(len(result.ungrouped), 'image')} without a group, because {by} is empty: "
            f"{join_some(result.ungrouped, MAX_FAILURES_SHOWN)}",
            err=True,
        )
    maps, groups = sum(result.groups.values()), counted(len(result.groups), "group")
    without = f", {counted(failed, 'image')} without" if failed else ""
    click.echo(f"{counted(maps, 'map')} in {groups}{without} -> {output}", err=as_json)
    if failed:
        ctx.exit(PARTLY_DONE)
