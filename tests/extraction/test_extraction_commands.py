"""Commands on clips, as users type them: extract, thumbnails, make-clips."""

import json

import numpy as np
import pytest
from PIL import Image

import obygaze_features as of
from obygaze_features.extraction import Options
from obygaze_features.extraction.thumbnails import write_thumbnails
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.page.html import NOTE
from tests.kit.files import refused
from tests.kit.films import clips, read_frame_number, write_clip


def test_parts_and_limits_of_a_plan_complete_the_store(command, library, obygaze):
    result = command("--dry-run", "--json")
    plan = json.loads(result.stdout)
    assert (result.exit_code, plan["clips"], plan["missing"]) == (0, 12, [])
    assert plan["free"] > 0
    refused(command("--dry-run", "--reuse", library), "does not count what --reuse", code=2)
    assert "5 of 5 clips done in" in command("--limit", 5).stdout
    store = of.open_store(library / "stores/tiny.zarr")
    row_bytes = sum(spec.row_bytes for spec in store.specs)
    assert plan["stores"]["tiny"]["bytes"] == 12 * row_bytes
    clip = library / "data/videos/tt0000003/tt0000003_scene_4.mp4"
    clip.rename(library / "clip.mp4")
    again = json.loads(command("--dry-run", "--json").stdout)
    tiny = again["stores"]["tiny"]
    assert (tiny["to_do"], tiny["is_new"], tiny["bytes"]) == (7, False, 7 * row_bytes)
    assert (again["clips"], again["missing"]) == (7, ["tt0000003-004"])
    (library / "clip.mp4").rename(clip)
    assert "12 of 12 clips done in" in command("--part", "1/2").stdout
    facts = json.loads(obygaze("stores", "info", store.path, "--json").stdout)
    assert facts["items_digest"] == Manifest.load(library / "manifest").digest
    assert facts["arrays"]["frames"]["shape"] == [12, 8, 32]
    assert obygaze("stores", "finalise", store.path).exit_code == 0
    assert json.loads(command("--json", code=0).stdout)["clips"] == 0


@pytest.mark.night
def test_options_of_arrays_are_recorded_and_kept(command, library):
    """TF32 is recorded on a CPU, too, where it changes nothing."""
    options = {"--arrays": "native,tokens", "--preprocessing": "author", "--precision": "tf32"}

    def run(**changes):
        changed = options | {f"--{name}": value for name, value in changes.items()}
        return command("--limit", 1, *[word for pair in changed.items() for word in pair])

    assert run().exit_code == 0
    store = of.open_store(library / "stores/tiny.zarr")
    assert store.arrays == ["native", "tokens", "frame_index", "frame_time"]
    assert store.attributes["preprocessing"]["mode"] == "author"
    assert store.attributes["preprocessing"]["squash"] == [224, 224]
    assert store.attributes["precision"] == "tf32"
    for name, value in (("preprocessing", "standard"), ("precision", "float32"),
                        ("arrays", "native")):  # fmt: skip
        refused(run(**{name: value}), f"differs in {name}")


def test_a_thumbnail_is_the_middle_frame(tmp_path):
    """The frame number is read from the JPEG itself."""
    write_clip(tmp_path / "cool.mp4", "EN", seconds=2, width=320, height=180)
    write_clip(tmp_path / "warm.avi", "S", seconds=3, width=320, height=180, codec="mpeg4")
    write_clip(tmp_path / "upright.mp4", "S", seconds=1, width=160, height=96, rotation=90)
    films = clips("cool.mp4", "warm.avi", "upright.mp4")
    span = Item("span", media="cool.mp4", start=1.0, end=2.0)  # the frames 24 to 47
    manifest = Manifest("made-up", Items.of([*films, span]))
    done = write_thumbnails(manifest, tmp_path, tmp_path / "out", Options(workers=1), width=320)
    assert done == {"made": 4, "there": 0, "failed": {}}
    seen = {name: np.asarray(Image.open(tmp_path / f"out/{name}.jpg")) for name in manifest.ids}
    numbers = {name: read_frame_number(seen[name]) for name in ("cool", "warm", "span")}
    assert numbers == {"cool": 24, "warm": 36, "span": 36}
    cool, warm = (seen[name][90:170, 20:300].mean(axis=(0, 1)) for name in ("cool", "warm"))
    assert cool[2] > cool[0] + 40
    assert warm[0] > warm[2] + 40
    assert seen["upright"].shape == (160, 96, 3)


@pytest.mark.night
def test_existing_thumbnails_are_kept_and_failures_named(library, obygaze):
    out = library / "out"
    draw = ["features", "thumbnails", library / "manifest", "--videos", library / "data/videos"]
    manifest, videos = Manifest.load(library / "manifest"), library / "data/videos"
    (videos / "tt0000002/tt0000002_scene_1.mp4").write_bytes(b"")
    (videos / "tt0000002/tt0000002_scene_2.mp4").unlink()
    first = write_thumbnails(manifest, videos, out, Options(limit=1))
    assert first == {"made": 1, "there": 0, "failed": {}}
    assert sorted(path.name for path in out.iterdir()) == [NOTE, "tt0000001-001.jpg"]
    (out / "tt0000001-001.jpg").write_bytes(b"mine")
    result = obygaze(*draw, "-o", out, code=3)
    assert result.stdout.startswith("made    9\nthere   1\nfailed  tt0000002-001, tt0000002-002\n")
    assert "tt0000002-001: tt0000002/tt0000002_scene_1.mp4 is empty" in result.stderr
    assert "tt0000002-002: no file matches tt0000002/tt0000002_scene_2.*" in result.stderr
    assert "under the films' copyright" in result.stderr
    assert (out / "tt0000001-001.jpg").read_bytes() == b"mine"
    again = obygaze(*draw, "-o", out, "--film", "tt*1", "--json")
    assert json.loads(again.stdout) == {"made": 0, "there": 4, "failed": {}}
