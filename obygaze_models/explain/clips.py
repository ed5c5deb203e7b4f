"""A saved model's explanations of a store's clips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obygaze_features.errors import ExperimentError
from obygaze_features.store import open_store
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.explain.contributions import (
    Explanation,
    Neighbour,
    explain_clip,
    nearest_clips,
)
from obygaze_models.inference import check_features, features_of
from obygaze_models.persistence import load_model

__all__ = ["ExplainedClip", "explain_clips"]


@dataclass(frozen=True)
class ExplainedClip:
    """A clip, what a model says of it and why, and the store's clips that are most like it."""

    id: str
    explanation: Explanation
    nearest: tuple[Neighbour, ...]


def explain_clips(
    model: Path,
    store: Path | str,
    ids: Sequence[str],
    *,
    nearest: int = 5,
    concepts: Path | None = None,
) -> list[ExplainedClip]:
    """Explain what a saved model says of clips.

    Parameters
    ----------
    model
        A folder that `save_model` wrote.
    store
        The store of the features that the model fits.
    ids
        Which clips.
    nearest
        How many of the store's other clips to list, by the cosine of their features.
    concepts
        The folder of a saved bottleneck or bank, by whose concepts a network is read.
    """
    fitted, about = load_model(model)
    opened = open_store(store)
    check_features(about, opened)
    if concepts is not None and not isinstance(fitted, MLPProbe):
        raise ExperimentError(
            f"{model} is a {type(fitted).__name__}; only networks are read by others' concepts"
        )
    bank = None if concepts is None else _bank(concepts, about)
    opened.rows_of(ids)  # names an id that is not there, and says why
    have, features = features_of(about, opened, opened.ids if nearest else ids)
    row_of = {one: row for row, one in enumerate(have)}
    explained = []
    for one in dict.fromkeys(ids):
        x = features[row_of[one]]
        why = explain_clip(fitted, x, classes=about.get("classes"), bank=bank)
        like = [near for near in nearest_clips(x, have, features, nearest + 1) if near.id != one]
        explained.append(ExplainedClip(one, why, tuple(like[:nearest])))
    return explained


def _bank(folder: Path, about: dict[str, Any]) -> Any:
    """The bank of a saved bottleneck, or one that was saved alone, of the same features."""
    loaded, theirs = load_model(folder)
    bank = getattr(loaded, "bank_", loaded)
    if not hasattr(bank, "cavs_"):
        raise ExperimentError(
            f"{folder} is a {type(loaded).__name__}, which has no concepts; take a bottleneck"
        )
    if theirs.get("features") != about["features"]:
        raise ExperimentError(f"the concepts of {folder} are of other features than the model's")
    return bank
