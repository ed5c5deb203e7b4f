"""Checkpoint folders in Hugging Face's layout: their files of weights, and loading them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError

__all__ = [
    "WEIGHTS",
    "load_model",
    "quiet",
    "read_tensors",
    "shards_of",
    "tensor_names",
    "weight_files",
]

WEIGHTS = (
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
"""The file of weights, or the index of several, in the order in which they are looked for."""


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files of weights in a checkpoint folder: those that `load_model` reads."""
    for single, index in WEIGHTS:
        if (folder / single).is_file():
            return (folder / single,)
        if (folder / index).is_file():
            files = tuple(folder / name for name in shards_of(folder / index))
            if lost := [file.name for file in files if not file.is_file()]:
                raise BackboneError(f"{folder} lacks {lost[0]}, which {index} names")
            return files
    names = " or ".join(single for single, _ in WEIGHTS)
    raise BackboneError(f"{folder} has no weights ({names}); look whether all was copied")


def shards_of(index: Path) -> list[str]:
    """The files that an index of weights names, without any that lie elsewhere."""
    content = read_json(index, BackboneError)
    try:
        names = sorted(set(content["weight_map"].values()))
        if names and all(Path(name).name == name for name in names):
            return names
    except (AttributeError, KeyError, TypeError):
        pass
    raise BackboneError(f"{index} is not an index of weights: it needs a weight_map of file names")


def tensor_names(folder: Path, files: Sequence[Path]) -> frozenset[str]:
    """What the tensors are called in the files of weights of a checkpoint folder."""
    torch = need("torch", extra="extract")
    from safetensors import safe_open

    names: set[str] = set()
    for file in files:
        try:
            if file.suffix == ".safetensors":
                with safe_open(file, "pt") as opened:
                    names.update(opened.keys())
            else:
                names.update(torch.load(file, "meta", weights_only=True).keys())
        except Exception as problem:
            raise _unreadable(folder, problem) from None
    return frozenset(names)


def read_tensors(file: Path) -> dict[str, Any]:
    """The tensors of a file of weights, by name; a file that holds more is not read."""
    torch = need("torch", extra="extract")
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as problem:  # each kind of file has its own reader, with its own errors
        raise _unreadable(file.parent, problem) from None
    if isinstance(found, dict) and all(isinstance(one, torch.Tensor) for one in found.values()):
        return found
    raise BackboneError(f"{file} holds something else than tensors by name")


def load_model(model_class: Any, folder: Path, files: Sequence[Path], **options: Any) -> Any:
    """Load a transformers model in float32, and refuse what does not fit it exactly."""
    torch = need("torch", extra="extract")
    try:
        with quiet():  # what does not fit is said below, in one line
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
    except Exception as problem:  # each kind of file has its own reader, with its own errors
        raise _unreadable(folder, problem) from None
    # transformers fills what a file lacks with random numbers.
    what = model_class.__name__
    # Names, and from transformers 5 on the shapes with them.
    bent = sorted(one if isinstance(one, str) else one[0] for one in report["mismatched_keys"])
    if bent:
        raise BackboneError(
            f"{folder} does not fit its config.json: {len(bent)} weights of {what} have another "
            f"shape, such as {bent[0]}"
        )
    if lacking := sorted(report["missing_keys"]):
        raise BackboneError(
            f"{folder} lacks {len(lacking)} weights of {what}, such as {lacking[0]}"
        )
    return model


def _unreadable(folder: Path, problem: Exception) -> BackboneError:
    if "Weights only load failed" in str(problem):  # and PyTorch advises to run the program
        return BackboneError(
            f"{folder} cannot be loaded: its weights hold more than tensors, perhaps a "
            "program; not read"
        )
    reason = str(problem).strip().splitlines() or [type(problem).__name__]
    return BackboneError(f"{folder} cannot be loaded: {reason[0]}; fetch the checkpoint once more")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Only transformers' errors are shown, and none of its progress bars."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
