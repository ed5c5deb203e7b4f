"""Manifests: which clips there are, under which ids, with which labels and splits."""

from obygaze_features.manifests.items import Item, Items
from obygaze_features.manifests.join import Match, match_ids
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.runs import Run, RunSet
from obygaze_features.manifests.scheme import Concept, LabelScheme, Level, obygaze_scheme
from obygaze_features.manifests.splits import Split, leave_film_out, stratified

__all__ = [
    "Concept",
    "Item",
    "Items",
    "LabelScheme",
    "LabelSet",
    "Level",
    "Manifest",
    "Match",
    "Run",
    "RunSet",
    "Split",
    "leave_film_out",
    "match_ids",
    "obygaze_scheme",
    "stratified",
]
