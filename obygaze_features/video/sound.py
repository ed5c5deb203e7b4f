"""The sound of a film or of a span of it: mono, at the rates that networks take.

Samples are numbered by the film's clock, whose zero is that of `index.FrameIndex.times`: the n-th
at a rate is heard at n / rate seconds. FFmpeg trims what an encoder put before the first sample.
Where the track has no sound (before it starts, in a gap, after its end) there is silence.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from numpy.typing import NDArray

from obygaze_features.common.text import counted
from obygaze_features.errors import VideoError
from obygaze_features.video.index import MAX_BEYOND_S, TIMED, open_media

PREROLL_S = 0.5
"""Decoded before a span: lossy decoders and resamplers need some sound to get going."""
TAIL_S = 0.1
"""Decoded after it, for the resampler."""
MAX_JITTER_S = 0.02
"""Clocks of files are rounded: a frame that starts this near the end of the last one follows it."""
SAMPLES_PER_STEP = 1 << 16
"""Resampled together: a frame a time costs twice as much."""
MIX = {"rematrix_maxval": "1"}
"""FFmpeg's weights of channels, made to sum to 1: the same sound in all channels stays as it is."""

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Sound:
    """A span's samples, ``[S]`` for each rate; and the `track`, ``2 of 3 (fra)``, of several."""

    samples: dict[int, Samples]
    track: str


def decode_sound(
    path: Path, start: float | None, end: float | None, rates: Collection[int], *,
    track: int | None = None, seconds: float = 0.0, tick: Callable[[], None] = lambda: None,
) -> Sound:  # fmt: skip
    """Decode the sound of a film from `start` to `end`, in seconds; all of it by default.

    At each rate these are ``round(end * rate) - round(start * rate)`` samples from -1 to 1; without
    an end as many as there are. Raises `VideoError` if there is no sound, or most of the clip is
    after the film's end.

    Parameters
    ----------
    track
        The number of a sound track, from 1; by default the one that the file calls its default, or
        that FFmpeg takes for the best.
    seconds
        When the film's pictures end: up to there the sound may be missing.
    tick
        Called at every packet.
    """
    begin, until = start or 0.0, math.inf if end is None else end
    for is_sought in (True, False):
        with open_media(path) as container:
            stream, label = _choose_track(path, container, track)
            outputs = {rate: _Output(rate, begin, end) for rate in rates}
            reader = _Reader(path, container, stream, tick)
            listed = reader.time((stream.start_time or 0) + (stream.duration or 0))
            is_listed = container.format.name == TIMED[0]
            if reader.read(begin, until, [*outputs.values()], is_sought=is_sought):
                break
    last, reason = max(reader.reached, seconds), ""
    if reader.reached == -math.inf:
        reason = "has an empty sound track"
    elif reader.ended and is_listed and listed > reader.reached + MAX_BEYOND_S:
        reason = f"is cut short: its sound ends at {reader.reached:.3f} s of {listed:.3f} s"
    elif begin >= last or math.inf > until > last + max(MAX_BEYOND_S, (until - begin) / 2):
        span = f"{begin:g} s to {until:g} s"
        reason = f": its sound ends at {last:.3f} s, and most of the clip is after that ({span})"
    if reason:
        raise VideoError(path, reason)
    return Sound({rate: output.span() for rate, output in outputs.items()}, label)


def _choose_track(
    path: Path, container: InputContainer, number: int | None
) -> tuple[AudioStream, str]:
    """The sound track of this number, from 1, or the default one; its name, if it is not alone."""
    tracks = list(container.streams.audio)
    if len(tracks) < (number or 1):
        reason = f"has {counted(len(tracks), 'sound track')}, so there is no track {number}"
        raise VideoError(path, reason if tracks else "has no sound track")
    best: Any = container.streams.best("audio")
    stream = tracks[number - 1] if number else best or tracks[0]
    if stream.codec_context is None:
        raise VideoError(path, "has sound that cannot be decoded: FFmpeg does not know its codec")
    stream.codec_context.thread_count = 1
    language = f" ({stream.language})" if stream.language else ""
    label = f"{tracks.index(stream) + 1} of {len(tracks)}{language}"
    return stream, label if len(tracks) > 1 else ""


class _Reader:
    """Reads runs of samples of a sound track, each without a gap."""

    def __init__(
        self, path: Path, container: InputContainer, stream: AudioStream, tick: Callable[[], None]
    ) -> None:
        assert stream.time_base is not None
        self.ended, self.reached = False, -math.inf
        self._path, self._container, self._stream, self._tick = path, container, stream, tick
        self._unit = float(stream.time_base)
        is_avi = container.format.name == "avi"
        self._zero = 0.0 if is_avi else (container.start_time or 0) / av.time_base
        self._grid: tuple[int, int] | None = None
        """Of frames of one length: where one starts, and the length."""

    def time(self, pts: int) -> float:
        """Return a time of the file in seconds of the film's clock."""
        return pts * self._unit - self._zero

    def read(
        self, begin: float, until: float, outputs: Sequence[_Output], *, is_sought: bool
    ) -> bool:
        """Read from `begin` to `until` into `outputs`; false if a seek missed the beginning."""
        since = begin - PREROLL_S
        if is_sought := is_sought and since > 0:
            try:
                self._measure_frames()
                target = math.floor((since + self._zero) / self._unit)
                self._container.seek(target, stream=self._stream)
            except av.FFmpegError:
                return False
        run, expected, mixer = None, 0, av.AudioResampler()
        for position, frame in self._place(self._frames(since, begin)):
            rate = frame.sample_rate
            if is_sought and position > since * rate:
                return False
            is_sought = False
            self.reached = max(self.reached, (position + frame.samples) / rate)
            if position >= (until + TAIL_S) * rate:
                break
            this = rate, frame.format.name, frame.layout.name
            if (this, position) != (run, expected):
                _mix(mixer, None, outputs)
                mixer = av.AudioResampler("flt", "mono", rate, SAMPLES_PER_STEP, options=MIX)
                for output in outputs:
                    output.start(position, rate)
            run, expected = this, position + frame.samples
            _mix(mixer, frame, outputs)
        else:
            self.ended = True
        _mix(mixer, None, outputs)
        return not is_sought

    def _measure_frames(self) -> None:
        """Where frames start, if the file's clock is coarser than a sample: after a seek, the clock
        alone would put them up to a millisecond away. Most codecs have frames of one length.
        """
        if self._unit * self._stream.codec_context.sample_rate > 1:
            # No damage counts: nothing of this is heard.
            frames = self._place(self._frames(-math.inf, math.nan))
            _, (position, frame) = next(frames, None), next(frames, (0, None))
            self._grid = (position, frame.samples) if frame else None

    def _frames(self, since: float, begin: float) -> Iterator[AudioFrame]:
        """The frames from the packet before a time on; `VideoError` if any after `begin` is lost.

        But at the end of the file: it may be cut short.
        """
        held, damaged = None, -math.inf
        for packet in self._container.demux(self._stream):
            self._tick()
            if packet.pts is not None and self.time(packet.pts) < since:
                self.reached = max(self.reached, self.time(packet.pts + (packet.duration or 0)))
                held = packet
                continue
            for due in [held, packet] if held else [packet]:
                try:
                    frames = due.decode()
                except av.FFmpegError:
                    damaged = begin if due.pts is None else self.time(due.pts)
                    continue
                if frames and begin <= damaged:
                    reason = f"has sound that cannot be decoded at {damaged:.3f} s; it is damaged"
                    raise VideoError(self._path, f"{reason} there")
                yield from frames
            held = None

    def _place(self, frames: Iterator[AudioFrame]) -> Iterator[tuple[int, AudioFrame]]:
        """Each frame with the number of its first sample."""
        expected, rate, is_anchored = 0.0, 0, False
        for frame in frames:
            expected *= frame.sample_rate / (rate or 1)
            rate = frame.sample_rate
            if frame.pts is not None:
                sample = self.time(frame.pts) * rate
                if not is_anchored or abs(sample - expected) > MAX_JITTER_S * rate:
                    expected, (first, length) = sample, self._grid or (0, 0)
                    is_anchored = length in (0, frame.samples)
                    if length and is_anchored:
                        on_grid = first + round((sample - first) / length) * length
                        near = abs(on_grid - sample) <= self._unit * rate + 1
                        expected = on_grid if near else sample
            expected = round(expected)
            yield expected, frame
            expected += frame.samples


def _mix(mixer: av.AudioResampler, frame: AudioFrame | None, outputs: Sequence[_Output]) -> None:
    """Return a frame, mixed, to the outputs; or None, which ends the run if there is one."""
    for piece in [*mixer.resample(frame), *([] if frame else [None])]:
        for output in outputs:
            output.add(piece)


class _Output:
    """The samples of a span at a rate, silent where there are none."""

    def __init__(self, rate: int, begin: float, end: float | None) -> None:
        self._rate, self._low = rate, round(begin * rate)
        self._high = None if end is None else round(end * rate)
        self._placed: deque[tuple[int, Samples]] = deque()
        self._resampler, self._first, self._next = av.AudioResampler(), 0, 0

    def start(self, position: int, source: int) -> None:
        """Start a run by the number of its first sample and its rate."""
        # From a sample on that both rates have, so that all have their numbers' times.
        silence = position % (source // math.gcd(source, self._rate))
        self._next = (position - silence) * self._rate // source
        self._first = max(self._low, self._next + math.ceil(silence * self._rate / source))
        self._resampler = av.AudioResampler("flt", "mono", self._rate)
        if silence:
            frame = av.AudioFrame.from_ndarray(np.zeros((1, silence), "f4"), "flt", "mono")
            frame.sample_rate = source
            self.add(frame)

    def add(self, frame: AudioFrame | None) -> None:
        """Add what follows in the run; None ends it."""
        for resampled in self._resampler.resample(frame):
            first, end = max(self._first, self._next), self._next + resampled.samples
            last = end if self._high is None else min(end, self._high)
            if first < last:
                part = resampled.to_ndarray()[0, first - self._next : last - self._next]
                self._placed.append((first, part.astype(np.float32)))
            self._next = end

    def span(self) -> Samples:
        """All of it; what was kept for this is freed."""
        ends = (first + len(part) for first, part in self._placed)
        high = max([self._low, *ends]) if self._high is None else self._high
        span = np.zeros(high - self._low, np.float32)
        while self._placed:
            first, part = self._placed.popleft()
            span[first - self._low :][: len(part)] = part
        return span
