"""Which of the paper's figures stand beside ours: by backbone, estimator, levels and average."""

from __future__ import annotations

from obygaze_models.experiments.record import RunRecord
from obygaze_models.published import (
    DATASET,
    Published,
    papers_backbone,
    published_films,
    published_row,
)

__all__ = ["NETWORKS", "estimator_of", "published_film", "published_guess", "published_scores"]

BOTTLENECKS = {"pcbm-tree": "PCBM-DT", "pcbm-logistic": "PCBM-LR"}
GUESSES = {"random": "Random", "all positive": "All positive"}
NETWORKS = ("mlp", "mlp-author")
PROTOCOLS = ("leak-free", "released", "paper")
"""Those that test one fold, as Table 2 does."""


def published_scores(record: RunRecord, model: str, train: str, test: str) -> dict[str, Published]:
    """Metric -> the paper's figure for a model of a run; empty where the row is not the paper's."""
    if not _is_papers(record) or record.protocol not in PROTOCOLS:
        return {}
    backbone = papers_backbone(record.store.backbone)
    estimator = estimator_of(record, model)
    if estimator in NETWORKS and backbone:
        return _row(backbone, train, test)
    if backbone == "X-CLIP" and estimator in BOTTLENECKS:
        return _row(BOTTLENECKS[estimator], train, test)
    return {}


def published_guess(record: RunRecord, guess: str, train: str, test: str) -> dict[str, Published]:
    """Metric -> what the paper prints for a guess: version 1 in one average, 2 in the other."""
    if not _is_papers(record) or record.protocol not in PROTOCOLS or guess not in GUESSES:
        return {}
    return _row(f"{GUESSES[guess]} (v1)", train, test) | _row(f"{GUESSES[guess]} (v2)", train, test)


def published_film(
    record: RunRecord, model: str, train: str, test: str, film: str
) -> Published | None:
    """What Table 4 prints for a film that was left out."""
    asked = record.protocol == "leave-film-out" and _is_papers(record)
    backbone = papers_backbone(record.store.backbone) if asked else None
    network = estimator_of(record, model) in NETWORKS
    mine = asked and backbone == "X-CLIP" and network
    if not mine or (_pair(train), _pair(test)) != ("HN-S", "ENHN-S"):
        return None
    return published_films().get(film)


def _row(row: str, train: str, test: str) -> dict[str, Published]:
    return published_row(row, f"{_pair(train)}/{_pair(test)}")


def _is_papers(record: RunRecord) -> bool:
    return record.manifest.name == DATASET and list(record.experiment["positives"]) == ["S"]


def _pair(task: str) -> str:
    """``EN-S`` of ``EN vs S``, as the paper's columns are called."""
    negatives, _, positive = task.partition(" vs ")
    return f"{''.join(sorted(negatives.split('+')))}-{positive}"


def estimator_of(record: RunRecord, model: str) -> str:
    """What is listed as `model`: an estimator may be given another name."""
    for one in record.experiment["estimators"]:
        said = {"name": one} if isinstance(one, str) else one
        if said.get("as", said["name"]) == model:
            return str(said["name"])
    return model
