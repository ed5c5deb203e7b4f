"""`obygaze features backbones`, `prefetch` and `make-weights`: where backbones come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)

if TYPE_CHECKING:
    from obygaze_features.backbones.backbone import Card, Family
    from obygaze_features.store import ArraySpec

__all__ = ["backbones", "make_weights", "prefetch"]


@click.command()
@json_option
def backbones(as_json: bool) -> None:
    """List the backbones: where they come from, and what can be kept of a clip.

    Of images and texts `native` is kept, by the families that say so. Any other checkpoint of
    these families works too: as NAME=FOLDER, or as OWNER/NAME on the Hugging Face hub.

    \b
    Examples:
      obygaze features backbones
      obygaze features backbones --json
    """
    from obygaze_features.backbones.backbone import ON_REQUEST
    from obygaze_features.backbones.registry import CARDS, FAMILIES

    if as_json:
        echo_json(
            {card.name: _as_json(card, family) for family in FAMILIES for card in family.cards}
        )
        return
    width = max(map(len, CARDS))
    click.echo(f"{'name':<{width}}  sees  keeps frames    a clip  from")
    for card in CARDS.values():
        shape = next(_times(one) for one in card.arrays if one.name == "frames")
        click.echo(
            f"{card.name:<{width}}  {card.sampling.frames:>4}  {shape:>12}"
            f"  {card.bytes_a_clip:>6,} B  {_source(card)}"
        )
    click.echo("\nThe arrays of each family, by its first; the others differ in frames and width.")
    for family in FAMILIES:
        card = family.cards[0]
        click.echo(f"\n{card.name}: {card.title}\n  frames seen: {card.sampling.words}")
        if family.towers:
            click.echo("  also takes single images, and texts")
        for one in card.arrays:
            size = f"{one.row_bytes:,} B"
            asked = " (only on request)" if one.name in ON_REQUEST else ""
            click.echo(
                f"  {one.name:<16}{_times(one):>10} {one.dtype:<8}{size:>12}  {one.meaning}{asked}"
            )
        if card.obtain:
            click.echo(f"  {card.obtain}")


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def prefetch(names: tuple[str, ...]) -> None:
    """Fetch backbones ahead of a machine without network, and say where they lie.

    A NAME is one that `obygaze features backbones` lists, one that `obygaze features
    caption-scores` takes, or OWNER/NAME on the Hugging Face hub. What is there already is not
    fetched again. HF_HOME says where the hub's cache is.

    \b
    Examples:
      obygaze features prefetch xclip-kinetics vivit
      obygaze features prefetch gpt2 roberta-large-nli-stsb-mean-tokens
      HF_HOME=/scratch/hub obygaze features prefetch microsoft/xclip-base-patch32
    """
    from obygaze_features.backbones import prefetch as fetch
    from obygaze_features.language.finding import prefetch as fetch_for_texts
    from obygaze_features.language.finding import reads_texts

    for name in names:
        click.echo(f"Fetching {name}", err=True)
        click.echo(f"{name}: {fetch_for_texts(name) if reads_texts(name) else fetch(name)}")


@click.command("make-weights")
@click.argument("name")
@folder_argument("folder")
@overwrite_option
def make_weights(name: str, folder: Path, overwrite: bool) -> None:
    """Write a checkpoint of random weights, trained on nothing.

    NAME is tiny- or, in the size of a published one, random- and then xclip, vivit, xclip-lsmdc,
    clip, open-clip, siglip or videomae. They serve to try the software without a download, and to
    measure its speed. Features made with them mean nothing.

    \b
    Examples:
      obygaze features make-weights tiny-xclip demo/weights
    """
    from obygaze_features.backbones.random_weights import write_weights

    write_weights(name, folder, overwrite=overwrite)
    click.echo(f"SYNTHETIC {name} with random weights in {folder}")


def _times(array: ArraySpec) -> str:
    return " x ".join(map(str, array.shape))


def _source(card: Card) -> str:
    if card.write:
        return "made here, no download"
    return card.repository or f"a file of yours, see below: {card.name}=FILE"


def _as_json(card: Card, family: Family) -> dict[str, object]:
    return {
        "title": card.title,
        "images_and_texts": family.towers is not None,
        "repository": card.repository,
        "needs_download": card.write is None,
        "obtain": card.obtain or None,
        "frames": card.sampling.frames,
        "sampling": card.sampling.words,
        "bytes_a_clip": card.bytes_a_clip,
        "arrays": {
            one.name: {
                "shape": one.shape,
                "dtype": one.dtype,
                "bytes": one.row_bytes,
                "meaning": one.meaning,
            }
            for one in card.arrays
        },
    }
