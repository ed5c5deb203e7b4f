"""Read features from one or several stores, by id."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from obygaze_features.common.arrays import Array
from obygaze_features.common.formatting import counted
from obygaze_features.common.names import file_names, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import require_same_clips
from obygaze_features.manifests import Items
from obygaze_features.store import ArraySpec, Store, StoreLike, open_store
from obygaze_features.store.format import CHECKSUMS, token_times


@dataclass(frozen=True, eq=False)
class Sources:
    """One or several stores. Their clips are those in all stores, with concatenated features."""

    stores: tuple[Store, ...]

    def __contains__(self, clip: object) -> bool:
        return all(clip in store for store in self.stores)

    @property
    def where(self) -> str:
        """The locations of the stores, for messages."""
        return " and ".join(store.where for store in self.stores)

    @property
    def names(self) -> list[str]:
        """The file names of the stores without suffixes, numbered if they are not unique."""
        names = []
        for store in self.stores:
            address = str(store.location.address)
            names.append(re.sub(r"^.*[/\\](?=.)|(\.zarr)?(\.zip)?[/\\]?(\?.*)?$", "", address))
        return file_names(names, "")

    @cached_property
    def ids(self) -> list[str]:
        """The clips that are in all stores."""
        return [clip for clip in self.stores[0].ids if clip in self]

    @cached_property
    def items(self) -> Items:
        """The items of the clips in all stores, as the first store lists them."""
        items = self.stores[0].items
        if len(self.stores) == 1:
            return items
        return items.take([*map(items.row, self.ids)])

    def done_ids(self, ids: Sequence[str] | None = None) -> list[str]:
        """Return the clips among `ids` (default: all) whose features all stores have."""
        for store in self.stores:
            ids = store.done_ids(ids)
        return list(ids or ())

    @property
    def specs(self) -> list[ArraySpec]:
        """The arrays that all stores have. Each width is the sum over the stores."""
        joined = []
        for spec in self.stores[0].specs:
            shapes = []
            for store in self.stores:
                shapes += [each.shape for each in store.specs if each.name == spec.name]
            if len(shapes) == len(self.stores):
                width = sum(shape[-1] for shape in shapes)
                joined.append(replace(spec, shape=(*spec.shape[:-1], width)))
        return joined

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of one store, or the joined attributes of several with their ``parts``."""
        if len(self.stores) == 1:
            return dict(self.stores[0].attributes)

        every = pd.DataFrame(map(attrgetter("attributes"), self.stores))
        backbones_of = every["backbone"].tolist()
        backbones = pd.DataFrame(backbones_of)
        reasons = [backbone.get("config", {}).get("synthetic") for backbone in backbones_of]
        synthetic = " / ".join(dict.fromkeys(filter(None, reasons)))
        joined = {
            "name": " + ".join(backbones["name"]),
            "weights_sha256": _digest(backbones["weights_sha256"]),
            "config": {"synthetic": synthetic} if synthetic else {},
            "parts": backbones_of,
        }
        return {
            "name": " + ".join(every["name"]),
            "backbone": joined,
            "preprocessing": {"parts": every["preprocessing"].tolist()},
            "precision": " + ".join(every["precision"].unique()),
        }

    def widths(self, array: str) -> dict[str, int]:
        """Return the number of columns of each of several stores, by name; {} for one store."""
        if len(self.stores) == 1:
            return {}
        widths = {}
        for name, store in zip(self.names, self.stores, strict=True):
            widths[name] = _find_spec(store, array, 1, 2).shape[-1]
        return widths

    def describe_missing(self, ids: Sequence[str]) -> str:
        """Return a text such as "; words lacks 3 clips" for each store that lacks some of them."""
        text = ""
        for name, store in zip(self.names, self.stores, strict=True):
            lacks = {*ids} - {*store.done_ids()}
            if lacks:
                text += f"; {name} lacks {counted(len(lacks), 'clip')}"
        return text


Stores = Sources | StoreLike | Sequence[StoreLike]


def open_stores(stores: Stores) -> Sources:
    """Open one or several stores."""
    if isinstance(stores, Sources):
        return stores
    if isinstance(stores, StoreLike):
        stores = [stores]
    opened = [open_store(store) for store in stores]
    for store in opened[1:]:
        require_same_clips(opened[0].items, store.items, store.where)
    return Sources(tuple(opened))


def read_features(sources: Sources, ids: Sequence[str], array: str) -> tuple[list[str], Array]:
    """Read a float32 vector for each clip; return the ids that all stores have, and their vectors.

    Parameters
    ----------
    sources, ids
        The stores and the clips to read. Clips that a store lacks are left out.
    array
        An array with one vector per clip, or one per frame: then the maximum over frames is read.
    """
    have = sources.done_ids(ids)
    blocks = []
    for store in sources.stores:
        spec = _find_spec(store, array, 1, 2)
        part = store.read(array, have).astype(np.float32, copy=False)
        if len(spec.shape) == 2:
            part = np.fmax.reduce(part, axis=1)  # NaN is padding
        blocks.append(part)
        store.forget()
    if len(blocks) == 1:
        return have, blocks[0]
    return have, np.concatenate(blocks, axis=1)


def read_frames(sources: Sources, ids: Sequence[str], array: str) -> tuple[list[str], Array]:
    """Read frame features; return the ids that have frames, and their sequences [N, T, D].

    The sequences have the store's data type.

    Parameters
    ----------
    sources, ids
        See `read_features`. Clips whose frames are all NaN are left out as well.
    array
        An array with one vector per frame.
    """
    if len(sources.stores) > 1:
        raise ExperimentError(
            f"several stores have no shared frames (got {sources.where}). Name a single store"
        )
    [store] = sources.stores
    _find_spec(store, array, 2)
    have = store.done_ids(ids)
    frames = store.read(array, have)
    store.forget()
    present = np.flatnonzero(~np.isnan(frames[:, :, 0]).all(axis=1)).tolist()
    if len(have) and not present:
        raise ExperimentError(
            f"{store.where}: array {array!r} is NaN in every clip ({len(have)}). Extract it again"
        )
    if len(present) < len(have):
        # In place, because indexing would make a copy.
        for row, source in enumerate(present):
            frames[row] = frames[source]
        have = [have[row] for row in present]
    return have, frames[: len(have)]


def read_frame_times(
    store: Store,
    ids: Sequence[str],
    count: int,
    array: str = "frame_time",
) -> Array:
    """Return the times of the `count` frame features of each clip, in seconds [N, count].

    The time of a feature that covers several frames (a tubelet) is the mean of the frames' times.
    Values are NaN if the store does not have the array. For another `array`, such as
    ``loudness``, return its values instead of times.
    """
    times = np.full((len(ids), count), np.nan)
    spec = next((spec for spec in store.specs if spec.name == array), None)
    if spec is not None:
        if spec.shape[0] % count:
            raise ExperimentError(
                f"{store.where}: {array} has {spec.shape[0]} values per clip, but the model reads "
                f"{count} frames. Extract the clips again: obygaze features extract"
            )
        times = token_times(store.read(array, ids), count)
    return times


def fingerprint(sources: Sources) -> str:
    """Return a SHA-256 digest of the stores' attributes, checksums and records."""
    digests = []
    for store in sources.stores:
        digest = hashlib.sha256(json.dumps(store.attributes, sort_keys=True).encode())
        if store.is_final:
            digest.update(store.location.read(CHECKSUMS))
        for record in store.records.values():
            digest.update(record.to_bytes())
        digests.append(digest.hexdigest())
    return digests[0] if len(digests) == 1 else _digest(digests)


def _find_spec(store: Store, array: str, *axes: int) -> ArraySpec:
    """Return the description of an array; raise if its number of axes per clip is not in `axes`."""
    fitting = {spec.name: spec for spec in store.specs if len(spec.shape) in axes}
    if array not in fitting:
        noun = {1: "array with one vector per clip", 2: "array with one vector per frame"}[axes[0]]
        raise ExperimentError(
            f"{store.where}: {unknown_name(noun, array, fitting or ['none'])} (to add it, "
            "import it or extract the clips again with it)"
        )
    return fitting[array]


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("|".join(texts).encode()).hexdigest()
