"""Datasets of clips: labels, folds and features, joined by id."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
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
"""The maximum size of a number to predict, so that errors and their squares stay finite."""
NAMED = 5
"""The maximum number of clips that a message names."""
_MISSING = {
    "without_fold": "labelled clips without a fold in the split",
    "without_features": "labelled clips without features",
    "without_label": "clips of the store without a label for this task",
}


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
        The column of the items that `groups` comes from.
    stores
        If there are several stores, their names and the number of columns of X from each, in order.
        See `StoreFusion`.
    scheme
        The label scheme, which defines the levels and concepts.
    numbers
        The number to predict for each clip, if requested; NaN for clips without one.
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
        chosen = np.arange(len(self))[np.asarray(rows)]
        columns: dict[str, Any] = {}
        for name in ("ids", "levels"):
            cells = getattr(self, name)
            columns[name] = [cells[row] for row in chosen.tolist()]
        for name in ("X", "groups", "concepts", "folds", "y", "frames", "numbers"):
            if (array := getattr(self, name)) is not None:
                columns[name] = array[chosen]
        return replace(self, **columns)

    def __repr__(self) -> str:
        parts = [counted(len(self), "clip"), f"X {'x'.join(map(str, self.X.shape))}"]
        parts.append(counted(len(set(self.groups.tolist()) - {""}), group_noun(self.grouped_by)))
        if self.y is not None:
            parts += [f"{(self.y == code).sum()} {name}" for code, name in enumerate(self.classes)]
        return f"ClipDataset({', '.join(parts)})"


@dataclass(frozen=True)
class Join:
    """The numbers of clips with labels, folds and features, and the clips that lack any of them.

    `labelled` is the number of clips with a level of the task. `used` is the number of labelled
    clips that also have a fold and features. `without_fold` and `without_features` list the
    labelled clips that lack a fold or features. `without_label` lists the store's clips without a
    level of the task.
    """

    labelled: int
    used: int
    without_fold: list[str]
    without_features: list[str]
    without_label: list[str]

    @property
    def brief(self) -> Joined:
        """A summary of bounded size, for the record of a run."""
        lists = {key: getattr(self, key) for key in _MISSING}
        missing = [Missing(key, len(ids), ids[:NAMED]) for key, ids in lists.items() if ids]
        return Joined(self.labelled, self.used, missing)


class Missing(msgspec.Struct, frozen=True):
    """The number of clips that lack a label, a fold or features, and the first of these clips.

    Parameters
    ----------
    key
        The name of the list in `Join`.
    clips
        The number of clips.
    first
        The ids of the first clips.
    """

    key: str
    clips: int
    first: list[str]

    def __str__(self) -> str:
        more = ", ..." if self.clips > len(self.first) else ""
        return f"{_MISSING[self.key]}: {self.clips:,} ({', '.join(self.first)}{more})"


class Joined(msgspec.Struct, frozen=True):
    """The numbers of labelled clips and of used clips, and what the other clips lack."""

    labelled: int
    used: int
    missing: list[Missing]

    def lines(self) -> list[str]:
        """Return lines of text: the numbers of clips, and what the other clips lack."""
        lines = [f"{self.used} of {self.labelled} labelled clips have a fold and features"]
        return lines + [str(part) for part in self.missing]


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
    clips are returned, and `y` is None.

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
    levels: Collection[str],
    *,
    labels: str | None = None,
    array: str = "native",
    frames: str | None = None,
    fold_of: Mapping[str, int] = {},
    among: Collection[str] | None = None,
    concepts: Iterable[str] = (),
    groups: str = "film",
) -> tuple[ClipDataset, Join]:
    """Join labels and features by id, in the manifest's order, and count what is missing.

    Clips whose level is not in the task are included as well, to learn concepts from.

    Parameters
    ----------
    levels
        The levels of the task. Only clips of these levels are counted.
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
    labelled = [clip for clip in manifest.ids if truth.level_of.get(clip) in levels]
    pool = [clip for clip in manifest.ids if clip in truth.level_of]
    with_fold = labelled
    if among is not None:
        pool = [clip for clip in pool if clip in among]
        with_fold = [clip for clip in labelled if clip in among]
    ids, features = read_features(store, pool, array)
    scheme = manifest.label_scheme(labels)
    requested = {scheme.concept(name) for name in concepts}
    visible = set(scheme.visual_concepts or scheme.concept_names) | requested
    names = tuple(name for name in scheme.concept_names if name in visible)
    data = label_clips(
        manifest, ids, features, names, labels=labels, fold_of=fold_of, groups=groups
    )
    data = replace(data, stores=store.widths(array))
    if frames is not None:
        data = _with_frames(data, store, frames)
    have = set(data.ids)
    used = [clip for clip in with_fold if clip in have]
    if not used:
        raise ExperimentError(
            f"none of the {len(with_fold)} clips of {manifest.name} with a label and a fold "
            f"(such as {join_some(with_fold, 2) or 'none'}) has features in "
            f"{store.where} (which has {join_some(store.ids, 2)}). Use the store that "
            "was made from this manifest"
        )
    return data, Join(
        labelled=len(labelled),
        used=len(used),
        without_fold=missing_from(with_fold, labelled),
        without_features=missing_from(used, with_fold),
        without_label=missing_from(labelled, store.ids),
    )


def missing_from(present: Iterable[str], ids: Iterable[str]) -> list[str]:
    """Return the ids that are not in `present`."""
    available = set(present)
    return [identifier for identifier in ids if identifier not in available]


def _with_frames(data: ClipDataset, store: Sources, array: str) -> ClipDataset:
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
    """Return a dataset of labelled clips, whose feature vectors are the rows of `features`."""
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
    ids = [clip for clip, cell in cells.items() if cell.strip()]
    for clip in ids:
        try:
            is_number = abs(float(cells[clip])) <= MAX_NUMBER
        except ValueError:
            is_number = False
        if not is_number:
            raise ExperimentError(
                f"{manifest.name}: {column} of {clip} is not a number up to {MAX_NUMBER:.0e} "
                f"(got {shorten(cells[clip])}). Correct it, or leave the cell empty."
            )
    if not ids:
        raise ExperimentError(f"{manifest.name}: the {column} column is empty. Use another column.")
    name = safe_id(column)
    scheme = LabelScheme(name, (Level(NUMBERED, f"clip with {column}"),))
    about = {"label_scheme": scheme.to_json(), NUMBERS: column}
    extra = {column: [cells[clip] for clip in ids]}
    no_concepts: list[tuple[str, ...]] = [()] * len(ids)
    labels = LabelSet(name, ids, [NUMBERED] * len(ids), no_concepts, extra=extra, about=about)
    return replace(manifest.with_parts(labels=[labels]), default_labels=name)
