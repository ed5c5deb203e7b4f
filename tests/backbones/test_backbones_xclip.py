"""X-CLIP against transformers' own forward, and how backbones are asked for."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import XCLIPModel

from obygaze_features.backbones import CARDS, load_backbone
from obygaze_features.backbones.random_weights import write_weights
from obygaze_features.errors import BackboneError, UsageError


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    write_weights("tiny-xclip", folder)
    return folder


@pytest.fixture
def copy(weights, tmp_path) -> Path:
    return Path(shutil.copytree(weights, tmp_path / "copy"))


def test_features_are_those_of_transformers(weights):
    backbone = load_backbone(f"tiny={weights}", "cpu")
    pixels = torch.randn(3, 8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    ours = backbone.forward(pixels)

    model = XCLIPModel.from_pretrained(weights).eval()
    with torch.no_grad():
        theirs = model.get_video_features(pixels)
        images = model.visual_projection(model.vision_model(pixels.flatten(0, 1)).pooler_output)
    native = theirs if isinstance(theirs, torch.Tensor) else theirs.pooler_output
    frames = images.view(3, 8, -1)
    torch.testing.assert_close(ours["native"], native, atol=1e-4, rtol=0)
    torch.testing.assert_close(ours["frames"], frames, atol=1e-4, rtol=0)
    torch.testing.assert_close(ours["max"], frames.max(1).values, atol=1e-4, rtol=0)
    torch.testing.assert_close(ours["mean"], frames.mean(1), atol=1e-4, rtol=0)
    # By X-CLIP's definition the clip embedding is the mean of the mixed frames.
    torch.testing.assert_close(ours["frames_temporal"].mean(1), native, atol=1e-4, rtol=0)


def test_the_arrays_are_as_announced(weights):
    backbone = load_backbone(f"tiny={weights}", "cpu")
    ours = backbone.forward(torch.zeros(2, 8, 3, 32, 32))
    assert {name: tuple(value.shape[1:]) for name, value in ours.items()} == {
        one.name: one.shape for one in backbone.arrays
    }


def test_features_do_not_depend_on_the_rest_of_the_batch(weights):
    backbone = load_backbone(f"tiny={weights}", "cpu")
    pixels = torch.randn(3, 8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    together, alone = backbone.forward(pixels), backbone.forward(pixels[1:2])
    for name in together:
        torch.testing.assert_close(together[name][1:2], alone[name], atol=1e-5, rtol=0)


@pytest.mark.parametrize("count", [4, 16])
def test_another_number_of_frames_is_refused(weights, count):
    backbone = load_backbone(f"tiny={weights}", "cpu")
    with pytest.raises(AssertionError, match=f"{count} frames"):
        backbone.forward(torch.zeros(1, count, 3, 32, 32))


def test_weights_and_config_are_recorded(weights):
    about = load_backbone(f"tiny={weights}", "cpu").about
    content = (weights / "model.safetensors").read_bytes()
    assert about["weights_sha256"] == hashlib.sha256(content).hexdigest()
    assert about["config"] == json.loads((weights / "config.json").read_text())


def test_random_weights_are_fixed_by_their_seed(weights, tmp_path):
    write_weights("tiny-xclip", tmp_path / "same")
    write_weights("tiny-xclip", tmp_path / "other", seed=1)
    first, same, other = (
        (folder / "model.safetensors").read_bytes()
        for folder in (weights, tmp_path / "same", tmp_path / "other")
    )
    assert first == same != other


def test_a_checkpoint_is_named_by_the_user_or_after_its_folder(weights):
    assert load_backbone(f"mine={weights}", "cpu").name == "mine"
    assert load_backbone(str(weights), "cpu").name == "tiny"
    with pytest.raises(UsageError, match="cannot name a store"):
        load_backbone(f"../mine={weights}", "cpu")


def test_a_checkpoint_that_lacks_weights_is_refused(copy):
    tensors = load_file(copy / "model.safetensors")
    del tensors["mit.position_embedding"]
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BackboneError, match=r"lacks 1 weights .*mit.position_embedding"):
        load_backbone(str(copy), "cpu")


def test_a_damaged_checkpoint_is_one_line(copy):
    (copy / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(BackboneError, match="cannot be loaded"):
        load_backbone(str(copy), "cpu")


def test_a_checkpoint_without_weights_is_refused(copy):
    (copy / "model.safetensors").unlink()
    with pytest.raises(BackboneError, match="has no weights"):
        load_backbone(str(copy), "cpu")


def test_an_unknown_type_is_answered_with_the_known_ones(copy):
    (copy / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(BackboneError, match=r"'bert'; known types are: xclip"):
        load_backbone(str(copy), "cpu")


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(BackboneError, match="the names are: xclip"):
        load_backbone("resnet", "cpu")


def test_a_published_checkpoint_that_cannot_be_fetched_is_one_line(monkeypatch, tmp_path):
    import huggingface_hub

    def offline(*args, **kwargs):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(BackboneError, match=f"{CARDS['xclip'].checkpoint} cannot be fetched"):
        load_backbone("xclip", "cpu")


def test_a_device_that_is_not_there_is_one_line(weights):
    with pytest.raises(BackboneError, match="device 'cuda:99' cannot be used"):
        load_backbone(str(weights), "cuda:99")
