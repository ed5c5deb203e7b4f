"""Looking at a film before its features are extracted: what it is like, and if it can be used."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones.sampling import Sampling
from obygaze_features.errors import VideoError
from obygaze_features.video.decode import decode_into
from obygaze_features.video.index import index_file
from obygaze_features.video.pictures import Pictures

__all__ = ["Examination", "examine"]


@dataclass(frozen=True)
class Examination:
    """What a film, or a span of one, turned out to be.

    Parameters
    ----------
    codec, container
        By FFmpeg's names.
    width, height
        Of the upright pictures.
    rotation
        By how many degrees the stored ones are turned for that, counter-clockwise.
    frames, fps, seconds
        Of the span.
    variable_rate
        Whether some frames are shown for longer than others.
    decode_seconds
        How long it took to decode the frames that extraction would.
    why_slow
        Why they were decoded in order from the start, if they were.
    problems
        ``short`` (fewer frames than a backbone wants, so that some are seen twice or missing),
        ``ends early`` (the film ends before the span does),
        ``variable frame rate`` and ``decoded in order``: all of them can be lived with.
    """

    codec: str
    container: str
    width: int
    height: int
    rotation: int
    frames: int
    fps: float
    seconds: float
    variable_rate: bool
    decode_seconds: float
    why_slow: str | None
    problems: tuple[str, ...]


def examine(
    path: Path,
    *,
    start: float | None = None,
    end: float | None = None,
    samplings: Sequence[Sampling],
    tick: Callable[[], None] | None = None,
    cache: Path | None = None,
) -> Examination:
    """Decode what extraction would, and say what the film is like.

    Parameters
    ----------
    path
        The film.
    start, end
        The span in seconds; by default all of it.
    samplings
        Which frames the backbones want.
    tick
        Called at every packet.
    cache
        See `index_file`.

    Raises
    ------
    VideoError
        Where its features could not be extracted.
    """
    index = index_file(path, cache=cache, tick=tick)
    try:
        span = index.span(start, end)
    except VideoError as problem:
        raise VideoError(f"{path}: {problem}") from None
    times = index.times[span.start : span.stop]
    picked = [sampling.pick(times) for sampling in samplings]
    wanted = np.unique(np.concatenate([np.zeros(1, np.int32), *picked])) + np.int32(span.start)
    pictures = Pictures(path, wanted, None)
    begin = time.perf_counter()
    decode_into(pictures, index, wanted, tick or (lambda: None))
    decode_seconds = time.perf_counter() - begin
    after = index.times[span.stop] if span.stop < len(index) else index.seconds
    seconds = float(after - times[0])
    uneven = _uneven(times)
    found = {
        "short": any(
            len(set(one.tolist())) < rule.frames
            for one, rule in zip(picked, samplings, strict=True)
        ),
        "ends early": end is not None and index.seconds < end - 0.5,
        "variable frame rate": uneven,
        "decoded in order": index.why_slow is not None,
    }
    _, height, width, _ = pictures.rgb.shape
    return Examination(
        codec=index.codec,
        container=index.container,
        width=width,
        height=height,
        rotation=pictures.turned,
        frames=len(times),
        fps=len(times) / seconds if seconds else 0.0,
        seconds=seconds,
        variable_rate=uneven,
        decode_seconds=decode_seconds,
        why_slow=index.why_slow,
        problems=tuple(name for name, there in found.items() if there),
    )


def _uneven(times: NDArray[np.float64]) -> bool:
    """Whether frames are shown for different times, beyond what rounding to 1 ms does."""
    steps = np.diff(times)
    return len(steps) > 0 and bool(np.ptp(steps) > 0.1 * np.median(steps) + 0.002)
