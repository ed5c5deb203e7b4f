"""Read features from one or several stores, by id."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import require_same_clips
from obygaze_features.manifests import Items
from obygaze_features.store import ArraySpec, Store, open_store
from obygaze_features.store.format import CHECKSUMS, token_times
from obygaze_models.scoring.metrics import Array

StoreLike = Store | str | Path
Stores = StoreLike | Sequence[StoreLike]


class _StoreGroup:
    """Several stores read as one: the clips that are in all stores, with concatenated features."""

    def __init__(self, stores: Sequence[Store]) -> None:
        self.stores = stores
        for store in stores[1:]:
            require_same_clips(stores[0].items, store.items, store.where)
        self.where = " and ".join(store.where for store in stores)
        self.names = name_stores([str(store.location.address) for store in stores])

    def __contains__(self, clip: object) -> bool:
        return all(clip in store for store in self.stores)

    @functools.cached_property
    def ids(self) -> list[str]:
        return [clip for clip in self.stores[0].ids if clip in self]

    @functools.cached_property
    def items(self) -> Items:
        items = self.stores[0].items
        rows = [items.row(clip) for clip in self.ids]
        shared = set.intersection(*(set(store.items.extra) for store in self.stores))
        cells = {name: [items.extra[name][row] for row in rows] for name in sorted(shared)}
        return Items.of([items[row] for row in rows], cells)

    def done_ids(self) -> list[str]:
        done = set.intersection(*(set(store.done_ids()) for store in self.stores))
        return [clip for clip in self.ids if clip in done]

    @property
    def specs(self) -> list[ArraySpec]:
        """The arrays that all stores have. Each width is the sum over the stores."""
        first, *others = ({spec.name: spec for spec in store.specs} for store in self.stores)
        return [
            replace(spec, shape=(*spec.shape[:-1], sum(s.shape[-1] for s in [spec, *alike])))
            for name, spec in first.items()
            if all(name in specs for specs in others)
            for alike in [[specs[name] for specs in others]]
        ]

    @property
    def arrays(self) -> list[str]:
        return [spec.name for spec in self.specs]

    def read_features(self, ids: Sequence[str], array: str) -> tuple[list[str], Array]:
        """Return the clips that all stores have, with concatenated features."""
        done = set(self.done_ids())
        clips = [clip for clip in ids if clip in done]
        parts = [read_features(store, clips, array)[1] for store in self.stores]
        return clips, np.concatenate(parts, axis=1)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes in a single store's format, with the names and backbones of all stores."""
        parts = [store.attributes for store in self.stores]
        backbones = [part["backbone"] for part in parts]
        reasons = [backbone.get("config", {}).get("synthetic") for backbone in backbones]
        synthetic = " / ".join(dict.fromkeys(filter(None, reasons)))
        return {
            "name": " + ".join(part["name"] for part in parts),
            "items_digest": _digest(part["items_digest"] for part in parts),
            "backbone": {
                "name": " + ".join(backbone["name"] for backbone in backbones),
                "weights_sha256": _digest(backbone["weights_sha256"] for backbone in backbones),
                "config": {"synthetic": synthetic} if synthetic else {},
                "parts": backbones,
            },
            "preprocessing": {"parts": [part["preprocessing"] for part in parts]},
            "precision": " + ".join(dict.fromkeys(part["precision"] for part in parts)),
        }


def name_stores(addresses: Iterable[str]) -> list[str]:
    """Return the names of stores: their file names, numbered if they are not unique."""
    names = [re.sub(r"^.*[/\\](?=.)|(\.zarr)?(\.zip)?[/\\]?(\?.*)?$", "", a) for a in addresses]
    counts = [names[: row + 1].count(name) for row, name in enumerate(names)]
    return [f"{n}-{count}" if count > 1 else n for n, count in zip(names, counts, strict=True)]


def describe_missing(store: Store, ids: Sequence[str]) -> str:
    """Describe the clips that each of several stores lacks; return "" if no clips are missing."""
    if not isinstance(group := cast(object, store), _StoreGroup):
        return ""
    parts = zip(group.names, group.stores, strict=True)
    counts = {name: len(set(ids) - set(part.done_ids())) for name, part in parts}
    lacks = [f"{counted(n, 'clip lacks', 'clips lack')} {name}" for name, n in counts.items() if n]
    if not lacks:
        return ""
    return f"{', '.join(lacks)}: left out"


def widths_of(store: Store, array: str) -> dict[str, int]:
    """Return the number of columns of each of several stores, by name; {} for a single store."""
    if not isinstance(group := cast(object, store), _StoreGroup):
        return {}
    specs = [{spec.name: spec.shape[-1] for spec in part.specs} for part in group.stores]
    return {name: widths[array] for name, widths in zip(group.names, specs, strict=True)}


def open_stores(stores: Stores) -> Store:
    """Open a store, or several stores as one: the clips in all, with concatenated features."""
    if isinstance(group := cast(object, stores), _StoreGroup):
        return cast(Store, group)
    several = [stores] if isinstance(stores, Store | str | Path) else list(stores)
    opened = [store if isinstance(store, Store) else open_store(store) for store in several]
    # A group has all methods of a store that this package uses.
    return opened[0] if len(opened) == 1 else cast(Store, _StoreGroup(opened))


def read_features(store: Store, ids: Sequence[str], array: str) -> tuple[list[str], Array]:
    """Read a float32 vector for each clip; return the ids that the store has, and their vectors.

    Parameters
    ----------
    store, ids
        The store and the clips to read. Clips that the store lacks are left out.
    array
        An array of the store with one vector per clip.
    """
    if isinstance(group := cast(object, store), _StoreGroup):
        return group.read_features(ids, array)
    spec = next((spec for spec in store.specs if spec.name == array), None)
    if spec is None:
        raise ExperimentError(f"{store.where}: {unknown_name('array', array, store.arrays)}")
    if len(spec.shape) != 1:
        raise ExperimentError(
            f"array {array!r} has {len(spec.shape)} axes per clip. Models that read frames find "
            "them without it: delete the line. Others need one vector per clip: use native, or "
            "extract the clips again with max or mean among --arrays"
        )
    features = store.read(array, ids, missing="drop")
    store.forget()
    return store.done_ids(ids), features.astype(np.float32, copy=False)


def read_frames(store: Store, ids: Sequence[str], array: str) -> tuple[list[str], Array]:
    """Read frame features; return the ids that have frames, and their sequences [N, T, D].

    The sequences have the store's data type.

    Parameters
    ----------
    store, ids
        See `read_features`. Clips whose frames are all NaN are left out as well.
    array
        An array of the store with one vector per frame.
    """
    if isinstance(group := cast(object, store), _StoreGroup):
        raise ExperimentError(
            f"models that read frames need one store (got {len(group.stores)}: {group.where}). "
            'Use them in a separate experiment with store = "..."'
        )
    shapes = {spec.name: spec.shape for spec in store.specs}
    if len(shapes.get(array, ())) != 2:
        problem = "has no frame sequences" if array in shapes else "is not in the store"
        sequences = [name for name, shape in shapes.items() if len(shape) == 2]
        raise ExperimentError(
            f"{store.where}: array {array!r} {problem}. Arrays with a vector per frame: "
            f"{', '.join(sequences) or 'none. Extract the clips with a backbone that keeps frames'}"
        )
    have = store.done_ids(ids)
    frames = store.read(array, have)
    store.forget()
    present = ~np.isnan(frames[:, :, 0]).all(axis=1)
    if len(have) and not present.any():
        raise ExperimentError(
            f"{store.where}: array {array!r} is NaN in all {len(have)} clips. Extract them again"
        )
    # In place, because indexing would make a copy.
    for row, source in enumerate(np.flatnonzero(present).tolist()):
        if row != source:
            frames[row] = frames[source]
    have = list(itertools.compress(have, present.tolist()))
    return have, frames[: len(have)]


def read_frame_times(
    store: Store, ids: Sequence[str], count: int, array: str = "frame_time"
) -> Array:
    """Return the times of the `count` frame features of each clip, in seconds [N, count].

    If a feature covers several frames, such as a tubelet, its time is the mean of the frames'
    times. Values are NaN if the store does not have the array. For another `array`, such as
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


def store_fingerprint(store: Store) -> str:
    """Return a SHA-256 digest of a store's attributes and checksums, which identify its content."""
    if isinstance(group := cast(object, store), _StoreGroup):
        return _digest(map(store_fingerprint, group.stores))
    digest = hashlib.sha256(json.dumps(store.attributes, sort_keys=True).encode())
    if store.is_final:
        digest.update(store.location.read(CHECKSUMS))
    for record in store.records.values():
        digest.update(record.to_bytes())
    return digest.hexdigest()


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()
