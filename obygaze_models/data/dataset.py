"""Datasets of clips: labels, folds and features, joined by id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from obygaze_features.common.arrays import Array
from obygaze_features.common.formatting import counted, join_some, shorten
from obygaze_features.common.names import unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import group_noun, require_same_clips, safe_id
from obygaze_features.manifests import (
    Concept,
    Item,
    Items,
    LabelScheme,
    LabelSet,
    Level,
    Manifest,
)
from obygaze_features.manifests.splits import meet_in_time
from obygaze_features.store.metadata import UNKNOWN
from obygaze_models.data.features import Features
from obygaze_models.data.stores import (
    Sources,
    Stores,
    fingerprint,
    open_stores,
    read_features,
    read_frames,
)
from obygaze_models.data.targets import NUMBERED, concept_targets, default_negatives
from obygaze_models.data.tasks import (
    NUMBERS,
    Task,
    level_classes,
    levels_of,
    make_task,
    number_task,
    two_classes,
)

MAX_NUMBER = 1e9
"""The largest absolute value of a number to predict, so that squares of errors stay finite."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """The origin of a dataset, as a run records it. For arrays, it is made in memory.

    `ids` are the clips that have features, `attributes` those of the store, `shapes` the shapes of
    its arrays, and `array` and `frames` the arrays that were read. `fingerprint` returns a digest
    of the features, and `describe_missing` says which stores lack some clips.
    """

    manifest: Manifest
    label_set: LabelSet
    ids: Sequence[str] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, list[int]] = field(default_factory=dict)
    array: str = "native"
    frames: str = "frames"
    fingerprint: Callable[[], str] = str
    describe_missing: Callable[[list[str]], str] = lambda _: ""

    @property
    def annotators(self) -> list[LabelSet]:
        """The annotators' label sets that the labels were merged from."""
        present = self.manifest.label_names
        names = self.label_set.merged_annotators
        return [self.manifest.labels(name) for name in names if name in present]

    def features(self, *, frames: bool = False) -> Features:
        """Return the description of the features, which saved models need."""
        array = self.frames if frames else self.array
        return Features(
            backbone=self.attributes["backbone"],
            preprocessing=self.attributes["preprocessing"],
            array=array,
            shape=self.shapes[array],
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ClipDataset:
    """The features, labels and films of clips, as arrays with one row per clip.

    Parameters
    ----------
    ids
        Clip ids.
    X
        Features [N, D].
    columns
        The names of the features, if they have names.
    levels
        The level code of each clip.
    groups
        The film of each clip, or its value in the `grouped_by` column; "" if that cell is empty.
    concepts
        Booleans [N, K]: True where a clip is annotated with a concept.
    concept_names
        The names of the K concepts.
    folds, last_fold
        The fold of each clip (-1 for clips without a fold), and the last fold of the split.
    labels
        The label of each clip for each task: a class from 0 (-1 for clips that are left out), or a
        number (NaN for clips that are left out).
    frames
        Frame features [N, T, D], if requested.
    grouped_by
        The items' column that `groups` comes from.
    stores
        If there are several stores, their names and the number of columns of X from each, in order.
    scheme
        The label scheme, which defines the levels and concepts.
    record
        Where the clips are from.
    """

    ids: list[str]
    X: Array
    levels: list[str]
    groups: Array
    concepts: Array
    concept_names: tuple[str, ...]
    folds: Array
    grouped_by: str
    scheme: LabelScheme
    record: Record
    columns: tuple[str, ...] = ()
    last_fold: int = -1
    labels: Mapping[Task, Array] = field(default_factory=dict)
    frames: Array | None = None
    stores: Mapping[str, int] = field(default_factory=dict)

    @property
    def y(self) -> Array | None:
        """The labels of the first task; None if there is no task."""
        return next(iter(self.labels.values()), None)

    @property
    def classes(self) -> tuple[str, ...]:
        """The name of each class of the first task."""
        for task in self.labels:
            return tuple(task.class_titles)
        return ()

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Sequence[int] | Array) -> ClipDataset:
        """Return the selected clips; `rows` has row numbers, or a boolean for each clip."""
        chosen = np.arange(len(self))[[*rows]]
        columns: dict[str, Any] = {"ids": self.ids_at(chosen)}
        columns["levels"] = [self.levels[row] for row in chosen.tolist()]
        for name in ("X", "groups", "concepts", "folds", "frames"):
            if (array := getattr(self, name)) is not None:
                columns[name] = array[chosen]
        labels = {task: values[chosen] for task, values in self.labels.items()}
        return replace(self, **columns, labels=labels)

    def near(self, tested: Array, gap: float) -> Array:
        """Return a mask of the clips that are at most `gap` seconds from a tested clip."""
        items = self.record.manifest.items
        if np.isnan(items.starts).all():
            raise ExperimentError("the clips have no times, so gap has no effect. Leave gap out")
        rows = items.find(self.ids)
        return meet_in_time(items, rows, rows[tested], gap)

    def with_tasks(self, tasks: Iterable[Task]) -> ClipDataset:
        """Return the dataset with the labels of more tasks."""
        labels = dict(self.labels)
        for task in tasks:
            labels[task] = _labels_of(task, self)
        return replace(self, labels=labels)

    def ids_at(self, rows: Array) -> list[str]:
        """Return the ids of the clips in some rows."""
        return [self.ids[row] for row in rows.tolist()]

    def __repr__(self) -> str:
        groups = set(self.groups.tolist()) - {""}
        texts = [counted(len(self), "clip"), f"X {'x'.join(map(str, self.X.shape))}"]
        texts.append(counted(len(groups), group_noun(self.grouped_by)))
        if self.y is not None and self.y.dtype.kind != "f":
            for code, name in enumerate(self.classes):
                texts.append(f"{(self.y == code).sum()} {name}")
        return f"ClipDataset({', '.join(texts)})"


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
        The array to read. Of an array with one vector per frame, the maximum over frames is used.
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
    manifest = Manifest.load(manifest)
    opened = open_stores(store)
    tasks = []
    if positives or negatives or levels or concept:
        tasks += [
            make_task(
                manifest.label_scheme(labels),
                positives=positives,
                negatives=negatives,
                levels=levels,
                concept=concept,
            )
        ]
    chosen = manifest.split(split) if split is not None else None
    data = join_clips(
        manifest,
        opened,
        tasks,
        labels=labels,
        array=array,
        fold_of=chosen.fold_of if chosen else {},
        groups=groups,
    )
    for task in tasks:
        data = data.select(task.target.takes_part(data.labels[task]))
    if frames:
        data = with_frames(data, opened, frames if isinstance(frames, str) else "frames")
    return data


def join_clips(
    manifest: Manifest,
    store: Sources,
    tasks: Collection[Task],
    *,
    labels: str | None,
    array: str,
    fold_of: Mapping[str, int],
    among: Collection[str] | None = None,
    groups: str,
) -> ClipDataset:
    """Join labels and features by id, in the manifest's order.

    Clips whose level is not in the task are included as well, to learn concepts from.

    Parameters
    ----------
    tasks
        The tasks to learn and test. Each of their levels must have a clip. At least one clip of
        their levels must have features. Without tasks, all levels count.
    fold_of
        The fold of each id.
    among
        The ids to include, or None for all.
    groups
        The column of the items to group clips by.
    """
    require_same_clips(store.items, manifest.items)
    truth = manifest.labels(labels)
    scheme = manifest.label_scheme(labels)
    levels = levels_of(tasks, truth, scheme) if tasks else {*truth.levels}
    if absent := sorted(levels - {*truth.levels}):
        raise ExperimentError(
            f"no clip of {manifest.name} has the level {absent[0]}. Use levels of the labels "
            f"({', '.join(sorted(set(truth.levels)))})"
        )
    pool = []
    for clip in manifest.ids:
        if clip in truth.level_of and (among is None or clip in among):
            pool.append(clip)
    ids, features = read_features(store, pool, array)
    record = Record(
        manifest=manifest,
        label_set=truth,
        ids=ids,
        attributes=store.attributes,
        shapes={spec.name: list(spec.shape) for spec in store.specs},
        array=array,
        fingerprint=partial(fingerprint, store),
        describe_missing=store.describe_missing,
    )
    visible = scheme.visual_concepts or scheme.concept_names
    names = scheme.in_order([*visible, *(task.concept for task in tasks if task.concept)])
    data = label_clips(record, ids, features, names, fold_of=fold_of, groups=groups)
    if levels.isdisjoint(data.levels):
        labelled = [clip for clip in pool if truth.level_of[clip] in levels]
        raise ExperimentError(
            f"none of the {len(labelled)} selected clips of {manifest.name} with these levels "
            f"({join_some(labelled, 2) or 'none'}) has features in "
            f"{store.where} (which has {join_some(store.ids, 2)}). Use another store, split "
            "or levels"
        )
    last = max(fold_of.values(), default=-1)
    data = replace(data, stores=store.widths(array), last_fold=last)
    return data.with_tasks(tasks)


def with_frames(data: ClipDataset, store: Sources, array: str) -> ClipDataset:
    """Return the clips that have frame features, with those features."""
    ids, frames = read_frames(store, data.ids, array)
    if len(ids) < len(data):
        data = data.select(np.isin(data.ids, ids))
    return replace(data, frames=frames, record=replace(data.record, frames=array, ids=data.ids))


def label_clips(
    record: Record,
    ids: Sequence[str],
    features: Array,
    concept_names: tuple[str, ...],
    *,
    fold_of: Mapping[str, int] = {},
    groups: str = "film",
) -> ClipDataset:
    """Return a dataset of labelled clips, whose feature vectors are the rows of `features`."""
    manifest = record.manifest
    truth = record.label_set
    cells = np.array(manifest.items.column(groups), dtype=np.str_)
    concepts = np.zeros((len(ids), len(concept_names)), dtype=bool)
    for row, clip in enumerate(ids):
        concepts[row] = [name in truth.concepts_of[clip] for name in concept_names]
    return ClipDataset(
        ids=list(ids),
        X=features,
        levels=[truth.level_of[clip] for clip in ids],
        groups=cells[manifest.items.find(ids)],
        concepts=concepts,
        concept_names=concept_names,
        folds=np.array([fold_of.get(clip, -1) for clip in ids], dtype=np.int64),
        grouped_by=groups,
        scheme=manifest.label_scheme(truth.name),
        record=record,
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
    filled = {clip: cell for clip, cell in cells.items() if cell.strip()}
    numbers = pd.to_numeric(pd.Series(filled, dtype=str), errors="coerce").abs()
    for clip in numbers.index[~(numbers <= MAX_NUMBER)]:
        raise ExperimentError(
            f"{manifest.name}: {column} of {clip} is not a number within ±{MAX_NUMBER:.0e} "
            f"(got {shorten(filled[clip])}). Correct or empty the cell"
        )
    if not filled:
        raise ExperimentError(f"{manifest.name}: the {column} column is empty. Use another column")
    name = safe_id(column)
    scheme = LabelScheme(name, (Level(NUMBERED, f"clip with {column}"),))
    size = len(filled)
    labels = LabelSet(
        name,
        [*filled],
        [NUMBERED] * size,
        [()] * size,
        extra={column: [*filled.values()]},
        about={"label_scheme": scheme.to_json(), NUMBERS: column},
    )
    return replace(manifest.with_parts(labels), default_labels=name)


def dataset(
    X: Any,
    y: Any,
    groups: Any = None,
    *,
    ids: Any = None,
    concepts: Any = None,
    concept_names: Sequence[str] = (),
    frames: Any = None,
    name: str = "arrays",
) -> ClipDataset:
    """Return a dataset of arrays or of pandas tables, with a manifest that is made in memory.

    Parameters
    ----------
    X
        Features [N, D], with NaN for missing values: each estimator decides whether it takes them.
        Estimators get the names of the columns of a DataFrame.
    y
        The class of each row, by name or number; or numbers to predict, as floats. Classes are
        sorted, or in the order of a categorical Series; of two, the second is positive.
    groups
        The film, or other group, of each row.
    ids
        The id of each row; by default the index of a DataFrame or, if it has integers, row numbers.
    concepts, concept_names
        Booleans [N, K]: True where a row shows a concept; and the names of the concepts, unless
        they are the columns of a DataFrame.
    frames
        Frame features [N, T, D].
    name
        The name of the features, in runs and warnings.

    Examples
    --------
    >>> import numpy as np
    >>> dataset(np.eye(4), ["calm", "tense"] * 2, ["a", "a", "b", "b"])
    ClipDataset(4 clips, X 4x4, 2 films, 2 calm, 2 tense)
    """
    columns = tuple(map(str, getattr(X, "columns", ())))
    tables = [table for table in (X, y, groups, concepts) if hasattr(table, "iloc")]
    for table in tables:
        if not table.index.equals(tables[0].index):
            raise ExperimentError(
                "X, y, groups and concepts have different indexes. Align them, or pass arrays"
            )
    if ids is None:
        ids = map("row-{:06d}".format, range(len(X)))
        if hasattr(X, "iloc") and X.index.dtype.kind not in "iu":
            ids = X.index
    ids = [*map(str, ids)]
    X = check_array(X, dtype=[np.float32, np.float64], ensure_all_finite="allow-nan")
    order = getattr(getattr(y, "dtype", None), "categories", None)
    y = column_or_1d(np.asarray(y))
    films = [""] * len(X) if groups is None else [*groups]
    _check_rows(len(X), y=y, groups=films)
    check_consistent_length(X, ids, concepts, frames)
    clips = [Item(clip, film=str(film)) for clip, film in zip(ids, films, strict=True)]
    manifest = Manifest(name, Items.of(clips, {"y": [*map(str, y.tolist())]}))
    concept_names = [*map(str, getattr(concepts, "columns", concept_names))]
    if y.dtype.kind == "f":
        manifest = with_numbers(manifest, "y")
        task = number_task("y")
    else:
        classes = np.unique(y) if order is None else order[np.isin(order, y)]
        manifest, task = _with_classes(manifest, classes, concepts, concept_names)
    shapes = {"native": [X.shape[1]]}
    if frames is not None:
        frames = np.asarray(frames, dtype=np.float32)
        shapes["frames"] = list(frames.shape[1:])
    record = Record(
        manifest=manifest,
        label_set=manifest.labels(),
        ids=ids,
        attributes={
            "name": name,
            "backbone": {"name": name, "weights_sha256": UNKNOWN},
            "preprocessing": {"arrays": name},
            "precision": str(X.dtype),
        },
        shapes=shapes,
        fingerprint=partial(joblib.hash, (X, frames), hash_name="sha1"),
    )
    data = label_clips(record, ids, X, tuple(concept_names))
    folds = np.unique(manifest.items.films, return_inverse=True)[1]
    data = replace(data, columns=columns, frames=frames, folds=folds, last_fold=int(folds.max()))
    return data.with_tasks([task])


def _check_rows(size: int, **columns: Any) -> None:
    """Raise if a column has not one value for each row."""
    for name, values in columns.items():
        if len(values) != size:
            raise ExperimentError(f"{name} has {len(values)} rows, but X has {size}")
        missing = pd.isna(values)
        if missing.any():
            raise ExperimentError(f"{name} is empty in row {missing.argmax()}. Leave out such rows")


def _with_classes(
    manifest: Manifest,
    classes: Any,
    concepts: Any,
    concept_names: Sequence[str],
) -> tuple[Manifest, Task]:
    """Return a manifest with the classes in its column ``y`` as levels, and their task."""
    codes = [*map(str, classes.tolist())]
    values = manifest.items.extra["y"]
    if concepts is None:
        concepts = np.zeros((len(values), 0))
    concepts = check_array(concepts, dtype=None, ensure_all_finite=False, ensure_min_features=0)
    if not np.isin(concepts, (0, 1)).all():
        raise ExperimentError(
            "concepts must be True or False (1 or 0). Leave out rows or columns with other values"
        )
    if concepts.shape[1] != len(concept_names):
        raise ExperimentError(
            f"concept_names must name each of the {concepts.shape[1]} columns of concepts (got "
            f"{len(concept_names)})"
        )
    shown = [tuple(compress(concept_names, row)) for row in concepts]
    levels = tuple(map(Level, codes, codes))
    scheme = LabelScheme(manifest.name, levels, tuple(map(Concept, concept_names)))
    labels = LabelSet("y", manifest.ids, values, shown)
    manifest = replace(manifest, scheme=scheme, default_labels="y").with_parts(labels)
    if len(codes) == 2:
        return manifest, two_classes(scheme.name_of, codes[1:], codes[:1])
    return manifest, level_classes(scheme.name_of, codes)


def clip_targets(data: ClipDataset, negatives: str) -> Array:
    """Return the `concept_targets` of the clips in a dataset; "" means the default negatives."""
    scheme = data.scheme
    return concept_targets(
        data.levels,
        data.concepts,
        negatives or default_negatives(scheme),
        is_obygaze=scheme.is_obygaze,
    )


def _labels_of(task: Task, data: ClipDataset) -> Array:
    """Return the class code of each clip (`UNUSED` for clips left out), or its number."""
    if task.target.is_numeric:
        truth = data.record.label_set
        if NUMBERS not in truth.about:
            raise ExperimentError(
                f"{task.key}: the labels have no numbers. Add them with "
                "obygaze_models.data.dataset.with_numbers"
            )
        cells = pd.Series(truth.extra[truth.about[NUMBERS]], truth.ids)
        return cells[data.ids].to_numpy(dtype=np.float64)
    if not task.concept:
        return task.codes(data.levels)
    if task.concept not in data.concept_names:
        raise ExperimentError(unknown_name("concept", task.concept, data.concept_names))
    shows = data.concepts[:, data.concept_names.index(task.concept)]
    return task.codes(data.levels, shows, is_obygaze=data.scheme.is_obygaze)
