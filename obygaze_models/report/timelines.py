"""The time axes of films in the explorer: annotators' segments, frames and moments; and videos."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from obygaze_features import Timelines
from obygaze_features.common.formatting import join_some
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.items.items import Item, safe_ids
from obygaze_features.items.media import find_videos
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_models.report.people import MAX_LANES
from obygaze_models.report.sources import Labels, spans_of
from obygaze_models.results.scores import records

TIMES = {"film": str, "start": float, "end": float, "time_in": str}
FRAMES = {**TIMES, "id": str, "probability": float}
MOMENTS = {**TIMES, "clips": str}


def film_lanes(
    labels: Labels,
    frames: str | Path | None,
    moments: str | Path | None,
    timelines: Timelines | str | Path | None,
) -> dict[str, Any]:
    """Return each film's lanes of segments, frames and moments, with times in seconds.

    Parameters
    ----------
    labels
        The page's clips.
    frames, moments
        CSV files written by ``obygaze models moments``.
    timelines
        The annotators' segments, or their folder.
    """
    if moments is not None and frames is None:
        raise UsageError("moments need the probabilities of frames; add the CSV file of frames")
    starts = {}
    for film, clips in labels.films.items():
        for clip, start in zip(clips["id"], spans_of(clips)[:, 0].tolist(), strict=True):
            starts[clip] = film, start
    kinds: dict[str, Mapping[str, Any]] = {}
    if timelines is not None:
        kinds["segments"] = _segments(labels, timelines)
    if frames is not None:
        kinds["frames"] = _spans(frames, FRAMES, starts)
    if moments is not None:
        kinds["moments"] = _spans(moments, MOMENTS, starts)
    lanes: dict[str, dict[str, Any]] = {}
    for kind, of_films in kinds.items():
        for film, marks in of_films.items():
            lanes.setdefault(film, {})[kind] = marks
    if kinds and not lanes:
        film = next(iter(labels.films))
        raise ExperimentError(f"{frames or timelines} has none of the page's films, such as {film}")
    return lanes


def _spans(
    path: str | Path,
    columns: Mapping[str, Any],
    starts: Mapping[str, tuple[str, float]],
) -> dict[str, list[list[float]]]:
    """Read frames or moments: their starts, ends and (for frames) probabilities, by film."""
    try:
        table = pd.read_csv(path, usecols=[*columns], dtype=dict(columns), keep_default_na=False)
    except (OSError, ValueError) as problem:
        raise ExperimentError(f"{path} cannot be read: {problem}") from None
    by_film: dict[str, list[list[float]]] = {film: [] for film, _ in starts.values()}
    for row in table.to_dict("records"):
        clip, *_ = row.get("id", row.get("clips", "")).split(SEPARATOR)
        film, start = starts.get(clip, (row["film"], 0.0))
        if row["time_in"] != "clip":
            start = 0.0
        span = [round(start + row["start"], 2), round(start + row["end"], 2)]
        if "probability" in row:
            span.append(round(row["probability"], 3))
        if film in by_film:
            by_film[film].append(span)
    return {film: sorted(spans) for film, spans in by_film.items() if spans}


def _segments(labels: Labels, timelines: Timelines | str | Path) -> dict[str, list[Any]]:
    """Return each film's segments by annotator, as [start, end, level, concepts, comment].

    Films with more than `MAX_LANES` annotators have none.
    """
    if not isinstance(timelines, Timelines):
        timelines = Timelines.load(timelines)
    names = {own: film for film, own in safe_ids("film", labels.films).items()}
    codes = timelines.scheme.codes
    by_film: dict[str, list[Any]] = {}
    for film, by_annotator in timelines.by_film.items():
        if film not in names:
            continue
        lanes = by_film.setdefault(names[film], [])
        if len(by_annotator) > MAX_LANES:
            continue
        for annotator, segments in by_annotator.items():
            own = []
            for part in segments:
                shown = ", ".join(part.concepts)
                rank = codes.index(part.level)
                own.append([part.start, part.end, rank, shown, part.comment])
            lanes.append({"name": timelines.names.get(annotator, annotator), "of": own})
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
        own = {}
        for clip in clips["id"]:
            if clip in videos:
                path = videos[clip].resolve()
                own[clip] = path.as_uri()
                if path.is_relative_to(below):
                    own[clip] = quote(f"./{path.relative_to(below).as_posix()}")
        files = set(own.values())
        if len(own) == len(clips) and len(files) == 1:
            own = {film: files.pop()}
        addresses |= own
        if not own:
            missing.append(labels.titles[film])
    return {"of": addresses, "missing": join_some(missing)}
