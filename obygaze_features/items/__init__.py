"""Items: ids, in a fixed order, with their films, files and spans; what a store is made for."""

from obygaze_features.items.items import Item, Items

__all__ = ["Item", "Items"]
