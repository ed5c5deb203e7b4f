"""Published checkpoints in the Hugging Face hub's cache, fetched into it where they are not."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from obygaze_features.backbones.checkpoint import WEIGHTS, shards_of
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError

__all__ = ["cached_checkpoint", "fetch_checkpoint", "fetch_config", "fetch_more", "is_repository"]

PICTURES = ("preprocessor_config.json",)
"""What a checkpoint that sees has besides its configuration and weights."""
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def is_repository(text: str) -> bool:
    """Whether it has the form of a repository on the hub, ``owner/name``."""
    return _REPOSITORY.fullmatch(text) is not None and not text.startswith(".")


def cached_checkpoint(repository: str, needs: Sequence[str] = PICTURES) -> Path | None:
    """The folder of a checkpoint in the hub's cache, if it is there whole; nobody is asked."""
    need("huggingface_hub", extra="extract")
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return _get(repository, lambda folder: None, needs, local_files_only=True)
    except (OSError, ValueError, EntryNotFoundError):
        return None


def fetch_checkpoint(
    repository: str,
    name: str,
    accept: Callable[[Path], object],
    needs: Sequence[str] = PICTURES,
) -> Path:
    """Fetch what is needed of a checkpoint, and nothing else, into the hub's cache.

    Parameters
    ----------
    repository
        ``owner/name`` on the hub.
    name
        What the user calls it, for the error.
    accept
        Called with the folder when only ``config.json`` is in it; may raise before more is fetched.
    needs
        The files that there must be besides ``config.json`` and the weights.
    """
    with _asking(repository, name):
        return _get(repository, accept, needs, local_files_only=False)


def fetch_config(repository: str) -> Path | None:
    """Fetch a repository's ``config.json``, which says what it is; None if it has none."""
    with _asking(repository, repository):
        return _try(repository, "config.json", local_files_only=False)


def fetch_more(repository: str, revision: str, names: Iterable[str]) -> None:
    """Fetch those of some further files that a repository has, of one revision."""
    with _asking(repository, repository):
        for name in names:
            _try(repository, name, revision=revision, local_files_only=False)


@contextlib.contextmanager
def _asking(repository: str, name: str) -> Iterator[None]:
    """What the hub, or the way to it, has against it is said in one line."""
    need("huggingface_hub", extra="extract")
    from huggingface_hub.utils.logging import get_verbosity, set_verbosity

    verbosity = get_verbosity()
    set_verbosity(logging.ERROR)  # each of its attempts is a warning
    try:
        yield
    except BackboneError:
        raise
    except Exception as problem:  # the hub's own, those of two HTTP libraries, and the system's
        raise BackboneError(_in_words(problem, repository, name)) from None
    finally:
        set_verbosity(verbosity)


def _get(
    repository: str,
    accept: Callable[[Path], object],
    needs: Sequence[str],
    *,
    local_files_only: bool,
) -> Path:
    from huggingface_hub import hf_hub_download

    options: dict[str, Any] = {"local_files_only": local_files_only}
    first = Path(hf_hub_download(repository, "config.json", **options))
    folder = first.parent
    accept(folder)
    # All further files of the same revision, whatever is published meanwhile.
    options["revision"] = folder.name
    for needed in needs:
        hf_hub_download(repository, needed, **options)
    for single, index in WEIGHTS:
        if _try(repository, single, **options):
            return folder
        if found := _try(repository, index, **options):
            for shard in shards_of(found):
                hf_hub_download(repository, shard, **options)
            return folder
    raise BackboneError(f"{repository} has no weights ({' or '.join(one for one, _ in WEIGHTS)})")


def _try(repository: str, name: str, **options: Any) -> Path | None:
    """A file, or None where the repository has none of that name."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repository, name, **options))
    except EntryNotFoundError as problem:
        # This one says that nobody could be asked.
        unknown = isinstance(problem, LocalEntryNotFoundError)
        if unknown and not options["local_files_only"]:
            raise
        return None


def _in_words(problem: Exception, repository: str, name: str) -> str:
    from huggingface_hub import constants, errors

    page = f"https://huggingface.co/{repository}"
    instead = f"or give {name.rpartition('/')[2]}=FOLDER"
    if isinstance(problem, errors.GatedRepoError):
        return (
            f"{repository} is only given to those who agree to its terms: do so at {page}, "
            f"log in with: hf auth login, {instead}"
        )
    if isinstance(problem, errors.RepositoryNotFoundError):
        return f"the hub has no {repository}, or keeps it private; look at {page}, {instead}"
    if isinstance(problem, errors.EntryNotFoundError) and not isinstance(
        problem, errors.LocalEntryNotFoundError
    ):
        return f"{repository} lacks a file that is needed, and is no checkpoint for us; see {page}"
    if constants.HF_HUB_OFFLINE:
        reason = "HF_HUB_OFFLINE is set"
    else:
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0].rstrip(".")
    cache = os.fspath(constants.HF_HUB_CACHE)
    return (
        f"{repository} is not in the hub's cache ({cache}) and cannot be fetched ({reason}); "
        f"on a machine with network run: obygaze features prefetch {name}, and copy its cache, "
        f"{instead}"
    )
