"""One clip on its way from a decoder to the backbones."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones import Backbone, Towers
from obygaze_features.backbones.devices import free_memory, is_out_of_memory
from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.errors import VideoError
from obygaze_features.extraction.decoders import Decoder
from obygaze_features.manifests import Item
from obygaze_features.manifests.media import MediaFolder
from obygaze_features.store import Failed, Status

__all__ = ["Clip", "ClipReader", "question", "reason", "resized"]


@dataclass(frozen=True)
class Clip:
    """A decoded clip.

    Parameters
    ----------
    source
        The fingerprint of its file.
    decoded
        How many of its frames were made into pictures.
    why_slow
        Why it had to be decoded in order from the start of its file, if it had to.
    pixels
        For each backbone its frames, resized, on its device.
    sampled
        For each backbone its row of ``frame_index`` and ``frame_time``.
    """

    source: str
    decoded: int
    why_slow: str | None
    pixels: Mapping[str, Tensor]
    sampled: Mapping[str, Mapping[str, NDArray[Any]]]

    def of(self, name: str) -> Clip:
        """What one backbone sees of it: the others' pixels are not kept waiting for this one."""
        return replace(self, pixels={name: self.pixels[name]}, sampled={name: self.sampled[name]})


class ClipReader:
    """Reads clips for some backbones; several threads may call it.

    Parameters
    ----------
    videos
        The folder of the clips' files.
    backbones
        Who wants frames.
    cache
        Where what is known of long films is kept.
    """

    def __init__(self, videos: Path, backbones: Sequence[Backbone], cache: Path | None) -> None:
        self._media = MediaFolder(videos.resolve())
        self._backbones = {one.name: one for one in backbones}
        self._cache = cache
        self._resizing = threading.Lock()

    def read(self, decoder: Decoder, item: Item, names: Iterable[str]) -> Clip | Failed:
        """A clip's frames for some of the backbones, or why it has none."""
        backbones = [self._backbones[name] for name in names]
        try:
            path = self._media.find(item)
        except VideoError as problem:
            return Failed(Status.MISSING, reason(str(problem), item, self._media.root))
        samplings = [one.sampling for one in backbones]
        answer = decoder.ask(question("decode", path, item, samplings, self._cache))
        if "error" in answer:
            why = reason(answer["error"], item, self._media.root)
            return Failed(Status.UNREADABLE, why, answer["source"])
        frames = torch.from_numpy(decoder.pictures(answer["shape"]))
        pixels, sampled = {}, {}
        # One at a time: each resizing uses all cores.
        with self._resizing:
            for one, where in zip(backbones, answer["rows"], strict=True):
                mine = frames if where == list(range(len(frames))) else frames[where]
                pixels[one.name] = resized(mine, one)
        for one, numbers, times in zip(backbones, answer["numbers"], answer["times"], strict=True):
            index = np.full(one.sampling.frames, -1, np.int32)
            time = np.full(one.sampling.frames, np.nan)
            index[: len(numbers)], time[: len(times)] = numbers, times
            sampled[one.name] = {"frame_index": index, "frame_time": time}
        return Clip(answer["source"], len(frames), answer["why_slow"], pixels, sampled)


def resized(frames: Tensor, backbone: Backbone | Towers) -> Tensor:
    """Resized on the device, or beside it where it has no memory left for that."""
    try:
        return resize_and_crop(frames.to(backbone.device), backbone.preprocessing)
    except RuntimeError as problem:
        if not is_out_of_memory(problem) or backbone.device == "cpu":
            raise
        free_memory(backbone.device)
        return resize_and_crop(frames, backbone.preprocessing).to(backbone.device)


def question(
    what: str, path: Path, item: Item, samplings: Iterable[Sampling], cache: Path | None
) -> dict[str, Any]:
    """What `video.worker` is asked about a clip: to ``decode`` or to ``examine`` it."""
    return {
        "task": what,
        "path": str(path),
        "start": item.start,
        "end": item.end,
        "samplings": [asdict(one) for one in samplings],
        # To index a clip is quick; only what is known of a whole film is worth keeping.
        "cache": str(cache) if cache and item.end is not None else None,
    }


def reason(problem: str, item: Item, root: Path) -> str:
    """Why, in words that are the same on every machine: files are named from the videos' folder."""
    text = problem.removeprefix(f"{item.id}: ").removesuffix(f" under {root}")
    return text.replace(f"{root}{os.sep}", "")
