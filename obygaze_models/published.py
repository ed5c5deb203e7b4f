"""The paper's numbers, by table, row and column, each with the average that it was scored by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from obygaze_features.common.package import reference_json

__all__ = [
    "AVERAGES",
    "DATASET",
    "SLOTS",
    "Published",
    "papers_backbone",
    "papers_slot",
    "published_average",
    "published_films",
    "published_row",
]

DATASET = "obygaze12"
"""What the manifest of the paper's clips is called."""
SLOTS = {
    "xclip": ("xclip-kinetics", "xclip"),
    "vivit": ("vivit",),
    "lsmdc": ("xclip-lsmdc", "lsmdc"),
}
"""The paper's three backbones, and the names that mean each; the first is its name everywhere."""
#: The row of each of them, and what of its checkpoint's configuration is the paper's.
_ROWS: dict[str, tuple[str, dict[str, int]]] = {
    "xclip": ("X-CLIP", {"num_frames": 32, "patch_size": 16}),
    "vivit": ("ViViT-B/16", {"num_frames": 32}),
    "lsmdc": ("X-CLIP LSMDC", {}),
}

AVERAGES = {"weighted": "f1_weighted", "positive class": "f1"}
"""The averages of F1 that the paper mixes, and our names of these scores."""


@dataclass(frozen=True)
class Published:
    """A number of the paper, its deviation over runs if it has one, and the row it stands in."""

    mean: float
    std: float | None
    row: str


def papers_slot(backbone: Mapping[str, Any]) -> str | None:
    """Which of the paper's backbones a store's is a kind of, of any size; None if it is of none.

    Stores record the family of their backbone; where it is unknown, the name tells. (Stores that
    were written before the two were told apart have the family as the name.)
    """
    family = str(backbone.get("family") or backbone["name"])
    return next((slot for slot, names in SLOTS.items() if family in names), None)


def papers_backbone(backbone: Mapping[str, Any]) -> str | None:
    """The paper's row for a store's backbone; None where it is not one of the paper's."""
    row, wanted = _ROWS.get(papers_slot(backbone) or "", (None, {}))
    config = {**backbone["config"], **backbone["config"].get("vision_config", {})}
    alike = all(config.get(key, value) == value for key, value in wanted.items())
    return row if alike else None


def published_row(row: str, column: str) -> dict[str, Published]:
    """Score -> what the paper prints in Table 2 or 5, in a column such as ``HN-S/EN-S``."""
    tables = reference_json("published.json")
    of = {**tables["table2"]["rows"], **tables["table5"]["rows"]}[row]
    said = of["values"].get(column)
    return {AVERAGES[of["average"]]: _published(said, row)} if said else {}


def published_films() -> dict[str, Published]:
    """Film -> what the paper prints in Table 4; it does not say which average that is."""
    rows = reference_json("published.json")["table4"]["rows"]
    return {film: _published(said, "Table 4") for film, said in rows.items()}


def published_average() -> Published:
    """The average of Table 4."""
    return _published(reference_json("published.json")["table4"]["average"], "Table 4, average")


def _published(said: dict[str, Any], row: str) -> Published:
    return Published(said["mean"], said.get("std"), row)
