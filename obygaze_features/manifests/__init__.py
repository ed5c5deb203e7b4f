"""Manifests: the clips, their ids, labels and splits."""

from obygaze_features.manifests.importers import accede, csv_table, folder, obygaze12, prompts
from obygaze_features.manifests.items import Item, Items
from obygaze_features.manifests.labels import Concept, LabelScheme, LabelSet, Level, obygaze_scheme
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.splits import Run, RunSet, Split, leave_film_out, stratified
from obygaze_features.manifests.subtitles import with_subtitles

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

# They make manifests, and so import `manifest`.
for name, importer in {
    "accede": accede,
    "csv": csv_table,
    "folder": folder,
    "obygaze12": obygaze12,
    "prompts": prompts,
}.items():
    setattr(Manifest, f"from_{name}", staticmethod(importer.import_manifest))
Manifest.with_subtitles = with_subtitles
