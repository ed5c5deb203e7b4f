"""The commands, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from cli import main
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.importers.csv_table import import_csv
from obygaze_features.store import open_store


def obygaze(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Synthetic clips, weights and the manifest of the clips, all made by the commands."""
    made = obygaze("features", "make-clips", tmp_path / "data", "--seconds", 0.5)
    assert made.exit_code == 0
    assert "12 SYNTHETIC clips" in made.stdout
    made = obygaze("features", "make-weights", "tiny-xclip", tmp_path / "weights")
    assert made.exit_code == 0
    assert "SYNTHETIC" in made.stdout
    import_csv(tmp_path / "data/annotations.csv").save(tmp_path / "manifest")
    return tmp_path


def extract(world: Path, *more: object) -> Result:
    backbone = f"tiny={world / 'weights'}"
    videos, output = world / "data/videos", world / "stores"
    return obygaze(
        "features", "extract", world / "manifest", "--videos", videos,
        "--backbone", backbone, "-o", output, "--device", "cpu", *more,
    )  # fmt: skip


def test_from_nothing_to_a_store(world):
    result = extract(world)
    assert result.exit_code == 0
    assert "12 of 12 clips done in" in result.stdout
    again = extract(world)
    assert again.exit_code == 0
    assert "Nothing was left to do" in again.stdout

    info = obygaze("stores", "info", world / "stores/tiny.zarr")
    assert "12: 12 done, 0 failed, 0 to do" in info.stdout
    facts = json.loads(obygaze("stores", "info", world / "stores/tiny.zarr", "--json").stdout)
    assert facts["items_digest"] == Manifest.load(world / "manifest").digest
    assert facts["arrays"]["frames"]["shape"] == [12, 8, 32]


def test_failed_clips_are_listed_and_the_exit_code_says_so(world):
    (world / "data/videos/tt0000002/tt0000002_scene_1.mp4").write_bytes(b"")
    (world / "data/videos/tt0000002/tt0000002_scene_2.mp4").unlink()
    result = extract(world)
    assert result.exit_code == 3
    assert "tt0000002-001: tt0000002/tt0000002_scene_1.mp4 is empty" in result.stderr
    assert "tt0000002-002: no video tt0000002/tt0000002_scene_2.*" in result.stderr
    assert "10 of 12 clips done" in result.stdout

    as_json = extract(world, "--json")
    assert as_json.exit_code == 3
    assert json.loads(as_json.stdout)["failed"]["unreadable"] == {
        "tt0000002-001": "tt0000002/tt0000002_scene_1.mp4 is empty"
    }
    info = obygaze("stores", "info", world / "stores/tiny.zarr").stdout
    assert "10 done, 2 failed" in info
    assert "tt0000002_scene_1.mp4 is empty" in info


def test_a_run_without_one_good_clip_has_failed(world):
    for clip in (world / "data/videos").rglob("*.mp4"):
        clip.write_bytes(b"")
    result = extract(world)
    assert result.exit_code == 1
    assert "Error: not one of the 12 clips could be extracted" in result.stderr


def test_backbones_are_listed_with_what_they_keep():
    assert "xclip-kinetics" in obygaze("features", "backbones").stdout
    cards = json.loads(obygaze("features", "backbones", "--json").stdout)
    frames = cards["xclip-kinetics"]["arrays"]["frames"]
    assert (frames["shape"], frames["dtype"], frames["bytes"]) == ([32, 512], "float16", 32768)


def test_synthetic_data_replace_nothing_unasked(world):
    (world / "films").mkdir()
    for command in (["make-clips"], ["make-weights", "tiny-xclip"]):
        for folder in ("data", "weights", "films"):
            refused = obygaze("features", *command, world / folder)
            assert refused.exit_code == 1
            assert "exists already" in refused.stderr
    assert obygaze("features", "make-clips", world / "data", "--overwrite").exit_code == 0
    # Somebody's films are left alone even then.
    assert obygaze("features", "make-clips", world / "films", "--overwrite").exit_code == 1


def test_a_folder_that_is_no_store_is_one_line(tmp_path):
    result = obygaze("stores", "info", tmp_path)
    assert result.exit_code == 1
    assert result.stderr == f"Error: {tmp_path} is not a feature store: it has no zarr.json\n"


def test_failed_clips_can_be_tried_again(world):
    lost = world / "data/videos/tt0000002/tt0000002_scene_2.mp4"
    video = lost.read_bytes()
    lost.unlink()
    assert extract(world).exit_code == 3
    assert "--retry-failed" in extract(world).stdout
    lost.write_bytes(video)
    again = extract(world, "--retry-failed")
    assert again.exit_code == 0
    assert "1 clip in" in again.stdout
    assert "12 of 12 clips done" in again.stdout
    whole = world / "stores/tiny.zarr"
    (world / "stores").rename(world / "first")
    extract(world)
    for name in ("native", "frames"):
        one, other = (open_store(p).array(name) for p in (world / "first/tiny.zarr", whole))
        np.testing.assert_array_equal(one, other)


def test_parts_share_the_work(world):
    manifest = Manifest.load(world / "manifest")
    assert extract(world, "--part", "2/2").exit_code == 1  # of one block the second part has none
    assert extract(world, "--part", "1/2").exit_code == 0
    assert open_store(world / "stores/tiny.zarr").status.all()
    assert len(manifest) == 12
    assert extract(world, "--part", "3/2").exit_code == 2


def test_running_again_on_a_final_store_has_nothing_to_do(world):
    extract(world)
    assert obygaze("stores", "finalise", world / "stores/tiny.zarr").exit_code == 0
    again = extract(world)
    assert again.exit_code == 0
    assert "Nothing was left to do" in again.stdout
    assert not (world / "stores/tiny.zarr/claims").exists()
