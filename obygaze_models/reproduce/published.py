"""The numbers published in the paper, and the backbones that they are from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from obygaze_features.common.package import reference_json

DATASET = "obygaze12"
"""The name of the manifest with the paper's clips."""
AVERAGES = {"weighted": "f1_weighted", "positive class": "f1"}
"""The keys of the metrics, by the paper's names for averages of F1."""
CHANCE = {"random": "Random", "all positive": "All positive"}
"""The paper's row for each chance baseline."""
CHANCE_VERSIONS = {"f1": "v1", "f1_weighted": "v2"}
"""The version of the paper that has chance baselines for each average of F1, by metric."""


@dataclass(frozen=True)
class Backbone:
    """A backbone of the paper.

    Parameters
    ----------
    title
        The title for readers.
    names
        The names and families that stores record. The first is the name in obygaze.
    config
        The settings of the paper's checkpoint. A store with other settings has another checkpoint.
    """

    title: str
    names: tuple[str, ...]
    config: Mapping[str, int] = field(default_factory=dict)


BACKBONES = {
    "xclip": Backbone(
        "X-CLIP on Kinetics", ("xclip-kinetics", "xclip"), {"num_frames": 32, "patch_size": 16}
    ),
    "vivit": Backbone("ViViT-B/16", ("vivit",), {"num_frames": 32}),
    "lsmdc": Backbone("X-CLIP retrained on LSMDC", ("xclip-lsmdc", "lsmdc")),
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


def is_papers_checkpoint(slot: str, config: Mapping[str, Any]) -> bool:
    """Return True if the settings of a store's backbone are those of the paper's checkpoint."""
    config = {**config, **config.get("vision_config", {})}
    expected = BACKBONES[slot].config
    return all(config.get(key, value) == value for key, value in expected.items())
