"""Checkpoints that do not fit, the errors that users see, and that none is ever executed."""

import json
import sys
import time
from itertools import product
from types import ModuleType

import pytest
import torch

import obygaze_features as of
from obygaze_features.errors import BackboneError, ObygazeError
from tests.backbones.conftest import as_pickle, edit_json, edit_weights, in_shards
from tests.kit.files import refused, write
from tests.kit.models import write_gpt2
from tests.kit.store import Malice

ELSEWHERE = {"x": "../elsewhere.safetensors"}


def config(**changes):
    return lambda folder: edit_json(folder / "config.json", **changes)


def processor(**changes):
    return lambda folder: edit_json(folder / "preprocessor_config.json", **changes)


def weights(name, values=None):
    """Change or remove a weight."""

    def change(tensors):
        del tensors[name]
        tensors |= {} if values is None else {name: values}

    return lambda folder: edit_weights(folder, change)


def list_elsewhere(folder):
    edit_json(in_shards(folder) / "model.safetensors.index.json", weight_map=ELSEWHERE)


def cut_off(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


POSITIONS = "clip.visual.positional_embedding"
SLIPS = [
    ("tiny-xclip", config(model_type="bert"), "model_type 'bert'; supported types: xclip, vivit"),
    ("tiny-xclip", processor(crop_size=16), r"crops to \(16, 16\), .* takes \(32, 32\)"),
    ("tiny-clap", processor(truncation="fusion"), "fusion.* Use .*laion/clap-htsat-unfused"),
    ("tiny-clap", processor(feature_size=20), r"\(1, 201, 20\).* network takes \(1, 201, 16\)"),
    ("tiny-clap", processor(feature_extractor_type="Whisper"), "does not configure a Clap"),
    ("tiny-clap", processor(max_length_s=10**9), "bad windows of 1000000000 s"),
    ("tiny-clap", processor(padding="none"), "padding must be .* 'none'"),
    ("tiny-vivit", list_elsewhere, "is not an index of weights"),
    ("tiny-vivit", config(num_frames=9), r"num_frames must be a multiple .* 2 frames \(got 9\)"),
    ("tiny-vivit", weights("vivit.layernorm.weight"), r"missing .*\(layernorm.weight"),
    ("tiny-vivit", weights("vivit.layernorm.weight", torch.zeros(3)), r"shape \(layernorm.weight"),
    ("tiny-vivit", lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
    ("tiny-vivit", lambda folder: write(folder / "config.json", "[]"), "must hold a JSON object"),
    ("tiny-vivit", cut_off, "cannot be loaded"),
    ("tiny-xclip-lsmdc", weights(POSITIONS, torch.zeros(16, 64)), "an X-CLIP: 15 patches"),
    (
        "tiny-xclip-lsmdc",
        weights("clip.visual.ln_post.weight", torch.zeros(3)),
        "has a wrong shape",
    ),
    ("tiny-xclip-lsmdc", weights("frame_mat_weight"), "frame_mat_weight.*For any other"),
]


@pytest.mark.parametrize("number", range(len(SLIPS)))
def test_a_checkpoint_that_does_not_fit_is_one_line(copy, number):
    name, change, facts = SLIPS[number]
    folder = copy(name)
    change(folder)
    with pytest.raises(BackboneError, match=facts) as caught:
        of.load_backbone(folder, "cpu")
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("name", ["tiny-vivit", "tiny-xclip-lsmdc"])
def test_a_hostile_pickle_runs_no_code(copy, tmp_path, name):
    folder = copy(name)
    bomb = Malice(tmp_path / "trace")
    if name == "tiny-xclip-lsmdc":
        edit_weights(folder, lambda state: state.update(bomb=bomb))
    else:
        as_pickle(folder, folder, bomb=bomb)
        (folder / "model.safetensors").unlink()
    with pytest.raises(BackboneError, match="more than tensors") as caught:
        of.load_backbone(folder, "cpu")
    assert not bomb.trace.exists()
    assert "weights_only" not in str(caught.value)  # no advice to run it
    # The same file does run code if it is unpickled.
    [file] = folder.glob("pytorch_model.bin*")
    torch.load(file, weights_only=False)
    assert bomb.trace.exists()


def test_no_setting_chooses_a_kernel_or_package(copy, monkeypatch):
    places = product(("", "text_config__", "vision_config__"), ("", "_"))
    settings = {f"{where}{start}attn_implementation": "evil/kern:fn" for where, start in places}
    settings["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    folder = change(copy("tiny-xclip"), settings)
    asked = []
    kernels = ModuleType("kernels")
    kernels.get_kernel = lambda *args, **options: asked.append(args)
    kernels.__version__ = "0.18.2"
    monkeypatch.setitem(sys.modules, "kernels", kernels)
    parts = [*of.load_backbone(folder, "cpu").module.modules()]
    assert asked == []
    configs = [part.config for part in parts if hasattr(part, "config")]
    assert {config._attn_implementation for config in configs} == {"sdpa"}
    assert not [part for part in parts if hasattr(part, "hf_quantizer")]


def change(folder, settings):
    """Change settings, each named by the path of its keys."""
    content = json.loads((folder / "config.json").read_text())
    for path, value in settings.items():
        *keys, last = path.split("__")
        part = content
        for key in keys:
            part = part[key]
        part[last] = value
    (folder / "config.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("tiny-clap", "audio_config__depths", [10**9, 1]),
        ("tiny-clap", "audio_config__hidden_size", 10**7),
        ("tiny-xclip", "text_config__vocab_size", 10**12),
    ],
)
def test_sizes_beyond_the_weights_are_refused_quickly(copy, name, setting, value):
    folder = change(copy(name), {setting: value})
    began = time.process_time()
    with pytest.raises(BackboneError, match=r"config\.json"):
        of.load_backbone(folder, "cpu")
    assert time.process_time() - began < 20


def test_a_text_model_that_would_choose_code_is_refused(obygaze, tmp_path):
    """Transformers itself reads its settings."""
    write_gpt2(tmp_path / "gpt2", seed=3)
    edit_json(tmp_path / "gpt2/config.json", quantization_config={})
    table = write(tmp_path / "t.csv", "id,caption,object", "a,A man reads.,book")
    command = ("features", "caption-scores", table, "--language-model", tmp_path / "gpt2")
    scored = obygaze(*command, "--sentence-encoder", tmp_path / "gpt2", "-o", tmp_path / "s.csv")
    refused(scored, "quantization_config may name code")


@pytest.mark.parametrize(
    ("spec", "options", "facts"),
    [
        ("PATH", {"precision": "half"}, "unknown precision 'half'; use one of float32"),
        ("../mine=PATH", {}, "'../mine' is not a valid store name"),
        ("PATH", {"arrays": "other:native"}, "no array of tiny-vivit is requested; add one"),
        ("tiny-vivid", {}, "unknown checkpoint.*; did you mean tiny-vivit"),
    ],
)
def test_a_typing_error_is_one_line(checkpoints, tmp_path, monkeypatch, spec, options, facts):
    monkeypatch.chdir(tmp_path)
    spec = spec.replace("PATH", str(checkpoints["tiny-vivit"]))
    with pytest.raises(ObygazeError, match=facts) as caught:
        of.load_backbone(spec, "cpu", **options)
    assert "\n" not in str(caught.value)
