"""Write a thumbnail of each clip's middle frame, and a page on which people label the clips."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones.devices import default_workers
from obygaze_features.common.files import (
    require_suffix,
    write_bytes,
    write_files,
    write_text,
)
from obygaze_features.common.package import need
from obygaze_features.common.progress import progress
from obygaze_features.extraction.decoder import Decoder, Decoders
from obygaze_features.extraction.job import Options, check_items
from obygaze_features.extraction.reader import ask_decoder
from obygaze_features.items.media import MediaFolder
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.labels import OwnLevels, choose_scheme
from obygaze_features.page.html import NOTE, document, html, read_thumbnails, script_json
from obygaze_features.sampling import Sampling

_HERE = Path(__file__).parent
HALVES = Sampling(2)
"""The sampling of two frames, of which the second is the middle frame."""
WARNING = (
    "These pictures are from films and are under the films' copyright. Do not share them or a "
    "page that contains them; view them only on this machine."
)


def write_thumbnails(
    manifest: Manifest,
    videos: Path,
    folder: Path,
    options: Options,
    *,
    width: int,
) -> dict[str, Any]:
    """Write a JPEG thumbnail for each selected clip that has none in `folder`.

    Returns how many thumbnails were ``made`` and how many were already ``there``, and the reasons
    why clips ``failed``, by id.

    Parameters
    ----------
    manifest, videos
        The manifest, and the folder of the clips' files.
    folder
        The folder for the thumbnails, named ``ID.jpg``, and for a note that asks not to
        share them.
    options
        Options that select clips and control decoding.
    width
        The maximum width of a thumbnail in pixels; smaller frames keep their size.
    """
    check_items(manifest)
    need("PIL.Image", extra="extract")
    media = MediaFolder(videos.resolve())
    items = manifest.items.take(options.select(manifest))
    missing = [item for item in items if not (folder / f"{item.id}.jpg").exists()]
    write_text(folder / NOTE, WARNING + "\n")

    def draw(decoder: Decoder, item: Item) -> str | None:
        """Write a clip's thumbnail; return the reason if that failed."""
        picture = b""
        for answer in ask_decoder(decoder, "decode", media, item, [HALVES]):
            if "error" in answer:
                return str(answer["error"])
            if "frames" in answer:
                picture = _jpeg(decoder.pictures(answer["shape"])[-1], width)  # the later one
        write_bytes(folder / f"{item.id}.jpg", picture)
        return None

    failed = {}
    workers = options.workers or default_workers()
    with Decoders(workers, options.stall_timeout) as decoders:
        results = decoders.map(draw, missing, ahead=workers)
        for item, reason in progress(results, "Thumbnails", unit="clip", total=len(missing)):
            if reason:
                failed[item.id] = reason
    return {
        "made": len(missing) - len(failed),
        "there": len(items) - len(missing),
        "failed": failed,
    }


def write_label_page(
    manifest: Manifest,
    pictures: Path,
    page: Path,
    options: Options,
    *,
    levels: OwnLevels,
    overwrite: bool,
) -> None:
    """Write a page to label the selected clips with the keyboard, without a server.

    The page saves the table ``labels.csv``, which `obygaze manifests label` reads. The browser
    keeps the labels under the manifest's digest, so a new page of the same clips has them.

    Parameters
    ----------
    manifest, pictures
        The manifest, and the folder of the clips' thumbnails; the page contains them.
    page
        The page, ``NAME.html``.
    options
        Options that select clips.
    levels
        Your levels; see `Manifest.from_csv` (default: the manifest's).
    overwrite
        Replace an existing page.
    """
    require_suffix(page, ".html")
    scheme = choose_scheme(levels) or manifest.scheme
    items = manifest.items.take(options.select(manifest))
    data = {
        "digest": manifest.digest,
        "scheme": scheme.to_json(),
        "clips": [*map(vars, items)],
        "pictures": read_thumbnails(pictures, items.ids),
    }
    template = (_HERE / "labels.html").read_text(encoding="utf-8")
    body = html(template, data=script_json(data))
    script = (_HERE / "labels.js").read_text(encoding="utf-8")
    write_files({page: document(manifest.name, body, script=script)}, overwrite=overwrite)


def _jpeg(rgb: NDArray[np.uint8], width: int) -> bytes:
    from PIL import Image

    picture = Image.fromarray(rgb)
    picture.thumbnail((width, len(rgb)), Image.Resampling.LANCZOS, reducing_gap=None)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=80, optimize=True)
    return file.getvalue()
