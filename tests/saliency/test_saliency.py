"""Grad-CAM against finite differences in transformers' own models, and folders of maps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPModel, SiglipModel, XCLIPModel

import obygaze_features as of
from tests.backbones.conftest import tensor
from tests.backbones.test_backbones_parity import text_features
from tests.kit.files import csv_rows, refused, write

KINDS = {"tiny-clip": CLIPModel, "tiny-xclip": XCLIPModel, "tiny-siglip": SiglipModel}


def maps_by_differences(
    name: str, folder: Path, pixels: torch.Tensor, words: list[str]
) -> tuple[Any, Any]:
    """Return cosines and maps from perturbing the published model in double precision."""
    model = KINDS[name].from_pretrained(folder).double().eval()
    texts = text_features(folder, KINDS[name].__name__, words)
    patches = slice(0, 16) if name == "tiny-siglip" else slice(1, 17)
    push = torch.zeros(32, dtype=torch.double)
    seen = {}

    def add_push(layer: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        seen["activations"] = output.clone()
        output[:, patches] += push
        return output

    model.vision_model.encoder.layers[-1].layer_norm1.register_forward_hook(add_push)

    def cosines() -> torch.Tensor:
        if name == "tiny-xclip":  # it sees a film of one picture
            films = pixels[:, None].expand(-1, 8, -1, -1, -1)
            embedded = tensor(model.get_video_features(pixel_values=films))
        else:
            embedded = tensor(model.get_image_features(pixel_values=pixels))
        return torch.cosine_similarity(embedded, texts)

    # Weights by central differences over all patches together, divided by their number.
    weights = []
    with torch.no_grad():
        for channel in range(32):
            push[channel] = 1e-5
            more = cosines()
            push[channel] = -1e-5
            weights.append((more - cosines()) / 2e-5 / 16)
            push[channel] = 0
        similarity = cosines()
    activations = seen["activations"][:: 8 if name == "tiny-xclip" else 1, patches]
    maps = torch.einsum("bpc,cb->bp", activations, torch.stack(weights)).relu()
    return similarity, maps.view(-1, 4, 4)


@pytest.fixture
def library(tmp_path, obygaze) -> Path:
    random = np.random.default_rng(5)
    (tmp_path / "images").mkdir()
    rows = ["id,kind,media,emotion,condition"]
    for n in range(10):
        pixels = random.integers(0, 256, (48 + n, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"images/p{n:02}.png")
        emotion = "angry" if n % 2 else "sad"
        condition = "O" if n < 3 else "NO"
        rows.append(f"p{n:02},image,p{n:02}.png,{emotion},{condition}")
    path = write(tmp_path / "images.csv", *rows)
    obygaze("manifests", "import", "csv", path, "-o", tmp_path / "women", code=0)
    return tmp_path


@pytest.fixture
def draw(obygaze, library, checkpoints):
    def draw(*options, text="a woman", backbone="tiny-clip", code=None):
        command = ["features", "saliency", library / "women", "--images", library / "images"]
        network = ["--backbone", checkpoints[backbone], "--device", "cpu"]
        words = ("-o", library / "out", "--text", text, *options)
        return obygaze(*command, *network, *words, code=code)

    return draw


@pytest.mark.parametrize("name", KINDS)
def test_maps_equal_finite_differences(draw, library, checkpoints, name):
    """Each image has a text of its own, and images of a batch do not affect each other."""
    draw(text="a photo of a {emotion} person", backbone=name, code=0)
    rows = csv_rows(library / "out/images.csv")
    texts = [row["text"] for row in rows]
    assert texts[:2] == ["a photo of a sad person", "a photo of an angry person"]
    pictures = []
    steps = of.load_backbone(checkpoints[name], "cpu").image.preprocessing
    for row in rows:
        with Image.open(library / f"images/{row['id']}.png") as file:
            frame = torch.from_numpy(np.array(file))
            pictures.append(steps.apply(frame[None])[0])
    pixels = torch.stack(pictures).double()
    similarity, expected = maps_by_differences(name, checkpoints[name], pixels, texts)
    assert expected.amax((1, 2)).min() > 0
    maps = np.load(library / "out/maps.npy")
    np.testing.assert_allclose(maps, expected, atol=2e-5 * float(expected.max()) + 1e-7)
    cosines = [float(row["similarity"]) for row in rows]
    np.testing.assert_allclose(cosines, similarity, atol=1e-6)
    peaks = [float(row["peak"]) for row in rows]
    assert peaks == maps.max((1, 2)).tolist()
    assert len(list((library / "out/images").iterdir())) == 10


@pytest.mark.parametrize(("name", "kind"), [("tiny-vivit", "texts"), ("tiny-clap", "images")])
def test_models_without_texts_or_images_are_refused(draw, name, kind):
    refused(draw(backbone=name), f"{name} does not read {kind}", code=2)


def test_maps_are_written_per_group(draw, library):
    draw("--by", "condition", code=0)
    rows = csv_rows(library / "out/images.csv")
    maps = np.load(library / "out/maps.npy")
    means = {name: np.zeros((4, 4)) for name in ("NO", "O")}
    for cell in csv_rows(library / "out/groups.csv"):
        patch = int(cell["row"]), int(cell["column"])
        means[cell["group"]][patch] = float(cell["value"])
    for group, mean in means.items():
        members = [row["group"] == group for row in rows]
        scaled = [values / values.max() for values in maps[members]]
        np.testing.assert_allclose(mean, np.mean(scaled, axis=0), atol=1e-6)
    record = json.loads((library / "out/saliency.json").read_text())
    assert record["groups"] == {"NO": 7, "O": 3}
    highest = [mean.max() for mean in means.values()]
    assert record["brightest_at"] == pytest.approx(max(highest))  # of all pictures
    # The hotter a patch, the redder its picture.
    with Image.open(library / "out/groups/NO.png") as file:
        drawn = np.asarray(file).astype(float)
    red = drawn[..., 0] - drawn[..., 2]
    patches = red.reshape(4, 8, 4, 8)
    middles = patches[:, 3:5, :, 3:5].mean((1, 3))
    assert np.corrcoef(middles.ravel(), means["NO"].ravel()).min() > 0.9


SLIPS = {
    "a {emotino} person": "unknown column 'emotino'",
    "a {film} person": "fill in the empty cells of column 'film'",
    "a {emotion person": "unmatched brace",
}


def test_unreadable_images_are_named(draw, library):
    (library / "images/p03.png").write_bytes(b"no image")
    (library / "images/p07.png").unlink()
    result = draw(backbone="tiny-xclip", code=3)
    assert "p03 p03.png cannot be read as an image" in result.stdout
    assert "p07 no " in result.stdout
    ids = {row["id"] for row in csv_rows(library / "out/images.csv")}
    assert (len(ids), ids & {"p03", "p07"}) == (8, set())
    assert len(list((library / "out/images").iterdir())) == 8
    record = json.loads((library / "out/saliency.json").read_text())
    assert set(record["failed"]) == {"p03", "p07"}
    for text, fact in SLIPS.items():
        refused(draw("--overwrite", text=text), fact, code=2)
    for path in (library / "images").iterdir():
        path.unlink()
    refused(draw("--overwrite"), "could not map any of 10 images: no")
    assert len(csv_rows(library / "out/images.csv")) == 8  # the old folder is still there
