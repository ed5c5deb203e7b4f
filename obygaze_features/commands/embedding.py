"""What `obygaze features extract` does with a manifest of images and texts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.text import counted
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_features.extraction import Summary, Wanted
    from obygaze_features.manifests import Manifest

__all__ = ["embed_items"]


def embed_items(
    items: Manifest,
    images: Path | None,
    specs: Sequence[str],
    output: Path,
    *,
    clips_only: Mapping[str, bool],
    preprocessing: str,
    precision: str,
    device: str | None,
    max_gpu_memory: str | None,
    wanted: Wanted,
    batch: int | None,
    workers: int | None,
    max_hours: float | None,
) -> Summary:
    """Load the towers and embed; `clips_only` are options, and whether they were given."""
    from obygaze_features.backbones import load_towers
    from obygaze_features.backbones.devices import limit_gpu_memory
    from obygaze_features.extraction import embed
    from obygaze_features.extraction.embedding import KINDS
    from obygaze_features.extraction.plan import check_items

    begin = time.monotonic()
    check_items(items, KINDS)
    if given := [option for option, is_given in clips_only.items() if is_given]:
        raise UsageError(f"{items.name} has images or texts, and {given[0]} is for clips")
    if "image" in items.items.kinds and images is None:
        raise UsageError(f"{items.name} has images; say in which folder they are: --images FOLDER")
    towers = [load_towers(one, device, mode=preprocessing, precision=precision) for one in specs]
    if max_gpu_memory:
        limit_gpu_memory(towers[0].device, max_gpu_memory)
    told = ", ".join(f"{one.name} ({one.device})" for one in towers)
    some = counted(len(wanted.rows(items)), "item")
    click.echo(f"Embedding {some} of {items.name} with {told}", err=True)
    if max_hours is not None:
        max_hours -= (time.monotonic() - begin) / 3600  # to load them took of it, too
    return embed(
        items, towers, output, images=images or Path(), wanted=wanted, batch=batch,
        workers=workers, max_hours=max_hours,
    )  # fmt: skip
