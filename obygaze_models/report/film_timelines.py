"""The explorer's time axis of a film: clips, frames, moments and annotators' segments on it.

Where the clips' positions in the film are unknown, the clips follow each other in scene order.
Times are whole hundredths of a second, probabilities whole thousandths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features import Timelines
from obygaze_features.common.figures import level_colour_names
from obygaze_features.common.text import shorten
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.manifests import LabelSet
from obygaze_models.experiments.run_folder import Clip
from obygaze_models.explain.frame_scores import FrameScores, name_film
from obygaze_models.explain.moments import Moment, Moments
from obygaze_models.report.runs import ReportRun

MAX_LABEL_SETS = 6
"""So many lanes of annotators a film has at most."""


def film_timelines(
    clips: Sequence[Clip],
    frames: Path | None,
    moments: Path | None = None,
    timelines: Path | None = None,
) -> dict[str, Any]:
    """The time axis of each film that has frames or segments, and what all of them refer to.

    Parameters
    ----------
    clips
        The page's clips, film by film, in scene order.
    frames, moments
        Tables of ``obygaze models moments``.
    timelines
        A folder of annotators' segments.
    """
    scores: FrameScores | None = None
    intervals: Sequence[Moment] = []
    if moments is not None and frames is None:
        raise UsageError(
            "moments are shown with the probabilities of frames; give these too: "
            "--frames frames.csv"
        )
    if frames is not None:
        if moments is None:
            scores = FrameScores.from_csv(frames)
        else:
            tables = Moments.from_csv(moments, frames)
            scores, intervals = tables.frames, tables.moments
    annotated = None if timelines is None else Timelines.load(timelines)
    if scores is None and annotated is None:
        return {"films": {}}
    of_film: dict[str, list[Clip]] = {}
    for clip in clips:
        of_film.setdefault(film_of(clip), []).append(clip)
    rows: dict[str, list[int]] = {}
    for row, axis in enumerate(scores.axes if scores else ()):
        rows.setdefault(axis.film, []).append(row)
    if scores is not None and not rows.keys() & of_film.keys():
        raise _no_film(frames, rows, of_film)
    if annotated is not None and not annotated.by_film.keys() & of_film.keys():
        raise _no_film(timelines, annotated.by_film, of_film)
    by_film: dict[str, dict[str, Any]] = {}
    for film, same_film in of_film.items():
        own = [moment for moment in intervals if moment.axis.film == film]
        if scores is not None and film in rows:
            by_film[film] = _film(same_film, scores, rows[film], own)
        elif annotated is not None and film in annotated.by_film:
            by_film[film] = {"pasted": any(clip.start is None for clip in same_film)}
        if annotated is not None and film in by_film:
            by_film[film] |= _lanes(film, annotated, placed=not by_film[film]["pasted"])
    data: dict[str, Any] = {"films": by_film}
    if annotated is not None:
        data |= {
            "levels": level_columns(annotated.scheme.name_of),
            "concepts": sorted({name for s in annotated.segments for name in s.concepts}),
        }
    return data


def film_of(clip: Clip) -> str:
    """The film whose time axis a clip is on; of spans without a film's name, that of their file."""
    return clip.film if clip.start is None else name_film(clip.film, clip.media)


def other_label_sets(run: ReportRun) -> list[LabelSet]:
    """The label sets of the manifest's single annotators, but for the one that the run learned.

    None where the manifest is not at hand, or is another one by now.
    """
    if run.manifest is None:
        return []
    names = [name for name in run.manifest.label_names if name != run.record.manifest.labels]
    own = [labels for labels in map(run.manifest.labels, names) if labels.is_annotators_own]
    return own[:MAX_LABEL_SETS]


def level_columns(levels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Code, name and the name of the page's colour of each level."""
    colours = level_colour_names(list(levels))
    return [
        {"code": code, "name": name, "colour": colour}
        for (code, name), colour in zip(levels.items(), colours, strict=True)
    ]


def _no_film(path: Path | None, films: Mapping[str, Any], expected: Mapping[str, Any]) -> Exception:
    film, expected_film = (shorten(next(iter(names), "")) for names in (films, expected))
    return ExperimentError(
        f"{path} has no film of these runs (it has films such as {film}, the runs such as "
        f"{expected_film}); give the file of these films"
    )


def _film(
    clips: Sequence[Clip], scores: FrameScores, rows: Sequence[int], moments: Sequence[Moment]
) -> dict[str, Any]:
    by_clip: dict[str, list[int]] = {clip.id: [] for clip in clips}
    for row in rows:
        by_clip.setdefault(scores.ids[row], []).append(row)
    for of_clip in by_clip.values():
        of_clip.sort(key=lambda row: int(scores.starts[row]))
    starts, ends = (_hundredths(times / 1e6) for times in (scores.starts, scores.ends))
    timed = {clip.id: clip for clip in clips if clip.start is not None}
    pasted = all(scores.axes[row].clip and scores.ids[row] not in timed for row in rows)
    spans: dict[str, tuple[int, int]] = {}
    offsets: dict[str, int] = {}
    reached = 0
    lengths = [int(ends[of_clip].max()) for of_clip in by_clip.values() if of_clip]
    for clip, of_clip in by_clip.items():
        own_axis = bool(of_clip) and bool(scores.axes[of_clip[0]].clip)
        if pasted:
            length = int(ends[of_clip].max()) if of_clip else int(np.median(lengths))
            spans[clip], offsets[clip] = (reached, reached + length), reached
            reached += length
            continue
        start, end = (timed[clip].start, timed[clip].end) if clip in timed else (None, None)
        if own_axis and start is None:
            continue  # it has no place among clips that have
        offsets[clip] = round((start or 0) * 100) if own_axis else 0
        if of_clip:
            low, high = int(starts[of_clip].min()), int(ends[of_clip].max())
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
    clips: Sequence[tuple[int, int, list[int]]], starts: Any, ends: Any, scores: FrameScores
) -> dict[str, list[int]]:
    """How many frames each clip has; of each frame how long after the last it starts, and lasts."""
    gaps, lengths, chances = [], [], []
    for start, offset, rows in clips:
        reached = start - offset
        for row in rows:
            low, high = int(starts[row]), int(ends[row])
            gaps.append(low - reached)
            lengths.append(high - low)
            chances.append(round(float(scores.probabilities[row]) * 1000))
            reached = high
    counts = [len(rows) for _, _, rows in clips]
    return {"count": counts, "gap": gaps, "length": lengths, "p": chances}


def _moments(moments: Sequence[Moment], offsets: Mapping[str, int]) -> dict[str, list[int]]:
    spans = []
    for moment in moments:
        if moment.axis.clip and moment.axis.clip not in offsets:
            continue
        offset = offsets[moment.axis.clip] if moment.axis.clip else 0
        low, high = (round(seconds * 100) + offset for seconds in (moment.start, moment.end))
        spans.append((low, high - low, round(moment.score * 1000)))
    spans.sort()
    return {
        name: [span[number] for span in spans]
        for number, name in enumerate(("start", "length", "score"))
    }


def _lanes(film: str, timelines: Timelines, *, placed: bool) -> dict[str, Any]:
    """A lane for each annotator of a film; none where the film's time is not on the axis."""
    by_annotator = timelines.by_film.get(film, {}) if placed else {}
    codes = timelines.scheme.codes
    concepts = sorted({name for s in timelines.segments for name in s.concepts})

    def lane(annotator: str, segments: Sequence[Any]) -> dict[str, Any]:
        starts, ends = (
            _hundredths(np.array([getattr(segment, name) for segment in segments], float))
            for name in ("start", "end")
        )
        return {
            "name": timelines.names.get(annotator, annotator),
            "start": starts.tolist(),
            "length": (ends - starts).tolist(),
            "level": [codes.index(segment.level) for segment in segments],
            "shows": [[concepts.index(name) for name in s.concepts] for s in segments],
        }

    lanes = [lane(annotator, segments) for annotator, segments in by_annotator.items()]
    details = timelines.films.get(film)
    return {"lanes": lanes, "until": round((details.end or 0) * 100) if details and placed else 0}


def _hundredths(seconds: Any) -> Any:
    return np.round(np.asarray(seconds) * 100).astype(np.int64)
