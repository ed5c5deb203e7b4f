"""Made-up clips: what they look like, and the data set of them."""

from __future__ import annotations

from obygaze_features.video.decode import decode_frames
from obygaze_features.video.index import index_file
from obygaze_features.video.synthetic import write_clip, write_synthetic_dataset


def test_the_same_seed_gives_the_same_clip(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_clip(tmp_path / f"{name}.mp4", "HN", seed=seed, seconds=0.5)
    a, b, c = ((tmp_path / f"{name}.mp4").read_bytes() for name in "abc")
    assert a == b != c


def test_the_levels_look_different(tmp_path):
    redness = {}
    for level in ("EN", "HN", "S"):
        write_clip(tmp_path / "clip.mp4", level, seconds=0.5)
        red, _, blue = decode_frames(tmp_path / "clip.mp4", [5]).rgb.mean((0, 1, 2))
        redness[level] = red - blue
    assert redness["EN"] < redness["HN"] < redness["S"]


def test_a_synthetic_data_set_has_clips_and_annotations(tmp_path):
    annotations = write_synthetic_dataset(tmp_path / "data", seconds=0.2)
    header, *lines = annotations.read_text().splitlines()
    assert header == "id,film,media,level,concepts,synthetic"
    rows = [line.split(",") for line in lines]
    assert [row[3] for row in rows] == ["EN", "S", "HN", "S"] * 3
    for identifier, film, video, level, concepts, synthetic in rows:
        assert synthetic == "drawn by a program"
        assert identifier.startswith(f"{film}-")
        assert bool(concepts) == (level != "EN")
        assert len(index_file(tmp_path / "data/videos" / film / video)) == 5
