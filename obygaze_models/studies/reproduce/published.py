"""The numbers published in the paper, and the backbones that they are from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from obygaze_features.common.package import reference_json
from obygaze_models.studies.reproduce.render import Value, Values

DATASET = "obygaze12"
"""The name of the manifest with the paper's clips."""
AVERAGES = {"weighted": "f1_weighted", "positive class": "f1"}
"""The keys of the metrics, by the paper's names for averages of F1."""
CHANCE = {"random": "Random", "all positive": "All positive"}
"""The paper's row for each chance baseline."""


class Backbone(NamedTuple):
    """A backbone of the paper.

    Parameters
    ----------
    title
        The title for readers.
    names
        The names and families that stores record. The first is the name in obygaze.
    config
        The settings of the paper's checkpoint. A store with other settings has another checkpoint.
    mode
        The preprocessing of the authors' code; "" if all modes are the same.
    """

    title: str
    names: tuple[str, ...]
    config: Mapping[str, int]
    mode: str = "author"


BACKBONES = {
    "xclip": Backbone(
        "X-CLIP on Kinetics", ("xclip-kinetics", "xclip"), {"num_frames": 32, "patch_size": 16}
    ),
    "vivit": Backbone("ViViT-B/16", ("vivit",), {"num_frames": 32}),
    "lsmdc": Backbone("X-CLIP retrained on LSMDC", ("xclip-lsmdc", "lsmdc"), {}, ""),
}
"""The paper's three backbones, by key."""
SLOTS = {name: slot for slot, backbone in BACKBONES.items() for name in backbone.names}
"""The backbone's key for each name or family, whatever the checkpoint."""


def published_row(row: str, metric: str) -> Values:
    """Return a row's numbers from Table 2 or 5; {} if they are another average of F1."""
    tables = reference_json("published.json")
    entry = (tables["table2"]["rows"] | tables["table5"]["rows"])[row]
    if AVERAGES[entry["average"]] != metric:
        return {}
    return {column: Value(**number) for column, number in entry["values"].items() if number}
