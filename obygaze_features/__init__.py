"""Manifests of film clips, extraction of features, and feature stores.

The names for everyday use are available here and are imported on first use::

    import obygaze_features as of

    manifest = of.Manifest.from_csv("annotations.csv")
    of.extract(manifest, "films", ["xclip-kinetics", "vivit"], "stores")
    store = of.open_store("stores/xclip-kinetics.zarr")
    features = store.read("native", ids=manifest.select(levels=["S"]).ids)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from obygaze_features.common import lazy_names

if TYPE_CHECKING:
    from obygaze_features.annotations import Timelines
    from obygaze_features.annotations.agreement import agreement
    from obygaze_features.annotations.project import project
    from obygaze_features.backbones import Backbone, load_backbone
    from obygaze_features.errors import ObygazeError
    from obygaze_features.extraction import extract
    from obygaze_features.manifests import Manifest, leave_film_out, obygaze_scheme, stratified
    from obygaze_features.retrieval.search import search
    from obygaze_features.store import Store, merge, open_store, subset
    from obygaze_features.store.diff import diff
    from obygaze_features.store.export import export
    from obygaze_features.store.finalise import finalise, set_texts
    from obygaze_features.store.imports import import_features
    from obygaze_features.store.transfer import pack, pull, push
    from obygaze_features.store.verify import verify

__all__ = [
    "Backbone",
    "Manifest",
    "ObygazeError",
    "Store",
    "Timelines",
    "agreement",
    "diff",
    "export",
    "extract",
    "finalise",
    "import_features",
    "leave_film_out",
    "load_backbone",
    "merge",
    "obygaze_scheme",
    "open_store",
    "pack",
    "project",
    "pull",
    "push",
    "search",
    "set_texts",
    "stratified",
    "subset",
    "verify",
]

_NAMES = {
    "annotations": ["Timelines"],
    "annotations.agreement": ["agreement"],
    "annotations.project": ["project"],
    "backbones": ["Backbone", "load_backbone"],
    "errors": ["ObygazeError"],
    "extraction": ["extract"],
    "manifests": ["Manifest", "leave_film_out", "obygaze_scheme", "stratified"],
    "retrieval.search": ["search"],
    "store": ["Store", "merge", "open_store", "subset"],
    "store.diff": ["diff"],
    "store.export": ["export"],
    "store.finalise": ["finalise", "set_texts"],
    "store.imports": ["import_features"],
    "store.transfer": ["pack", "pull", "push"],
    "store.verify": ["verify"],
}

__getattr__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted(__all__)
