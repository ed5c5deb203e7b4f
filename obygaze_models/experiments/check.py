"""Score a run's predictions again, and compare with the numbers in its ``run.json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from obygaze_models.experiments.predictions import score_models, score_test_sets

if TYPE_CHECKING:
    from obygaze_models.experiments.record import ModelScores
    from obygaze_models.experiments.run_folder import Run

TOLERANCE = 1e-6
"""The tolerance for scores computed with other library versions."""


def differing_scores(run: Run) -> list[str]:
    """Return the scores, intervals and guesses of a run that its predictions do not reproduce."""
    record, predictions = run.record, run.predictions()
    clips = run.clips()
    group_of = dict(zip(clips["id"], clips["group"], strict=True))
    scores = score_models(predictions, group_of, measure=record.measure)
    tasks = [record.task(name) for name in record.tests]
    tests = score_test_sets(predictions, tasks, scores, group_of)
    pairs = (_by_model(record.scores), _by_model(scores)), (record.tests, tests)
    return [
        difference
        for written, computed in pairs
        for difference in _differences("", *map(msgspec.to_builtins, (written, computed)))
    ]


def _by_model(scores: Sequence[ModelScores]) -> dict[str, dict[str, ModelScores]]:
    models: dict[str, dict[str, ModelScores]] = {}
    for own in scores:
        models.setdefault(own.model, {})[own.test] = own
    return models


def _differences(where: str, written: Any, computed: Any) -> Iterator[str]:
    """Yield a sentence for each value that differs."""
    if isinstance(written, Mapping) and isinstance(computed, Mapping):
        for key in dict.fromkeys([*computed, *written]):
            if key in written and key in computed:
                yield from _differences(f"{where}{key}: ", written[key], computed[key])
            else:
                yield f"{where}{key}: only {'run.json' if key in written else 'a new score'} has it"
    elif isinstance(written, list) and isinstance(computed, list) and len(written) == len(computed):
        for number, (old, new) in enumerate(zip(written, computed, strict=True)):
            yield from _differences(f"{where}{number}: ", old, new)
    elif not _is_same(written, computed):
        yield f"{where}{_shown(written)} in run.json, {_shown(computed)} by the predictions"


def _is_same(written: Any, computed: Any) -> bool:
    if isinstance(written, float | int) and isinstance(computed, float | int):
        return bool(np.isclose(written, computed, rtol=TOLERANCE, atol=TOLERANCE))
    return bool(written == computed)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)[:60]
