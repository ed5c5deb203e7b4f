"""The time axes and videos of films in the explorer: frames, moments and annotators' segments.

If the positions of a film's clips are unknown, the clips follow one another in scene order. Times
are integers in hundredths of a second, and probabilities are integers in thousandths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from obygaze_features import Timelines
from obygaze_features.common.figures import level_colour_names
from obygaze_features.common.text import group_by, join_some, shorten
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.items.films import distinct_titles
from obygaze_features.items.items import Item, name_film
from obygaze_features.items.media import find_videos
from obygaze_models.explain.clips import Clip
from obygaze_models.explain.frame_scores import Axis, FrameScores, loudness_heights
from obygaze_models.explain.moments import Moment, Moments


def film_timelines(
    clips: Sequence[Clip],
    frames: str | Path | None,
    moments: str | Path | None = None,
    timelines: Timelines | str | Path | None = None,
) -> dict[str, Any]:
    """Return the time axis of each film with frames or segments, and the levels and concepts.

    Parameters
    ----------
    clips
        The page's clips, film by film, in scene order.
    frames, moments
        CSV files written by ``obygaze models moments``.
    timelines
        The annotators' segments, or their folder.
    """
    scores: FrameScores | None = None
    intervals: Sequence[Moment] = ()
    rows: dict[str, list[int]] = {}
    clips_of = by_film(clips)
    if moments is not None and frames is None:
        raise UsageError(
            "moments need frame probabilities (got none). Add them with --frames frames.csv"
        )
    if frames is not None:
        scores, intervals = _read_scores(clips, frames, moments)
        axes = scores.axes
        rows = group_by(range(len(axes)), lambda row: axes[row].film)
        _check_films(frames, rows, clips_of)
    annotated = Timelines.load(timelines) if isinstance(timelines, str | Path) else timelines
    if annotated is not None:
        annotated = annotated.named_as(clips_of)
        _check_films(timelines, annotated.by_film, clips_of)
    films: dict[str, dict[str, Any]] = {}
    moments_of = group_by(intervals, lambda moment: moment.axis.film)
    for film, same_film in clips_of.items():
        if scores is not None and film in rows:
            films[film] = _film(same_film, scores, rows[film], moments_of.get(film, []))
        elif annotated is not None and film in annotated.by_film:
            films[film] = {"pasted": any(clip.start is None for clip in same_film)}
    if annotated is None:
        return {"films": films}
    concepts = sorted({name for s in annotated.segments for name in s.concepts})
    for film, data in films.items():  # segments need the film's time axis
        data |= {"lanes": [], "until": 0} if data["pasted"] else _lanes(film, annotated, concepts)
    levels = level_columns(annotated.scheme.name_of)
    return {"films": films, "levels": levels, "concepts": concepts}


def _read_scores(
    clips: Sequence[Clip], frames: str | Path, moments: str | Path | None
) -> tuple[FrameScores, Sequence[Moment]]:
    """Read the tables of frames and moments. A file without a film gets the axis of its clip."""
    intervals: Sequence[Moment] = ()
    if moments is None:
        scores = FrameScores.from_csv(Path(frames))
    else:
        tables = Moments.from_csv(Path(moments), Path(frames))
        scores, intervals = tables.frames, tables.moments
    files = {Axis(name_film("", c.media)): Axis("", c.id) for c in clips if not film_of(c)}
    scores = replace(scores, axes=[files.get(axis, axis) for axis in scores.axes])
    return scores, [replace(m, axis=files.get(m.axis, m.axis)) for m in intervals]


def _check_films(path: object, films: Iterable[str], expected: Mapping[str, Any]) -> None:
    if not set(films) & expected.keys():
        film, expected_film = (shorten(next(iter(names), "")) for names in (films, expected))
        raise ExperimentError(
            f"{path} contains none of the page's films (it has films such as {film}, but the page "
            f"has films such as {expected_film}). Pass a file or folder with the page's films"
        )


def film_of(clip: Clip) -> str:
    """Return the name of a clip's time axis: the film, or the file if a timed clip has no film."""
    if clip.film or clip.start is None:
        return clip.film
    return name_film("", clip.media)


def by_film(clips: Iterable[Clip]) -> dict[str, list[Clip]]:
    """Group clips by their time axis."""
    return group_by(clips, film_of)


def with_distinct_titles(clips: Mapping[str, Clip]) -> dict[str, Clip]:
    """Return the clips with the titles changed so that no two films have the same title."""
    titles = distinct_titles({clip.film: clip.title for clip in clips.values() if clip.film})
    return {key: replace(c, title=titles.get(c.film, c.title)) for key, c in clips.items()}


def is_timed(clips: Sequence[Clip]) -> bool:
    """Return True if every clip has a start and an end."""
    return None not in [clip.start for clip in clips] + [clip.end for clip in clips]


def grid_length(clips: Sequence[Clip]) -> float:
    """Return the length of the clips in seconds if they are on a regular grid, else 0."""
    if not is_timed(clips):
        return 0.0
    length = max((clip.end or 0.0) - (clip.start or 0.0) for clip in clips)
    on_grid = length > 0 and all((clip.start or 0.0) % length == 0 for clip in clips)
    return length if on_grid else 0.0


def clip_noun(clips: Iterable[Clip]) -> str:
    """Return the noun for clips: "minutes" for a grid of 60 seconds, else "clips"."""
    lengths = {grid_length(same) for same in by_film(clips).values()}
    return "minutes" if lengths == {60.0} else "clips"


def level_columns(levels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the code, the name and the colour name of each level."""
    colours = level_colour_names(list(levels))
    return [
        {"code": code, "name": name, "colour": colour}
        for (code, name), colour in zip(levels.items(), colours, strict=True)
    ]


def _film(
    clips: Sequence[Clip], scores: FrameScores, rows: Sequence[int], moments: Sequence[Moment]
) -> dict[str, Any]:
    by_clip: dict[str, list[int]] = {clip.id: [] for clip in clips}
    for row in sorted(rows, key=lambda row: int(scores.starts[row])):
        by_clip.setdefault(scores.ids[row], []).append(row)
    starts, ends = (
        dict(zip(rows, _hundredths(times[rows] / 1e6).tolist(), strict=True))
        for times in (scores.starts, scores.ends)
    )
    timed = {clip.id: clip for clip in clips if clip.start is not None}
    pasted = all(scores.axes[row].clip and scores.ids[row] not in timed for row in rows)
    spans: dict[str, tuple[int, int]] = {}
    offsets: dict[str, int] = {}
    reached = 0
    lengths = [max(map(ends.__getitem__, same)) for same in by_clip.values() if same]
    for clip, of_clip in by_clip.items():
        own_axis = bool(of_clip) and bool(scores.axes[of_clip[0]].clip)
        if pasted:
            length = max(map(ends.__getitem__, of_clip)) if of_clip else int(np.median(lengths))
            spans[clip], offsets[clip] = (reached, reached + length), reached
            reached += length
            continue
        start, end = (timed[clip].start, timed[clip].end) if clip in timed else (None, None)
        if own_axis and start is None:
            continue  # it has no position, but other clips have one
        offsets[clip] = round((start or 0) * 100) if own_axis else 0
        if of_clip:
            low = min(map(starts.__getitem__, of_clip))
            high = max(map(ends.__getitem__, of_clip))
            spans[clip] = low + offsets[clip], high + offsets[clip]
        if start is not None and end is not None:
            spans[clip] = round(start * 100), round(end * 100)
    order = list(spans) if pasted else sorted(spans, key=lambda clip: spans[clip])
    return {
        "pasted": pasted,
        "clips": order,
        "start": [spans[clip][0] for clip in order],
        "end": [spans[clip][1] for clip in order],
        "trained": sum(
            any(scores.seen[row] not in ("", "no") for row in by_clip[clip]) for clip in order
        ),
        "frames": _frames(
            [(spans[clip][0], offsets.get(clip, 0), by_clip[clip]) for clip in order],
            starts, ends, scores,
        ),
        "moments": _moments(moments, offsets),
        "lanes": [],
    }  # fmt: skip


def _frames(
    clips: Sequence[tuple[int, int, list[int]]],
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    scores: FrameScores,
) -> dict[str, list[int]]:
    """Return each clip's number of frames, and each frame's gap, length, probability and loudness.

    The gap is the time since the previous frame of the clip.
    """
    data: dict[str, list[int]] = {"count": [], "gap": [], "length": [], "p": []}
    if scores.loudness is not None:
        order = [row for _, _, rows in clips for row in rows]
        data["loud"] = np.rint(100 * loudness_heights(scores.loudness[order])).astype(int).tolist()
    for start, offset, rows in clips:
        data["count"].append(len(rows))
        reached = start - offset
        for row in rows:
            low, high = starts[row], ends[row]
            data["gap"].append(low - reached)
            data["length"].append(high - low)
            data["p"].append(round(float(scores.probabilities[row]) * 1000))
            reached = high
    return data


def _moments(moments: Sequence[Moment], offsets: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """Return the start, length and score of each moment, in order of time."""
    spans = []
    for moment in moments:
        if moment.axis.clip and moment.axis.clip not in offsets:
            continue
        offset = offsets[moment.axis.clip] if moment.axis.clip else 0
        low, high = (round(seconds * 100) + offset for seconds in (moment.start, moment.end))
        spans.append((low, high - low, round(moment.score * 1000)))
    return sorted(spans)


def _lanes(film: str, timelines: Timelines, concepts: Sequence[str]) -> dict[str, Any]:
    """Return a lane for each annotator of a film, and the end of the annotated part."""
    lanes, codes = [], timelines.scheme.codes
    for annotator, segments in timelines.by_film.get(film, {}).items():
        times = _hundredths(np.array([(s.start, s.end) for s in segments], float).reshape(-1, 2))
        lanes.append(
            {
                "name": timelines.names.get(annotator, annotator),
                "start": times[:, 0].tolist(),
                "length": (times[:, 1] - times[:, 0]).tolist(),
                "level": [codes.index(segment.level) for segment in segments],
                "notes": {at: s.comment for at, s in enumerate(segments) if s.comment},
                "shows": [[concepts.index(name) for name in s.concepts] for s in segments],
            }
        )
    details = timelines.films.get(film)
    return {"lanes": lanes, "until": round((details.end or 0) * 100) if details else 0}


def _hundredths(seconds: Any) -> Any:
    return np.round(np.asarray(seconds) * 100).astype(np.int64)


def video_data(clips: Sequence[Clip], folder: str | Path | None, page: Path) -> dict[str, Any]:
    """Return the URL of each film's file, or else of each clip's file, for the explorer.

    URLs are relative if the files are below the page's folder, so that the page and the files can
    be moved together. ``missing`` names the films without a file.
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
    """Return a file's URL: relative if the file is below the page's folder, else absolute."""
    path, folder = path.resolve(), page.resolve().parent
    if path.is_relative_to(folder):
        return quote(f"./{path.relative_to(folder).as_posix()}")
    return path.as_uri()
