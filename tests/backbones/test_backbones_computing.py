"""What every family computes, and what is recorded of it."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
import torch

from obygaze_features.backbones import load_backbone
from obygaze_features.extraction.forward import embed_probe
from tests.backbones.conftest import all_present, pictures
from tests.tiny_models import CHECKPOINTS, TINY

each_family = pytest.mark.parametrize("name", TINY)


@each_family
def test_the_arrays_are_as_announced_and_chosen_by_name(checkpoints, name):
    every = [one.name for one in CHECKPOINTS[name].arrays]
    pixels = pictures(2, CHECKPOINTS[name].sampling.frames, 3, 32, 32)
    unasked = load_backbone(str(checkpoints[name]), "cpu")
    assert [one.name for one in unasked.arrays] == [one for one in every if one != "tokens"]
    assert unasked.sampling == CHECKPOINTS[name].sampling

    backbone = load_backbone(str(checkpoints[name]), "cpu", arrays=every)
    assert backbone.arrays == CHECKPOINTS[name].arrays
    whole = backbone.embed_clips(pixels, all_present(pixels))
    assert {n: tuple(v.shape[1:]) for n, v in whole.items()} == {
        one.name: one.shape for one in CHECKPOINTS[name].arrays
    }
    assert {value.dtype for value in whole.values()} == {torch.float32}
    for one in every:
        alone = load_backbone(str(checkpoints[name]), "cpu", arrays=[one])
        found = alone.embed_clips(pixels, all_present(pixels))
        assert list(found) == [one]
        torch.testing.assert_close(found[one], whole[one], atol=1e-6, rtol=0)


@each_family
def test_features_do_not_depend_on_the_rest_of_the_batch(checkpoints, name):
    backbone = load_backbone(str(checkpoints[name]), "cpu")
    pixels = pictures(3, backbone.sampling.frames, 3, 32, 32)
    present = all_present(pixels)
    together = backbone.embed_clips(pixels, present)
    alone = backbone.embed_clips(pixels[1:2], present[1:2])
    for one in together:
        torch.testing.assert_close(together[one][1:2], alone[one], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["tiny-vivit", "tiny-videomae", "tiny-vjepa2"])
def test_each_frame_token_is_of_its_own_moment(checkpoints, name):
    """Changing the last two frames changes the last token most."""
    backbone = load_backbone(str(checkpoints[name]), "cpu", arrays=["frames"])
    pixels = torch.zeros(1, 8, 3, 32, 32)
    changed = pixels.clone()
    changed[:, 6:] = 2
    there = all_present(pixels)
    moved = (
        backbone.embed_clips(changed, there)["frames"]
        - backbone.embed_clips(pixels, there)["frames"]
    )
    assert moved.norm(dim=-1).argmax() == 3


@each_family
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_is_near_and_its_results_are_float32(checkpoints, name, precision):
    pixels = pictures(2, CHECKPOINTS[name].sampling.frames, 3, 32, 32)
    exact, half = (
        load_backbone(str(checkpoints[name]), "cpu", precision=one)
        for one in ("float32", precision)
    )
    assert (exact.precision, half.precision) == ("float32", precision)
    theirs, ours = (one.embed_clips(pixels, all_present(pixels)) for one in (exact, half))
    for one in theirs:
        assert ours[one].dtype == torch.float32
        assert not torch.equal(ours[one], theirs[one])
        cosine = torch.cosine_similarity(ours[one].flatten(1), theirs[one].flatten(1))
        assert cosine.min() > 0.999


@each_family
def test_the_probe_goes_through_every_family(checkpoints, name):
    backbone = load_backbone(str(checkpoints[name]), "cpu")
    row = embed_probe(backbone)
    assert {one: values.shape for one, values in row.items()} == {
        one.name: one.shape for one in backbone.arrays
    }
    assert all(math.isfinite(float(values.sum())) for values in row.values())


@each_family
def test_weights_and_config_are_recorded(checkpoints, name):
    file = {
        "tiny-xclip-lsmdc": "pytorch_model.bin.0",
    }.get(name, "model.safetensors")
    about = load_backbone(str(checkpoints[name]), "cpu").about
    content = (checkpoints[name] / file).read_bytes()
    assert about["weights_sha256"] == hashlib.sha256(content).hexdigest()
    assert (about["name"], about["family"]) == (name, name.removeprefix("tiny-"))
    assert about["config"]["synthetic"] == "random weights, trained on nothing"
    config = checkpoints[name] / "config.json"
    if config.exists():
        assert about["config"] == json.loads(config.read_text())
