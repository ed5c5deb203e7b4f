"""Load weights and tokenizers from checkpoint folders in Hugging Face format."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.network_config import check_size, loading, read_config
from obygaze_features.common.files import new_folder, read_json, sha256_of_text
from obygaze_features.common.package import cache_folder, need
from obygaze_features.errors import BackboneError, OutputExists, translate

if TYPE_CHECKING:
    from torch import Tensor

    from obygaze_features.backbones.preprocess import Preprocessing

WEIGHT_FILES = (
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
"""The names of a single weight file and of an index of several, in order of preference."""
_VOCABULARIES = ("tokenizer.json", "vocab.json", "spiece.model", "vocab.txt")
RANDOM_WEIGHTS = "random-weights-4"
"""The cache's folder of random weights. It needs a new name when the weights change."""
_LOADING = threading.Lock()
"""A lock for loading networks, because transformers then patches its classes for all threads."""


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Return the weight files in a checkpoint folder that `load_network` reads."""
    for single, index in WEIGHT_FILES:
        if (folder / single).is_file():
            return (folder / single,)
        if (folder / index).is_file():
            files = tuple(folder / name for name in _shard_names(folder / index))
            for file in files:
                if not file.is_file():
                    raise BackboneError(
                        f"{folder} lacks {file.name}, which is listed in {index}; download it again"
                    )
            return files
    names = " or ".join(single for single, _ in WEIGHT_FILES)
    raise BackboneError(f"{folder} has no weights ({names}); check that all files were copied")


def _shard_names(index: Path) -> list[str]:
    """Return the files listed in an index of weights, which must all be in its folder."""
    content = read_json(index, BackboneError)
    with translate(BackboneError, index, "is not an index of weights; download it again"):
        names = sorted(set(content["weight_map"].values()))
        if names and all(Path(name).name == name for name in names):
            return names
        raise ValueError


def load_network(folder: Path, model: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Load a transformers model in float32.

    `model` is the name of the model's class, and `options` are arguments of the class. Also returns
    the fields of the `Backbone` that follow from the folder's files. Raises `BackboneError` if a
    weight is missing or has the wrong shape.
    """
    torch = need("torch", extra="extract")
    transformers = need("transformers", extra="extract")

    model_class = getattr(transformers, model)
    files = weight_files(folder)
    config = read_config(model_class.config_class, folder, files)
    with _LOADING, loading(folder), quiet():
        with torch.device("meta"):  # only shapes, which take no memory
            network = model_class(config, **options)
        check_size(network, folder, files)
        # Misfits are reported below, in one line.
        network, report = model_class.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=files[0].suffix == ".safetensors",
            weights_only=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
        )
    # transformers fills missing weights with random numbers.
    mismatched = [name for name, *_ in report["mismatched_keys"]]
    # A classifier is not used, and the number of its labels is not a declared setting.
    misfits = {
        name
        for name in [*report["missing_keys"], *mismatched]
        if not name.startswith("classifier.")
    }
    if misfits:
        raise BackboneError(
            f"{folder} does not fit {model}: some of its weights are missing or "
            f"have the wrong shape ({min(misfits)}). Use another checkpoint"
        )
    settings = read_json(folder / "config.json", BackboneError)
    return network, {"weights": files, "config": settings}


def load_folder(
    path: Path,
    mode: str,
    model: str,
    *,
    any_size: bool = False,
    **options: Any,
) -> tuple[Any, Preprocessing, dict[str, Any]]:
    """Load a network as in `load_network`, and the preprocessing of its frames.

    With `any_size`, the size of the crop may differ from the size in ``config.json``.
    """
    from obygaze_features.backbones.preprocess import read_preprocessing

    preprocessing = read_preprocessing(path, mode)
    network, fields = load_network(path, model, **options)
    settings = getattr(network.config, "vision_config", network.config)
    if not any_size:
        preprocessing.check_size(settings.image_size, path)
    return network, preprocessing, fields


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' warnings and progress bars, but not its errors."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


@dataclass(frozen=True)
class Tokenizer:
    """A checkpoint's tokenizer.

    Parameters
    ----------
    tokenizer
        The tokenizer from transformers.
    max_tokens
        The number of tokens that the network reads, including start and end tokens. Longer texts
        are truncated.
    padding
        ``longest`` pads to the longest text in a batch, ``max_length`` to `max_tokens`.
    """

    tokenizer: Any
    max_tokens: int
    padding: str

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return the network's input for a batch of texts."""
        return dict(
            self.tokenizer(
                list(texts),
                padding=self.padding,
                truncation=True,
                max_length=self.max_tokens,
                return_tensors="pt",
            )
        )

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens in each text before truncation."""
        with quiet():  # because the caller reports texts that are too long
            encoded = self.tokenizer(list(texts), truncation=False, padding=False)
        return [len(ids) for ids in encoded["input_ids"]]

    def attributes(self) -> dict[str, Any]:
        """Return the settings as recorded in a store's attributes."""
        vocabulary = json.dumps(self.tokenizer.get_vocab(), sort_keys=True)
        return {
            "longest": self.max_tokens,
            "padding": self.padding,
            "vocabulary_sha256": sha256_of_text(vocabulary),
        }


def read_tokenizer(
    folder: Path,
    max_tokens: int,
    vocabulary_size: int,
    padding: str = "longest",
) -> Tokenizer:
    """Read the tokenizer of a checkpoint folder, for a network with this vocabulary size."""
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in _VOCABULARIES):
        raise BackboneError(
            f"{folder} has no tokenizer ({' or '.join(_VOCABULARIES)}); copy the tokenizer of the "
            "checkpoint into this folder"
        )
    with translate(BackboneError, folder, "has an unreadable tokenizer ({}); replace it"), quiet():
        tokenizer = AutoTokenizer.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
        )
    if len(tokenizer) > vocabulary_size:
        raise BackboneError(
            f"{folder}: the tokenizer has {len(tokenizer):,} tokens, but the network has "
            f"{vocabulary_size:,}. Use the tokenizer of the same checkpoint"
        )
    return Tokenizer(tokenizer, max_tokens, padding)


def sha256_of_files(files: Sequence[Path | str]) -> str:
    """Return the SHA-256 of the concatenated files (``cat FILES | sha256sum``)."""
    digest = hashlib.sha256()
    for path in files:
        with Path(path).open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def sha256_of_module(module: Any) -> str:
    """Return the SHA-256 of a network's weights, for networks that are not read from files."""
    torch = need("torch", extra="extract")
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(values.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def cached_random_weights(name: str, write: Callable[[Path, int], None]) -> Path:
    """Return a checkpoint with random weights in the user's cache; write it on first use."""
    folder = cache_folder(RANDOM_WEIGHTS) / name
    if not folder.is_dir():
        # If several processes start together, one writes it and the others read it.
        with (
            contextlib.suppress(OutputExists),
            new_folder(folder) as new,
            translate(BackboneError, folder, "cannot be written: {}; check the disk"),
        ):
            write(new, 0)
    return folder
