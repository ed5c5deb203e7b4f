"""Find checkpoints in folders, in the cache of random weights, and on the Hugging Face Hub."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from obygaze_features.backbones.backbone import Family, KnownCheckpoint
from obygaze_features.backbones.network_config import read_object
from obygaze_features.backbones.registry import families, known_checkpoints
from obygaze_features.backbones.weights import cached_random_weights, weight_files
from obygaze_features.common.names import unknown_name
from obygaze_features.common.package import need
from obygaze_features.common.plugins import one_line
from obygaze_features.errors import BackboneError, UsageError

SMALL_FILES = ("*.json", "*.txt", "*.model")
"""Configurations, tokenizers and indices of weights, by their names on the Hub."""
WEIGHTS = (
    ("model.safetensors", "model-*.safetensors", "*/model.safetensors"),
    ("pytorch_model.bin", "pytorch_model-*.bin", "*/pytorch_model.bin"),
)
"""Weights in order of preference; a sentence encoder has some in subfolders."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REPOSITORY = re.compile(r"\w[\w.-]*/[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on this machine.

    Parameters
    ----------
    name
        The name of the store.
    path
        The folder or file of the checkpoint.
    revision
        The revision of a checkpoint from the Hub.
    known_name
        The name of the `KnownCheckpoint`, if it is one.
    package
        The name and version of the Python package that has the checkpoint.
    """

    name: str
    path: Path
    revision: str | None = None
    known_name: str | None = None
    package: str | None = None


def resolve_backbone(spec: str) -> Checkpoint:
    """Return the checkpoint for a spec as in `resolve`; download it if needed."""
    return resolve(spec, known_checkpoints(), accept=family_of)


def resolve(
    spec: str,
    checkpoints: Mapping[str, KnownCheckpoint],
    *,
    accept: Callable[[Path], object] = lambda folder: None,
) -> Checkpoint:
    """Return the checkpoint for a spec; download it if needed.

    Parameters
    ----------
    spec
        A path, a name in `checkpoints`, or ``OWNER/NAME`` on the Hub. Prefix with ``NAME=`` to
        rename the checkpoint.
    checkpoints
        The known checkpoints, by name.
    accept
        A function that is called with the folder of the small files before the weights are
        downloaded. It may raise an exception.
    """
    name, target = split_name(spec)
    path = Path(target)
    own_name = path.resolve().parent.name if path.is_file() else path.resolve().name
    check_store_name(name or own_name)
    known = checkpoints.get(target)
    # With NAME=, an existing path takes precedence over a known name.
    if path.exists() and (name or not known):
        return Checkpoint(name or own_name, path)
    if known and known.write:
        path = cached_random_weights(target, known.write)
        return Checkpoint(name or target, path, known_name=target)
    repository: str | None = target
    if known and known.package:
        installed = known.package.find()
        if installed:
            return Checkpoint(name or target, installed[0], None, target, installed[1])
        raise BackboneError(f"{target} is not installed. Run: {known.package.remedy}")
    if known:
        repository = known.repository
    elif not _REPOSITORY.fullmatch(target):
        raise BackboneError(unknown_name("checkpoint or path", target, checkpoints))
    if not repository:
        raise BackboneError(f"{target} is not published. Pass your own file: {target}=FILE")
    for checkpoint in checkpoints.values():
        if checkpoint.repository == repository:
            known = checkpoint
    folder = fetch(repository, accept)
    return Checkpoint(name or own_name, folder, folder.name, known.name if known else None)


def check_store_name(name: str) -> None:
    """Raise `UsageError` if a name is not valid for a store."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid store name; use A-Z, a-z, digits and (not first) . _ -"
        )


def split_name(spec: str) -> tuple[str, str]:
    """Split ``NAME=REST`` into name and rest; the name is "" if there is none, as in a path."""
    name, equals, rest = spec.partition("=")
    if equals and not Path(spec).exists():
        return name, rest
    return "", spec


def family_of(path: Path, known_name: str | None = None) -> Family:
    """Return a checkpoint's family, by its known name or else by its ``config.json``."""
    for family in families():
        if known_name in [known.name for known in family.checkpoints]:
            return family
    config = path / "config.json"
    model_type = None
    if config.is_file():
        model_type = read_object(config).get("model_type")
    for family in families():
        if family.model_type == model_type:
            return family
    types = ", ".join(family.model_type for family in families() if family.model_type)
    raise BackboneError(f"{path}: unknown model_type {model_type!r}; supported types: {types}")


def fetch(repository: str, accept: Callable[[Path], object]) -> Path:
    """Return the folder of a repository in the Hub's cache; download what is missing.

    A complete checkpoint needs no request. `accept` is as in `resolve`.
    """
    hub = need("huggingface_hub", extra="extract")
    with contextlib.suppress(Exception):
        found = hub.snapshot_download(repository, allow_patterns=SMALL_FILES, local_files_only=True)
        weight_files(Path(found))
        return Path(found)
    try:
        folder = Path(hub.snapshot_download(repository, allow_patterns=SMALL_FILES))
        accept(folder)
        for patterns in WEIGHTS:
            # The same revision for all files, even if a new one is published meanwhile.
            hub.snapshot_download(repository, revision=folder.name, allow_patterns=patterns)
            with contextlib.suppress(BackboneError):
                weight_files(folder)
                break
    except BackboneError:
        raise
    except Exception as problem:  # errors of the hub, of its HTTP library, and of the system
        raise BackboneError(
            f"{repository} is not in the Hub's cache and cannot be downloaded "
            f"({one_line(problem)}). Load it on a machine that is online (a backbone: obygaze "
            f"features backbones {repository} --download). Then copy the cache, or pass NAME=FOLDER"
        ) from None
    return folder
