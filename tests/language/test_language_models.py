"""Language models and sentence encoders, against transformers' own forward, a text at a time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    GPT2LMHeadModel,
)

from obygaze_features.errors import BackboneError
from obygaze_features.language import load_language_model, load_sentence_encoder
from tests.language.conftest import TEXTS


def chances_of(folder: Path, text: str) -> list[float]:
    """The probability of each token of a text and of its end, one step after the other."""
    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    read = [tokenizer.bos_token_id]
    chances = []
    for token in [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]:
        with torch.no_grad():
            logits = model(torch.tensor([read])).logits[0, -1]
        chances.append(torch.softmax(logits, 0)[token].item())
        read.append(token)
    return chances


def test_the_mean_probability_of_tokens_and_end_is_transformers_own(gpt2):
    found = load_language_model(str(gpt2), "cpu").mean_probabilities(TEXTS)
    wanted = [np.mean(chances_of(gpt2, text)) for text in TEXTS]
    assert len(set(wanted)) == len(TEXTS)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_texts_do_not_change_one_another(gpt2, monkeypatch):
    """In batches of many, of few, and alone."""
    model = load_language_model(str(gpt2), "cpu")
    many = [" ".join(["a man on a road"] * n) for n in (1, 5, 2, 1, 9, 3)]
    together = model.mean_probabilities(many)
    monkeypatch.setattr("obygaze_features.language.models.TOKENS_PER_BATCH", 40)
    np.testing.assert_allclose(model.mean_probabilities(many), together, rtol=1e-5)
    alone = [model.mean_probabilities([text])[0] for text in many]
    np.testing.assert_allclose(alone, together, rtol=1e-5)


def test_what_is_longer_than_a_model_reads_has_no_probability(gpt2):
    """Of 64 places one is the beginning's; nothing is to be result after the end."""
    model = load_language_model(str(gpt2), "cpu")
    longest, longer = " ".join(["a"] * 63), " ".join(["a"] * 64)
    found = model.mean_probabilities([longer, longest, "a"])
    assert found[0] is None
    np.testing.assert_allclose(found[1], np.mean(chances_of(gpt2, longest)), rtol=1e-5)


def test_weights_as_gpt2_is_published(gpt2, tmp_path):
    """Without the word "transformer" before the names, without a head, with buffers."""
    old = Path(shutil.copytree(gpt2, tmp_path / "old"))
    tensors = load_file(old / "model.safetensors")
    published = {
        name.removeprefix("transformer."): tensor
        for name, tensor in tensors.items()
        if not name.startswith("lm_head")
    }
    published["h.0.attn.bias"] = torch.ones(1, 1, 64, 64)
    save_file(published, old / "model.safetensors", metadata={"format": "pt"})
    one, other = (load_language_model(str(path), "cpu") for path in (gpt2, old))
    assert one.mean_probabilities(TEXTS) == other.mean_probabilities(TEXTS)
    torch.save(published, old / "pytorch_model.bin")
    (old / "model.safetensors").unlink()
    older = load_language_model(str(old), "cpu")
    assert one.mean_probabilities(TEXTS) == older.mean_probabilities(TEXTS)


def embeddings_of(folder: Path, texts: list[str]) -> np.ndarray:
    """The mean of transformers' own tokens, of length one; nothing is padded."""
    model, tokenizer = (
        AutoModel.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    rows = []
    for text in texts:
        with torch.no_grad():
            mean = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        rows.append((mean / mean.norm()).numpy())
    return np.stack(rows)


def test_embeddings_are_the_mean_of_transformers_own_tokens(encoder):
    found = load_sentence_encoder(str(encoder), "cpu").embed(TEXTS)
    np.testing.assert_allclose(found, embeddings_of(encoder, TEXTS), atol=1e-6)


@pytest.mark.gate
def test_many_texts_come_back_in_their_order(encoder):
    texts = [f"{'a road ' * (n % 7)}{n}" for n in range(150)]
    found = load_sentence_encoder(str(encoder), "cpu").embed(texts)
    np.testing.assert_allclose(found, embeddings_of(encoder, texts), atol=1e-6)


def test_an_encoder_of_another_kind(tmp_path):
    """BERT's layout: words of a list, in lower case, the first tokens alone, a module to norm."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man", "woman", "##s", "road"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(words), intermediate_size=32, **sizes)
    torch.manual_seed(0)
    BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path)
    kinds = ["Transformer", "Pooling", "Normalize"]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": n, "name": str(n), "type": f"sentence_transformers.models.{kind}", "path": path}
        for n, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text(
        '{"word_embedding_dimension": 16, "pooling_mode_mean_tokens": true,'
        ' "pooling_mode_cls_token": false, "include_prompt": true}'
    )
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    encoder = load_sentence_encoder(str(tmp_path), "cpu")
    found = encoder.embed(["a woman", "A womans road a road", "a man"])
    np.testing.assert_allclose(
        found[[0, 2]], embeddings_of(tmp_path, ["a woman", "a man"]), atol=1e-6
    )
    # [CLS] a woman [SEP]: what is beyond the fourth token is cut off, as SBERT does it.
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    assert encoder.count_tokens(["A womans road a road"]) == [8]
    (tmp_path / "sentence_bert_config.json").write_text(
        '{"max_seq_length": 4, "do_lower_case": true}'
    )
    lower = load_sentence_encoder(str(tmp_path), "cpu")
    np.testing.assert_allclose(lower.embed(["A MAN"]), lower.embed(["a man"]), atol=1e-6)


def test_the_positions_of_padding_are_no_tokens(encoder, tmp_path):
    """RoBERTa's 66 positions read 64 tokens."""
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    (folder / "sentence_bert_config.json").write_text("{}")
    found = load_sentence_encoder(str(folder), "cpu")
    assert found.max_tokens == 64
    assert found.embed(["man " * 300]).shape == (1, 32)


def test_a_plain_bert_reads_as_many_tokens_as_it_has_positions(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(
        vocab_size=len(words), intermediate_size=32, max_position_embeddings=20, **sizes
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path)
    found = load_sentence_encoder(str(tmp_path), "cpu")
    assert found.max_tokens == 20
    assert found.embed(["a man " * 30]).shape == (1, 16)


@pytest.fixture
def broken(encoder, tmp_path) -> Path:
    return Path(shutil.copytree(encoder, tmp_path / "broken"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("1_Pooling/config.json", "{", "cannot be loaded"),
        ("modules.json", '[{"type": "x.Dense", "path": "d"}, {"type": "Transformer", "path": ""}]',
         "cannot be loaded"),
        ("modules.json", "{}", "cannot be loaded"),
        ("config.json", '{"model_type": "gpt9"}', "cannot be loaded"),
        ("model.safetensors", "", "cannot be loaded"),
    ],
)  # fmt: skip
def test_an_encoder_that_is_not_right_is_refused_in_one_line(broken, file, content, message):
    (broken / file).write_text(content)
    with pytest.raises(BackboneError) as result:
        load_sentence_encoder(str(broken), "cpu")
    assert message in str(result.value)
    assert "\n" not in str(result.value)


def test_a_language_model_that_is_none_is_refused_in_one_line(gpt2, encoder, tmp_path):
    with pytest.raises(BackboneError, match=r"must be of the type 'gpt2' \(got 'roberta'"):
        load_language_model(str(encoder), "cpu")
    with pytest.raises(BackboneError, match=r"has no config.json"):
        load_language_model(str(tmp_path), "cpu")
    with pytest.raises(BackboneError, match=r"neither a path .*; did you mean distilgpt2\?"):
        load_language_model("distil-gpt2", "cpu")
    bare = Path(shutil.copytree(gpt2, tmp_path / "bare"))
    (bare / "vocab.json").unlink()
    with pytest.raises(BackboneError, match="has no tokenizer"):
        load_language_model(str(bare), "cpu")


def test_a_model_is_recorded_under_the_name_of_the_user(gpt2, encoder):
    models = load_language_model(f"mine={gpt2}", "cpu"), load_language_model(str(gpt2), "cpu")
    assert [model.about["name"] for model in models] == ["mine", "gpt2"]
    assert load_sentence_encoder(f"other={encoder}", "cpu").about["name"] == "other"


def test_an_encoder_that_lacks_weights_is_refused(broken):
    """sentence-transformers alone would take random numbers in their place."""
    tensors = load_file(broken / "model.safetensors")
    [lost] = [name for name in tensors if name.endswith("word_embeddings.weight")]
    del tensors[lost]
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BackboneError, match=r"lacks 1 weights of .*word_embeddings"):
        load_sentence_encoder(str(broken), "cpu")


def test_an_encoder_may_pool_in_another_way(broken, encoder):
    path = broken / "1_Pooling/config.json"
    config = json.loads(path.read_text())
    config |= {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    path.write_text(json.dumps(config))
    first = load_sentence_encoder(str(broken), "cpu").embed(["a man"])
    model, tokenizer = (
        AutoModel.from_pretrained(broken).eval(),
        AutoTokenizer.from_pretrained(broken),
    )
    with torch.no_grad():
        token = model(**tokenizer("a man", return_tensors="pt")).last_hidden_state[0, 0]
    np.testing.assert_allclose(first[0], token / token.norm(), atol=1e-6)


class NoFloat64(TorchFunctionMode):
    """As on Apple's GPUs: float64 is only for tensors that were brought to the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.on_cpu: list[torch.Tensor] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.double and not any(args[0] is tensor for tensor in self.on_cpu):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        result = func(*args, **(kwargs or {}))
        if func is torch.Tensor.cpu:
            result = result.clone()
            self.on_cpu.append(result)
        return result


def test_a_device_without_float64_serves(gpt2):
    model = load_language_model(str(gpt2), "cpu")
    with NoFloat64():
        means = model.mean_probabilities(TEXTS)
    assert means == model.mean_probabilities(TEXTS)
