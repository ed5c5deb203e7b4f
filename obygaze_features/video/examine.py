"""What a film is like, and whether it can be extracted, before its features are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones.sampling import Sampling
from obygaze_features.video.decode import Pictures, decode_into
from obygaze_features.video.index import FrameIndex


@dataclass(frozen=True)
class Examination:
    """The properties of a film, or of a span of it.

    Parameters
    ----------
    codec, container
        FFmpeg's names.
    width, height, rotation
        Of the upright pictures, and by how many degrees they were rotated, counter-clockwise.
    frames, fps, seconds, variable_rate
        Of the span; whether some of its frames are shown for longer than others.
    decode_seconds, why_slow
        How long it took to decode the frames that extraction would, and why from the film's start.
    problems
        ``short`` (fewer frames than a backbone takes: some are repeated or missing), ``ends early``
        (the film ends before the span does), ``variable frame rate`` and ``decoded in order``. None
        of them prevents extraction.
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
    index: FrameIndex,
    *,
    start: float | None = None,
    end: float | None = None,
    samplings: Sequence[Sampling],
    tick: Callable[[], None] = lambda: None,
) -> Examination:
    """Decode the frames that extraction would, and describe the film, or its span in seconds.

    `tick` is called at every packet. Raises `VideoError` if its features could not be extracted.
    """
    span = index.span(path, start, end)
    times = index.times[span.start : span.stop]
    picked = [sampling.pick(times) for sampling in samplings]
    numbers = np.unique(np.concatenate([np.zeros(1, np.int32), *picked])) + np.int32(span.start)
    pictures = Pictures(path, numbers)
    begin = time.perf_counter()
    decode_into(pictures, index, tick)
    decode_seconds = time.perf_counter() - begin
    after = index.times[span.stop] if span.stop < len(index) else index.seconds
    seconds = float(after - times[0])
    variable_rate = _is_variable(times)
    problems = {
        "short": any(
            len(set(frames.tolist())) < sampling.frames
            for frames, sampling in zip(picked, samplings, strict=True)
        ),
        "ends early": end is not None and index.seconds < end - 0.5,
        "variable frame rate": variable_rate,
        "decoded in order": index.why_slow is not None,
    }
    _, height, width, _ = pictures.rgb.shape
    return Examination(
        codec=index.codec,
        container=index.container,
        width=width,
        height=height,
        rotation=pictures.rotation,
        frames=len(times),
        fps=len(times) / seconds if seconds else 0.0,
        seconds=seconds,
        variable_rate=variable_rate,
        decode_seconds=decode_seconds,
        why_slow=index.why_slow,
        problems=tuple(name for name, present in problems.items() if present),
    )


def _is_variable(times: NDArray[np.float64]) -> bool:
    """Whether frames are shown for different times, beyond rounding to 1 ms."""
    steps = np.diff(times)
    return len(steps) > 0 and bool(np.ptp(steps) > 0.1 * np.median(steps) + 0.002)
