"""Load backbones by name, path or object, and move them to a device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.checkpoints import (
    Checkpoint,
    check_store_name,
    family_of,
    resolve_backbone,
    split_name,
)
from obygaze_features.backbones.devices import check_precision, choose_device, move_to_device
from obygaze_features.backbones.registry import Maker, find_maker, known_checkpoints
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.sound import SoundPreprocessing, SoundSampling
from obygaze_features.backbones.weights import Tokenizer, sha256_of_files, sha256_of_module
from obygaze_features.backbones.windows import resample
from obygaze_features.common.plugins import Plugin, plugin_at, plugin_errors
from obygaze_features.errors import BrokenBackbone, UsageError, import_errors
from obygaze_features.store import ArraySpec
from obygaze_features.store.format import CREDITS


@import_errors()
def load_backbone(
    spec: Any,
    device: str | None = None,
    *,
    mode: str = "standard",
    precision: str = "float32",
    arrays: Sequence[str] | None = None,
    sampling: Sampling | None = None,
    track: int | None = None,
) -> Backbone:
    """Load a backbone.

    Parameters
    ----------
    spec
        A name from `known_checkpoints`; ``OWNER/NAME`` on the Hugging Face Hub; the path of a
        checkpoint with a known layout; the name of a plug-in's entry point, or ``module:Class``;
        ``timm:NAME`` or ``torchvision:NAME``. Prefix with ``NAME=`` to rename the store. Files that
        are not in the Hub's cache are downloaded. `spec` can also be an object: a `Backbone`, a
        function that returns one, or a torch module with an attribute `transform`.
    device
        ``cpu``, ``cuda``, ``cuda:1`` or ``mps`` (default: a GPU if there is one).
    mode
        The preprocessing of frames, ``standard`` or ``author``; see `read_preprocessing`.
    precision
        ``float32``, or for speed on a GPU ``tf32``, ``bfloat16`` or ``float16``. Results are always
        float32.
    arrays
        The arrays of clips to compute (default: all but ``tokens``). ``NAME:ARRAY`` applies only to
        the backbone with that name.
    sampling
        A rate of frames to use instead of the backbone's own sampling; see `resample`.
    track
        The audio track to use, counting from 1 (default: each file's default track).
    """
    check_precision(precision)
    device = choose_device(device)
    if not isinstance(spec, str | Path):
        backbone = _take(spec, mode)
    elif maker := find_maker((split := split_name(str(spec)))[1]):
        name = split[0] or split[1].rpartition(":")[2].replace("@", "-")
        backbone = _make(*maker, name, split[1], mode)
    else:
        backbone = _load(resolve_backbone(str(spec)), mode)
    if backbone.for_clips:
        backbone = resample(backbone, sampling, track, requested_arrays(arrays, backbone.name))
    with backbone.errors():
        move_to_device(backbone.module, device, backbone.name)
    return backbone.with_changes(
        arrays=choose_arrays(backbone.arrays, arrays, backbone.name),
        device=device,
        precision=precision,
    )


def _load(checkpoint: Checkpoint, mode: str) -> Backbone:
    """Load the backbone of a checkpoint with its family's loader."""
    family = family_of(checkpoint.path)
    backbone = _check(family.load(checkpoint.path, mode), family.plugin)
    if text_tower := backbone.text_tower:
        read_tokenizer = text_tower.load_tokenizer

        def load_tokenizer() -> Tokenizer:
            checkpoint.fetch_tokenizer()
            return read_tokenizer()

        text_tower = replace(text_tower, load_tokenizer=load_tokenizer)
    if card := known_checkpoints().get(checkpoint.known_name or ""):
        backbone = backbone.with_changes(**card.credits)
    about = _about(backbone, checkpoint.known_name or checkpoint.name, family.name, family.plugin)
    return backbone.with_changes(
        name=checkpoint.name,
        text_tower=text_tower,
        about=about | {"revision": checkpoint.revision},
        plugin=family.plugin,
    )


def _make(plugin: Plugin, maker: Maker, name: str, target: str, mode: str) -> Backbone:
    """Return the backbone that a plug-in's class or function makes."""
    with plugin_errors(plugin, BrokenBackbone):
        backbone = _check(maker(mode), plugin)
        name = name or backbone.name or type(backbone.module).__name__
        about = _about(backbone, name, target, plugin)
    check_store_name(name)
    return backbone.with_changes(name=name, about=about, plugin=plugin)


def _take(source: Any, mode: str) -> Backbone:
    """Return the backbone for an object passed to `load_backbone`."""
    from torch.nn import Module

    if isinstance(source, Module) and hasattr(source, "transform"):
        source = Backbone.from_torch(source, transform=source.transform)
    is_backbone = isinstance(source, Backbone)
    if isinstance(source, Module) or not (is_backbone or callable(source)):
        raise UsageError(
            "a backbone must be a name, NAME=PATH, 'module:function', a Backbone, a function that "
            f"makes one, or a torch module with a transform (got a {type(source).__name__}). "
            "Wrap any other module: of.Backbone.from_torch(net, frames=, size=)"
        )
    own: Any = (source, getattr(source, "encode_clips", None), type(source))
    origin = next(part for part in own if hasattr(part, "__qualname__"))
    plugin = getattr(source, "plugin", None)
    plugin = plugin or plugin_at(f"{origin.__module__}:{origin.__qualname__}")
    arguments = [mode] if not is_backbone and signature(source).parameters else []
    make = (lambda mode: source) if is_backbone else (lambda mode: source(*arguments))
    return _make(plugin, make, getattr(source, "__name__", ""), "own", mode)


def _about(backbone: Backbone, name: str, family: str, plugin: Plugin | None) -> dict[str, Any]:
    """Return the facts about a backbone that its store records."""
    files, module = backbone.weights, backbone.module
    return {
        "name": name,
        "family": family,
        "revision": None,
        "weights_sha256": sha256_of_files(files) if files else sha256_of_module(module),
        "config": dict(backbone.config),
        **({"package": plugin.package} if plugin else {}),
        **{key: getattr(backbone, key) for key in CREDITS if getattr(backbone, key)},
    }


def _check(backbone: Backbone, plugin: Plugin | None) -> Backbone:
    """Return a backbone; raise `BrokenBackbone` if a plug-in made it with fields of wrong types."""
    if not plugin:
        return backbone
    from torch.nn import Module

    from obygaze_features.backbones.preprocess import Preprocessing

    if not isinstance(backbone, Backbone):
        raise BrokenBackbone(f"{plugin} makes a {type(backbone).__name__}, not a Backbone")
    with plugin_errors(plugin, BrokenBackbone):
        json.dumps(dict(backbone.config))
        steps = SoundPreprocessing if backbone.hears else Preprocessing
        for name, value, kind in (
            ("module", backbone.module, Module),
            ("sampling", backbone.sampling, SoundSampling if backbone.hears else Sampling),
            ("preprocessing", backbone.preprocessing, steps),
            *(("an entry of arrays", spec, ArraySpec) for spec in backbone.arrays),
        ):
            if not isinstance(value, kind):
                actual = type(value).__name__
                raise BrokenBackbone(f"{plugin}: {name} has type {actual}, not {kind.__name__}")
    return backbone


def requested_arrays(requested: Sequence[str] | None, name: str) -> list[str] | None:
    """Return the names of the arrays requested from a backbone; None means the default arrays."""
    if requested is None:
        return None
    pairs = [entry.rpartition(":") for entry in requested]
    return [array for owner, _, array in pairs if owner in ("", name)]


def choose_arrays(
    available: tuple[ArraySpec, ...], requested: Sequence[str] | None, name: str
) -> tuple[ArraySpec, ...]:
    """Return the requested arrays; raise `UsageError` if there are none or if one is unknown."""
    names = [spec.name for spec in available]
    chosen = requested_arrays(requested, name)
    if chosen is None:
        return tuple(spec for spec in available if not spec.on_request)
    if not chosen:
        raise UsageError(f"no array of {name} was requested; it has {', '.join(names)}")
    if unknown := [array for array in chosen if array not in names]:
        raise UsageError(f"{name} has no array {unknown[0]!r}; it has {', '.join(names)}")
    return tuple(spec for spec in available if spec.name in chosen)
