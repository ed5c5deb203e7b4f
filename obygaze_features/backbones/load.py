"""`load_backbone`: from what a user types to a network on a device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from obygaze_features.backbones.backbone import ARRAYS_ON_REQUEST, Backbone
from obygaze_features.backbones.checkpoints import (
    Checkpoint,
    check_store_name,
    family_of,
    resolve_backbone,
    split_name,
)
from obygaze_features.backbones.devices import check_precision, choose_device, move_to_device
from obygaze_features.backbones.registry import Maker, find_maker
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.weights import Tokenizer, sha256_of_files, sha256_of_module
from obygaze_features.common.plugins import Plugin, plugin_errors
from obygaze_features.errors import BrokenBackbone, UsageError
from obygaze_features.store import ArraySpec


def load_backbone(
    spec: str | Path,
    device: str | None = None,
    *,
    mode: str = "standard",
    precision: str = "float32",
    arrays: Sequence[str] | None = None,
) -> Backbone:
    """Load a backbone.

    Parameters
    ----------
    spec
        A name that `known_checkpoints` lists; ``OWNER/NAME`` on the Hugging Face hub; the path of
        a checkpoint of a known layout; the name of another package's entry point, or
        ``module:Class``. ``NAME=`` before it gives its store another name. What the hub's cache
        lacks is downloaded.
    device
        ``cpu``, ``cuda``, ``cuda:1``, ``mps``; by default a GPU if there is one.
    mode
        How frames are preprocessed, see `read_preprocessing`: ``standard`` or ``author``.
    precision
        ``float32``, or for speed on a GPU ``tf32``, ``bfloat16`` or ``float16``. Results are always
        float32.
    arrays
        The arrays of clips to compute; by default all but ``tokens``. ``NAME:ARRAY`` applies only
        to the backbone of that name.
    """
    check_precision(precision)
    device = choose_device(device)
    name, target = split_name(str(spec))
    if found := find_maker(target):
        name = name or target.rpartition(":")[2]
        check_store_name(name)
        backbone = _make(*found, name, target, mode)
    else:
        backbone = _load(resolve_backbone(str(spec)), mode)
    with backbone.errors():
        move_to_device(backbone.module, device, backbone.name)
    return backbone.with_changes(
        arrays=choose_arrays(backbone.arrays, arrays, backbone.name),
        device=device,
        precision=precision,
    )


def _load(checkpoint: Checkpoint, mode: str) -> Backbone:
    """The backbone of a checkpoint, by its family."""
    family = family_of(checkpoint.path)
    backbone = _check(family.load(checkpoint.path, mode), family.plugin)
    if text_tower := backbone.text_tower:
        read_tokenizer = text_tower.load_tokenizer

        def load_tokenizer() -> Tokenizer:
            checkpoint.fetch_tokenizer()
            return read_tokenizer()

        text_tower = replace(text_tower, load_tokenizer=load_tokenizer)
    about = _about(backbone, checkpoint.known_name or checkpoint.name, family.name, family.plugin)
    return backbone.with_changes(
        name=checkpoint.name,
        text_tower=text_tower,
        about=about | {"revision": checkpoint.revision},
        plugin=family.plugin,
    )


def _make(plugin: Plugin, maker: Maker, name: str, target: str, mode: str) -> Backbone:
    """The backbone that another package's class or function makes."""
    backbone = _check(maker(mode), plugin)
    with plugin_errors(plugin, BrokenBackbone):
        about = _about(backbone, name, target, plugin)
    return backbone.with_changes(name=name, about=about, plugin=plugin)


def _about(backbone: Backbone, name: str, family: str, plugin: Plugin | None) -> dict[str, Any]:
    """What a store records of a backbone."""
    files, module = backbone.weights, backbone.module
    return {
        "name": name,
        "family": family,
        "revision": None,
        "weights_sha256": sha256_of_files(files) if files else sha256_of_module(module),
        "config": dict(backbone.config),
        **({"package": plugin.package} if plugin else {}),
    }


def _check(backbone: Backbone, plugin: Plugin | None) -> Backbone:
    """A backbone; one of another package is refused where its fields are of other types."""
    if not plugin:
        return backbone
    from torch.nn import Module

    from obygaze_features.backbones.preprocess import Preprocessing

    if not isinstance(backbone, Backbone):
        raise BrokenBackbone(f"{plugin} makes a {type(backbone).__name__}, not a Backbone")
    with plugin_errors(plugin, BrokenBackbone):
        json.dumps(dict(backbone.config))
        for name, value, kind in (
            ("module", backbone.module, Module),
            ("sampling", backbone.sampling, Sampling),
            ("preprocessing", backbone.preprocessing, Preprocessing),
            *(("arrays", spec, ArraySpec) for spec in backbone.arrays),
        ):
            if not isinstance(value, kind):
                given = type(value).__name__
                raise BrokenBackbone(f"{plugin}: {name} has a {given}, not a {kind.__name__}")
    return backbone


def choose_arrays(
    available: tuple[ArraySpec, ...], requested: Sequence[str] | None, name: str
) -> tuple[ArraySpec, ...]:
    """Those of a backbone's arrays that are requested."""
    names = [spec.name for spec in available]
    if requested is None:
        return tuple(spec for spec in available if spec.name not in ARRAYS_ON_REQUEST)
    pairs = [entry.rpartition(":") for entry in requested]
    chosen = [array for owner, _, array in pairs if owner in ("", name)]
    if not chosen:
        raise UsageError(f"--arrays: no array of {name} is requested; it has {', '.join(names)}")
    if unknown := [array for array in chosen if array not in names]:
        raise UsageError(f"{name} has no array {unknown[0]!r}; it has {', '.join(names)}")
    return tuple(spec for spec in available if spec.name in chosen)
