"""Checkpoints of random weights, and the cards that say which there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from obygaze_features.backbones import families, known_checkpoints, load_backbone
from obygaze_features.backbones.weights import write_random_weights
from obygaze_features.errors import OutputExists
from tests.tiny_models import TINY, write_checkpoint

each_family = pytest.mark.parametrize("name", TINY)


@each_family
def test_random_weights_are_fixed_by_their_seed(checkpoints, name, tmp_path):
    write_checkpoint(name, tmp_path / "same")
    write_checkpoint(name, tmp_path / "other", seed=1)
    first, same, other = (
        load_backbone(f"x={folder}", "cpu").about["weights_sha256"]
        for folder in (checkpoints[name], tmp_path / "same", tmp_path / "other")
    )
    assert first == same != other


def test_random_weights_replace_nothing_else(checkpoints, tmp_path):
    (tmp_path / "films").mkdir()
    write = known_checkpoints()["tiny-xclip"].write
    for overwrite in (False, True):
        with pytest.raises(OutputExists):
            write_random_weights(write, tmp_path / "films", overwrite=overwrite)


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("name", ["tiny-xclip", "tiny-vivit", "tiny-xclip-lsmdc"])
def test_tiny_backbones_are_there_by_name(cache, checkpoints, name):
    first, again = load_backbone(name, "cpu"), load_backbone(f"mine={name}", "cpu")
    assert (first.name, again.name) == (name, "mine")
    assert first.about == again.about
    assert first.about == load_backbone(str(checkpoints[name]), "cpu").about
    assert len(list(cache.rglob("SYNTHETIC.txt"))) == 1


PUBLISHED = (
    "xclip", "vivit", "clip", "siglip", "videomae", "vjepa2", "timesformer", "dinov2",
)  # fmt: skip


@pytest.mark.gate
def test_full_size_random_weights_have_the_published_sizes(monkeypatch, tmp_path):
    """Their configurations, without the numbers themselves."""
    from transformers import (
        CLIPModel,
        Dinov2Model,
        SiglipModel,
        TimesformerForVideoClassification,
        VideoMAEForVideoClassification,
        VivitForVideoClassification,
        VJEPA2Model,
        XCLIPModel,
    )

    for kind in (
        XCLIPModel,
        VivitForVideoClassification,
        CLIPModel,
        SiglipModel,
        VideoMAEForVideoClassification,
        VJEPA2Model,
        TimesformerForVideoClassification,
        Dinov2Model,
    ):
        monkeypatch.setattr(
            kind, "save_pretrained", lambda self, to: self.config.save_pretrained(to)
        )
    configs = {}
    with torch.device("meta"):
        for name in (f"random-{kind}" for kind in PUBLISHED):
            write_checkpoint(name, tmp_path / name)
            configs[name] = json.loads((tmp_path / name / "config.json").read_text())
    vision = configs["random-xclip"]["vision_config"]
    keys = ("hidden_size", "num_hidden_layers", "patch_size", "image_size", "num_frames")
    assert [vision[key] for key in keys] == [768, 12, 16, 224, 32]
    assert (vision["mit_hidden_size"], configs["random-xclip"]["projection_dim"]) == (512, 512)
    vivit = configs["random-vivit"]
    keys = ("hidden_size", "num_hidden_layers", "tubelet_size", "image_size", "num_frames")
    assert [vivit[key] for key in keys] == [768, 12, [2, 16, 16], 224, 32]
    keys = ("hidden_size", "num_hidden_layers", "patch_size", "image_size")
    for name, sizes in {
        "random-clip": [768, 12, 32, 224],
        "random-siglip": [768, 12, 16, 224],
        "random-videomae": [768, 12, 16, 224],
        "random-timesformer": [768, 12, 16, 224],
        "random-dinov2": [768, 12, 14, 518],
    }.items():
        its = configs[name].get("vision_config", configs[name])
        assert [its[key] for key in keys] == sizes
    keys = ("hidden_size", "num_hidden_layers", "patch_size", "crop_size", "frames_per_clip")
    assert [configs["random-vjepa2"][key] for key in keys] == [1024, 24, 16, 256, 64]


def test_every_checkpoint_says_where_it_comes_from():
    known = known_checkpoints()
    assert len(known) == sum(len(family.checkpoints) for family in families())  # no name twice
    for checkpoint in known.values():
        sources = (checkpoint.repository, checkpoint.write, checkpoint.how_to_get)
        assert sum(map(bool, sources)) == 1
    shipped = [name for name, checkpoint in known.items() if checkpoint.write]
    assert shipped == ["tiny-xclip", "tiny-vivit", "tiny-xclip-lsmdc"]
