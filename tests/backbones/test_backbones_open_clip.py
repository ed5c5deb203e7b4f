"""Checkpoints in OpenCLIP's layout, against a network of plain torch that has its names."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from obygaze_features.backbones import load_backbone, load_towers
from obygaze_features.backbones.made_up_words import clip_vocabulary, write_clip_tokenizer
from obygaze_features.errors import BackboneError
from tests.backbones.conftest import all_present, pictures

CONFIG, BIN, SAFE = (
    "open_clip_config.json",
    "open_clip_pytorch_model.bin",
    "open_clip_model.safetensors",
)
WORDS = clip_vocabulary()
TEXTS = ["a photo of a person", "engineer", "happy woman and sad man"]
MODEL = {
    "embed_dim": 20,
    "vision_cfg": {
        "image_size": 48, "layers": 3, "width": 48, "head_width": 16, "patch_size": 16,
        "mlp_ratio": 3.0,
    },
    "text_cfg": {
        "context_length": 40, "vocab_size": len(WORDS), "width": 24, "heads": 3, "layers": 2,
    },
}  # fmt: skip


class Block(nn.Module):
    def __init__(self, width, heads, ratio, act):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(width, int(width * ratio)),
             "c_proj": nn.Linear(int(width * ratio), width)}
        )  # fmt: skip
        self.act = act

    def forward(self, x, mask=None):
        seen = self.ln_1(x)
        x = x + self.attn(seen, seen, seen, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp["c_proj"](self.act(self.mlp["c_fc"](self.ln_2(x))))


class Transformer(nn.Module):
    def __init__(self, width, layers, heads, ratio, act):
        super().__init__()
        self.resblocks = nn.ModuleList(Block(width, heads, ratio, act) for _ in range(layers))

    def forward(self, x, mask=None):
        for block in self.resblocks:
            x = block(x, mask)
        return x


class Visual(nn.Module):
    def __init__(self, cfg, dim, act):
        super().__init__()
        width, patch = cfg["width"], cfg["patch_size"]
        self.conv1 = nn.Conv2d(3, width, patch, patch, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(width))
        self.positional_embedding = nn.Parameter(
            torch.randn((cfg["image_size"] // patch) ** 2 + 1, width)
        )
        self.ln_pre, self.ln_post = nn.LayerNorm(width), nn.LayerNorm(width)
        heads = width // cfg["head_width"]
        self.transformer = Transformer(width, cfg["layers"], heads, cfg["mlp_ratio"], act)
        self.proj = nn.Parameter(torch.randn(width, dim))

    def forward(self, x):
        x = self.conv1(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding.expand(len(x), 1, -1), x], 1)
        x = self.transformer(self.ln_pre(x + self.positional_embedding))
        return self.ln_post(x[:, 0]) @ self.proj


class OpenClip(nn.Module):
    """As OpenCLIP's own reads: the end of a text is its highest token; the rest is nought."""

    def __init__(self, model, act):
        super().__init__()
        cfg = model["text_cfg"]
        self.visual = Visual(model["vision_cfg"], model["embed_dim"], act)
        self.token_embedding = nn.Embedding(cfg["vocab_size"], cfg["width"])
        self.positional_embedding = nn.Parameter(torch.randn(cfg["context_length"], cfg["width"]))
        self.transformer = Transformer(cfg["width"], cfg["layers"], cfg["heads"], 4, act)
        self.ln_final = nn.LayerNorm(cfg["width"])
        self.text_projection = nn.Parameter(torch.randn(cfg["width"], model["embed_dim"]))
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def read(self, tokens):
        size = tokens.shape[1]
        mask = torch.full((size, size), -torch.inf).triu(1)
        x = self.transformer(self.token_embedding(tokens) + self.positional_embedding, mask)
        x = self.ln_final(x)
        return x[torch.arange(len(x)), tokens.argmax(1)] @ self.text_projection


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


def by_hand(texts):
    """The words of the small vocabulary, which has a token for each of them."""
    rows = []
    for text in texts:
        row = [WORDS["<|startoftext|>"], *(WORDS[f"{word}</w>"] for word in text.split())]
        row.append(WORDS["<|endoftext|>"])
        rows.append(row + [0] * (40 - len(row)))
    return torch.tensor(rows)


def write(folder, *, quick, suffix=SAFE, prefix="", **config):
    torch.manual_seed(3)
    theirs = OpenClip(MODEL, quick_gelu if quick else nn.functional.gelu).eval()
    state = {
        name if name.startswith("visual.") or name == "logit_scale" else prefix + name: value
        for name, value in theirs.state_dict().items()
    }
    if suffix == SAFE:
        save_file(state, folder / SAFE)
    else:
        torch.save(state, folder / BIN)
    model = MODEL | ({"quick_gelu": True} if quick else {})
    (folder / CONFIG).write_text(json.dumps({"model_cfg": model, **config}))
    write_clip_tokenizer(folder, 40)
    return theirs


@pytest.mark.parametrize(
    ("quick", "suffix", "prefix"), [(False, SAFE, ""), (True, BIN, ""), (False, BIN, "text.")]
)
def test_it_sees_and_reads_as_a_network_of_that_layout(tmp_path, quick, suffix, prefix):
    theirs = write(tmp_path, quick=quick, suffix=suffix, prefix=prefix)
    towers = load_towers(f"mine={tmp_path}", "cpu")
    pixels = pictures(4, 3, 48, 48)
    with torch.no_grad():
        seen, read = theirs.visual(pixels), theirs.read(by_hand(TEXTS))
    torch.testing.assert_close(towers.embed_images(pixels), seen, atol=1e-4, rtol=0)
    torch.testing.assert_close(towers.embed_texts(TEXTS), read, atol=1e-4, rtol=0)
    assert towers.about["family"] == "open-clip"


def test_its_image_tower_sees_the_frames_of_clips(tmp_path):
    theirs = write(tmp_path, quick=False)
    backbone = load_backbone(f"mine={tmp_path}", "cpu", arrays=["frames"])
    pixels = pictures(1, 32, 3, 48, 48)
    with torch.no_grad():
        expected = theirs.visual(pixels[0])
    found = backbone.forward(pixels, all_present(pixels))["frames"][0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_pictures_are_prepared_as_it_says(tmp_path):
    how = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25], "interpolation": "bilinear"}
    write(tmp_path, quick=False, preprocess_cfg=how | {"resize_mode": "squash"})
    found = load_towers(str(tmp_path), "cpu").preprocessing
    assert (found.mean, found.std) == ((0.5,) * 3, (0.25,) * 3)
    assert (found.filter, found.shortest_edge, found.crop) == ("bilinear", None, (48, 48))
    write(tmp_path, quick=False)
    found = load_towers(str(tmp_path), "cpu").preprocessing
    assert (found.filter, found.shortest_edge, found.mean[0]) == ("bicubic", 48, 0.48145466)


@pytest.mark.parametrize(
    ("part", "value", "why"),
    [
        ("vision_cfg", {"timm_model_name": "vit_so400m"}, "vision_cfg sets timm_model_name"),
        ("text_cfg", {"hf_model_name": "roberta-base"}, "text_cfg sets hf_model_name"),
        ("vision_cfg", {"layers": [3, 4, 6, 3]}, "its image tower is a ResNet"),
        ("vision_cfg", {"width": "wide"}, "has no usable model_cfg"),
        ("vision_cfg", {"patch_size": 8}, "conv1|patch_embedding.weight is 48 x 3 x 16 x 16"),
        ("text_cfg", {"layers": 3}, r"it lacks text_model.encoder.layers.2"),
        ("text_cfg", {"layers": 1}, r"has too much: text_model.encoder.layers.1"),
    ],
)
def test_what_is_no_plain_open_clip_is_refused(tmp_path, part, value, why):
    write(tmp_path, quick=False)
    config = json.loads((tmp_path / CONFIG).read_text())
    config["model_cfg"][part] |= value
    (tmp_path / CONFIG).write_text(json.dumps(config))
    with pytest.raises(BackboneError, match=why):
        load_towers(str(tmp_path), "cpu")


def test_a_program_among_the_weights_is_not_run(tmp_path):
    write(tmp_path, quick=False)
    (tmp_path / SAFE).unlink()
    with pytest.raises(BackboneError, match="has no weights"):
        load_towers(str(tmp_path), "cpu")

    class Program:
        def __reduce__(self):
            return (tmp_path.joinpath("ran").touch, ())

    torch.save({"visual.proj": Program()}, tmp_path / BIN)
    with pytest.raises(BackboneError, match="perhaps a program; not read"):
        load_towers(str(tmp_path), "cpu")
    assert not (tmp_path / "ran").exists()
    torch.save({"visual.proj": 1}, tmp_path / BIN)
    with pytest.raises(BackboneError, match="something else than tensors"):
        load_towers(str(tmp_path), "cpu")


def test_the_small_one_that_is_written_here_has_the_layout(checkpoints):
    folder = checkpoints["tiny-open-clip"]
    names = load_file(folder / SAFE)
    assert names["visual.transformer.resblocks.0.attn.in_proj_weight"].shape == (96, 32)
    assert names["visual.proj"].shape == names["text_projection"].shape == (32, 32)
    assert not (folder / "config.json").exists()
