"""What is said of checkpoints that are not right, and that none is ever run."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from obygaze_features.backbones import load_backbone
from obygaze_features.errors import BackboneError
from tests.backbones.conftest import all_present, in_shards, pictures


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


def test_weights_may_be_a_pickle_of_tensors_and_of_nothing_else(copy, tmp_path):
    folder, trace = copy("tiny-vivit"), tmp_path / "trace"
    pixels = pictures(1, 8, 3, 32, 32)
    expected = load_backbone(str(folder), "cpu").embed_clips(pixels, all_present(pixels))
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    found = load_backbone(str(folder), "cpu").embed_clips(pixels, all_present(pixels))
    torch.testing.assert_close(found, expected, atol=0, rtol=0)

    torch.save(tensors | {"bomb": Malice(trace)}, folder / "pytorch_model.bin")
    with pytest.raises(BackboneError, match="cannot be loaded") as caught:
        load_backbone(str(folder), "cpu")
    assert "\n" not in str(caught.value)
    assert not trace.exists()


def test_weights_may_be_in_several_files(checkpoints, copy):
    folder = in_shards(copy("tiny-vivit"))
    whole, sharded = (load_backbone(str(p), "cpu") for p in (checkpoints["tiny-vivit"], folder))
    pixels = pictures(1, 8, 3, 32, 32)
    theirs, ours = (one.embed_clips(pixels, all_present(pixels)) for one in (whole, sharded))
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
            BackboneError,
            match=r"known types are: xclip, vivit, clip, siglip, videomae, vjepa2, timesformer, "
            r"dinov2, dinov2_with_registers, dinov3_vit$",
        ):
            load_backbone(str(folder), "cpu")


def test_a_folder_of_something_else_is_one_line(tmp_path):
    with pytest.raises(BackboneError, match=r"neither config.json nor pytorch_model.bin.N"):
        load_backbone(str(tmp_path), "cpu")
