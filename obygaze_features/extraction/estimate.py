"""Before the slot: what an extraction would do, how big it gets, and how long it may take."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.backbones import Backbone
from obygaze_features.common.text import counted, duration, size
from obygaze_features.extraction.clips import Clip, ClipReader
from obygaze_features.extraction.decoders import PATIENCE, Decoder, Decoders, default_workers
from obygaze_features.extraction.forward import Forward
from obygaze_features.extraction.plan import (
    Wanted,
    check_items,
    check_media,
    recipe_of,
    store_paths,
)
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.media import locate
from obygaze_features.store.writer import open_to_resume

__all__ = ["Estimate", "PlannedStore", "describe_estimate", "estimate"]

SAMPLE = 4
"""Clips that are tried."""


@dataclass(frozen=True)
class PlannedStore:
    """A store as it would become.

    Parameters
    ----------
    path
        Where.
    is_new
        Whether it would be made, or gone on with.
    to_do
        Rows that would be worked on.
    bytes
        What these rows take.
    """

    path: Path
    is_new: bool
    to_do: int
    bytes: int


@dataclass(frozen=True)
class Estimate:
    """What an extraction would do.

    Parameters
    ----------
    stores
        By name.
    clips
        How many clips some store lacks.
    missing
        Those of them that have no file, or more than one.
    free
        Bytes that are free where the stores would be.
    tried
        Id -> why it failed, for the clips that were tried; empty for those that worked.
    decode, device
        Seconds a clip: in one decoding process, and for all backbones together on the device.
    workers
        Decoding processes.
    seconds
        How long it may take; None where no clip could be tried.
    """

    stores: dict[str, PlannedStore]
    clips: int
    missing: list[str]
    free: int
    tried: dict[str, str]
    decode: float
    device: float
    workers: int
    seconds: float | None

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        stores = {name: {**asdict(one), "path": str(one.path)} for name, one in self.stores.items()}
        return {**asdict(self), "stores": stores}


def estimate(
    manifest: Manifest,
    videos: Path,
    backbones: Sequence[Backbone],
    output: Path,
    *,
    wanted: Wanted,
    batch: int | None = None,
    workers: int | None = None,
    patience: float = PATIENCE,
    cache: Path | None = None,
) -> Estimate:
    """Look at the stores and try a few clips; the arguments are those of `extract`."""
    check_items(manifest)
    rows = wanted.rows(manifest)
    check_media(manifest, rows, videos)
    stores, lacking = {}, set[int]()
    paths = store_paths(backbones, output)
    for backbone in backbones:
        path, recipe, todo = paths[backbone.name], recipe_of(backbone), rows
        if path.exists():
            todo = wanted.of(open_to_resume(path, manifest, recipe), rows)
        a_row = sum(one.bytes_a_row for one in recipe.arrays)
        stores[backbone.name] = PlannedStore(path, not path.exists(), len(todo), a_row * len(todo))
        lacking |= set(todo.tolist())
    items = [manifest.items[row] for row in sorted(lacking)]
    located = locate(items, videos)
    found = [item for item in items if item.id in located.found]
    places = np.unique(np.linspace(0, len(found) - 1, SAMPLE).astype(int)) % max(1, len(found))
    sample = [found[place] for place in places.tolist()] if found else []
    forwards = [Forward(one, batch) for one in backbones]
    tried, decode = _try(sample, ClipReader(videos, backbones, cache), forwards, patience)
    worked = list(tried.values()).count("")
    device = sum(one.seconds for one in forwards) / max(1, worked)
    count = workers or default_workers()
    return Estimate(
        stores=stores,
        clips=len(items),
        missing=[*located.missing, *located.ambiguous],
        free=shutil.disk_usage(
            next(one for one in (output, *output.absolute().parents) if one.exists())
        ).free,
        tried=tried,
        decode=decode / max(1, worked),
        device=device,
        workers=count,
        seconds=len(found) * max(decode / worked / count, device) if worked else None,
    )


def _try(
    items: Sequence[Item], reader: ClipReader, forwards: Sequence[Forward], patience: float
) -> tuple[dict[str, str], float]:
    """Why each of some clips failed, if it did, and the time that it took to read the others."""
    names = [one.backbone.name for one in forwards]

    def read(decoder: Decoder, item: Item) -> tuple[Any, float]:
        begin = time.perf_counter()
        return reader.read(decoder, item, names), time.perf_counter() - begin

    reasons, decode, readable = {}, 0.0, list[Clip]()
    # The first one pays for what is loaded on first use: it is tried twice, and counted once.
    tasks = [*items[:1], *items]
    with contextlib.closing(Decoders(1, patience=patience).map(read, tasks, ahead=1)) as clips:
        for place, (item, (clip, seconds)) in enumerate(clips):
            reasons[item.id] = "" if isinstance(clip, Clip) else clip.reason
            if isinstance(clip, Clip):
                readable.append(clip)
                decode += seconds if place else 0
    for one in forwards if readable else ():
        pixels = [clip.pixels[one.backbone.name] for clip in readable]
        one.find_batch()
        one(pixels[:1])
        one.seconds = 0.0
        one(pixels[1:])
    return reasons, decode


def describe_estimate(found: Estimate) -> str:
    """For people."""
    lines = []
    for name, one in found.stores.items():
        what = "new" if one.is_new else "gone on with"
        lines.append(
            f"{name}: {counted(one.to_do, 'clip')}, {size(one.bytes)} in {one.path} ({what})"
        )
    needed = sum(one.bytes for one in found.stores.values())
    enough = "" if needed < found.free else ", which is TOO LITTLE"
    lines.append(f"disk: {size(found.free)} free{enough}")
    if found.missing:
        names = ", ".join(found.missing[:5]) + (" ..." if len(found.missing) > 5 else "")
        lines.append(f"missing, or found twice: {counted(len(found.missing), 'clip')} ({names})")
    lines += [f"{one} failed: {why}" for one, why in found.tried.items() if why]
    if found.seconds is not None:
        bound = "device" if found.device * found.workers > found.decode else "decode"
        worked = list(found.tried.values()).count("")
        processes = counted(found.workers, "process", "processes")
        tried = f"{worked} of {counted(len(found.tried), 'clip')} tried"
        lines.append(
            f"time: about {duration(found.seconds)}, by {tried}: "
            f"{found.decode:.2f} s decoding in each of {processes}, {found.device:.2f} s on the "
            f"device, so bound by {bound}"
        )
    elif found.clips:
        lines.append("time: not known, for no clip could be tried")
    return "\n".join(lines)
