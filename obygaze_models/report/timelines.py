"""Annotators' segments and videos for the explorer."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from obygaze_features import Timelines
from obygaze_features.common.formatting import join_some
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import Item, safe_ids
from obygaze_features.items.media import find_videos
from obygaze_models.report.people import MAX_LANES
from obygaze_models.report.sources import Labels
from obygaze_models.results.scores import records


def film_segments(labels: Labels, timelines: Timelines | str | Path | None) -> dict[str, Any]:
    """Return each film's segments by annotator, as [start, end, level, concepts, comment].

    Films with more than `MAX_LANES` annotators have none.
    """
    if timelines is None:
        return {}
    if not isinstance(timelines, Timelines):
        timelines = Timelines.load(timelines)
    names = {id_: film for film, id_ in safe_ids("film", labels.films).items()}
    codes = timelines.scheme.codes
    by_film: dict[str, Any] = {}
    for film, by_annotator in timelines.by_film.items():
        if film not in names:
            continue
        lanes = by_film.setdefault(names[film], [])
        if len(by_annotator) > MAX_LANES:
            continue
        for annotator, segments in by_annotator.items():
            shown_segments = []
            for part in segments:
                shown = ", ".join(part.concepts)
                rank = codes.index(part.level)
                shown_segments.append([part.start, part.end, rank, shown, part.comment])
            lanes.append({"name": timelines.names.get(annotator, annotator), "of": shown_segments})
    if not by_film:
        film = next(iter(labels.films))
        raise ExperimentError(
            f"the timelines have none of the page's films, such as {film}. Use others"
        )
    return by_film


def video_data(labels: Labels, folder: str | Path | None, page: Path) -> dict[str, Any]:
    """Return the URL of each film's file, or else of each clip's file.

    URLs are relative if the files are below the page's folder, so that the page and the files can
    be moved together. ``missing`` names the films without a file.
    """
    if folder is None:
        return {"of": {}, "missing": ""}
    table = labels.clips[["id", "film", "media", "start", "end"]]
    items = [Item(**row) for row in records(table)]
    videos = find_videos(items, Path(folder))
    below = page.resolve().parent
    addresses: dict[str, str] = {}
    missing = []
    for film, clips in labels.films.items():
        playable = {}
        for clip in clips["id"]:
            if clip in videos:
                path = videos[clip].resolve()
                playable[clip] = path.as_uri()
                if path.is_relative_to(below):
                    playable[clip] = quote(f"./{path.relative_to(below).as_posix()}")
        files = set(playable.values())
        if len(playable) == len(clips) and len(files) == 1:
            playable = {film: files.pop()}
        addresses |= playable
        if not playable:
            missing.append(labels.titles[film])
    return {"of": addresses, "missing": join_some(missing)}
