"""The commands, as a user types them."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from cli import main
from obygaze_features.manifests import Manifest
from obygaze_features.store import open_store


def obygaze(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Synthetic clips, weights and the manifest of the clips, all made by the commands."""
    result = obygaze("features", "make-clips", tmp_path / "data", "--seconds", 0.5)
    assert result.exit_code == 0
    assert "12 SYNTHETIC clips" in result.stdout
    result = obygaze("features", "make-weights", "tiny-xclip", tmp_path / "weights")
    assert result.exit_code == 0
    assert "SYNTHETIC" in result.stdout
    Manifest.from_csv(tmp_path / "data/annotations.csv").save(tmp_path / "manifest")
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


@pytest.mark.gate
def test_clips_that_another_run_has_are_not_done(world):
    assert extract(world, "--limit", 4).exit_code == 0
    claim = world / "stores/tiny.zarr/claims/000000.json"
    claim.parent.mkdir(exist_ok=True)
    claim.write_text(json.dumps({"owner": "x", "host": "elsewhere", "process": 1}))
    result = extract(world)
    assert result.exit_code == 3
    assert "Other runs have 8 clips" in result.stdout
    claim.unlink()
    assert extract(world).exit_code == 0


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


@pytest.mark.gate
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
    store_path = world / "stores/tiny.zarr"
    (world / "stores").rename(world / "first")
    extract(world)
    for name in ("native", "frames"):
        first, second = (
            open_store(p).read(name, missing="nan") for p in (world / "first/tiny.zarr", store_path)
        )
        np.testing.assert_array_equal(first, second)


@pytest.mark.gate
def test_parts_share_the_work(world):
    manifest = Manifest.load(world / "manifest")
    nothing = extract(world, "--part", "2/2")  # of one block the second part has none
    assert nothing.exit_code == 0
    assert "Nothing was left to do." in nothing.stdout
    assert nothing.stderr == "part 2/2 is empty: the clips make only 1 block of 32\n"
    assert extract(world, "--part", "1/2").exit_code == 0
    assert open_store(world / "stores/tiny.zarr").status.all()
    assert len(manifest) == 12
    assert extract(world, "--part", "3/2").exit_code == 2


@pytest.mark.gate
def test_running_again_on_a_final_store_has_nothing_to_do(world):
    extract(world)
    assert obygaze("stores", "finalise", world / "stores/tiny.zarr").exit_code == 0
    again = extract(world)
    assert again.exit_code == 0
    assert "Nothing was left to do" in again.stdout
    assert not (world / "stores/tiny.zarr/claims").exists()


def test_probe_looks_into_every_file(world):
    (world / "data/videos/tt0000001/tt0000001_scene_1.mp4").write_bytes(b"no film")
    (world / "data/videos/tt0000002/tt0000002_scene_3.mp4").unlink()
    table = world / "probe.csv"
    result = obygaze(
        "features", "probe", world / "manifest", "--videos", world / "data/videos", "-o", table
    )
    assert result.exit_code == 3
    assert "10 of 12 clips can be extracted" in result.stdout
    assert "tt0000001-001        tt0000001/tt0000001_scene_1.mp4 cannot be decoded" in result.stdout
    assert "no video tt0000002/tt0000002_scene_3.*" in result.stdout
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == Manifest.load(world / "manifest").ids
    sound = [row for row in rows if not row["error"]]
    for row in sound:
        assert (row["codec"], row["width"], row["height"]) == ("h264", "160", "120")
        assert (row["frames"], row["fps"], row["seconds"]) == ("12", "24.000", "0.500")
        assert row["problems"] == "short"
        assert float(row["decode_seconds"]) > 0
    result = json.loads(
        obygaze(
            "features", "probe", world / "manifest", "--videos", world / "data/videos",
            "--films", "tt0000003", "--limit", 2, "--json",
        ).stdout
    )  # fmt: skip
    assert [row["id"] for row in result] == ["tt0000003-001", "tt0000003-002"]


def test_no_cell_of_probes_table_is_a_formula(world, tmp_path):
    (tmp_path / "videos").mkdir()
    film = "tt0000003/tt0000003_scene_1.mp4"
    shutil.copy(world / "data/videos" / film, tmp_path / "videos/=1+1.mp4")
    (tmp_path / "clips.csv").write_text("id,film,file,level\na,f,=1+1.mp4,EN\nb,f,=2.mp4,EN\n")
    obygaze("manifests", "import", "csv", tmp_path / "clips.csv", "-o", tmp_path / "m")
    table = tmp_path / "probe.csv"
    obygaze("features", "probe", tmp_path / "m", "--videos", tmp_path / "videos", "-o", table)
    with table.open(newline="") as file:
        sound, absent = csv.DictReader(file)
    assert (sound["file"], sound["frames"], absent["frames"]) == ("'=1+1.mp4", "12", "")
    assert not [cell for cell in (*sound.values(), *absent.values()) if cell.startswith("=")]


def test_a_clip_that_ends_after_its_film_is_bad(world):
    """The film is half a second long; an end that is rounded up by a second is none."""
    spans = world / "spans.csv"
    film = "tt0000001/tt0000001_scene_1.mp4"
    ends = {"whole": 0.5, "rounded": 1.4, "beyond": 99999}
    rows = [f"{clip},tt0000001,{film},EN,0,{end}" for clip, end in ends.items()]
    spans.write_text("\n".join(["id,film,file,level,start,end", *rows]), encoding="utf-8")
    assert obygaze("manifests", "import", "csv", spans, "-o", world / "spans").exit_code == 0
    result = obygaze(
        "features", "probe", world / "spans", "--videos", world / "data/videos", "--json"
    )
    assert result.exit_code == 3
    probed = {row["id"]: row for row in json.loads(result.stdout)}
    early = {clip for clip, row in probed.items() if "ends early" in row["problems"]}
    assert early == {"rounded"}  # it can be extracted, and is named
    errors = {clip: row["error"] for clip, row in probed.items()}
    assert (errors.pop("whole"), errors.pop("rounded")) == ("", "")
    assert "(0 s to 99999 s) is after the film's end: the film is 0.500 s long" in errors["beyond"]
    made = obygaze(
        "features", "extract", world / "spans", "--videos", world / "data/videos",
        "--backbone", f"tiny={world / 'weights'}", "-o", world / "stores", "--device", "cpu",
    )  # fmt: skip
    assert made.exit_code == 3
    assert open_store(world / "stores/tiny.zarr").failures == errors


@pytest.mark.gate
def test_a_dry_run_says_what_would_be_and_makes_nothing(world):
    result = extract(world, "--dry-run", "--json")
    assert result.exit_code == 0
    assert not (world / "stores").exists()
    estimate = json.loads(result.stdout)
    assert (estimate["clips"], estimate["missing"]) == (12, [])
    assert estimate["free"] > 0
    extract(world, "--limit", 5)
    store = open_store(world / "stores/tiny.zarr")
    row_bytes = sum(first.row_bytes for first in store.specs)
    assert estimate["stores"]["tiny"]["bytes"] == 12 * row_bytes
    again = json.loads(extract(world, "--dry-run", "--json").stdout)["stores"]["tiny"]
    assert (again["to_do"], again["is_new"]) == (7, False)
    (world / "data/videos/tt0000003/tt0000003_scene_4.mp4").unlink()
    words = extract(world, "--dry-run").stdout
    assert "tiny: 7 clips" in words
    assert "no file, or several: 1 clip (tt0000003-004)" in words


@pytest.mark.gate
def test_which_arrays_and_how_they_are_made_is_recorded(world):
    result = extract(
        world, "--arrays", "native,tokens", "--preprocessing", "author", "--precision", "bfloat16"
    )
    assert result.exit_code == 0
    store = open_store(world / "stores/tiny.zarr")
    assert store.arrays == ["native", "tokens", "frame_index", "frame_time"]
    assert store.attributes["preprocessing"]["mode"] == "author"
    assert store.attributes["preprocessing"]["squash"] == [224, 224]
    assert store.attributes["precision"] == "bfloat16"
    for change, word in [
        (("--preprocessing", "standard"), "preprocessing"),
        (("--precision", "float32"), "precision"),
        (("--arrays", "native"), "arrays"),
    ]:
        options = {
            "--arrays": "native,tokens", "--preprocessing": "author", "--precision": "bfloat16",
        } | dict([change])  # fmt: skip
        second = extract(world, *[word for pair in options.items() for word in pair])
        assert second.exit_code == 1
        assert f"made with other {word}" in second.stderr


@pytest.mark.gate
def test_tf32_is_recorded_and_is_not_float32(world):
    """Also on a CPU, which computes the same in both: a store says what was asked for."""
    assert extract(world, "--precision", "tf32").exit_code == 0
    assert open_store(world / "stores/tiny.zarr").attributes["precision"] == "tf32"
    second = extract(world)
    assert second.exit_code == 1
    assert "made with other precision" in second.stderr
    assert extract(world, "--precision", "tf32").exit_code == 0


def test_when_the_time_is_up_the_code_says_that_not_all_is_done(world):
    result = extract(world, "--max-hours", "1e-9")
    assert result.exit_code == 3
    assert "The time is up, with 12 clips left" in result.stdout
    assert extract(world).exit_code == 0
