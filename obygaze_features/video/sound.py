"""The sound of a film or of a span of it: mono, at the rates that networks take.

Samples are numbered by the film's clock, whose zero is that of `index.FrameIndex.times`: the n-th
at a rate is heard at n / rate seconds. FFmpeg trims what an encoder put before the first sample.
Where the track has no sound (before it starts, in a gap, after its end) there is silence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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
FRAMES_PER_STEP = 32
"""Frames that are mixed and resampled together."""
MIX = {"rematrix_maxval": "1"}
"""FFmpeg's weights of channels, made to sum to 1: the same sound in all channels stays as it is."""

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Sound:
    """A span's samples, ``[S]`` for each rate; and the `track`, ``2 of 3 (fra)``, of several."""

    samples: dict[int, Samples]
    track: str


def decode_sound(
    path: Path,
    start: float | None,
    end: float | None,
    rates: Sequence[int],
    *,
    track: int | None = None,
    seconds: float = 0.0,
    tick: Callable[[], None] = lambda: None,
) -> Sound:
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
            cut = _Cut(path, container, stream, begin, until, rates)
            if cut.decode(tick, is_sought=is_sought):
                break
    if cut.ended:
        is_cut_short = container.format.name == TIMED[0] and cut.listed > cut.reached + MAX_BEYOND_S
        last = max(cut.reached, seconds)
        if is_cut_short:
            reason = f"is cut short: its sound ends at {cut.reached:.3f} s of {cut.listed:.3f} s"
        elif cut.reached == -math.inf:
            reason = "has an empty sound track"
        elif begin >= last:
            reason = f": there is no sound from {begin:g} s on; it ends at {last:.3f} s"
        elif end is not None and end - last > max(MAX_BEYOND_S, (end - begin) / 2):
            reason = f": most of the clip ({begin:g} s to {end:g} s) is after its end, {last:.3f} s"
        else:
            reason = ""
        if reason:
            raise VideoError(path, reason)
    return Sound({output.rate: output.span(begin, end) for output in cut.outputs}, label)


def _choose_track(
    path: Path, container: InputContainer, number: int | None
) -> tuple[AudioStream, str]:
    """The sound track of this number, from 1, or the default one; its name, if it is not alone."""
    tracks = list(container.streams.audio)
    if not tracks:
        raise VideoError(path, "has no sound track")
    if number is not None and number > len(tracks):
        raise VideoError(path, f"has {counted(len(tracks), 'sound track')}, so none is {number}")
    best = container.streams.best("audio")
    stream = tracks[number - 1] if number else best if best in tracks else tracks[0]
    assert isinstance(stream, AudioStream)
    if stream.codec_context is None:
        raise VideoError(path, "has sound that cannot be decoded: FFmpeg does not know its codec")
    stream.codec_context.thread_count = 1
    language = f" ({stream.language})" if stream.language else ""
    label = f"{tracks.index(stream) + 1} of {len(tracks)}{language}"
    return stream, label if len(tracks) > 1 else ""


class _Cut:
    """The span from `begin` to `until` of a track, decoded into `outputs`."""

    def __init__(
        self,
        path: Path,
        container: InputContainer,
        stream: AudioStream,
        begin: float,
        until: float,
        rates: Sequence[int],
    ) -> None:
        assert stream.time_base is not None
        self.outputs = [_Output(rate) for rate in rates]
        self.ended, self.reached = False, -math.inf
        self._path, self._container, self._stream = path, container, stream
        self._begin, self._until = begin, until
        self._unit = float(stream.time_base)
        zero = 0 if container.format.name == "avi" else container.start_time or 0
        self._zero = zero / av.time_base
        self.listed = self._time((stream.start_time or 0) + (stream.duration or 0))
        self._pending: list[tuple[NDArray[Any], tuple[int, str, str]]] = []
        self._grid: tuple[int, int] | None = None
        """Of frames of one length: where one starts, and the length."""

    def decode(self, tick: Callable[[], None], *, is_sought: bool) -> bool:
        """Decode the span; false if a seek missed its beginning, so that it is to be read to."""
        since = self._begin - PREROLL_S
        if is_sought := is_sought and since > 0:
            try:
                self._measure_frames(tick)
                target = math.floor((since + self._zero) / self._unit)
                self._container.seek(target, stream=self._stream)
            except av.FFmpegError:
                return False
        run, expected = None, 0
        for position, frame in self._place(self._frames(since, tick)):
            rate = frame.sample_rate
            if is_sought and position > since * rate:
                return False
            is_sought = False
            self.reached = max(self.reached, (position + frame.samples) / rate)
            if position >= (self._until + TAIL_S) * rate:
                break
            this = rate, frame.format.name, frame.layout.name
            if (this, position) != (run, expected):
                self._end_run()
                self._mixer = av.AudioResampler("flt", "mono", rate, options=MIX)
                for output in self.outputs:
                    output.begin(position, rate)
            run, expected = this, position + frame.samples
            self._pending.append((frame.to_ndarray(), this))
            if len(self._pending) == FRAMES_PER_STEP:
                self._mix()
        else:
            self.ended = True
        self._end_run()
        return not is_sought

    def _mix(self) -> None:
        """Give the outputs the frames that wait, as one: a frame a time costs twice as much."""
        if self._pending:
            rate, name, layout = self._pending[0][1]
            samples = np.concatenate([values for values, _ in self._pending], axis=1)
            frame = av.AudioFrame.from_ndarray(samples, format=name, layout=layout)
            frame.sample_rate = rate
            for mixed in self._mixer.resample(frame):
                for output in self.outputs:
                    output.put(mixed.to_ndarray()[0])
            self._pending.clear()

    def _end_run(self) -> None:
        self._mix()
        for output in self.outputs:
            output.end()

    def _time(self, pts: int) -> float:
        return pts * self._unit - self._zero

    def _measure_frames(self, tick: Callable[[], None]) -> None:
        """Where frames start, if the file's clock is coarser than a sample: after a seek, the clock
        alone would put them up to a millisecond away. Most codecs have frames of one length.
        """
        frames = self._place(self._frames(-math.inf, tick))
        if self._unit * self._stream.codec_context.sample_rate > 1:
            _, (position, frame) = next(frames, None), next(frames, (0, None))
            if frame:
                self._grid = position, frame.samples

    def _frames(self, since: float, tick: Callable[[], None]) -> Iterator[AudioFrame]:
        """The frames from the packet before a time on."""
        held, damaged = None, -math.inf
        for packet in self._container.demux(self._stream):
            tick()
            if packet.pts is not None and self._time(packet.pts) < since:
                self.reached = max(self.reached, self._time(packet.pts + (packet.duration or 0)))
                held = packet
                continue
            for due in [held, packet] if held else [packet]:
                try:
                    frames = due.decode()
                except av.FFmpegError:  # at the end of a file it is cut short, which may be
                    damaged = self._begin if due.pts is None else self._time(due.pts)
                    continue
                if frames and self._begin <= damaged:
                    reason = f"has sound that cannot be decoded at {damaged:.3f} s; it is damaged"
                    raise VideoError(self._path, f"{reason} there")
                yield from frames
            held = None

    def _place(self, frames: Iterator[AudioFrame]) -> Iterator[tuple[int, AudioFrame]]:
        """Each frame with the number of its first sample."""
        expected, rate, is_anchored = 0.0, 0, False
        for frame in frames:
            if rate and rate != frame.sample_rate:
                expected *= frame.sample_rate / rate
            rate = frame.sample_rate
            if frame.pts is not None:
                sample, tick = self._time(frame.pts) * rate, self._unit * rate
                if not is_anchored or abs(sample - expected) > MAX_JITTER_S * rate:
                    expected, is_anchored = sample, True
                    if self._grid:
                        first, length = self._grid
                        on_grid = first + round((sample - first) / length) * length
                        is_anchored = frame.samples == length
                        if is_anchored and abs(on_grid - sample) <= tick + 1:
                            expected = on_grid
            expected = round(expected)
            yield expected, frame
            expected += frame.samples


class _Output:
    """The sound at one rate, in runs without a gap, each with the number of its first sample."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._runs: list[tuple[int, list[Samples]]] = []
        self._resampler: av.AudioResampler | None = None

    def begin(self, position: int, rate: int) -> None:
        """Start a run whose first sample has this number at its own rate."""
        self._from = rate
        self._resampler = av.AudioResampler("flt", "mono", self.rate)
        # From a sample on that both rates have, so that all have their numbers' times.
        divisor = math.gcd(rate, self.rate)
        silence = position % (rate // divisor)
        first = (position - silence) * self.rate // rate
        self._runs.append((first, []))
        if silence:
            self.put(np.zeros(silence, np.float32))

    def put(self, samples: Samples) -> None:
        """Add samples of the run's own rate."""
        frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
        frame.sample_rate = self._from
        self._resample(frame)

    def end(self) -> None:
        """End a run, if there is one."""
        self._resample(None)
        self._resampler = None

    def _resample(self, frame: AudioFrame | None) -> None:
        for resampled in self._resampler.resample(frame) if self._resampler else ():
            if resampled:  # None, where nothing is to be resampled
                self._runs[-1][1].append(resampled.to_ndarray()[0])

    def span(self, begin: float, end: float | None) -> Samples:
        """The samples of a span, silent where there are none."""
        runs = [(first, np.concatenate(pieces)) for first, pieces in self._runs if pieces]
        low = round(begin * self.rate)
        high = max([low, *(first + len(run) for first, run in runs)])
        if end is not None:
            high = round(end * self.rate)
        samples = np.zeros(high - low, np.float32)
        for first, run in runs:
            cut = run[max(0, low - first) : max(0, high - first)]
            offset = max(0, first - low)
            samples[offset : offset + len(cut)] = cut
        return samples
