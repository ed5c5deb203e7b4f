"""A small picture of each clip, the frame in its middle, for who looks at results."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones.sampling import Sampling
from obygaze_features.common.files import write_bytes, write_text
from obygaze_features.common.package import need
from obygaze_features.common.progress import progress
from obygaze_features.errors import VideoError
from obygaze_features.extraction.clips import question, reason
from obygaze_features.extraction.decoders import PATIENCE, Decoder, Decoders, default_workers
from obygaze_features.extraction.plan import EVERYTHING, Wanted, check_items
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.media import MediaFolder

__all__ = ["NOTE", "WARNING", "Thumbnails", "thumbnail_name", "write_thumbnails"]

HALVES = Sampling(2)
"""Of the two frames that it takes the second is the one in the middle."""
QUALITY = 80
NOTE = "NOT-TO-BE-SHARED.txt"
WARNING = (
    "These are pictures of films, under the films' copyright: for looking at on this machine, not "
    "to be shared, nor a page that they are put into."
)


@dataclass(frozen=True)
class Thumbnails:
    """What came of it: how many were made and were there before, and why some clips have none."""

    made: int
    there: int
    failed: dict[str, str] = field(default_factory=dict)


def thumbnail_name(identifier: str) -> str:
    """The file name of a clip's picture."""
    return f"{identifier}.jpg"


def write_thumbnails(
    manifest: Manifest,
    videos: Path,
    folder: Path,
    *,
    width: int = 160,
    wanted: Wanted = EVERYTHING,
    workers: int | None = None,
    patience: float = PATIENCE,
    cache: Path | None = None,
) -> Thumbnails:
    """Write a JPEG file for each clip that has none in `folder` yet.

    Parameters
    ----------
    manifest, videos
        The clips, and where their files are looked for.
    folder
        Gets a file a clip, named by `thumbnail_name`, and a note that they are not to be shared.
    width
        Of a picture; smaller ones are left as they are.
    wanted
        Which clips.
    workers, patience, cache
        As in `probe_clips`.
    """
    check_items(manifest)
    need("PIL.Image", extra="extract")
    media = MediaFolder(videos.resolve())
    items = [manifest.items[row] for row in wanted.rows(manifest).tolist()]
    lacking = [one for one in items if not (folder / thumbnail_name(one.id)).exists()]
    write_text(folder / NOTE, WARNING + "\n")
    count = workers or default_workers()

    def draw(decoder: Decoder, item: Item) -> str | None:
        """Write one; or say why not."""
        try:
            path = media.find(item)
        except VideoError as problem:
            return reason(str(problem), item, media.root)
        answer = decoder.ask(question("decode", path, item, [HALVES], cache))
        if "error" in answer:
            return reason(answer["error"], item, media.root)
        middle = decoder.pictures(answer["shape"])[answer["rows"][0][1]]
        write_bytes(folder / thumbnail_name(item.id), _jpeg(middle, width))
        return None

    failed = {}
    drawn = Decoders(count, patience=patience).map(draw, lacking, ahead=2 * count)
    with contextlib.closing(drawn):
        for item, why in progress(drawn, "Thumbnails", unit="clip", total=len(lacking)):
            if why is not None:
                failed[item.id] = why
    return Thumbnails(len(lacking) - len(failed), len(items) - len(lacking), failed)


def _jpeg(rgb: NDArray[np.uint8], width: int) -> bytes:
    from PIL import Image

    height, full, _ = rgb.shape
    picture = Image.fromarray(rgb)
    if full > width:
        size = width, max(1, round(height * width / full))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=QUALITY, optimize=True)
    return file.getvalue()
