"""Stores of sound beside stores of pictures, from the file to the row."""

import re

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import UsageError
from tests.kit.films import clips, ffmpeg_cut, write_clip, write_sound

NOISE = np.random.default_rng(8).normal(0, 0.1, 96_000)


@pytest.fixture(scope="module")
def clap(checkpoints):
    return of.load_backbone(f"clap={checkpoints['tiny-clap']}", "cpu")


def test_one_pass_extracts_pictures_and_sound(tmp_path, tiny, clap, obygaze):
    """Spans of a film have windows of a second, at the times of a plain loop."""
    demo = ("features", "demo", tmp_path / "data", "--title", "Night Bus")
    obygaze(*demo, "--scenes", 2, "--seconds", 2.5, code=0)
    manifest = of.Manifest.from_csv(tmp_path / "data/annotations.csv")
    videos = tmp_path / "data/videos"
    summary = of.extract(manifest, videos, [tiny, clap], tmp_path / "s")
    assert (summary.done, summary.frames, summary.failed) == (2, 2 * 8, {})
    seen, heard = map(of.open_store, summary.stores)
    assert [of.verify(store) for store in (seen, heard)] == [[], []]
    sound = ffmpeg_cut(videos / "Night Bus.mp4", 16_000)
    for item in manifest.items:
        first = round(item.start * 16_000)
        row = heard[item.id]
        own = sound[first:]
        windows = [own[n : n + 16_000] for n in (0, 16_000, 24_000)]
        expected = embed_windows(clap, *windows)
        np.testing.assert_allclose(row["native"], expected.mean(0), atol=1e-4)
        np.testing.assert_allclose(row["frames"][:3], expected, atol=1e-3)
        middles = [item.start + x for x in (0.5, 1.5, 2.0)]
        assert row["frame_time"][:3].tolist() == middles
        power = [10 * np.log10(np.mean(window**2)) for window in windows]
        np.testing.assert_allclose(row["loudness"][:3], power, atol=1e-3)
        for name in heard.arrays[1:]:
            assert np.isnan(row[name][3:]).all()
        # The pictures are the frames of its span, by their numbers in the film.
        start = round(item.start * 24)
        numbers = [start + i * 60 // 8 for i in range(8)]
        assert seen[item.id]["frame_index"].tolist() == numbers


def embed_windows(clap, *windows):
    """Return the vector of each window, embedded as a clip of its own."""
    inputs = [clap.clip.preprocessing.inputs(window) for window in windows]
    return clap.embed("clip", inputs)["native"].numpy()


def test_pictures_and_sound_fail_separately(tmp_path, obygaze):
    """Test a film without sound, a recording without pictures, and a file with neither."""
    write_clip(tmp_path / "mute.mp4", "S")
    write_sound(tmp_path / "song.mp3", "libmp3lame", NOISE)
    write_sound(tmp_path / "both.mkv", "aac", NOISE, pictures=2)
    write_sound(tmp_path / "both.wav", "pcm_s16le", NOISE)  # the film is taken
    (tmp_path / "noise.mkv").write_bytes(b"no film")
    clips("mute.mp4", "song.mp3", "both.mkv", "noise.mkv", "gone.mkv").save(tmp_path / "m")
    command = [tmp_path / "m", "--videos", tmp_path, "-o", tmp_path / "s"]
    command += ["--backbone", "tiny-xclip", "--backbone", "tiny-clap"]
    result = obygaze("features", "extract", *command, code=3)
    assert re.search(r"done in +tiny-xclip 2, tiny-clap 2\n", result.stdout)
    seen = of.open_store(tmp_path / "s/tiny-xclip.zarr")
    heard = of.open_store(tmp_path / "s/tiny-clap.zarr")
    assert seen.status.tolist() == [1, 3, 1, 3, 2]
    assert heard.status.tolist() == [3, 1, 1, 3, 2]
    assert seen.failures["song"] == "song.mp3 has no moving pictures (streams: audio)"
    assert heard.failures["mute"] == "mute.mp4 has no sound track"
    assert seen.failures["noise"] == heard.failures["noise"]


def test_the_number_of_sound_windows_is_an_option(tmp_path, tiny, clap):
    """64 of 67 windows are used, with a note; `frames` uses all."""
    write_sound(tmp_path / "long.wav", "pcm_s16le", np.tile(NOISE[:8000], 67), rate=8000)
    manifest = clips("long.wav")
    few = of.extract(manifest, tmp_path, clap, tmp_path / "few")
    assert few.notes == {"used 64 of 67 windows of sound": 1}
    summary = of.extract(manifest, tmp_path, clap, tmp_path / "all", frames=67)
    cut, full = map(of.open_store, (*few.stores, *summary.stores))
    assert summary.notes == {}
    row = full["long"]
    assert row["frame_time"].tolist() == [n + 0.5 for n in range(67)]
    shared = np.linspace(0, 66, 64, dtype=int)
    np.testing.assert_allclose(row["frames"][shared], cut["long"]["frames"], atol=1e-3)
    with pytest.raises(UsageError, match=r"tiny takes whole clips, .*--frames"):
        of.extract(manifest, tmp_path, [clap, tiny], tmp_path / "t", frames=67)
