"""The processes of a Ray cluster: some read clips, others hold the backbones.

They are plain classes; `ray` makes actors of them. A process that finds its machine unlike the one
where the command was typed says so, and the run ends: what it made would not be what was asked.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import limit_gpu_share
from obygaze_features.errors import BackboneError, ClusterError, VideoError
from obygaze_features.extraction.clips import Clip, ClipReader
from obygaze_features.extraction.decoders import Decoder
from obygaze_features.extraction.forward import Forward
from obygaze_features.extraction.plan import recipe_of
from obygaze_features.manifests import Item
from obygaze_features.store import Failed
from obygaze_features.store.writer import recipe_differences

__all__ = ["Computed", "Computing", "Load", "Pixels", "Reading", "comparable"]

Load = Callable[[str], Backbone]
"""Loads a backbone on a device of the machine where it is called."""
Pixels = Mapping[str, NDArray[Any]]
"""A clip's frames, resized, for each backbone that wants them."""


@dataclass(frozen=True)
class Computed:
    """What came of a block's clips: for each backbone a row of arrays a clip."""

    rows: dict[str, list[dict[str, NDArray[Any]]]]
    batches: dict[str, int]
    seconds: float


class Reading:
    """Reads clips, each frame resized on the CPU before it travels."""

    def __init__(
        self, videos: Path, backbones: Sequence[Backbone], patience: float, cache: Path | None
    ) -> None:
        self._videos, self._decoder = videos, Decoder(patience)
        self._backbones, self._cache = backbones, cache

    def begin(self, software: str) -> None:
        """Raise if this machine cannot read what the others do."""
        _check_software(software)
        if not self._videos.is_dir():
            raise VideoError(
                f"the machine {platform.node()} has no folder {self._videos}; every machine of "
                "the cluster has to see the films under the same path"
            )
        self._reader = ClipReader(self._videos, self._backbones, self._cache)

    def read(self, item: Item, names: Sequence[str]) -> tuple[Clip | Failed, Pixels | None]:
        """A clip without its pixels, and these apart: only who computes gets them."""
        clip = self._reader.read(self._decoder, item, names)
        if isinstance(clip, Failed):
            return clip, None
        return replace(clip, pixels={}), {name: one.numpy() for name, one in clip.pixels.items()}


class Computing:
    """Holds the backbones on one device."""

    def __init__(
        self, loads: Sequence[Load], device: str, share: float, batch: int | None, folder: Path
    ) -> None:
        self._loads, self._device, self._share = loads, device, share
        self._batch, self._folder = batch, folder

    def begin(self, software: str, recipes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Load the backbones; gives where each computes."""
        _check_software(software)
        # Checkpoints are named from where the command was typed.
        with contextlib.suppress(OSError):
            os.chdir(self._folder)
        backbones = [load(self._device) for load in self._loads]
        if self._device.startswith("cuda") and self._share < 1:
            limit_gpu_share(self._device, self._share)
        for one in backbones:
            if odd := recipe_differences(recipes[one.name], comparable(one)):
                raise BackboneError(
                    f"the machine {platform.node()} has another {one.name}: with other "
                    f"{' and other '.join(odd)}"
                )
        self._forwards = {one.name: Forward(one, self._batch) for one in backbones}
        return {one.name: one.device for one in backbones}

    def compute(self, wanted: Mapping[str, Sequence[Any]]) -> Computed:
        """Run the backbones over a block's clips, given references to their pixels in order."""
        import ray

        rows, before = {}, self._seconds()
        for name, clips in wanted.items():
            pixels = [
                torch.tensor(one[name]).to(self._forwards[name].backbone.device)
                for one in ray.get(list(clips))
            ]
            rows[name] = self._forwards[name](pixels)
        batches = {name: one.batch for name, one in self._forwards.items() if one.batch}
        return Computed(rows, batches, self._seconds() - before)

    def _seconds(self) -> float:
        return sum(one.seconds for one in self._forwards.values())


def comparable(backbone: Backbone) -> dict[str, Any]:
    """What `recipe_differences` looks at, of a backbone alone."""
    return recipe_of(backbone).attributes() | {"items_digest": "", "block_rows": 0}


def _check_software(wanted: str) -> None:
    if (found := version("obygaze")) != wanted:
        raise ClusterError(
            f"the machine {platform.node()} has obygaze {found}, and the command was typed "
            f"with {wanted}; install the same on every machine of the cluster"
        )
