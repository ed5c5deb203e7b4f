"""Commands on clips, as users type them: extract and thumbnails."""

import json

import numpy as np
import pytest
from PIL import Image

import obygaze_features as of
from obygaze_features.manifests import Item, Items, Manifest
from tests.kit.files import refused
from tests.kit.films import clips, read_frame_number, write_clip


def test_parts_and_limits_complete_the_store(command, library):
    assert "5 of 5 clips done in" in command("--limit", 5).stdout
    assert "12 of 12 clips done in" in command("--part", "1/2").stdout
    for part in ("0/4", "5/4", "1"):
        refused(command("--part", part), "a part must be I/N", code=2)
    of.finalise(library / "stores/tiny.zarr")
    assert json.loads(command("--json", code=0).stdout)["clips"] == 0


def test_a_thumbnail_is_the_middle_frame(tmp_path, obygaze):
    """The frame number is read from the JPEG itself."""
    write_clip(tmp_path / "cool.mp4", "EN", seconds=2)
    write_clip(tmp_path / "warm.avi", "S", seconds=3, codec="mpeg4")
    write_clip(tmp_path / "upright.mp4", "S", seconds=1, width=160, height=96, rotation=90)
    films = clips("cool.mp4", "warm.avi", "upright.mp4")
    span = Item("span", media="cool.mp4", start=1.0, end=2.0)  # the frames 24 to 47
    Manifest("made-up", Items.of([*films, span])).save(tmp_path / "m")
    out = tmp_path / "out"
    draw = ("features", "thumbnails", tmp_path / "m", "--videos", tmp_path, "-o", out, "--json")
    made = json.loads(obygaze(*draw, code=0).stdout)
    assert made == {"made": 4, "there": 0, "failed": {}}
    seen = {path.stem: np.asarray(Image.open(path)) for path in out.glob("*.jpg")}
    numbers = {name: read_frame_number(seen[name]) for name in ("cool", "warm", "span")}
    assert numbers == {"cool": 24, "warm": 36, "span": 36}
    cool, warm = (seen[name][45:80, 20:140].mean(axis=(0, 1)) for name in ("cool", "warm"))
    assert cool[2] > cool[0] + 40
    assert warm[0] > warm[2] + 40
    assert seen["upright"].shape == (160, 96, 3)


@pytest.mark.night
def test_existing_thumbnails_are_kept_and_failures_named(library, obygaze):
    out = library / "out"
    videos = library / "data/videos"
    (videos / "tt0000002/tt0000002_scene_1.mp4").write_bytes(b"")
    (videos / "tt0000002/tt0000002_scene_2.mp4").unlink()
    out.mkdir()
    (out / "tt0000001-001.jpg").write_bytes(b"mine")
    draw = ("features", "thumbnails", library / "manifest", "--videos", videos, "-o", out)
    result = obygaze(*draw, "--json", code=3)
    summary = json.loads(result.stdout)
    assert (summary["made"], summary["there"]) == (9, 1)
    assert [*summary["failed"]] == ["tt0000002-001", "tt0000002-002"]
    assert "under the films' copyright" in result.stderr
    assert (out / "tt0000001-001.jpg").read_bytes() == b"mine"
    again = obygaze(*draw, "--film", "tt*1", "--json")
    assert json.loads(again.stdout) == {"made": 0, "there": 4, "failed": {}}
