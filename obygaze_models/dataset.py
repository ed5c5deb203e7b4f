"""Labels, folds and features of clips, joined by id: what estimators and tasks look at.

Pooling goes through a store a block at a time, so that ViViT's 3,137 tokens a clip (5 GB for a
thousand clips) take the memory of a few clips. The pooled features are kept in the user's cache,
under a name that follows from the content of the store.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import write_bytes
from obygaze_features.common.package import cache_folder
from obygaze_features.common.progress import progress
from obygaze_features.common.text import counted, join_some, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, match_ids
from obygaze_features.store import Store, open_store
from obygaze_features.store.format import CHECKSUMS

if TYPE_CHECKING:
    pass

__all__ = [
    "POOLINGS",
    "ClipDataset",
    "Join",
    "join_clips",
    "load_dataset",
    "open_stores",
    "read_features",
    "store_fingerprint",
]

Array = NDArray[Any]
StoreLike = Store | str | Path

POOLINGS: dict[str, Callable[[Array], Any]] = {
    "max": lambda tokens: tokens.max(axis=0),
    "mean": lambda tokens: tokens.mean(axis=0, dtype=np.float64),
    "first": lambda tokens: tokens[0],
}
"""How the tokens [T, D] of a clip become one vector."""

_MISSING = {
    "without_fold": "labelled clips have no fold in the split",
    "without_features": "labelled clips have no features in the store",
    "without_label": "clips of the store have no label that is used here",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class ClipDataset:
    """Clips in columns: features, labels and films, one row a clip.

    Parameters
    ----------
    ids
        Clip ids.
    X
        Features, float32 [N, D].
    levels
        The level code of each clip.
    groups
        The film of each clip; "" where the manifest names none.
    concepts
        Booleans [N, K]: which concepts are annotated.
    concept_names
        The names of the K concepts.
    folds
        The fold of each clip; -1 where it has none.
    y
        The class of each clip, from 0; None where no task is asked for.
    classes
        The name of each class.
    frames
        Frame features [N, T, D], where they are asked for.
    """

    ids: list[str]
    X: Array
    levels: list[str]
    groups: Array
    concepts: Array
    concept_names: tuple[str, ...]
    folds: Array
    y: Array | None = None
    classes: tuple[str, ...] = ()
    frames: Array | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def features(self) -> Array:
        """The same as `X`."""
        return self.X

    @property
    def films(self) -> list[str]:
        """The same as `groups`, as a list."""
        films: list[str] = self.groups.tolist()
        return films

    def select(self, rows: Sequence[int] | Array) -> ClipDataset:
        """The clips of some rows: numbers, or a boolean for each clip."""
        chosen = np.arange(len(self))[np.asarray(rows)]
        numbers = chosen.tolist()
        return replace(
            self,
            ids=[self.ids[row] for row in numbers],
            X=self.X[chosen],
            levels=[self.levels[row] for row in numbers],
            groups=self.groups[chosen],
            concepts=self.concepts[chosen],
            folds=self.folds[chosen],
            y=None if self.y is None else self.y[chosen],
            frames=None if self.frames is None else self.frames[chosen],
        )

    def __repr__(self) -> str:
        parts = [counted(len(self), "clip"), f"X {'x'.join(map(str, self.X.shape))}"]
        parts.append(counted(len(set(self.groups.tolist()) - {""}), "film"))
        parts += [f"{count} {name}" for name, count in self._class_counts().items()]
        return f"ClipDataset({', '.join(parts)})"

    def _repr_html_(self) -> str:
        from html import escape

        rows = {
            "clips": f"{len(self):,}",
            "films": f"{len(set(self.groups.tolist()) - {''}):,}",
            "X": " x ".join(map(str, self.X.shape)),
            "classes": ", ".join(
                f"{count:,} {name}" for name, count in self._class_counts().items()
            ),
            "concepts": ", ".join(self.concept_names),
        }
        cells = "".join(
            f"<tr><th>{key}</th><td>{escape(value)}</td></tr>"
            for key, value in rows.items()
            if value
        )
        return f"<table>{cells}</table>"

    def _class_counts(self) -> dict[str, int]:
        if self.y is None:
            return {}
        return {name: int((self.y == code).sum()) for code, name in enumerate(self.classes)}


@dataclass(frozen=True)
class Join:
    """How many clips came together, and which did not.

    `labelled` clips have a level that the task asks for; `used` of them have a fold and features.
    The lists name the others, and the store's clips without such a label.
    """

    labelled: int
    used: int
    without_fold: list[str]
    without_features: list[str]
    without_label: list[str]

    def lines(self) -> list[str]:
        """What is missing on either side, for people to read."""
        return [f"{len(ids)} {text}: {join_some(ids)}" for _, text, ids in self.missing()]

    def missing(self) -> list[tuple[str, str, list[str]]]:
        """The same in parts: the list's name, what its clips lack, and its clips."""
        return [
            (name, text, ids) for name, text in _MISSING.items() if (ids := getattr(self, name))
        ]


def load_dataset(
    manifest: Manifest | str | Path,
    store: StoreLike | Sequence[StoreLike],
    *,
    positives: Sequence[str] = (),
    negatives: Sequence[str] | str = (),
    levels: Sequence[str] = (),
    concept: str | None = None,
    array: str = "native",
    pooling: str | None = None,
    labels: str | None = None,
    split: str | None = None,
    frames: bool | str = False,
) -> ClipDataset:
    """The clips of a manifest with their features, ready for scikit-learn.

    Parameters
    ----------
    manifest
        The manifest or its folder.
    store
        The store, its folder, archive or URL; of several the features are concatenated.
    positives, negatives
        The levels of class 1 and of class 0, by code or name.
    levels
        Levels that are a class each.
    concept
        A concept to detect; `negatives` is then the paper's set ``"a"``, ``"b"`` or ``"c"``, see
        `obygaze_models.tasks.ConceptTask`. With no task at all every labelled clip is returned,
        and `y` is None.
    array, pooling
        The store's array, and how its tokens become one vector: ``max``, ``mean`` or ``first``.
    labels, split
        The manifest's label set, by default its default one; and the split that fills `folds`.
    frames
        Read the frame features, too: True for the array ``frames``, or the array's name.

    Examples
    --------
    >>> import obygaze_models as om
    >>> data = om.load_dataset(MANIFEST, STORE, positives=["S"], negatives=["EN", "HN"])
    ... # doctest: +SKIP
    >>> data.X.shape, data.classes  # doctest: +SKIP
    ((1622, 512), ('EN+HN', 'S'))
    """
    from obygaze_models.tasks import make_task

    manifest = manifest if isinstance(manifest, Manifest) else Manifest.load(Path(manifest))
    stores = open_stores(store)
    scheme = manifest.label_scheme(labels)
    task = make_task(
        scheme, positives=positives, negatives=negatives, levels=levels, concept=concept
    )
    wanted = task.levels if task else set(manifest.labels(labels).levels)
    data, _ = join_clips(
        manifest,
        stores,
        wanted,
        labels=labels,
        array=array,
        pooling=pooling,
        fold_of=manifest.split(split).fold_of if split is not None else {},
        concepts=[concept] if concept else (),
    )
    if task:
        codes = task.labels(data)
        data = replace(data, y=codes, classes=task.classes).select(codes >= 0)
    if frames:
        name = frames if isinstance(frames, str) else "frames"
        data = replace(data, frames=stores[0].read(name, data.ids))
    return data


def open_stores(stores: StoreLike | Sequence[StoreLike]) -> list[Store]:
    """One store or several, opened."""
    several = [stores] if isinstance(stores, Store | str | Path) else list(stores)
    return [store if isinstance(store, Store) else open_store(store) for store in several]


def join_clips(
    manifest: Manifest,
    stores: Sequence[Store],
    levels: Collection[str],
    *,
    labels: str | None = None,
    array: str = "native",
    pooling: str | None = None,
    fold_of: Mapping[str, int] = {},
    among: Collection[str] | None = None,
    concepts: Iterable[str] = (),
) -> tuple[ClipDataset, Join]:
    """Join labels and features by id, in the manifest's order; count what is missing.

    Clips of other levels come along: no task asks for them, but concepts are learned from them.

    Parameters
    ----------
    levels
        The levels that the task asks for: the join counts their clips.
    fold_of
        The fold of each id.
    among
        The ids that take part at all; None for all.
    concepts
        Concepts that are asked for. Those that cannot be seen are learned only where asked for.
    """
    truth = manifest.labels(labels)
    if absent := sorted(set(levels) - set(truth.levels)):
        raise ExperimentError(
            f"no clip of {manifest.name} has level {absent[0]}; "
            f"there are {', '.join(sorted(set(truth.levels)))}"
        )
    labelled = [clip for clip in manifest.ids if truth.level_of.get(clip) in levels]
    everything = [clip for clip in manifest.ids if clip in truth.level_of]
    with_fold, pool = (
        [clip for clip in ids if among is None or clip in among] for ids in (labelled, everything)
    )
    ids, features = _read_stores(stores, pool, array, pooling)
    have = set(ids)
    used = [clip for clip in with_fold if clip in have]
    if not used:
        raise ExperimentError(
            f"none of the {len(with_fold)} clips of {manifest.name} that have a label and a fold, "
            f"such as {join_some(with_fold, 2) or 'none'}, has features in "
            f"{' and '.join(store.where for store in stores)}, "
            f"which is of clips such as {join_some(stores[0].ids, 2)}; take the store of this "
            "manifest"
        )
    scheme = manifest.label_scheme(labels)
    asked = {scheme.concept(name) for name in concepts}
    visible = set(scheme.visual_concepts or scheme.concept_names) | asked
    names = tuple(name for name in scheme.concept_names if name in visible)
    data = ClipDataset(
        ids=ids,
        X=features,
        levels=[truth.level_of[clip] for clip in ids],
        groups=np.array([manifest[clip].film for clip in ids], dtype=np.str_),
        concepts=np.array(
            [[name in truth.concepts_of[clip] for name in names] for clip in ids], dtype=bool
        ).reshape(len(ids), len(names)),
        concept_names=names,
        folds=np.array([fold_of.get(clip, -1) for clip in ids], dtype=np.int64),
    )
    return data, Join(
        labelled=len(labelled),
        used=len(used),
        without_fold=match_ids(labelled, with_fold).missing_left,
        without_features=match_ids(with_fold, used).missing_left,
        without_label=match_ids(labelled, stores[0].ids).missing_right,
    )


def read_features(
    store: Store, ids: Sequence[str], array: str, pooling: str | None = None
) -> tuple[list[str], Array]:
    """The ids that a store has, and a float32 vector for each of them.

    Parameters
    ----------
    store, ids
        Where to read, and which clips, in this order; missing ones are left out.
    array
        An array of the store with one vector a clip; or with several, to be pooled.
    pooling
        One of `POOLINGS`, over all axes but the last. Padding at the end of a clip is left out.
    """
    spec = next((spec for spec in store.specs if spec.name == array), None)
    if spec is None:
        names = [spec.name for spec in store.specs]
        raise ExperimentError(f"{store.where}: {unknown_name('array', array, names)}")
    axes = len(spec.shape)
    if axes != 1 and pooling is None:
        raise ExperimentError(
            f"array {array!r} has {axes} axes a clip; take one with a vector a clip, such as "
            f"native, or a pooling ({', '.join(POOLINGS)})"
        )
    if axes == 1 and pooling is not None:
        raise ExperimentError(
            f"array {array!r} has one vector a clip: there is nothing to pool; leave pooling out"
        )
    if pooling is None:
        features = store.read(array, ids, missing="drop")
        return store.done_ids(ids), features.astype(np.float32, copy=False)
    pooled_ids, pooled = _pool(store, array, pooling)
    row_of = {clip: row for row, clip in enumerate(pooled_ids)}
    have = [clip for clip in ids if clip in row_of]
    return have, pooled[[row_of[clip] for clip in have]]


def store_fingerprint(store: Store) -> str:
    """A SHA-256 of a store's content: of its attributes and its list of checksums."""
    digest = hashlib.sha256(json.dumps(store.attributes, sort_keys=True).encode())
    if store.is_final:
        digest.update(store.location.read(CHECKSUMS))
    for record in store.records:
        digest.update(record.to_bytes())
    return digest.hexdigest()


def _read_stores(
    stores: Sequence[Store], ids: Sequence[str], array: str, pooling: str | None
) -> tuple[list[str], Array]:
    """The clips that all stores have, and their features side by side."""
    parts = [read_features(store, ids, array, pooling) for store in stores]
    if len(parts) == 1:
        return parts[0]
    shared = set.intersection(*(set(have) for have, _ in parts))
    common = [clip for clip in ids if clip in shared]
    columns = []
    for have, features in parts:
        row_of = {clip: row for row, clip in enumerate(have)}
        columns.append(features[[row_of[clip] for clip in common]])
    return common, np.concatenate(columns, axis=1)


def _pool(store: Store, array: str, pooling: str) -> tuple[list[str], Array]:
    """The pooled vectors of all rows that are done, from the cache or into it."""
    path = cache_folder("pooled") / f"{store_fingerprint(store)[:32]}-{array}-{pooling}.npz"
    if (cached := _read_cache(path)) is not None:
        return cached
    spec = next(spec for spec in store.specs if spec.name == array)
    pool = POOLINGS[pooling]
    ids: list[str] = []
    rows: list[Array] = []
    blocks = progress(store.iter_blocks([array]), f"pool {array}", unit="block")
    for block_ids, values in blocks:
        ids += block_ids
        # Clip by clip: the float32 copy is of one clip, not of the block.
        for clip in values[array]:
            tokens = clip.reshape(-1, spec.shape[-1]).astype(np.float32)
            if spec.padded:
                tokens = tokens[~np.isnan(tokens).all(axis=1)]
            empty = np.full(spec.shape[-1], np.nan)
            rows.append((pool(tokens) if len(tokens) else empty).astype(np.float32))
    pooled = np.array(rows, np.float32).reshape(len(ids), spec.shape[-1])
    # Without a cache the next run is slower, and that is all.
    with contextlib.suppress(OSError):
        buffer = io.BytesIO()
        np.savez(buffer, ids=np.array(ids, dtype=np.str_), features=pooled)
        write_bytes(path, buffer.getvalue())
    return ids, pooled


def _read_cache(path: Path) -> tuple[list[str], Array] | None:
    """The cached ids and features; None where there are none, or they are damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as cached:
            return cached["ids"].tolist(), cached["features"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
