"""Analyses of a saved model's concepts on annotated clips: TCAV, significance, interventions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.store import open_store
from obygaze_models.data.dataset import ClipDataset, load_dataset
from obygaze_models.data.tasks import UNUSED, concept_targets, task_from
from obygaze_models.estimators.bottlenecks import ConceptBottleneck, HybridBottleneck
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.explain.analysis_tables import Analysis
from obygaze_models.explain.interventions import intervene
from obygaze_models.explain.significance import concept_significance, random_label_cavs
from obygaze_models.explain.tcav import tcav
from obygaze_models.saved.inference import check_features
from obygaze_models.saved.persistence import load_model

Array = NDArray[Any]


def analyse(
    kind: str,
    model: Path,
    store: Path | str,
    manifest: Path,
    concepts: Path | None = None,
    *,
    labels: str | None = None,
    draws: int | None = None,
    seed: int = 0,
) -> Analysis:
    """Analyse a saved model's concepts, on annotated clips that it has not seen.

    Parameters
    ----------
    kind
        ``tcav``: how a network uses concepts, on clips of its last (positive) class.
        ``significance``: whether the concepts of a bottleneck or a bank beat shuffled labels.
        ``intervene``: a bottleneck's scores with more and more of its concepts corrected.
    model
        The folder of a saved model.
    store, manifest
        The store of its features, and the manifest with the annotations.
    concepts
        For TCAV, the folder of a saved bottleneck or bank of the same features. The random
        directions that scores are compared with are fitted like its own, to shuffled labels.
    labels
        The manifest's label set; by default its default one.
    draws
        The number of random directions, by default 200; or of random orders of concepts, 20.
    seed
        Fixes these.
    """
    fitted, about = load_model(model)
    source, holder, bank_about = model, fitted, about
    if kind == "tcav":
        if concepts is None:
            raise UsageError("--tcav needs concepts; add --concepts FOLDER of a saved bottleneck")
        if not isinstance(fitted, MLPProbe):
            raise ExperimentError(
                f"{model} is a {type(fitted).__name__}; TCAV needs a network (mlp)"
            )
        source, (holder, bank_about) = concepts, load_model(concepts)
    bank = getattr(holder, "bank_", holder)
    if kind == "intervene":
        if not isinstance(fitted, ConceptBottleneck | HybridBottleneck):
            raise ExperimentError(
                f"{model} is a {type(fitted).__name__}; interventions need a bottleneck (pcbm-...)"
            )
    elif not isinstance(bank, ConceptBank):
        raise ExperimentError(
            f"{source} is a {type(bank).__name__}, which has no learned concepts; use a bottleneck"
        )
    if bank_about.get("features") != about.get("features"):
        raise ExperimentError(f"the concepts of {source} are of other features than the model's")
    seen, test = _read_clips(model, about, store, manifest, labels)
    truth = np.zeros(len(test))
    if kind != "significance":
        truth = task_from(about["learns"]).labels(test)
        code = len(fitted.classes_) - 1
        chosen = truth == code if kind == "tcav" else truth != UNUSED
        test, truth = test.select(chosen), truth[chosen]
    if not len(test):
        raise ExperimentError(
            f"{model} has seen all labelled clips of {manifest}; use a model of a run "
            "(RUN/models/...), which keeps clips for testing"
        )
    result: Any
    if kind == "intervene":
        result = intervene(fitted, seen, test, truth, draws=draws or 20, random_state=seed)
    elif kind == "tcav":
        seen, _ = _read_clips(source, bank_about, store, manifest, labels)
        targets = _targets(bank, bank_about, seen)
        null = random_label_cavs(bank, seen.X, targets, runs=draws or 200, random_state=seed)
        result = tuple(tcav(fitted, test.X, code, bank.cavs_, bank.names_, null))
    else:
        known, held = (_targets(bank, about, clips) for clips in (seen, test))
        result = tuple(
            concept_significance(
                bank, seen.X, known, test.X, held, runs=draws or 200, random_state=seed
            )
        )
    features = about["features"]
    return Analysis(
        model="/".join(model.resolve().parts[-2:]),
        features=f"{features['backbone']['name']}, {features['array']}",
        **{kind: result},
    )


def _read_clips(
    folder: Path, about: dict[str, Any], store: Path | str, manifest: Path, labels: str | None
) -> tuple[ClipDataset, ClipDataset]:
    """The annotated clips of a store that a model has seen, and the others."""
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
    return data.select(is_seen), data.select(~is_seen)


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
