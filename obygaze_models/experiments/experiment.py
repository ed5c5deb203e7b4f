"""An experiment as data, from Python or a TOML file: the task, features, protocol, estimators."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from obygaze_features.common.files import describe_other_kind, require_readable
from obygaze_features.common.text import shorten, unknown_name
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_features.manifests import LabelScheme
from obygaze_features.store.remote import is_url
from obygaze_models.data.folds import BALANCES
from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.data.stores import POOLINGS
from obygaze_models.data.tasks import NEGATIVES, ConceptTask, LevelsTask, LevelTask, Problem
from obygaze_models.experiments.fit import AGAINST, EstimatorSpec, folder_name

ALL = "all"
"""In place of concepts: all that can be seen."""
CALLED = "as"
"""The key of an estimator's table under which it is listed, where its name will not do."""


_LISTED = re.compile(r"[^\W_].*")
MAX_NAME_BYTES = 200
"""Of an estimator's folder; file systems take 255."""

Location = Path | str
_Name = Annotated[str, Meta(min_length=1)]
_Names = Annotated[tuple[_Name, ...], Meta(min_length=1)]
_Seed = Annotated[int, Meta(ge=0)]


class _Table(msgspec.Struct):
    """What an estimator's table has in any case."""

    name: _Name


_TABLES = list[_Table]


def _levels(example: str) -> Meta:
    return Meta(description=f"a list of levels, such as {example}")


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run's scores.

    One of three kinds of task is given: `positives` and `train_negatives`, or `levels`, or
    `concepts`.

    Parameters
    ----------
    name
        What the experiment is called in tables and pages.
    manifest, store
        Folders of the labelled items and of their features. The features of several stores are
        concatenated, clip by clip.
    split
        The manifest's fold column. Without one `leak-free`, `paper` and `split` take the
        manifest's only split; if it has none, or for ``""``, they deal the labelled clips over ten
        folds. `released` takes the authors' file for the task. `leave-film-out` takes the clips
        that it has, and not its folds; `official` needs one.
    positives, train_negatives
        The levels to tell apart in training and validation, by code or name.
    test_negatives
        The negatives of each test set, against the same positives. Empty: as in training.
    levels
        Levels that are a class each.
    concepts
        Concepts, each to be detected; or ``("all",)`` for all that can be seen.
    negatives
        The paper's set of negatives of concepts: ``a``, ``b`` or ``c``; see `ConceptTask`.
    labels
        The manifest's label set; None for its default one.
    array, pooling
        The store's array, and what makes one vector a clip of its tokens, if it has several:
        ``max``, ``mean`` or ``first``.
    frames
        The array of frame features, read where an estimator takes sequences of frames.
    protocol
        ``leak-free``, ``released``, ``paper``, ``leave-film-out``, ``split`` or ``official``.
        By default ``official`` if `split` is called so; ``split`` if each fold of it is a film, so
        that every film is tested; else ``leak-free``.
    balance
        ``undersample``: draw as many training clips of each class as the smallest has;
        ``weights``: train on all clips, with classes weighted by the inverse of their size;
        ``none``: train on all clips as they are. By default ``undersample`` for `leak-free` and
        `split`, ``none`` for `leave-film-out`.
    predictions
        Tables of predictions from outside, see `obygaze_models.experiments.outside`.
    estimators
        What to train: names; or tables with ``name``, its options, and ``as``, under which it
        is listed.
    seed
        Fixes the clips drawn, the estimators' own chance and, without a split, the folds.
    seeds
        Repeat all fits with each of these seeds for the draws and the estimators; the folds stay
        those of `seed`. Empty: `seed` alone.
    """

    name: Annotated[_Name, Meta(description="a text")]
    manifest: Annotated[Path, Meta(description="a folder")]
    store: Annotated[
        Location | tuple[Location, ...],
        Meta(description="a folder, an archive or a URL; for several: stores = [...]"),
    ]
    split: Annotated[
        str | None, Meta(description='the name of a split, or "" to draw ten folds')
    ] = None
    positives: Annotated[_Names, _levels('["S"]')] = ()
    train_negatives: Annotated[_Names, _levels('["HN"]')] = ()
    test_negatives: Annotated[
        tuple[_Names, ...],
        Meta(
            min_length=1,
            description='a list of lists of levels, such as [["EN"], ["EN", "HN"]]',
        ),
    ] = ()
    levels: Annotated[_Names, _levels('["EN", "HN", "S"]')] = ()
    concepts: Annotated[
        _Names, Meta(description=f'a list of concepts, such as ["Look"], or "{ALL}"')
    ] = ()
    negatives: Annotated[
        _Name, Meta(description='the set of a concept\'s negatives, "a", "b" or "c"')
    ] = "a"
    labels: Annotated[_Name | None, Meta(description="the name of a label set")] = None
    array: Annotated[_Name, Meta(description="the name of an array")] = "native"
    pooling: Annotated[_Name | None, Meta(description='the name of a pooling, such as "max"')] = (
        None
    )
    frames: Annotated[_Name, Meta(description="the name of an array of frames")] = "frames"
    protocol: Annotated[
        _Name | None, Meta(description='the name of a protocol, such as "leak-free"')
    ] = None
    balance: Annotated[
        _Name | None, Meta(description='how training clips are balanced, such as "none"')
    ] = None
    predictions: Annotated[
        tuple[Path, ...], Meta(description='a list of tables, such as ["theirs.csv"]')
    ] = ()
    estimators: Annotated[
        tuple[_Name | dict[str, Any], ...],
        Meta(
            description='a list of names, or of tables such as {name = "mlp", max_iter = 50}',
        ),
    ] = ("mlp",)
    seed: Annotated[_Seed, Meta(description="a whole number from 0 up")] = 0
    seeds: Annotated[
        tuple[_Seed, ...],
        Meta(min_length=1, description="a list of different whole numbers from 0 up"),
    ] = ()

    def __post_init__(self) -> None:
        for field in fields(self):  # from Python lists and texts will do
            value = getattr(self, field.name)
            if isinstance(value, list) or (field.name == "test_negatives" and value):
                object.__setattr__(self, field.name, _as_tuple(value))
        if not isinstance(self.negatives, str):
            raise ExperimentError(
                f'{self.name!r}: negatives is "a", "b" or "c", of concepts; levels go into '
                "train_negatives"
            )
        object.__setattr__(self, "manifest", Path(self.manifest))
        object.__setattr__(self, "predictions", tuple(map(Path, self.predictions)))
        balanced = [name for name, kind in PROTOCOLS.items() if kind.default_balance]
        if self.balance is not None and self.protocol not in (None, *balanced):
            raise ExperimentError(
                f"{self.name!r}: the protocol {self.protocol} fixes the training clips; leave "
                f"balance out, or take {' or '.join(balanced)}"
            )
        for kind, value, names in (
            ("protocol", self.protocol, PROTOCOLS),
            ("pooling", self.pooling, POOLINGS),
            ("balance", self.balance, BALANCES),
            ("set of negatives", self.negatives, NEGATIVES),
        ):
            if value is not None and value not in names:
                raise ExperimentError(f"{self.name!r}: {unknown_name(kind, value, names)}")
        kinds = {
            "positives": self.positives or self.train_negatives or self.test_negatives,
            "levels": self.levels,
            "concepts": self.concepts,
        }
        if sum(map(bool, kinds.values())) > 1:
            first, second, *_ = (kind for kind, value in kinds.items() if value)
            raise ExperimentError(f"{self.name!r} has {first} and {second}; one task at a time")
        for key, meant in (("positives", ["S"]), ("train_negatives", ["EN"])):
            if not (self.levels or self.concepts or getattr(self, key)):
                example = str(meant).replace("'", '"')
                raise ExperimentError(f"{self.name!r}: {key} is missing; add {key} = {example}")
        if self.negatives != "a" and not self.concepts:
            raise ExperimentError(
                f"{self.name!r}: negatives is for concepts; for those of a bottleneck write "
                f'{{name = "pcbm-tree", {AGAINST} = "{self.negatives}"}} among the estimators'
            )
        if self.protocol == "paper" and self.levels:
            raise ExperimentError(
                f"{self.name!r}: the paper's protocol is for two classes; for {len(self.levels)} "
                "take leak-free"
            )
        if not self.concepts:
            tests = self._level_problem.tests
            if len({task.name for task in tests}) < len(tests):
                raise ExperimentError(
                    f"{self.name!r} has the same test set twice in test_negatives"
                )
        _ = self.learners

    @cached_property
    def learners(self) -> dict[str, EstimatorSpec]:
        """The name under which each estimator is listed, and what to fit."""
        specs: dict[str, EstimatorSpec] = {}
        for entry in self.estimators:
            if not (isinstance(entry, str) or (isinstance(entry, dict) and "name" in entry)):
                path = f"{type(entry).__module__}:{type(entry).__qualname__}"
                raise ExperimentError(
                    f"{self.name!r}: estimators are names, or tables with a name and parameters, "
                    f"not {shorten(repr(entry))}; write {{'name': '{path}', ...}}"
                )
            options = {"name": entry} if isinstance(entry, str) else dict(entry)
            name = str(options.pop("name"))
            listed = str(options.pop(CALLED, name))
            if listed in specs:
                raise ExperimentError(
                    f"two estimators are called {listed!r} in {self.name!r}; give one another "
                    f'name: {{name = "{name}", {CALLED} = "..."}}'
                )
            is_long = len(folder_name(listed).encode()) > MAX_NAME_BYTES
            if is_long or not _LISTED.fullmatch(listed):
                raise ExperimentError(
                    f"{self.name!r}: {shorten(listed)} cannot name an estimator; begin with a "
                    f"letter or digit, and take at most {MAX_NAME_BYTES} bytes"
                )
            try:
                specs[listed] = EstimatorSpec(name, options, str(options.pop(AGAINST, "a")))
            except ExperimentError as problem:
                raise ExperimentError(f"{self.name!r}: {problem}") from None
        folders = {folder_name(listed).casefold(): listed for listed in specs}
        if len(folders) < len(specs):
            raise ExperimentError(
                f"{self.name!r}: two estimators would be kept in one folder; give them names that "
                "differ in more than signs and case"
            )
        oracles = [name for name, spec in specs.items() if spec.name.startswith("oracle-")]
        if self.concepts and oracles:
            raise ExperimentError(
                f"{self.name!r}: {oracles[0]} reads the annotated concepts, and these are what is "
                "asked for; leave it out"
            )
        return specs

    @property
    def stores(self) -> tuple[Location, ...]:
        """The store or the stores."""
        return self.store if isinstance(self.store, tuple) else (self.store,)

    @property
    def goal(self) -> str:
        """What is learned and tested, as text."""
        if self.concepts:
            names = "all visual concepts" if ALL in self.concepts else ", ".join(self.concepts)
            return f"{names} (against {NEGATIVES[self.negatives]})"
        problem = self._level_problem
        return f"{problem.train.name}, test on {', '.join(task.name for task in problem.tests)}"

    @property
    def feature(self) -> str:
        """The array, and how it is pooled; and that of the frames, where it is read."""
        text = f"{self.array}, {self.pooling} over tokens" if self.pooling else self.array
        return f"{text} and {self.frame_array} (sequences)" if self.frame_array else text

    @property
    def frame_array(self) -> str | None:
        """The array of frames, where an estimator reads them."""
        reads = any(spec.reads_frames for spec in self.learners.values())
        return self.frames if reads else None

    def in_codes(self, scheme: LabelScheme) -> Experiment:
        """The same, its levels by their codes, whichever of a level's names it was given."""

        def coded(levels: Sequence[str]) -> tuple[str, ...]:
            return tuple(map(scheme.level, levels))

        try:
            return replace(
                self,
                positives=coded(self.positives),
                train_negatives=coded(self.train_negatives),
                test_negatives=tuple(map(coded, self.test_negatives)),
                levels=coded(self.levels),
            )
        except ManifestError as problem:
            raise ExperimentError(f"{self.name!r}: {problem}") from None

    def problems(self, scheme: LabelScheme) -> list[Problem]:
        """What is learned: one problem, or one for each concept."""
        if not self.concepts:
            return [self._level_problem]
        concepts: Sequence[str] = self.concepts
        if ALL in concepts:
            concepts = scheme.visual_concepts
            if not concepts:
                raise ExperimentError(f"the label scheme {scheme.name!r} has no concepts")
        try:
            names = list(dict.fromkeys(map(scheme.concept, concepts)))
        except ManifestError as problem:
            raise ExperimentError(f"{self.name!r}: {problem}") from None
        tasks = [ConceptTask(name, self.negatives) for name in names]
        return [Problem(task, (task,)) for task in tasks]

    @property
    def _level_problem(self) -> Problem:
        if self.levels:
            task = LevelsTask(self.levels)
            return Problem(task, (task,))
        tests = self.test_negatives or (self.train_negatives,)
        return Problem(
            LevelTask(self.positives, self.train_negatives),
            tuple(LevelTask(self.positives, levels) for levels in tests),
        )


def _as_tuple(value: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_as_tuple(part) if isinstance(part, list) else part for part in value)


def load_experiment(path: str | Path, *, only: str | int | None = None) -> Experiment:
    """Read an experiment from a TOML file; its paths are relative to the file's folder.

    With `only`, it has one estimator: that which is listed under this name, or of this number.
    """
    path = Path(path)
    require_readable(path, ExperimentError)
    if other := describe_other_kind(path, "the TOML file of an experiment"):
        raise ExperimentError(other)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ExperimentError(f"{path} cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ExperimentError(f"{path} is not valid TOML: {problem}") from None
    hints = get_type_hints(Experiment, include_extras=True)
    hints["stores"] = Annotated[_Names, Meta(description='a list, such as ["a.zarr", "b.zarr"]')]
    for key in table:
        if key not in hints:
            raise ExperimentError(f"{path}: {unknown_name('key', key, hints)}")
    if "store" in table and "stores" in table:
        raise ExperimentError(f"{path}: has store and stores; take stores for several")
    values = {key: _convert(path, key, value, hints[key]) for key, value in table.items()}
    if "stores" in values:
        values["store"] = values.pop("stores")
    for key in ("name", "manifest", "store"):
        if key not in values:
            raise ExperimentError(
                f"{path}: {key} is missing; add {key} = ..., {_meaning(hints[key])}"
            )
    entries = values.get("estimators", ())
    if only is not None and entries:
        listed = [e if isinstance(e, str) else e.get(CALLED, e["name"]) for e in entries]
        values["estimators"] = (
            tuple(e for row, e in enumerate(entries) if only in (row, listed[row])) or entries
        )
    if "predictions" in values:
        values["predictions"] = tuple(path.parent / name for name in values["predictions"])
    values["manifest"] = path.parent / values["manifest"]
    stores = values["store"]
    several = stores if isinstance(stores, tuple) else (stores,)
    located = tuple(store if is_url(store) else path.parent / store for store in several)
    values["store"] = located if isinstance(stores, tuple) else located[0]
    try:
        return Experiment(**values)
    except ExperimentError as problem:
        raise ExperimentError(f"{path}: {problem}") from None


def _convert(path: Path, key: str, value: Any, hint: Any) -> Any:
    """A TOML value as the experiment holds it."""
    kind = {"manifest": _Name, "store": _Name, "predictions": _Names}.get(key, hint)
    original = value
    if key == "concepts" and value == ALL:
        value = [ALL]
    elif key == "test_negatives" and isinstance(value, list):
        value = [value] if value and isinstance(value[0], str) else value
    try:
        converted = msgspec.convert(value, kind)
        if key == "seeds" and len(set(converted)) < len(converted):
            raise msgspec.ValidationError
        if key == "estimators":
            msgspec.convert([table for table in value if isinstance(table, dict)], _TABLES)
    except msgspec.ValidationError:
        raise ExperimentError(
            f"{path}: {key} must be {_meaning(hint)} (got {original!r})"
        ) from None
    return converted


def _meaning(hint: Any) -> str:
    return str(next(meta.description for meta in hint.__metadata__ if meta.description))
