"""Networks whose weights are in Python packages, and sentence encoders like them."""

from importlib.metadata import PackageNotFoundError, distribution

import pytest
import torch
import transformers
from torch.nn.functional import normalize

import obygaze_features as of
from obygaze_features.backbones import families, known_checkpoints
from obygaze_features.errors import BackboneError
from tests.kit import models as tiny
from tests.kit.files import write

NAMES = ("efficientnet-lite0", "all-minilm-l6-v2")
TEXTS = ["the man", "a happy woman and an angry man", "photo"]


def write_sentences(folder):
    """Write a small BERT whose sentences are the means of their tokens."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *tiny.tiny.WORDS.split()]
    folder.mkdir(parents=True)
    sizes = {**tiny.SMALL, "vocab_size": len(words), "max_position_embeddings": 16}
    tiny.write_network(folder, 0, "Bert", "Model", sizes)
    write(folder / "vocab.txt", *words, end="")
    write(folder / "tokenizer_config.json", '{"tokenizer_class": "BertTokenizer"}')
    write(folder / "sentence_bert_config.json", '{"max_seq_length": 16}')
    return folder


def test_sentences_are_the_mean_of_their_tokens(tmp_path):
    folder = write_sentences(tmp_path / "bert")
    [load] = [family.load for family in families() if family.name == "sentences"]
    ours = load(folder, "standard").embed("text", TEXTS)["native"]
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, row in zip(TEXTS, ours, strict=True):
        with torch.no_grad():
            mean = model(**tokenizer(text, return_tensors="pt")).last_hidden_state.mean(1)
        torch.testing.assert_close(row, normalize(mean)[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_a_package_load_offline_and_silently(name, capsys):
    """Without the package, one line has the command that installs it."""
    package = known_checkpoints()[name].package
    try:
        installed = distribution(package.distributions[0])
    except PackageNotFoundError:
        with pytest.raises(BackboneError, match=f"Run: {package.remedy}$"):
            of.load_backbone(name, "cpu")
        return
    about = of.load_backbone(name, "cpu").about
    assert capsys.readouterr().out == ""
    assert about["package"] == f"{package.distributions[0]} {installed.version}"
    assert (about["weights_sha256"], about["licence"]) == (package.sha256, "Apache-2.0")
