"""Decode the sound of a film (or a span of it) in mono, at the rate that a network needs.

Samples are numbered by the film's clock, which has the same zero as `index.FrameIndex.times`:
sample n is heard at n / rate seconds. FFmpeg trims an encoder's priming samples. Where the
track has no sound (before it starts, in a gap, or after its end), samples are silent.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer

from obygaze_features.common.formatting import counted
from obygaze_features.errors import VideoError
from obygaze_features.sampling import Samples
from obygaze_features.video.index import MAX_BEYOND_S, TIMED, Tick, decode_packet, open_media

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

MAX_SECONDS = 3600
"""The duration of the longest clip whose sound is decoded."""
RATES = range(1_000, 1_000_001)
"""The sample rates that a file may have."""


def decode_sound(
    path: Path,
    start: float | None,
    end: float | None,
    rate: int,
    *,
    track: int | None = None,
    seconds: float = 0.0,
    tick: Tick = lambda: None,
) -> tuple[Samples, str]:
    """Decode the sound of a film from `start` to `end`, in seconds (default: the whole film).

    Return the samples and a label of the sound track, such as ``2 of 3 (fra)``, or "" if the file
    has a single sound track.

    The clip has ``round(end * rate) - round(start * rate)`` samples, or all samples if there is no
    `end`; full scale is 1. Raise `VideoError` if the film has no sound, or if the clip is longer
    than `MAX_SECONDS`, or begins after the film's end, or is mostly (and by more than
    `MAX_BEYOND_S`) after the film's end.

    Parameters
    ----------
    track
        The sound track, counted from 1 (default: the track that FFmpeg considers best).
    seconds
        The end of the film's pictures. Sound may be missing up to there.
    tick
        A function that is called at every packet.
    """
    begin = start or 0.0
    low = round(begin * rate)
    until = math.inf
    high = sys.maxsize
    if end is not None:
        until = end
        high = round(end * rate)
        if end > begin + MAX_SECONDS:
            _refuse_long(path)
    for is_sought in (True, False):
        pieces: list[tuple[int, Samples]] = []
        with open_media(path) as container:
            stream, label = _choose_track(path, container, track)
            reader = _Reader(path, container, stream, tick)
            frames = reader.read(begin, until, is_sought=is_sought)
            for _, run in groupby(frames, key=itemgetter(0)):
                pieces += _resample(run, rate, low, high)
        if not reader.missed:
            break
    reader.check(begin, until, seconds)

    if end is None:
        high = max((first + len(piece) for first, piece in pieces), default=low)
    samples = np.zeros(high - low, np.float32)
    for first, piece in pieces:
        samples[first - low :][: len(piece)] = piece
    return samples, label


def _refuse_long(path: Path) -> None:
    raise VideoError(path, "has a clip of more than 1 hour; split it into shorter clips")


def _choose_track(
    path: Path,
    container: InputContainer,
    number: int | None,
) -> tuple[AudioStream, str]:
    """Return the chosen or the best sound track, and its label if there are several tracks."""
    tracks = list(container.streams.audio)
    if not tracks:
        raise VideoError(path, "has no sound track")
    if number and number > len(tracks):
        raise VideoError(
            path, f"has {counted(len(tracks), 'sound track')}, so track {number} does not exist"
        )
    stream: Any = container.streams.best("audio") or tracks[0]
    if number:
        stream = tracks[number - 1]
    if stream.codec_context is None:
        raise VideoError(
            path,
            "has sound that cannot be decoded: FFmpeg does not know its codec; convert it to MP4",
        )
    stream.codec_context.thread_count = 1
    if len(tracks) == 1:
        return stream, ""
    label = f"{tracks.index(stream) + 1} of {len(tracks)}"
    if stream.language:
        label += f" ({stream.language})"
    return stream, label


class _Reader:
    """A reader of the frames of a sound track.

    `reached` is the end of the sound that was read, and `listed` is the end according to the header
    of a container whose header can be trusted. `missed` is true if a seek missed the start.
    """

    def __init__(
        self,
        path: Path,
        container: InputContainer,
        stream: AudioStream,
        tick: Tick,
    ) -> None:
        assert stream.time_base is not None
        self._path = path
        self._container = container
        self._stream = stream
        self._tick = tick
        self._unit = float(stream.time_base)
        self._zero = (container.start_time or 0) / av.time_base
        if container.format.name == "avi":
            self._zero = 0.0
        self._grid: tuple[int, int] | None = None
        """The first sample of a frame and its length, if all frames have the same length."""
        self.reached = -math.inf
        self.missed = False
        self.listed = -math.inf
        if container.format.name == TIMED[0]:
            self.listed = self.time((stream.start_time or 0) + (stream.duration or 0))

    def time(self, pts: int) -> float:
        """Convert a time in the file to seconds on the film's clock."""
        return pts * self._unit - self._zero

    def read(
        self,
        begin: float,
        until: float,
        *,
        is_sought: bool,
    ) -> Iterator[tuple[Hashable, int, AudioFrame]]:
        """Yield the frames from shortly before `begin` to shortly after `until`.

        Each comes with its run, which is equal for consecutive frames without a gap, and with the
        number of its first sample.
        """
        since = begin - PREROLL_S
        self.missed = is_sought and since > 0
        if self.missed:
            try:
                self._measure_frames()
                target = math.floor((since + self._zero) / self._unit)
                self._container.seek(target, stream=self._stream)
            except av.FFmpegError:
                return

        count = 0
        for position, frame in self._place(self._frames(since, begin)):
            rate = frame.sample_rate
            if until == math.inf and position > (begin + MAX_SECONDS) * rate:
                _refuse_long(self._path)
            if self.missed and position > since * rate:
                return
            self.missed = False
            self.reached = max(self.reached, (position + frame.samples) / rate)
            if position >= (until + TAIL_S) * rate:
                return
            run = (rate, frame.format.name, frame.layout.name, position - count)
            yield run, position, frame
            count += frame.samples

    def check(self, begin: float, until: float, seconds: float) -> None:
        """Raise if the file has no sound, is cut short, or ends before most of the clip."""
        if self.reached == -math.inf:
            raise VideoError(self._path, "has an empty sound track")
        if self.reached < min(until + TAIL_S, self.listed - MAX_BEYOND_S):
            ends = f"its sound ends at {self.reached:.3f} s of {self.listed:.3f} s"
            raise VideoError(self._path, f"is cut short: {ends}")
        last = max(self.reached, seconds)
        if begin >= last or until > last + max(MAX_BEYOND_S, (until - begin) / 2):
            raise VideoError(
                self._path,
                f": most of the clip ({begin:g} s to {until:g} s) is after the end of the film "
                f"at {last:.3f} s",
            )

    def _measure_frames(self) -> None:
        """Find the samples at which frames start, if the file's clock is coarser than a sample.

        After a seek, the clock alone would place frames up to a millisecond off. Most codecs have
        frames of equal length.
        """
        if self._unit * self._stream.codec_context.sample_rate > 1:
            # Damage does not matter here, because these frames are not used.
            frames = self._place(self._frames(-math.inf, math.nan))
            next(frames, None)
            second = next(frames, None)
            if second is not None:
                position, frame = second
                self._grid = (position, frame.samples)

    def _frames(self, since: float, begin: float) -> Iterator[AudioFrame]:
        """Yield frames, starting at the packet before `since`; raise if any after `begin` is lost.

        Losses at the end of the file are allowed, because the file may be cut short.
        """
        held = []
        damaged = -math.inf
        for packet in self._container.demux(self._stream):
            self._tick()
            if packet.pts is not None and self.time(packet.pts) < since:
                self.reached = max(self.reached, self.time(packet.pts + (packet.duration or 0)))
                held = [packet]
                continue
            for due in [*held, packet]:
                frames = decode_packet(self._stream, due)
                if frames is None:
                    damaged = begin if due.pts is None else self.time(due.pts)
                elif frames and begin <= damaged:
                    raise VideoError(
                        self._path, f"has damaged sound at {damaged:.3f} s, which cannot be decoded"
                    )
                yield from frames or []
            held = []

    def _place(self, frames: Iterator[AudioFrame]) -> Iterator[tuple[int, AudioFrame]]:
        """Yield the number of each frame's first sample, and the frame."""
        expected = 0.0
        rate = 0
        is_anchored = False
        for frame in frames:
            expected *= frame.sample_rate / (rate or 1)
            rate = frame.sample_rate
            if rate not in RATES:
                raise VideoError(
                    self._path,
                    f"has sound with {rate:,} samples per second; only {RATES[0]:,} to "
                    f"{RATES[-1]:,} are supported",
                )
            if frame.pts is not None:
                sample = self.time(frame.pts) * rate
                if not is_anchored or abs(sample - expected) > MAX_JITTER_S * rate:
                    expected = sample
                    first, length = self._grid or (0, 0)
                    is_anchored = length in (0, frame.samples)
                    if length and is_anchored:
                        on_grid = first + round((sample - first) / length) * length
                        if abs(on_grid - sample) <= self._unit * rate + 1:
                            expected = on_grid
            position = round(expected)
            yield position, frame
            expected = position + frame.samples


def _resample(
    run: Iterator[tuple[Hashable, int, AudioFrame]],
    rate: int,
    low: int,
    high: int,
) -> Iterator[tuple[int, Samples]]:
    """Mix a run of frames to mono and resample it; yield its samples from `low` to `high`.

    They come in pieces, each with the number of its first sample.
    """
    _, position, frame = next(run)
    source = frame.sample_rate
    # Start at a sample that both rates share, so that numbers correspond to times.
    silence = position % (source // math.gcd(source, rate))
    number = (position - silence) * rate // source
    low = max(low, number + math.ceil(silence * rate / source))

    mixer = av.AudioResampler("flt", "mono", source, SAMPLES_PER_STEP, options=MIX)
    frames = chain([frame], map(itemgetter(2), run), [None])
    mixed = chain.from_iterable(map(mixer.resample, frames))
    if silence:
        padding = av.AudioFrame.from_ndarray(np.zeros((1, silence), "f4"), "flt", "mono")
        padding.sample_rate = source
        mixed = chain([padding], mixed)
    resampler = av.AudioResampler("flt", "mono", rate)
    for resampled in chain.from_iterable(map(resampler.resample, chain(mixed, [None]))):
        samples = resampled.to_ndarray()[0, max(0, low - number) : max(0, high - number)]
        yield max(number, low), np.asarray(samples, np.float32)
        number += resampled.samples
