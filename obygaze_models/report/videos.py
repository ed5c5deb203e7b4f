"""The local films that a page plays, each clip at its time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from obygaze_features.common.text import join_some
from obygaze_features.items.items import Item
from obygaze_features.items.media import find_videos
from obygaze_models.experiments.run_folder import Clip
from obygaze_models.report.film_timelines import by_film


def video_data(clips: Sequence[Clip], folder: str | Path | None, page: Path) -> dict[str, Any]:
    """Return the address of each film's file, or of each clip's, for the explorer.

    Addresses are relative where the folder is below the page's; then both can be moved together.
    ``missing`` names the films without a file.
    """
    if folder is None:
        return {"of": {}, "missing": ""}
    items = [Item(c.id, film=c.film, media=c.media, start=c.start, end=c.end) for c in clips]
    titles = {clip.film: clip.title for clip in clips if clip.film}
    videos = find_videos(items, titles, Path(folder))
    addresses: dict[str, str] = {}
    missing = []
    for film, same in by_film(clips).items():
        own = {clip.id: _address(videos[clip.id], page) for clip in same if clip.id in videos}
        if film and len(own) == len(same) and len({*own.values()}) == 1:
            own = {film: next(iter(own.values()))}
        addresses |= own
        if not own:
            missing.append(same[0].title or film)
    return {"of": addresses, "missing": join_some(missing)}


def _address(path: Path, page: Path) -> str:
    """Return a file's address: below the page's folder relative to it, else with its whole path."""
    path, folder = path.resolve(), page.resolve().parent
    if path.is_relative_to(folder):
        return quote(f"./{path.relative_to(folder).as_posix()}")
    return path.as_uri()
