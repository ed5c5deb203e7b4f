"""Towers for texts, against transformers' own tokenizers and forwards."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, CLIPModel, SiglipModel, XCLIPModel

import obygaze_features as of
from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.errors import BackboneError
from tests.backbones.conftest import each, tensor

TEXTS = [
    "a photo of a person",
    "An ANGRY  person, 7 naïve cafés",
    "engineer",
    "a picture of a happy woman " * 40,
]
MODELS = {"tiny-clip": CLIPModel, "tiny-xclip": XCLIPModel, "tiny-siglip": SiglipModel}


def text_features(folder, model_class, texts=TEXTS):
    """By transformers; SigLIP was trained on padded texts."""
    options = {"padding": True, "max_length": 77}
    if model_class is SiglipModel:
        options = {"padding": "max_length", "max_length": 64}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(texts, truncation=True, return_tensors="pt", **options)
    with torch.no_grad():
        return tensor(model_class.from_pretrained(folder).eval().get_text_features(**tokens))


@each(list(MODELS))
def test_texts_are_embedded_as_transformers_does_it(checkpoints, name):
    folder = checkpoints[name]
    backbone = of.load_backbone(folder, "cpu")
    ours = backbone.embed_texts(TEXTS)
    assert (ours.shape, ours.dtype) == ((4, *backbone.embedding.shape), torch.float32)
    torch.testing.assert_close(ours, text_features(folder, MODELS[name]), atol=1e-5, rtol=0)
    # The other texts of a batch change nothing; different texts have different embeddings.
    torch.testing.assert_close(backbone.embed_texts(TEXTS[2:3]), ours[2:3], atol=1e-5, rtol=0)
    assert (torch.cdist(ours, ours) + torch.eye(4)).min() > 1e-3
    half = of.load_backbone(folder, "cpu", precision="bfloat16").embed_texts(TEXTS)
    assert half.dtype == torch.float32
    assert 0 < (ours - half).abs().max() < 0.1

    # Tokens are counted before they are cut.
    tokenizer = AutoTokenizer.from_pretrained(folder)
    counts = backbone.tokenizer.count(TEXTS)
    assert counts == [len(tokenizer(text)["input_ids"]) for text in TEXTS]
    assert counts[3] > backbone.tokenizer.max_tokens
    cut, same = backbone.embed_texts([TEXTS[3], TEXTS[3] + " and so on"])
    torch.testing.assert_close(cut, same, atol=1e-6, rtol=0)


def test_a_text_of_unknown_words_is_read_by_its_bytes(checkpoints):
    first, other = of.load_backbone(checkpoints["tiny-clip"], "cpu").embed_texts(["жінка", "女"])
    assert (first - other).abs().max() > 1e-3


def test_the_record_tells_two_tokenizers_apart(copy):
    folder = copy("tiny-clip")
    before = of.load_backbone(folder, "cpu").tokenizer.attributes()
    assert (before["longest"], before["padding"]) == (77, "longest")
    path = folder / "vocab.json"
    words = json.loads(path.read_text())
    words["a</w>"], words["b</w>"] = words["b</w>"], words["a</w>"]
    path.write_text(json.dumps(words))
    after = of.load_backbone(folder, "cpu").tokenizer.attributes()
    assert before["vocabulary_sha256"] != after["vocabulary_sha256"]


def too_many_words(folder):
    words = json.loads((folder / "vocab.json").read_text())
    words |= {f"more{number}</w>": len(words) + number for number in range(9)}
    (folder / "vocab.json").write_text(json.dumps(words))


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda folder: (folder / "vocab.json").unlink(), r"has no tokenizer \(tokenizer.json or"),
        (too_many_words, "575 tokens, but the network knows 566"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "tokenizer cannot be read: "),
    ],
)
def test_a_tokenizer_that_does_not_fit_is_one_line(copy, change, facts):
    folder = copy("tiny-clip")
    change(folder)
    with pytest.raises(BackboneError, match=facts) as caught:
        of.load_backbone(folder, "cpu").embed_texts(TEXTS)
    assert "\n" not in str(caught.value)


@pytest.mark.gate
def test_the_first_siglip_is_read_by_sentence_piece(copy, tmp_path):
    import sentencepiece

    words = "a photo of the person woman man happy angry sad engineer doctor picture image this is"
    (tmp_path / "words.txt").write_text("\n".join([words, *words.split()] * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "words.txt"), model_prefix=str(tmp_path / "spiece"), vocab_size=60,
        unk_id=2, eos_id=1, pad_id=0, bos_id=-1, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    folder = copy("tiny-siglip")
    (folder / "tokenizer.json").unlink()
    shutil.copy(tmp_path / "spiece.model", folder)
    marks = {"eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}
    config = {"tokenizer_class": "SiglipTokenizer", "model_input_names": ["input_ids"], **marks}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text(json.dumps(marks))
    ours = of.load_backbone(folder, "cpu").embed_texts
    expected = text_features(folder, SiglipModel, TEXTS[:3])
    torch.testing.assert_close(ours(TEXTS[:3]), expected, atol=1e-5, rtol=0)
    # Capitals and punctuation are nothing to it.
    first, same = ours(["a photo of a woman", "A photo, of a Woman!"])
    torch.testing.assert_close(first, same, atol=1e-6, rtol=0)


def test_siglip_squeezes_and_clip_crops(checkpoints):
    """A wide picture, white but for black ends: SigLIP sees them, and CLIP does not."""
    wide = torch.from_numpy(np.full((1, 40, 160, 3), 255, np.uint8))
    wide[:, :, :40] = wide[:, :, 120:] = 0
    for name, edges in (("tiny-clip", [255, 255, 255]), ("tiny-siglip", [0, 255, 0])):
        how = of.load_backbone(checkpoints[name], "cpu").preprocessing
        assert resize_and_crop(wide, how)[0, 0, 16, [0, 16, 31]].tolist() == edges
