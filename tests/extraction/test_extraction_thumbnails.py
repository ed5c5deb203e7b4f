"""Small pictures of clips: which frame they show, of what size, and what becomes of bad files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from obygaze_features.extraction.thumbnails import NOTE, write_thumbnails
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.video.synthetic import read_frame_number, write_clip


def manifest_of(*items: Item) -> Manifest:
    return Manifest("made-up", Items.of(items))


def picture(path: Path) -> Image.Image:
    with Image.open(path) as file:
        file.load()
        return file


def test_it_shows_the_frame_in_the_middle_in_its_colours(tmp_path):
    """The number that is drawn into each frame is read from the JPEG itself."""
    write_clip(tmp_path / "cool.mp4", "EN", seconds=2, width=320, height=180)
    write_clip(tmp_path / "warm.avi", "S", seconds=3, width=320, height=180, codec="mpeg4")
    write_clip(tmp_path / "upright.mp4", "S", seconds=1, width=160, height=96, rotation=90)
    manifest = manifest_of(
        Item("cool", media="cool.mp4"),
        Item("warm", media="warm.avi"),
        Item("span", media="cool.mp4", start=1.0, end=2.0),
        Item("upright", media="upright.mp4"),
    )
    done = write_thumbnails(manifest, tmp_path, tmp_path / "out", width=320, workers=1)
    assert done == {"made": 4, "there": 0, "failed": {}}
    seen = {name: np.asarray(picture(tmp_path / f"out/{name}.jpg")) for name in manifest.ids}
    assert read_frame_number(seen["cool"]) == 24
    assert read_frame_number(seen["warm"]) == 36
    assert read_frame_number(seen["span"]) == 36  # of the frames 24 to 47
    cool, warm = (seen[name][90:170, 20:300].mean(axis=(0, 1)) for name in ("cool", "warm"))
    assert cool[2] > cool[0] + 40
    assert warm[0] > warm[2] + 40
    assert seen["upright"].shape == (160, 96, 3)


def test_pictures_are_made_small_and_never_larger(tmp_path):
    write_clip(tmp_path / "large.mp4", "S", seconds=0.5, width=640, height=360)
    write_clip(tmp_path / "small.mp4", "S", seconds=0.5, width=128, height=72)
    manifest = manifest_of(Item("large", media="large.mp4"), Item("small", media="small.mp4"))
    write_thumbnails(manifest, tmp_path, tmp_path / "out", workers=1)
    large, small = (picture(tmp_path / f"out/{name}.jpg") for name in manifest.ids)
    assert (large.format, large.size, small.size) == ("JPEG", (160, 90), (128, 72))
    assert (tmp_path / "out/large.jpg").stat().st_size < 10_000


@pytest.mark.gate
def test_what_is_there_is_kept_and_the_rest_made(films, manifest, tmp_path):
    out = tmp_path / "out"
    first = write_thumbnails(manifest, films, out, limit=3)
    assert first == {"made": 3, "there": 0, "failed": {}}
    (out / "clip-01.jpg").write_bytes(b"mine")
    again = write_thumbnails(manifest, films, out, limit=5)
    assert again == {"made": 2, "there": 3, "failed": {}}
    assert (out / "clip-01.jpg").read_bytes() == b"mine"
    assert sorted(name.name for name in out.iterdir()) == [
        NOTE, *(f"clip-{row:02}.jpg" for row in range(5))
    ]  # fmt: skip


@pytest.fixture
def library(obygaze, tmp_path):
    obygaze("features", "make-clips", tmp_path / "data", "--seconds", 0.25)
    result = obygaze("manifests", "import", "csv", tmp_path / "data/annotations.csv",
                   "-o", tmp_path / "manifest")  # fmt: skip
    assert result.exit_code == 0
    return tmp_path


@pytest.mark.gate
def test_the_command_names_what_it_could_not_read(obygaze, library):
    (library / "data/videos/tt0000002/tt0000002_scene_1.mp4").write_bytes(b"")
    (library / "data/videos/tt0000002/tt0000002_scene_2.mp4").unlink()
    draw = ["features", "thumbnails", library / "manifest", "--videos", library / "data/videos",
            "-o", library / "out"]  # fmt: skip
    result = obygaze(*draw)
    assert result.exit_code == 3
    assert f"10 pictures made, 2 clips without -> {library / 'out'}" in result.stdout
    assert "tt0000002-001: tt0000002/tt0000002_scene_1.mp4 is empty" in result.stderr
    assert "tt0000002-002: no video tt0000002/tt0000002_scene_2.*" in result.stderr
    assert "under the films' copyright" in result.stderr
    name = obygaze(*draw, "--films", "tt0000001", "--json")
    assert name.exit_code == 0
    assert json.loads(name.stdout) == {"made": 0, "there": 4, "failed": {}}
    bad = obygaze(*draw[:-1], library / "bad", "--films", "tt0000002", "--limit", 2)
    assert bad.exit_code == 1
    assert "Error: not one of 2 clips has a picture" in bad.stderr
