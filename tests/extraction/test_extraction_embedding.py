"""Images and texts into stores."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel

from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.errors import UsageError, VideoError
from obygaze_features.extraction import extract
from obygaze_features.extraction.readers import ItemReader, read_picture
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import Status, Store, open_store
from obygaze_features.store.finalise import finalise
from tests.kit.models import write_checkpoint


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights") / "small"
    write_checkpoint("tiny-clip", folder)
    return folder


@pytest.fixture(scope="module")
def towers(clip: Path) -> Backbone:
    return load_backbone(str(clip), "cpu")


SUFFIXES = (".png", ".jpg", ".webp", ".bmp", ".tif", ".jpeg")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty pictures in two groups, each of another size."""
    folder = tmp_path_factory.mktemp("photos")
    chance = np.random.default_rng(3)
    for number in range(40):
        group = folder / ("yes" if number % 2 else "no")
        group.mkdir(exist_ok=True)
        shape = (30 + number, 70 - number, 3)
        picture = Image.fromarray(chance.integers(0, 256, shape, dtype=np.uint8))
        picture.save(group / f"p{number:02}{SUFFIXES[number % len(SUFFIXES)]}")
    return folder


@pytest.fixture(scope="module")
def images(photos: Path) -> Manifest:
    return Manifest.from_folder(photos)


def texts(*words: str) -> Manifest:
    items = [Item(f"t{number}", kind="text", text=text) for number, text in enumerate(words)]
    return Manifest("words", Items.of(items))


def embedding(output):
    """A tensor up to transformers 4, and more than that from 5 on."""
    return (output if isinstance(output, torch.Tensor) else output.pooler_output).numpy()


def rows(store: Store, *ids: str) -> np.ndarray:
    return store.read("native", ids)


def test_images_are_embedded_as_transformers_does_it(clip, towers, images, photos, tmp_path):
    summary = extract(images, photos, [towers], tmp_path)
    assert (summary.wanted, summary.done, summary.failed, summary.ended) == (40, 40, {}, "done")
    store = open_store(tmp_path / "small.zarr")
    model = CLIPModel.from_pretrained(clip).eval()
    processor = AutoImageProcessor.from_pretrained(clip, backend="pil")
    for item in images.items.take([0, 7, 21, 39]):
        picture = Image.open(photos / item.film / item.media).convert("RGB")
        with torch.no_grad():
            expected = embedding(
                model.get_image_features(**processor(picture, return_tensors="pt"))
            )
        # What is between them is a level of a byte, in resizing.
        np.testing.assert_allclose(rows(store, item.id)[0], expected[0], atol=0.01)
    preprocessing = store.attributes["preprocessing"]
    assert preprocessing["orientation"].startswith("upright")
    assert preprocessing["texts"]["longest"] == 77
    assert [first.name for first in store.specs] == ["native"]
    assert store.sources[images.ids[0]].startswith("bytes=")


def test_images_and_texts_share_a_store(clip, towers, photos, tmp_path):
    words = ["a photo of a woman", "engineer"]
    path = next((photos / "yes").glob("*.bmp"))
    items = [*texts(*words), Item("p", kind="image", film="yes", media=path.name)]
    extract(Manifest("both", Items.of(items)), photos, [towers], tmp_path)
    store = open_store(tmp_path / "small.zarr")
    tokens = AutoTokenizer.from_pretrained(clip)(words, padding=True, return_tensors="pt")
    with torch.no_grad():
        model = CLIPModel.from_pretrained(clip).eval()
        expected = embedding(model.get_text_features(**tokens))
    np.testing.assert_allclose(rows(store, "t0", "t1"), expected, atol=1e-5)
    assert rows(store, "p").shape == (1, 32)


def test_several_towers_read_each_image_once(towers, images, photos, tmp_path, monkeypatch):
    for name in ("tiny-siglip", "tiny-xclip"):
        write_checkpoint(name, tmp_path / name)
    others = [load_backbone(str(tmp_path / name), "cpu") for name in ("tiny-siglip", "tiny-xclip")]
    summary = extract(images, photos, [towers, *others], tmp_path / "all")
    assert (summary.clips, summary.done) == (40, 40)
    for first in (towers, *others):
        extract(images, photos, [first], tmp_path / "each")
        left, right = (
            open_store(tmp_path / where / f"{first.name}.zarr").read("native", missing="nan")
            for where in ("all", "each")
        )
        np.testing.assert_array_equal(left, right)


def test_a_run_resumes_where_another_ended(towers, images, photos, tmp_path):
    extract(images, photos, [towers], tmp_path / "whole")
    parts = tmp_path / "parts"
    first = extract(images, photos, [towers], parts, part="2/2")
    assert (first.wanted, first.done) == (8, 8)
    part = extract(images, photos, [towers], parts, films=("yes",))
    assert (part.wanted, part.clips) == (20, 12)
    rest = extract(images, photos, [towers], parts)
    assert (rest.clips, rest.done) == (20, 40)
    assert extract(images, photos, [towers], parts).clips == 0
    first, second = (
        open_store(tmp_path / name / "small.zarr").read("native", missing="nan")
        for name in ("whole", "parts")
    )
    np.testing.assert_allclose(first, second, atol=1e-6)
    finalise(parts / "small.zarr")
    np.testing.assert_array_equal(
        open_store(parts / "small.zarr").read("native", missing="nan"), second
    )


def test_two_runs_share_the_work(towers, tmp_path):
    manifest = texts(*(f"a photo of person {number}" for number in range(200)))
    done = []
    runs = [
        threading.Thread(target=lambda: done.append(extract(manifest, None, [towers], tmp_path)))
        for _ in range(2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sum(first.clips for first in done) == 200
    assert open_store(tmp_path / "small.zarr").status.tolist() == [Status.DONE] * 200


def broken(folder: Path) -> dict[str, tuple[Status, str]]:
    """Files that cannot be embedded, and why."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "whole.png")
    content = (folder / "whole.png").read_bytes()
    (folder / "cut.png").write_bytes(content[: len(content) // 2])
    (folder / "words.jpg").write_text("no picture")
    (folder / "empty.webp").touch()
    Image.fromarray(pixels[:1].repeat(2, 1)[:, :80]).resize((500, 2)).save(folder / "line.bmp")
    Image.fromarray(np.full((40, 40), 40_000, np.uint16)).save(folder / "deep.png")
    (folder / "twice.png").touch()
    (folder / "twice.gif").touch()
    return {
        "cut": (Status.UNREADABLE, "cut.png cannot be read as an image"),
        "words": (Status.UNREADABLE, "cannot identify image file 'words.jpg'"),
        "empty": (Status.UNREADABLE, "cannot identify image file 'empty.webp'"),
        "line": (Status.UNREADABLE, "line.bmp is 500 x 2 pixels, too narrow for a picture"),
        "deep": (Status.UNREADABLE, "deep.png has more than 8 bits a channel; save it with 8"),
        "gone": (Status.MISSING, "no image gone.*"),
        "twice": (Status.MISSING, "twice.gif and twice.png both match"),
    }


def test_what_cannot_be_read_is_named(towers, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    expected = broken(folder)
    items = [Item(name, kind="image", media=f"{name}.*") for name in (*expected, "whole")]
    blank = [Item("blank", kind="text", text=" "), Item("fine", kind="text", text="a photo")]
    manifest = Manifest("odd", Items.of([*items, *blank]))
    summary = extract(manifest, folder, [towers], tmp_path / "s")
    store = open_store(tmp_path / "s/small.zarr")
    status = dict(zip(store.ids, store.status.tolist(), strict=True))
    assert (status["whole"], status["fine"], summary.done) == (Status.DONE, Status.DONE, 2)
    for name, (kind, reason) in expected.items():
        assert status[name] == kind, name
        assert reason in store.failures[name], store.failures[name]
        assert str(tmp_path) not in store.failures[name]
        assert "\n" not in store.failures[name]
    assert store.failures["blank"] == "the text is empty"
    # Once the file is whole, it is tried again on request.
    (folder / "cut.png").write_bytes((folder / "whole.png").read_bytes())
    again = extract(manifest, folder, [towers], tmp_path / "s", retry_failed=True)
    assert (again.clips, again.done) == (8, 3)
    first, same = rows(open_store(tmp_path / "s/small.zarr"), "cut", "whole")
    np.testing.assert_allclose(first, same, atol=1e-6)


def test_pictures_are_seen_upright_and_in_colour(tmp_path, monkeypatch):
    picture = np.zeros((20, 30, 3), np.uint8)
    picture[:, :10] = 255, 0, 0
    turned = Image.fromarray(picture)
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned to the right
    turned.save(tmp_path / "turned.png", exif=exif)
    output = read_picture(tmp_path / "turned.png")
    assert output.shape == (30, 20, 3)
    expected = ImageOps.exif_transpose(Image.open(tmp_path / "turned.png"))
    np.testing.assert_array_equal(output, np.asarray(expected))
    for mode in ("L", "P", "RGBA", "CMYK", "1"):
        suffix = "tif" if mode == "CMYK" else "png"
        Image.fromarray(picture).convert(mode).save(tmp_path / f"{mode}.{suffix}")
        assert read_picture(tmp_path / f"{mode}.{suffix}").shape == (20, 30, 3)
    # Pillow would give it to another program by what is in it, whatever its name.
    Image.fromarray(picture).save(tmp_path / "drawing.eps")
    (tmp_path / "drawing.eps").rename(tmp_path / "drawing.png")
    with pytest.raises(
        VideoError, match=r"drawing\.png cannot be read as an image: cannot identify"
    ):
        read_picture(tmp_path / "drawing.png")
    monkeypatch.setenv("OBYGAZE_MAX_PIXELS", "599")
    with pytest.raises(VideoError, match=r"L\.png is too large: 30 x 20 pixels, more than 599"):
        read_picture(tmp_path / "L.png")
    # Pillow's own limit gives way to a higher one of ours; it refuses twice as many itself.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    monkeypatch.setenv("OBYGAZE_MAX_PIXELS", "299")
    with pytest.raises(VideoError, match=r"L\.png is .* more than 299 pixels; set OBYGAZE_MAX_PIX"):
        read_picture(tmp_path / "L.png")
    monkeypatch.setenv("OBYGAZE_MAX_PIXELS", "600")
    assert read_picture(tmp_path / "L.png").shape == (20, 30, 3)
    monkeypatch.delenv("OBYGAZE_MAX_PIXELS")
    # A moving picture is its first one.
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert read_picture(tmp_path / "moving.gif")[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("limit", ["1e9", "-5", "0", "lots"])
def test_a_limit_that_is_no_number_stops_at_once(tmp_path, monkeypatch, limit):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    monkeypatch.setenv("OBYGAZE_MAX_PIXELS", limit)
    says = f"^OBYGAZE_MAX_PIXELS must be a whole number above 0, .*got '{limit}'"
    with pytest.raises(VideoError, match=says):
        read_picture(tmp_path / "a.png")
    with pytest.raises(VideoError, match=says):  # not a failure of each image
        ItemReader(tmp_path, [], None)


def test_a_longer_text_is_cut_and_reported(towers, tmp_path, obygaze, clip):
    manifest = texts("a photo of a person", "a happy woman " * 30)
    summary = extract(manifest, None, [towers], tmp_path)
    assert summary.cut == {"t1": 92}
    manifest.save(tmp_path / "words")
    result = obygaze(
        "features", "extract", tmp_path / "words", "--backbone", clip, "-o", tmp_path / "new"
    )
    assert result.exit_code == 0
    assert "1 text longer than the backbone reads; the rest was cut off: t1" in result.stderr
    assert "2 items in" in result.stdout


def test_memory_that_does_not_reach_makes_batches_smaller(towers, tmp_path, monkeypatch):
    sizes = []

    def small(tokens):
        sizes.append(len(tokens["input_ids"]))
        if sizes[-1] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return towers.text_tower.encode(tokens)

    poor = replace(towers, text_tower=replace(towers.text_tower, encode=small))
    manifest = texts(*(f"person {number}" for number in range(10)))
    summary = extract(manifest, None, [poor], tmp_path / "poor")
    assert (sizes, summary.batches) == ([10, 5, 2, 2, 2, 2, 2], {"small": 2})
    extract(manifest, None, [towers], tmp_path / "rich")
    first, second = (
        open_store(tmp_path / name / "small.zarr").read("native", missing="nan")
        for name in ("poor", "rich")
    )
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_a_backbone_of_images_alone_refuses_texts(images, photos, tmp_path, obygaze):
    folder = write_checkpoint("tiny-dinov3", tmp_path / "dino")
    backbone = load_backbone(str(folder), "cpu")
    assert extract(images, photos, [backbone], tmp_path / "stores").done == 40
    store = open_store(tmp_path / "stores" / "dino.zarr")
    assert "texts" not in store.attributes["preprocessing"]
    assert rows(store, *images.ids).shape == (40, 32)
    texts("a photo").save(tmp_path / "words")
    result = obygaze(
        "features", "extract", tmp_path / "words", "--backbone", folder, "-o", tmp_path / "new"
    )
    assert result.exit_code == 2
    assert "dino: the family dinov3 reads no texts, only images" in result.stderr
    assert not (tmp_path / "new").exists()


def test_manifests_that_do_not_fit_are_refused(towers, tmp_path, images):
    clips = Manifest("films", Items.of([Item("a", media="a.mp4")]))
    with pytest.raises(UsageError, match="small was loaded for images and texts"):
        extract(clips, tmp_path, [towers.for_images_and_texts()], tmp_path)
    with pytest.raises(VideoError, match="has none of the 40 images"):
        extract(images, tmp_path, [towers], tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_the_command(clip, images, photos, tmp_path, obygaze):
    images.save(tmp_path / "m")
    base = ("features", "extract", tmp_path / "m", "-o", tmp_path / "s", "--backbone")
    result = obygaze(*base, f"mine={clip}", "--images", photos, "--json")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert (summary["done"], summary["clips"], summary["cut"]) == (40, 40, {})
    info = obygaze("stores", "info", tmp_path / "s/mine.zarr").stdout
    assert "frames     none, of images and texts; preprocessing standard" in info
    wrong = {
        ("tiny-clip",): "has images; say where they are: --images FOLDER",
        ("tiny-vivit", "--images", photos): "reads no texts and no single images",
        ("tiny-clip", "--images", photos, "--dry-run"): "--dry-run is for clips",
        ("tiny-clip", "--images", photos, "--arrays", "native"): "--arrays is for clips",
        ("tiny-clip", "--videos", photos): "--videos is for clips",
        ("tiny-clip", "--images", photos, "--engine", "ray"): "--engine ray is for clips",
    }
    for arguments, reason in wrong.items():
        result = obygaze(*base, *arguments)
        assert (result.exit_code, reason in result.stderr) == (2, True), result.stderr
        assert result.stderr.count("\n") <= 1
    films = Manifest("films", Items.of([Item("a", media="a.mp4")]))
    films.save(tmp_path / "films")
    result = obygaze("features", "extract", tmp_path / "films", "--backbone", "tiny-clip")
    assert (result.exit_code, "say where they are: --videos FOLDER" in result.stderr) == (2, True)


def test_a_failed_image_is_exit_code_3(clip, tmp_path, obygaze):
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.new("RGB", (9, 9)).save(folder / "a.png")
    (folder / "b.png").write_text("no")
    assert obygaze("manifests", "import", "folder", folder, "-o", tmp_path / "m").exit_code == 0
    base = ("features", "extract", tmp_path / "m", "--backbone", clip, "--images", folder)
    result = obygaze(*base, "-o", tmp_path / "s")
    assert result.exit_code == 3
    assert "b: b.png cannot be read as an image" in result.stderr
    assert "1 of 2 items done" in result.stdout
    (folder / "a.png").write_text("no")
    result = obygaze(*base, "-o", tmp_path / "none")
    assert result.exit_code == 1
    assert "Error: not one of the 2 items could be extracted" in result.stderr
