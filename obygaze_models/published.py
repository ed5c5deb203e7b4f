"""The paper's numbers, by table, row and column, each with the average that it was scored by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from obygaze_features.common.reference import reference_json

__all__ = ["AVERAGES", "Published", "published_average", "published_films", "published_row"]

AVERAGES = {"weighted": "f1_weighted", "positive class": "f1"}
"""The averages of F1 that the paper mixes, and our names of these scores."""


@dataclass(frozen=True)
class Published:
    """A number of the paper, its deviation over runs if it has one, and the row it stands in."""

    mean: float
    std: float | None
    row: str


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
