"""Experiments as data, from Python or TOML: the task, features, protocol and estimators."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import chain
from pathlib import Path, PurePath
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta, StructMeta
from msgspec.structs import FieldInfo, force_setattr, replace
from sklearn.pipeline import Pipeline

from obygaze_features.common.files import describe_other_kind, read_toml
from obygaze_features.common.text import redact_url, shorten, unknown_name
from obygaze_features.errors import ExperimentError, errors_as
from obygaze_features.manifests import LabelScheme
from obygaze_features.store.files import is_url
from obygaze_models.data.folds import BALANCES
from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.data.stores import name_stores
from obygaze_models.data.targets import NEGATIVES, TARGETS, Classes, Number
from obygaze_models.data.tasks import (
    Problem,
    concept_task,
    default_negatives,
    level_classes,
    number_task,
    two_classes,
    with_own_keys,
)
from obygaze_models.estimators.registry import NO_PIPELINE, REGRESSORS
from obygaze_models.experiments.spec import AGAINST, CUT, EstimatorSpec, folder_name

ALL = "all"
"""The value of `concepts` for all visual concepts."""
CALLED = "as"
"""The key in an estimator's table that sets the name it is listed under."""


_LISTED = re.compile(r"[^\W_].*")
MAX_NAME_BYTES = 200
"""The maximum length of an estimator's folder name. File systems allow 255 bytes."""

_Name = Annotated[str, Meta(min_length=1)]
_Names = Annotated[tuple[_Name, ...], Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=1)]
_Seed = Annotated[int, Meta(ge=0)]
_LEVEL_KEYS = ("positives", "train_negatives", "levels")
PROTOCOL_KEYS = ("balance", "min_clips", "validation_films")
"""Keys of an experiment that are options of the protocol."""


class _Checked(StructMeta):
    """A metaclass that checks each new `Experiment`, and accepts `stores` instead of `store`.

    Experiments that are decoded from a run's record, or made by `msgspec.structs.replace`, are not
    checked.
    """

    def __call__(self, *values: Any, **keys: Any) -> Any:
        if "stores" in keys and "store" in keys:
            raise ExperimentError("both store and stores are set. Remove one of them")
        if "stores" in keys:
            keys["store"] = keys.pop("stores")
        return super().__call__(*values, **keys).check()


class Experiment(msgspec.Struct, frozen=True, dict=True, metaclass=_Checked):
    """All settings of a run, with the same keys in Python, TOML files and ``run.json``.

    Pass one kind of task: `levels`, `concepts`, a `column`, or `positives` with `train_negatives`.
    Lists are accepted instead of tuples, and paths instead of strings.
    """

    # fmt: off
    name: Annotated[_Name, Meta(
        description="Text. The experiment's name in tables and pages.", examples=["Sure or not"])]
    manifest: Annotated[_Name, Meta(
        description="A folder. The manifest with the labelled items.", examples=["mine"])]
    store: Annotated[_Name | _Names, Meta(
        description="A folder, a zip file or a URL. The store with the features, or a list of "
        "stores, whose features are joined side by side. This key can also be called `stores`.",
        examples=["stores/xclip.zarr"])]
    split: Annotated[str | None, Meta(
        description='`""` for new folds, or the name of a split. The fold column to use.',
        examples=["leak-free"])] = None
    positives: Annotated[tuple[_Name, ...], Meta(
        description="A list of levels. The levels to find, by code or name.",
        examples=[["S"]])] = ()
    train_negatives: Annotated[tuple[_Name, ...], Meta(
        description="A list of levels. The negative levels in training and validation.",
        examples=[["EN"]])] = ()
    test_negatives: Annotated[tuple[_Names, ...], Meta(
        description="A list of lists of levels. The negative levels of each test set; by default "
        "the same as in training.", examples=[[["EN"], ["EN", "HN"]]])] = ()
    levels: Annotated[tuple[_Name, ...], Meta(
        description="A list of levels. Each level is a separate class. Use this key instead of "
        "`positives`.", examples=[["EN", "HN", "S"]])] = ()
    concepts: Annotated[tuple[_Name, ...], Meta(
        description='`"all"` (all visual concepts), or a list of concepts. The concepts to detect, '
        "instead of levels. Each concept is a separate task.", examples=[["Look", "Body"]])] = ()
    negatives: Annotated[_Name | None, Meta(
        description='`"a"`, `"b"` or `"c"`, for concepts (for levels, use train_negatives). '
        "The negatives of a concept: `a` Easy Negatives only, `b` all clips without the concept, "
        "`c` Hard Negative and Sure clips without it. The default is `a` with ObyGaze's levels, "
        "and `b` with your own levels.", examples=["b"])] = None
    target: Annotated[_Name, Meta(
        description='`"classes"` or `"number"`. What to predict: classes, or the number in a '
        "`column`.", examples=["number"])] = Classes.key
    column: Annotated[_Name | None, Meta(
        description='The name of a column. With `target = "number"`, the column of the labels or '
        "of `items.csv` that has each clip's number. Clips with an empty cell are left out.",
        examples=["valence"])] = None
    labels: Annotated[_Name | _Names | None, Meta(
        description='The name of a label set, such as `"paper"`, or a list of annotators\' label '
        "sets. A list selects the set that was merged from the listed sets. By default, the "
        "manifest's default label set is used.", examples=["paper"])] = None
    array: Annotated[_Name, Meta(
        description="The name of an array. The features to use.", examples=["native"])] = "native"
    frames: Annotated[_Name, Meta(
        description="The name of an array. The array for models that read sequences of frames.",
        examples=["frames_temporal"])] = "frames"
    protocol: Annotated[_Name | dict[str, Any] | None, Meta(
        description='The name of a protocol, such as `"leave-film-out"`, or a table with its name '
        "and options. How clips are divided for training, validation and testing: `leak-free`, "
        "`released`, `paper`, `leave-film-out`, `split`, `official`, or a protocol of your own. "
        "The default is `official` if the split is `official` and neither `balance` nor `gap` is "
        "set. Otherwise it is `split`, which tests each fold once.",
        examples=["leave-film-out"])] = None
    groups: Annotated[_Name | None, Meta(
        description='The name of a column, such as `"media"`. The column by which clips are '
        "grouped: `film`, `media` (file), or any column of `items.csv`. `leave-film-out` and new "
        "folds keep groups whole, and scores are means over groups.", examples=["media"])] = None
    min_clips: Annotated[_Count | None, Meta(
        description="A whole number from 1 up. The number of clips of each class that a film or "
        "group needs to be tested by `leave-film-out`; by default 10.", examples=[5])] = None
    validation_films: Annotated[_Count | None, Meta(
        description="A whole number from 1 up. With `leave-film-out`, the number of validation "
        "films to draw for each tested film, with one fit for each; by default all other tested "
        "films. It affects only estimators that use validation clips.", examples=[3])] = None
    gap: Annotated[Annotated[float, Meta(ge=0)], Meta(
        description="A number of seconds from 0 up. Clips within this distance of a test clip in "
        "the same file are left out of training and validation. Without `groups`, new folds are "
        "then stretches of files.",
        examples=[5])] = 0.0
    balance: Annotated[_Name | None, Meta(
        description='`"undersample"`, `"weights"` or `"none"`. How to balance the classes in '
        "training; by default `undersample` (`none` for the target `number`), "
        "unless the protocol fixes the training clips.",
        examples=["weights"])] = None
    predictions: Annotated[tuple[_Name, ...], Meta(
        description="A list of tables. The predictions of your own models.",
        examples=[["mine.csv"]])] = ()
    estimators: Annotated[tuple[_Name | dict[str, Any], ...], Meta(
        description="A list of names, or of tables with a name and options. The models to train.",
        examples=[["logistic", {"name": "mlp", "max_iter": 50}]])] = ("mlp",)
    titles: Annotated[dict[_Name, _Name], Meta(
        description="A table that maps names of models or stores to titles. The titles replace "
        "the names in tables and pages.", examples=[{"logistic": "words"}])] = {}
    headline: Annotated[_Name | None, Meta(
        description="The name of an estimator in the list. The model that the headline is about, "
        "chosen before the test; by default the first of `estimators`.", examples=["mlp"])] = None
    score: Annotated[_Name | None, Meta(
        description="The name of a score. The score that ranks models; by default `auroc` for two "
        "classes, `f1_macro` for more, and `spearman` for numbers.", examples=["f1"])] = None
    seed: Annotated[_Seed, Meta(
        description="A whole number from 0 up. The seed for all random choices: drawing folds, "
        "drawing clips, and the estimators.", examples=[1])] = 0
    seeds: Annotated[tuple[_Seed, ...], Meta(
        description="A list of different whole numbers from 0 up. All fits are repeated with each "
        "of these seeds. The folds are still drawn with `seed`.", examples=[[0, 1, 2]])] = ()
    # fmt: on

    def __post_init__(self) -> None:
        for key in self.__struct_fields__:
            force_setattr(self, key, _as_held(key, getattr(self, key)))
        for entry in self.estimators if isinstance(self.estimators, tuple) else ():
            if not (isinstance(entry, str) or (isinstance(entry, dict) and "name" in entry)):
                unnamed: object = entry  # a class or an object, against the types
                remedy = f"{{'name': '{_public_path(type(unnamed))}', ...}}"
                if isinstance(unnamed, type):
                    remedy = repr(_public_path(unnamed))
                if isinstance(unnamed, Pipeline):
                    raise ExperimentError(f"{self.name!r}: {NO_PIPELINE}")
                raise ExperimentError(
                    f"{self.name!r}: estimators are names, or tables with a name and options "
                    f"(got {shorten(repr(entry))}). Write {remedy}"
                )
        if isinstance(self.protocol, dict):
            self._settle_protocol(dict(self.protocol))

    def _settle_protocol(self, table: dict[str, Any]) -> None:
        """Move options that have their own keys, and replace a table that has only a name."""
        if not isinstance(table.get("name"), str):
            raise ExperimentError(f'{self.name!r}: [protocol] has no name. Add name = "split"')
        for key in PROTOCOL_KEYS:
            if key in table:
                if getattr(self, key) not in (None, table[key]):
                    raise ExperimentError(
                        f"{self.name!r}: {key} has different values at the top level and in "
                        "[protocol]. Remove one of them"
                    )
                force_setattr(self, key, table.pop(key))
        force_setattr(self, "protocol", table if len(table) > 1 else table["name"])

    def check(self) -> Experiment:
        """Return the experiment; raise `ExperimentError` if values are invalid or conflict."""
        slips = (
            self._misfits(),
            self._unknown_names(),
            self._protocol_slips(),
            self._task_slips(),
            self._target_slips(),
        )
        for slip in chain.from_iterable(slips):
            raise ExperimentError(f"{self.name!r}: {slip}")
        _ = self.learners
        # Tables of predictions add models, which are known only to the plan.
        if not self.predictions:
            self.check_models([*self.learners])
        return self

    def _misfits(self) -> Iterator[str]:
        """Yield a sentence for each value of the wrong type, and for duplicate seeds."""
        for key, field in experiment_fields().items():
            value = getattr(self, key)
            try:
                msgspec.convert(value, field.type)
            except msgspec.ValidationError:
                yield f"{_requirement(key)} (got {value!r})"
        if len(set(self.seeds)) < len(self.seeds):
            yield f"{_requirement('seeds')} (got {self.seeds!r})"

    def _unknown_names(self) -> Iterator[str]:
        """Yield a sentence for each unknown name."""
        several = len(self.levels) > 2
        target = TARGETS.get(self.target, Classes())
        for kind, value, names in (
            ("protocol", self.protocol_name, PROTOCOLS),
            ("balance", self.balance, BALANCES),
            ("set of negatives", self.negatives, NEGATIVES),
            ("target", self.target, TARGETS),
            (
                "score of several classes" if several else "score",
                self.score,
                target.ranking_scores(several=several),
            ),
        ):
            if value is not None and value not in names:
                yield unknown_name(kind, value, names)

    def _protocol_slips(self) -> Iterator[str]:
        """Yield a sentence for each option that the protocol does not accept."""
        balanced = [name for name, kind in PROTOCOLS.items() if kind.default_balance]
        for key in ("balance", "gap"):
            if getattr(self, key) and self.protocol_name not in (None, *balanced):
                yield (
                    f"{key} has no effect with the protocol {self.protocol_name}, which fixes the "
                    f"training clips. Leave the key out, or use {' or '.join(balanced)}"
                )
        for key in ("min_clips", "validation_films"):
            if getattr(self, key) is not None and key not in self._protocol_keywords:
                yield f'{key} needs protocol = "leave-film-out". Add it, or leave the key out'
        yield from self._option_slips()
        if self.protocol_name == "paper" and self.levels:
            yield f"the paper's protocol is for two classes (got {len(self.levels)}). Use leak-free"

    def _task_slips(self) -> Iterator[str]:
        """Yield a sentence for each conflict between classes or negatives."""
        kinds = {
            "positives": self.positives or self.train_negatives or self.test_negatives,
            "levels": self.levels,
            "concepts": self.concepts,
            "column": self.column,
        }
        first, *others = [kind for kind, value in kinds.items() if value] or ["positives"]
        if others:
            yield f"both {first} and {others[0]} are set. Use only one of them"
        for key in ("positives", "train_negatives"):
            if first == "positives" and not getattr(self, key):
                yield f"{key} is missing. Add {key} = {_example(key)}"
        if self.negatives not in (None, "a") and not self.concepts:
            yield (
                "negatives needs concepts. Remove it. For the concepts of a bottleneck, add "
                f'{{name = "pcbm-tree", {AGAINST} = "{self.negatives}"}} to estimators'
            )
        negatives_of_all = {level for test in self.test_negatives for level in test}
        for level in sorted({*self.positives} & ({*self.train_negatives} | negatives_of_all)):
            yield f"level {level} is both positive and negative. Remove it from one of the lists"
        if len(set(self.test_negatives)) < len(self.test_negatives):
            yield "test_negatives has a duplicate test set. Remove the duplicate"

    def _target_slips(self) -> Iterator[str]:
        """Yield a sentence for each key that conflicts with the target."""
        if self.target == Number.key and not self.column:
            yield f'target = "{self.target}" needs column. Add column = {_example("column")}'
        if self.column and self.target != Number.key:
            yield f'column is for numbers. Add target = "{Number.key}", or leave column out'
        if self.target == Classes.key:
            return
        if self.protocol_name in ("paper", "released"):
            yield f"the protocol {self.protocol_name} is for two classes. Use leave-film-out"
        if self.labels:
            yield f'target = "{self.target}" cannot be combined with labels. Leave that key out'
        if self.balance not in (None, "none"):
            yield f'balance = "{self.balance}" works only for classes. Leave balance out'
        if len(self.stores) > 1:
            yield f'target = "{self.target}" needs one store. Name one, or set target = "classes"'

    def _estimator_slip(self, name: str, spec: EstimatorSpec) -> str:
        """Return why an estimator conflicts with other keys, or "" if it does not."""
        if self.target == Number.key and not spec.predicts_numbers:
            return (
                f"{name} predicts classes, not numbers. Use {', '.join(REGRESSORS)}, or any "
                "scikit-learn regressor as package.module:Class"
            )
        if spec.predicts_numbers and self.target == Classes.key:
            return (
                f"{name} predicts numbers, not classes. Use a classifier, such as logistic, or "
                'target = "number"'
            )
        if spec.threshold and self.target != Classes.key:
            return f'{CUT} works only with target = "classes". Leave it out of {name}'
        if spec.threshold and len(self.levels) > 2:
            return f"{CUT} needs two classes (got {len(self.levels)}). Leave it out of {name}"
        return ""

    def _option_slips(self) -> Iterator[str]:
        """Yield a sentence for each invalid option in the protocol's table."""
        if not self.protocol_options:
            return
        keywords, hints = self._protocol_keywords, {}
        with suppress(NameError):  # for the type hints of a local class
            hints = get_type_hints(PROTOCOLS[self.protocol_name or ""].__init__)
        for key, value in self.protocol_options.items():
            if key not in keywords:
                yield f"protocol: {unknown_name('option', key, keywords)}"
            try:
                msgspec.convert(value, hints.get(key, Any))
            except msgspec.ValidationError as problem:
                yield f"protocol: {key} = {as_toml(value)}: {problem}"

    def _called_twice(self, listed: str, name: str) -> ExperimentError:
        return ExperimentError(
            f"{self.name!r}: two estimators are called {listed!r} (ignoring punctuation and "
            f'case). Rename one: {{name = "{name}", {CALLED} = "..."}}'
        )

    @cached_property
    def learners(self) -> dict[str, EstimatorSpec]:
        """The estimators to fit, by the name that each is listed under."""
        specs: dict[str, EstimatorSpec] = {}
        folders = set()
        stores = self.store_names if len(self.stores) > 1 else []
        for entry in self.estimators:
            options = {"name": entry} if isinstance(entry, str) else dict(entry)
            name = str(options.pop("name"))
            listed = str(options.pop(CALLED, name))
            folder = folder_name(listed)
            if folder.casefold() in folders:
                raise self._called_twice(listed, name)
            folders.add(folder.casefold())
            if len(folder.encode()) > MAX_NAME_BYTES or not _LISTED.fullmatch(listed):
                raise ExperimentError(
                    f"{self.name!r}: {shorten(listed)} cannot be the name of an estimator in a "
                    f"run. Choose a name of at most {MAX_NAME_BYTES} bytes that starts with a "
                    f'letter or digit: {{name = "{name}", {CALLED} = "mine"}}'
                )
            with errors_as(ExperimentError, repr(self.name)):
                negatives, cut = str(options.pop(AGAINST, "a")), options.pop(CUT, None)
                use = options.pop("stores", ())
                for store in set(use) - {*stores}:
                    raise ExperimentError(unknown_name("store", str(store), stores))
                numbers = self.target == Number.key
                specs[listed] = EstimatorSpec(
                    name, options, negatives, cut, tuple(use), numbers=numbers
                )
        for name, spec in specs.items():
            if slip := self._estimator_slip(name, spec):
                raise ExperimentError(f"{self.name!r}: {slip}")
        return specs

    def check_models(self, models: Sequence[str]) -> None:
        """Raise `ExperimentError` if `headline` or `titles` name an unknown model."""
        if self.headline and self.headline not in models:
            unknown = unknown_name("estimator", self.headline, models)
            raise ExperimentError(f"{self.name!r}: headline: {unknown}")
        for slip in self._title_slips(models):
            raise ExperimentError(f"{self.name!r}: titles: {slip}")

    def _title_slips(self, models: Sequence[str]) -> Iterator[str]:
        """Yield a sentence for each title of an unknown model or store, and for each duplicate."""
        names = [*models, *self.store_names]
        for name in self.titles:
            if name not in names:
                yield unknown_name("model or store", name, names)
        for alike in (models, self.store_names):
            titles = [self.titles.get(name, name) for name in alike]
            for title in self.titles.values():
                if titles.count(title) > 1:
                    yield f"the title {title!r} is used twice. Change one of them"

    def title_of(self, model: str) -> str:
        """Return a model's name for use in tables: its title, or its name if it has no title."""
        return self.titles.get(model, model)

    @property
    def stores(self) -> tuple[str, ...]:
        """The store or stores, as a tuple."""
        return (self.store,) if isinstance(self.store, str) else self.store

    @property
    def store_names(self) -> list[str]:
        """The names of the stores."""
        return name_stores(self.stores)

    @property
    def protocol_name(self) -> str | None:
        """The name of the protocol, or None."""
        return self.protocol["name"] if isinstance(self.protocol, dict) else self.protocol

    @property
    def protocol_options(self) -> dict[str, Any]:
        """The options of the protocol that have no keys of their own."""
        table = self.protocol if isinstance(self.protocol, dict) else {}
        return {key: value for key, value in table.items() if key != "name"}

    @property
    def _protocol_keywords(self) -> list[str]:
        """The options that the protocol accepts."""
        return PROTOCOLS[self.protocol_name].options() if self.protocol_name else []

    def without_secrets(self) -> Experiment:
        """Return the experiment without user names, passwords and queries in URLs."""
        stores = tuple(map(redact_url, self.stores))
        return replace(self, store=stores[0] if isinstance(self.store, str) else stores)

    @property
    def label_set(self) -> str | None:
        """The name of the label set, or None if `labels` is None or lists annotators."""
        return None if isinstance(self.labels, tuple) else self.labels

    @property
    def goal(self) -> str:
        """A description of what is learned and tested."""
        if self.concepts:
            names = "all visual concepts" if ALL in self.concepts else ", ".join(self.concepts)
            return f"{names} (against {NEGATIVES[self.negatives]})" if self.negatives else names
        if self.levels:
            return " / ".join(self.levels)
        if self.column:
            return f"the number in {self.column}"
        positives = "+".join(self.positives)
        negatives = [self.train_negatives, *(self.test_negatives or [self.train_negatives])]
        train, *tests = (f"{'+'.join(levels)} vs {positives}" for levels in negatives)
        return f"{train}, test on {', '.join(tests)}"

    @property
    def feature(self) -> str:
        """A description of the array, and the frame array if any."""
        if self.frame_array:
            return f"{self.array} and {self.frame_array} (sequences)"
        return self.array

    @property
    def frame_array(self) -> str | None:
        """The array of frames, or None if no estimator reads frames."""
        reads = any(spec.reads == "frames" for spec in self.learners.values())
        return self.frames if reads else None

    def in_codes(self, scheme: LabelScheme) -> Experiment:
        """Return the experiment with levels as codes, and concepts by their names in the scheme."""

        def coded(levels: Sequence[str]) -> tuple[str, ...]:
            return tuple(map(scheme.level, levels))

        with errors_as(ExperimentError, repr(self.name)):
            codes: dict[str, Any] = {key: coded(getattr(self, key)) for key in _LEVEL_KEYS}
            default = default_negatives(scheme) if self.concepts else "a"
            codes["negatives"] = self.negatives or default
            tests = tuple(map(coded, self.test_negatives))
            return replace(self, test_negatives=tests, **codes).check()

    def problems(self, scheme: LabelScheme) -> list[Problem]:
        """Return the problems to learn: a single problem, or one per concept."""
        if self.column:
            task = number_task(self.column)
            return [Problem(task, (task,))]
        if self.levels:
            task = level_classes(scheme.name_of, self.levels)
            return [Problem(task, (task,))]
        if not self.concepts:
            negatives = [self.train_negatives, *(self.test_negatives or [self.train_negatives])]
            tasks = [two_classes(scheme.name_of, self.positives, levels) for levels in negatives]
            train, *tests = with_own_keys(tasks)
            return [Problem(train, tuple(tests))]
        concepts: Sequence[str] = self.concepts
        if ALL in concepts:
            concepts = scheme.visual_concepts
            if not concepts:
                raise ExperimentError(f"the label scheme {scheme.name!r} has no visual concepts")
        with errors_as(ExperimentError, repr(self.name)):
            names = list(dict.fromkeys(map(scheme.concept, concepts)))
        against = self.negatives or default_negatives(scheme)
        tasks = [concept_task(scheme.name_of, name, against) for name in names]
        return [Problem(task, (task,)) for task in tasks]


def _as_held(key: str, value: Any) -> Any:
    """Return a key's value as it is stored; "all" and single test sets become tuples."""
    if key == "concepts" and value == ALL:
        return (ALL,)
    value = _plain(value)
    is_one_test = key == "test_negatives" and isinstance(value, tuple) and value
    return (value,) if is_one_test and isinstance(value[0], str) else value


def _plain(value: Any) -> Any:
    """Convert paths to text with slashes, and lists to tuples."""
    if isinstance(value, PurePath):
        return value.as_posix()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


@cache
def experiment_fields() -> dict[str, FieldInfo]:
    """Return the fields of an experiment by key, in order."""
    return {field.name: field for field in msgspec.structs.fields(Experiment)}


def _example(key: str) -> str:
    """Return an example of a key's value, as in a TOML file."""
    return as_toml(experiment_fields()[key].type.__metadata__[-1].examples[0])


def _sentences(key: str) -> tuple[str, str]:
    """Split a key's description into its kind of value (with an example) and its meaning."""
    text: str = experiment_fields()[key].type.__metadata__[-1].description
    kind, _, rest = text.partition(". ")
    kind, example = kind.rstrip("."), f"`{_example(key)}`"
    return kind if example in kind else f"{kind}, such as {example}", rest


def _requirement(key: str) -> str:
    """Return a sentence on what the value of a key must be."""
    kind = _sentences(key)[0].replace("`", "")
    return f"{key} must be {kind[0].lower()}{kind[1:]}"


def describe_key(key: str) -> str:
    """Return a key's kind of value, meaning and default, in Markdown."""
    kind, rest = _sentences(key)
    field = experiment_fields()[key]
    if field.required or field.default in (None, (), msgspec.NODEFAULT):
        return f"{kind}. {rest}".rstrip()
    return f"{kind}. {rest} The default is `{as_toml(field.default)}`.".replace("  ", " ")


def as_toml(value: Any) -> str:
    """Format a value as TOML.

    Examples
    --------
    >>> as_toml({"name": "mlp", "hidden_layer_sizes": [8], "early_stopping": True})
    '{name = "mlp", hidden_layer_sizes = [8], early_stopping = true}'
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {as_toml(part)}' for key, part in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    return json.dumps(value, ensure_ascii=False, default=str)


def load_experiment(
    path: str | Path, *, only: str | int | None = None, predictions: Sequence[str | Path] = ()
) -> Experiment:
    """Read an experiment from a TOML file. Paths in the file are relative to its folder.

    With `only`, keep a single estimator, given by the name it is listed under or by its number.
    `predictions` are tables of predictions to add to the tables in the file.
    """
    path = Path(path)
    if problem := describe_other_kind(path, "the TOML file of an experiment"):
        raise ExperimentError(problem)
    table = read_toml(path, ExperimentError)
    _check_keys(path, table)
    for key in ("manifest", "store", "stores", "predictions"):
        if key in table:
            table[key] = _beside(path, table[key])
    if only is not None and isinstance(table.get("estimators"), list):
        table["estimators"] = _choose(table["estimators"], only)
    if only is not None:
        table.pop("headline", None)  # the headline is about the single model
    if predictions:
        table["predictions"] = [*table.get("predictions", ()), *map(str, predictions)]
    with errors_as(ExperimentError, str(path)):
        return Experiment(**table)


def _check_keys(path: Path, table: dict[str, Any]) -> None:
    """Raise `ExperimentError` if the file has an unknown key or lacks a required key."""
    fields = experiment_fields()
    keys = [*fields, "stores"]
    for key in table:
        if key not in keys:
            raise ExperimentError(f"{path}: {unknown_name('key', key, keys)}")
    for key, field in fields.items():
        if field.required and key not in table and not (key == "store" and "stores" in table):
            raise ExperimentError(f"{path}: {key} is missing. Add {key} = {_example(key)}")


def _beside(path: Path, value: Any) -> Any:
    """Resolve relative paths against the file's folder; leave URLs and other values unchanged."""
    if isinstance(value, list):
        return [_beside(path, part) for part in value]
    is_relative = isinstance(value, str) and value and not is_url(value)
    return path.parent / value if is_relative else value


def _choose(entries: list[Any], only: str | int) -> list[Any]:
    """Return the estimator with the given name or number, or all estimators if none matches."""
    names = [entry.get(CALLED, entry.get("name")) if isinstance(entry, dict) else entry
             for entry in entries]  # fmt: skip
    chosen = [entry for row, entry in enumerate(entries) if only in (row, names[row])]
    return chosen or entries


def _document() -> None:
    """Add the keys to the docstring of `Experiment`."""
    keys = "\n".join(f"    {key}\n        {describe_key(key)}" for key in experiment_fields())
    keys = keys.replace("`", "``")
    Experiment.__doc__ = f"{Experiment.__doc__}\n    Parameters\n    ----------\n{keys}\n"


_document()


def _public_path(kind: type) -> str:
    """Return the shortest path that a class can be imported from, as "MODULE:CLASS"."""
    parts = kind.__module__.split(".")
    for length in range(1, len(parts)):
        module = sys.modules.get(".".join(parts[:length]))
        if getattr(module, kind.__qualname__, None) is kind:
            return f"{'.'.join(parts[:length])}:{kind.__qualname__}"
    return f"{kind.__module__}:{kind.__qualname__}"
