"""Untrusted config.json files choose no code, and their sizes must match the weights."""

import json
import sys
import time
from itertools import product
from types import ModuleType

import pytest
import torch

from obygaze_features.backbones import load_backbone
from obygaze_features.errors import BackboneError


@pytest.fixture
def change(copy):
    """Copy a checkpoint with changed settings, each named by the path of its keys."""

    def write(name, **settings):
        folder = copy(name)
        config = json.loads((folder / "config.json").read_text())
        for path, value in settings.items():
            part = config
            keys = path.split("__")
            for key in keys[:-1]:
                part = part[key]
            part[keys[-1]] = value
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return write


def test_no_setting_chooses_a_kernel(change, monkeypatch):
    places = product(("", "text_config__", "vision_config__"), ("", "_"))
    names = [f"{where}{start}attn_implementation" for where, start in places]
    folder = change("tiny-xclip", **dict.fromkeys(names, "evil/kern:fn"))
    asked = []
    kernels = ModuleType("kernels")
    kernels.get_kernel = lambda *args, **options: asked.append(args)
    kernels.__version__ = "0.18.2"
    monkeypatch.setitem(sys.modules, "kernels", kernels)
    backbone = load_backbone(folder, "cpu")
    assert asked == []
    attention = {
        part.config._attn_implementation
        for part in backbone.module.modules()
        if hasattr(part, "config")
    }
    assert attention == {"sdpa"}


def test_no_setting_chooses_a_package_for_quantized_weights(change):
    settings = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    backbone = load_backbone(change("tiny-xclip", quantization_config=settings), "cpu")
    assert not [part for part in backbone.module.modules() if hasattr(part, "hf_quantizer")]
    assert {weights.dtype for weights in backbone.module.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tiny-clap", {"text_config__num_hidden_layers": 10**8}),
        pytest.param("tiny-clap", {"audio_config__depths": [1] * 10**6}, marks=pytest.mark.night),
        ("tiny-clap", {"audio_config__depths": [10**9, 1]}),
        ("tiny-clap", {"audio_config__hidden_size": 10**7}),
        ("tiny-xclip", {"vision_config__num_hidden_layers": 10**8}),
        ("tiny-xclip", {"vision_config__intermediate_size": 10**9}),
        ("tiny-xclip", {"vision_config__image_size": 10**7}),
        ("tiny-xclip", {"text_config__vocab_size": 10**12}),
        ("tiny-xclip", {"vision_config__hidden_size": 10**6}),
        ("tiny-xclip", {"vision_config__num_frames": 10**7}),
    ],
)
def test_sizes_beyond_the_weights_are_refused_quickly(change, name, settings):
    folder = change(name, **settings)
    began = time.process_time()
    with pytest.raises(BackboneError, match=r"config\.json"):
        load_backbone(folder, "cpu")
    assert time.process_time() - began < 20


def test_a_config_that_would_choose_code_is_refused(tmp_path):
    from obygaze_features.backbones.network_config import refuse_code

    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "bert", "quantization_config": {}}))
    with pytest.raises(BackboneError, match="quantization_config may name code"):
        refuse_code(path)
