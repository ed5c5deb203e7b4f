"""Which of the paper's figures stand beside ours: by backbone, estimator, levels and average."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from obygaze_features.common.reference import reference_json

__all__ = ["Published", "published_film", "published_guess", "published_scores"]

ROWS = {"xclip-kinetics": "X-CLIP", "vivit": "ViViT-B/16", "xclip-lsmdc": "X-CLIP LSMDC"}
BOTTLENECKS = {"pcbm-tree": "PCBM-DT", "pcbm-logistic": "PCBM-LR"}
GUESSES = {"random": "Random", "all positive": "All positive"}
METRIC = {"weighted": "f1_weighted", "positive class": "f1"}
PROTOCOLS = ("leak-free", "released", "paper")
"""Those that test one fold, as Table 2 does."""


@dataclass(frozen=True)
class Published:
    """A figure of the paper and the row it stands in."""

    mean: float
    std: float | None
    row: str


def published_scores(
    record: Mapping[str, Any], model: str, train: str, test: str
) -> dict[str, Published]:
    """Metric -> the paper's figure for a model of a run; empty where the row is not the paper's."""
    if not _is_papers(record) or record["protocol"] not in PROTOCOLS:
        return {}
    backbone = ROWS.get(record["store"]["backbone"]["name"])
    estimator = _estimator(record, model)
    if estimator == "mlp" and backbone:
        return _row(backbone, train, test)
    if backbone == "X-CLIP" and estimator in BOTTLENECKS:
        return _row(BOTTLENECKS[estimator], train, test)
    return {}


def published_guess(
    record: Mapping[str, Any], guess: str, train: str, test: str
) -> dict[str, Published]:
    """Metric -> what the paper prints for a guess: version 1 in one average, 2 in the other."""
    if not _is_papers(record) or record["protocol"] not in PROTOCOLS or guess not in GUESSES:
        return {}
    return _row(f"{GUESSES[guess]} (v1)", train, test) | _row(
        f"{GUESSES[guess]} (v2)", train, test
    )


def published_film(
    record: Mapping[str, Any], model: str, train: str, test: str, film: str
) -> Published | None:
    """What Table 4 prints for a film that was left out."""
    asked = record["protocol"] == "leave-film-out" and _is_papers(record)
    backbone = record["store"]["backbone"]["name"]
    mine = asked and ROWS.get(backbone) == "X-CLIP" and _estimator(record, model) == "mlp"
    if not mine or (_pair(train), _pair(test)) != ("HN-S", "ENHN-S"):
        return None
    said = reference_json("published.json")["table4"]["rows"].get(film)
    return Published(said["mean"], said.get("std"), "Table 4") if said else None


def _row(name: str, train: str, test: str) -> dict[str, Published]:
    tables = reference_json("published.json")
    row = {**tables["table2"]["rows"], **tables["table5"]["rows"]}[name]
    said = row["values"].get(f"{_pair(train)}/{_pair(test)}")
    if not said:
        return {}
    return {METRIC[row["average"]]: Published(said["mean"], said.get("std"), name)}


def _is_papers(record: Mapping[str, Any]) -> bool:
    return record["manifest"]["name"] == "obygaze12" and list(
        record["experiment"]["positives"]
    ) == ["S"]


def _pair(task: str) -> str:
    """``EN-S`` of ``EN vs S``, as the paper's columns are called."""
    negatives, _, positive = task.partition(" vs ")
    return f"{''.join(sorted(negatives.split('+')))}-{positive}"


def _estimator(record: Mapping[str, Any], model: str) -> str:
    """What is listed as `model`: an estimator may be given another name."""
    for one in record["experiment"]["estimators"]:
        said = {"name": one} if isinstance(one, str) else one
        if said.get("as", said["name"]) == model:
            return str(said["name"])
    return model
