"""Stores of sound: what is heard, beside what is seen, from the file to the row."""

import re

import numpy as np
import pytest
import torch
import transformers

import obygaze_features as of
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.manifests import Manifest
from obygaze_features.store import verify
from obygaze_features.video.synthetic import write_synthetic_dataset
from tests.kit.films import clips, everything_heard, write_clip, write_sound

NOISE = np.random.default_rng(8).normal(0, 0.1, 96_000)


@pytest.fixture(scope="module")
def clap_weights(checkpoints):
    return checkpoints["tiny-clap"]


@pytest.fixture(scope="module")
def clap(clap_weights):
    return of.load_backbone(f"clap={clap_weights}", "cpu")


def test_one_pass_sees_and_hears(tmp_path, clap_weights, obygaze):
    """Spans of a film, in windows of a second; transformers hears what the plain loop decodes."""
    table = write_synthetic_dataset(tmp_path / "data", seconds=2.5, titles=["Night Bus"])
    manifest, videos = Manifest.from_csv(table), tmp_path / "data/videos"
    manifest.save(tmp_path / "m")
    command = ["features", "extract", tmp_path / "m", "--videos", videos, "-o", tmp_path / "s"]
    backbones = ["--backbone", "tiny-xclip", "--backbone", f"clap={clap_weights}"]
    answer = obygaze(*command, *backbones, code=0).stdout
    assert re.search(r"\d+ frames a second(.|\n)*4 of 4 clips done in", answer)
    seen, heard = (of.open_store(tmp_path / f"s/{name}.zarr") for name in ("tiny-xclip", "clap"))
    assert heard.arrays == ["native", "frames", "loudness", "frame_time"]
    assert [verify(store.path) for store in (seen, heard)] == [[], []]
    sound = everything_heard(videos / "Night Bus.mp4", 16_000)
    extractor = transformers.ClapFeatureExtractor.from_pretrained(clap_weights)
    model = transformers.ClapModel.from_pretrained(clap_weights).eval()
    for item in manifest.items:
        first, row = round(item.start * 16_000), heard[item.id]
        spans = [(first + n, first + n + 16_000) for n in (0, 16_000, 24_000)]
        windows = [sound[begin:end] for begin, end in spans]
        given = extractor(windows, sampling_rate=16_000, return_tensors="pt")
        with torch.inference_mode():
            pooled = model.audio_model(given["input_features"]).pooler_output
            expected = model.audio_projection(pooled).numpy()
        np.testing.assert_allclose(row["native"], expected.mean(0), atol=1e-4)
        np.testing.assert_allclose(row["frames"][:3], expected, atol=1e-3)
        assert row["frame_time"][:3].tolist() == [item.start + x for x in (0.5, 1.5, 2.0)]
        power = [10 * np.log10(np.mean(np.square(window))) for window in windows]
        np.testing.assert_allclose(row["loudness"][:3], power, atol=1e-3)
        assert all(np.isnan(row[name][3:]).all() for name in heard.arrays[1:])
        # What is seen are the frames of its span, by their numbers in the film.
        start, row = round(item.start * 24), seen[item.id]
        frames = [start + int(i * 60 / 8) for i in range(8)]
        assert row["frame_index"].tolist() == frames
        np.testing.assert_allclose(row["frame_time"], np.array(frames) / 24, atol=2e-3)

    path = tmp_path / "alone/clap.zarr"
    hear = obygaze(*command[:-1], path.parent, *backbones[2:], code=0).stdout
    assert "a second, time: " in hear
    alone = of.open_store(path)
    assert (alone.read("frames").tobytes(), alone.sources) == (
        heard.read("frames").tobytes(), heard.sources
    )  # fmt: skip
    assert alone.diff(heard).probes_equal
    assert "\nsound      at 16000 a" in obygaze("stores", "info", path, code=0).stdout
    plan = obygaze(*command, *backbones, "--dry-run", "--json", code=0).stdout
    assert '"to_do": 0' in plan


def test_each_sense_fails_alone(tmp_path, tiny, clap, obygaze):
    """A film without sound, a recording without pictures, and one file that is neither."""
    write_clip(tmp_path / "mute.mp4", "S")
    write_sound(tmp_path / "song.mp3", "libmp3lame", NOISE)
    write_sound(tmp_path / "both.mkv", "aac", NOISE, pictures=2)
    write_sound(tmp_path / "both.wav", "pcm_s16le", NOISE)  # the film is taken
    (tmp_path / "noise.mkv").write_bytes(b"no film")
    manifest = clips("mute.mp4", "song.mp3", "both.mkv", "noise.mkv", "gone.mkv")
    summary = of.extract(manifest, tmp_path, [tiny, clap], tmp_path / "s")
    assert (summary.done, summary.left, set(summary.failed)) == (1, 0, {"unreadable", "missing"})
    seen, heard = map(of.open_store, summary.stores)
    assert seen.status.tolist() == [1, 3, 1, 3, 2]
    assert heard.status.tolist() == [3, 1, 1, 3, 2]
    assert seen.failures["song"] == "song.mp3 has no video, only audio"
    assert heard.failures["mute"] == "mute.mp4 has no sound track"
    assert seen.failures["noise"] == heard.failures["noise"]
    assert summary.done_in == {"tiny": 2, "clap": 2}
    named = {i: reason.split()[-1] for i, reason in summary.failed["unreadable"].items()}
    assert (named["song"], named["mute"]) == ("(tiny)", "(clap)")
    assert of.extract(manifest, tmp_path, clap, tmp_path / "alone").done == 2
    manifest.save(tmp_path / "m")
    checked = obygaze("features", "probe", tmp_path / "m", "--videos", tmp_path, code=3).stdout
    lines = [line.strip() for line in checked.splitlines()]
    assert lines[0].startswith("3 of 5")
    assert "mute" in next(line for line in lines if "without a sound track" in line)
    assert "song" in next(line for line in lines if "only backbones that hear" in line)
    Manifest.from_folder(tmp_path).select(ids=["mute", "song"]).save(tmp_path / "two")
    command = [tmp_path / "two", "--videos", tmp_path]
    obygaze("features", "probe", *command, code=0)
    command += ["--backbone", "tiny-xclip", "--backbone", "tiny-clap", "-o", tmp_path / "t"]
    said = obygaze("features", "extract", *command, code=3).stdout.splitlines()
    assert [line[:6] for line in said[-3:]] == ["1 of 2", "1 of 2", "0 of 2"]


def test_more_windows_are_heard_where_asked(tmp_path, tiny, clap, obygaze):
    """Of 67 windows of a second 64 are heard, and it is said; --frames has all of them heard."""
    write_sound(tmp_path / "long.wav", "pcm_s16le", np.tile(NOISE[:8000], 67), rate=8000)
    manifest = clips("long.wav")
    manifest.save(tmp_path / "m")
    command = ["features", "extract", tmp_path / "m", "--videos", tmp_path, "--backbone"]
    said = obygaze(*command, "tiny-clap", "-o", tmp_path / "few", code=0).stdout
    assert "1 clip with more windows of sound (up to 67) than are heard" in said
    command += ["tiny-clap", "-o", tmp_path / "all", "--frames", "67"]
    assert "more windows" not in obygaze(*command, code=0).stdout
    few, every = (of.open_store(tmp_path / name / "tiny-clap.zarr") for name in ("few", "all"))
    assert (few.read("frames").shape[1], every.read("frames").shape[1]) == (64, 67)
    assert every["long"]["frame_time"].tolist() == [0.5 + n for n in range(67)]
    shared = np.linspace(0, 66, 64, dtype=int)
    rows = every["long"]["frames"][shared], few["long"]["frames"]
    np.testing.assert_allclose(*rows, atol=1e-3)
    assert "at most 67" in every.attributes["preprocessing"]["sampling"]
    with pytest.raises(UsageError, match=r"tiny sees frames: --frames 67 .*Add --sampling"):
        of.extract(manifest, tmp_path, [clap, tiny], tmp_path / "t", frames=67)


def test_another_sound_track_is_another_recipe(tmp_path, tiny, clap, clap_weights, obygaze):
    write_sound(tmp_path / "two.mkv", "flac", NOISE, NOISE[::-1], pictures=2)
    write_sound(tmp_path / "second.mkv", "flac", NOISE[::-1], pictures=2)
    two, stores = clips("two.mkv"), tmp_path / "s"
    two.save(tmp_path / "m")
    command = ["features", "extract", tmp_path / "m", "--videos", tmp_path, "-o", stores]
    command += ["--backbone", f"clap={clap_weights}"]
    first = obygaze(*command, code=0).stdout
    assert "1 clip with several sound tracks: heard 1 of 2 (fra)" in first
    assert '"tracks": {"1 of 2 (fra)": 1}' in (stores / "log.jsonl").read_text()
    with pytest.raises(StoreError, match="sound track 2"):
        of.extract(two, tmp_path, clap, stores, audio_track=2)
    other = of.extract(two, tmp_path, [tiny, clap], tmp_path / "other", audio_track=2)
    alone = of.extract(clips("second.mkv"), tmp_path, clap, tmp_path / "alone")
    rows = [of.open_store(s.stores[-1]).read("native") for s in (other, alone)]
    np.testing.assert_array_equal(*rows)
    with pytest.raises(UsageError, match="--audio-track is for backbones that hear"):
        of.extract(two, tmp_path, tiny, tmp_path / "t", audio_track=2)


@pytest.mark.night
def test_a_cluster_hears_the_same(tmp_path, clap_weights, clap):
    pytest.importorskip("ray")
    write_sound(tmp_path / "two.mkv", "flac", NOISE, NOISE[::-1], pictures=2)
    write_clip(tmp_path / "mute.mp4", "S")
    manifest, name = clips("two.mkv", "mute.mp4"), f"clap={clap_weights}"
    options = {"engine": "ray", "workers": 1, "audio_track": 2}
    here = of.extract(manifest, tmp_path, clap, tmp_path / "here", audio_track=2)
    there = of.extract(manifest, tmp_path, ["tiny-xclip", name], tmp_path / "there", **options)
    stores = [of.open_store(summary.stores[-1]) for summary in (here, there)]
    rows = [store.read("frames", ids=["two"]).tobytes() for store in stores]
    assert rows[0] == rows[1]
    assert stores[0].failures == stores[1].failures
