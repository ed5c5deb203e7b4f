"""The way of a clip: decoded once, resized for each backbone, forward, written by the block."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones import Backbone
from obygaze_features.common.files import sha256_of
from obygaze_features.common.progress import progress
from obygaze_features.errors import BlockTaken, VideoError
from obygaze_features.extraction.plan import (
    Lane,
    blocks_to_do,
    check_items,
    claiming,
    open_lanes,
    rows_to_retry,
)
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.locate import MediaFolder, locate
from obygaze_features.preprocess import normalise, resize_and_crop
from obygaze_features.store import Done, Failed, Status, open_store
from obygaze_features.video.decode import count_frames, decode_frames
from obygaze_features.video.sampling import uniform_indices

__all__ = ["Summary", "extract"]

BATCH = 8
"""Clips in one forward pass. Batches never cross blocks: a resumed run forms the same ones."""


@dataclass(frozen=True)
class Summary:
    """What an extraction did.

    Parameters
    ----------
    stores
        Where they lie.
    clips
        How many clips this run worked on; what was there before is not counted.
    done
        How many of the manifest's items are now done in every store.
    failed
        ``missing``, ``unreadable`` or ``not_finite`` -> id -> reason, over the whole stores.
    seconds
        How long the run took.
    shares
        ``decode``, ``forward`` and ``write`` -> their share of that time.
    """

    stores: list[Path]
    clips: int
    done: int
    failed: dict[str, dict[str, str]]
    seconds: float
    shares: dict[str, float]

    @property
    def clips_a_second(self) -> float:
        """Speed of this run."""
        return self.clips / self.seconds

    @property
    def bound_by(self) -> str:
        """The stage that took most of the time."""
        return max(self.shares, key=lambda stage: self.shares[stage])


@dataclass(frozen=True)
class _Clip:
    """A decoded clip: for each backbone its input in bytes, and which frames these are."""

    source: str
    pixels: dict[str, Tensor]
    sampled: dict[str, dict[str, NDArray[Any]]]


def extract(
    manifest: Manifest,
    videos: Path,
    backbones: Sequence[Backbone],
    output: Path,
    *,
    part: str | None = None,
    retry_failed: bool = False,
) -> Summary:
    """Extract the features of a manifest's clips into one store a backbone.

    A clip that cannot be found or decoded is recorded with the reason, and the run goes on.
    Stores that exist are gone on with where they end, so an interrupted call can be repeated.
    Several calls may fill the same stores at the same time, on one machine or on several: each
    block is claimed by one of them.

    Parameters
    ----------
    manifest
        Which clips, under which ids.
    videos
        The folder of their files.
    backbones
        From `load_backbone`. Each clip is decoded once for all of them.
    output
        Gets ``NAME.zarr`` for each backbone.
    part
        ``"2/4"`` works on every fourth block, from the second on.
    retry_failed
        Try the clips again that failed in an earlier run.
    """
    begin = time.perf_counter()
    check_items(manifest)
    # With a mistyped folder every clip would be recorded as missing, for good.
    nothing = not locate(manifest, videos).found
    none_found = VideoError(f"{videos} has none of the {len(manifest)} clips of {manifest.name}")
    if nothing and not any((output / f"{one.name}.zarr").exists() for one in backbones):
        raise none_found
    lanes = open_lanes(manifest, backbones, output)
    todo = blocks_to_do(lanes, part)
    retries = {lane.backbone.name: rows_to_retry(lane) for lane in lanes} if retry_failed else {}
    if nothing and (todo or any(retries.values())):
        raise none_found
    work = _Work(manifest, MediaFolder(videos.resolve()))
    open_ones = [lane for lane in lanes if not lane.writer.store.is_final]
    with claiming(open_ones) as claimed:
        for block in progress(list(todo), "Extracting", unit="block"):
            with claimed(block, todo[block]) as mine:
                if mine:
                    work.fill(block, todo[block])
        # What others had claimed and gave back, or left when they died.
        for block, lacking in blocks_to_do(lanes, part).items():
            with claimed(block, lacking) as mine:
                if mine:
                    work.fill(block, lacking)
        for lane in lanes:
            for block, rows in retries.get(lane.backbone.name, {}).items():
                with claimed(block, [lane]) as mine:
                    if mine:
                        work.retry(block, lane, rows)
    seconds = time.perf_counter() - begin
    shares = {stage: taken / seconds for stage, taken in work.spent.items()}
    for lane in lanes if work.clips else ():
        _log(lane, clips=work.clips, seconds=round(seconds, 3), shares=shares)
    return _summary(lanes, clips=work.clips, seconds=seconds, shares=shares)


class _Work:
    """The passes over blocks, with the time that each stage took."""

    def __init__(self, manifest: Manifest, media: MediaFolder) -> None:
        self.manifest, self.media = manifest, media
        self.spent = dict.fromkeys(("decode", "forward", "write"), 0.0)
        self.clips = 0

    def fill(self, block: int, lanes: Sequence[Lane]) -> None:
        """Do a block for every store that lacks it, decoding its clips once."""
        # Somebody may have written it between the plan and the claim.
        lanes = [lane for lane in lanes if not lane.writer.is_written(block)]
        if not lanes:
            return
        clips = self._clips(lanes[0].writer.rows_of(block), [lane.backbone for lane in lanes])
        for lane in lanes:
            outcomes = self._forward(lane, clips)
            # One whose lease ran out may find the block done by another: its rows are kept.
            with self._timed("write"), contextlib.suppress(BlockTaken):
                lane.writer.write_block(block, outcomes)

    def retry(self, block: int, lane: Lane, rows: Sequence[int]) -> None:
        """Try a block's failed rows once more, and write it anew if any is done now."""
        outcomes = self._forward(lane, self._clips(rows, [lane.backbone]))
        if any(isinstance(outcome, Done) for outcome in outcomes):
            with self._timed("write"), contextlib.suppress(BlockTaken):
                lane.writer.rewrite_failed(block, dict(zip(rows, outcomes, strict=True)))

    def _clips(self, rows: Iterable[int], backbones: Sequence[Backbone]) -> list[_Clip | Failed]:
        with self._timed("decode"):
            items = [self.manifest.items[row] for row in rows]
            self.clips += len(items)
            return [_read(item, self.media, backbones) for item in items]

    def _forward(self, lane: Lane, clips: Sequence[_Clip | Failed]) -> list[Done | Failed]:
        with self._timed("forward"):
            return _outcomes(lane.backbone, clips)

    @contextlib.contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.spent[stage] += time.perf_counter() - begin


def _read(item: Item, media: MediaFolder, backbones: Sequence[Backbone]) -> _Clip | Failed:
    """Decode a clip's frames for all backbones, and say why where that is not possible."""
    try:
        path = media.find(item)
    except VideoError as problem:
        return Failed(Status.MISSING, _reason(problem, item, media.root))
    try:
        source = sha256_of(path)
    except OSError as problem:
        return Failed(Status.UNREADABLE, f"{path.name} cannot be read: {problem.strerror}")
    try:
        n = count_frames(path)
        indices = {one.name: uniform_indices(n, one.sampling.frames) for one in backbones}
        frames = decode_frames(path, list(itertools.chain(*indices.values())))
    except VideoError as problem:
        return Failed(Status.UNREADABLE, _reason(problem, item, media.root), source)
    pixels: dict[str, Tensor] = {}
    sampled: dict[str, dict[str, NDArray[Any]]] = {}
    for one in backbones:
        mine = frames.take(indices[one.name])
        pixels[one.name] = resize_and_crop(torch.from_numpy(mine.rgb), one.preprocessing)
        sampled[one.name] = {"frame_index": mine.indices, "frame_time": mine.times}
    return _Clip(source, pixels, sampled)


def _outcomes(backbone: Backbone, clips: Sequence[_Clip | Failed]) -> list[Done | Failed]:
    """What becomes of each row of a block under one backbone."""
    readable = [clip for clip in clips if isinstance(clip, _Clip)]
    features: list[dict[str, NDArray[Any]]] = []
    for start in range(0, len(readable), BATCH):
        batch = [clip.pixels[backbone.name] for clip in readable[start : start + BATCH]]
        pixels = normalise(torch.stack(batch).to(backbone.device), backbone.preprocessing)
        present = torch.ones(pixels.shape[:2], dtype=torch.bool, device=pixels.device)
        outputs = backbone.forward(pixels, present)
        values = {name: out.cpu().numpy() for name, out in outputs.items()}
        features += [{name: value[i] for name, value in values.items()} for i in range(len(batch))]
    computed = iter(features)
    return [
        clip
        if isinstance(clip, Failed)
        else Done(next(computed) | clip.sampled[backbone.name], clip.source)
        for clip in clips
    ]


def _reason(problem: VideoError, item: Item, root: Path) -> str:
    """A reason that is the same on every machine: files are named from the videos' folder."""
    text = str(problem).removeprefix(f"{item.id}: ").removesuffix(f" under {root}")
    return text.replace(f"{root}{os.sep}", "")


def _log(lane: Lane, **fields: Any) -> None:
    packages = {name: version(name) for name in ("av", "torch", "transformers")}
    lane.writer.log("extracted", device=lane.backbone.device, **packages, **fields)


def _summary(
    lanes: Sequence[Lane], *, clips: int, seconds: float, shares: dict[str, float]
) -> Summary:
    stores = [open_store(lane.writer.store.path) for lane in lanes]
    failed: dict[str, dict[str, str]] = {}
    for store in stores:
        for row in (store.status > Status.DONE).nonzero()[0]:
            kind = Status(store.status[row]).name.lower()
            failed.setdefault(kind, {})[store.ids[row]] = store.failures[store.ids[row]]
    done = set.intersection(
        *(set((store.status == Status.DONE).nonzero()[0].tolist()) for store in stores)
    )
    return Summary([store.path for store in stores], clips, len(done), failed, seconds, shares)
