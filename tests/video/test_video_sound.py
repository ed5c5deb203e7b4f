"""Sound: a span's samples are those of its times, against the signal that was written."""

import contextlib
import tracemalloc
import wave
from pathlib import Path

import av
import av.filter
import numpy as np
import pytest

from obygaze_features.errors import VideoError
from obygaze_features.video.index import index_file
from obygaze_features.video.sound import decode_sound
from tests.kit.films import copy_packets, everything_heard, write, write_sound

RATE = 48_000
NOISE = np.random.default_rng(3).integers(-20_000, 20_000, 9 * 48_000) / 32_768
SPANS = [(None, 1.0), (1.234567, 3.21), (4.4, 4.41), (5.0, None), (8.5, 9.4)]


def cut(path: Path, start: float | None, end: float | None, rate: int = RATE, **rest):
    return decode_sound(path, start, end, [rate], **rest).samples[rate]


def part(signal: np.ndarray, start: float | None, end: float | None, rate: int = RATE):
    """The samples of a span, and silence after the signal's end."""
    first, last = round((start or 0) * rate), len(signal) if end is None else round(end * rate)
    return np.pad(signal, (0, max(0, last - len(signal))))[first:last].astype(np.float32)


@pytest.mark.parametrize(("name", "codec", "rate"), [
    ("pcm.wav", "pcm_s16le", 44_100),
    ("pcm.mov", "pcm_s16le", 48_000),
    ("flac.flac", "flac", 44_100),
    ("flac.mkv", "flac", 44_100),  # whose clock counts milliseconds
    ("flac.mp4", "flac", 48_000),
])  # fmt: skip
def test_samples_kept_without_loss_are_exact(tmp_path, name, codec, rate):
    signal, ticks = NOISE[: 9 * rate], []
    path = write_sound(tmp_path / name, codec, signal, rate=rate, pictures=9 * ("m" in name[-3:]))
    slow = everything_heard(path, 16_000)
    for start, end in SPANS:
        sound = decode_sound(path, start, end, [rate, 16_000], tick=lambda: ticks.append(1))
        np.testing.assert_array_equal(sound.samples[rate], part(signal, start, end, rate))
        expected = part(slow, start, end, 16_000)
        assert len(sound.samples[16_000]) == len(expected)
        np.testing.assert_allclose(sound.samples[16_000][:-32], expected[:-32], atol=1e-6)
    assert (sound.track, bool(ticks)) == ("", True)


@pytest.mark.parametrize(("name", "codec", "rate"), [
    ("aac.mp4", "aac", 44_100),
    ("aac.mkv", "aac", 48_000),
    ("mp3.mp3", "libmp3lame", 44_100),
    ("opus.ogg", "libopus", 48_000),
    ("opus.webm", "libopus", 48_000),
])  # fmt: skip
def test_lossy_sound_is_where_it_was(tmp_path, name, codec, rate):
    """Encoders put some of it first to get going (AAC, MP3, Opus); a seek starts anywhere."""
    seconds = np.arange(9 * rate) / rate
    signal = 0.4 * np.sin(2 * np.pi * (300 * seconds + 120 * seconds**2))
    is_webm = name.endswith((".mp3", ".ogg", ".webm"))
    path = write_sound(tmp_path / name, codec, signal, rate=rate, pictures=0 if is_webm else 9)
    whole = cut(path, None, None, rate)
    for start, end in [(0.1, 1.0), (1.234567, 3.21), (6.5, 8.5)]:
        first, sound = round(start * rate), cut(path, start, end, rate)
        np.testing.assert_allclose(sound, whole[first : round(end * rate)], atol=1e-3)
        middle = slice(2_000, len(sound) - 2_000)
        lags = [*range(-1_400, 1_400, 7), -1, 1]  # and 0
        shifted = (signal[first + lag :][middle] for lag in lags)
        errors = [np.abs(sound[middle] - there).mean() for there in shifted]
        assert lags[int(np.argmin(errors))] == 0
        assert min(errors) < 0.03


def test_late_starts_and_gaps_are_silent(tmp_path):
    """The clock of Matroska counts milliseconds: after a gap of whole frames it tells samples."""
    for name, codec, gap in (("late.mp4", "flac", 36_000), ("late.mkv", "pcm_s16le", 36 * 1024)):
        signal, before = NOISE[: 4608 * 60], 4608 * 20
        later = [(0, 1.5), (before / RATE, gap / RATE)]
        path = write_sound(tmp_path / name, codec, signal, pictures=11, later=later)
        silences = np.zeros(72_000), np.zeros(gap)
        heard = np.concatenate([silences[0], signal[:before], silences[1], signal[before:]])
        seconds = index_file(path).seconds
        for start, end in [(0, 1), (1, 3), (3.3, 4.3), (3.5, 6), (6, 10.9)]:
            sound = cut(path, start, end, seconds=seconds)
            np.testing.assert_array_equal(sound, part(heard, start, end))


def test_a_rate_and_channels_that_change_midway(tmp_path):
    """As in a recording of television: a stereo film after a mono one, at another rate."""
    tone = 0.4 * np.sin(2 * np.pi * 440 * np.arange(140 * 1024) / RATE)
    first = write_sound(tmp_path / "first.ts", "aac", tone, rate=48_000)
    twice = np.stack([tone[: 3 * 44_100]] * 2, 1)  # at a lower pitch
    second = write_sound(tmp_path / "second.ts", "aac", twice, rate=44_100)
    both = tmp_path / "both.ts"
    copy_packets([first, second], both, kind="audio")
    joint = len(cut(first, None, None)) / RATE
    for rate in (16_000, 48_000):
        alone = cut(first, joint - 0.1, joint, rate)
        assert np.sqrt(2 * np.mean(alone[-rate // 100 :] ** 2)) > 0.2
        np.testing.assert_array_equal(cut(both, joint - 0.1, joint, rate), alone)
        for start, pitch in ((1.0, 440), (4.0, 440 * 44_100 / RATE)):
            sound = cut(both, start, start + 1, rate)
            spectrum = np.abs(np.fft.rfft(sound))
            assert (len(sound), spectrum.argmax()) == (rate, round(pitch))
            assert np.sqrt(2 * np.mean(sound**2)) == pytest.approx(0.4, rel=0.02)


def test_tracks_are_chosen_and_channels_count_alike(tmp_path):
    """Also where a file does not name its channels."""
    quiet, loud = NOISE[:RATE] / 4, NOISE[:RATE].astype(np.float32)
    path = write_sound(tmp_path / "two.mkv", "flac", quiet, loud, pictures=1)
    default = decode_sound(path, 0, 1, [RATE])
    second = decode_sound(path, 0, 1, [RATE], track=2)
    assert (default.track, second.track) == ("1 of 2 (fra)", "2 of 2 (deu)")
    np.testing.assert_allclose(default.samples[RATE], quiet, atol=1e-4)
    np.testing.assert_array_equal(second.samples[RATE], loud)
    with pytest.raises(VideoError, match=r"two.mkv has 2 sound tracks, so there is no track 3"):
        cut(path, 0, 1, track=3)
    both = write_sound(tmp_path / "sides.flac", "flac", np.stack([loud, 0 * loud], 1))
    np.testing.assert_allclose(cut(both, 0, 1), loud / 2, atol=1e-6)
    with wave.open(str(tmp_path / "same.wav"), "wb") as file:
        file.setparams((2, 2, RATE, 0, "NONE", ""))
        file.writeframes(np.repeat(loud * 32_768, 2).astype("<i2").tobytes())
    np.testing.assert_allclose(cut(tmp_path / "same.wav", 0, 1), loud, atol=1e-6)


def write_part(path: Path, codec: str, share: float, **settings) -> Path:
    whole = write_sound(path, codec, NOISE[: 8 * RATE], **settings)
    whole.write_bytes(whole.read_bytes()[: int(share * whole.stat().st_size)])
    return whole


@pytest.mark.parametrize(("name", "codec"), [
    ("cut.wav", "pcm_s16le"), ("cut.flac", "flac"), ("cut.mkv", "flac"), ("cut.mp3", "libmp3lame"),
])  # fmt: skip
def test_a_file_without_an_end_is_heard_to_where_it_breaks_off(tmp_path, name, codec):
    path = write_part(tmp_path / name, codec, 0.5)
    sound = cut(path, 1, None)
    assert 2.5 < len(sound) / RATE < 3.3
    if codec != "libmp3lame":
        np.testing.assert_array_equal(sound, part(NOISE, 1, None)[: len(sound)])
    assert len(cut(path, 2, 3)) == RATE
    for start, end, reason in (
        (3, 8, r"ends at [34].*most of the clip is after that \(3 s to 8 s\)"),
        (6, 8, r"ends at [34].*most of the clip is after that \(6 s to 8 s\)"),
    ):
        with pytest.raises(VideoError, match=reason):
            cut(path, start, end)


def test_sound_that_cannot_be_heard_is_named(tmp_path):
    half = {"pictures": 8, "options": {"movflags": "faststart"}}
    nothing = write_sound(tmp_path / "nothing.mkv", "aac", NOISE[:0], pictures=1)
    for path, reason in (
        (write(tmp_path / "x264.mp4"), "x264.mp4 has no sound track"),
        (write_part(tmp_path / "half.mp4", "aac", 0.5, **half), "is cut short: its sound ends at"),
        (nothing, "nothing.mkv has an empty sound track"),
    ):
        with pytest.raises(VideoError, match=reason):
            cut(path, None, None)
    path = write_sound(tmp_path / "damaged.m4a", "alac", NOISE)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40_000] = bytes(40_000)
    path.write_bytes(data)
    assert len(cut(path, 0, 3)) == 3 * RATE
    with pytest.raises(VideoError, match=r"cannot be decoded at 4.\d+ s; it is damaged there"):
        cut(path, 3, 7)


def test_damage_elsewhere_does_not_count(tmp_path):
    """Also in the first packets, which say where frames start in a file of milliseconds."""
    path = write_sound(tmp_path / "damaged.mkv", "flac", NOISE)
    with av.open(path) as container:
        first = bytes(next(container.demux(audio=0)))
    path.write_bytes(path.read_bytes().replace(first, bytes(len(first))))
    np.testing.assert_array_equal(cut(path, 5, 6), part(NOISE, 5, 6))
    with pytest.raises(VideoError, match=r"cannot be decoded at 0.000 s; it is damaged there"):
        cut(path, 0, 6)


def test_long_sound_takes_the_memory_of_what_is_returned(tmp_path):
    """Not that of the file's rate and channels."""
    path = write_sound(tmp_path / "long.wav", "pcm_s16le", np.zeros((200 * RATE, 2), np.float32))
    returned, seen = 200 * 8_000 * 4, []
    tracemalloc.start()
    try:
        used = tracemalloc.get_traced_memory
        sound = cut(path, None, None, 8_000, tick=lambda: seen.append(used()[0]))
        peak = used()[1]
    finally:
        tracemalloc.stop()
    assert sound.nbytes == returned
    assert (max(seen) < 1.5 * returned, peak < 2.5 * returned) == (True, True)


@pytest.mark.parametrize(("name", "codec", "rate", "near"), [
    ("cut.wav", "pcm_s16le", 44_100, 0), ("cut.flac", "flac", 44_100, 0),
    ("cut.mp4", "aac", 44_100, 1e-3), ("cut.ogg", "libopus", 48_000, 1e-3),
])  # fmt: skip
def test_spans_are_those_that_ffmpeg_cuts(tmp_path, name, codec, rate, near):
    seconds = np.arange(4 * rate) / rate  # no noise: AAC's decoder makes some up
    signal = 0.4 * np.sin(2 * np.pi * (300 * seconds + 120 * seconds**2))
    path = write_sound(tmp_path / name, codec, signal, rate=rate)
    for start, end in [(0, 1), (1.234567, 3.21), (2, 2.05)]:
        first, last = round(start * rate), round(end * rate)
        expected = []
        with av.open(path) as container:
            source, graph = container.streams.audio[0], av.filter.Graph()
            into = graph.add_abuffer(template=source)
            cutter = graph.add("atrim", f"start_sample={first}:end_sample={last}")
            shape = graph.add("aformat", "sample_fmts=flt:channel_layouts=mono")
            graph.link_nodes(into, cutter, shape, graph.add("abuffersink")).configure()
            with contextlib.suppress(av.EOFError):  # what follows the span is not taken
                for frame in [*container.decode(source), None]:
                    into.push(frame)
            with contextlib.suppress(av.EOFError):
                while True:
                    expected.append(graph.pull().to_ndarray()[0])
        np.testing.assert_allclose(cut(path, start, end, rate), np.concatenate(expected), atol=near)
