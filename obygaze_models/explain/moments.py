"""Moments: the intervals that a frame-level model rates as positive.

Frames and moments are tables, with times in seconds of a film, or of a clip whose position in its
film is unknown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pandas as pd

from obygaze_features.common.arrays import Array
from obygaze_features.common.formatting import counted
from obygaze_features.common.tables import format_spreadsheet
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.items.items import format_seconds, name_film
from obygaze_features.manifests import Item, Items
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_models.data.run_warning import unique_warnings
from obygaze_models.saved.about import CLIP, FILM, NO
from obygaze_models.saved.predict import FramePredictions

FRAMES = [
    "film", "id", "start", "end", "probability", "time_in", "seen_in_training", "threshold",
    "media", "loudness",
]  # fmt: skip
"""The columns of the table of frames; `loudness` is left out if it is unknown."""
AXIS = ["film", "own_clip"]
"""The columns of a time axis: a film, and a clip if its position in the film is unknown."""
STATES = (NO, FILM, CLIP)
"""The degrees to which a model may have seen a clip, from least to most."""
MAX_OUTSIDE_S = 1.0
"""The maximum time by which all frames of a clip may be outside the clip's span."""
ROUNDING_S = 1e-3
"""The longest gap between clips that touch, because their times are rounded."""
EPSILON = 1e-6
"""Times that differ by less are equal, as are probabilities within the square of `EPSILON`."""


def average_frames(predictions: Sequence[FramePredictions]) -> FramePredictions:
    """Average each clip's frame probabilities over the models that predict it, and sort by id.

    A clip's threshold is the mean over the models that predict it, because another model's
    threshold may have been chosen on the clip's labels. A clip counts as seen if any of these
    models has seen it.
    """
    clips = np.concatenate([part.ids for part in predictions])
    ids, first, rows, counts = np.unique(
        clips,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )

    def average(values: Sequence[Array]) -> Array:
        total = np.zeros((len(ids), *values[0].shape[1:]))
        np.add.at(total, rows, np.concatenate(values))
        return (total.T / counts).T

    seen = np.zeros(len(ids), dtype=np.intp)
    states = chain.from_iterable(part.seen for part in predictions)
    np.maximum.at(seen, rows, list(map(STATES.index, states)))
    times = np.concatenate([part.times for part in predictions])
    loudness = np.concatenate([part.loudness for part in predictions])
    warnings = chain.from_iterable(part.warnings for part in predictions)
    return replace(
        predictions[0],
        ids=ids.tolist(),
        times=times[first],
        probabilities=average([part.probabilities for part in predictions]),
        threshold=average([part.threshold for part in predictions]),
        seen=[STATES[code] for code in seen.tolist()],
        warnings=unique_warnings(warnings),
        loudness=loudness[first],
    )


def frame_table(predictions: FramePredictions, items: Items) -> pd.DataFrame:
    """Return a row for each frame: its film, clip, time span, probability and threshold.

    A frame's span reaches halfway to the previous and the next frame, or to the clip's ends. Frames
    of a clip that have the same time are averaged. With more than two classes, the probability is
    that of the last class.

    Parameters
    ----------
    predictions
        The result of `predict_frames`.
    items
        The items of the store, with each clip's film, start and end.
    """
    probabilities = predictions.probabilities
    if probabilities.ndim == 3:
        probabilities = probabilities[..., -1]
    present = ~np.isnan(predictions.times) & ~np.isnan(probabilities)
    clips_of = Counter(map(name_film, items.films, items.media))
    rows = []
    for row in np.flatnonzero(present.any(axis=1)).tolist():
        clip = predictions.ids[row]
        item = items[items.row(clip)]
        film = name_film(item.film, item.media)
        if item.start is None and film and clips_of[film] == 1:
            item = replace(item, start=0.0)  # the clip is the whole film
        time_in = "film"
        if item.start is None:
            film = item.film
            time_in = "clip"
        about = time_in, predictions.seen[row], float(predictions.threshold[row]), item.media

        is_present = present[row]
        times, same = np.unique(predictions.times[row][is_present], return_inverse=True)
        spans = pairwise(_edges(times, item).tolist())
        values = _average(probabilities[row][is_present], same)
        loudness = _average(predictions.loudness[row][is_present], same)
        for (start, end), value, loud in zip(spans, values, loudness, strict=True):
            if end > start:
                rows.append((film, clip, start, end, value, *about, loud))
    if not rows:
        raise ExperimentError(
            f"no frame of {counted(len(predictions.ids), 'clip')} has a time and a probability. "
            "Extract the clips again: obygaze features extract"
        )
    frames = pd.DataFrame(rows, columns=FRAMES)
    if frames["loudness"].isna().all():
        del frames["loudness"]
    _require_one_file(frames)
    return frames


def _require_one_file(frames: pd.DataFrame) -> None:
    """Raise `ExperimentError` if the times of a film's frames are from several files."""
    placed = frames[frames["time_in"] == "film"]
    for film, media in placed.groupby("film")["media"].unique().items():
        if len(media) > 1:
            raise ExperimentError(
                f"film {film}: the clips are from different files, whose times cannot be compared "
                f"({media[0] or 'none'}, {media[1] or 'none'}). Give each file its own film"
            )


def _average(values: Array, groups: Array) -> Array:
    return np.bincount(groups, values) / np.bincount(groups)


def _edges(times: Array, item: Item) -> Array:
    """Return the borders of the spans of frames at these times.

    If the clip's start or end is unknown, the first or last span is symmetric about its frame (but
    starts no earlier than 0).
    """
    low = -math.inf if item.start is None else item.start
    high = math.inf if item.end is None else item.end
    if times[-1] < low - MAX_OUTSIDE_S or times[0] > high + MAX_OUTSIDE_S:
        raise ExperimentError(
            f"clip {item.id}: the frames (at {times[0]:g} to {times[-1]:g} s) are outside the "
            f"clip's span ({low:g} to {high:g} s). Count frame_time from the start of the film's "
            "file"
        )
    middles = (times[1:] + times[:-1]) / 2
    steps = np.diff(times).tolist() or [1.0]
    if item.start is None:
        low = max(0.0, times[0] - steps[0] / 2)
    if item.end is None:
        high = times[-1] + steps[-1] / 2
    return np.asarray(np.clip([low, *middles, high], low, high).round(6))


def find_moments(
    frames: pd.DataFrame,
    *,
    threshold: float | None = None,
    min_length: float = 2.0,
    close_gaps: float = 5.0,
) -> pd.DataFrame:
    """Return a row for each interval in which frames reach a threshold.

    ``score`` is the mean probability in the interval. ``clips`` are the clips that show it, and
    ``seen_in_training`` is "clip" if the fit of the model used any of these clips.

    Parameters
    ----------
    frames
        The result of `frame_table`.
    threshold
        A probability; by default, the model's threshold. In a run, each clip has the mean threshold
        of the models that were tested on it.
    min_length
        The minimum length of an interval, in seconds, after gaps are closed.
    close_gaps
        A length in seconds. Shorter gaps that clips cover are closed if each frame in them reaches
        the mean of the threshold and the film's median, or if they are shorter than a frame.
    """
    if threshold is not None and not 0 <= threshold <= 1:
        raise UsageError(f"the threshold must be a probability from 0 to 1 (got {threshold:g})")
    frames = _reaching(frames, threshold)
    frames["length"] = frames["end"] - frames["start"]
    by_axis = frames.groupby(AXIS, sort=False)
    middle = (by_axis["probability"].transform("median") + frames["threshold"]) / 2
    is_low = (frames["probability"] < middle) & ~frames["reaches"]
    frames["lows"] = is_low.cumsum()
    frames["stretch"] = (~(frames["start"] - frames["covered"] <= ROUNDING_S)).cumsum()
    frames["step"] = by_axis["length"].transform("median")

    high = frames[frames["reaches"]]
    of_stretch = high.groupby("stretch", sort=False)
    last_end = of_stretch["end"].cummax().groupby(high["stretch"]).shift()
    gaps = high["start"] - last_end
    without_low = high["lows"] == of_stretch["lows"].shift()
    is_bridged = without_low & (gaps < close_gaps - EPSILON)
    is_joined = (gaps <= ROUNDING_S) | (gaps < high["step"] - EPSILON) | is_bridged
    spans = high.groupby((~is_joined).cumsum()).agg(
        film=("film", "first"),
        own_clip=("own_clip", "first"),
        start=("start", "min"),
        end=("end", "max"),
    )
    spans = spans[spans["end"] - spans["start"] >= min_length - EPSILON]
    rows = []
    for axis, group in spans.groupby(AXIS, sort=False):
        rows += _describe(by_axis.get_group(axis), group)
    columns = ["film", "start", "end", "score", "clips", "time_in", "seen_in_training", "media"]
    return pd.DataFrame(rows, columns=columns)


def _reaching(frames: pd.DataFrame, threshold: float | None) -> pd.DataFrame:
    """Return the frames in order of time axis and time, with new columns.

    ``reaches`` is True if the frame reaches its threshold, and ``covered`` is the latest end of an
    earlier frame of the axis.
    """
    frames = frames.assign(own_clip=frames["id"].where(frames["time_in"] == "clip", ""))
    if threshold is not None:
        frames["threshold"] = threshold
    frames["reaches"] = frames["probability"] >= frames["threshold"] - EPSILON**2
    frames = frames.sort_values([*AXIS, "start"], ignore_index=True)
    axes = [frames[name] for name in AXIS]
    reached = frames.groupby(axes)["end"].cummax()
    frames["covered"] = reached.groupby(axes).shift()
    return frames


def _describe(frames: pd.DataFrame, spans: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of the moments of a time axis that has these frames."""
    columns = {name: frames[name].to_numpy() for name in frames}
    shared = {name: columns[name][0] for name in ("film", "time_in", "media")}
    rows = []
    for start, end in spans[["start", "end"]].to_numpy().tolist():
        begins = np.maximum(columns["start"], start)
        seconds = np.minimum(columns["end"], end) - begins
        inside = seconds > 0
        scores = columns["probability"][inside]
        clips = columns["id"][inside]
        states = columns["seen_in_training"][inside]
        row = {
            "start": start,
            "end": end,
            "score": np.average(scores, weights=seconds[inside]),
            "clips": SEPARATOR.join(dict.fromkeys(clips)),
            "seen_in_training": max(states, key=STATES.index),
        }
        rows.append(shared | row)
    return rows


def moment_shares(
    frames: pd.DataFrame,
    moments: pd.DataFrame,
    threshold: float | None = None,
) -> pd.DataFrame:
    """Return how many moments each film has, and their share of the time that its clips cover.

    ``above`` is the share of frames that reach the threshold. Clips with neither a film nor a
    position in one are counted together.
    """
    frames = _reaching(frames, threshold)
    begins = frames["start"].clip(lower=frames["covered"].fillna(0))
    new = frames["end"] - begins
    totals = new.clip(lower=0).groupby(frames["film"]).sum()
    in_moments = (moments["end"] - moments["start"]).groupby(moments["film"]).sum()
    counts = moments.groupby("film").size()
    table = pd.DataFrame({"moments": counts.reindex(totals.index)})
    table["covered"] = in_moments / totals
    by_film = frames.groupby("film")
    table["above"] = by_film["reaches"].mean()
    table["threshold"] = by_film["threshold"].mean()
    return table.fillna(0).astype({"moments": int}).reset_index()


def format_times(table: pd.DataFrame) -> str:
    """Return a table of frames or moments as CSV, without ``threshold`` and ``media``."""
    forms = {
        "start": format_seconds,
        "end": format_seconds,
        "loudness": lambda value: "" if math.isnan(value) else f"{value:.1f}",
    }
    columns = {}
    for name in table.columns.drop(["threshold", "media"], errors="ignore"):
        columns[name] = map(forms.get(name, str), table[name].tolist())
    return format_spreadsheet(columns)
