"""Language models and sentence encoders against transformers' own forward, and caption scores."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save
from transformers import AutoModel, AutoTokenizer, GPT2LMHeadModel, PreTrainedModel

from obygaze_features.errors import BackboneError
from obygaze_features.language import load_language_model, load_sentence_encoder
from tests.kit.files import csv_rows, refused, write
from tests.kit.floats import close
from tests.kit.models import write_gpt2, write_sentence_encoder


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt2")
    write_gpt2(folder, seed=3)
    return folder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    write_sentence_encoder(folder, seed=3)
    return folder


TEXTS = [
    "a man riding a motorcycle on a road",
    "a woman",
    "two women sitting on a sofa, one of them with a small dog",
    "Señora Ünal isst gern \u00bfqu\u00e9?",
    "a",
]


@cache
def pretrained(kind: type, folder: Path) -> tuple[Any, Any]:
    return kind.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def token_probabilities(folder: Path, text: str) -> list[float]:
    """Return the probability of each token and of the end, one step after another."""
    model, tokenizer = pretrained(GPT2LMHeadModel, folder)
    ids = [tokenizer.bos_token_id]
    probabilities = []
    for token in [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        probabilities.append(torch.softmax(logits, 0)[token].item())
        ids.append(token)
    return probabilities


def embeddings_by_transformers(folder: Path, texts: list[str], pool="mean") -> np.ndarray:
    """Return the normalised mean of the tokens, or the first, without padding."""
    model, tokenizer = pretrained(AutoModel, folder)
    rows = []
    for text in texts:
        with torch.no_grad():
            tokens = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        vector = tokens.mean(0) if pool == "mean" else tokens[0]
        rows.append((vector / vector.norm()).numpy())
    return np.stack(rows)


def test_mean_probabilities_equal_transformers(gpt2, monkeypatch):
    model = load_language_model(gpt2, "cpu")
    # One of 64 positions is the start token; longer captions have no probability.
    texts = [*TEXTS, " ".join(["a"] * 63)]
    expected = [np.mean(token_probabilities(gpt2, text)) for text in texts]
    assert len(set(expected)) == len(texts)
    longer = " ".join(["a"] * 64)
    # Texts do not change each other: in batches of many, and of few.
    for tokens in (2048, 40):
        monkeypatch.setattr("obygaze_features.language.models.TOKENS_PER_BATCH", tokens)
        *means, none = model.mean_probabilities([*texts, longer])
        assert np.divide(means, expected) == close(1, eps=1e-5)
        assert none is None


def test_weights_named_as_published_gpt2_load(gpt2, tmp_path):
    """Names lack the prefix "transformer"; there is no head, but there are buffers."""
    old = Path(shutil.copytree(gpt2, tmp_path / "old"))
    published = {"h.0.attn.bias": torch.ones(1, 1, 64, 64)}
    for name, tensor in load_file(old / "model.safetensors").items():
        if not name.startswith("lm_head"):
            published[name.removeprefix("transformer.")] = tensor
    (old / "model.safetensors").unlink()
    torch.save(published, old / "pytorch_model.bin")
    expected = load_language_model(gpt2, "cpu").mean_probabilities(TEXTS)
    assert load_language_model(old, "cpu").mean_probabilities(TEXTS) == expected


def test_embeddings_use_transformers_tokens(encoder, copy):
    roads = [f"{'a road ' * (n % 7)}{n}" for n in range(0, 150, 2)]  # more than a batch
    texts = TEXTS + roads
    vectors = load_sentence_encoder(encoder, "cpu").embed(texts)
    np.testing.assert_allclose(vectors, embeddings_by_transformers(encoder, texts), atol=1e-6)
    # It may pool in another way.
    path = copy / "1_Pooling/config.json"
    modes = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    path.write_text(json.dumps(json.loads(path.read_text()) | modes))
    first = load_sentence_encoder(copy, "cpu").embed(["a man"])
    expected = embeddings_by_transformers(copy, ["a man"], "first")
    np.testing.assert_allclose(first, expected, atol=1e-6)
    # RoBERTa's 66 positions read 64 tokens: padding takes the other two.
    (copy / "sentence_bert_config.json").write_text("{}")
    model = load_sentence_encoder(copy, "cpu")
    assert model.embed(["man " * 300]).shape == (1, 32)
    assert [model.cuts("man " * words) for words in (30, 31)] == [False, True]


@pytest.fixture
def copy(encoder, tmp_path) -> Path:
    return Path(shutil.copytree(encoder, tmp_path / "copy"))


def without_words(path: Path) -> bytes:
    weights = load_file(path)
    del weights["embeddings.word_embeddings.weight"]
    return save(weights, {"format": "pt"})


CHANGES = [
    ("1_Pooling/config.json", lambda path: b"{", "cannot be loaded"),
    ("model.safetensors", lambda path: b"", "cannot be loaded"),
    # sentence-transformers alone would take random numbers in their place.
    ("model.safetensors", without_words, r"some of its weights .*word_embeddings"),
]


@pytest.mark.parametrize(("file", "change", "facts"), CHANGES)
def test_a_mismatched_encoder_is_one_line(copy, file, change, facts):
    (copy / file).write_bytes(change(copy / file))
    with pytest.raises(BackboneError, match=facts):
        load_sentence_encoder(copy, "cpu")


def test_a_mismatched_language_model_is_one_line(gpt2, encoder, tmp_path):
    bare = Path(shutil.copytree(gpt2, tmp_path / "bare"))
    (bare / "vocab.json").unlink()
    for spec, facts in (
        (encoder, "only models of the type 'gpt2'"),
        (tmp_path, "config.json"),
        ("distil-gpt2", r"unknown checkpoint.*; did you mean distilgpt2\?"),
        (bare, "has no tokenizer"),
    ):
        with pytest.raises(BackboneError, match=facts):
            load_language_model(spec, "cpu")


HEAD = "id,caption,object,confidence,group,note\n"
CAPTIONS = """\
a,a man riding a motorcycle on a road,motor scooter,.2183,man,first
b,"two women sitting on a sofa, smiling",couch,.9,woman,
c,a man and a woman,couch,1,woman,
"""
LONG = "a road " * 40


@pytest.fixture
def score(obygaze, gpt2, encoder, tmp_path):
    """Score a table; return the command's result and the path of the scores."""

    def score(content, *options):
        table = write(tmp_path / "captions.csv", content, end="")
        out = tmp_path / "out.csv"
        models = ["--language-model", f"mine={gpt2}", "--sentence-encoder", encoder]
        words = (table, "-o", out, *models, "--device", "cpu", *options)
        return obygaze("features", "caption-scores", *words), out

    return score


def check_scores(row, text, suffix, gpt2, encoder):
    mean = np.mean(token_probabilities(gpt2, text))
    assert float(row[f"probability{suffix}"]) / mean == close(1, eps=1e-5)
    first, second = embeddings_by_transformers(encoder, [text, row["object"]])
    np.testing.assert_allclose(float(row[f"similarity{suffix}"]), first @ second, atol=1e-6)


def test_captions_get_a_probability_and_a_similarity(score, gpt2, encoder):
    result, out = score(HEAD + CAPTIONS)
    assert result.exit_code == 0
    rows = csv_rows(out)
    assert list(rows[0]) == [*HEAD.strip().split(","), "probability", "similarity"]
    assert [row["note"] for row in rows] == ["first", "", ""]
    for row in rows:
        check_scores(row, row["caption"], "", gpt2, encoder)
    record = json.loads(out.with_suffix(".json").read_text())
    models = [record[kind] for kind in ("language_model", "sentence_encoder")]
    assert [about["name"] for about in models] == ["mine", encoder.name]
    assert len({about["weights_sha256"] for about in models}) == 2
    # Nothing is replaced, and never the captions.
    out.unlink()
    refused(score(HEAD + CAPTIONS)[0], "out.json already exists")
    _, table = score(HEAD + CAPTIONS, "--overwrite", "-o", out.with_name("captions.csv"))
    assert table.with_name("captions.csv").read_text() == HEAD + CAPTIONS


VARIANTS = {
    "A MAN on a road": ("A MAN on a road", "A WOMAN on a road"),
    "the lady's hat": ("the man's hat", "the woman's hat"),
    "Female surfers and girls": ("Male surfers and men", "Female surfers and women"),
    "a [MASK] with his dog": ("a man with his dog", "a woman with his dog"),
}
WITHOUT_VARIANTS = ["a human at a womans' shop", "a man and his dog", "a man and a woman"]


def test_variants_have_scores_where_only_words_for_a_gender_change(score, gpt2, encoder):
    captions = [*VARIANTS, *WITHOUT_VARIANTS]
    rows = [f"{text},{text},dog\n" for text in captions]
    table = "id,caption,object\n" + "".join(rows)
    result, out = score(table, "--variants", "--json")
    summary = json.loads(result.stdout)
    assert summary["without_variants"] == WITHOUT_VARIANTS
    for row, variants in zip(csv_rows(out), VARIANTS.values(), strict=True):
        assert "probability" not in row  # of captions, some of which have a mask
        for suffix, text in zip(("_man", "_woman"), variants, strict=True):
            assert row[f"caption{suffix}"] == text
            check_scores(row, text, suffix, gpt2, encoder)


MISTAKES = [
    (f"{HEAD}a,x,y,.5,man,\na,x,y,.5,man,\n", "line 3: duplicate id 'a'"),
    (f"{HEAD}a,,y,.5,man,\n", "line 2: the caption is missing"),
    (f"{HEAD}a,a [MASK],y,.5,man,\n", "line 2: the caption has [MASK]"),
    ("id,caption,object,similarity\na,x,y,.5\n", "the column name 'similarity' is reserved"),
    ("id,caption,object\na,a dog,dog\n", "no captions to score. With --variants, put [MASK]"),
]


@pytest.mark.parametrize(("content", "facts"), MISTAKES)
def test_an_invalid_table_is_refused_in_one_line(score, content, facts):
    result, out = score(content, *(["--variants"] if "a dog" in content else []))
    refused(result, facts)
    assert not out.exists()


def test_captions_that_are_too_long_are_named(score):
    only_one_reads = " ".join(["a"] * 63)  # the encoder reads two tokens more than the words
    rows = f"long,{LONG},road,.5,man,\nstart,{only_one_reads},road,.5,man,\n"
    result, out = score(HEAD + CAPTIONS + rows)
    assert result.exit_code == 3
    assert [row["id"] for row in csv_rows(out)] == ["a", "b", "c", "start"]
    record = json.loads(out.with_suffix(".json").read_text())
    assert (record["too_long"], record["cut"]) == (["long"], ["start"])


def test_networks_load_in_several_threads_at_once(gpt2):
    """Loading patches transformers' classes, which another thread's loading reads."""
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: load_language_model(gpt2, "cpu"), range(8)))
    expected = models[0].mean_probabilities(TEXTS)
    assert all(model.mean_probabilities(TEXTS) == expected for model in models)
    assert "no_tie_weights" not in repr(PreTrainedModel.tie_weights)
