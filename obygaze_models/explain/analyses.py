"""Analyses of a saved model's concepts on annotated clips: TCAV, significance, interventions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_features.store import open_store
from obygaze_models.data.dataset import ClipDataset, load_dataset
from obygaze_models.data.tasks import UNUSED, concept_targets, task_from
from obygaze_models.estimators.bottlenecks import ConceptBottleneck, HybridBottleneck
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.explain.clips import load_bank
from obygaze_models.explain.interventions import Annotated, Interventions, intervene
from obygaze_models.explain.significance import (
    Significance,
    concept_significance,
    random_label_cavs,
)
from obygaze_models.explain.tcav import TCAV, tcav
from obygaze_models.saved.inference import check_features
from obygaze_models.saved.model_header import read_about
from obygaze_models.saved.persistence import load_model

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Clips:
    """The annotated clips of a store, split into those that a model has seen and the others."""

    seen: ClipDataset
    unseen: ClipDataset


def score_tcav(
    model: Path,
    store: Path | str,
    manifest: Path,
    concepts: Path,
    *,
    labels: str | None = None,
    draws: int = 200,
    seed: int = 0,
) -> list[TCAV]:
    """TCAV scores of a saved network, on unseen clips of its last (positive) class.

    Parameters
    ----------
    model
        The folder of a saved network.
    store, manifest
        The store of its features, and the manifest with the annotations.
    concepts
        The folder of a saved bottleneck or bank of the same features. The random directions that
        scores are compared with are fitted like its own, to shuffled labels.
    labels
        The manifest's label set; by default its default one.
    draws
        The number of random directions.
    seed
        Fixes the random directions.
    """
    network, about = load_model(model)
    if not isinstance(network, MLPProbe):
        raise ExperimentError(f"{model} is a {type(network).__name__}; TCAV needs a network (mlp)")
    bank = load_bank(concepts, about)
    _require_bank(bank, concepts)
    clips = _read_clips(model, about, store, manifest, labels)
    bank_about = read_about(concepts)
    source = _read_clips(concepts, bank_about, store, manifest, labels).seen
    targets = _targets(bank, bank_about, source)
    null = random_label_cavs(bank, source.X, targets, runs=draws, random_state=seed)
    code = len(network.classes_) - 1
    is_positive = task_from(about["learns"]).labels(clips.unseen) == code
    positive = clips.unseen.X[is_positive]
    if not len(positive):
        raise ExperimentError(_all_seen(model, manifest))
    return tcav(network, positive, code, bank.cavs_, bank.names_, null)


def compare_with_shuffled(
    model: Path,
    store: Path | str,
    manifest: Path,
    *,
    labels: str | None = None,
    draws: int = 200,
    seed: int = 0,
) -> list[Significance]:
    """Compare a saved bottleneck's concepts with shuffled labels, on clips it has not seen.

    The parameters are those of `score_tcav`; `model` is a bottleneck or a bank.
    """
    loaded, about = load_model(model)
    bank = getattr(loaded, "bank_", loaded)
    _require_bank(bank, model)
    clips = _read_clips(model, about, store, manifest, labels)
    seen, unseen = clips.seen, clips.unseen
    if not len(unseen):
        raise ExperimentError(_all_seen(model, manifest))
    return concept_significance(
        bank,
        seen.X,
        _targets(bank, about, seen),
        unseen.X,
        _targets(bank, about, unseen),
        runs=draws,
        random_state=seed,
    )


def correct_concepts(
    model: Path,
    store: Path | str,
    manifest: Path,
    *,
    labels: str | None = None,
    draws: int = 20,
    seed: int = 0,
) -> Interventions:
    """Score a saved bottleneck on unseen clips with more and more of their concepts corrected.

    The parameters are those of `score_tcav`; `draws` counts random orders of concepts.
    """
    bottleneck, about = load_model(model)
    if not isinstance(bottleneck, ConceptBottleneck | HybridBottleneck):
        raise ExperimentError(
            f"{model} is a {type(bottleneck).__name__}; interventions need a bottleneck (pcbm-...)"
        )
    clips = _read_clips(model, about, store, manifest, labels)
    seen, unseen = clips.seen, clips.unseen
    truth = task_from(about["learns"]).labels(unseen)
    if not (truth != UNUSED).any():
        raise ExperimentError(_all_seen(model, manifest))
    test = unseen.select(truth != UNUSED)
    return intervene(
        bottleneck,
        seen.concept_names,
        Annotated(seen.X, seen.concepts),
        Annotated(test.X, test.concepts),
        truth[truth != UNUSED],
        draws=draws,
        random_state=seed,
    )


def _read_clips(
    folder: Path, about: dict[str, Any], store: Path | str, manifest: Path, labels: str | None
) -> _Clips:
    opened = open_store(store)
    check_features(about, opened)
    features = about["features"]
    data = load_dataset(
        manifest, opened, array=features["array"], pooling=features["pooling"], labels=labels
    )
    is_seen = np.isin(data.ids, about.get("seen", []))
    if not is_seen.any():
        raise ExperimentError(
            f"{folder} was trained on none of the labelled clips of {manifest} that have features; "
            "use the manifest and the store of its experiment"
        )
    return _Clips(data.select(is_seen), data.select(~is_seen))


def _all_seen(folder: Path, manifest: Path) -> str:
    return (
        f"{folder} has seen all labelled clips of {manifest}; use a model of a run "
        "(RUN/models/...), which keeps clips for testing"
    )


def _require_bank(bank: Any, folder: Path) -> None:
    if not isinstance(bank, ConceptBank):
        raise ExperimentError(
            f"{folder} is a {type(bank).__name__}, which has no learned concepts; use a bottleneck"
        )


def _targets(bank: ConceptBank, about: dict[str, Any], clips: ClipDataset) -> Array:
    """The concepts of the bank's columns: 1 shown, 0 not, -1 unknown."""
    if missing := [name for name in bank.names_ if name not in clips.concept_names]:
        raise ExperimentError(
            f"the annotations have no concept {missing[0]!r}; they have "
            f"{', '.join(clips.concept_names) or 'none'}"
        )
    negatives = about.get("options", {}).get("negatives", "b")
    columns = [clips.concept_names.index(name) for name in bank.names_]
    shown = concept_targets(clips.levels, clips.concepts[:, columns], negatives)
    targets = np.full((len(clips), int(max(bank.columns_)) + 1), -1, dtype=np.int8)
    targets[:, bank.columns_] = shown
    return targets
