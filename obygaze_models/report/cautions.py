"""The limits of the conclusions from a page: alarms about void scores and leaks, and cautions."""

from __future__ import annotations

from collections.abc import Sequence

from obygaze_features.common.formatting import join_some
from obygaze_models.results.run import Run

GRAVE = ("synthetic", "leak")
"""The codes of the warnings that are shown as alarms."""


def alarms(runs: Sequence[Run]) -> list[str]:
    """Return what the scores are not about, and the warnings about void scores and leaks."""
    texts = []
    for run in runs:
        texts.append(run.limit)
        texts += [str(warning) for warning in run.warnings if warning.code in GRAVE]
    return [*dict.fromkeys(filter(None, texts))]


def cautions(runs: Sequence[Run]) -> dict[str, str]:
    """Return warnings other than `alarms`, with the runs' names."""
    by_text: dict[str, list[str]] = {}
    for run in runs:
        for warning in run.warnings:
            if warning.code not in GRAVE:
                by_text.setdefault(warning.text, []).append(run.name)
    return {text: join_some(names) for text, names in by_text.items()}
