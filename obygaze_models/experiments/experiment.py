"""An experiment as data, from Python or a TOML file: the task, features, protocol, estimators."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from obygaze_features.common.files import describe_other_kind, read_toml
from obygaze_features.common.text import redact_url, shorten, unknown_name
from obygaze_features.errors import ExperimentError, errors_as
from obygaze_features.manifests import LabelScheme
from obygaze_features.store import Store
from obygaze_features.store.remote import is_url
from obygaze_models.data.folds import BALANCES
from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.data.stores import MISSING, POOLINGS, name_stores
from obygaze_models.data.tasks import NEGATIVES, ConceptTask, LevelsTask, LevelTask, Problem
from obygaze_models.estimators.fusion import FUSIONS
from obygaze_models.estimators.registry import find_entry
from obygaze_models.experiments.fit import AGAINST, CUT, EstimatorSpec, folder_name
from obygaze_models.scoring.metrics import ranking_keys

ALL = "all"
"""In place of concepts: all that can be seen."""
TARGETS = ("merged", "soft")
CALLED = "as"
"""The key of an estimator's table under which it is listed, where its name will not do."""


_LISTED = re.compile(r"[^\W_].*")
MAX_NAME_BYTES = 200
"""Of an estimator's folder; file systems take 255."""

Location = Path | str
_Name = Annotated[str, Meta(min_length=1)]
_Names = Annotated[tuple[_Name, ...], Meta(min_length=1)]
_Seed = Annotated[int, Meta(ge=0)]
_LEVEL_KEYS = ("positives", "train_negatives", "levels")
_LEVELS = "a list of levels, such as"
_HINTS = {
    "name": "a text",
    "manifest": "a folder",
    "store": "a folder, an archive or a URL; for several: stores = [...]",
    "stores": 'a list, such as ["a.zarr", "b.zarr"]',
    "split": 'the name of a split, or "" to draw ten folds',
    "positives": f'{_LEVELS} ["S"]',
    "train_negatives": f'{_LEVELS} ["HN"]',
    "test_negatives": 'a list of lists of levels, such as [["EN"], ["EN", "HN"]]',
    "levels": f'{_LEVELS} ["EN", "HN", "S"]',
    "concepts": f'a list of concepts, such as ["Look"], or "{ALL}"',
    "negatives": 'the set of a concept\'s negatives, "a", "b" or "c"',
    "labels": "the name of a label set, or a list of annotators' that were merged",
    "targets": 'what is learnt of several annotators, "merged" or "soft"',
    "array": "the name of an array",
    "pooling": 'the name of a pooling, such as "max"',
    "frames": "the name of an array of frames",
    "protocol": 'the name of a protocol, such as "split"',
    "groups": 'the column of clips that stay together, such as "media"',
    "min_clips": "a whole number from 1 up",
    "validation_films": "a whole number from 1 up",
    "gap": "a number of seconds from 0 up",
    "balance": 'how training clips are balanced, such as "none"',
    "predictions": 'a list of tables, such as ["theirs.csv"]',
    "missing": 'what becomes of clips that a store lacks, "drop" or "mean"',
    "fusion": 'how several stores are joined, "early" or "late"',
    "each_store": "true or false",
    "concept_stores": 'a table of concepts and stores, such as {Voice = "clap"}',
    "estimators": 'a list of names, or of tables such as {name = "mlp", max_iter = 50}',
    "headline": "the name of an estimator of the list",
    "score": 'the name of a score, such as "auroc"',
    "seed": "a whole number from 0 up",
    "seeds": "a list of different whole numbers from 0 up",
}
"""What the value of each key of a file is."""


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
        side by side, clip by clip, and vary alike on training clips; see `StoreFusion`.
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
        The manifest's label set; None for its default one. Or those of several annotators, for the
        set that was merged of them. Where it was merged, models are compared with each annotator.
    targets
        ``merged``: a clip trains with its merged label; ``soft``: with the label of each annotator,
        who all weigh alike. Clips and tests are the same. Estimators must take ``sample_weight``,
        but for guesses by the shares of classes, which learn the merged labels.
    array, pooling
        The store's array, and what makes one vector a clip of its tokens, if it has several:
        ``max``, ``mean`` or ``first``.
    frames
        The array of frame features, read where an estimator takes sequences of frames.
    protocol
        ``leak-free``, ``released``, ``paper``, ``leave-film-out``, ``split`` or ``official``.
        By default ``official`` if `split` is called so; else ``split``, which tests every clip.
    groups
        The column of the items whose groups stay together: ``film``, ``media``, or another of
        items.csv. Folds that are drawn keep them whole, `leave-film-out` leaves them out in turn,
        and scores are means over them. By default films, which drawn folds do not keep whole.
    min_clips
        Of each class, for a group to test by `leave-film-out`; ten by default.
    validation_films
        By `leave-film-out`, how many groups are drawn for each tested one, to validate in turn. By
        default all others. Estimators that use no validation clips are fitted once for each tested
        group, to all others.
    gap
        Clips of a file that is tested neither train nor validate within so many seconds of a test
        clip.
    balance
        ``undersample``: draw as many training clips of each class as the smallest has;
        ``weights``: train on all clips, with classes weighted by the inverse of their size;
        ``none``: train on all clips as they are. By default ``undersample``, but for protocols
        that fix the training clips.
    missing
        ``drop``: a clip that one of several stores lacks is left out; ``mean``: it counts as the
        mean of the training clips there.
    fusion
        Of several stores. ``early``: a model reads all; ``late``: one on each, and their
        probabilities are joined by logistic regression on training clips held out in turn.
    each_store
        Fit each estimator also on each of several stores alone, and on all without it.
    concept_stores
        By name the concepts that a bottleneck learns from one of several stores, such as
        ``{"Voice": "clap"}`` of clap.zarr: their directions are 0 along the others. It learns
        them too where they cannot be seen. One that does not read this store reads all it has.
    predictions
        Tables of predictions from outside, see `read_outside` in `experiments.predictions`.
    estimators
        What to train: names; or tables with ``name``, its options, and ``as``, under which it
        is listed. Of several stores ``stores`` names those that it reads, such as ``["clap"]`` of
        clap.zarr; and ``fusion`` may differ. With ``threshold = "validation"`` the validation clips
        choose from which probability on it calls a clip positive, for the best F1; two classes
        only.
    headline
        The model that the result is about, named before it is known; by default the first of
        `estimators`. The best of several on the test clips would look better than it is.
    score
        The score that models are ranked by, such as ``f1``; by default ``auroc`` of two classes,
        ``f1_macro`` of more.
    seed
        Fixes the clips drawn, the estimators' own chance and, without a split, the folds.
    seeds
        Repeat all fits with each of these seeds for the draws and the estimators; the folds stay
        those of `seed`. Empty: `seed` alone.
    """

    name: _Name
    manifest: Path
    store: Location | tuple[Location, ...]
    split: str | None = None
    positives: _Names = ()
    train_negatives: _Names = ()
    test_negatives: Annotated[tuple[_Names, ...], Meta(min_length=1)] = ()
    levels: _Names = ()
    concepts: _Names = ()
    negatives: _Name = "a"
    labels: _Name | _Names | None = None
    targets: _Name = "merged"
    array: _Name = "native"
    pooling: _Name | None = None
    frames: _Name = "frames"
    protocol: _Name | None = None
    groups: _Name | None = None
    min_clips: Annotated[int, Meta(ge=1)] | None = None
    validation_films: Annotated[int, Meta(ge=1)] | None = None
    gap: Annotated[float, Meta(ge=0)] = 0.0
    balance: _Name | None = None
    missing: _Name = "drop"
    fusion: _Name = "early"
    each_store: bool = False
    concept_stores: dict[_Name, _Name] = field(default_factory=dict)
    predictions: tuple[Path, ...] = ()
    estimators: tuple[_Name | dict[str, Any], ...] = ("mlp",)
    headline: _Name | None = None
    score: _Name | None = None
    seed: _Seed = 0
    seeds: Annotated[tuple[_Seed, ...], Meta(min_length=1)] = ()

    def __post_init__(self) -> None:
        for key in fields(self):  # from Python lists and texts will do
            value = getattr(self, key.name)
            if isinstance(value, list) or (key.name == "test_negatives" and value):
                object.__setattr__(self, key.name, _as_tuple(value))
        object.__setattr__(self, "manifest", Path(self.manifest))
        object.__setattr__(self, "predictions", tuple(map(Path, self.predictions)))
        for slip in self._slips():
            raise ExperimentError(f"{self.name!r}: {slip}")
        _ = self.learners

    def _slips(self) -> Iterator[str]:
        """What does not go together, a sentence each."""
        negatives: Any = self.negatives
        if not isinstance(negatives, str):
            yield 'negatives is "a", "b" or "c", of concepts; levels go into train_negatives'
        balanced = [name for name, kind in PROTOCOLS.items() if kind.default_balance]
        for key in ("balance", "gap"):
            if getattr(self, key) and self.protocol not in (None, *balanced):
                yield (
                    f"the protocol {self.protocol} fixes the training clips; leave {key} out, or "
                    f"take {' or '.join(balanced)}"
                )
        for key in ("min_clips", "validation_films"):
            if getattr(self, key) is not None and self.protocol != "leave-film-out":
                yield f'{key} is of one protocol; add protocol = "leave-film-out", or leave it out'
        for kind, value, names in (
            ("protocol", self.protocol, PROTOCOLS),
            ("pooling", self.pooling, POOLINGS),
            ("balance", self.balance, BALANCES),
            ("set of negatives", self.negatives, NEGATIVES),
            ("targets", self.targets, TARGETS),
            ("missing", self.missing, MISSING),
            ("fusion", self.fusion, FUSIONS),
            ("score", self.score, ranking_keys(multiclass=len(self.levels) > 2)),
        ):
            if value is not None and value not in names:
                yield unknown_name(kind, value, names)
        for store in self.concept_stores.values():
            if store not in self.store_names:
                yield f"concept_stores: {unknown_name('store', store, self.store_names)}"
        joins = {"missing": "drop", "fusion": "early", "each_store": False, "concept_stores": {}}
        keys = [key for key, default in joins.items() if getattr(self, key) != default]
        if keys and len(self.stores) < 2:
            yield f"one store takes no {' or '.join(keys)}; leave it out, or give stores = [...]"
        kinds = {
            "positives": self.positives or self.train_negatives or self.test_negatives,
            "levels": self.levels,
            "concepts": self.concepts,
        }
        first, *others = [kind for kind, value in kinds.items() if value] or ["positives"]
        if others:
            yield f"has {first} and {others[0]}; one task at a time"
        for key, example in (("positives", "S"), ("train_negatives", "EN")):
            if first == "positives" and not getattr(self, key):
                yield f'{key} is missing; add {key} = ["{example}"]'
        if self.negatives != "a" and not self.concepts:
            yield (
                "negatives is for concepts; for those of a bottleneck write "
                f'{{name = "pcbm-tree", {AGAINST} = "{self.negatives}"}} among the estimators'
            )
        if self.protocol == "paper" and self.levels:
            yield (
                f"the paper's protocol is for two classes; for {len(self.levels)} take leak-free"
            )
        if not self.concepts and len(set(tests := self._level_problem.tests)) < len(tests):
            yield "has the same test set twice in test_negatives"

    @cached_property
    def learners(self) -> dict[str, EstimatorSpec]:
        """The name under which each estimator is listed, and what to fit."""
        specs: dict[str, EstimatorSpec] = {}
        folders = set()
        stores = self.store_names if len(self.stores) > 1 else []
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
            folder = folder_name(listed)
            if folder.casefold() in folders:
                raise ExperimentError(
                    f"{self.name!r}: two estimators are called {listed!r}, or so but for signs and "
                    f'case; give one another name: {{name = "{name}", {CALLED} = "..."}}'
                )
            folders.add(folder.casefold())
            if len(folder.encode()) > MAX_NAME_BYTES or not _LISTED.fullmatch(listed):
                raise ExperimentError(
                    f"{self.name!r}: {shorten(listed)} cannot name an estimator; begin with a "
                    f"letter or digit, and take at most {MAX_NAME_BYTES} bytes"
                )
            with errors_as(ExperimentError, repr(self.name)):
                negatives, cut = str(options.pop(AGAINST, "a")), options.pop(CUT, None)
                use, how = options.pop("stores", ()), options.pop("fusion", self.fusion)
                for store in set(use) - {*stores}:
                    raise ExperimentError(unknown_name("store", str(store), stores))
                senses = self.concept_stores
                spec = EstimatorSpec(name, options, negatives, cut, tuple(use), how, senses)
                specs[listed] = spec
                if self.each_store and spec.fuses and not use:
                    variants = store_variants(listed, stores).items()
                    specs |= {other: replace(spec, use=names) for other, names in variants}
        if len(self.levels) > 2 and (cuts := [n for n, spec in specs.items() if spec.threshold]):
            raise ExperimentError(
                f"{self.name!r}: {CUT} is for two classes, and {cuts[0]} tells {len(self.levels)} "
                "apart; leave it out"
            )
        unweighted = [
            name
            for name, spec in specs.items()
            if not spec.takes_weights and not find_entry(spec.name).before_balancing
        ]
        if self.is_soft and unweighted:
            raise ExperimentError(
                f"{self.name!r}: soft targets weigh a clip's labels, and {unweighted[0]} takes no "
                "sample_weight; leave it out, or take logistic or a class of scikit-learn's"
            )
        return specs

    @property
    def stores(self) -> tuple[Location, ...]:
        """The store or the stores."""
        return self.store if isinstance(self.store, tuple) else (self.store,)

    @property
    def store_names(self) -> list[str]:
        """What the stores are called."""
        return name_stores([*map(str, self.stores)])

    @property
    def label_set(self) -> str | None:
        """The name of the label set, which a plan finds where annotators are named."""
        return None if isinstance(self.labels, tuple) else self.labels

    @property
    def is_soft(self) -> bool:
        """Whether clips train with the label of each annotator."""
        return self.targets == "soft"

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
        reads = any(spec.reads == "frames" for spec in self.learners.values())
        return self.frames if reads else None

    def in_codes(self, scheme: LabelScheme) -> Experiment:
        """The same, by the codes of levels and the names of concepts, whichever were given."""

        def coded(levels: Sequence[str]) -> tuple[str, ...]:
            return tuple(map(scheme.level, levels))

        with errors_as(ExperimentError, repr(self.name)):
            codes: dict[str, Any] = {key: coded(getattr(self, key)) for key in _LEVEL_KEYS}
            codes["concept_stores"] = {scheme.concept(n): s for n, s in self.concept_stores.items()}
            return replace(self, test_negatives=tuple(map(coded, self.test_negatives)), **codes)

    def problems(self, scheme: LabelScheme) -> list[Problem]:
        """What is learned: one problem, or one for each concept."""
        if not self.concepts:
            return [self._level_problem]
        concepts: Sequence[str] = self.concepts
        if ALL in concepts:
            concepts = scheme.visual_concepts
            if not concepts:
                raise ExperimentError(f"the label scheme {scheme.name!r} has no concepts")
        with errors_as(ExperimentError, repr(self.name)):
            names = list(dict.fromkeys(map(scheme.concept, concepts)))
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


def store_variants(model: str, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By name, a model's fits on each store alone, and on all of three or more without it."""
    others = {name: tuple(other for other in names if other != name) for name in names}
    variants: dict[str, tuple[str, ...]] = {f"{model} on {name} alone": (name,) for name in names}
    return variants | {f"{model} without {n}": rest for n, rest in others.items() if len(rest) > 1}


def describe_experiment(experiment: Experiment) -> dict[str, Any]:
    """Every setting as JSON values; paths have slashes, and URLs no secrets."""
    values: dict[str, Any] = asdict(experiment)
    stores = [
        redact_url(store) if is_url(store) else Path(store).as_posix()
        for store in experiment.stores
    ]
    values["manifest"] = experiment.manifest.as_posix()
    values["store"] = stores if isinstance(experiment.store, tuple) else stores[0]
    values["predictions"] = [path.as_posix() for path in experiment.predictions]
    return values


def about_features(experiment: Experiment, store: Store, *, frames: bool = False) -> dict[str, Any]:
    """What a saved model must know of the features, or frames, it fits, to refuse others."""
    attributes = store.attributes
    array = experiment.frames if frames else experiment.array
    return {
        "backbone": attributes["backbone"],
        "preprocessing": attributes["preprocessing"],
        "array": array,
        "shape": next(list(spec.shape) for spec in store.specs if spec.name == array),
        "pooling": None if frames else experiment.pooling,
        **({"missing": experiment.missing} if experiment.missing != "drop" else {}),
    }


def _as_tuple(value: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_as_tuple(part) if isinstance(part, list) else part for part in value)


def load_experiment(path: str | Path, *, only: str | int | None = None) -> Experiment:
    """Read an experiment from a TOML file; its paths are relative to the file's folder.

    With `only`, it has one estimator: that which is listed under this name, or of this number.
    """
    path = Path(path)
    if other := describe_other_kind(path, "the TOML file of an experiment"):
        raise ExperimentError(other)
    table = read_toml(path, ExperimentError)
    for key in table:
        if key not in _HINTS:
            raise ExperimentError(f"{path}: {unknown_name('key', key, _HINTS)}")
    if "store" in table and "stores" in table:
        raise ExperimentError(f"{path}: has store and stores; take stores for several")
    values = {key: _convert(path, key, value) for key, value in table.items()}
    if "stores" in values:
        values["store"] = values.pop("stores")
    for key in ("name", "manifest", "store"):
        if key not in values:
            raise ExperimentError(f"{path}: {key} is missing; add {key} = ..., {_HINTS[key]}")
    entries = values.get("estimators", ())
    if only is not None and entries:
        listed = [e if isinstance(e, str) else e.get(CALLED, e["name"]) for e in entries]
        chosen = tuple(e for row, e in enumerate(entries) if only in (row, listed[row]))
        values["estimators"] = chosen or entries
    with errors_as(ExperimentError, str(path)):
        return Experiment(**values)


def _convert(path: Path, key: str, value: Any) -> Any:
    """A TOML value as the experiment holds it."""
    places = {"store": _Name, "stores": _Names, "manifest": _Name, "predictions": _Names}
    kind = places.get(key) or get_type_hints(Experiment, include_extras=True)[key]
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
            tables = [table for table in value if isinstance(table, dict)]
            msgspec.convert([table.get("name") for table in tables], list[_Name])
    except msgspec.ValidationError:
        raise ExperimentError(f"{path}: {key} must be {_HINTS[key]} (got {original!r})") from None
    if key not in places:
        return converted
    several = converted if isinstance(converted, tuple) else (converted,)
    located = tuple(place if is_url(place) else path.parent / place for place in several)
    return located if isinstance(converted, tuple) else located[0]
