"""Find checkpoints in folders, in the cache of random weights, and in the Hugging Face cache."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obygaze_features.backbones.backbone import Family, KnownCheckpoint
from obygaze_features.backbones.registry import families, known_checkpoints
from obygaze_features.backbones.weights import (
    TOKENIZER_FILES,
    WEIGHT_FILES,
    cached_random_weights,
    has_tokenizer,
    shard_names,
)
from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.common.text import find_closest, first_line
from obygaze_features.errors import BackboneError, UsageError

VISION_FILES = (("preprocessor_config.json", "video_preprocessor_config.json"),)
"""The further files that a vision checkpoint needs: one file of each group."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on this machine.

    Parameters
    ----------
    name
        The name of the store.
    path
        The folder or file of the checkpoint.
    revision, repository
        The origin of the checkpoint, if it is from the Hub.
    known_name
        The name of the `KnownCheckpoint`, if it is one.
    """

    name: str
    path: Path
    revision: str | None = None
    repository: str | None = None
    known_name: str | None = None

    def fetch_tokenizer(self) -> None:
        """Download the tokenizer if the checkpoint is from the Hub and has none yet."""
        if self.repository and not has_tokenizer(self.path):
            fetch_files(self.repository, self.path.name, TOKENIZER_FILES)


def resolve_backbone(spec: str) -> Checkpoint:
    """Return the checkpoint for a spec as in `load_backbone`; download it if needed."""
    return resolve(
        spec,
        known_checkpoints(),
        accept=family_of,
        required=VISION_FILES,
        list_command="obygaze features backbones",
    )


def resolve(
    spec: str,
    checkpoints: Mapping[str, KnownCheckpoint],
    *,
    accept: Callable[[Path], object] = lambda folder: None,
    required: Sequence[Sequence[str]] = (),
    list_command: str,
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
        A function that is called with a folder that contains only ``config.json``. It can raise an
        exception before more files are downloaded.
    required
        Groups of files. In addition to ``config.json`` and the weights, the first existing file of
        each group is downloaded.
    list_command
        The command that lists the names, for messages.
    """
    name, target = split_name(spec)
    path = Path(target)
    own_name = path.resolve().parent.name if path.is_file() else path.resolve().name
    check_store_name(name or own_name)
    # With NAME=, an existing path takes precedence over a known name.
    if path.exists() and (name or target not in checkpoints):
        return Checkpoint(name or own_name, path)
    if entry := checkpoints.get(target):
        if entry.write:
            path = cached_random_weights(target, entry.write)
            return Checkpoint(name or target, path, known_name=target)
        if not entry.repository:
            raise BackboneError(f"{target} cannot be downloaded: {entry.how_to_get}")
        path = _fetch(entry.repository, target, accept, required)
        return Checkpoint(name or target, path, path.name, entry.repository, target)
    if not is_repository(target):
        near = find_closest(path.name, checkpoints)
        hint = f"did you mean {near}?" if near else f"list the names with: {list_command}"
        raise BackboneError(f"{target} is neither a path nor a known name; {hint}")
    try:
        path = _fetch(target, target, accept, required)
    except BackboneError as problem:
        raise BackboneError(f"the folder {target} does not exist, and {problem}") from None
    known_name = next(
        (item.name for item in checkpoints.values() if item.repository == target), None
    )
    return Checkpoint(name or own_name, path, path.name, target, known_name)


def check_store_name(name: str) -> None:
    """Raise `UsageError` if a name is not valid for a store."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid store name; use letters, digits and . _ -")


def split_name(spec: str) -> tuple[str, str]:
    """Split ``NAME=REST`` into name and rest; the name is "" if there is none, as in a path."""
    name, equals, rest = spec.partition("=")
    return (name, rest) if equals and not Path(spec).exists() else ("", spec)


def family_of(path: Path) -> Family:
    """Return the family of a checkpoint, by its ``config.json``."""
    config = path / "config.json"
    content = read_json(config, BackboneError) if config.is_file() else {}
    model_type = content.get("model_type") if isinstance(content, dict) else None
    for family in families():
        # Only one layout lacks config.json, so a checkpoint without this file has that layout.
        if family.model_type == model_type and (model_type or not config.is_file()):
            return family
    types = ", ".join(family.model_type for family in families() if family.model_type)
    raise BackboneError(f"{path}: unknown model_type {model_type!r}; supported types: {types}")


def prefetch(name: str) -> Path:
    """Download a known checkpoint or a repository, so that it can be used offline."""
    checkpoint = resolve_backbone(name)
    if family_of(checkpoint.path).embeds_texts:
        checkpoint.fetch_tokenizer()
    return checkpoint.path


def is_repository(text: str) -> bool:
    """Return True if a text looks like a Hugging Face repository, ``owner/name``."""
    return _REPOSITORY.fullmatch(text) is not None and not text.startswith(".")


def _fetch(
    repository: str, name: str, accept: Callable[[Path], object], required: Sequence[Sequence[str]]
) -> Path:
    """Return the folder of a checkpoint in the Hub's cache; download missing files.

    `name` is what the user calls it, for messages; `accept` and `required` are as in `resolve`.
    """
    if complete := _find_cached(repository, required):
        return complete
    with _hub_errors(repository, name):
        return _download(repository, accept, required, local_files_only=False)


def _find_cached(repository: str, required: Sequence[Sequence[str]]) -> Path | None:
    """Return a checkpoint's folder in the Hub's cache, or None if it lacks a required file."""
    need("huggingface_hub", extra="extract")
    from huggingface_hub.errors import EntryNotFoundError

    with contextlib.suppress(OSError, ValueError, EntryNotFoundError):
        return _download(repository, lambda folder: None, required, local_files_only=True)
    return None


def fetch_files(repository: str, revision: str | None, names: Iterable[str]) -> list[Path]:
    """Download files from a revision of a repository; skip files that it does not have."""
    with _hub_errors(repository, repository):
        files = [
            _try_download(repository, name, revision=revision, local_files_only=False)
            for name in names
        ]
    return [file for file in files if file]


def _download(
    repository: str,
    accept: Callable[[Path], object],
    required: Sequence[Sequence[str]],
    *,
    local_files_only: bool,
) -> Path:
    from huggingface_hub import hf_hub_download

    options: dict[str, Any] = {"local_files_only": local_files_only}
    folder = Path(hf_hub_download(repository, "config.json", **options)).parent
    accept(folder)
    # Use the same revision for all files, even if a new one is published meanwhile.
    options["revision"] = folder.name
    for names in required:
        if not any(_try_download(repository, name, **options) for name in names):
            raise BackboneError(f"{repository} cannot be used: it has no {' or '.join(names)}")
    for single, index in WEIGHT_FILES:
        if _try_download(repository, single, **options):
            return folder
        if index_path := _try_download(repository, index, **options):
            for shard in shard_names(index_path):
                hf_hub_download(repository, shard, **options)
            return folder
    raise BackboneError(
        f"{repository} has no weights ({' or '.join(single for single, _ in WEIGHT_FILES)}). "
        "Choose another checkpoint"
    )


def _try_download(repository: str, name: str, **options: Any) -> Path | None:
    """Download a file and return its path, or None if the repository does not have it."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repository, name, **options))
    except EntryNotFoundError as problem:
        # LocalEntryNotFoundError means that the hub could not be reached.
        if isinstance(problem, LocalEntryNotFoundError) and not options["local_files_only"]:
            raise
        return None


@contextlib.contextmanager
def _hub_errors(repository: str, name: str) -> Iterator[None]:
    """Turn errors from the Hub or the connection into a one-line `BackboneError`."""
    need("huggingface_hub", extra="extract")
    from huggingface_hub.utils.logging import get_verbosity, set_verbosity

    verbosity = get_verbosity()
    set_verbosity(logging.ERROR)  # otherwise it warns at each attempt
    try:
        yield
    except BackboneError:
        raise
    except Exception as problem:  # errors of the hub, of two HTTP libraries, and of the system
        raise BackboneError(_describe_hub_error(problem, repository, name)) from None
    finally:
        set_verbosity(verbosity)


def _describe_hub_error(problem: Exception, repository: str, name: str) -> str:
    from huggingface_hub import constants, errors

    page = f"https://huggingface.co/{repository}"
    or_folder = f"or pass {name.rpartition('/')[2]}=FOLDER"
    if isinstance(problem, errors.GatedRepoError):
        return (
            f"{repository} requires you to accept its terms. Do so at {page} and log in with: "
            f"hf auth login, {or_folder}"
        )
    if isinstance(problem, errors.RepositoryNotFoundError):
        return f"{repository} is not on the Hugging Face Hub or is private; see {page}, {or_folder}"
    if constants.HF_HUB_OFFLINE:
        reason = "HF_HUB_OFFLINE is set"
    else:
        reason = first_line(problem).rstrip(".")
    cache = os.fspath(constants.HF_HUB_CACHE)
    return (
        f"{repository} is not in the Hub's cache ({cache}) and cannot be downloaded ({reason}). "
        f"Where you are online, run: obygaze features backbones {name} --download. Copy the cache, "
        f"{or_folder}"
    )
