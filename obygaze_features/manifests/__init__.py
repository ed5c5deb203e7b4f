"""Manifests: lists of clips with ids, labels and splits."""

from obygaze_features.items.items import Item, Items
from obygaze_features.manifests.folds import leave_film_out, stratified
from obygaze_features.manifests.labels import Concept, LabelScheme, LabelSet, Level, obygaze_scheme
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.splits import Run, RunSet, Split

__all__ = [
    "Concept",
    "Item",
    "Items",
    "LabelScheme",
    "LabelSet",
    "Level",
    "Manifest",
    "Run",
    "RunSet",
    "Split",
    "leave_film_out",
    "obygaze_scheme",
    "stratified",
]
