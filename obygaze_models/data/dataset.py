"""Labels, folds and features of clips, joined by id, for estimators and tasks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import group_noun, safe_id
from obygaze_features.manifests import LabelScheme, LabelSet, Level, Manifest, obygaze_scheme
from obygaze_features.store import Store
from obygaze_models.data.stores import Stores, open_stores, read_features, read_frames, widths_of
from obygaze_models.data.targets import NUMBERED
from obygaze_models.scoring.metrics import Array

if TYPE_CHECKING:
    from obygaze_models.data.tasks import Task


NUMBERS = "numbers"
"""The key under which a label set names its column of numbers."""
NAMED = 5
"""The number of clips that a message names."""
_MISSING = {
    "without_fold": "labelled clips have no fold in the split",
    "without_features": "labelled clips have no features in the store or stores",
    "without_label": "clips of the store have no label for this task",
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
        The film of each clip, or its cell in the column `grouped_by`; "" if it has none.
    concepts
        Booleans [N, K]: True for annotated concepts.
    concept_names
        The names of the K concepts.
    folds
        The fold of each clip; -1 if it has none.
    y
        The class of each clip, from 0; None without a task.
    classes
        The name of each class.
    frames
        Frame features [N, T, D], if requested.
    annotators
        Each annotator's labels of the clips that they labelled, without features.
    grouped_by
        The column of the items in `groups`.
    stores
        The names of several stores and their numbers of columns of X, in order. If a
        store lacks a clip, they are NaN. See `StoreFusion`.
    scheme
        What may be annotated: it says what the levels' codes mean.
    numbers
        The number to predict for each clip, if a column was named; NaN if the clip has none.
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
    annotators: Mapping[str, ClipDataset] = field(default_factory=dict)
    grouped_by: str = "film"
    stores: Mapping[str, int] = field(default_factory=dict)
    scheme: LabelScheme = field(default_factory=obygaze_scheme)
    numbers: Array | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Sequence[int] | Array) -> ClipDataset:
        """Return the clips of some rows: numbers, or a boolean for each clip."""
        chosen = np.arange(len(self))[np.asarray(rows)]
        columns: dict[str, Any] = {
            name: [getattr(self, name)[row] for row in chosen.tolist()]
            for name in ("ids", "levels")
        }
        for name in ("X", "groups", "concepts", "folds", "y", "frames", "numbers"):
            if (array := getattr(self, name)) is not None:
                columns[name] = array[chosen]
        return replace(self, **columns)

    def to_torch(self) -> list[dict[str, Any]]:
        """Return the clips for ``torch.utils.data.DataLoader``, a dictionary each.

        The keys are ``id``, ``film`` (or the column of the groups), ``level`` and ``features``;
        ``label``, the class, if there is a task; and ``frames`` if they were read.
        """
        columns = {"id": self.ids, self.grouped_by: self.groups.tolist(), "level": self.levels}
        arrays = {"features": self.X, "label": self.y, "frames": self.frames}
        columns |= {name: list(rows) for name, rows in arrays.items() if rows is not None}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def votes(self, task: Task) -> Array:
        """Return each annotator's class for each clip in a task [A, N], -1 for none."""
        row_of = {clip: row for row, clip in enumerate(self.ids)}
        table = np.full((len(self.annotators), len(self)), -1)
        for votes, own in zip(table, self.annotators.values(), strict=True):
            labels = dict(zip(own.ids, task.labels(own).tolist(), strict=True))
            for clip in row_of.keys() & labels.keys():
                votes[row_of[clip]] = labels[clip]
        return table

    def __repr__(self) -> str:
        parts = [counted(len(self), "clip"), f"X {'x'.join(map(str, self.X.shape))}"]
        parts.append(counted(len(set(self.groups.tolist()) - {""}), group_noun(self.grouped_by)))
        if self.y is not None:
            parts += [f"{(self.y == code).sum()} {name}" for code, name in enumerate(self.classes)]
        return f"ClipDataset({', '.join(parts)})"


@dataclass(frozen=True)
class Join:
    """The number of clips that were joined, and the clips that were not.

    `labelled` clips have a level of the task. `used` clips also have a fold and features. The lists
    name the rest, and the store's clips without such a label.
    """

    labelled: int
    used: int
    without_fold: list[str]
    without_features: list[str]
    without_label: list[str]

    @property
    def brief(self) -> Joined:
        """The summary that a run records, whatever the number of clips."""
        lists = {key: getattr(self, key) for key in _MISSING}
        missing = [Missing(key, len(ids), ids[:NAMED]) for key, ids in lists.items() if ids]
        return Joined(self.labelled, self.used, missing)


class Missing(msgspec.Struct, frozen=True):
    """The number of clips that lack something, and the first of them.

    Parameters
    ----------
    key
        The list of `Join` with all of them.
    clips
        Their number.
    first
        The ids of some.
    """

    key: str
    clips: int
    first: list[str]

    @property
    def lack(self) -> str:
        """A description of what they lack."""
        return _MISSING[self.key]

    @property
    def named(self) -> str:
        """The first of them, and the number of the rest."""
        more = f" and {self.clips - len(self.first):,} more" if self.clips > len(self.first) else ""
        return ", ".join(self.first) + more


class Joined(msgspec.Struct, frozen=True):
    """The numbers of labelled clips and of clips in use, and what the rest lack."""

    labelled: int
    used: int
    missing: list[Missing]

    def lines(self) -> list[str]:
        """Return lines for readers: the numbers of clips, and what is missing on either side."""
        lines = [f"{self.used} of {self.labelled} labelled clips have a fold and features"]
        return lines + [f"{part.clips} {part.lack}: {part.named}" for part in self.missing]


def load_dataset(
    manifest: Manifest | str | Path,
    store: Stores,
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
    groups: str = "film",
    missing: str = "drop",
) -> ClipDataset:
    """Return the clips of a manifest with their features, ready for scikit-learn.

    Parameters
    ----------
    manifest
        The manifest or its folder.
    store
        The store, its folder, archive or URL; features of several stores are concatenated.
    positives, negatives
        The levels of class 1 and of class 0, by code or name.
    levels
        Levels that each form a class.
    concept
        A concept to detect; `negatives` is then the paper's set ``"a"``, ``"b"`` or ``"c"``, see
        `obygaze_models.data.tasks.Task`. With no task at all every labelled clip is
        returned, and `y` is None.
    array, pooling
        The store's array, and how its tokens become one vector: ``max``, ``mean`` or ``first``.
    labels, split
        The manifest's label set, by default its default; and the split that fills `folds`.
    frames
        Read the frame features, too: True for the array ``frames``, or the array's name. Clips
        that have none are left out.
    groups
        The column of the items that fills `groups`: ``film``, ``media``, or another of items.csv.
    missing
        Clips that one of several stores lacks: ``drop``, or ``mean``, which leaves NaN there for
        `StoreFusion` to fill.

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
    opened = open_stores(store, missing)
    scheme = manifest.label_scheme(labels)
    task = make_task(
        scheme, positives=positives, negatives=negatives, levels=levels, concept=concept
    )
    truth = manifest.labels(labels)
    task_levels = levels_of([task], truth, scheme) if task else set(truth.levels)
    data, _ = join_clips(
        manifest,
        opened,
        task_levels,
        labels=labels,
        array=array,
        pooling=pooling,
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
    store: Store,
    levels: Collection[str],
    *,
    labels: str | None = None,
    array: str = "native",
    pooling: str | None = None,
    frames: str | None = None,
    fold_of: Mapping[str, int] = {},
    among: Collection[str] | None = None,
    concepts: Iterable[str] = (),
    annotators: Sequence[str] = (),
    groups: str = "film",
) -> tuple[ClipDataset, Join]:
    """Join labels and features by id, in the manifest's order, and count what is missing.

    Clips of other levels are included: they are in no task, but concepts are learned from them.

    Parameters
    ----------
    levels
        The task's levels, whose clips are counted.
    frames
        The array of frame features, if requested. Clips then need both.
    fold_of
        The fold of each id.
    among
        The ids to include; None for all.
    concepts
        Requested concepts. Concepts that cannot be seen are only included on request.
    annotators
        Label sets to include as well.
    groups
        The column of the items by which clips are grouped.
    """
    truth = manifest.labels(labels)
    if absent := sorted(set(levels) - set(truth.levels)):
        raise ExperimentError(
            f"no clip of {manifest.name} has level {absent[0]} "
            f"(got {', '.join(sorted(set(truth.levels)))})"
        )
    labelled = [clip for clip in manifest.ids if truth.level_of.get(clip) in levels]
    everything = [clip for clip in manifest.ids if clip in truth.level_of]
    with_fold, pool = (
        [clip for clip in ids if among is None or clip in among] for ids in (labelled, everything)
    )
    ids, features = read_features(store, pool, array, pooling)
    scheme = manifest.label_scheme(labels)
    requested = {scheme.concept(name) for name in concepts}
    visible = set(scheme.visual_concepts or scheme.concept_names) | requested
    names = tuple(name for name in scheme.concept_names if name in visible)
    data = label_clips(
        manifest, ids, features, names, labels=labels, fold_of=fold_of, groups=groups
    )
    own = {}
    for name in annotators:
        clips = [clip for clip in ids if clip in manifest.labels(name).level_of]
        own[name] = label_clips(manifest, clips, np.empty((len(clips), 0)), names, labels=name)
    data = replace(data, annotators=own, stores=widths_of(store, array))
    if frames is not None:
        data = _with_frames(data, store, frames)
    have = set(data.ids)
    used = [clip for clip in with_fold if clip in have]
    if not used:
        raise ExperimentError(
            f"none of the {len(with_fold)} clips of {manifest.name} that have a label and a fold, "
            f"such as {join_some(with_fold, 2) or 'none'}, has features in "
            f"{store.where}, which has clips such as {join_some(store.ids, 2)}. Use the store "
            "of this manifest"
        )
    return data, Join(
        labelled=len(labelled),
        used=len(used),
        without_fold=missing_from(with_fold, labelled),
        without_features=missing_from(used, with_fold),
        without_label=missing_from(labelled, store.ids),
    )


def missing_from(present: Iterable[str], ids: Iterable[str]) -> list[str]:
    """Return the ids that are not among those present."""
    available = set(present)
    return [identifier for identifier in ids if identifier not in available]


def _with_frames(data: ClipDataset, store: Store, array: str) -> ClipDataset:
    """Return the clips that have frame features, with these features."""
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
    """Return the annotations of labelled clips with their features, a row each."""
    truth = manifest.labels(labels)
    concepts = [[name in truth.concepts_of[clip] for name in concept_names] for clip in ids]
    cells = manifest.items.column(groups)
    numbers = truth.extra.get(truth.about.get(NUMBERS, ""))
    number_of = dict(zip(truth.ids, numbers or (), strict=False))
    return ClipDataset(
        ids=list(ids),
        X=features,
        levels=[truth.level_of[clip] for clip in ids],
        groups=np.array([cells[manifest.items.row(clip)] for clip in ids], dtype=np.str_),
        concepts=np.array(concepts, dtype=bool).reshape(len(ids), len(concept_names)),
        concept_names=concept_names,
        folds=np.array([fold_of.get(clip, -1) for clip in ids], dtype=np.int64),
        grouped_by=groups,
        scheme=manifest.label_scheme(labels),
        numbers=np.array([float(number_of[clip]) for clip in ids]) if numbers else None,
    )


def with_numbers(manifest: Manifest, column: str) -> Manifest:
    """Return a manifest with a label set of the clips that have a number in a column.

    The column is of the default label set, or else of the items. The label set is called like it.
    """
    cells = dict(zip(manifest.ids, manifest.items.columns.get(column, ()), strict=False))
    if manifest.label_names and (manifest.default_labels or len(manifest.label_names) == 1):
        truth = manifest.labels()
        cells |= dict(zip(truth.ids, truth.extra.get(column, ()), strict=False))
    if not cells:
        manifest.items.column(column)  # which names the columns that there are
    ids = [clip for clip, cell in cells.items() if cell.strip()]
    for clip in ids:
        try:
            is_number = math.isfinite(float(cells[clip]))
        except ValueError:
            is_number = False
        if not is_number:
            raise ExperimentError(
                f"{manifest.name}: {column} of {clip} is not a number (got {cells[clip]!r}). "
                "Correct it, or leave the cell empty."
            )
    if not ids:
        raise ExperimentError(f"{manifest.name}: the column {column} is empty. Name another.")
    name = safe_id(column)
    scheme = LabelScheme(name, (Level(NUMBERED, f"clip with {column}"),))
    about = {"label_scheme": scheme.to_json(), NUMBERS: column}
    extra = {column: [cells[clip] for clip in ids]}
    no_concepts: list[tuple[str, ...]] = [()] * len(ids)
    labels = LabelSet(name, ids, [NUMBERED] * len(ids), no_concepts, extra=extra, about=about)
    return replace(manifest.with_parts(labels=[labels]), default_labels=name)
