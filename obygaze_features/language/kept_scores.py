"""Scores that are kept as they come, so that an interrupted run goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from obygaze_features.errors import BiasError

__all__ = ["Kept", "row_key"]

Scores = dict[str, float | None]


def row_key(*texts: str) -> str:
    """What a row's scores hang on, in short."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:32]


class Kept:
    """A file beside an output, with a line for each block of rows that was scored.

    Parameters
    ----------
    output
        What the scores are for.
    made_with
        The models and the manner; scores made otherwise are not gone on with.
    """

    def __init__(self, output: Path, made_with: Mapping[str, Any]) -> None:
        self.path = output.with_name(f".{output.name}.scoring")
        self.scores: dict[tuple[str, str], Scores] = {}
        self._made_with = json.loads(json.dumps(made_with))
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Kept:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+b")
        self._file.seek(0)
        content = self._file.read()
        # A line that was cut short by a kill or a full disk is scored again.
        whole = content[: content.rfind(b"\n") + 1]
        self._file.truncate(len(whole))
        try:
            first, *lines = [json.loads(line) for line in whole.splitlines()] or [None]
        except ValueError:
            self._file.close()
            raise BiasError(
                f"{self.path} is damaged; remove it, and the scores in it are made again"
            ) from None
        if first is None:
            self._append(self._made_with)
        elif first != self._made_with:
            self._file.close()
            raise BiasError(
                f"{self.path} holds scores of an interrupted run with other models or options; "
                "run that command again, or remove the file"
            )
        for line in lines:
            self.scores.update({(one, key): scores for one, key, scores in line})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._file
        self._file.close()

    def add(self, rows: Iterable[tuple[str, str, Scores]]) -> None:
        """Keep the scores of a block: id, `row_key`, scores."""
        rows = list(rows)
        self.scores.update({(one, key): scores for one, key, scores in rows})
        self._append(rows)

    def discard(self) -> None:
        """Remove the file, when the output is there."""
        self.path.unlink(missing_ok=True)

    def _append(self, value: Any) -> None:
        assert self._file
        self._file.write(json.dumps(value).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
