"""Sound: samples of a span against the written signal."""

from pathlib import Path

import av
import numpy as np
import pytest

from obygaze_features.errors import VideoError
from obygaze_features.video.index import index_file
from obygaze_features.video.sound import decode_sound
from tests.kit.films import copy_packets, ffmpeg_cut, write, write_sound

RATE = 48_000
NOISE = np.random.default_rng(3).integers(-20_000, 20_000, 6 * RATE) / 32_768


def cut(path: Path, start: float | None, end: float | None, rate: int = RATE, **rest):
    return decode_sound(path, start, end, rate, **rest)[0]


def part(signal: np.ndarray, start: float | None, end: float | None, rate: int = RATE):
    """Return the samples of a span, with silence after the signal's end."""
    first = round((start or 0) * rate)
    last = len(signal) if end is None else round(end * rate)
    silence = max(0, last - len(signal))
    padded = np.pad(signal, (0, silence))
    return padded[first:last].astype(np.float32)


FILES = {
    "pcm.wav": ("pcm_s16le", 44_100),
    "flac.mkv": ("flac", 44_100),  # whose clock counts milliseconds
    "aac.mp4": ("aac", 44_100),
    "mp3.mp3": ("libmp3lame", 44_100),
    "opus.ogg": ("libopus", 48_000),
    "flac.mp4": ("flac", 48_000),
    "pcm.mov": ("pcm_s16le", 48_000),
}


@pytest.mark.parametrize("name", FILES)
def test_a_span_has_the_samples_written_there(tmp_path, name):
    """FFmpeg cuts the same samples. AAC, MP3 and Opus encoders prepend some samples."""
    codec, rate = FILES[name]
    seconds = np.arange(5 * rate) / rate
    is_lossless = codec in ("pcm_s16le", "flac")
    turns = 300 * seconds + 120 * seconds**2
    sweep = 0.4 * np.sin(2 * np.pi * turns)
    fading = sweep * np.minimum(1, 4 * (5 - seconds))  # the AAC decoder invents noise at an edge
    signal = np.round(fading * 32_768) / 32_768
    pictures = 5 * name.endswith((".mov", ".mkv", ".mp4"))
    path = write_sound(tmp_path / name, codec, signal, rate=rate, pictures=pictures)
    for start, end in [(None, 1.0), (1.234567, 3.21), (2.4, 2.41), (2.0, None), (4.5, 5.4)]:
        for own_rate in (rate, 16_000):
            samples = cut(path, start, end, own_rate)
            cut_by_ffmpeg = ffmpeg_cut(path, own_rate, start, end)
            samples = samples[: len(cut_by_ffmpeg)]
            near = (0 if own_rate == rate else 1e-6) if is_lossless else 1e-3
            np.testing.assert_allclose(samples[:-32], cut_by_ffmpeg[:-32], atol=near)
        written = part(signal, start, end, rate)
        middle = slice(2_000, -2_000)
        heard = cut(path, start, end, rate)
        if is_lossless:
            np.testing.assert_array_equal(heard, written)
        elif start == 1.234567:
            differences = [np.abs(heard - np.roll(written, by)) for by in (-1, 0, 1)]
            early, right, late = (own[middle].mean() for own in differences)
            assert right < min(early, late, 0.03)


def test_late_starts_and_gaps_are_silent(tmp_path):
    """Matroska counts milliseconds, but is exact after a gap of whole frames."""
    for name, codec, gap in (("late.mp4", "flac", 36_000), ("late.mkv", "pcm_s16le", 36 * 1024)):
        signal = NOISE[: 4608 * 60]
        before = 4608 * 20
        later = [(0, 1.5), (before / RATE, gap / RATE)]
        path = write_sound(tmp_path / name, codec, signal, pictures=11, later=later)
        parts = [np.zeros(72_000), signal[:before], np.zeros(gap), signal[before:]]
        heard = np.concatenate(parts)
        seconds = index_file(path).seconds
        for start, end in [(0, 1), (1, 3), (3.3, 4.3), (3.5, 6), (6, 10.9)]:
            sound = cut(path, start, end, seconds=seconds)
            np.testing.assert_array_equal(sound, part(heard, start, end))


def test_rate_and_channels_may_change_midway(tmp_path):
    """In television recordings a stereo film may follow a mono one, at another rate."""
    turns = 440 * np.arange(140 * 1024) / RATE
    tone = 0.4 * np.sin(2 * np.pi * turns)
    first = write_sound(tmp_path / "first.ts", "aac", tone, rate=48_000)
    twice = np.stack([tone[: 3 * 44_100]] * 2, 1)  # at a lower pitch
    joined = tmp_path / "both.ts"
    copy_packets(
        [first, write_sound(tmp_path / "2.ts", "aac", twice, rate=44_100)], joined, kind="audio"
    )
    joint = len(cut(first, None, None)) / RATE
    spans = [cut(path, joint - 0.1, joint, 16_000) for path in (first, joined)]
    np.testing.assert_array_equal(*spans)
    for start, pitch in ((1.0, 440), (4.0, 440 * 44_100 / RATE)):
        sound = cut(joined, start, start + 1, 16_000)
        assert len(sound) == 16_000
        assert np.abs(np.fft.rfft(sound)).argmax() == round(pitch)


def test_tracks_are_chosen_and_channels_count_alike(tmp_path):
    quiet = NOISE[:RATE] / 4
    loud = NOISE[:RATE].astype(np.float32)
    path = write_sound(tmp_path / "two.mkv", "flac", quiet, loud, pictures=1)
    default, second = (decode_sound(path, 0, 1, RATE, track=track) for track in (None, 2))
    assert (default[1], second[1]) == ("1 of 2 (fra)", "2 of 2 (deu)")
    np.testing.assert_allclose(default[0], quiet, atol=1e-4)
    np.testing.assert_array_equal(second[0], loud)
    with pytest.raises(VideoError, match=r"two.mkv has 2 sound tracks, so track 3 does not exist"):
        cut(path, 0, 1, track=3)
    left = np.stack([loud, 0 * loud], 1)
    stereo = write_sound(tmp_path / "sides.flac", "flac", left)
    np.testing.assert_allclose(cut(stereo, 0, 1), loud / 2, atol=1e-6)


def write_part(path: Path, codec: str, **settings) -> Path:
    source = write_sound(path, codec, NOISE, **settings)
    source.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    return source


def test_unusable_sound_is_named(tmp_path):
    """Damage matters where sound is read, but not in the first packets, which measure frames."""
    packets = write_sound(tmp_path / "packets.mkv", "flac", NOISE)
    lossless = tmp_path / "x.m4a"
    with av.open(packets) as container:
        first = bytes(next(container.demux(audio=0)))
    packets.write_bytes(packets.read_bytes().replace(first, bytes(len(first))))
    np.testing.assert_array_equal(cut(packets, 5, 6), part(NOISE, 5, 6))
    data = write_sound(lossless, "alac", NOISE).read_bytes()
    middle = len(data) // 2
    lossless.write_bytes(data[:middle] + bytes(40_000) + data[middle + 40_000 :])
    assert len(cut(lossless, 0, 2)) == 2 * RATE
    half = write_part(tmp_path / "half.mp4", "aac", pictures=6, options={"movflags": "faststart"})
    silent = write(tmp_path / "x264.mp4")
    empty = write_sound(tmp_path / "no.mkv", "aac", NOISE[:0], pictures=1)
    for path, start, reason in (
        (silent, None, "x264.mp4 has no sound track"),
        (half, None, "half.mp4 is cut short: its sound ends at"),
        (empty, 0, "an empty sound track"),
        (packets, 0, r"has damaged sound at 0.000 s"),
        (lossless, 2, r"has damaged sound at 3.\d+ s"),
    ):
        with pytest.raises(VideoError, match=reason):
            cut(path, start, None)
