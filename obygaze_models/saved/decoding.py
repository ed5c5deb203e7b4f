"""JSON files of a known form, decoded to types: what is of another type is one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from obygaze_features.common.files import require_readable
from obygaze_features.errors import ExperimentError

T = TypeVar("T")
#: What JSON that is none, is nested without end, or has other types raises.
_PROBLEMS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def read_lines(path: Path, kind: type[T], remedy: str) -> list[T]:
    """A file of JSON lines, each of a type."""
    require_readable(path, ExperimentError)
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise ExperimentError(f"{path} cannot be read: {problem.strerror}") from None
    decoder, rows = msgspec.json.Decoder(kind), []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            rows.append(decoder.decode(line))
        except _PROBLEMS as problem:
            raise _damaged(f"{path}, line {number},", problem, remedy) from None
    return rows


def convert(value: Any, kind: type[T], where: object, remedy: str) -> T:
    """Parsed JSON as a type."""
    try:
        return msgspec.convert(value, kind)
    except _PROBLEMS as problem:
        raise _damaged(where, problem, remedy) from None


def _damaged(where: object, problem: Exception, remedy: str) -> ExperimentError:
    return ExperimentError(f"{where} is damaged, or was edited ({problem}); {remedy}")
