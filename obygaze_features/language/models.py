"""Load language models in GPT-2's layout, and sentence encoders from sentence-transformers.

A language model scores a text by the mean probability of its tokens. As in Sabir and Padró (2023),
the text is preceded by the start token, the end token counts as part of the text, and probabilities
are averaged instead of their logarithms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import published
from obygaze_features.backbones.checkpoints import Checkpoint, resolve
from obygaze_features.backbones.devices import (
    arithmetic,
    choose_device,
    explain_out_of_memory,
    move_to_device,
)
from obygaze_features.backbones.network_config import loading, read_object, refuse_code
from obygaze_features.backbones.weights import (
    Tokenizer,
    load_network,
    quiet,
    read_tokenizer,
    sha256_of_files,
)
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError

if TYPE_CHECKING:
    from torch import Tensor

TOKENS_PER_BATCH = 2048
"""The maximum number of tokens in a batch. Each token's output is as long as the vocabulary."""
TEXTS_PER_BATCH = 64

TEXT_MODELS = {
    checkpoint.name: checkpoint
    for checkpoint in (*published("language-models"), *published("sentence-encoders"))
}


@dataclass(frozen=True)
class LanguageModel:
    """A model that scores texts; `about` has its name, revision and the SHA-256 of its weights."""

    name: str
    network: Any
    tokenizer: Tokenizer
    device: str
    about: Mapping[str, Any]

    def mean_probabilities(self, texts: Sequence[str]) -> list[float | None]:
        """Return the mean token probability of each text, or None for texts that are too long."""
        with quiet():  # the caller reports texts that are too long
            encoded = self.tokenizer.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        config = self.network.config
        sequences = [[config.bos_token_id, *ids, config.eos_token_id] for ids in encoded]
        means: list[float | None] = [None] * len(sequences)
        for batch in _batches(sequences, self.tokenizer.max_tokens):
            with explain_out_of_memory(self.name, self.device):
                values = self._score([sequences[row] for row in batch])
            for row, mean in zip(batch, values, strict=True):
                means[row] = mean
        return means

    def _score(self, sequences: Sequence[Sequence[int]]) -> list[float]:
        import torch

        longest = max(map(len, sequences))
        # Padding does not affect the tokens before it, so any token will do.
        padded = []
        for tokens in sequences:
            filling = [tokens[-1]] * (longest - len(tokens))
            padded.append([*tokens, *filling])
        ids = torch.tensor(padded, device=self.device)
        lengths = torch.tensor([len(ids) for ids in sequences])
        with torch.inference_mode(), arithmetic(self.device, "float32"):
            logits = self.network(input_ids=ids[:, :-1], use_cache=False).logits.float()
            predicted = logits.gather(-1, ids[:, 1:, None])[..., 0]
            # Compute on the CPU, because Apple's GPUs have no float64.
            probabilities: Tensor = (predicted - logits.logsumexp(-1)).cpu().double().exp()
        mask = torch.arange(longest - 1) < (lengths - 1)[:, None]
        sums = (probabilities * mask).sum(1)
        means: list[float] = (sums / mask.sum(1)).tolist()
        return means


@dataclass(frozen=True)
class SentenceEncoder:
    """A sentence encoder, which reads only the start of texts that are too long."""

    name: str
    model: Any
    device: str
    about: Mapping[str, Any]

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Return normalised embeddings ``[B,D]`` in float32."""
        with explain_out_of_memory(self.name, self.device), arithmetic(self.device, "float32"):
            embeddings: Tensor = self.model.encode(
                list(texts),
                batch_size=TEXTS_PER_BATCH,
                normalize_embeddings=True,
                convert_to_tensor=True,
                show_progress_bar=False,
            )
        return embeddings.cpu()

    def cuts(self, text: str) -> bool:
        """Return True if a text is too long for the encoder, which reads only its start."""
        with quiet():  # because the caller reports texts that are too long
            encoded = self.model.tokenizer(text, truncation=False)
        return len(encoded["input_ids"]) > int(self.model.max_seq_length)


def load_language_model(spec: str | Path, device: str | None = None) -> LanguageModel:
    """Load a language model in GPT-2's layout.

    `spec` is a folder, a name in `TEXT_MODELS`, or ``OWNER/NAME`` on the Hugging Face Hub.
    """
    need("transformers", extra="language")
    device = choose_device(device)
    checkpoint = resolve(str(spec), TEXT_MODELS)
    folder = checkpoint.path
    if read_object(folder / "config.json").get("model_type") != "gpt2":
        raise BackboneError(
            f"{folder}: only models of the type 'gpt2' are supported; pass one, such as gpt2"
        )
    network, fields = load_network(folder, "GPT2LMHeadModel")
    tokenizer = read_tokenizer(folder, network.config.n_positions, network.config.vocab_size)
    move_to_device(network, device, checkpoint.name)
    about = _about(checkpoint, fields["weights"])
    return LanguageModel(checkpoint.name, network, tokenizer, device, about)


def load_sentence_encoder(spec: str | Path, device: str | None = None) -> SentenceEncoder:
    """Load a sentence encoder.

    `spec` is a folder, a name in `TEXT_MODELS`, or ``OWNER/NAME`` on the Hugging Face Hub. If
    the model has no ``modules.json``, sentence-transformers chooses how to pool tokens: in most
    models, by their mean.
    """
    sentence_transformers = need("sentence_transformers", extra="language")
    device = choose_device(device)
    checkpoint = resolve(str(spec), TEXT_MODELS)
    files = _check_weights(checkpoint.path)
    with loading(checkpoint.path), quiet():
        model = sentence_transformers.SentenceTransformer(
            str(checkpoint.path),
            device=device,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"dtype": "float32"},
        )
    return SentenceEncoder(checkpoint.name, model, device, _about(checkpoint, files))


def _about(checkpoint: Checkpoint, files: Sequence[Path]) -> dict[str, Any]:
    return {
        "name": checkpoint.name,
        "revision": checkpoint.revision,
        "weights_sha256": sha256_of_files(files),
    }


def _check_weights(folder: Path) -> Sequence[Path]:
    """Return the weight files; raise if they lack weights, which would be random numbers."""
    from transformers import MODEL_MAPPING, AutoConfig

    refuse_code(folder / "config.json")
    with loading(folder), quiet():
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model_class = MODEL_MAPPING[type(config)]
    # BERT's pooling layer is not used, and some checkpoints do not have it.
    options = {}
    if "add_pooling_layer" in signature(model_class.__init__).parameters:
        options["add_pooling_layer"] = False
    _, fields = load_network(folder, model_class.__name__, **options)
    files: Sequence[Path] = fields["weights"]
    return files


def _batches(sequences: Sequence[Sequence[int]], max_tokens: int) -> Iterator[list[int]]:
    """Yield batches of rows of similar lengths, to save padding; leave out rows that do not fit."""
    batch: list[int] = []
    for row in sorted(range(len(sequences)), key=lambda row: len(sequences[row])):
        length = len(sequences[row])
        # The network predicts the last token but does not read it.
        if length - 1 > max_tokens:
            break
        if batch and (len(batch) + 1) * length > TOKENS_PER_BATCH:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
