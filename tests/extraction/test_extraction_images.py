"""Images and texts into stores."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch.nn.functional import interpolate
from transformers import AutoImageProcessor, CLIPModel

import obygaze_features as of
from obygaze_features.errors import VideoError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import Status
from tests.backbones.conftest import tensor

SUFFIXES = (".png", ".jpg", ".webp", ".bmp", ".tif", ".jpeg")


@pytest.fixture(scope="module")
def towers(checkpoints):
    return of.load_backbone(checkpoints["tiny-clip"], "cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    chance = np.random.default_rng(3)
    for number in range(12):
        group = "yes" if number % 2 else "no"
        name = f"p{number:02}{SUFFIXES[number % 6]}"
        path = folder / group / name
        path.parent.mkdir(exist_ok=True)
        shape = (30 + 4 * number, 70 - 4 * number, 3)
        Image.fromarray(chance.integers(0, 256, shape, dtype=np.uint8)).save(path)
    return folder


def pictures(*names: str) -> list[Item]:
    return [Item(Path(name).stem, kind="image", media=name) for name in names]


def texts(*words: str) -> list[Item]:
    return [Item(f"t{number}", kind="text", text=text) for number, text in enumerate(words)]


def manifest_of(*items: Item) -> Manifest:
    return Manifest("made-up", Items.of(items))


def test_images_and_texts_share_a_store(checkpoints, towers, photos, tmp_path):
    """Images equal those of transformers."""
    words = ["a photo of a woman", "a happy woman " * 30]
    images = Manifest.from_folder(photos)
    both = manifest_of(*texts(*words), *images.items)
    summary = of.extract(both, photos, towers, tmp_path)
    assert (summary.wanted, summary.done, summary.failed) == (14, 14, {})
    assert summary.notes == {"text cut to 77 tokens": 1}
    store = of.open_store(summary.stores[0])
    expected = towers.embed("text", words)["native"]
    np.testing.assert_allclose(store.read("native", ["t0", "t1"]), expected, atol=1e-5)
    clip = checkpoints["tiny-clip"]
    model = CLIPModel.from_pretrained(clip).eval()
    processor = AutoImageProcessor.from_pretrained(clip, backend="pil")
    for item in images.items:
        picture = Image.open(photos / item.film / item.media).convert("RGB")
        with torch.no_grad():
            inputs = processor(picture, return_tensors="pt")
            expected = tensor(model.get_image_features(**inputs))
        # The difference is one byte level, from resizing.
        np.testing.assert_allclose(store[item.id]["native"], expected[0], atol=0.01)
    assert store.rows_table["source"][-1].startswith("bytes=")


#: Images that cannot be embedded, with the reason; "whole" can.
BROKEN = {
    "cut": (Status.UNREADABLE, "cut.png cannot be read as an image"),
    "deep": (Status.UNREADABLE, "deep.png has more than 8 bits per channel; save it with 8 bits"),
    "drawing": (Status.UNREADABLE, "drawing.png cannot be read as an image: cannot identify"),
    "gone": (Status.MISSING, "no file matches gone.*"),
    "twice": (Status.MISSING, "twice.gif and twice.png match"),
}


def test_unreadable_images_are_named_and_retried(checkpoints, tmp_path, obygaze):
    folder = tmp_path / "photos"
    folder.mkdir()
    chance = np.random.default_rng(0)
    pixels = chance.integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "whole.png")
    content = (folder / "whole.png").read_bytes()
    (folder / "cut.png").write_bytes(content[: len(content) // 2])
    (folder / "twice.png").touch()
    (folder / "twice.gif").touch()
    deep = np.full((40, 40), 40_000, np.uint16)
    Image.fromarray(deep).save(folder / "deep.png")
    # Pillow would pass it to another program because of its content, not its name.
    Image.fromarray(pixels).save(folder / "drawing.eps")
    (folder / "drawing.eps").rename(folder / "drawing.png")
    items = pictures(*(f"{name}.*" for name in (*BROKEN, "whole")))
    manifest_of(*items, *texts(" ", "a photo")).save(tmp_path / "m")
    run = ["features", "extract", tmp_path / "m", "--images", folder, "-o", tmp_path / "s"]
    run += ["--backbone", checkpoints["tiny-clip"], "--json"]

    assert "no item could" in obygaze(*run, "--limit", 2, code=1).stderr
    assert json.loads(obygaze(*run, code=3).stdout)["done"] == 2
    store = of.open_store(tmp_path / "s/tiny-clip.zarr")
    assert {*store.done_ids()} == {"whole", "t1"}
    status = dict(zip(store.ids, store.status.tolist(), strict=True))
    for name, (kind, reason) in BROKEN.items():
        assert (status[name], reason in store.failures[name]) == (kind, True), name
    assert store.failures["t0"] == "the text is empty"

    assert json.loads(obygaze(*run).stdout)["clips"] == 0  # failures are not retried
    (folder / "cut.png").write_bytes(content)
    again = json.loads(obygaze(*run, "--retry-failed").stdout)
    assert (again["clips"], again["done"]) == (6, 3)


def shrink(picture: torch.Tensor) -> torch.Tensor:
    return interpolate(picture[None].float(), (4, 4))[0]


def test_pictures_are_read_upright_in_colour(tmp_path):
    """Only the first picture of an animation is used."""
    picture = np.zeros((20, 30, 3), np.uint8)
    picture[:, :10] = 255, 0, 0
    turned = Image.fromarray(picture)
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned to the right
    turned.save(tmp_path / "turned.png", exif=exif)
    for mode in ("L", "P", "RGBA", "CMYK", "1"):
        path = tmp_path / f"{mode}.{'tif' if mode == 'CMYK' else 'png'}"
        Image.fromarray(picture).convert(mode).save(path)
    frames = [Image.new("RGB", (30, 20), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    items = pictures(*sorted(path.name for path in tmp_path.iterdir()))
    net = of.Backbone.from_torch(torch.nn.Flatten(), transform=shrink, name="pixels")
    summary = of.extract(manifest_of(*items), tmp_path, net, tmp_path / "s", batch=1)
    store = of.open_store(summary.stores[0])
    for item in items:
        with Image.open(tmp_path / item.media) as file:
            expected = np.array(ImageOps.exif_transpose(file).convert("RGB"))
        pixels = torch.from_numpy(expected).permute(2, 0, 1)
        np.testing.assert_array_equal(store[item.id]["native"], shrink(pixels).flatten())


def test_large_pictures_are_refused(towers, tmp_path, monkeypatch):
    """Our limit overrides Pillow's own; a wrong limit is no failure of an image."""
    Image.new("L", (30, 20)).save(tmp_path / "x.png")
    one = manifest_of(*pictures("x.png"))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    monkeypatch.setenv("OBYGAZE_MAX_PIXELS", "600")
    assert of.extract(one, tmp_path, towers, tmp_path / "600").done == 1
    monkeypatch.setenv("OBYGAZE_MAX_PIXELS", "599")
    failed = of.extract(one, tmp_path, towers, tmp_path / "599").failed["unreadable"]
    assert "x.png is too large: 30 x 20 pixels" in failed["x"]
    monkeypatch.setenv("OBYGAZE_MAX_PIXELS", "1e9")
    with pytest.raises(VideoError, match=r"above 0, .*got '1e9'"):
        of.extract(one, tmp_path, towers, tmp_path / "1e9")
