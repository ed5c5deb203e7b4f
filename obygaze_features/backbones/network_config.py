"""Read a network's ``config.json``, keeping only the settings that its architecture declares.

A checkpoint may come from anybody. Other settings can make transformers fetch and run packages and
attention kernels, so they are not passed on. Before a network is built, its sizes are compared with
the weights.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from obygaze_features.common.files import read_json
from obygaze_features.errors import BackboneError, translate

RUNS_CODE = ("attn_implementation", "_attn_implementation", "auto_map", "quantization_config")
"""Settings that make transformers fetch and run code that a checkpoint names."""
MOST_LAYERS = 1000
BUFFER_NUMBERS = 50_000_000
"""The number of values that a network may have beyond its weights, such as in buffers."""
_REPEATED = re.compile(r"layer|depth|stage|block")
"""A pattern for names of settings that count modules, which are built one by one."""


def read_config(config_class: Any, folder: Path, files: Sequence[Path]) -> Any:
    """Return the configuration of a checkpoint's network, with only the declared settings.

    Raises `BackboneError` if a number is too large for the weights in `files`.
    """
    path = folder / "config.json"
    settings = declared_settings(config_class, read_object(path))
    _check_numbers(settings, most_numbers(files), path)
    with translate(BackboneError, path, "does not describe a network: {}; correct it"):
        return config_class(**settings)


def _check_numbers(settings: Mapping[str, Any], stored: int, path: Path) -> None:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            _check_numbers(value, stored, path)
            continue
        values = value if isinstance(value, list) else [value]
        most = MOST_LAYERS if _REPEATED.search(name) else stored
        for number in [len(values), *values]:
            if isinstance(number, int) and number > most:
                raise BackboneError(
                    f"{path}: {name}: {number:,} is above the limit of {most:,}; correct it"
                )


def check_size(network: Any, folder: Path, files: Sequence[Path]) -> None:
    """Raise `BackboneError` if a network on the device "meta" is too large for its weights."""
    built = sum(tensor.numel() for tensor in [*network.parameters(), *network.buffers()])
    most = most_numbers(files)
    if built > most:
        raise BackboneError(
            f"{folder / 'config.json'}: the network has {built:,} numbers, but its weights "
            f"allow for {most:,}. Download the checkpoint again"
        )


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object."""
    config = read_json(path, BackboneError)
    if not isinstance(config, dict):
        raise BackboneError(f"{path} must hold a JSON object (got {type(config).__name__})")
    return config


def refuse_code(path: Path) -> None:
    """Raise `BackboneError` if a configuration has a setting that may name code to run."""
    for name in read_object(path):
        if name in RUNS_CODE:
            raise BackboneError(
                f"{path}: {name} may name code to fetch and run, which is not allowed. "
                "Remove this setting to load the checkpoint without such code"
            )


def declared_settings(config_class: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the settings that a configuration class or its parts declare."""
    from transformers import PretrainedConfig

    shared = inspect.signature(PretrainedConfig.__init__).parameters
    supported = set(inspect.signature(config_class.__init__).parameters) - set(shared)
    supported.update(config_class.attribute_map)
    supported.difference_update(RUNS_CODE)
    declared = {}
    for name, value in settings.items():
        part = config_class.sub_configs.get(name.removesuffix("_dict"))
        if part is not None and isinstance(value, Mapping):
            declared[name] = declared_settings(part, value)
        elif name in supported:
            declared[name] = value
    return declared


def most_numbers(files: Sequence[Path]) -> int:
    """Return the maximum number of values of a network: one per byte of weights, and buffers."""
    return BUFFER_NUMBERS + sum(file.stat().st_size for file in files)


@contextlib.contextmanager
def loading(folder: Path) -> Iterator[None]:
    """Raise errors from transformers, torch and safetensors as `BackboneError`."""
    with translate(BackboneError, folder, "cannot be loaded: {}; download the checkpoint again"):
        try:
            yield
        except Exception as problem:
            if "Weights only load failed" not in str(problem):
                raise
            raise BackboneError(  # PyTorch's message would suggest running the code
                folder,
                "cannot be loaded: its weights contain more than tensors, perhaps code. "
                "Use a checkpoint in safetensors format",
            ) from None
