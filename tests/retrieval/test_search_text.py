"""Search by text, against transformers' own text features."""

from __future__ import annotations

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import BackboneError, UsageError
from tests.backbones.conftest import each
from tests.backbones.test_backbones_towers import MODELS, text_features
from tests.retrieval.conftest import TOY, make_search_store
from tests.tiny_models import Checkpoints, write_checkpoint

TEXT = "a photo of a happy woman"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return Checkpoints(tmp_path_factory.mktemp("checkpoints"))


@each(list(MODELS))
def test_text_search_equals_transformers(checkpoints, tmp_path, name):
    checkpoint = checkpoints[name]
    about = of.load_backbone(checkpoint, "cpu").about
    store = make_search_store(tmp_path / "s.zarr", backbone=about).path
    backbone = f"{name}={checkpoint}"
    features = text_features(checkpoint, MODELS[name], [TEXT])[0].double().numpy()
    for frames in (False, True):
        matches = of.search(store, text=TEXT, backbone=backbone, frames=frames, top=100)
        expected = of.search(store, vector=features, frames=frames, top=100)
        assert [match.id for match in matches] == [match.id for match in expected]
        cosines = [match.cosine for match in matches]
        np.testing.assert_allclose(cosines, [match.cosine for match in expected], atol=1e-5)
    other = write_checkpoint(name, tmp_path / name, seed=1)
    with pytest.raises(BackboneError, match=r"made with other weights .*--backbone NAME=FOLDER"):
        of.search(store, text=TEXT, backbone=str(other))
    with pytest.raises(UsageError, match=r"tokens, and .* reads \d+; shorten it"):
        of.search(store, text=TEXT * 40, backbone=backbone)


def test_checkpoint_is_found_by_the_name_in_the_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    about = of.load_backbone("tiny-xclip", "cpu").about
    source = make_search_store(tmp_path / "s.zarr", backbone=about)
    assert len(of.search(source.path, text=TEXT, top=3)) == 3


@pytest.mark.parametrize(
    ("about", "remedy"),
    [
        ({"name": "ours"}, "NAME=FOLDER"),
        ({"family": "shutil:rmtree"}, "--backbone x=shutil:rmtree"),
        ({"name": "x=shutil:rmtree"}, "NAME=FOLDER"),
        ({"name": "shutil:rmtree"}, "NAME=FOLDER"),
        ({"name": "standard"}, "NAME=FOLDER"),  # a folder that is there
        ({"name": "x=standard"}, "NAME=FOLDER"),
        ({"name": "lab/model"}, "NAME=FOLDER"),  # of the Hub
        ({"name": "x", "family": "lab/model"}, "NAME=FOLDER"),
    ],
)
def test_store_chooses_no_code_path_or_download(tmp_path, monkeypatch, about, remedy):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "standard").mkdir()
    monkeypatch.setattr("obygaze_features.backbones.load_backbone", lambda *_: pytest.fail("loads"))
    source = make_search_store(tmp_path / "s.zarr", backbone={**TOY, "name": "x", **about})
    with pytest.raises(BackboneError, match=f"is known here; .*{remedy}"):
        of.search(source.path, text=TEXT)
    assert (tmp_path / "standard").is_dir()


@pytest.mark.parametrize("family", ["vivit", "xclip-lsmdc", "videomae"])
def test_backbone_without_texts_says_so(tmp_path, family):
    about = {"name": family, "family": family, "revision": None, "weights_sha256": "0" * 64,
             "config": {}}  # fmt: skip
    source = make_search_store(tmp_path / "s.zarr", backbone=about)
    with pytest.raises(UsageError, match=f"backbone {family} reads no texts; .*--like"):
        of.search(source.path, text=TEXT)
