"""Decode the sound of a film (or a span of it) in mono, at the rates that networks need.

Samples are numbered by the film's clock, which has the same zero as `index.FrameIndex.times`:
sample n is heard at n / rate seconds. FFmpeg trims an encoder's priming samples. If the track has
no sound (before it starts, in a gap, or after its end), samples are silent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer

from obygaze_features.backbones.sound import Excerpts, Samples
from obygaze_features.common.text import counted
from obygaze_features.errors import VideoError
from obygaze_features.video.index import MAX_BEYOND_S, TIMED, open_media

PREROLL_S = 0.5
"""The seconds to decode before a span, because lossy decoders and resamplers need a run-up."""
TAIL_S = 0.1
"""The seconds to decode after a span, which the resampler needs."""
MAX_JITTER_S = 0.02
"""The largest gap, in seconds, that rounded times may leave between consecutive frames."""
SAMPLES_PER_STEP = 1 << 16
"""The number of samples to resample at a time; resampling single frames takes twice as long."""
MIX = {"rematrix_maxval": "1"}
"""An option of FFmpeg that makes channel weights sum to 1, so equal channels stay unchanged."""

MAX_SECONDS = 12 * 3600
"""The duration of the longest clip whose sound is decoded."""
RATES = range(1_000, 1_000_001)
"""The sample rates that a file may have."""
MARGIN_S = 1.0
"""The extra seconds to keep around the last window if only the file's header states the end."""
MAX_READINGS = 3
"""The maximum number of times that a clip is read.

A seek may miss its start, and a header may misstate its end.
"""
COMPUTING_S, COMPUTING_PER_SECOND = 60.0, 0.1
"""The processor time that decoding may take, plus an allowance for each second of sound. Usually,
sound is decoded about a hundred times as fast as it plays.
"""
_TOO_LONG = f"has a clip of more than {MAX_SECONDS // 3600} hours; split it into shorter clips"


Ranges = Sequence[tuple[int, int]]
"""The first sample of each range and the sample after its last, ascending, without overlap."""
Windows = Callable[[int, int], Ranges]
"""A function that takes a rate and a clip's number of samples and returns the ranges to keep."""


@dataclass(frozen=True)
class Sound:
    """The excerpts of a clip at each rate, and a label of the sound track.

    `track` is ``2 of 3 (fra)``, for instance, or "" if the file has a single sound track.
    """

    excerpts: dict[int, Excerpts]
    track: str

    @property
    def samples(self) -> dict[int, Samples]:
        """All samples of the clip at each rate, if nothing was left out."""
        return {rate: excerpt[0 : len(excerpt)] for rate, excerpt in self.excerpts.items()}


def decode_sound(
    path: Path, start: float | None, end: float | None, rates: Collection[int], *,
    track: int | None = None, seconds: float = 0.0, tick: Callable[[], None] = lambda: None,
    windows: Windows = lambda rate, samples: [(0, samples)],
    allocate: Callable[[int], Samples] = lambda samples: np.empty(samples, np.float32),
) -> Sound:  # fmt: skip
    """Decode the sound of a film from `start` to `end`, in seconds (default: the whole film).

    At each rate, the clip has ``round(end * rate) - round(start * rate)`` samples from -1 to 1, or
    all samples if there is no `end`. Raise `VideoError` if the film has no sound, or if most of the
    clip is after the film's end.

    Parameters
    ----------
    track
        The sound track, counted from 1 (default: the track that FFmpeg considers best).
    seconds
        The end of the film's pictures. Sound may be missing up to there.
    tick
        A function that is called at every packet.
    windows
        The parts of the clip to keep (default: all).
    allocate
        A function that returns memory for a number of samples, which will hold all ranges one
        after the other. Later calls may return the same memory.
    """
    begin, until = start or 0.0, math.inf if end is None else end
    if math.inf > until > begin + MAX_SECONDS:
        raise VideoError(path, _TOO_LONG)
    lengths: dict[int, int] = {}
    is_sought = True
    for _ in range(MAX_READINGS):
        with open_media(path) as container:
            stream, label = _choose_track(path, container, track)
            reader = _Reader(path, container, stream, tick)
            last = reader.expected if end is None else end
            guessed = {rate: max(0, round(last * rate) - round(begin * rate)) for rate in rates}
            ranges = {rate: _merge(windows(rate, (lengths or guessed)[rate])) for rate in rates}
            if end is None and not lengths:
                ranges = {rate: _widen(stretches, rate) for rate, stretches in ranges.items()}
            outputs = _make_outputs(ranges, begin, end, allocate)
            if not reader.read(begin, until, [*outputs.values()], is_sought=is_sought):
                is_sought = False
                continue
        _refuse_missing(path, reader, begin, until, seconds)
        excerpts = {rate: output.excerpts() for rate, output in outputs.items()}
        lengths = {rate: len(excerpt) for rate, excerpt in excerpts.items()}
        kept_ranges = {rate: windows(rate, length) for rate, length in lengths.items()}
        if all(excerpts[rate].has(*span) for rate, spans in kept_ranges.items() for span in spans):
            return Sound(excerpts, label)
    raise VideoError(path, "changed while it was being read")


def _refuse_missing(
    path: Path, reader: _Reader, begin: float, until: float, seconds: float
) -> None:
    """Raise if the file has no sound, is cut short, or ends before most of the clip."""
    last, reason = max(reader.reached, seconds), ""
    if reader.reached == -math.inf:
        reason = "has an empty sound track"
    elif reader.ended and reader.is_listed and reader.listed > reader.reached + MAX_BEYOND_S:
        reached, listed = reader.reached, reader.listed
        reason = f"is cut short: its sound ends at {reached:.3f} s of {listed:.3f} s"
    elif begin >= last or math.inf > until > last + max(MAX_BEYOND_S, (until - begin) / 2):
        span = f"{begin:g} s to {until:g} s"
        reason = f": most of the clip ({span}) is after the end of the sound at {last:.3f} s"
    if reason:
        raise VideoError(path, reason)


def _merge(ranges: Ranges) -> list[tuple[int, int]]:
    """Merge ranges that touch or overlap."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return merged


def _widen(ranges: Ranges, rate: int) -> list[tuple[int, int]]:
    """Widen the last range, so that the clip may end up to `MARGIN_S` earlier or later."""
    margin = round(MARGIN_S * rate)
    *others, (first, end) = ranges
    return _merge([*others, (max(0, first - margin), end + margin)])


def _make_outputs(
    ranges: Mapping[int, Ranges], begin: float, end: float | None,
    allocate: Callable[[int], Samples],
) -> dict[int, _Output]:  # fmt: skip
    """Return an output for each rate, each with its own part of one block of zeros in memory."""
    sizes = {rate: sum(end - first for first, end in spans) for rate, spans in ranges.items()}
    memory, used = allocate(max(1, sum(sizes.values()))), 0
    memory[:] = 0
    outputs = {}
    for rate, stretches in ranges.items():
        outputs[rate] = _Output(rate, begin, end, stretches, memory[used : used + sizes[rate]])
        used += sizes[rate]
    return outputs


def _choose_track(
    path: Path, container: InputContainer, number: int | None
) -> tuple[AudioStream, str]:
    """Return the chosen or the best sound track, and its label if there are several tracks."""
    tracks = list(container.streams.audio)
    if len(tracks) < (number or 1):
        reason = f"has {counted(len(tracks), 'sound track')}, so track {number} does not exist"
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
    """A reader of a sound track as runs of consecutive samples."""

    def __init__(
        self, path: Path, container: InputContainer, stream: AudioStream, tick: Callable[[], None]
    ) -> None:
        assert stream.time_base is not None
        self.ended, self.reached, self._began = False, -math.inf, time.process_time()
        self.is_listed = container.format.name == TIMED[0]
        self._path, self._container, self._stream, self._tick = path, container, stream, tick
        self._unit = float(stream.time_base)
        is_avi = container.format.name == "avi"
        self._zero = 0.0 if is_avi else (container.start_time or 0) / av.time_base
        self.listed = self.time((stream.start_time or 0) + (stream.duration or 0))
        """The end of the sound according to the file's header."""
        expected_s = self.listed if stream.duration else (container.duration or 0) / av.time_base
        self.expected = min(expected_s, MAX_SECONDS)
        self._grid: tuple[int, int] | None = None
        """The first sample of a frame and its length, if all frames have the same length."""

    def time(self, pts: int) -> float:
        """Convert a time in the file to seconds on the film's clock."""
        return pts * self._unit - self._zero

    def read(
        self, begin: float, until: float, outputs: Sequence[_Output], *, is_sought: bool
    ) -> bool:
        """Read from `begin` to `until` into `outputs`; return False if a seek missed the start."""
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
            self._refuse_absurd(rate, position / rate, begin, until)
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

    def _refuse_absurd(self, rate: int, second: float, begin: float, until: float) -> None:
        """Raise if the sound would take more memory or time to decode than any real film's."""
        if rate not in RATES:
            bounds = f"{RATES[0]:,} to {RATES[-1]:,}"
            reason = f"has sound with {rate:,} samples per second; only {bounds} are supported"
            raise VideoError(self._path, reason)
        if until == math.inf and second > begin + MAX_SECONDS:
            raise VideoError(self._path, _TOO_LONG)

    def _beat(self) -> None:
        """Call `tick`, and raise if decoding takes far longer than for any real film."""
        self._tick()
        allowed = COMPUTING_S + COMPUTING_PER_SECOND * max(0.0, self.reached)
        if time.process_time() - self._began > allowed:
            reason = f"was given up: its sound took more than {allowed:.0f} s to decode"
            raise VideoError(self._path, reason)

    def _measure_frames(self) -> None:
        """Find the samples at which frames start, if the file's clock is coarser than a sample.

        After a seek, the clock alone would place frames up to a millisecond off. Most codecs have
        frames of equal length.
        """
        if self._unit * self._stream.codec_context.sample_rate > 1:
            # Damage does not matter here, because these frames are not used.
            frames = self._place(self._frames(-math.inf, math.nan))
            _, (position, frame) = next(frames, None), next(frames, (0, None))
            self._grid = (position, frame.samples) if frame else None

    def _frames(self, since: float, begin: float) -> Iterator[AudioFrame]:
        """Yield frames, starting at the packet before `since`; raise if any after `begin` is lost.

        Losses at the end of the file are allowed, because the file may be cut short.
        """
        held, damaged = None, -math.inf
        for packet in self._container.demux(self._stream):
            self._beat()
            if packet.pts is not None and self.time(packet.pts) < since:
                self.reached = max(self.reached, self.time(packet.pts + (packet.duration or 0)))
                held = packet
                continue
            for due in [held, packet] if held else [packet]:
                try:
                    frames = due.decode()
                except MemoryError:  # may also come from FFmpeg: the worker's limit, not damage
                    raise
                except av.FFmpegError:
                    damaged = begin if due.pts is None else self.time(due.pts)
                    continue
                if frames and begin <= damaged:
                    reason = f"has damaged sound at {damaged:.3f} s, which cannot"
                    raise VideoError(self._path, f"{reason} be decoded")
                yield from frames
            held = None

    def _place(self, frames: Iterator[AudioFrame]) -> Iterator[tuple[int, AudioFrame]]:
        """Yield the number of each frame's first sample, and the frame."""
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
    """Mix a frame to mono and pass it to the outputs; None ends the current run."""
    for piece in [*mixer.resample(frame), *([] if frame else [None])]:
        for output in outputs:
            output.add(piece)


class _Output:
    """The samples of a clip at one rate in the ranges to keep; zero until they are added."""

    def __init__(
        self, rate: int, begin: float, end: float | None, ranges: Ranges, memory: Samples
    ) -> None:
        self._rate, self._low = rate, round(begin * rate)
        self._high = None if end is None else round(end * rate)
        self._pieces: list[tuple[int, Samples]] = []
        used = 0
        for first, last in ranges:
            self._pieces.append((first, memory[used : used + last - first]))
            used += last - first
        self._resampler, self._first, self._next = av.AudioResampler(), 0, 0
        self._reached = self._low

    def start(self, position: int, source: int) -> None:
        """Start a run, given the number of its first sample and its rate."""
        # Start at a sample that both rates share, so that numbers correspond to times.
        silence = position % (source // math.gcd(source, self._rate))
        self._next = (position - silence) * self._rate // source
        self._first = max(self._low, self._next + math.ceil(silence * self._rate / source))
        self._resampler = av.AudioResampler("flt", "mono", self._rate)
        if silence:
            frame = av.AudioFrame.from_ndarray(np.zeros((1, silence), "f4"), "flt", "mono")
            frame.sample_rate = source
            self.add(frame)

    def add(self, frame: AudioFrame | None) -> None:
        """Add the next samples of the run; None ends the run."""
        for resampled in self._resampler.resample(frame):
            first, end = max(self._first, self._next), self._next + resampled.samples
            last = end if self._high is None else min(end, self._high)
            if first < last:
                samples = resampled.to_ndarray()[0, first - self._next : last - self._next]
                self._keep(first - self._low, np.asarray(samples, np.float32))
                self._reached = max(self._reached, last)
            self._next = end

    def _keep(self, first: int, samples: Samples) -> None:
        """Copy the samples that are in the ranges to keep; `first` is the first sample's number."""
        for at, piece in self._pieces:
            begin, end = max(at, first), min(at + len(piece), first + len(samples))
            if begin < end:
                piece[begin - at : end - at] = samples[begin - first : end - first]

    def excerpts(self) -> Excerpts:
        """Return the samples that were kept, with silence after the end of the sound."""
        length = (self._reached if self._high is None else self._high) - self._low
        return Excerpts(length, self._pieces)
