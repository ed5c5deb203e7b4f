"""Read a network's ``config.json``, keeping only the settings that its architecture declares.

A checkpoint may come from anybody. Other settings can make transformers fetch and run packages and
attention kernels, so they are not passed on. Before a network is built, its sizes are compared with
the weights: a network may not have more layers than the weights have tensors, nor many more
parameters than the weights have numbers.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError, translate

RUNS_CODE = ("attn_implementation", "_attn_implementation", "auto_map", "quantization_config")
"""Settings that make transformers fetch and run code that a checkpoint names."""
BUFFER_NUMBERS = 50_000_000
"""The number of values that a network may have beyond its weights, such as in buffers."""
POSITION_NUMBERS = 2**22
"""The number of values that position tables may have beyond the weights.

Some of these tables are slow to compute.
"""
_REPEATED = re.compile(r"layer|depth|stage|block")
"""A pattern for names of settings that count modules, which are built one by one."""


def read_config(config_class: Any, folder: Path, files: Sequence[Path]) -> Any:
    """Return the configuration of a checkpoint's network, with only the declared settings.

    Raises `BackboneError` if its sizes do not match the weights in `files`.
    """
    path = folder / "config.json"
    settings = declared_settings(config_class, read_object(path))
    shapes = tensor_shapes(files)
    numbers = sum(math.prod(shape) for shape in shapes.values())
    for name, value in _integers(settings):
        limit = len(shapes) if _REPEATED.search(name) else numbers + BUFFER_NUMBERS
        if abs(value) > limit:
            raise BackboneError(
                f"{path}: {name} is {value:,}, but the weights have {len(shapes):,} tensors with "
                f"{numbers:,} numbers in all. Download the checkpoint again"
            )
    with translate(BackboneError, path, "does not describe a network: {}"):
        config = config_class(**settings)
    for part in (config, *(getattr(config, name) for name in config_class.sub_configs)):
        positions = count_positions(vars(part))
        if positions > numbers + POSITION_NUMBERS:
            raise BackboneError(
                f"{path}: the patch positions would have {positions:,} numbers, but the weights "
                f"have {numbers:,}. Download the checkpoint again"
            )
    return config


def count_positions(settings: Mapping[str, Any]) -> int:
    """Return the size of a table with a vector for each patch of the input.

    Examples
    --------
    >>> count_positions({"image_size": 224, "patch_size": 16, "hidden_size": 768})
    150528
    """
    size, patch, width = (settings.get(f"{name}_size") for name in ("image", "patch", "hidden"))
    frames: Any = settings.get("num_frames", 1)
    depth: Any = settings.get("tubelet_size", 1)
    sides: list[Any] = [max(v) if isinstance(v, list | tuple) else v for v in (size, patch)]
    values: list[Any] = [*sides, width, frames, depth]
    if not all(isinstance(value, int) and value > 0 for value in values):
        return 0
    along, across = math.ceil(sides[0] / sides[1]), math.ceil(frames / depth)
    return int(along**2 * across * width)


def check_size(model_class: Any, config: Any, folder: Path, files: Sequence[Path]) -> None:
    """Raise `BackboneError` if the network in `config` would be larger than its weights."""
    torch = need("torch", extra="extract")
    with torch.device("meta"):  # only shapes, which take no memory
        network = model_class(config)
    tensors = [*network.parameters(), *network.buffers()]
    built = sum(tensor.numel() for tensor in tensors)
    stored = sum(math.prod(shape) for shape in tensor_shapes(files).values())
    if built > stored + BUFFER_NUMBERS:
        raise BackboneError(
            f"{folder / 'config.json'}: the network has {built:,} numbers, but the weights have "
            f"{stored:,}. Download the checkpoint again"
        )


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object."""
    config = read_json(path, BackboneError)
    if not isinstance(config, dict):
        raise BackboneError(f"{path} must hold a JSON object (got {type(config).__name__})")
    return config


def refuse_code(path: Path) -> None:
    """Raise `BackboneError` if a configuration names code to run."""
    names = sorted(set(RUNS_CODE) & read_object(path).keys())
    if names:
        raise BackboneError(
            f"{path}: {names[0]} names code that would be fetched and run, which is not allowed. "
            "Remove this setting to load the checkpoint without this code"
        )


def declared_settings(config_class: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the settings that a configuration class or its parts declare."""
    from transformers import PretrainedConfig

    shared = inspect.signature(PretrainedConfig.__init__).parameters
    own = set(inspect.signature(config_class.__init__).parameters) - set(shared)
    own.update(config_class.attribute_map)
    parts = config_class.sub_configs
    declared = {}
    for name, value in settings.items():
        part = parts.get(name.removesuffix("_dict"))
        if part is not None and isinstance(value, Mapping):
            declared[name] = declared_settings(part, value)
        elif name in own and name not in RUNS_CODE:
            declared[name] = value
    return declared


def tensor_shapes(files: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in weight files, without loading them."""
    torch = need("torch", extra="extract")
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        with loading(file.parent):
            if file.suffix == ".safetensors":
                with safe_open(file, "pt") as tensors:
                    for name in tensors.keys():  # noqa: SIM118 - not a dict
                        shapes[name] = tuple(tensors.get_slice(name).get_shape())
            else:
                stored = torch.load(file, "meta", weights_only=True)
                shapes.update({name: tuple(value.shape) for name, value in stored.items()})
    return shapes


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


def _integers(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the name and value of each integer, and the name and length of each list."""
    for name, value in settings.items():
        label = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _integers(value, f"{label}.")
        elif isinstance(value, list | tuple):
            yield label, len(value)
            for element in value:
                if isinstance(element, int):
                    yield label, element
        elif isinstance(value, int):
            yield label, value
