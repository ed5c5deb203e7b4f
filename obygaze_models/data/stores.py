"""Read features from one or several stores, by id. Pooled features are cached.

Pooling reads a store block by block, because ViViT has 3,137 tokens per clip (5 GB for a thousand
clips). Pooled features are cached in the user's cache folder, under a name that depends on the
store's content and files.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from obygaze_features.common.files import write_bytes
from obygaze_features.common.package import cache_folder
from obygaze_features.common.progress import progress
from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import require_same_clips
from obygaze_features.manifests import Items
from obygaze_features.store import ArraySpec, Store, open_store
from obygaze_features.store.format import CHECKSUMS, IDS, STATUS, token_times
from obygaze_models.scoring.metrics import Array

StoreLike = Store | str | Path
Stores = StoreLike | Sequence[StoreLike]

POOLINGS: dict[str, Callable[[Array], Any]] = {
    "max": lambda tokens: tokens.max(axis=0),
    "mean": lambda tokens: tokens.mean(axis=0, dtype=np.float64),
    "first": lambda tokens: tokens[0],
}
"""The functions that pool the tokens [T, D] of a clip into a vector."""


MISSING = ("drop", "mean")
"""The options for clips that a store lacks: leave them out, or use means of training clips."""


class _StoreGroup:
    """Several stores read as one: the clips that are in all stores, with concatenated features.

    If `missing` is ``mean``, the group has the clips of any store, and NaN for missing features.
    """

    def __init__(self, stores: Sequence[Store], missing: str) -> None:
        self.stores, self.missing = stores, missing
        for store in stores[1:]:
            require_same_clips(stores[0].items, store.items, store.where)
        self.where = " and ".join(store.where for store in stores)
        self.names = name_stores([str(store.location.address) for store in stores])
        self._joined: Any = set.union if missing == "mean" else set.intersection
        self._has = any if missing == "mean" else all

    def __contains__(self, clip: object) -> bool:
        return self._has(clip in store for store in self.stores)

    @functools.cached_property
    def ids(self) -> list[str]:
        clips = dict.fromkeys(clip for store in self.stores for clip in store.ids)
        return [clip for clip in clips if clip in self]

    @functools.cached_property
    def items(self) -> Items:
        own = {clip: store.items for store in reversed(self.stores) for clip in store.ids}
        rows = [(own[clip], own[clip].row(clip)) for clip in self.ids]
        extra = set.intersection(*(set(store.items.extra) for store in self.stores))
        cells = {name: [items.extra[name][row] for items, row in rows] for name in sorted(extra)}
        return Items.of([items[row] for items, row in rows], cells)

    def done_ids(self) -> list[str]:
        done = self._joined(*(set(store.done_ids()) for store in self.stores))
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

    def read_features(
        self, ids: Sequence[str], array: str, pooling: str | None
    ) -> tuple[list[str], Array]:
        """Return the clips in all stores (or in any, if ``mean``), with concatenated features."""
        parts = [read_features(store, ids, array, pooling) for store in self.stores]
        joined = self._joined(*(set(have) for have, _ in parts))
        clips, columns = [clip for clip in ids if clip in joined], []
        for have, values in parts:
            row_of = {clip: row for row, clip in enumerate(have)}
            padded = np.vstack([values, np.full((1, values.shape[1]), np.nan, np.float32)])
            columns.append(padded[[row_of.get(clip, -1) for clip in clips]])
        return clips, np.concatenate(columns, axis=1)

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
    outcome = "the mean of the training clips is used instead"
    if group.missing == "drop":
        outcome = 'left out (missing = "mean" keeps them)'
    return f"{', '.join(lacks)}: {outcome}"


def widths_of(store: Store, array: str) -> dict[str, int]:
    """Return the number of columns of each of several stores, by name; {} for a single store."""
    if not isinstance(group := cast(object, store), _StoreGroup):
        return {}
    specs = [{spec.name: spec.shape[-1] for spec in part.specs} for part in group.stores]
    return {name: widths[array] for name, widths in zip(group.names, specs, strict=True)}


def open_stores(stores: Stores, missing: str = "drop") -> Store:
    """Open a store, or several stores as one with concatenated features.

    Clips that one of several stores lacks are dropped. With ``missing="mean"``, they are kept, and
    their features from that store are NaN.
    """
    if isinstance(group := cast(object, stores), _StoreGroup):
        return cast(Store, _StoreGroup(group.stores, missing))
    several = [stores] if isinstance(stores, Store | str | Path) else list(stores)
    opened = [store if isinstance(store, Store) else open_store(store) for store in several]
    # A group has all methods of a store that this package uses.
    return opened[0] if len(opened) == 1 else cast(Store, _StoreGroup(opened, missing))


def read_features(
    store: Store, ids: Sequence[str], array: str, pooling: str | None = None
) -> tuple[list[str], Array]:
    """Read a float32 vector for each clip; return the ids that the store has, and their vectors.

    Parameters
    ----------
    store, ids
        The store and the clips to read. Clips that the store lacks are left out.
    array
        An array of the store with one vector per clip, or with several vectors to pool.
    pooling
        One of `POOLINGS`, over all axes except the last. Padding at the end of a clip is ignored.
    """
    if isinstance(group := cast(object, store), _StoreGroup):
        return group.read_features(ids, array, pooling)
    spec = next((spec for spec in store.specs if spec.name == array), None)
    if spec is None:
        problem = unknown_name("array", array, store.arrays)
        if "frames" in store.arrays:
            problem += '. For the mean over frames, set array to "frames" and pooling to "mean"'
        raise ExperimentError(f"{store.where}: {problem}")
    axes = len(spec.shape)
    if axes != 1 and pooling is None:
        raise ExperimentError(
            f"array {array!r} has {axes} axes per clip. Models that read frames find them without "
            "it: delete the line. Others need one vector per clip: use native, or add a pooling "
            f"({', '.join(POOLINGS)})"
        )
    if axes == 1 and pooling is not None:
        raise ExperimentError(
            f"array {array!r} has one vector per clip, so there is nothing to pool. Remove pooling"
        )
    if pooling is None:
        features = store.read(array, ids, missing="drop")
        store.forget()
        return store.done_ids(ids), features.astype(np.float32, copy=False)
    pooled_ids, pooled = _pool(store, array, pooling)
    row_of = {clip: row for row, clip in enumerate(pooled_ids)}
    have = [clip for clip in ids if clip in row_of]
    return have, pooled[[row_of[clip] for clip in have]]


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
    for record in store.records:
        digest.update(record.to_bytes())
    return digest.hexdigest()


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


def _identify_files(store: Store, array: str) -> list[str]:
    """Return strings that identify an array's files. Checksums alone could be copied."""
    if not store.location.is_local:
        return [str(store.location.address)]
    root = Path(store.location.address)
    files = [file for name in (array, IDS, STATUS) for file in sorted((root / name).rglob("*"))]
    states = [path.stat() for path in (root, *files)]
    return [f"{s.st_dev} {s.st_ino} {s.st_size} {s.st_ctime_ns}" for s in states]


def _pool(store: Store, array: str, pooling: str) -> tuple[list[str], Array]:
    """Return the ids and pooled vectors of all finished rows, reading or filling the cache."""
    key = _digest([store_fingerprint(store), *_identify_files(store, array)])
    path = cache_folder("pooled") / f"{key[:32]}-{array}-{pooling}.npz"
    if (cached := _read_cache(path)) is not None:
        return cached
    spec = next(spec for spec in store.specs if spec.name == array)
    pool = POOLINGS[pooling]
    ids: list[str] = []
    rows: list[Array] = []
    blocks = progress(store.iter_blocks([array]), f"pool {array}", unit="block")
    for block_ids, values in blocks:
        ids += block_ids
        # Clip by clip, so that only one clip at a time is copied to float32.
        for clip in values[array]:
            tokens = clip.reshape(-1, spec.shape[-1]).astype(np.float32)
            if spec.padded:
                tokens = tokens[~np.isnan(tokens).all(axis=1)]
            empty = np.full(spec.shape[-1], np.nan)
            rows.append((pool(tokens) if len(tokens) else empty).astype(np.float32))
    pooled = np.array(rows, np.float32).reshape(len(ids), spec.shape[-1])
    # If this fails, the next run is only slower.
    with contextlib.suppress(OSError):
        buffer = io.BytesIO()
        np.savez(buffer, ids=np.array(ids, dtype=np.str_), features=pooled)
        write_bytes(path, buffer.getvalue())
    return ids, pooled


def _read_cache(path: Path) -> tuple[list[str], Array] | None:
    """Return the cached ids and features, or None if they are missing or damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as cached:
            return cached["ids"].tolist(), cached["features"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
