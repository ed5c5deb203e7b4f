"""Manifests of film clips, extraction of features, and feature stores.

The names for everyday use are available here and are imported on first use::

    import obygaze_features as of

    manifest = of.Manifest.from_csv("annotations.csv")
    of.extract(manifest, "films", ["xclip-kinetics", "vivit"], "stores")
    store = of.open_store("stores/xclip-kinetics.zarr")
    features = store.read("native", ids=manifest.select(levels=["S"]).ids)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
