"""Commands on clips, as users type them: extract and thumbnails."""

import json

import numpy as np
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
    write_clip(tmp_path / "upright.mp4", "S", seconds=1, width=192, height=96, rotation=90)
    films = clips("cool.mp4", "warm.avi", "upright.mp4")
    span = Item("span", media="cool.mp4", start=1.0, end=2.0)  # the frames 24 to 47
    Manifest("made-up", Items.of([*films, span])).save(tmp_path / "m")
    out = tmp_path / "out"
    draw = ("features", "thumbnails", tmp_path / "m", "--videos", tmp_path, "-o", out, "--json")
    (tmp_path / "warm.avi").rename(tmp_path / "away")
    made = json.loads(obygaze(*draw, code=3).stdout)
    assert (made["made"], made["there"]) == (3, 0)
    assert [*made["failed"]] == ["warm"]
    (tmp_path / "away").rename(tmp_path / "warm.avi")
    again = obygaze(*draw, code=0)  # keeps existing ones
    assert json.loads(again.stdout) == {"made": 1, "there": 3, "failed": {}}
    assert "under the films' copyright" in again.stderr
    drawn = out.glob("*.jpg")
    seen = {path.stem: np.asarray(Image.open(path)) for path in drawn}
    numbers = {name: read_frame_number(seen[name]) for name in ("cool", "warm", "span")}
    assert numbers == {"cool": 24, "warm": 36, "span": 36}
    assert seen["upright"].shape == (192, 96, 3)
