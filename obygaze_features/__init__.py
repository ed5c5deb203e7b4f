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
    from obygaze_features.backbones import Backbone, load_backbone
    from obygaze_features.errors import ObygazeError
    from obygaze_features.extraction import extract
    from obygaze_features.manifests import Manifest, leave_film_out, obygaze_scheme, stratified
    from obygaze_features.retrieval.search import search
    from obygaze_features.store import Store, merge, open_store
    from obygaze_features.store.import_features import import_features
    from obygaze_features.store.transfer import pull

__all__ = [
    "Backbone",
    "Manifest",
    "ObygazeError",
    "Store",
    "Timelines",
    "extract",
    "import_features",
    "leave_film_out",
    "load_backbone",
    "merge",
    "obygaze_scheme",
    "open_store",
    "pull",
    "search",
    "stratified",
]

_NAMES = {
    "annotations": ["Timelines"],
    "backbones": ["Backbone", "load_backbone"],
    "errors": ["ObygazeError"],
    "extraction": ["extract"],
    "manifests": ["Manifest", "leave_film_out", "obygaze_scheme", "stratified"],
    "retrieval.search": ["search"],
    "store": ["Store", "merge", "open_store"],
    "store.import_features": ["import_features"],
    "store.transfer": ["pull"],
}

__getattr__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted(__all__)
