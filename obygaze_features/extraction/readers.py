"""From an item's file to the inputs of the backbones: clips by decoders, images by PIL."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import explain_out_of_memory, run_if_it_fits
from obygaze_features.backbones.preprocess import Preprocessing, resize_and_crop
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.common.package import need
from obygaze_features.common.text import first_line
from obygaze_features.errors import VideoError
from obygaze_features.extraction.decode_pool import Decoder
from obygaze_features.manifests import Item
from obygaze_features.manifests.media import IMAGE_SUFFIXES, MEDIA_SUFFIXES, MediaFolder
from obygaze_features.store import Failed, Status
from obygaze_features.video.decode import max_pixels, refuse_large
from obygaze_features.video.index import fingerprint

MAX_ASPECT_RATIO = 100
"""Wider or taller images are refused: resized, they would take this many times the memory."""
IMAGE_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""Pillow's names. It goes by the content of a file, and has others read by other programs."""

MAX_UPLOADS = 2
"""Clips that are on a GPU in full size at a time."""

View = tuple[Preprocessing, Sequence[int]]
"""What a backbone sees of a clip: how frames are resized, and which rows of them."""


@dataclass(frozen=True)
class ReadItem:
    """An item, read.

    Parameters
    ----------
    source
        The fingerprint of its file; None for a text.
    inputs
        For each backbone its frames (``[T,3,h,w]``) or its image, or the text.
    sampled
        For each backbone its row of ``frame_index`` and ``frame_time``, if the item is a clip.
    pictures, why_slow
        How many frames or images were read; why the film was decoded from its start, if it was.
    uploads
        Events after which the inputs are on their GPUs.
    resized_by_cpu
        Whether a GPU had no memory to resize them.
    """

    source: str | None
    inputs: dict[str, Tensor | str]
    sampled: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    pictures: int = 0
    why_slow: str | None = None
    uploads: Sequence[torch.cuda.Event] = ()
    resized_by_cpu: bool = False


class ItemReader:
    """Reads clips, images and texts for some backbones; several threads may call it.

    `media` is the folder of the files, None where there are only texts; `cache` the folder that
    keeps the frame indexes of long films.
    """

    def __init__(
        self, media: Path | None, backbones: Sequence[Backbone], cache: Path | None
    ) -> None:
        max_pixels()  # a wrong limit is one error, not a failure of each item
        self._media = media.resolve() if media else None
        self._folders: dict[str, MediaFolder] = {}
        self._backbones = {backbone.name: backbone for backbone in backbones}
        self._cache = cache
        devices = dict.fromkeys(backbone.device for backbone in backbones)
        self._resizers = {device: FrameResizer(device) for device in devices}

    def read(self, decoder: Decoder, item: Item, names: Sequence[str]) -> ReadItem | Failed:
        """Read an item for the backbones of these names, or say why it cannot be read."""
        if item.kind == "text":
            if not item.text.strip() and item.start is None:  # in a span nothing may be said
                return Failed(Status.UNREADABLE, "the text is empty")
            return ReadItem(None, dict.fromkeys(names, item.text))
        if item.kind == "image":
            return self._read_image(item, names)
        return self._read_clip(decoder, item, names)

    def _folder(self, kind: str) -> MediaFolder:
        if kind not in self._folders:
            assert self._media is not None
            suffixes = IMAGE_SUFFIXES if kind == "image" else MEDIA_SUFFIXES
            self._folders[kind] = MediaFolder(self._media, suffixes)
        return self._folders[kind]

    def _read_clip(self, decoder: Decoder, item: Item, names: Sequence[str]) -> ReadItem | Failed:
        backbones = [self._backbones[name] for name in names]
        samplings = [backbone.sampling for backbone in backbones]
        media = self._folder("clip")
        answer = ask_decoder(decoder, "decode", media, item, samplings, self._cache)
        if "error" in answer:
            status = Status.UNREADABLE if answer["file"] else Status.MISSING
            return Failed(status, answer["error"], answer["source"])
        frames = torch.from_numpy(decoder.pictures(answer["shape"]))
        resized = self._resize(frames, dict(zip(names, answer["rows"], strict=True)))
        sampled: dict[str, Mapping[str, NDArray[Any]]] = {}
        for backbone, numbers, times in zip(
            backbones, answer["numbers"], answer["times"], strict=True
        ):
            frame_index = np.full(backbone.sampling.frames, -1, np.int32)
            frame_time = np.full(backbone.sampling.frames, np.nan)
            frame_index[: len(numbers)], frame_time[: len(times)] = numbers, times
            sampled[backbone.name] = {"frame_index": frame_index, "frame_time": frame_time}
        return replace(
            resized, source=answer["source"], sampled=sampled, why_slow=answer["why_slow"]
        )

    def _read_image(self, item: Item, names: Sequence[str]) -> ReadItem | Failed:
        media, status, source = self._folder("image"), Status.MISSING, None
        try:
            path = media.find(item)
            status = Status.UNREADABLE
            picture = torch.from_numpy(read_picture(path))[None]
            source = fingerprint(path)
            resized = self._resize(picture, dict.fromkeys(names, range(1)))
            inputs = {name: pixels[0] for name, pixels in resized.inputs.items()}
            return replace(resized, source=source, inputs=inputs)
        except VideoError as problem:
            return Failed(status, portable_reason(str(problem), item, media.root), source)

    def _resize(self, frames: Tensor, rows: Mapping[str, Sequence[int]]) -> ReadItem:
        """For each backbone its rows of the frames, resized."""
        inputs: dict[str, Tensor | str] = {}
        uploads: list[torch.cuda.Event] = []
        resized_by_cpu = False
        for device, resize in self._resizers.items():
            backbones = (self._backbones[name] for name in rows)
            if views := {
                backbone.name: (backbone.preprocessing, rows[backbone.name])
                for backbone in backbones
                if backbone.device == device
            }:
                resized, upload, fallback = resize(frames, views)
                inputs |= resized
                uploads += [upload] if upload else []
                resized_by_cpu |= fallback
        return ReadItem(
            None,
            inputs,
            pictures=len(frames),
            uploads=uploads,
            resized_by_cpu=resized_by_cpu,
        )


class FrameResizer:
    """Resizes clips and images for the backbones of one device; several threads may call it.

    A GPU gets each clip once, on a stream of its own beside that of the forward passes, each of
    which waits only for its own clips. Another device gets what the CPU resized.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._streams: queue.SimpleQueue[torch.cuda.Stream] = queue.SimpleQueue()
        if device.startswith("cuda"):
            for _ in range(MAX_UPLOADS):
                self._streams.put(torch.cuda.Stream(device, priority=-1))

    def __call__(
        self, frames: Tensor, views: Mapping[str, View]
    ) -> tuple[dict[str, Tensor], torch.cuda.Event | None, bool]:
        """For each name its view of the frames; after which event; if a GPU left it to the CPU.

        When it returns, `frames` may be overwritten: their memory is not pinned, so that uploading
        them waits.
        """
        if not self._device.startswith("cuda"):
            return _resize_by_cpu(self._device, frames, views), None, False
        stream = self._streams.get()
        try:
            # Without the device, leaving the stream would open a context on GPU 0.
            with torch.cuda.device(self._device), torch.cuda.stream(stream):
                inputs = run_if_it_fits(
                    self._device, lambda: _resize_views(frames.to(self._device), views)
                )
                by_cpu = inputs is None
                inputs = inputs or _resize_by_cpu(self._device, frames, views)
                return inputs, stream.record_event(), by_cpu
        finally:
            self._streams.put(stream)


def upload(device: str, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Take inputs to a device that has memory for them; else each batch is, when it is computed."""
    return run_if_it_fits(device, lambda: [pixels.to(device) for pixels in inputs]) or inputs


def _resize_by_cpu(device: str, frames: Tensor, views: Mapping[str, View]) -> dict[str, Tensor]:
    with explain_out_of_memory("a clip's frames", "cpu"):
        inputs = _resize_views(frames, views)
    return dict(zip(inputs, upload(device, list(inputs.values())), strict=True))


def _resize_views(frames: Tensor, views: Mapping[str, View]) -> dict[str, Tensor]:
    return {name: resize_and_crop(frames, *view) for name, view in views.items()}


def ask_decoder(
    decoder: Decoder,
    task: str,
    media: MediaFolder,
    item: Item,
    samplings: Iterable[Sampling],
    cache: Path | None,
) -> dict[str, Any]:
    """The answer of `video.worker`, asked to ``decode`` an item's file or to ``examine`` it.

    With the ``file``, which is None if the item has none, and perhaps an ``error``.
    """
    try:
        path = media.find(item)
    except VideoError as problem:
        reason = portable_reason(str(problem), item, media.root)
        return {"file": None, "source": None, "error": reason}
    answer = decoder.ask(
        {
            "task": task,
            "path": str(path),
            "start": item.start,
            "end": item.end,
            "samplings": [asdict(sampling) for sampling in samplings],
            # Short clips are indexed quickly; only the index of a whole film is worth keeping.
            "cache": str(cache) if cache and item.end is not None else None,
        }
    )
    if "error" in answer:
        answer["error"] = portable_reason(answer["error"], item, media.root)
    return {"file": str(path.relative_to(media.root)), **answer}


def portable_reason(problem: str, item: Item, root: Path) -> str:
    """A failure's reason with paths relative to the media folder, the same on every machine."""
    text = problem.removeprefix(f"{item.id}: ").removesuffix(f" under {root}")
    return text.replace(f"{root}{os.sep}", "")


def read_picture(path: Path) -> NDArray[np.uint8]:
    """An image file's first picture, ``[height, width, 3]``, upright.

    Transparency is ignored, as the processors of published models do.
    """
    need("PIL.Image", extra="extract")
    from PIL import Image, ImageOps

    if not path.is_file():
        raise VideoError(f"{path} is not a file")
    limit = max_pixels()
    if Image.MAX_IMAGE_PIXELS is not None:  # Pillow's own, which must not be lower
        Image.MAX_IMAGE_PIXELS = max(limit, Image.MAX_IMAGE_PIXELS)
    try:
        Image.init()
        formats = [name for name in IMAGE_FORMATS if name in Image.OPEN]
        with Image.open(path, formats=formats) as image:
            width, height = image.size
            refuse_large(path, width, height)
            # PIL would keep the lower eight of sixteen bits.
            is_deep = image.mode in ("I", "F") or image.mode.startswith("I;")
            if not is_deep and max(width, height) <= MAX_ASPECT_RATIO * min(width, height):
                return np.array(ImageOps.exif_transpose(image).convert("RGB"))
    except VideoError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise VideoError(
            f"{path} is too large: it has more than {limit:,} pixels; set OBYGAZE_MAX_PIXELS to "
            "allow more"
        ) from None
    except Exception as problem:  # each format has its own reader, with its own errors
        reason = first_line(problem).replace(str(path), path.name)
        raise VideoError(f"{path} cannot be read as an image: {reason}") from None
    if is_deep:
        raise VideoError(f"{path} has more than 8 bits a channel; save it with 8")
    raise VideoError(f"{path} is {width} x {height} pixels, too narrow for a picture")
