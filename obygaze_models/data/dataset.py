"""Datasets of clips: labels, folds and features, joined by id."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.text import counted, join_some, shorten
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import group_noun, require_same_clips, safe_id
from obygaze_features.manifests import LabelScheme, LabelSet, Level, Manifest, obygaze_scheme
from obygaze_models.data.stores import Sources, Stores, open_stores, read_features, read_frames
from obygaze_models.data.targets import NUMBERED
from obygaze_models.scoring.metrics import Array

NUMBERS = "numbers"
"""The key in a label set's JSON file that names its column of numbers."""
MAX_NUMBER = 1e9
"""The largest absolute value of a number to predict, so that squares of errors stay finite."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ClipDataset:
    """The features, labels and films of clips, as arrays with one row per clip.

    Parameters
    ----------
    ids
        Clip ids.
    X
        Features, float32 [N, D].
    levels
        The level code of each clip.
    groups
        The film of each clip, or its value in the `grouped_by` column; "" if that cell is empty.
    concepts
        Booleans [N, K]: True where a clip is annotated with a concept.
    concept_names
        The names of the K concepts.
    folds
        The fold of each clip; -1 for clips without a fold.
    y
        The class of each clip, from 0; None if there is no task.
    classes
        The name of each class.
    frames
        Frame features [N, T, D], if requested.
    grouped_by
        The items' column that `groups` comes from.
    stores
        If there are several stores, their names and the number of columns of X from each, in order.
        See `StoreFusion`.
    scheme
        The label scheme, which defines the levels and concepts.
    numbers
        The number to predict for each clip, if the labels have numbers; NaN if a clip has none.
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
    grouped_by: str = "film"
    stores: Mapping[str, int] = field(default_factory=dict)
    scheme: LabelScheme = field(default_factory=obygaze_scheme)
    numbers: Array | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Sequence[int] | Array) -> ClipDataset:
        """Return the selected clips; `rows` has row numbers, or a boolean for each clip."""
        chosen = np.arange(len(self))[[*rows]]
        columns: dict[str, Any] = {}
        for name in ("ids", "levels"):
            cells = getattr(self, name)
            columns[name] = [cells[row] for row in chosen.tolist()]
        for name in ("X", "groups", "concepts", "folds", "y", "frames", "numbers"):
            if (array := getattr(self, name)) is not None:
                columns[name] = array[chosen]
        return replace(self, **columns)

    def ids_at(self, rows: Array) -> list[str]:
        """Return the ids of the clips in some rows."""
        return [self.ids[row] for row in rows.tolist()]

    def __repr__(self) -> str:
        groups = set(self.groups.tolist()) - {""}
        parts = [counted(len(self), "clip"), f"X {'x'.join(map(str, self.X.shape))}"]
        parts.append(counted(len(groups), group_noun(self.grouped_by)))
        if self.y is not None:
            for code, name in enumerate(self.classes):
                parts.append(f"{(self.y == code).sum()} {name}")
        return f"ClipDataset({', '.join(parts)})"


def load_dataset(
    manifest: Manifest | str | Path,
    store: Stores,
    *,
    positives: Sequence[str] = (),
    negatives: Sequence[str] | str = (),
    levels: Sequence[str] = (),
    concept: str | None = None,
    array: str = "native",
    labels: str | None = None,
    split: str | None = None,
    frames: bool | str = False,
    groups: str = "film",
) -> ClipDataset:
    """Load the labelled clips of a manifest with their features, ready for scikit-learn.

    Pass `positives` and `negatives`, or `levels`, or `concept`. Without any of them, all labelled
    clips with features are returned, and `y` is None.

    Parameters
    ----------
    manifest
        The manifest or its folder.
    store
        The store, or its folder, archive or URL. The features of several stores are concatenated.
    positives, negatives
        The levels of class 1 and of class 0, by code or name.
    levels
        Three or more levels, each a class.
    concept
        A concept to detect. `negatives` is then ``"a"``, ``"b"`` or ``"c"`` (by default ``"a"``
        with ObyGaze's levels, otherwise ``"b"``); see `obygaze_models.data.tasks.Task`.
    array
        The array to read, with one vector per clip.
    labels, split
        The label set, by default the manifest's default; and the split to read `folds` from.
    frames
        Also read frame features: True for the ``frames`` array, or the name of an array. Clips
        without frames are left out.
    groups
        The column of the items to read `groups` from: ``film``, ``media``, or another column of
        items.csv.

    Examples
    --------
    >>> import obygaze_models as om
    >>> data = om.load_dataset(MANIFEST, STORE, positives=["S"], negatives=["EN", "HN"])
    ... # doctest: +SKIP
    >>> data.X.shape, data.classes  # doctest: +SKIP
    ((1622, 512), ('EN+HN', 'S'))
    """
    from obygaze_models.data.tasks import levels_of, make_task

    manifest = manifest if isinstance(manifest, Manifest) else Manifest.load(Path(manifest))
    opened = open_stores(store)
    scheme = manifest.label_scheme(labels)
    task = None
    if positives or negatives or levels or concept:
        task = make_task(
            scheme,
            positives=positives,
            negatives=negatives,
            levels=levels,
            concept=concept,
        )
    truth = manifest.labels(labels)
    task_levels = levels_of([task], truth, scheme) if task else set(truth.levels)
    data = join_clips(
        manifest,
        opened,
        task_levels,
        labels=labels,
        array=array,
        fold_of=manifest.split(split).fold_of if split is not None else {},
        concepts=[concept] if concept else (),
        groups=groups,
    )
    if task:
        codes = task.labels(data)
        data = replace(data, y=codes, classes=tuple(task.class_titles))
        data = data.select(task.target.takes_part(codes))
    if frames:
        data = _with_frames(data, opened, frames if isinstance(frames, str) else "frames")
    return data


def join_clips(
    manifest: Manifest,
    store: Sources,
    levels: Set[str],
    *,
    labels: str | None = None,
    array: str = "native",
    frames: str | None = None,
    fold_of: Mapping[str, int] = {},
    among: Collection[str] | None = None,
    concepts: Iterable[str] = (),
    groups: str = "film",
) -> ClipDataset:
    """Join labels and features by id, in the manifest's order.

    Clips whose level is not in the task are included as well, to learn concepts from.

    Parameters
    ----------
    levels
        The levels of the task. Each must have a clip, and one of these clips must have features.
    frames
        An array of frame features to read as well. Clips without frames are left out.
    fold_of
        The fold of each id.
    among
        The ids to include, or None for all.
    concepts
        Concepts to include even if they are not visual.
    groups
        The column of the items to group clips by.
    """
    require_same_clips(store.items, manifest.items)
    truth = manifest.labels(labels)
    if absent := sorted(set(levels) - set(truth.levels)):
        raise ExperimentError(
            f"no clip of {manifest.name} has the level {absent[0]} "
            f"(the labels have: {', '.join(sorted(set(truth.levels)))})"
        )
    pool = []
    for clip in manifest.ids:
        if clip in truth.level_of and (among is None or clip in among):
            pool.append(clip)
    ids, features = read_features(store, pool, array)
    scheme = manifest.label_scheme(labels)
    visible = scheme.visual_concepts or scheme.concept_names
    names = scheme.in_order([*visible, *concepts])
    data = label_clips(
        manifest,
        ids,
        features,
        names,
        labels=labels,
        fold_of=fold_of,
        groups=groups,
    )
    data = replace(data, stores=store.widths(array))
    if frames is not None:
        data = _with_frames(data, store, frames)
    if levels.isdisjoint(data.levels):
        labelled = [clip for clip in pool if truth.level_of[clip] in levels]
        raise ExperimentError(
            f"none of the {len(labelled)} selected clips of {manifest.name} "
            f"({join_some(labelled, 2) or 'none'}) has features in "
            f"{store.where} (which has {join_some(store.ids, 2)}). Use a store with "
            "the features of these clips"
        )
    return data


def missing_from(present: Collection[str], ids: Iterable[str]) -> list[str]:
    """Return the ids that are not in `present`."""
    available = set(present)
    return [clip for clip in ids if clip not in available]


def _with_frames(data: ClipDataset, store: Sources, array: str) -> ClipDataset:
    """Return the clips that have frame features, with those features."""
    ids, frames = read_frames(store, data.ids, array)
    if len(ids) < len(data):
        data = data.select(np.isin(data.ids, ids))
    return replace(data, frames=frames)


def label_clips(
    manifest: Manifest,
    ids: Sequence[str],
    features: Array,
    concept_names: tuple[str, ...],
    *,
    labels: str | None = None,
    fold_of: Mapping[str, int] = {},
    groups: str = "film",
) -> ClipDataset:
    """Return a dataset of labelled clips, whose feature vectors are the rows of `features`."""
    truth = manifest.labels(labels)
    cells = manifest.items.column(groups)
    column_of = {name: column for column, name in enumerate(concept_names)}
    concepts = np.zeros((len(ids), len(concept_names)), dtype=bool)
    levels = []
    own_cells = []
    folds = []
    for row, clip in enumerate(ids):
        for name in truth.concepts_of[clip]:
            if name in column_of:
                concepts[row, column_of[name]] = True
        levels.append(truth.level_of[clip])
        own_cells.append(cells[manifest.items.row(clip)])
        folds.append(fold_of.get(clip, -1))
    numbers = None
    if NUMBERS in truth.about:
        cells = truth.extra[truth.about[NUMBERS]]
        number_of = dict(zip(truth.ids, map(float, cells), strict=True))
        numbers = np.array([number_of[clip] for clip in ids])
    return ClipDataset(
        ids=list(ids),
        X=features,
        levels=levels,
        groups=np.array(own_cells, dtype=np.str_),
        concepts=concepts,
        concept_names=concept_names,
        folds=np.array(folds, dtype=np.int64),
        grouped_by=groups,
        scheme=manifest.label_scheme(labels),
        numbers=numbers,
    )


def with_numbers(manifest: Manifest, column: str) -> Manifest:
    """Return a manifest with an added label set for the clips that have a number in a column.

    The column is read from the items and from the default label set, which takes precedence. The
    new label set is named after the column and becomes the default.
    """
    cells = dict(zip(manifest.ids, manifest.items.columns.get(column, ()), strict=False))
    if manifest.label_names and (manifest.default_labels or len(manifest.label_names) == 1):
        truth = manifest.labels()
        cells |= dict(zip(truth.ids, truth.extra.get(column, ()), strict=False))
    if not cells:
        manifest.items.column(column)  # raises an error that lists the columns
    ids = []
    numbers = []
    for clip, cell in cells.items():
        if not cell.strip():
            continue
        try:
            is_number = abs(float(cell)) <= MAX_NUMBER
        except ValueError:
            is_number = False
        if not is_number:
            raise ExperimentError(
                f"{manifest.name}: {column} of {clip} is not a number within ±{MAX_NUMBER:.0e} "
                f"(got {shorten(cell)}). Correct it, or leave the cell empty"
            )
        ids.append(clip)
        numbers.append(cell)
    if not ids:
        raise ExperimentError(f"{manifest.name}: the {column} column is empty. Use another column")
    name = safe_id(column)
    scheme = LabelScheme(name, (Level(NUMBERED, f"clip with {column}"),))
    about = {"label_scheme": scheme.to_json(), NUMBERS: column}
    no_concepts: list[tuple[str, ...]] = [()] * len(ids)
    labels = LabelSet(
        name,
        ids,
        [NUMBERED] * len(ids),
        no_concepts,
        extra={column: numbers},
        about=about,
    )
    return replace(manifest.with_parts(labels), default_labels=name)
