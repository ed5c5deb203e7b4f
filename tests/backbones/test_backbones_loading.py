"""How backbones are asked for, and what is said of checkpoints that are not right."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from obygaze_features.backbones import CARDS, load_backbone, prefetch
from obygaze_features.backbones.random_weights import RANDOM, write_weights
from obygaze_features.backbones.registry import FAMILIES
from obygaze_features.errors import BackboneError, OutputExists, UsageError
from obygaze_features.extraction.fixed_clip import probe_of
from tests.backbones.conftest import TINY, all_present, pictures

each_family = pytest.mark.parametrize("name", TINY)


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@each_family
def test_the_arrays_are_as_announced_and_chosen_by_name(checkpoints, name):
    every = [one.name for one in CARDS[name].arrays]
    pixels = pictures(2, CARDS[name].sampling.frames, 3, 32, 32)
    unasked = load_backbone(str(checkpoints[name]), "cpu")
    assert [one.name for one in unasked.arrays] == [one for one in every if one != "tokens"]
    assert unasked.sampling == CARDS[name].sampling

    backbone = load_backbone(str(checkpoints[name]), "cpu", arrays=every)
    assert backbone.arrays == CARDS[name].arrays
    whole = backbone.forward(pixels, all_present(pixels))
    assert {n: tuple(v.shape[1:]) for n, v in whole.items()} == {
        one.name: one.shape for one in CARDS[name].arrays
    }
    assert {value.dtype for value in whole.values()} == {torch.float32}
    for one in every:
        alone = load_backbone(str(checkpoints[name]), "cpu", arrays=[one])
        found = alone.forward(pixels, all_present(pixels))
        assert list(found) == [one]
        torch.testing.assert_close(found[one], whole[one], atol=1e-6, rtol=0)


def test_an_array_that_there_is_not_is_answered_with_those_there_are(checkpoints):
    with pytest.raises(UsageError, match="'cls'; it has native, max, mean, frames, frames_temp"):
        load_backbone(str(checkpoints["tiny-xclip"]), "cpu", arrays=["native", "cls"])


@each_family
def test_features_do_not_depend_on_the_rest_of_the_batch(checkpoints, name):
    backbone = load_backbone(str(checkpoints[name]), "cpu")
    pixels = pictures(3, backbone.sampling.frames, 3, 32, 32)
    present = all_present(pixels)
    together = backbone.forward(pixels, present)
    alone = backbone.forward(pixels[1:2], present[1:2])
    for one in together:
        torch.testing.assert_close(together[one][1:2], alone[one], atol=1e-5, rtol=0)


@each_family
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_is_near_and_its_results_are_float32(checkpoints, name, precision):
    pixels = pictures(2, CARDS[name].sampling.frames, 3, 32, 32)
    exact, half = (
        load_backbone(str(checkpoints[name]), "cpu", precision=one)
        for one in ("float32", precision)
    )
    assert (exact.precision, half.precision) == ("float32", precision)
    theirs, ours = (one.forward(pixels, all_present(pixels)) for one in (exact, half))
    for one in theirs:
        assert ours[one].dtype == torch.float32
        assert not torch.equal(ours[one], theirs[one])
        cosine = torch.cosine_similarity(ours[one].flatten(1), theirs[one].flatten(1))
        assert cosine.min() > 0.999


@pytest.fixture
def tensor_float() -> Iterator[tuple[Any, Any]]:
    """TensorFloat-32 switched on for products and convolutions."""
    switches = torch.backends.cuda.matmul, torch.backends.cudnn
    was = [one.allow_tf32 for one in switches]
    for one in switches:
        one.allow_tf32 = True
    yield switches
    for one, value in zip(switches, was, strict=True):
        one.allow_tf32 = value


def test_float32_is_meant_exactly(checkpoints, tensor_float):
    """TensorFloat-32 is off while a network runs, and afterwards as it was."""
    backbone = load_backbone(str(checkpoints["tiny-vivit"]), "cpu")
    seen = []
    backbone.forward.args[0].module.register_forward_pre_hook(
        lambda *_: seen.extend(one.allow_tf32 for one in tensor_float)
    )
    pixels = pictures(1, 8, 3, 32, 32)
    backbone.forward(pixels, all_present(pixels))
    assert seen == [False, False]
    assert [one.allow_tf32 for one in tensor_float] == [True, True]


def test_a_precision_or_a_mode_that_there_is_not_is_one_line(checkpoints):
    with pytest.raises(UsageError, match="'half' is no precision; take one of float32"):
        load_backbone(str(checkpoints["tiny-vivit"]), "cpu", precision="half")
    with pytest.raises(UsageError, match="'mine' is no mode"):
        load_backbone(str(checkpoints["tiny-vivit"]), "cpu", mode="mine")


@each_family
def test_the_probe_goes_through_every_family(checkpoints, name):
    backbone = load_backbone(str(checkpoints[name]), "cpu")
    row = probe_of(backbone)
    assert {one: values.shape for one, values in row.items()} == {
        one.name: one.shape for one in backbone.arrays
    }
    assert all(math.isfinite(float(values.sum())) for values in row.values())


@each_family
def test_weights_and_config_are_recorded(checkpoints, name):
    file = "pytorch_model.bin.0" if name == "tiny-xclip-lsmdc" else "model.safetensors"
    about = load_backbone(str(checkpoints[name]), "cpu").about
    content = (checkpoints[name] / file).read_bytes()
    assert about["weights_sha256"] == hashlib.sha256(content).hexdigest()
    assert about["name"] == name.removeprefix("tiny-")
    assert about["config"]["synthetic"] == "random weights, trained on nothing"
    config = checkpoints[name] / "config.json"
    if config.exists():
        assert about["config"] == json.loads(config.read_text())


@each_family
def test_random_weights_are_fixed_by_their_seed(checkpoints, name, tmp_path):
    write_weights(name, tmp_path / "same")
    write_weights(name, tmp_path / "other", seed=1)
    first, same, other = (
        load_backbone(f"x={folder}", "cpu").about["weights_sha256"]
        for folder in (checkpoints[name], tmp_path / "same", tmp_path / "other")
    )
    assert first == same != other


def test_random_weights_replace_nothing_else(checkpoints, tmp_path):
    (tmp_path / "films").mkdir()
    for overwrite in (False, True):
        with pytest.raises(OutputExists):
            write_weights("tiny-xclip", tmp_path / "films", overwrite=overwrite)
    with pytest.raises(
        UsageError, match=r"the names are: tiny-xclip, random-xclip, .*, random-videomae$"
    ):
        write_weights("vivit", tmp_path / "new")


@each_family
def test_tiny_backbones_are_there_by_name(cache, checkpoints, name):
    first, again = load_backbone(name, "cpu"), load_backbone(f"mine={name}", "cpu")
    assert (first.name, again.name) == (name, "mine")
    assert first.about == again.about
    assert first.about == load_backbone(str(checkpoints[name]), "cpu").about
    assert len(list(cache.rglob("SYNTHETIC.txt"))) == 1


PUBLISHED = {
    "xclip": "xclip-kinetics",
    "vivit": "vivit",
    "xclip-lsmdc": "xclip-lsmdc",
    "clip": "clip-vit-base-patch32",
    "siglip": "siglip-base-patch16-224",
    "videomae": "videomae-base-finetuned-kinetics",
}
"""Of random weights in full size, whose size it is."""


def test_full_size_random_weights_have_the_published_sizes(monkeypatch, tmp_path):
    """Their configurations, without the numbers themselves."""
    from transformers import (
        CLIPModel,
        SiglipModel,
        VideoMAEForVideoClassification,
        VivitForVideoClassification,
        XCLIPModel,
    )

    for kind in (
        XCLIPModel,
        VivitForVideoClassification,
        CLIPModel,
        SiglipModel,
        VideoMAEForVideoClassification,
    ):
        monkeypatch.setattr(
            kind, "save_pretrained", lambda self, to: self.config.save_pretrained(to)
        )
    configs = {}
    with torch.device("meta"):
        for name in (f"random-{one}" for one in PUBLISHED if one != "xclip-lsmdc"):
            write_weights(name, tmp_path / name)
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
    }.items():
        its = configs[name].get("vision_config", configs[name])
        assert [its[key] for key in keys] == sizes
    for name, published in PUBLISHED.items():
        assert CARDS[f"random-{name}"].arrays == CARDS[published].arrays
        assert CARDS[f"random-{name}"].sampling == CARDS[published].sampling


def test_a_checkpoint_is_named_by_the_user_or_after_its_folder(checkpoints):
    path = checkpoints["tiny-xclip"]
    assert load_backbone(f"mine={path}", "cpu").name == "mine"
    assert load_backbone(str(path), "cpu").name == "tiny-xclip"
    with pytest.raises(UsageError, match="cannot name a store"):
        load_backbone(f"../mine={path}", "cpu")


def test_under_a_name_a_folder_is_meant_rather_than_a_card(checkpoints, tmp_path, monkeypatch):
    shutil.copytree(checkpoints["tiny-xclip"], tmp_path / "vivit")
    monkeypatch.chdir(tmp_path)
    assert load_backbone("mine=vivit", "cpu").about["name"] == "xclip"


@pytest.mark.parametrize("name", ["tiny-xclip", "tiny-vivit"])
def test_a_checkpoint_that_lacks_weights_is_refused(copy, name):
    folder = copy(name)
    tensors = load_file(folder / "model.safetensors")
    lost = {"tiny-xclip": "mit.position_embedding", "tiny-vivit": "vivit.layernorm.weight"}[name]
    del tensors[lost]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BackboneError, match=rf"lacks 1 weights .*{lost.removeprefix('vivit.')}$"):
        load_backbone(str(folder), "cpu")


@pytest.mark.parametrize("name", ["tiny-xclip", "tiny-vivit"])
def test_a_checkpoint_of_other_shapes_is_refused(copy, name):
    folder = copy(name)
    tensors = load_file(folder / "model.safetensors")
    bent = {"tiny-xclip": "mit.position_embedding", "tiny-vivit": "vivit.layernorm.weight"}[name]
    tensors[bent] = torch.zeros(3)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    match = rf"not fit its config.json: 1 weights .* such as {bent.removeprefix('vivit.')}$"
    with pytest.raises(BackboneError, match=match):
        load_backbone(str(folder), "cpu")


@pytest.mark.parametrize("content", [b"", b"nothing", b"\xff" * 100_000], ids=len)
def test_a_damaged_checkpoint_is_one_line(copy, content):
    folder = copy("tiny-xclip")
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(BackboneError, match="cannot be loaded") as caught:
        load_backbone(str(folder), "cpu")
    assert "\n" not in str(caught.value)


class Malice:
    """What makes a folder when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("name", ["tiny-xclip", "tiny-vivit"])
def test_nobody_is_advised_to_run_a_checkpoint(copy, name, tmp_path):
    folder, trace = copy(name), tmp_path / "trace"
    (folder / "model.safetensors").unlink()
    torch.save({"a": torch.ones(1), "b": Malice(trace)}, folder / "pytorch_model.bin")
    with pytest.raises(BackboneError, match="more than tensors, perhaps a program") as caught:
        load_backbone(str(folder), "cpu")
    assert not trace.exists()
    assert "weights_only" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_checkpoint_is_one_line(copy):
    file = copy("tiny-vivit") / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(BackboneError, match="cannot be loaded") as caught:
        load_backbone(str(file.parent), "cpu")
    assert "\n" not in str(caught.value)


def test_a_checkpoint_without_weights_is_refused(copy):
    folder = copy("tiny-xclip")
    (folder / "model.safetensors").unlink()
    with pytest.raises(BackboneError, match="has no weights"):
        load_backbone(str(folder), "cpu")


class Bomb:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def test_weights_may_be_a_pickle_of_tensors_and_of_nothing_else(copy, tmp_path):
    folder, trace = copy("tiny-vivit"), tmp_path / "ran"
    pixels = pictures(1, 8, 3, 32, 32)
    expected = load_backbone(str(folder), "cpu").forward(pixels, all_present(pixels))
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    found = load_backbone(str(folder), "cpu").forward(pixels, all_present(pixels))
    torch.testing.assert_close(found, expected, atol=0, rtol=0)

    torch.save(tensors | {"bomb": Bomb(trace)}, folder / "pytorch_model.bin")
    with pytest.raises(BackboneError, match="cannot be loaded") as caught:
        load_backbone(str(folder), "cpu")
    assert "\n" not in str(caught.value)
    assert not trace.exists()


def in_shards(folder: Path) -> Path:
    """The same weights in two files and an index, as large ones are published."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = {"model-00001-of-00002.safetensors": names[::2],
              "model-00002-of-00002.safetensors": names[1::2]}  # fmt: skip
    for file, its in halves.items():
        save_file({name: tensors[name] for name in its}, folder / file, metadata={"format": "pt"})
    where = {name: file for file, its in halves.items() for name in its}
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_weights_may_be_in_several_files(checkpoints, copy):
    folder = in_shards(copy("tiny-vivit"))
    whole, sharded = (load_backbone(str(p), "cpu") for p in (checkpoints["tiny-vivit"], folder))
    pixels = pictures(1, 8, 3, 32, 32)
    theirs, ours = (one.forward(pixels, all_present(pixels)) for one in (whole, sharded))
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)
    parts = sorted(folder.glob("model-*.safetensors"))
    content = b"".join(part.read_bytes() for part in parts)
    assert sharded.about["weights_sha256"] == hashlib.sha256(content).hexdigest()

    parts[1].unlink()
    with pytest.raises(BackboneError, match=r"lacks model-00002-of-00002.safetensors, which"):
        load_backbone(str(folder), "cpu")


def test_an_index_cannot_lead_out_of_its_folder(copy):
    folder = in_shards(copy("tiny-vivit"))
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "../elsewhere.safetensors"}}))
    with pytest.raises(BackboneError, match="is not an index of weights"):
        load_backbone(str(folder), "cpu")


def test_an_unknown_type_is_answered_with_the_known_ones(copy):
    folder = copy("tiny-xclip")
    for content in ('{"model_type": "bert"}', "{}", "[]"):
        (folder / "config.json").write_text(content)
        with pytest.raises(
            BackboneError, match=r"known types are: xclip, vivit, clip, siglip, videomae$"
        ):
            load_backbone(str(folder), "cpu")


def test_a_folder_of_something_else_is_one_line(tmp_path):
    with pytest.raises(BackboneError, match=r"neither config.json nor pytorch_model.bin.N"):
        load_backbone(str(tmp_path), "cpu")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(BackboneError, match=r"neither a checkpoint .*; did you mean tiny-vivit"):
        load_backbone("tiny-vivid", "cpu")
    with pytest.raises(BackboneError, match="obygaze features backbones"):
        load_backbone("resnet", "cpu")


def test_a_mistyped_folder_is_said_to_be_missing():
    with pytest.raises(BackboneError, match="there is no folder weights/tiny here, and weights/t"):
        load_backbone("mine=weights/tiny", "cpu")


def test_what_is_not_published_says_where_to_get_it():
    for ask in (lambda: load_backbone("xclip-lsmdc", "cpu"), lambda: prefetch("xclip-lsmdc")):
        with pytest.raises(BackboneError, match=r"https://\S+ .*give xclip-lsmdc=FILE"):
            ask()


def test_a_device_that_is_not_there_is_one_line(checkpoints):
    with pytest.raises(BackboneError, match="device 'cuda:99' cannot be used"):
        load_backbone(str(checkpoints["tiny-xclip"]), "cuda:99")


def test_every_card_says_where_it_comes_from():
    assert len(CARDS) == sum(len(family.cards) for family in FAMILIES)  # no name twice
    for card in CARDS.values():
        assert sum(map(bool, (card.repository, card.write, card.obtain))) == 1
    assert len(RANDOM) == 2 * len(FAMILIES)
