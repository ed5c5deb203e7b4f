"""Pictures of clips, held inside the page, where somebody asked for them."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

from obygaze_features.errors import ExperimentError

__all__ = ["read_thumbnails"]

JPEG = b"\xff\xd8\xff"


def read_thumbnails(folder: Path, ids: Iterable[str]) -> dict[str, str]:
    """Clip -> the JPEG file ``ID.jpg`` of `folder` in base64; clips without one are left out."""
    if not folder.is_dir():
        raise ExperimentError(
            f"{folder} is not a folder; make one with: obygaze features thumbnails"
        )
    there = {path.name: path for path in folder.iterdir() if path.suffix == ".jpg"}
    found = {}
    for one in ids:
        path = there.get(f"{one}.jpg")
        if path is not None:
            picture = path.read_bytes()
            if not picture.startswith(JPEG):
                raise ExperimentError(f"{path} is not a JPEG picture; make it anew")
            found[one] = base64.b64encode(picture).decode("ascii")
    if not found:
        raise ExperimentError(f"{folder} has no picture of any clip of these runs, such as ID.jpg")
    return found
