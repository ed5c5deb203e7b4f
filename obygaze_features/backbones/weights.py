"""Files of weights: those of a checkpoint folder in Hugging Face's layout, and loading them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from obygaze_features.common.files import SYNTHETIC, new_folder, read_json, write_text
from obygaze_features.common.package import cache_folder, need
from obygaze_features.common.text import first_line
from obygaze_features.errors import BackboneError, OutputExists

WEIGHT_FILES = (
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
"""The file of weights, or the index of several, in order of preference."""
GENERATION = 2
"""Raised when the random weights that we write change, so that no older cached copy is used."""


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files of weights in a checkpoint folder that `load_model` reads."""
    for single, index in WEIGHT_FILES:
        if (folder / single).is_file():
            return (folder / single,)
        if (folder / index).is_file():
            files = tuple(folder / name for name in shard_names(folder / index))
            if missing := [file.name for file in files if not file.is_file()]:
                raise BackboneError(f"{folder} lacks {missing[0]}, which {index} names")
            return files
    names = " or ".join(single for single, _ in WEIGHT_FILES)
    raise BackboneError(f"{folder} has no weights ({names}); check that everything was copied")


def shard_names(index: Path) -> list[str]:
    """The files that an index of weights names; all must be in its own folder."""
    content = read_json(index, BackboneError)
    try:
        names = sorted(set(content["weight_map"].values()))
        if names and all(Path(name).name == name for name in names):
            return names
    except (AttributeError, KeyError, TypeError):
        pass
    raise BackboneError(f"{index} is not an index of weights: it needs a weight_map of file names")


def tensor_names(folder: Path, files: Sequence[Path]) -> frozenset[str]:
    """The names of the tensors in the weights of a checkpoint folder."""
    torch = need("torch", extra="extract")
    from safetensors import safe_open

    names: set[str] = set()
    for file in files:
        try:
            if file.suffix == ".safetensors":
                with safe_open(file, "pt") as tensors:
                    names.update(tensors.keys())
            else:
                names.update(torch.load(file, "meta", weights_only=True).keys())
        except Exception as problem:  # each file format has its own errors
            raise unreadable(folder, problem) from None
    return frozenset(names)


def load_model(model_class: Any, folder: Path, files: Sequence[Path], **options: Any) -> Any:
    """Load a transformers model in float32; weights that do not fit it exactly are an error."""
    torch = need("torch", extra="extract")
    try:
        with quiet():  # what does not fit is reported below, in one line
            model, report = model_class.from_pretrained(
                folder,
                dtype=torch.float32,
                use_safetensors=files[0].suffix == ".safetensors",
                weights_only=True,
                local_files_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **options,
            )
    except Exception as problem:  # each file format has its own errors
        raise unreadable(folder, problem) from None
    kind = model_class.__name__
    # transformers fills missing weights with random numbers. From version 5 on it reports
    # mismatched weights with their shapes.
    mismatched = sorted(
        key if isinstance(key, str) else key[0] for key in report["mismatched_keys"]
    )
    if mismatched:
        raise BackboneError(
            f"{folder} does not fit its config.json: {len(mismatched)} weights of {kind} have "
            f"another shape, such as {mismatched[0]}"
        )
    if missing := sorted(report["missing_keys"]):
        raise BackboneError(
            f"{folder} lacks {len(missing)} weights of {kind}, such as {missing[0]}"
        )
    return model


def load_folder(
    path: Path, mode: str, model: str, *, size: str | None = "image_size", **options: Any
) -> tuple[Any, dict[str, Any]]:
    """Load a transformers model, by its class's name, from a folder in Hugging Face's layout.

    Also the fields of its `Backbone` that the folder's files give. `size` is the setting that says
    which input the network takes; None for one that takes any.
    """
    transformers = need("transformers", extra="extract")
    from obygaze_features.backbones.preprocess import read_preprocessing

    files = weight_files(path)
    preprocessing = read_preprocessing(path, mode)
    network = load_model(getattr(transformers, model), path, files, **options)
    settings = getattr(network.config, "vision_config", network.config)
    if size:
        preprocessing.check_size(getattr(settings, size), path)
    config = read_json(path / "config.json", BackboneError)
    return network, {"preprocessing": preprocessing, "weights": files, "config": config}


def unreadable(folder: Path, problem: Exception) -> BackboneError:
    """The error for weights that cannot be read, in one line."""
    if "Weights only load failed" in str(problem):  # PyTorch would advise to run the program
        return BackboneError(
            f"{folder} cannot be loaded: its weights hold more than tensors, perhaps a program. "
            "Use a checkpoint in safetensors format"
        )
    reason = first_line(problem)
    return BackboneError(f"{folder} cannot be loaded: {reason}; download the checkpoint again")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Show only transformers' errors, and none of its progress bars."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def sha256_of_files(files: Sequence[Path]) -> str:
    """The SHA-256 of files, one after another (``cat * | sha256sum``)."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def sha256_of_module(module: Any) -> str:
    """The SHA-256 of a network's weights, by name, for a network that reads no files."""
    torch = need("torch", extra="extract")
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(values.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def write_random_weights(
    write: Callable[[Path, int], None], folder: Path, *, seed: int = 0, overwrite: bool = False
) -> None:
    """Write a checkpoint of random weights into a new folder, by `KnownCheckpoint.write`.

    With `overwrite` an earlier one is replaced. The same seed gives the same weights.
    """
    with new_folder(folder, overwrite=overwrite, marker=SYNTHETIC, allow_missing=True) as new:
        write_text(new / SYNTHETIC, "Random weights by obygaze features make-weights.\n")
        with _full_disks_named(folder):
            write(new, seed)
        for path in new.iterdir():
            path.chmod(new.stat().st_mode & 0o666)  # safetensors: readable by the owner alone


@contextlib.contextmanager
def _full_disks_named(folder: Path) -> Iterator[None]:
    """Turn what safetensors raises where it cannot write into one line."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as problem:
        reason = first_line(problem)
        raise BackboneError(
            f"cannot write {folder}: {reason}; free some space and run the same command again"
        ) from None


def cached_random_weights(name: str, write: Callable[[Path, int], None]) -> Path:
    """A checkpoint of random weights in the user's cache, written on first use."""
    folder = cache_folder(f"random-weights-{GENERATION}") / name
    if not folder.is_dir():
        # If several processes start together, one writes it and the others read it.
        with contextlib.suppress(OutputExists):
            write_random_weights(write, folder)
    return folder
