"""Read an item's file and prepare the inputs of the backbones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.sound import SoundSampling
from obygaze_features.common.package import need
from obygaze_features.common.text import first_line
from obygaze_features.errors import ObygazeError, VideoError, at
from obygaze_features.extraction.decoder import Decoder
from obygaze_features.extraction.summary import Counts
from obygaze_features.extraction.uploads import FrameResizer
from obygaze_features.items.media import IMAGE_SUFFIXES, MediaFolder
from obygaze_features.manifests import Item
from obygaze_features.store import Failed, Status
from obygaze_features.video.decode import max_pixels, refuse_large
from obygaze_features.video.index import fingerprint

IMAGE_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""The allowed image formats, by Pillow's names. Pillow runs external programs for some others."""


@dataclass(frozen=True)
class ReadItem:
    """An item that has been read.

    Parameters
    ----------
    source
        The fingerprint of the item's file; None for a text or an unreadable file.
    inputs
        The input of each backbone: a list of frame tensors (``[T,3,h,w]``), one per decoded part;
        windows of sound; an image; or a text.
    sampled
        For clips, each backbone's row in the arrays ``frame_index`` and ``frame_time``; for an
        audio backbone, ``frame_time`` and ``loudness``.
    failures
        The failure of each backbone that has no input, such as an audio backbone if the file has no
        sound.
    uploads
        GPU events after which the inputs are on their GPUs.
    counts
        The numbers to add to the run's counts.
    """

    source: str | None
    inputs: dict[str, Any]
    sampled: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    failures: Mapping[str, Failed] = field(default_factory=dict)
    uploads: Sequence[torch.cuda.Event] = ()
    counts: Counts = field(default_factory=Counts)


class _Unreadable(Exception):
    """The error raised for a decoder's answer that has an ``error``."""


class ItemReader:
    """A reader of clips, images and texts for backbones, which several threads may use.

    `media` is the folder of the files, or None if there are only texts.
    """

    def __init__(self, media: Path | None, backbones: Sequence[Backbone]) -> None:
        max_pixels()  # raises now if the limit is invalid, rather than for each item
        self._folders: dict[str, MediaFolder] = {}
        if media:
            root = media.resolve()
            self._folders = {"clip": MediaFolder(root), "image": MediaFolder(root, IMAGE_SUFFIXES)}
        self._backbones = {backbone.name: backbone for backbone in backbones}
        devices = dict.fromkeys(backbone.device for backbone in backbones)
        self.resizers = {device: FrameResizer(device) for device in devices}

    @property
    def most_bytes(self) -> int:
        """The maximum size of a clip's frames, resized for all visual backbones, in bytes."""
        seeing = [b for b in self._backbones.values() if b.for_clips and not b.hears]
        views = {(b.device, b.preprocessing.geometry, b.sampling.frames) for b in seeing}
        sizes = {b.preprocessing.geometry: 3 * math.prod(b.preprocessing.crop) for b in seeing}
        return sum(frames * sizes[geometry] for _, geometry, frames in views)

    def read(self, decoder: Decoder, item: Item, names: Sequence[str]) -> ReadItem | Failed:
        """Read an item for the backbones with these names, or return a failure."""
        if item.kind == "text":
            if not item.text.strip() and item.start is None:  # a span may have no words
                return Failed(Status.UNREADABLE, "the text is empty")
            return ReadItem(None, dict.fromkeys(names, item.text))
        if item.kind == "image":
            return self._read_image(item, names)
        return self._read_clip(decoder, item, names)

    def _read_clip(self, decoder: Decoder, item: Item, names: Sequence[str]) -> ReadItem:
        hearing = [name for name in names if self._backbones[name].hears]
        seeing = [name for name in names if name not in hearing]
        seen = self._see(decoder, item, seeing) if seeing else ReadItem(None, {})
        # Sound is a separate request, so that the pictures survive if decoding the sound crashes.
        if not hearing:
            return seen
        lost = next((failed for failed in seen.failures.values() if not failed.source), None)
        if lost:  # nothing in the file can be read
            return ReadItem(None, {}, failures=dict.fromkeys(names, lost))
        heard = self._hear(decoder, item, hearing)
        return ReadItem(
            seen.source or heard.source,
            {**seen.inputs, **heard.inputs},
            {**seen.sampled, **heard.sampled},
            {**seen.failures, **heard.failures},
            [*seen.uploads, *heard.uploads],
            seen.counts + heard.counts,
        )

    def _see(self, decoder: Decoder, item: Item, names: Sequence[str]) -> ReadItem:
        samplings: list[Any] = [self._backbones[name].sampling for name in names]
        media = self._folders["clip"]

        def read_part(decoder: Decoder, skip: int) -> tuple[dict[str, Any], ReadItem]:
            answer = ask_decoder(decoder, "decode", media, item, samplings, skip=skip)
            if "error" in answer:
                raise _Unreadable(answer)
            frames = torch.from_numpy(decoder.pictures(answer["shape"]))
            return answer, self._resize(frames, dict(zip(names, answer["rows"], strict=True)))

        try:
            answer, first = read_part(decoder, 0)
            if answer["why_slow"]:  # the file is decoded from its start, so only once
                others = [read_part(decoder, skip) for skip in answer["skips"]]
            else:
                others = decoder.share(read_part, answer["skips"])
        except _Unreadable as problem:
            failed = _failed(problem.args[0])
            return ReadItem(None, {}, failures=dict.fromkeys(names, failed))
        parts = [first, *(part for _, part in others)]
        counts = sum((part.counts for part in parts), Counts())
        rows = zip(names, samplings, answer["numbers"], answer["times"], strict=True)
        slow = [answer["why_slow"]] if answer["why_slow"] else []
        counts = replace(counts, resized_by_cpu=min(1, counts.resized_by_cpu))
        # The parts are kept separate until each is written into its batch.
        return ReadItem(
            answer["source"],
            {name: [part.inputs[name] for part in parts] for name in names},
            {name: sampling.row(*row) for name, sampling, *row in rows},
            uploads=[event for part in parts for event in part.uploads],
            counts=counts + Counts(slow=Counter(slow), thinned=answer["thinned"]),
        )

    def _hear(self, decoder: Decoder, item: Item, names: Sequence[str]) -> ReadItem:
        samplings: list[Any] = [self._backbones[name].sampling for name in names]
        answer = ask_decoder(decoder, "hear", self._folders["clip"], item, samplings)
        if "error" in answer:
            return ReadItem(None, {}, failures=dict.fromkeys(names, _failed(answer)))
        inputs, sampled, unheard, is_silent = {}, {}, 0, False
        for name, sampling in zip(names, samplings, strict=True):
            sound = decoder.sound(*answer["spans"][str(sampling.rate)])
            inputs[name] = self._backbones[name].preprocessing.inputs(sound)
            sampled[name] = sampling.row(sound, item.start or 0.0)
            is_silent = sound.is_silent
            count = len(replace(sampling, frames=len(sound)).windows(len(sound)))
            unheard = max(unheard, count if count > sampling.frames else 0)
        tracks = [answer["track"]] if answer["track"] else []
        windows = [unheard] if unheard else []
        counts = Counts(tracks=Counter(tracks), silent=int(is_silent), unheard=Counter(windows))
        uploads = []
        for device in {self._backbones[name].device for name in names}:
            own = {name: inputs[name] for name in names if self._backbones[name].device == device}
            uploaded, upload = self.resizers[device].upload(own)
            inputs |= uploaded
            uploads += [upload] if upload else []
        return ReadItem(answer["source"], inputs, sampled, uploads=uploads, counts=counts)

    def _read_image(self, item: Item, names: Sequence[str]) -> ReadItem | Failed:
        media, status, source = self._folders["image"], Status.MISSING, None
        try:
            path = media.find(item)
            status = Status.UNREADABLE
            picture = torch.from_numpy(read_picture(path))[None]
            source = fingerprint(path)
            resized = self._resize(picture, dict.fromkeys(names, range(1)))
            inputs = {name: pixels[0] for name, pixels in resized.inputs.items()}
            return replace(resized, source=source, inputs=inputs)
        except VideoError as problem:
            return Failed(status, portable_reason(problem, media.root), source)

    def _resize(self, frames: Tensor, rows: Mapping[str, Sequence[int]]) -> ReadItem:
        """Return the frames that each backbone needs, resized."""
        inputs: dict[str, Any] = {}
        uploads: list[torch.cuda.Event] = []
        by_cpu = False
        for device, resize in self.resizers.items():
            backbones = [self._backbones[name] for name in rows]
            if views := {
                b.name: (b.preprocessing, rows[b.name]) for b in backbones if b.device == device
            }:
                resized, upload, fallback = resize(frames, views)
                inputs |= resized
                uploads += [upload] if upload else []
                by_cpu |= fallback
        counts = Counts(frames=len(frames), resized_by_cpu=int(by_cpu))
        return ReadItem(None, inputs, uploads=uploads, counts=counts)


def size_of(item: ReadItem | Failed) -> int:
    """Return the size of an item's inputs in bytes; shared inputs count once."""
    if isinstance(item, Failed):
        return 0
    tensors: set[Tensor] = set()
    for value in item.inputs.values():
        if not isinstance(value, str):
            tensors.update([value] if isinstance(value, Tensor) else value)
    return sum(values.nbytes for values in tensors)


def _failed(answer: Mapping[str, Any]) -> Failed:
    status = Status.UNREADABLE if answer["file"] else Status.MISSING
    return Failed(status, answer["error"], answer["source"])


def ask_decoder(
    decoder: Decoder,
    task: str,
    media: MediaFolder,
    item: Item,
    samplings: Iterable[Sampling | SoundSampling],
    *,
    skip: int = 0,
) -> dict[str, Any]:
    """Ask `video.worker` to ``decode`` or ``hear`` an item's file.

    The answer has the ``file`` (None if the item has no file), and an ``error`` if the task failed.
    The first `skip` frames are left out.
    """
    try:
        path = media.find(item)
    except VideoError as problem:
        return {"file": None, "source": None, "error": portable_reason(problem, media.root)}
    answer = decoder.ask(
        {
            "task": task,
            "path": str(path),
            "start": item.start,
            "end": item.end,
            "samplings": [asdict(sampling) for sampling in samplings],
            "skip": skip,
        }
    )
    file = str(path.relative_to(media.root))
    error = {"error": at(file, answer["error"])} if "error" in answer else {}
    return {**answer, "file": file, **error}


def portable_reason(problem: ObygazeError, root: Path) -> str:
    """Return the reason of a failure with relative paths, so that it is the same on any machine."""
    where = problem.where
    if isinstance(where, Path) and where.is_relative_to(root):
        return at(where.relative_to(root), problem.reason)
    return problem.reason


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Return the first picture in an image file, upright, as ``[height, width, 3]``.

    Transparency is ignored, as in the processors of published models.
    """
    need("PIL.Image", extra="extract")
    from PIL import Image, ImageOps

    if not path.is_file():
        raise VideoError(path, "is not a file")
    if Image.MAX_IMAGE_PIXELS is not None:  # Pillow's own limit, which must not be lower
        Image.MAX_IMAGE_PIXELS = max(max_pixels(), Image.MAX_IMAGE_PIXELS)
    try:
        Image.init()
        formats = [name for name in IMAGE_FORMATS if name in Image.OPEN]
        with Image.open(path, formats=formats) as image:
            refuse_large(path, *image.size)
            # Pillow would keep only the lower 8 of 16 bits.
            if image.mode in ("I", "F") or image.mode.startswith("I;"):
                raise VideoError(path, "has more than 8 bits per channel; save it with 8 bits")
            return np.array(ImageOps.exif_transpose(image).convert("RGB"))
    except VideoError:
        raise
    except Exception as problem:  # each format's reader has its own errors
        reason = first_line(problem).replace(str(path), path.name)
        raise VideoError(path, f"cannot be read as an image: {reason}") from None
