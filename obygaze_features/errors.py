"""The exceptions that obygaze raises on purpose.

ObygazeError                 an error that one line can explain; exit code 1
├── UsageError               an option or argument cannot be used; exit code 2
├── OutputExists             an output exists and may not be replaced
├── MissingExtra             an optional package is not installed, or cannot be imported
├── ManifestError            a manifest or its source is invalid
│   └── UnknownItem          an id is not in the manifest or the store
├── AnnotationError          timelines or their source are invalid
├── StoreError               a feature store is damaged, incomplete or incompatible
├── StoreUnreadable          a store's file cannot be read at the moment, or the store was replaced
├── VideoError               a clip or image cannot be found, opened or decoded
├── BackboneError            a backbone cannot be loaded or run
├── ClusterError             a cluster cannot be reached or used, or its processes were lost
├── BiasError                a bias measure cannot use a table, a set or a score
└── ExperimentError          an experiment, a run or a model is invalid

Messages are written for the user: what is wrong, where, and what to do. Each class also inherits
from the built-in exception that a Python caller would expect. Subclasses with extra fields, such as
a file's name, are defined next to the code that raises them.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

__all__ = [
    "AnnotationError",
    "BackboneError",
    "BiasError",
    "ClusterError",
    "ExperimentError",
    "ManifestError",
    "MissingExtra",
    "ObygazeError",
    "OutputExists",
    "StoreError",
    "StoreUnreadable",
    "UnknownItem",
    "UsageError",
    "VideoError",
]


_TOKENS = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)
"""Environment variables with secrets, which a server's message may quote."""
MIN_TOKEN_LETTERS = 16
"""The minimum length of a value to mask; shorter values may be plain words."""
_LIKE_A_TOKEN = re.compile(rf"[^\s/]{{{MIN_TOKEN_LETTERS},}}")


class ObygazeError(Exception):
    """An error with a one-line message: what is wrong, where, and what to do.

    A message may quote a server, so secrets are masked (see `strike_tokens`).

    Parameters
    ----------
    where
        The place where something is wrong, such as a path; or the whole message.
    reason
        What is wrong there.
    """

    exit_code = 1

    def __init__(self, where: object, reason: object = None) -> None:
        self.where: str | os.PathLike[str] | None = None
        message = where
        if reason is not None:
            self.where = where if isinstance(where, os.PathLike) else str(where)
            message = at(where, reason)
        self.reason = strike_tokens(str(where if reason is None else reason))
        super().__init__(strike_tokens(str(message)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message and the fields, whatever parameters a subclass's constructor has."""
        return _rebuild, (type(self), self.args, vars(self))


def _rebuild(
    error_class: type[ObygazeError],
    message: tuple[Any, ...],
    fields: dict[str, Any],
) -> ObygazeError:
    """Recreate a pickled error."""
    error = error_class.__new__(error_class)
    error.args = message
    vars(error).update(fields)
    return error


class UsageError(ObygazeError, ValueError):
    """The error raised if an option or argument cannot be used."""

    exit_code = 2


class OutputExists(ObygazeError, FileExistsError):
    """The error raised if an output exists and may not be replaced."""


class MissingExtra(ObygazeError, ImportError):
    """The error raised if an optional package is not installed or cannot be imported."""


class ManifestError(ObygazeError, ValueError):
    """The error raised if a manifest or its source is invalid."""


class UnknownItem(ManifestError, LookupError):
    """The error raised if an id is not in the manifest or the store."""


class AnnotationError(ObygazeError, ValueError):
    """The error raised if timelines or their source are invalid."""


class StoreError(ObygazeError, ValueError):
    """The error raised if a feature store is damaged, incomplete or incompatible."""


class StoreUnreadable(ObygazeError, OSError):
    """The error raised if a store's file cannot be read at the moment, or the store was replaced.

    It is not a `StoreError`: the cause may be permissions or the disk, so callers must keep all
    data.
    """


class VideoError(ObygazeError, ValueError):
    """The error raised if a clip or image cannot be found, opened or decoded."""


class BackboneError(ObygazeError, ValueError):
    """The error raised if a backbone cannot be loaded or run."""


class ClusterError(ObygazeError, ConnectionError):
    """The error raised if a cluster cannot be reached or used, or if its processes were lost."""


class BiasError(ObygazeError, ValueError):
    """The error raised if a bias measure cannot use a table, a set or a score."""


class ExperimentError(ObygazeError, ValueError):
    """The error raised if an experiment, a run or a model is invalid."""


@contextlib.contextmanager
def translate(
    error: type[ObygazeError],
    where: object,
    reason: str = "{}",
    *,
    foreign: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> Iterator[None]:
    """Convert library exceptions in the block to `error`; re-raise `ObygazeError` unchanged.

    `where` and `reason` form the message; {} in `reason` is replaced by the first line of the
    library's message.
    """
    try:
        yield
    except ObygazeError:
        raise
    except foreign as problem:
        words = getattr(problem, "strerror", None) or problem
        raise error(where, reason.format(first_line(words))) from problem


@contextlib.contextmanager
def errors_as(error: type[ObygazeError], where: str = "") -> Iterator[None]:
    """Convert manifest and experiment errors in the block to `error`, prefixed by `where`."""
    try:
        yield
    except (ManifestError, ExperimentError) as problem:
        raise error(f"{where}: {problem}" if where else str(problem)) from None


def first_line(problem: object) -> str:
    """Return the first line of an error's message, or its type if it has no message.

    >>> first_line(OSError("disk full\\nsee the log")), first_line(KeyboardInterrupt())
    ('disk full', 'KeyboardInterrupt')
    """
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]


def at(where: object, reason: object) -> str:
    """Join a location and a reason into one message.

    Examples
    --------
    >>> at("film.mp4", "is empty"), at("film.mp4", ": no frame after 3 s")
    ('film.mp4 is empty', 'film.mp4: no frame after 3 s')
    """
    return f"{where}{reason}" if str(reason)[:1] in (":", ",") else f"{where} {reason}"


def strike_tokens(message: str) -> str:
    """Mask the Hugging Face Hub's token, and the S3 secrets in environment variables.

    Examples
    --------
    >>> os.environ["HF_TOKEN"] = "hf_0123456789abcdef"
    >>> strike_tokens("400 Bad Request: Bearer hf_0123456789abcdef")
    '400 Bad Request: Bearer ***'
    >>> del os.environ["HF_TOKEN"]
    """
    tokens = [os.environ.get(name) for name in _TOKENS]
    hub = sys.modules.get("huggingface_hub")  # if it is not loaded, it has not sent a token
    if hub and _LIKE_A_TOKEN.search(message):  # the Hub's token may be on disk
        with contextlib.suppress(Exception):  # must not hide the error to report
            tokens.append(hub.get_token())
    for token in tokens:
        if token and len(token) >= MIN_TOKEN_LETTERS:
            message = message.replace(token, "***")
    return message
