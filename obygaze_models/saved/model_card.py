"""A model's README: what it tells apart, from what, for whom, and what it must not be taken for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from obygaze_features.common.text import counted
from obygaze_features.manifests import Manifest
from obygaze_models.data.warnings import RunWarning

CARD = "README.md"


def model_card(
    name: str, about: Mapping[str, Any], manifest: Manifest, *, trained: int, validated: int
) -> str:
    """The card of a model.

    Parameters
    ----------
    name
        Its heading.
    about
        What was said when the model was saved.
    manifest
        Whose clips it was trained on.
    trained, validated
        How many clips it learnt to tell apart, and how many stopped it.
    """
    features = about["features"]
    backbone = features["backbone"]
    warnings = "".join(f"\n**{RunWarning(**one)}**\n" for one in about["warnings"])
    negative, *_, positive = about["classes"]
    pooled = f", {features['pooling']} over its tokens" if features["pooling"] else ""
    if about["reads"] == "frames":
        pooled = f", the sequence of {features['shape'][0]} frames of a clip"
    options = ", ".join(f"{key} = {value}" for key, value in about["options"].items())
    more = len(about["seen"]) - trained - validated
    only = "its concepts were learnt from" if "concepts" in about["facts"] else "it counted"
    facts = "".join(f"- {line}\n" for line in describe_facts(about["facts"]))
    return f"""# {name}: {about["task"]}
{warnings}
Tells {", ".join(about["classes"])} apart, clip by clip, from features of a film clip. Made by
`obygaze models train`; `obygaze models predict` asks it.

## What to beware of

- It was not tested: `obygaze models run` says how well such a model does on clips that it has
  not seen.
- "{positive}" is what annotators of these films called so, under their definition; "{negative}" is
  not the absence of anything else. Films of other times and places were not among them.
- A probability is the model's, not an annotator's. It is meant for reading film collections in
  bulk, not for judging a film or a person.

## What it was trained on

- estimator: {about["estimator"]}{f" ({options})" if options else ""}
- features: `{features["array"]}`{pooled}, of the backbone {backbone["name"]}, weights SHA-256
  `{backbone["weights_sha256"]}`; others are refused
- {counted(trained, "clip")} of the manifest {manifest.name} to learn from, and {validated:,} to
  choose and to stop{f"; {more:,} more, which {only}" if more > 0 else ""}
- annotations: {manifest.licence or "licence not stated"}. {manifest.citation or ""}

## What it chose

{facts}- the rest is in `model.json`: every parameter, every fact, and each clip that it has seen
"""


def unreliable_concepts(facts: Mapping[str, Any]) -> list[str]:
    """The concepts whose directions are unreliable; ``warnings`` has the reason of each."""
    subjects = {warning["subject"] for warning in facts.get("warnings", [])}
    return [name for name in facts.get("concepts", {}) if name in subjects]


def describe_facts(facts: Mapping[str, Any]) -> list[str]:
    """A line for each fact that is one number or word, and a few lines on concepts."""
    lines = [
        f"{key.replace('_', ' ')}: {f'{value:.3g}' if isinstance(value, float) else value}"
        for key, value in facts.items()
        if isinstance(value, str | int | float)
    ]
    if concepts := facts.get("concepts"):
        learned = ", ".join(f"{name} {quality['auc']:.2f}" for name, quality in concepts.items())
        lines.append(f"concepts, each with its AUC on the clips it was measured on: {learned}")
    if skipped := facts.get("skipped"):
        lines.append(f"concepts that could not be learned: {', '.join(skipped)}")
    if unreliable := unreliable_concepts(facts):
        lines.append(f"concepts that are unreliable: {', '.join(unreliable)}")
    return lines
