"""VideoMAE, pretrained and fine-tuned, against transformers' own processor and forward."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoImageProcessor, VideoMAEForVideoClassification, VideoMAEModel

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.errors import BackboneError
from tests.backbones.conftest import all_present, pictures
from tests.tiny_models import write_videomae

ALL = ["native", "max", "mean", "frames", "tokens"]
SIZES = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": 48,
    "patch_size": 16,
    "num_frames": 16,
    "decoder_hidden_size": 24,
    "decoder_num_attention_heads": 2,
    "decoder_num_hidden_layers": 1,
    "decoder_intermediate_size": 32,
}


def pixels_of(folder, backbone) -> tuple[torch.Tensor, torch.Tensor]:
    """Ours and theirs, of a clip of the wanted size."""
    clip = np.random.default_rng(1).integers(0, 256, (16, 48, 48, 3), dtype=np.uint8)
    how = backbone.preprocessing
    ours = normalise(resize_and_crop(torch.from_numpy(clip), how), how)[None]
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    return ours, processor(list(clip), return_tensors="pt")["pixel_values"].float()


def shuffle_norms(folder) -> None:
    """Layer norms of other numbers than the ones and zeros with which they begin."""
    path = folder / "model.safetensors"
    tensors, random = load_file(path), torch.Generator().manual_seed(3)
    for name in [one for one in tensors if "norm" in one]:
        tensors[name] = torch.randn(tensors[name].shape, generator=random)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize("tuned", [True, False], ids=["finetuned", "pretrained"])
def test_from_frames_to_features_as_transformers_does_it(tmp_path, tuned):
    write_videomae(tmp_path, 5, SIZES, finetuned=tuned)
    shuffle_norms(tmp_path)
    backbone = load_backbone(f"v={tmp_path}", "cpu", arrays=ALL)
    pixels, theirs = pixels_of(tmp_path, backbone)
    ours = backbone.embed_clips(pixels, all_present(pixels))
    if tuned:
        model = VideoMAEForVideoClassification.from_pretrained(tmp_path).eval()
        with torch.no_grad():
            tokens, logits = model.videomae(theirs).last_hidden_state, model(theirs).logits
            # The classifier is the judge of what its features are.
            said = model.classifier(ours["native"].clone())
        torch.testing.assert_close(said, logits, atol=1e-4, rtol=0)
        assert not torch.allclose(ours["native"], ours["mean"], atol=0.01)
    else:
        model = VideoMAEModel.from_pretrained(tmp_path).eval()
        with torch.no_grad():
            tokens = model(theirs).last_hidden_state
        torch.testing.assert_close(ours["native"], tokens.mean(1), atol=1e-4, rtol=0)
    assert tokens.shape == (1, 8 * 9, 48)
    expected = {
        "max": tokens.max(1).values,
        "mean": tokens.mean(1),
        "frames": torch.stack([tokens[:, 9 * i : 9 * i + 9].mean(1) for i in range(8)], 1),
        "tokens": tokens,
    }
    for name, values in expected.items():
        torch.testing.assert_close(ours[name], values, atol=1e-4, rtol=0, msg=name)


def test_a_classifier_without_a_layer_norm_gives_the_mean(tmp_path):
    """As when somebody fine-tunes the pretrained one: its configuration keeps the old switch."""
    config_path = tmp_path / "config.json"
    write_videomae(tmp_path, 5, SIZES, finetuned=True)
    config = json.loads(config_path.read_text()) | {"use_mean_pooling": False}
    config_path.write_text(json.dumps(config))
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    for kind in ("weight", "bias"):
        tensors[f"videomae.layernorm.{kind}"] = tensors.pop(f"fc_norm.{kind}")
    save_file(tensors, path, metadata={"format": "pt"})
    backbone = load_backbone(f"v={tmp_path}", "cpu", arrays=ALL)
    pixels, _ = pixels_of(tmp_path, backbone)
    ours = backbone.embed_clips(pixels, all_present(pixels))
    torch.testing.assert_close(ours["native"], ours["tokens"].mean(1), atol=1e-5, rtol=0)


def test_the_published_names_of_weights_are_understood(tmp_path):
    """They are older than transformers' own of today: biases of query and value lie apart."""
    write_videomae(tmp_path, 5, SIZES)
    before = load_backbone(f"v={tmp_path}", "cpu")
    path, config_path = tmp_path / "model.safetensors", tmp_path / "config.json"
    tensors = {
        name.replace("query.bias", "q_bias").replace("value.bias", "v_bias"): values
        for name, values in load_file(path).items()
    }
    assert "videomae.encoder.layer.0.attention.attention.q_bias" in tensors
    save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads(config_path.read_text())
    config["qkv_bias"] = config.pop("qv_bias", config.pop("qkv_bias", True))
    config_path.write_text(json.dumps(config))
    pixels = pictures(1, 16, 3, 48, 48)
    after = load_backbone(f"v={tmp_path}", "cpu")
    ours, theirs = (one.embed_clips(pixels, all_present(pixels)) for one in (after, before))
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)


@pytest.mark.parametrize("tuned", [True, False], ids=["finetuned", "pretrained"])
@pytest.mark.parametrize("said", [{}, {"architectures": ["VideoMAEModel"]}, {"architectures": 5}])
@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_what_a_checkpoint_is_its_tensors_say(tmp_path, tuned, said, file):
    """A configuration may say nothing of it, or something else."""
    write_videomae(tmp_path, 5, SIZES, finetuned=tuned)
    shuffle_norms(tmp_path)
    before = load_backbone(f"v={tmp_path}", "cpu")
    config = json.loads((tmp_path / "config.json").read_text())
    for word in ("architectures", "use_mean_pooling"):
        config.pop(word)
    (tmp_path / "config.json").write_text(json.dumps(config | said))
    if file == "pytorch_model.bin":
        tensors = load_file(tmp_path / "model.safetensors")
        (tmp_path / "model.safetensors").unlink()
        torch.save(tensors, tmp_path / file)
    after = load_backbone(f"v={tmp_path}", "cpu")
    pixels = pictures(1, 16, 3, 48, 48)
    ours, theirs = (one.embed_clips(pixels, all_present(pixels)) for one in (after, before))
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)
    assert torch.equal(ours["native"], ours["mean"]) is not tuned


def test_the_trunk_of_a_classifier_alone_gives_the_mean(tmp_path):
    write_videomae(tmp_path / "whole", 5, SIZES)
    whole = VideoMAEForVideoClassification.from_pretrained(tmp_path / "whole")
    whole.videomae.save_pretrained(tmp_path / "trunk")
    name = "preprocessor_config.json"
    (tmp_path / "trunk" / name).write_bytes((tmp_path / "whole" / name).read_bytes())
    pixels = pictures(1, 16, 3, 48, 48)
    trunk, classifier = (
        load_backbone(f"v={tmp_path / one}", "cpu").embed_clips(pixels, all_present(pixels))
        for one in ("trunk", "whole")
    )
    torch.testing.assert_close(trunk["native"], classifier["mean"], atol=0, rtol=0)


@pytest.mark.parametrize("lost", ["fc_norm.weight", "classifier.weight"])
def test_a_classifier_that_lacks_weights_is_refused(tmp_path, lost):
    write_videomae(tmp_path, 5, SIZES)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[lost]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BackboneError, match=f"lacks 1 weights of .*, such as {lost}$"):
        load_backbone(f"v={tmp_path}", "cpu")


@pytest.mark.parametrize(("name", "frames"), [("videomae", 7), ("vivit", 9)])
def test_frames_that_do_not_fill_tubelets_are_one_line(copy, name, frames):
    folder = copy(f"tiny-{name}")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_frames": frames}))
    with pytest.raises(
        BackboneError,
        match=rf"config\.json: num_frames must be a multiple .* 2 frames \(got {frames}\)",
    ):
        load_backbone(str(folder), "cpu")
