"""Analyses of a saved model's concepts on annotated clips: TCAV, and significance.

An analysis is saved as JSON. The command and the report show it as a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from obygaze_features.common.files import read_json
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.manifests import Manifest
from obygaze_models.data.dataset import ClipDataset, join_clips
from obygaze_models.data.stores import Stores
from obygaze_models.data.targets import clip_targets
from obygaze_models.data.tasks import learned_task
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.estimators.fusion import unfuse
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.explain.significance import (
    TCAV,
    Significance,
    concept_significance,
    random_label_cavs,
    tcav,
)
from obygaze_models.saved.about import About
from obygaze_models.saved.inference import check_features, open_for
from obygaze_models.saved.persistence import load_model
from obygaze_models.scoring.metrics import Array


class Analysis(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An analysis of a model, as ``obygaze models explain --json`` prints it."""

    model: str
    features: str
    tcav: tuple[TCAV, ...] = ()
    significance: tuple[Significance, ...] = ()


@dataclass(frozen=True)
class AnalysisTable:
    """An analysis as text: a title, a table, and a note that explains the table."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def read_analysis(path: Path) -> tuple[Analysis, AnalysisTable]:
    """Read and check an analysis from JSON."""
    try:
        analysis = msgspec.convert(read_json(path, ExperimentError), Analysis)
        return analysis, describe_analysis(analysis)
    except (msgspec.ValidationError, IndexError) as problem:
        raise ExperimentError(
            f"{path} is not an analysis ({problem}). Write one (with --significance or --tcav): "
            "obygaze models explain MODEL STORE --significance --manifest FOLDER --json > FILE"
        ) from None


def analyse(
    kind: str,
    folder: Path,
    store: Stores,
    manifest: Path,
    concepts: Path | None = None,
    *,
    labels: str | None = None,
    draws: int = 200,
    seed: int = 0,
) -> Analysis:
    """Analyse a saved model's concepts on annotated clips that it has not seen.

    Parameters
    ----------
    kind
        ``tcav`` scores a network's use of concepts, on clips of its last (positive) class.
        ``significance`` tests whether the concepts of a bottleneck or a bank rank clips better than
        concepts fitted to shuffled labels.
    folder
        The saved model's folder.
    store, manifest
        The store (or stores) of the model's features, and the manifest with the annotations.
    concepts
        For TCAV, the folder of a saved bottleneck or bank for the same features. Random directions
        are fitted in the same way to shuffled labels, for comparison.
    labels
        The label set; by default, the manifest's default.
    draws
        The number of random directions.
    seed
        The seed of the random directions.
    """
    model, about = load_model(folder)
    about.require_classes("an analysis of concepts")
    fitted, _ = unfuse(model)
    source, holder, bank_about = folder, fitted, about
    if kind == "tcav":
        if concepts is None:
            raise UsageError("--tcav needs concepts. Add --concepts FOLDER (a saved bottleneck)")
        if not isinstance(model, MLPProbe):
            raise ExperimentError(
                f"{folder} holds {type(model).__name__}, but TCAV needs an mlp trained on one store"
            )
        source, (holder, bank_about) = concepts, load_model(concepts)
    bank = getattr(holder, "bank_", holder)
    if not isinstance(bank, ConceptBank):
        raise ExperimentError(
            f"{source} holds {type(bank).__name__}, which has no learned concepts. Use a bottleneck"
        )
    if bank_about.get("features") != about.get("features"):
        raise ExperimentError(f"the concepts of {source} were learned from different features")
    seen, test = _read_clips(folder, (model, about), store, manifest, labels)
    if kind == "tcav":
        labels_of_test = learned_task(about).labels(test)
        test = test.select(labels_of_test == len(fitted.classes_) - 1)
    if not len(test):
        raise ExperimentError(
            f"{folder} leaves no clips of {manifest} to test on. Use the model of a run "
            "(RUN/models/...), because runs hold out clips for testing"
        )
    result: Any
    if kind == "tcav":
        seen, _ = _read_clips(source, (holder, bank_about), store, manifest, labels)
        targets = _targets(bank, bank_about, seen)
        null = random_label_cavs(bank, seen.X, targets, runs=draws, random_state=seed)
        result = tuple(
            tcav(fitted, test.X, len(fitted.classes_) - 1, bank.cavs_, bank.names_, null)
        )
    else:
        trained, held = (_targets(bank, about, clips) for clips in (seen, test))
        result = tuple(
            concept_significance(bank, seen.X, trained, test.X, held, runs=draws, random_state=seed)
        )
    features = about.description.features
    backbone = features.backbone.name if features.backbone else ""
    name = "/".join(folder.resolve().parts[-2:])
    return Analysis(name, f"{backbone}, {features.array}", **{kind: result})


def _read_clips(
    folder: Path, loaded: tuple[Any, About], store: Stores, manifest: Path, labels: str | None
) -> tuple[ClipDataset, ClipDataset]:
    """Return the annotated clips that a model was trained on, and all other annotated clips."""
    model, about = loaded
    opened = open_for(about, store)
    check_features(about, opened)
    content, features = Manifest.load(manifest), about.description.features
    data, _ = join_clips(
        content,
        opened,
        {*content.labels(labels).levels},
        labels=labels,
        array=features.array,
        pooling=features.pooling,
        concepts=content.label_scheme(labels).concept_names,
    )
    data = replace(data, X=unfuse(model, data.X)[1])
    is_seen = np.isin(data.ids, about.description.seen)
    if not is_seen.any():
        raise ExperimentError(
            f"{folder} was not trained on any labelled clip of {manifest} that has features. "
            "Use the manifest and the store of the model's experiment"
        )
    return data.select(is_seen), data.select(~is_seen)


def _columns(clips: ClipDataset, concepts: Sequence[str]) -> list[int]:
    """Return the indices of the concepts in the annotations; raise if a concept is missing."""
    names = clips.concept_names
    if missing := [name for name in concepts if name not in names]:
        raise ExperimentError(
            f"the annotations have no concept {missing[0]!r}. They have "
            f"{', '.join(names) or 'none'}"
        )
    return [names.index(name) for name in concepts]


def _targets(bank: ConceptBank, about: About, clips: ClipDataset) -> Array:
    """Return the targets for the bank's columns: 1 if shown, 0 if not shown, -1 if unknown."""
    negatives = about.description.options.get("negatives", "b")
    marked = clip_targets(clips, negatives)[:, _columns(clips, bank.names_)]
    targets = np.full((len(clips), int(max(bank.columns_)) + 1), -1, dtype=np.int8)
    targets[:, bank.columns_] = marked
    return targets


def describe_analysis(analysis: Analysis) -> AnalysisTable:
    """Return an analysis as a table."""
    if scores := analysis.tcav:
        return AnalysisTable(
            "Does the network use the concepts? (TCAV)",
            ("concept", "score", "random", "p", "p (Holm)", "slope", "p", "p (Holm)"),
            tuple(
                (
                    *(row.name, f"{row.score:.2f}"),
                    f"{row.random_score:.2f} ± {row.random_spread:.2f}",
                    *_three_digits(row.p, row.p_holm),
                    f"{row.slope:+.2f}",
                    *_three_digits(row.slope_p, row.slope_p_holm),
                )
                for row in scores
            ),
            f"Score: the share of {counted(scores[0].clips, 'clip')} whose logit rises with the "
            f"concept. Random: the mean for {counted(scores[0].runs, 'direction')} fitted to "
            "shuffled labels. Slope: the logit's mean slope. p: compared with these directions.",
        )
    ranks = analysis.significance
    return AnalysisTable(
        "Do the concepts rank clips better than chance?",
        ("concept", "AUROC", "shuffled", "95th percentile", "p", "p (Holm)"),
        tuple(
            (r.name, *_three_digits(r.auc, r.random_auc, r.random_auc_95, r.p, r.p_holm))
            for r in ranks
        ),
        "AUROC: how well a concept ranks clips that the model has not seen. Shuffled: the mean for "
        f"{counted(ranks[0].runs, 'direction')} fitted to the concept's shuffled labels; the next "
        "column has their 95th percentile. p: compared with these directions. It tends to be too "
        "small, because clips of a film are alike.",
    )


def _three_digits(*values: float) -> list[str]:
    return [f"{value:.3f}" for value in values]
