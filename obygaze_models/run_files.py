"""Run files in trec_eval's format, as MediaEval's violence task takes them: a line a clip.

``violence Q0 ACCEDE00001 1 0.913 mlp-external-data``: the topic, a constant, the clip, its rank,
its score, and the run's tag, whose end says whether external data was used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import shorten
from obygaze_features.errors import ExperimentError
from obygaze_models.experiments.experiment import folder_name
from obygaze_models.metrics import trec_ranks

__all__ = ["RunFile", "format_run", "read_run_file", "run_tag"]

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_MARKS = {True: "-external-data", False: "-own-data"}


@dataclass(frozen=True, eq=False)
class RunFile:
    """What a run file says: clips by the names that it gives them, and their scores."""

    topic: str
    tag: str
    names: list[str]
    scores: NDArray[Any]

    @property
    def external_data(self) -> bool | None:
        """Whether external data was used; None where the tag does not say."""
        return next((said for said, mark in _MARKS.items() if self.tag.endswith(mark)), None)


def run_tag(name: str, *, external_data: bool) -> str:
    """A tag that says whether external data was used.

    Examples
    --------
    >>> run_tag("mlp, deep", external_data=True)
    'mlp-deep-external-data'
    """
    return folder_name(name) + _MARKS[external_data]


def format_run(topic: str, ids: Sequence[str], scores: NDArray[Any], tag: str) -> str:
    """The file's text, best clips first; scores are written so that nothing of them is lost."""
    order = np.argsort(-trec_ranks(ids, scores))
    return "".join(
        f"{topic} Q0 {ids[row]} {rank} {float(scores[row])!r} {tag}\n"
        for rank, row in enumerate(order.tolist(), start=1)
    )


def read_run_file(path: Path) -> RunFile:
    """Read a run file of one topic; `ExperimentError` names the first line that is not right.

    As for trec_eval, ranks mean nothing: scores order the clips.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as problem:
        raise ExperimentError(f"{path} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ExperimentError(f"{path} is not UTF-8; a run file is meant") from None
    score_of: dict[str, float] = {}
    first: tuple[str, str] | None = None
    for number, line in enumerate(lines, start=1):
        if not (cells := line.split()):
            continue
        if len(cells) != 6:
            raise ExperimentError(
                f"{path}, line {number}: {len(cells)} words, where a run file has six: topic, Q0, "
                "clip, rank, score, tag"
            )
        topic, _, name, _, score, tag = cells
        first = first or (topic, tag)
        for what, one, other in zip(("topic", "tag"), (topic, tag), first, strict=True):
            if one != other:
                raise ExperimentError(
                    f"{path}, line {number}: {what} {shorten(one)} after {shorten(other)}; give "
                    "each a file of its own"
                )
        if name in score_of:
            raise ExperimentError(f"{path}, line {number}: duplicate id {shorten(name)}")
        score_of[name] = float(score) if _NUMBER.fullmatch(score) else math.nan
        if not math.isfinite(score_of[name]):
            raise ExperimentError(f"{path}, line {number}: score {shorten(score)} is not a number")
    if first is None:
        raise ExperimentError(f"{path} is empty; a run file has a line a clip")
    return RunFile(*first, list(score_of), np.array(list(score_of.values())))
