"""How backbones are asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from obygaze_features.backbones import load_backbone, prefetch
from obygaze_features.errors import BackboneError, UsageError


def test_an_array_that_there_is_not_is_answered_with_those_there_are(checkpoints):
    with pytest.raises(UsageError, match="'cls'; it has native, max, mean, frames, frames_temp"):
        load_backbone(str(checkpoints["tiny-xclip"]), "cpu", arrays=["native", "cls"])


def test_a_precision_or_a_mode_that_there_is_not_is_one_line(checkpoints):
    with pytest.raises(UsageError, match="unknown precision 'half'; use one of float32"):
        load_backbone(str(checkpoints["tiny-vivit"]), "cpu", precision="half")
    with pytest.raises(UsageError, match="'mine'"):
        load_backbone(str(checkpoints["tiny-vivit"]), "cpu", mode="mine")


def test_a_checkpoint_is_named_by_the_user_or_after_its_folder(checkpoints):
    path = checkpoints["tiny-xclip"]
    assert load_backbone(f"mine={path}", "cpu").name == "mine"
    assert load_backbone(str(path), "cpu").name == "tiny-xclip"
    with pytest.raises(UsageError, match="cannot name a store"):
        load_backbone(f"../mine={path}", "cpu")


def test_under_a_name_a_folder_is_meant_rather_than_a_card(checkpoints, tmp_path, monkeypatch):
    shutil.copytree(checkpoints["tiny-xclip"], tmp_path / "vivit")
    monkeypatch.chdir(tmp_path)
    assert load_backbone("mine=vivit", "cpu").about["family"] == "xclip"


def test_the_name_that_was_typed_is_recorded(checkpoints, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for typed, recorded in (
        ("tiny-vivit", "tiny-vivit"),
        ("mine=tiny-vivit", "tiny-vivit"),
        (f"xclip-lsmdc={checkpoints['tiny-xclip-lsmdc']}", "xclip-lsmdc"),
    ):
        assert load_backbone(typed, "cpu").about["name"] == recorded


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(BackboneError, match=r"neither a path .*; did you mean tiny-vivit"):
        load_backbone("tiny-vivid", "cpu")
    with pytest.raises(BackboneError, match="obygaze features backbones"):
        load_backbone("resnet", "cpu")


def test_a_mistyped_folder_is_said_to_be_missing():
    with pytest.raises(BackboneError, match="there is no folder weights/tiny, and weights/t"):
        load_backbone("mine=weights/tiny", "cpu")


def test_what_is_not_published_says_where_to_get_it():
    for ask in (lambda: load_backbone("xclip-lsmdc", "cpu"), lambda: prefetch("xclip-lsmdc")):
        with pytest.raises(BackboneError, match=r"https://\S+ .*give xclip-lsmdc=FILE"):
            ask()


def test_a_device_that_is_not_there_is_one_line(checkpoints):
    with pytest.raises(BackboneError, match="device 'cuda:99' cannot be used") as problem:
        load_backbone(str(checkpoints["tiny-xclip"]), "cuda:99")
    has = ["cpu", *(f"cuda:{one}" for one in range(torch.cuda.device_count()))]
    assert f"this machine has {', '.join(has)}" in str(problem.value)


def test_a_path_that_is_mistyped_names_what_is_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("weights/xclip-mine").mkdir(parents=True)
    with pytest.raises(BackboneError, match=r"no folder weights/xclip-mien \(did you mean wei"):
        load_backbone("vm=weights/xclip-mien")
    with pytest.raises(BackboneError, match=r"no folder weights/none \(weights has xclip-mine"):
        load_backbone("vm=weights/none")
