"""Every kind of error that obygaze raises on purpose.

ObygazeError                 a mistake that one line can explain; exit code 1
├── UsageError               options that do not go together; exit code 2
├── OutputExists             something is in the way and nobody said --overwrite
├── MissingExtra             an optional package is not installed, or its import fails
├── ManifestError            a manifest, or a source it is made from, is not right
│   └── UnknownItem          an id that the manifest does not have
├── AnnotationError          timelines, or a source they are made from, are not right
├── StoreError               a feature store is damaged, incomplete or does not fit
│   └── BlockTaken           a block that another writer has written meanwhile
├── StoreUnreadable          a store's file cannot be read now, or the store was replaced
├── VideoError               a film clip cannot be found, opened or decoded
├── BackboneError            a backbone or its weights cannot be loaded
│   └── BrokenBackbone       the code of a backbone failed; others need not suffer
├── ClusterError             a cluster cannot be reached, or its processes are lost
├── BiasError                a table, a set or a score that a measure of bias cannot take
└── ExperimentError          an experiment, a run or a model is not right

Messages are written for the person at the keyboard: what is wrong, where, what to do.
Each class is also the builtin that a Python caller would expect. Subclasses with further fields,
such as a row, are beside the code that raises them.
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
    "BlockTaken",
    "BrokenBackbone",
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
"""The environment variables whose values a server may see, and echo in an error."""
MIN_TOKEN_LETTERS = 16
"""The shortest value treated as a secret; shorter ones may be ordinary words."""
_LIKE_A_TOKEN = re.compile(rf"[^\s/]{{{MIN_TOKEN_LETTERS},}}")


class ObygazeError(Exception):
    """An error that one line explains: what is wrong, where, and what to do.

    It may quote a server, so tokens of the Hub and S3 are struck out.

    Parameters
    ----------
    parts
        The message; or `where` something is wrong, such as a path, and the `reason`.
    """

    exit_code = 1

    def __init__(self, *parts: object) -> None:
        self.reason = strike_tokens("".join(map(str, parts[-1:])))
        self.where = _as_place(parts[0]) if len(parts) > 1 else None
        super().__init__(strike_tokens(at(*parts)) if len(parts) > 1 else self.reason)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message and the fields, for any constructor of a subclass."""
        return _rebuild, (type(self), self.args, vars(self))


def _as_place(where: object) -> str | os.PathLike[str]:
    """Return a path unchanged, and anything else as its address, which other processes can read."""
    return where if isinstance(where, os.PathLike) else str(where)


def _rebuild(
    kind: type[ObygazeError], message: tuple[Any, ...], fields: dict[str, Any]
) -> ObygazeError:
    """Rebuild an error of another process."""
    error = kind.__new__(kind)
    error.args = message
    vars(error).update(fields)
    return error


class UsageError(ObygazeError, ValueError):
    """Options that conflict, or an unknown name."""

    exit_code = 2


class OutputExists(ObygazeError, FileExistsError):
    """An output that exists, without ``--overwrite``."""


class MissingExtra(ObygazeError, ImportError):
    """An optional package that is not installed or cannot be imported."""


class ManifestError(ObygazeError, ValueError):
    """A manifest, or a source of one, that is wrong."""


class UnknownItem(ManifestError, LookupError):
    """An id that is not in the manifest."""


class AnnotationError(ObygazeError, ValueError):
    """Timelines, or a source of them, that are wrong."""


class StoreError(ObygazeError, ValueError):
    """A feature store that is damaged, incomplete or does not fit."""


class BlockTaken(StoreError):
    """A block that another writer has written in the meantime."""


class StoreUnreadable(ObygazeError, OSError):
    """A store's file that cannot be read now (permissions, disk), or a store that was replaced.

    Not a `StoreError`: it says nothing about the data, so no data may be dropped because of it.
    """


class VideoError(ObygazeError, ValueError):
    """A film clip that cannot be found, opened or decoded."""


class BackboneError(ObygazeError, ValueError):
    """A backbone or its weights that cannot be loaded."""


class BrokenBackbone(BackboneError):
    """A backbone whose code failed or returned something invalid; others can go on."""


class ClusterError(ObygazeError, ConnectionError):
    """A cluster that cannot be reached, or lost processes."""


class BiasError(ObygazeError, ValueError):
    """A table, a set or a score that a measure of bias cannot use."""


class ExperimentError(ObygazeError, ValueError):
    """An experiment, a run or a model that is wrong."""


@contextlib.contextmanager
def translate(
    error: type[ObygazeError],
    where: object,
    reason: str = "{}",
    *,
    foreign: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> Iterator[None]:
    """Raise what a library raises in the block as `error`; our own errors pass unchanged.

    `reason` says what is wrong `where`; {} stands for the first line of the library's message. A
    package that cannot be imported is always a `MissingExtra`.
    """
    try:
        yield
    except ObygazeError:
        raise
    except foreign as problem:
        if failure := import_failure(problem):
            raise failure from problem
        raise error(where, reason.format(_first_line(problem))) from problem


@contextlib.contextmanager
def import_errors() -> Iterator[None]:
    """Raise what the import of another package raises as a `MissingExtra` that names it."""
    try:
        yield
    except Exception as problem:
        if failure := import_failure(problem):
            raise failure from problem
        raise


def import_failure(problem: BaseException) -> MissingExtra | None:
    """Return the error for an installed package whose import raised `problem`; None for others.

    Where packages import each other, the innermost is named, because it is the one to repair.
    """
    from importlib import metadata

    if isinstance(problem, ObygazeError | MemoryError):
        return None
    while problem.__cause__:
        problem = problem.__cause__
    if not (name := _package_being_imported(problem)):
        return None
    package = f"{name} {metadata.version(name)}"
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        missing = problem.name.partition(".")[0]
        remedy = f"install it with: pip install {missing}"
        return MissingExtra(f"{package} needs {missing}, which is not installed; {remedy}")
    remedy = "Install it again"
    if any(re.match(r"torch\b", requirement) for requirement in metadata.requires(name) or ()):
        remedy = f"Install its build for torch {metadata.version('torch')}"
    return MissingExtra(
        f"{package} is installed, but cannot be imported ({type(problem).__name__}: "
        f"{_first_line(problem)}). {remedy}, or remove it if nothing needs it: pip uninstall {name}"
    )


def _package_being_imported(problem: BaseException) -> str:
    """Return the distribution whose module was being imported when `problem` was raised."""
    from importlib import metadata
    from traceback import walk_tb

    frames = [frame for frame, _ in walk_tb(problem.__traceback__)]
    modules = [frame.f_globals for frame in frames if frame.f_code.co_name == "<module>"]
    package = str(modules[-1].get("__name__")).partition(".")[0] if modules else ""
    if package in ("", "obygaze_features", "obygaze_models"):
        return ""
    return metadata.packages_distributions().get(package, [""])[0]


def _first_line(problem: BaseException) -> str:
    words = getattr(problem, "strerror", None) or str(problem).strip()
    return (words.splitlines() or [type(problem).__name__])[0]


@contextlib.contextmanager
def errors_as(error: type[ObygazeError], where: str = "") -> Iterator[None]:
    """Raise what is wrong with a manifest or an experiment as `error`, prefixed by `where`."""
    try:
        yield
    except (ManifestError, ExperimentError) as problem:
        raise error(f"{where}: {problem}" if where else str(problem)) from None


def at(where: object, reason: object) -> str:
    """Join where and what into one message.

    Examples
    --------
    >>> at("film.mp4", "is empty"), at("film.mp4", ": no frame after 3 s")
    ('film.mp4 is empty', 'film.mp4: no frame after 3 s')
    """
    return f"{where}{reason}" if str(reason)[:1] in (":", ",") else f"{where} {reason}"


def strike_tokens(message: str) -> str:
    """Strike out the tokens and keys of the Hub and S3 that are set here.

    Examples
    --------
    >>> os.environ["HF_TOKEN"] = "hf_0123456789abcdef"
    >>> strike_tokens("400 Bad Request: Bearer hf_0123456789abcdef")
    '400 Bad Request: Bearer ***'
    >>> del os.environ["HF_TOKEN"]
    """
    tokens = [os.environ.get(name) for name in _TOKENS]
    hub = sys.modules.get("huggingface_hub")  # if not loaded, it has sent no token
    if hub and _LIKE_A_TOKEN.search(message):  # the Hub's token is read from disk
        with contextlib.suppress(Exception):  # it must not replace this error
            tokens.append(hub.get_token())
    for token in tokens:
        if token and len(token) >= MIN_TOKEN_LETTERS:
            message = message.replace(token, "***")
    return message
