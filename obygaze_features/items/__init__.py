"""The items of a manifest or a store: ids in a fixed order, with films, files and spans."""

from obygaze_features.items.items import Item, Items

__all__ = ["Item", "Items"]
