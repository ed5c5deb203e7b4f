"""Load backbones by name, path or object, and move them to a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from obygaze_features.backbones.backbone import CREDITS, Backbone
from obygaze_features.backbones.checkpoints import (
    Checkpoint,
    check_store_name,
    family_of,
    resolve_backbone,
    split_name,
)
from obygaze_features.backbones.devices import PRECISIONS, choose_device, move_to_device
from obygaze_features.backbones.registry import known_checkpoints
from obygaze_features.backbones.weights import sha256_of_files, sha256_of_module
from obygaze_features.common.names import as_list
from obygaze_features.common.plugins import (
    OBJECT,
    describe_error,
    load_object,
    package_of,
    package_versions,
)
from obygaze_features.errors import BackboneError, UsageError
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec


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
        checkpoint with a known layout; ``module:make``, a function or class that makes a
        `Backbone`; or ``timm:NAME``. Prefix with ``NAME=`` to rename the store. Files that are not
        in the Hub's cache are downloaded. `spec` can also be an object: a `Backbone`, or a
        function that returns one.
    device
        ``cpu``, ``cuda``, ``cuda:1`` or ``mps`` (default: a GPU if there is one).
    mode
        The preprocessing of frames, ``standard`` or ``author``; see `read_preprocessing`.
    precision
        ``float32``, or for speed on a GPU ``tf32``, ``bfloat16`` or ``float16``. Results are always
        float32.
    arrays
        The arrays to compute (default: all but ``tokens``). ``NAME:ARRAY`` applies only to
        the backbone with that name.
    sampling
        A rule to use instead of the backbone's own sampling; see `resample`.
    track
        The audio track to use, counting from 1 (default: FFmpeg's choice).
    """
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}; use one of {', '.join(PRECISIONS)}")
    device = choose_device(device)
    backbone = _load_named(str(spec), mode) if isinstance(spec, str | Path) else _take(spec, mode)
    backbone = resample(backbone, sampling, track)
    move_to_device(backbone.module, device, backbone.name)
    kind, reader = next(iter(backbone.readers.items()))
    chosen = replace(reader, arrays=choose_arrays(reader.arrays, arrays, backbone.name))
    changes = {kind: chosen, "device": device, "precision": precision}
    return backbone.with_changes(**changes)


def resample(backbone: Backbone, sampling: Sampling | None, track: int | None = None) -> Backbone:
    """Return the backbone with another sampling or sound track; see `FrameReader.resample`."""
    if not backbone.clip:
        return backbone
    return backbone.with_changes(clip=backbone.clip.resample(sampling, track, backbone.name))


def _load_named(spec: str, mode: str) -> Backbone:
    """Load the backbone for a name, a path, ``timm:NAME`` or ``module:make``."""
    name, target = split_name(spec)
    if target.startswith("timm:"):
        from obygaze_features.backbones.timm_models import load_timm

        name = name or target.removeprefix("timm:").replace("@", "-")
        return _with_origin(load_timm(target, mode), name, target)
    is_checkpoint = target in known_checkpoints() or Path(target).exists()
    if OBJECT.fullmatch(target) and not is_checkpoint:
        make = load_object(target, BackboneError)
        return _make(make, name or target.partition(":")[2], target, mode)
    return _load(resolve_backbone(spec), mode)


def _load(checkpoint: Checkpoint, mode: str) -> Backbone:
    """Load the backbone of a checkpoint with its family's loader."""
    family = family_of(checkpoint.path, checkpoint.known_name)
    backbone = family.load(checkpoint.path, mode)
    known_name = checkpoint.known_name or checkpoint.name
    if checkpoint.known_name:
        backbone = backbone.with_changes(**known_checkpoints()[known_name].credits)
    about = _about(backbone, known_name, family.name)
    about["revision"] = checkpoint.revision
    known = known_checkpoints().get(known_name)
    if checkpoint.package and known and known.package:
        about["package"] = checkpoint.package
        if about["weights_sha256"] != known.package.sha256:
            raise BackboneError(
                f"{checkpoint.path} does not have the weights of {known_name}. Install "
                f"{checkpoint.package} again"
            )
    return backbone.with_changes(name=checkpoint.name, about=about)


def _take(source: Any, mode: str) -> Backbone:
    """Return the backbone for an object passed to `load_backbone`."""
    from torch.nn import Module

    if isinstance(source, Backbone):
        return _with_origin(source, source.name, "own")
    if isinstance(source, Module) or not callable(source):
        raise UsageError(
            "a backbone must be a name, NAME=PATH, 'module:function', a Backbone, or a function "
            f"that makes one (got {type(source).__name__}). "
            "Wrap a torch module: of.Backbone.from_torch(net, frames=, size=)"
        )
    return _make(source, getattr(source, "__name__", ""), "own", mode)


def _make(make: Callable[..., Any], name: str, origin: str, mode: str) -> Backbone:
    """Return the backbone that a user's function or class makes."""
    try:
        backbone = make(mode) if signature(make).parameters else make()
    except Exception as problem:  # the user's code may raise anything
        reason = describe_error(problem)
        raise BackboneError(
            f"{name or make} made no backbone: {reason}; correct its code"
        ) from problem
    if not isinstance(backbone, Backbone):
        raise BackboneError(
            f"{name or make} must make a Backbone (got {type(backbone).__name__}); correct its code"
        )
    return _with_origin(backbone, name or backbone.name, origin)


def _with_origin(backbone: Backbone, name: str, origin: str) -> Backbone:
    """Return a backbone with the name of its store, and the facts that the store records."""
    name = name or type(backbone.module).__name__
    check_store_name(name)
    about = _about(backbone, name, origin)
    if package := package_versions(package_of(origin)):
        about["package"] = package
    return backbone.with_changes(name=name, about=about)


def _about(backbone: Backbone, name: str, family: str) -> dict[str, Any]:
    """Return the facts about a backbone that its store records."""
    if backbone.weights:
        digest = sha256_of_files(backbone.weights)
    else:
        digest = sha256_of_module(backbone.module)
    about = {
        "name": name,
        "family": family,
        "revision": None,
        "weights_sha256": digest,
        "config": dict(backbone.config),
    }
    for key in CREDITS:
        if getattr(backbone, key):
            about[key] = getattr(backbone, key)
    return about


def choose_arrays(
    available: tuple[ArraySpec, ...],
    requested: Sequence[str] | None,
    name: str,
) -> tuple[ArraySpec, ...]:
    """Return the requested arrays; raise `UsageError` if one is unknown or none is left."""
    if requested is None:
        return tuple(spec for spec in available if not (spec.entry and spec.entry.on_request))
    by_name = {spec.name: spec for spec in available}
    chosen = set()
    for entry in as_list(requested):
        owner, _, array = entry.rpartition(":")
        if owner not in ("", name):
            continue
        if array not in by_name:
            raise UsageError(f"{name} has no array {array!r}; it has {', '.join(by_name)}")
        chosen.add(array)
    if not chosen:
        raise UsageError(f"no array of {name} is requested; add one of {', '.join(by_name)}")
    return tuple(spec for spec in available if spec.name in chosen)
