"""The numbers published in the paper, and the runs whose scores are comparable with them.

A number is comparable if the clips, the backbone's checkpoint, the kind of model, the levels and
the average of F1 are the same as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from obygaze_features.common.package import reference_json

if TYPE_CHECKING:
    from obygaze_models.experiments.tables import Run

DATASET = "obygaze12"
"""The name of the manifest with the paper's clips."""
AVERAGES = {"weighted": "f1_weighted", "positive class": "f1"}
"""The keys of the metrics, by the paper's names for averages of F1."""
NETWORKS = ("mlp", "mlp-author")
BOTTLENECKS = {"pcbm-tree": "PCBM-DT", "pcbm-logistic": "PCBM-LR"}
CHANCE = {"random": "Random", "all positive": "All positive"}
"""The paper's row for each chance baseline."""
CHANCE_VERSIONS = {"f1": "v1", "f1_weighted": "v2"}
"""The version of the paper that has chance baselines for each average of F1, by metric."""
# Protocols that test one fold, as in Table 2.
_ONE_FOLD = ("leak-free", "released", "paper")


@dataclass(frozen=True)
class Backbone:
    """A backbone of the paper.

    Parameters
    ----------
    title
        The title for readers.
    names
        The names and families that stores record. The first is the name in obygaze.
    row
        The row in the paper's tables.
    config
        The settings of the paper's checkpoint. A store with other settings has another checkpoint.
    """

    title: str
    names: tuple[str, ...]
    row: str
    config: Mapping[str, int] = field(default_factory=dict)


BACKBONES = {
    "xclip": Backbone(
        "X-CLIP on Kinetics",
        ("xclip-kinetics", "xclip"),
        "X-CLIP",
        {"num_frames": 32, "patch_size": 16},
    ),
    "vivit": Backbone("ViViT-B/16", ("vivit",), "ViViT-B/16", {"num_frames": 32}),
    "lsmdc": Backbone("X-CLIP retrained on LSMDC", ("xclip-lsmdc", "lsmdc"), "X-CLIP LSMDC"),
}
"""The paper's three backbones, by key."""


@dataclass(frozen=True)
class Published:
    """A number from the paper, with its standard deviation over runs (if any)."""

    mean: float
    std: float | None = None


def slot_of(backbone: Mapping[str, Any]) -> str | None:
    """Return the key in `BACKBONES` for a store's backbone, or None. The checkpoint is ignored.

    If a store does not record the family of its backbone, the backbone's name is used, because in
    older stores this name is the family.
    """
    family = str(backbone.get("family") or backbone["name"])
    return next((slot for slot in BACKBONES if family in BACKBONES[slot].names), None)


def published_row(row: str, column: str) -> dict[str, Published]:
    """Return a row's numbers from Table 2 or 5 in a column such as ``HN-S/EN-S``, by metric."""
    tables = reference_json("published.json")
    entry = {**tables["table2"]["rows"], **tables["table5"]["rows"]}[row]
    number = entry["values"].get(column)
    return {AVERAGES[entry["average"]]: Published(**number)} if number else {}


def chance_row(baseline: str, metric: str) -> str:
    """Return the paper's row for a baseline in `CHANCE`, from the version that has this metric."""
    return f"{CHANCE[baseline]} ({CHANCE_VERSIONS[metric]})"


def published_films() -> dict[str, Published]:
    """Return the numbers of Table 4 by film. The paper does not say how it averages F1."""
    rows = reference_json("published.json")["table4"]["rows"]
    return {film: Published(**number) for film, number in rows.items()}


def published_average() -> Published:
    """Return the average of Table 4."""
    return Published(**reference_json("published.json")["table4"]["average"])


def published_scores(run: Run, model: str, train: str, test: str) -> dict[str, Published]:
    """Return the paper's numbers for a run's model by metric, or {} if there are none."""
    column = _column(run, train, test)
    if column is None or run.header.protocol not in _ONE_FOLD:
        return {}
    backbone = paper_row(run.header.features.backbone)
    rows = dict.fromkeys(NETWORKS, backbone)
    if backbone == BACKBONES["xclip"].row:
        rows |= BOTTLENECKS
    learner = run.experiment.learners.get(model)
    row = rows.get(learner.name) if learner else None
    return published_row(row, column) if row else {}


def _column(run: Run, train: str, test: str) -> str | None:
    """Return the paper's column for a training task and a test set, such as ``HN-S/ENHN-S``."""
    names = []
    for task in (run.task(train), run.task(test)):
        if not task.is_binary or task.classes[1].levels != ("S",):
            return None
        names.append(f"{''.join(sorted(task.classes[0].levels))}-S")
    return "/".join(names) if run.header.manifest.name == DATASET else None


def paper_row(backbone: Mapping[str, Any]) -> str | None:
    """Return the paper's row for a store's backbone, or None if its checkpoint is different."""
    slot = slot_of(backbone)
    if slot is None:
        return None
    config = backbone.get("config", {})
    config = {**config, **config.get("vision_config", {})}
    expected = BACKBONES[slot].config
    same = all(config.get(key, value) == value for key, value in expected.items())
    return BACKBONES[slot].row if same else None
