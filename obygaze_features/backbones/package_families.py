"""Small learnt networks that PyPI has as packages, so they need no access to the Hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.network_config import loading, read_object
from obygaze_features.backbones.readers import TextReader
from obygaze_features.backbones.weights import Tokenizer, load_network, read_tokenizer
from obygaze_features.common.package import need
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

FRAMES = 8
MEAN = (127 / 255,) * 3
STD = (128 / 255,) * 3
"""The normalisation of pixels that EfficientNet-Lite was trained with."""


def load_lite0(path: Path, mode: str) -> Backbone:
    """Load EfficientNet-Lite0 without its classifier, from a state dict."""
    torch = need("torch", extra="extract")
    code = need("efficientnet_lite_pytorch", extra="small")

    network = code.EfficientNet.from_name("efficientnet-lite0")
    with loading(path):  # only tensors are ever unpickled
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    backbone = Backbone.from_torch(
        network,
        frames=FRAMES,
        layer="_avg_pooling",
        mean=MEAN,
        std=STD,
    )
    return backbone.with_changes(weights=(path,))


def load_sentences(path: Path, mode: str) -> Backbone:
    """Load a BERT that embeds sentences as the mean of their tokens, scaled to length one."""
    from torch.nn.functional import normalize

    network, fields = load_network(path, "BertModel", add_pooling_layer=False)
    config = network.config
    longest = read_object(path / "sentence_bert_config.json")["max_seq_length"]

    def encode(tokens: Mapping[str, Tensor], names: frozenset[str]) -> dict[str, Tensor]:
        mask = tokens["attention_mask"][..., None]
        output = network(**tokens).last_hidden_state.float()
        return {"native": normalize((output * mask).sum(1) / mask.sum(1), dim=-1)}

    def load_tokenizer() -> Tokenizer:
        return read_tokenizer(path, longest, config.vocab_size)

    native = ArraySpec.named("native", (config.hidden_size,), "mean of a text's tokens, length one")
    text = TextReader(load_tokenizer, (native,), encode, [network])
    return Backbone(network, text=text, **fields)


FAMILIES = (
    Family("efficientnet-lite", None, published("efficientnet-lite"), load_lite0),
    Family("sentences", None, published("sentences"), load_sentences, embeds_texts=True),
)
