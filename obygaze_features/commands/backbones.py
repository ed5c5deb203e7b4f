"""`obygaze features backbones`, `prefetch` and `make-weights`: where backbones come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.commands import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)

if TYPE_CHECKING:
    from obygaze_features.backbones.backbone import Card

__all__ = ["backbones", "make_weights", "prefetch"]


@click.command()
@json_option
def backbones(as_json: bool) -> None:
    """List the backbones: where they come from, and what can be kept of a clip.

    Any other X-CLIP or ViViT works too: as NAME=FOLDER, or as OWNER/NAME on the Hugging Face hub.

    \b
    Examples:
      obygaze features backbones
      obygaze features backbones --json
    """
    from obygaze_features.backbones import CARDS

    cards = CARDS.values()
    if as_json:
        echo_json({card.name: _as_json(card) for card in cards})
        return
    width = max(map(len, CARDS))
    click.echo(f"{'name':<{width}} frames    a clip  what")
    for card in cards:
        size = f"{card.bytes_a_clip:,} B"
        click.echo(f"{card.name:<{width}} {card.sampling.frames:>6}{size:>10}  {card.title}")
    click.echo("\nWhat can be kept of a clip, with the bytes it takes (tokens only on request)")
    for group in _alike(list(cards)):
        click.echo(f"\n{', '.join(card.name for card in group)}")
        click.echo(f"  frames: {group[0].sampling.words}")
        for one in group[0].arrays:
            shape = " x ".join(map(str, one.shape))
            click.echo(
                f"  {one.name:<16}{shape:>10} {one.dtype:<8}{one.bytes_a_row:>10,} B  {one.meaning}"
            )
    click.echo("\nWhere they come from")
    for card in cards:
        if card.repository:
            click.echo(f"  {card.name:<{width}} https://huggingface.co/{card.repository}")
    made = ", ".join(card.name for card in cards if card.write)
    click.echo(f"  {made}:\n    made here at first use, without a download")
    for card in cards:
        if card.obtain:
            click.echo(f"  {card.name}:\n    {card.obtain}")


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def prefetch(names: tuple[str, ...]) -> None:
    """Fetch backbones ahead of a machine without network, and say where they lie.

    A NAME is one that `obygaze features backbones` lists, or OWNER/NAME on the Hugging Face hub.
    What is there already is not fetched again. HF_HOME says where the hub's cache is.

    \b
    Examples:
      obygaze features prefetch xclip-kinetics vivit
      HF_HOME=/scratch/hub obygaze features prefetch microsoft/xclip-base-patch32
    """
    from obygaze_features.backbones import prefetch as fetch

    for name in names:
        click.echo(f"{name}: {fetch(name)}")


@click.command("make-weights")
@click.argument("name")
@folder_argument("folder")
@overwrite_option
def make_weights(name: str, folder: Path, overwrite: bool) -> None:
    """Write a checkpoint of random weights, trained on nothing.

    NAME is tiny-xclip, tiny-vivit or tiny-xclip-lsmdc; or, in the size of the published ones,
    random-xclip, random-vivit or random-xclip-lsmdc. They serve to try the software without a
    download, and to measure its speed. Features made with them mean nothing.

    \b
    Examples:
      obygaze features make-weights tiny-xclip demo/weights
    """
    from obygaze_features.backbones.random_weights import write_weights

    write_weights(name, folder, overwrite=overwrite)
    click.echo(f"SYNTHETIC {name} with random weights in {folder}")


def _alike(cards: list[Card]) -> list[list[Card]]:
    """Cards that sample alike and have the same arrays, together."""
    groups: dict[object, list[Card]] = {}
    for card in cards:
        groups.setdefault((card.sampling, card.arrays), []).append(card)
    return list(groups.values())


def _as_json(card: Card) -> dict[str, object]:
    return {
        "title": card.title,
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
                "bytes": one.bytes_a_row,
                "meaning": one.meaning,
            }
            for one in card.arrays
        },
    }
