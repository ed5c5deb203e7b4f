"""From clips to stores: what lands in them, also when files are broken or runs are cut short."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, XCLIPModel

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.errors import StoreError, UsageError, VideoError
from obygaze_features.extraction import extract
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import diff, finalise, open_store, verify
from obygaze_features.video.decode import decode_frames
from obygaze_features.video.index import index_file
from obygaze_features.video.synthetic import write_clip
from tests.kit.models import write_checkpoint


def clips(*names: str, **kwargs) -> Manifest:
    return Manifest("made-up", Items.of([Item(Path(n).stem, media=n, **kwargs) for n in names]))


def contents(store: Path) -> dict[str, bytes]:
    """Every file of a store but the log, which is for all that may differ."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file() and path.name != "log.jsonl"
    }


@pytest.fixture(scope="module")
def whole_store(manifest, films, tiny, tmp_path_factory) -> Path:
    """The store of a run that nothing interrupted."""
    (store,) = extract(manifest, films, [tiny], tmp_path_factory.mktemp("whole")).stores
    return store


def test_features_are_those_of_the_processor_and_the_model(films, weights, tiny, tmp_path):
    """The way through transformers alone, from the frames of the file on."""
    extract(clips("clip3.mp4", "clip5.mp4"), films, [tiny], tmp_path)
    store = open_store(tmp_path / "tiny.zarr")
    processor = AutoImageProcessor.from_pretrained(weights, backend="pil")
    model = XCLIPModel.from_pretrained(weights).eval()
    for name in ("clip3", "clip5"):
        n = len(index_file(films / f"{name}.mp4"))
        indices = [int(i * n / 8) for i in range(8)]
        rgb = decode_frames(films / f"{name}.mp4", indices).rgb
        pixels = processor(list(rgb), return_tensors="pt")["pixel_values"].float()
        with torch.no_grad():
            out = model.get_video_features(pixels)
        expected = out if isinstance(out, torch.Tensor) else out.pooler_output
        row = store[name]
        # The resizing may differ by one level in 255, nothing else may.
        cosine = torch.cosine_similarity(torch.from_numpy(row["native"]), expected[0], dim=0)
        assert cosine > 0.999
        assert row["frame_index"].tolist() == indices
        np.testing.assert_allclose(row["frame_time"], np.array(indices) / 24, atol=1e-3)


def test_names_and_text_paths_serve_as_well(manifest, films, weights, tiny, tmp_path):
    import obygaze_features

    extract(manifest, films, [tiny], tmp_path / "loaded", limit=8)
    summary = obygaze_features.extract(
        manifest, str(films), f"tiny={weights}", str(tmp_path / "named"), limit=8, device="cpu"
    )
    assert summary.stores == [tmp_path / "named/tiny.zarr"]
    assert contents(tmp_path / "named/tiny.zarr") == contents(tmp_path / "loaded/tiny.zarr")


def test_a_misspelt_option_is_refused(manifest, films, tiny, tmp_path):
    with pytest.raises(UsageError, match="lmit"):
        extract(manifest, films, tiny, tmp_path, lmit=8)
    with pytest.raises(UsageError, match="unknown engine 'slurm'"):
        extract(manifest, films, tiny, tmp_path, engine="slurm")


@pytest.mark.parametrize("several", [False, True])
def test_what_is_no_loaded_backbone_is_refused_in_a_line(manifest, films, tiny, tmp_path, several):
    """A function that makes one, a network of torch, and a backbone that was not loaded by name."""
    unnamed = tiny.with_changes(name="", about={})
    for given, kind in (
        (len, "len"),
        (tiny.module, "ModuleDict"),
        (unnamed, "Backbone"),
        (7, "int"),
    ):
        with pytest.raises(UsageError, match=rf"'module:function'.*got .*{kind}"):
            extract(manifest, films, [given] if several else given, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_clip_shorter_than_the_backbones_frames_repeats_them(films, tiny, tmp_path):
    extract(clips("clip0.mp4"), films, [tiny], tmp_path)
    row = open_store(tmp_path / "tiny.zarr")["clip0"]
    assert row["frame_index"].tolist() == [0, 0, 1, 1, 2, 3, 3, 4]
    np.testing.assert_array_equal(row["frames"][0], row["frames"][1])


def test_the_summary_says_what_was_done_and_what_took_the_time(films, tiny, tmp_path):
    summary = extract(clips("clip1.mp4", "clip2.mp4"), films, [tiny], tmp_path)
    assert (summary.clips, summary.done, summary.failed) == (2, 2, {})
    assert summary.stores == [tmp_path / "tiny.zarr"]
    assert 0 < sum(summary.shares.values()) <= 1
    assert summary.shares[summary.bound_by] == max(summary.shares.values())
    assert extract(clips("clip1.mp4", "clip2.mp4"), films, [tiny], tmp_path).clips == 0


def test_several_backbones_share_one_decoding(films, tiny, tmp_path):
    """Two that look at the same frames cost no more decoding than one."""
    second = replace(tiny, name="other")
    half = replace(tiny, name="half", sampling=Sampling(4), encode_clips=lambda *_: {}, arrays=())
    items = clips("clip1.mp4", "clip2.mp4")
    alone = extract(items, films, [tiny], tmp_path)
    assert alone.frames == 8 + 8
    together = extract(items, films, [tiny, second, half], tmp_path / "both")
    assert together.frames == alone.frames
    first = contents(tmp_path / "tiny.zarr")
    assert contents(tmp_path / "both/tiny.zarr") == first
    shards = {name for name in first if "/c/" in name}
    second = contents(tmp_path / "both/other.zarr")
    assert {name: second[name] for name in shards} == {name: first[name] for name in shards}
    halves = open_store(tmp_path / "both/half.zarr")["clip2"]["frame_index"]
    assert halves.tolist() == [int(i * 19 / 4) for i in range(4)]


def test_broken_clips_are_named_with_the_reason(films, tiny, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    shutil.copy(films / "clip1.mp4", videos / "good.mp4")
    (videos / "empty.mp4").touch()
    (videos / "garbage.mp4").write_bytes(b"not a film " * 1000)
    with wave.open(str(videos / "sound.mp4"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(16000))
    items = clips("missing.mp4", "empty.mp4", "good.mp4", "garbage.mp4", "sound.mp4")

    summary = extract(items, videos, [tiny], tmp_path)
    assert summary.done == 1
    assert summary.failed == {
        "missing": {"missing": "no video missing.*"},
        "unreadable": {
            "empty": "empty.mp4 is empty",
            "garbage": "garbage.mp4 cannot be decoded: Invalid data found when processing input",
            "sound": "sound.mp4 has no video, only audio",
        },
    }
    store = open_store(tmp_path / "tiny.zarr")
    assert store.status.tolist() == [2, 3, 1, 3, 3]
    assert np.isnan(store.read("native", missing="nan")).all(axis=1).tolist() == [
        True,
        True,
        False,
        True,
        True,
    ]


def test_reasons_do_not_depend_on_the_current_folder(films, tiny, tmp_path, monkeypatch):
    items = clips("clip1.mp4", "missing.mp4", "empty.mp4")
    shutil.copytree(films, tmp_path / "films")
    (tmp_path / "films/empty.mp4").touch()
    extract(items, tmp_path / "films", [tiny], tmp_path / "absolute")
    monkeypatch.chdir(tmp_path / "films")
    extract(items, Path(), [tiny], tmp_path / "relative")
    store = tmp_path / "absolute/tiny.zarr"
    assert contents(store) == contents(tmp_path / "relative/tiny.zarr")
    assert open_store(store).failures["empty"] == "empty.mp4 is empty"


def test_a_folder_without_any_of_the_clips_is_refused(films, tiny, tmp_path):
    with pytest.raises(VideoError, match="none of the 1 clips"):
        extract(clips("other.mp4"), films, [tiny], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_clips_and_texts_in_one_manifest_are_refused(films, tiny, tmp_path):
    items = [Item("clip", media="clip1.mp4"), Item("text", kind="text", text="a photo")]
    with pytest.raises(UsageError, match="text is of the kind 'text'"):
        extract(Manifest("mixed", Items.of(items)), films, [tiny], tmp_path)
    assert not (tmp_path / "tiny.zarr").exists()


def test_spans_of_a_longer_film(tiny, tmp_path):
    """The frames of a span are those that the same span cut out would give, by their numbers."""
    write_clip(tmp_path / "film.mkv", "S", seconds=10)
    spans = [(0.0, 2.0), (3.5, 4.0), (9.0, 10.9), (12.0, 13.0)]
    items = [
        Item(f"span-{row}", media="film.mkv", start=start, end=end)
        for row, (start, end) in enumerate(spans)
    ]
    cache = tmp_path / "cache"
    spans_of = Manifest("spans", Items.of(items))
    extract(spans_of, tmp_path, [tiny], tmp_path / "stores", cache=cache)
    store = open_store(tmp_path / "stores/tiny.zarr")
    assert store.status.tolist() == [1, 1, 1, 3]
    assert "12 s to 13 s" in store.failures["span-3"]
    for item in items[:3]:
        first, last = round(item.start * 24), min(240, round(item.end * 24))
        numbers = [first + int(i * (last - first) / 8) for i in range(8)]
        assert store[item.id]["frame_index"].tolist() == numbers
        np.testing.assert_allclose(store[item.id]["frame_time"], np.array(numbers) / 24, atol=2e-3)
    assert len(list(cache.iterdir())) == 1  # one index a film


def test_a_clip_that_ends_before_the_last_frame_is_padded(films, tmp_path):
    """Looked at once a second, a clip of 1.7 s has two frames; the other ten are no numbers."""
    lsmdc = load_backbone("tiny-xclip-lsmdc", "cpu")
    extract(clips("clip5.mp4"), films, [lsmdc], tmp_path)
    store = open_store(tmp_path / "tiny-xclip-lsmdc.zarr")
    row = store["clip5"]
    assert row["frame_index"].tolist() == [0, 24] + [-1] * 10
    for name in ("frame_time", "frames", "frames_temporal"):
        there = np.isfinite(row[name]).reshape(12, -1).all(axis=1)
        assert there.tolist() == [True, True] + [False] * 10
        assert np.isnan(row[name][2:]).all()
    assert np.isfinite(row["native"]).all()
    np.testing.assert_allclose(row["max"], row["frames"][:2].max(axis=0), atol=1e-3)
    assert verify(store.path) == []
    shutil.copytree(store.path, tmp_path / "open.zarr")
    finalise(store.path, compress=True)
    difference = diff(open_store(tmp_path / "open.zarr"), open_store(store.path))
    for name, agreement in difference.rows.items():
        assert (agreement.equal, agreement.least) == (1, 1.0), name
    again = open_store(store.path)["clip5"]
    np.testing.assert_array_equal(again["frames"], row["frames"])
    assert verify(store.path) == []


def test_two_backbones_of_one_name_are_refused(films, tiny, tmp_path):
    with pytest.raises(UsageError, match="two backbones are called 'tiny'"):
        extract(clips("clip1.mp4"), films, [tiny, tiny], tmp_path)


def test_other_weights_cannot_go_on_with_a_store(films, tiny, tmp_path):
    write_checkpoint("tiny-xclip", tmp_path / "weights", seed=1)
    second = load_backbone(f"tiny={tmp_path / 'weights'}", "cpu")
    extract(clips("clip1.mp4"), films, [tiny], tmp_path)
    with pytest.raises(StoreError, match="made with other backbone weights"):
        extract(clips("clip1.mp4"), films, [second], tmp_path)


def test_an_interrupted_run_resumes(manifest, films, tiny, whole_store, tmp_path):
    calls = []

    def interrupted(pixels, present, names):
        calls.append(len(pixels))
        if len(calls) == 6:  # in the second block: each has four batches
            raise KeyboardInterrupt
        return tiny.embed_clips(pixels, present)

    with pytest.raises(KeyboardInterrupt):
        extract(manifest, films, [replace(tiny, encode_clips=interrupted)], tmp_path)
    assert (open_store(tmp_path / "tiny.zarr").status == 1).sum() == 32
    assert extract(manifest, films, [tiny], tmp_path).clips == 38
    assert contents(tmp_path / "tiny.zarr") == contents(whole_store)


SLOW_RUN = """
import sys, time
from dataclasses import replace
from pathlib import Path
from obygaze_features.backbones import load_backbone
from obygaze_features.extraction import extract
from obygaze_features.manifests import Manifest
manifest, films, weights, output = map(Path, sys.argv[1:])
tiny = load_backbone(f"tiny={weights}", "cpu")
def slowly(pixels, present, names):
    time.sleep(0.3)
    return tiny.embed_clips(pixels, present)
extract(Manifest.load(manifest), films, [replace(tiny, encode_clips=slowly)], output)
"""


@pytest.mark.gate
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_run_resumes_to_the_same_store(
    manifest, films, weights, tiny, whole_store, tmp_path
):
    manifest.save(tmp_path / "manifest")
    store = tmp_path / "tiny.zarr"
    arguments = [str(path) for path in (tmp_path / "manifest", films, weights, tmp_path)]
    with subprocess.Popen([sys.executable, "-c", SLOW_RUN, *arguments]) as process:
        while process.poll() is None and not (store / "blocks/000000.json").exists():
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert 0 < (open_store(store).status == 1).sum() < len(manifest)

    extract(manifest, films, [tiny], tmp_path)
    resumed = {
        name: data
        for name, data in contents(store).items()
        if ".partial" not in name and not name.startswith("claims/")
    }
    assert resumed == contents(whole_store)


ONE_OF_TWO = """
import sys, time
from dataclasses import replace
from pathlib import Path
from obygaze_features.backbones import load_backbone
from obygaze_features.extraction import extract
manifest, films, weights, output, ready, other = map(Path, sys.argv[1:])
tiny = load_backbone(f"tiny={weights}", "cpu")
def both_at_once(pixels, present, names):
    if len(pixels) > 1:  # not the store's probe
        ready.touch()
        end = time.monotonic() + 120
        while not other.exists() and time.monotonic() < end:
            time.sleep(0.01)
    return tiny.embed_clips(pixels, present)
extract(manifest, films, replace(tiny, encode_clips=both_at_once), output, workers=1)
"""


@pytest.mark.gate
def test_a_run_for_each_device_fills_one_store_together(
    manifest, films, weights, whole_store, tmp_path
):
    """As on a machine of two GPUs, with two processes on the CPU: each has its own blocks."""
    manifest.save(tmp_path / "manifest")
    names = [tmp_path / "first", tmp_path / "second"]
    command = [sys.executable, "-c", ONE_OF_TWO, tmp_path / "manifest", films, weights, tmp_path]
    runs = [subprocess.Popen([*command, *order]) for order in (names, names[::-1])]
    assert [run.wait(timeout=900) for run in runs] == [0, 0]
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    clips = [entry["clips"] for entry in entries]
    assert min(clips) > 0
    assert sum(clips) == len(manifest)
    assert contents(tmp_path / "tiny.zarr") == contents(whole_store)
