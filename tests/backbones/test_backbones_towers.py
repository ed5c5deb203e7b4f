"""Towers for pictures and texts, against transformers' own processors and forwards."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel, SiglipModel, XCLIPModel

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.errors import BackboneError, UsageError
from tests.backbones.conftest import pictures

TEXTS = [
    "a photo of a person",
    "An ANGRY  person, 7 naïve cafés",
    "engineer",
    "a picture of a happy woman " * 40,
]
MODELS = {"tiny-clip": CLIPModel, "tiny-siglip": SiglipModel, "tiny-xclip": XCLIPModel}
each = pytest.mark.parametrize("name", MODELS)


def embedding(found):
    """A tensor up to transformers 4, and more than that from 5 on."""
    return found if isinstance(found, torch.Tensor) else found.pooler_output


@each
def test_texts_are_embedded_as_transformers_does_it(checkpoints, name):
    folder = checkpoints[name]
    towers = load_backbone(str(folder), "cpu")
    longest, padding = (64, "max_length") if name == "tiny-siglip" else (77, True)
    tokens = AutoTokenizer.from_pretrained(folder)(
        TEXTS, padding=padding, truncation=True, max_length=longest, return_tensors="pt"
    )
    with torch.no_grad():
        theirs = embedding(MODELS[name].from_pretrained(folder).eval().get_text_features(**tokens))
    ours = towers.embed_texts(TEXTS)
    assert ours.shape == (4, *towers.embedding.shape)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    # Whatever it is read with: a text's embedding is its own.
    torch.testing.assert_close(towers.embed_texts(TEXTS[2:3]), ours[2:3], atol=1e-5, rtol=0)
    distances = torch.cdist(ours, ours) + torch.eye(4)
    assert distances.min() > 1e-3


@each
def test_pictures_are_embedded_as_transformers_does_it(checkpoints, name):
    """X-CLIP takes one for a film that stands still."""
    folder = checkpoints[name]
    towers, model = load_backbone(str(folder), "cpu"), MODELS[name].from_pretrained(folder).eval()
    pixels = pictures(3, 3, 32, 32)
    with torch.no_grad():
        if name == "tiny-xclip":
            theirs = model.get_video_features(pixels[:, None].expand(-1, 8, -1, -1, -1))
        else:
            theirs = model.get_image_features(pixels)
    ours = towers.embed_images(pixels)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, embedding(theirs), atol=1e-5, rtol=0)
    assert not torch.allclose(ours.norm(dim=1), torch.ones(3), atol=0.01)  # as it comes


@each
def test_a_picture_is_prepared_as_the_processor_does_it(checkpoints, name):
    folder = checkpoints[name]
    how = load_backbone(str(folder), "cpu").preprocessing
    picture = np.random.default_rng(1).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    ours = normalise(resize_and_crop(torch.from_numpy(picture)[None], how), how)
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    given = [picture] if name == "tiny-xclip" else Image.fromarray(picture)
    theirs = processor(given, return_tensors="pt")["pixel_values"].float()
    torch.testing.assert_close(ours, theirs.view(ours.shape), atol=0.02, rtol=0)


@each
def test_tokens_are_counted_before_they_are_cut(checkpoints, name):
    towers = load_backbone(str(checkpoints[name]), "cpu")
    tokenizer = AutoTokenizer.from_pretrained(checkpoints[name])
    assert towers.tokenizer.count(TEXTS) == [len(tokenizer(text)["input_ids"]) for text in TEXTS]
    assert towers.tokenizer.count(TEXTS)[3] > towers.tokenizer.max_tokens
    begins = TEXTS[3][: len(TEXTS[3]) // 2 * 2]
    cut, same = towers.embed_texts([begins, begins + " and so on"])
    torch.testing.assert_close(cut, same, atol=1e-6, rtol=0)


def test_a_text_of_no_known_word_is_read_by_its_bytes(checkpoints):
    towers = load_backbone(str(checkpoints["tiny-clip"]), "cpu")
    one, other = towers.embed_texts(["жінка", "女"])
    assert (one - other).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["tiny-vivit", "tiny-videomae", "tiny-xclip-lsmdc"])
def test_what_reads_no_texts_is_refused(checkpoints, name):
    with pytest.raises(UsageError, match=r"reads no texts .* obygaze features backbones"):
        load_backbone(str(checkpoints[name]), "cpu").embed_texts(["a photo"])


def test_what_is_recorded_tells_two_tokenizers_apart(copy):
    folder = copy("tiny-clip")
    before = load_backbone(str(folder), "cpu").tokenizer.attributes()
    assert (before["longest"], before["padding"]) == (77, "longest")
    path = folder / "vocab.json"
    words = json.loads(path.read_text())
    words["a</w>"], words["b</w>"] = words["b</w>"], words["a</w>"]
    path.write_text(json.dumps(words))
    after = load_backbone(str(folder), "cpu").tokenizer.attributes()
    assert before["vocabulary_sha256"] != after["vocabulary_sha256"]


def test_a_checkpoint_without_a_tokenizer_says_so(copy):
    folder = copy("tiny-clip")
    (folder / "vocab.json").unlink()
    with pytest.raises(BackboneError, match=r"has no tokenizer \(tokenizer.json or vocab.json"):
        load_backbone(str(folder), "cpu").embed_texts(TEXTS)


def test_a_tokenizer_of_another_checkpoint_is_refused(copy, checkpoints):
    folder = copy("tiny-clip")
    words = json.loads((folder / "vocab.json").read_text())
    words |= {f"more{number}</w>": len(words) + number for number in range(9)}
    (folder / "vocab.json").write_text(json.dumps(words))
    with pytest.raises(BackboneError, match="575 tokens, but the network knows 566"):
        load_backbone(str(folder), "cpu").embed_texts(TEXTS)


def test_a_broken_tokenizer_is_one_line(copy):
    folder = copy("tiny-siglip")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(BackboneError, match=r"the tokenizer cannot be read: [^\n]+$"):
        load_backbone(str(folder), "cpu").embed_texts(TEXTS)


def test_half_precision_gives_nearly_the_same_in_float32(checkpoints):
    exact, half = (
        load_backbone(str(checkpoints["tiny-clip"]), "cpu", precision=precision)
        for precision in ("float32", "bfloat16")
    )
    ours, theirs = exact.embed_texts(TEXTS), half.embed_texts(TEXTS)
    assert theirs.dtype == torch.float32
    assert 0 < (ours - theirs).abs().max() < 0.1


def test_author_mode_squashes_pictures_first(checkpoints):
    towers = load_backbone(str(checkpoints["tiny-clip"]), "cpu", mode="author")
    assert towers.preprocessing.squash == (224, 224)


@pytest.fixture(scope="module")
def sentence_piece(tmp_path_factory):
    """A small model of the kind that the first SigLIP was published with."""
    import sentencepiece

    folder = tmp_path_factory.mktemp("pieces")
    words = "a photo of the person woman man happy angry sad engineer doctor picture image this is"
    (folder / "words.txt").write_text("\n".join([words, *words.split()] * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "words.txt"), model_prefix=str(folder / "spiece"), vocab_size=60,
        unk_id=2, eos_id=1, pad_id=0, bos_id=-1, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return folder / "spiece.model"


def test_the_first_siglip_is_read_by_sentence_piece(copy, sentence_piece):
    folder = copy("tiny-siglip")
    (folder / "tokenizer.json").unlink()
    shutil.copy(sentence_piece, folder / "spiece.model")
    marks = {"eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}
    config = {"tokenizer_class": "SiglipTokenizer", "model_input_names": ["input_ids"], **marks}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text(json.dumps(marks))
    tokens = AutoTokenizer.from_pretrained(folder)(
        TEXTS[:3], padding="max_length", truncation=True, max_length=64, return_tensors="pt"
    )
    with torch.no_grad():
        theirs = embedding(SiglipModel.from_pretrained(folder).eval().get_text_features(**tokens))
    towers = load_backbone(str(folder), "cpu")
    torch.testing.assert_close(towers.embed_texts(TEXTS[:3]), theirs, atol=1e-5, rtol=0)
    # Its own way: capitals and punctuation are nothing to it.
    one, same = towers.embed_texts(["a photo of a woman", "A photo, of a Woman!"])
    torch.testing.assert_close(one, same, atol=1e-6, rtol=0)
