"""Analyses of a model's concepts as JSON and as tables, for the command and for the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from obygaze_features.common.files import read_json
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError
from obygaze_models.explain.interventions import Interventions
from obygaze_models.explain.significance import Significance
from obygaze_models.explain.tcav import TCAV


class Analysis(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One analysis of one model, as ``obygaze models explain --json`` prints it."""

    model: str
    features: str
    tcav: tuple[TCAV, ...] = ()
    significance: tuple[Significance, ...] = ()
    intervene: Interventions | None = None


@dataclass(frozen=True)
class AnalysisTable:
    """An analysis in words: its title, a table, and a note on how to read it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def read_analysis(path: Path) -> tuple[Analysis, AnalysisTable]:
    """Read the JSON of an analysis; it comes from anywhere, so all of it is checked."""
    try:
        analysis = msgspec.convert(read_json(path, ExperimentError), Analysis)
        return analysis, describe_analysis(analysis)
    except (msgspec.ValidationError, IndexError) as problem:
        raise ExperimentError(
            f"{path} is not an analysis ({problem}); write one with: obygaze models explain MODEL "
            "STORE --significance --manifest FOLDER --json > FILE"
        ) from None


def describe_analysis(analysis: Analysis) -> AnalysisTable:
    """An analysis as a table."""
    if analysis.tcav:
        return _tcav_table(analysis.tcav)
    if analysis.intervene:
        return _intervention_table(analysis.intervene)
    return _significance_table(analysis.significance)


def _tcav_table(scores: tuple[TCAV, ...]) -> AnalysisTable:
    rows = (
        (
            row.name,
            f"{row.score:.2f}",
            f"{row.random_score:.2f} ± {row.random_spread:.2f}",
            f"{row.p:.3f}",
            f"{row.p_holm:.3f}",
            f"{row.slope:+.2f}",
            f"{row.slope_p:.3f}",
            f"{row.slope_p_holm:.3f}",
        )
        for row in scores
    )
    return AnalysisTable(
        "Does the network use the concepts? (TCAV)",
        ("concept", "score", "random", "p", "p (Holm)", "slope", "p", "p (Holm)"),
        tuple(rows),
        f"Score: the share of {counted(scores[0].clips, 'clip')} whose logit rises along the "
        f"concept, against {counted(scores[0].runs, 'direction')} of shuffled labels.",
    )


def _significance_table(ranks: tuple[Significance, ...]) -> AnalysisTable:
    rows = (
        (
            row.name,
            f"{row.auc:.3f}",
            f"{row.random_auc:.3f}",
            f"{row.random_auc_95:.3f}",
            f"{row.p:.3f}",
            f"{row.p_holm:.3f}",
        )
        for row in ranks
    )
    return AnalysisTable(
        "Do the concepts rank clips better than chance?",
        ("concept", "AUC", "shuffled", "95th percentile", "p", "p (Holm)"),
        tuple(rows),
        "AUC: how well a concept ranks clips that the model has not seen; p: against "
        f"{counted(ranks[0].runs, 'direction')} of its shuffled labels. Clips of a film are "
        "alike, so p is rather too small.",
    )


def _intervention_table(result: Interventions) -> AnalysisTable:
    def cell(mean: float | None, std: float | None) -> str:
        spread = f" ± {std:.3f}" if std and std >= 0.0005 else ""
        return "-" if mean is None else f"{mean:.3f}{spread}"

    random, nearest = result.curves
    rows = (
        (
            str(number),
            cell(random.accuracy[number], random.accuracy_std[number]),
            cell(random.f1[number], random.f1_std[number]),
            cell(nearest.accuracy[number], None),
            cell(nearest.f1[number], None),
        )
        for number in range(len(result.concepts) + 1)
    )
    return AnalysisTable(
        "How much better would it be with correct concepts?",
        ("corrected", "accuracy", "F1", "accuracy, nearest first", "F1"),
        tuple(rows),
        f"Scores of {counted(result.clips, 'clip')} with 0 to "
        f"{counted(len(result.concepts), 'concept')} corrected: mean ± standard deviation over "
        f"{counted(random.draws, 'random order')}; then those with the nearest hyperplane first.",
    )
