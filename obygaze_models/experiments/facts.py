"""What an estimator chose, as facts beside the model, and in a few words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["facts_in_words", "unreliable_concepts"]

Facts = Mapping[str, Any]


def unreliable_concepts(facts: Facts) -> list[str]:
    """The concepts whose directions are unreliable; ``warnings`` has the reason of each."""
    subjects = {warning["subject"] for warning in facts.get("warnings", [])}
    return [name for name in facts.get("concepts", {}) if name in subjects]


def facts_in_words(facts: Facts) -> list[str]:
    """A line for each fact that is one number or word, and a few lines on concepts."""
    said = [
        f"{key.replace('_', ' ')}: {f'{value:.3g}' if isinstance(value, float) else value}"
        for key, value in facts.items()
        if isinstance(value, str | int | float)
    ]
    if concepts := facts.get("concepts"):
        learnt = ", ".join(f"{name} {of['auc']:.2f}" for name, of in concepts.items())
        said.append(f"concepts, each with its AUC on the clips it was measured on: {learnt}")
    if skipped := facts.get("skipped"):
        said.append(f"concepts that could not be learnt: {', '.join(skipped)}")
    if unreliable := unreliable_concepts(facts):
        said.append(f"concepts that are unreliable: {', '.join(unreliable)}")
    return said
