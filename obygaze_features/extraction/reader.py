"""Read an item's file and prepare the inputs of the backbones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import explain_out_of_memory
from obygaze_features.backbones.preprocess import Preprocessing, resize_frame
from obygaze_features.backbones.readers import SoundReader
from obygaze_features.common.package import need
from obygaze_features.errors import ObygazeError, VideoError, at, first_line
from obygaze_features.extraction.decoder import Decoder
from obygaze_features.items.media import IMAGE_SUFFIXES, MediaFolder
from obygaze_features.manifests import Item
from obygaze_features.sampling import Sampling, SoundSampling, is_silent
from obygaze_features.store import Failed, Status
from obygaze_features.video.decode import max_pixels, refuse_large
from obygaze_features.video.index import fingerprint

IMAGE_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""The allowed image formats, by Pillow's names. Pillow runs external programs for some others."""


@dataclass
class ReadItem:
    """The inputs that were read from an item for backbones, and the failures.

    Parameters
    ----------
    kind
        The kind of the item.
    source
        The fingerprint of the item's file; None for a text or an unreadable file.
    inputs
        The input of each backbone: frames (``[T,3,h,w]``), windows of sound, an image, or a text.
    sampled
        For clips, each backbone's row in the arrays ``frame_index`` and ``frame_time``; for an
        audio backbone, ``frame_time`` and ``loudness``.
    failures
        The failure of each backbone that has no input, such as an audio backbone if the file has no
        sound.
    frames
        The number of frames or images that were read.
    notes
        Notes on the item, such as "silent sound track".
    """

    kind: str
    source: str | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    sampled: dict[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    failures: dict[str, Failed] = field(default_factory=dict)
    frames: int = 0
    notes: set[str] = field(default_factory=set)

    def fail(self, names: Iterable[str], reason: Failed) -> None:
        """Record the failure of these backbones."""
        self.failures.update(dict.fromkeys(names, reason))


class View:
    """A clip's frames as a backbone takes them: `pixels`, ``[T,3,h,w]``, filled in any order."""

    def __init__(self, preprocessing: Preprocessing, numbers: Sequence[int], pinned: bool) -> None:
        self.pixels: Tensor | None = None
        self._preprocessing = preprocessing
        self._numbers = np.array(numbers)
        self._pinned = pinned

    def put(self, number: int, picture: Tensor) -> None:
        """Resize a frame into the rows with its number."""
        rows = np.flatnonzero(self._numbers == number).tolist()
        if not rows:
            return
        resized = resize_frame(picture, self._preprocessing)
        if self.pixels is None:  # only now, because a user's transform decides the shape
            shape = (len(self._numbers), *resized.shape)
            self.pixels = torch.empty(shape, dtype=resized.dtype, pin_memory=self._pinned)
        for row in rows:
            # Not copied by torch, whose threads would take the cores from decoding.
            self.pixels[row].numpy()[:] = resized.numpy()


class ItemReader:
    """A thread-safe reader of clips, images and texts for backbones.

    `media` is the folder of the files, or None if there are only texts.
    """

    def __init__(self, media: Path | None, backbones: Sequence[Backbone]) -> None:
        max_pixels()  # raises now if the limit is invalid, rather than for each item
        self._folders: dict[str, MediaFolder] = {}
        if media:
            root = media.resolve()
            self._folders = {"clip": MediaFolder(root), "image": MediaFolder(root, IMAGE_SUFFIXES)}
        self._backbones = {backbone.name: backbone for backbone in backbones}
        # A GPU copies from pinned memory several times as fast, and the CPU need not wait.
        self._pinned = any(backbone.device.startswith("cuda") for backbone in backbones)

    def read(self, decoder: Decoder, item: Item, names: Sequence[str]) -> ReadItem:
        """Read an item for the backbones with these names."""
        read = ReadItem(item.kind)
        with explain_out_of_memory(f"the {item.kind} {item.id}", "cpu"):
            if item.kind == "text":
                if item.text.strip() or item.start is not None:  # a span may have no words
                    read.inputs.update(dict.fromkeys(names, item.text))
                else:
                    read.fail(names, Failed(Status.UNREADABLE, "the text is empty"))
            elif item.kind == "image":
                self._read_image(item, names, read)
            else:
                seeing = []
                hearing: dict[SoundSampling, list[str]] = defaultdict(list)
                for name in names:
                    reader = self._backbones[name].clip
                    if isinstance(reader, SoundReader):
                        hearing[reader.sampling].append(name)
                    else:
                        seeing.append(name)
                # Sound is a separate request, so that pictures survive if decoding it crashes.
                if seeing:
                    self._see(decoder, item, seeing, read)
                for sampling, heard in hearing.items():
                    self._hear(decoder, item, sampling, heard, read)
        return read

    def _see(self, decoder: Decoder, item: Item, names: Sequence[str], read: ReadItem) -> None:
        readers = {name: self._backbones[name].reader("clip") for name in names}
        samplings = [reader.sampling for reader in readers.values()]
        clip = {}
        views: Mapping[str, View] = {}
        for answer in ask_decoder(decoder, "decode", self._folders["clip"], item, samplings):
            if "error" in answer:
                read.fail(names, answer["failure"])
                return
            if "frames" in answer:
                pictures = torch.from_numpy(decoder.pictures(answer["shape"]))
                for number, picture in zip(answer["frames"], pictures, strict=True):
                    for view in set(views.values()):
                        view.put(number, picture)
            else:  # the clip itself, which comes again if the process dies
                clip = answer
                views = self._make_views("clip", dict(zip(names, clip["numbers"], strict=True)))

        read.source = clip["source"]
        read.frames = len(set().union(*clip["numbers"]))
        rows = zip(names, samplings, clip["numbers"], clip["times"], strict=True)
        for name, sampling, numbers, times in rows:
            read.inputs[name] = views[name].pixels
            read.sampled[name] = sampling.row(numbers, times)
        if clip["why_slow"]:
            read.notes.add(f"decoded from the start of the file: {clip['why_slow']}")
        if clip["thinned"]:
            read.notes.add("too many frames at this rate, so some were left out")

    def _make_views(self, kind: str, numbers: Mapping[str, Sequence[int]]) -> dict[str, View]:
        """Return each backbone's view; those with the same frames and geometry share one."""
        shared: dict[Hashable, View] = {}
        views = {}
        for name, frames in numbers.items():
            preprocessing = self._backbones[name].reader(kind).preprocessing
            key = (preprocessing.geometry, tuple(frames))
            views[name] = shared.setdefault(key, View(preprocessing, frames, self._pinned))
        return views

    def _hear(
        self,
        decoder: Decoder,
        item: Item,
        sampling: SoundSampling,
        names: Sequence[str],
        read: ReadItem,
    ) -> None:
        answer = next(ask_decoder(decoder, "hear", self._folders["clip"], item, [sampling]))
        if "error" in answer:
            read.fail(names, answer["failure"])
            return
        read.source = read.source or answer["source"]
        if answer["track"]:
            read.notes.add(f"several sound tracks: used track {answer['track']}")
        sound = decoder.sound(answer["samples"])
        row = sampling.row(sound, item.start or 0.0)
        for name in names:
            windows = self._backbones[name].reader("clip").preprocessing.inputs(sound)
            if self._pinned:
                windows = windows.pin_memory()
            read.inputs[name] = windows
            read.sampled[name] = row
        if is_silent(sound):
            read.notes.add("silent sound track")
        count = len(replace(sampling, frames=len(sound)).windows(len(sound)))
        if count > sampling.frames:
            read.notes.add(f"used {sampling.frames} of {count} windows of sound")

    def _read_image(self, item: Item, names: Sequence[str], read: ReadItem) -> None:
        media = self._folders["image"]
        status = Status.MISSING
        try:
            path = media.find(item)
            status = Status.UNREADABLE
            picture = read_picture(path)
            read.source = fingerprint(path)
        except VideoError as problem:
            read.fail(names, Failed(status, portable_reason(problem, media.root)))
            return
        read.frames = 1
        views = self._make_views("image", dict.fromkeys(names, (0,)))
        for name, view in views.items():
            if view.pixels is None:
                view.put(0, picture)
            assert view.pixels is not None
            read.inputs[name] = view.pixels[0]


def ask_decoder(
    decoder: Decoder,
    task: str,
    media: MediaFolder,
    item: Item,
    samplings: Iterable[Sampling | SoundSampling],
) -> Iterator[dict[str, Any]]:
    """Ask `video.worker` to ``decode`` or ``hear`` an item's file, and yield its answers.

    If the task fails, the last answer has an ``error`` and the ``failure`` to record.
    """
    try:
        path = media.find(item)
    except VideoError as problem:
        reason = portable_reason(problem, media.root)
        yield {"error": reason, "failure": Failed(Status.MISSING, reason)}
        return
    request = {
        "task": task,
        "path": str(path),
        "start": item.start,
        "end": item.end,
        "samplings": [asdict(sampling) for sampling in samplings],
    }
    file = str(path.relative_to(media.root))
    for answer in decoder.answers(request):
        if "error" in answer:
            answer["error"] = at(file, answer["error"])
            answer["failure"] = Failed(Status.UNREADABLE, answer["error"], answer["source"])
        yield answer


def portable_reason(problem: ObygazeError, root: Path) -> str:
    """Return the reason of a failure with relative paths, so that it is the same on any machine."""
    where = problem.where
    if isinstance(where, Path) and where.is_relative_to(root):
        return at(where.relative_to(root), problem.reason)
    return problem.reason


def read_picture(path: Path) -> Tensor:
    """Return the first picture in an image file, upright, as uint8 ``[H,W,3]``.

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
            # Pillow would turn all values above 255 into 255.
            if image.mode in ("I", "F") or image.mode.startswith("I;"):
                raise VideoError(path, "has more than 8 bits per channel; save it with 8 bits")
            return torch.from_numpy(np.array(ImageOps.exif_transpose(image).convert("RGB")))
    except VideoError:
        raise
    except Exception as problem:  # each format's reader has its own errors
        reason = first_line(problem).replace(str(path), path.name)
        raise VideoError(path, f"cannot be read as an image: {reason}") from None
