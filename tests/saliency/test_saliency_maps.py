"""Folders of maps: the numbers, their means, the pictures, and images that cannot be read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.saliency import grad_cam, load_grad_cam_model
from obygaze_features.saliency.pictures import encode_png, heat_map, overlay, upscale

TITLE, BELOW = 22, 34
"""What stands above and below a picture."""


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def draw(library: Path, checkpoint: Path, *more: object) -> list[object]:
    return ["features", "saliency", library / "women", "--images", library / "images",
            "--backbone", checkpoint, "--device", "cpu", "-o", library / "out", *more]  # fmt: skip


def test_maps_of_images_and_the_means_of_groups(obygaze, library, checkpoints):
    result = obygaze(*draw(library, checkpoints["tiny-clip"], "--by", "condition",
                         "--text", "a photo of a {emotion} person"))  # fmt: skip
    assert (result.exit_code, result.stdout) == (0, f"20 maps in 2 groups -> {library / 'out'}\n")
    rows, maps = rows_of(library / "out/images.csv"), np.load(library / "out/maps.npy")
    assert maps.shape == (20, 4, 4)
    assert [row["text"] for row in rows[:2]] == ["a photo of a sad person",
                                                 "a photo of an angry person"]  # fmt: skip
    model = load_grad_cam_model(str(checkpoints["tiny-clip"]), "cpu")
    for row, found in zip(rows, maps, strict=True):
        with Image.open(library / f"images/{row['id']}.png") as file:
            picture = torch.from_numpy(np.array(file))[None]
        seen = resize_and_crop(picture, model.backbone.preprocessing)
        near, wanted = grad_cam(model, seen, model.embed_texts([row["text"]]))
        np.testing.assert_allclose(found, wanted[0], atol=1e-6)
        assert float(row["similarity"]) == pytest.approx(float(near[0]), abs=1e-6)
        assert float(row["peak"]) == found.max()
    means = {}
    for cell in rows_of(library / "out/groups.csv"):
        means.setdefault(cell["group"], np.zeros((4, 4)))
        means[cell["group"]][int(cell["row"]), int(cell["column"])] = float(cell["value"])
    for group in ("NO", "O"):
        own = [
            one / one.max() for row, one in zip(rows, maps, strict=True) if row["group"] == group
        ]
        np.testing.assert_allclose(means[group], np.mean(own, axis=0), atol=1e-6)
    record = json.loads((library / "out/saliency.json").read_text())
    assert {name: one["images"] for name, one in record["groups"].items()} == {"NO": 13, "O": 7}
    assert record["brightest_at"] == max(one.max() for one in means.values())


def test_heat_lies_where_the_map_is_highest(obygaze, library, checkpoints):
    """Read back from the PNG file: the hotter a patch, the lighter its middle."""
    obygaze(*draw(library, checkpoints["tiny-clip"], "--text", "a woman"))
    maps = np.load(library / "out/maps.npy")
    mean = np.mean([one / one.max() for one in maps], axis=0)
    with Image.open(library / "out/groups/all.png") as file:
        assert file.size == (224, 224 + TITLE + BELOW)
        light = np.asarray(file.convert("L"), dtype=float)[TITLE:-BELOW]
    middles = light.reshape(4, 56, 4, 56)[:, 21:35, :, 21:35].mean((1, 3))
    assert middles.argmax() == mean.argmax()
    assert np.corrcoef(middles.ravel(), mean.ravel())[0, 1] > 0.95
    assert len(list((library / "out/images").iterdir())) == 20


def test_colours_grow_lighter_and_only_heat_has_colour():
    light = heat_map(np.linspace(0, 1, 256, dtype=np.float32)[None])[0] @ [0.2126, 0.7152, 0.0722]
    assert np.all(np.diff(light) > -0.5)
    assert light[-1] > light[0] + 200
    picture = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    picture[0, 0], picture[7, 7] = (255, 250, 190), (240, 112, 32)  # as heat is drawn
    values = np.zeros((8, 8), np.float32)
    values[2, 3] = 1
    shown = overlay(picture, values).astype(int)
    coloured = shown.max(axis=2) > shown.min(axis=2)
    assert np.argwhere(coloured).tolist() == [[2, 3]]
    # What is light in the picture stays lighter than what is dark, and darker than the heat.
    grey = np.asarray(Image.fromarray(picture).convert("L"), dtype=float)
    assert np.corrcoef(grey[values == 0], shown[values == 0][:, 0])[0, 1] > 0.999
    assert overlay(np.full((1, 1, 3), 255, np.uint8), np.zeros((1, 1)))[0, 0, 0] < shown[2, 3, 0]
    assert np.array_equal(upscale(np.full((4, 4), 0.5, np.float32), 9, 7), np.full((9, 7), 0.5))


def test_what_is_hot_stays_warm_over_any_picture_and_hides_it_most():
    values = np.linspace(0.5, 1, 32, dtype=np.float32)[None]
    for under in ((0, 0, 255), (30, 30, 200), (0, 255, 255), (255, 255, 255), (128, 128, 128)):
        shown = overlay(np.full((1, 32, 3), under, np.uint8), values)[0].astype(int)
        red, green, blue = shown.T
        assert np.all(red >= green)
        assert np.all(red - blue > 35), under
        assert np.all(shown.max(1) - shown.min(1) > 35)  # no grey
        assert np.abs(shown[-1] - (255, 226, 74)).max() < 25


def test_a_picture_has_a_title_and_a_bar_of_its_colours(obygaze, library, checkpoints):
    obygaze(*draw(library, checkpoints["tiny-clip"], "--text", "a woman", "--by", "condition"))
    for name, colours in (("NO", heat_map), ("NO-overlay", None)):
        with Image.open(library / f"out/groups/{name}.png") as file:
            shown = np.asarray(file).astype(int)
        paper = shown[-1, 0]
        bar = shown[-BELOW + 10]
        values = np.linspace(0, 1, 224, dtype=np.float32)[None]
        wanted = colours(values) if colours else overlay(np.full((1, 224, 3), paper), values)
        assert np.array_equal(bar, wanted[0])
        for part in (shown[:TITLE], shown[-BELOW + 16 :, :100], shown[-BELOW + 16 :, 124:]):
            assert (np.abs(part - paper).max(2) > 100).any()  # words
    titles = []
    for name in ("NO", "O"):
        with Image.open(library / f"out/groups/{name}-overlay.png") as file:
            titles.append(np.asarray(file)[:TITLE])
    assert not np.array_equal(*titles)


def test_a_title_that_is_too_long_is_cut():
    picture = np.zeros((8, 8, 3), np.uint8)
    with Image.open(io.BytesIO(encode_png(picture, "name " * 90, 0.5, is_overlay=True))) as file:
        shown = np.asarray(file).astype(int)
    assert shown.shape == (224 + TITLE + BELOW, 224, 3)
    assert np.abs(shown[:TITLE, -3:] - shown[-1, 0]).max() == 0


def test_images_that_cannot_be_read_are_named(obygaze, library, checkpoints):
    (library / "images/p03.png").write_bytes(b"no image")
    (library / "images/p17.png").unlink()
    result = obygaze(
        *draw(library, checkpoints["tiny-xclip"], "--text", "a woman", "--groups-only")
    )
    assert result.exit_code == 3
    assert "p03: p03.png cannot be read as an image" in result.stderr
    assert "p17: no " in result.stderr
    assert result.stdout == f"18 maps in 1 group, 2 images without -> {library / 'out'}\n"
    ids = [row["id"] for row in rows_of(library / "out/images.csv")]
    assert len(ids) == 18
    assert not {"p03", "p17"} & set(ids)
    assert not (library / "out/images").exists()
    assert set(json.loads((library / "out/saliency.json").read_text())["failed"]) == {"p03", "p17"}
    for path in (library / "images").iterdir():
        path.unlink()
    result = obygaze(*draw(library, checkpoints["tiny-xclip"], "--text", "a woman", "--overwrite"))
    assert result.exit_code == 1
    assert "Error: none of 20 images has a map: no " in result.stderr
    assert len(rows_of(library / "out/images.csv")) == 18  # what was there still is


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--text", "a {emotino} person"], 2, "unknown column 'emotino'; did you mean emotion?"),
        (["--text", "a person", "--by", "group"], 2, "--by: unknown column 'group'"),
        (["--text", "a {emotion"], 2, "a brace without its partner"),
        (["--text", "a {emotion} person}"], 2, "a brace without its partner"),
        (["--text", "a person", "--by", "film"], 2, "--by film: the column is empty"),
        (["--text", " "], 2, "--text is empty"),
        (["--text", "a {film} person"], 2, "the column 'film' has empty cells"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    obygaze, library, checkpoints, more, code, message
):
    result = obygaze(*draw(library, checkpoints["tiny-clip"], *more))
    assert result.exit_code == code
    assert message in result.stderr
    assert not (library / "out").exists()


def test_only_folders_of_maps_are_replaced(obygaze, library, checkpoints):
    (library / "out").mkdir()
    (library / "out/film.mkv").write_text("precious")
    asked = draw(library, checkpoints["tiny-clip"], "--text", "a woman", "--groups-only")
    for more in ([], ["--overwrite"]):
        assert obygaze(*asked, *more).exit_code == 1
    assert (library / "out/film.mkv").read_text() == "precious"


def test_groups_whose_names_make_no_file_names(obygaze, library, checkpoints):
    table = (library / "images.csv").read_text()
    table = table.replace(",NO\n", ",a/b\n", 5).replace(",NO\n", ",A_b\n", 5)
    (library / "images.csv").write_text(table.replace(",NO\n", ",\n"))
    obygaze("manifests", "import", "csv", library / "images.csv", "-o", library / "women",
            "--overwrite")  # fmt: skip
    result = obygaze(*draw(library, checkpoints["tiny-clip"], "--text", "a woman", "--by",
                         "condition", "--json"))  # fmt: skip
    found = json.loads(result.stdout)
    assert found["groups"] == {"a/b": 5, "A_b": 5, "O": 7}
    assert found["ungrouped"] == ["p10", "p11", "p12"]
    assert "3 images without a group, because condition is empty: p10, p11, p12" in result.stderr
    assert [row["group"] for row in rows_of(library / "out/images.csv")].count("") == 3
    names = {path.name for path in (library / "out/groups").iterdir()}
    assert {"a_b.png", "A_b-other.png", "O.png"} <= names
    assert len(names) == 6


def test_no_picture_of_a_group_takes_the_place_of_another(obygaze, library, checkpoints):
    table = (library / "images.csv").read_text()
    (library / "images.csv").write_text(table.replace(",NO\n", ",O-Overlay\n"))
    obygaze("manifests", "import", "csv", library / "images.csv", "-o", library / "women",
            "--overwrite")  # fmt: skip
    result = obygaze(*draw(library, checkpoints["tiny-clip"], "--text", "a woman", "--by",
                         "condition", "--groups-only"))  # fmt: skip
    assert result.exit_code == 0
    names = {path.name.lower() for path in (library / "out/groups").iterdir()}
    assert len(names) == 4
    groups = json.loads((library / "out/saliency.json").read_text())["groups"]
    drawn = {f"{one['pictures']}{end}.png" for one in groups.values() for end in ("", "-overlay")}
    assert drawn == {path.name for path in (library / "out/groups").iterdir()}


def test_a_text_that_is_too_long_is_cut_and_it_is_said(obygaze, library, checkpoints):
    result = obygaze(*draw(library, checkpoints["tiny-clip"], "--groups-only", "--text",
                         "a happy woman " * 30))  # fmt: skip
    assert result.exit_code == 0
    assert "1 text longer than" in result.stderr
    assert json.loads((library / "out/saliency.json").read_text())["cut"] == ["a happy woman " * 30]
