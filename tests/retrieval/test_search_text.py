"""Search by text, against transformers' own text features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, CLIPModel, SiglipModel, XCLIPModel

import obygaze_features as of
from obygaze_features.backbones import load_backbone
from obygaze_features.errors import BackboneError, UsageError
from tests.retrieval.conftest import TOY, make_search_store
from tests.tiny_models import write_checkpoint

MODELS = {"tiny-clip": CLIPModel, "tiny-siglip": SiglipModel, "tiny-xclip": XCLIPModel}
TEXT = "a photo of a happy woman"


@pytest.fixture(scope="module", params=MODELS)
def tower(request, tmp_path_factory):
    """A checkpoint, and a store that was made with it."""
    folder = tmp_path_factory.mktemp("towers")
    checkpoint = write_checkpoint(request.param, folder / request.param)
    about = load_backbone(str(checkpoint), "cpu").about
    return request.param, checkpoint, make_search_store(folder / "s.zarr", backbone=about)


def text_features(name, checkpoint):
    padding = "max_length" if name == "tiny-siglip" else True
    tokens = AutoTokenizer.from_pretrained(checkpoint)([TEXT], padding=padding, return_tensors="pt")
    with torch.no_grad():
        features = MODELS[name].from_pretrained(checkpoint).eval().get_text_features(**tokens)
    features = features if isinstance(features, torch.Tensor) else features.pooler_output
    return features[0].double().numpy()


@pytest.mark.parametrize("frames", [False, True])
def test_text_search_equals_transformers(tower, frames):
    name, checkpoint, made = tower
    matches = of.search(
        made.path, text=TEXT, backbone=f"{name}={checkpoint}", frames=frames, top=100
    )
    expected = of.search(made.path, vector=text_features(name, checkpoint), frames=frames, top=100)
    assert [match.id for match in matches] == [match.id for match in expected]
    np.testing.assert_allclose(
        [match.cosine for match in matches], [match.cosine for match in expected], atol=1e-5
    )


def test_other_weights_are_refused(tower, tmp_path):
    name, _, made = tower
    other = write_checkpoint(name, tmp_path / name, seed=1)
    with pytest.raises(BackboneError, match=r"made with other weights .*--backbone NAME=FOLDER"):
        of.search(made.path, text=TEXT, backbone=str(other))


def test_text_that_is_too_long_is_refused(tower):
    name, checkpoint, made = tower
    with pytest.raises(UsageError, match=r"tokens, and .* reads \d+; shorten it"):
        of.search(made.path, text=TEXT * 40, backbone=f"{name}={checkpoint}")


def test_checkpoint_is_found_by_the_name_in_the_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    about = load_backbone("tiny-xclip", "cpu").about
    made = make_search_store(tmp_path / "s.zarr", backbone=about)
    assert len(of.search(made.path, text=TEXT, top=3)) == 3


def test_checkpoint_that_is_not_here_is_asked_for(tmp_path, tower, monkeypatch):
    _, checkpoint, _ = tower
    monkeypatch.chdir(tmp_path)
    about = {**load_backbone(str(checkpoint), "cpu").about, "name": "ours"}
    made = make_search_store(tmp_path / "s.zarr", backbone=about)
    with pytest.raises(BackboneError, match=r"no backbone 'ours' .*--backbone NAME=FOLDER"):
        of.search(made.path, text=TEXT)


@pytest.mark.parametrize(
    ("about", "remedy"),
    [
        ({"family": "shutil:rmtree"}, "--backbone x=shutil:rmtree"),
        ({"name": "x=shutil:rmtree"}, "NAME=FOLDER"),
        ({"name": "shutil:rmtree"}, "NAME=FOLDER"),
        ({"name": "standard"}, "NAME=FOLDER"),  # a folder that is there
        ({"name": "x=standard"}, "NAME=FOLDER"),
        ({"name": "lab/model"}, "NAME=FOLDER"),  # of the Hub
        ({"name": "x", "family": "lab/model"}, "NAME=FOLDER"),
        ({"name": "shutil:rmtree", "family": "shutil:rmtree"}, "shutil:rmtree=shutil:rmtree"),
        ({"name": "lab/model", "family": "lab/model"}, "NAME=FOLDER"),
        ({"name": "standard", "family": "standard"}, "NAME=FOLDER"),
    ],
)
def test_store_chooses_no_code_path_or_download(tmp_path, monkeypatch, about, remedy):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "standard").mkdir()
    monkeypatch.setattr("obygaze_features.backbones.load_backbone", lambda *_: pytest.fail("loads"))
    made = make_search_store(tmp_path / "s.zarr", backbone={**TOY, "name": "x", **about})
    with pytest.raises(BackboneError, match=f"is known here; .*{remedy}"):
        of.search(made.path, text=TEXT)
    assert (tmp_path / "standard").is_dir()


@pytest.mark.parametrize("family", ["vivit", "xclip-lsmdc", "videomae"])
def test_backbone_without_texts_says_so(tmp_path, family):
    about = {"name": family, "family": family, "revision": None, "weights_sha256": "0" * 64,
             "config": {}}  # fmt: skip
    made = make_search_store(tmp_path / "s.zarr", backbone=about)
    with pytest.raises(UsageError, match=f"backbone {family} reads no texts; .*--like"):
        of.search(made.path, text=TEXT)
