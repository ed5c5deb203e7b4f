"""Experiments as data, from Python or TOML: the task, features, protocol and estimators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from obygaze_features.common.files import read_toml
from obygaze_features.common.names import unknown_name
from obygaze_features.errors import ExperimentError, errors_as, translate
from obygaze_features.manifests import LabelScheme
from obygaze_features.store.files import is_url
from obygaze_models.data.folds import BALANCE, Balance
from obygaze_models.data.splitters import PROTOCOLS, DrawnSplitter, Splitter
from obygaze_models.data.tasks import Task, make_task, number_task, require_own_keys
from obygaze_models.estimators.registry import make_estimator
from obygaze_models.experiments.learner import Learner

Text = Annotated[str, Meta(min_length=1)]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1)]
Seed = Annotated[int, Meta(ge=0)]
WEIGHTS = ("class_weight", "head__class_weight")
"""The parameters that weight classes."""
OFFICIAL = "official"
"""The name of the split, and of the protocol, for a benchmark's own sets."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a run, with the same keys in Python, TOML files and ``run.json``.

    ``docs/reference/configuration.md`` describes the keys. Pass one kind of task: `levels`,
    `concepts`, a `column`, or `positives` with `train_negatives`.
    """

    name: Text
    manifest: Text
    store: Text | Texts
    array: Text = "native"
    frames: Text = "frames"
    labels: Text | None = None
    positives: tuple[Text, ...] = ()
    train_negatives: tuple[Text, ...] = ()
    test_negatives: tuple[Texts, ...] = ()
    levels: tuple[Text, ...] = ()
    concepts: tuple[Text, ...] | Literal["all"] = ()
    negatives: Literal["a", "b", "c"] | None = None
    column: Text | None = None
    protocol: Text | dict[str, Any] | None = None
    split: str | None = None
    groups: Text | None = None
    gap: Annotated[float, Meta(ge=0)] = 0.0
    balance: Balance | None = None
    estimators: tuple[Text | dict[str, Any], ...] = ("mlp",)
    predictions: tuple[Text, ...] = ()
    score: Text | None = None
    seed: Seed = 0
    seeds: tuple[Seed, ...] = ()

    def __post_init__(self) -> None:
        for entry in self.estimators if isinstance(self.estimators, list | tuple) else ():
            if hasattr(entry, "fit"):  # a dataclass would become a table
                raise ExperimentError(
                    f"{self.name!r}: an experiment names estimators, so that it can be written to "
                    f"a file. Pass {type(entry).__name__} objects to om.cross_validate"
                )
        for key in msgspec.structs.fields(self):
            try:
                plain = msgspec.to_builtins(getattr(self, key.name), enc_hook=_as_text)
                value = msgspec.convert(plain, key.type)
            except msgspec.ValidationError as problem:
                raise ExperimentError(f"{self.name!r}: {key.name}: {problem}") from None
            force_setattr(self, key.name, value)

    def check(self) -> Experiment:
        """Return the experiment; raise `ExperimentError` for a slip that shows without data."""
        slip = self._slip()
        if slip:
            raise ExperimentError(f"{self.name!r}: {slip}")
        return self

    def _slip(self) -> str:
        """Return the first conflict between keys, or ""."""
        kinds = {
            "positives": self.positives or self.train_negatives,
            "levels": self.levels,
            "concepts": self.concepts,
            "column": self.column,
        }
        given = [key for key, value in kinds.items() if value]
        if len(given) != 1:
            return f"set exactly one of {', '.join(kinds)} (got {', '.join(given) or 'none'})"
        if self.negatives and not self.concepts:
            return "negatives needs concepts. Use train_negatives, or an estimator's negatives"
        if not (self.estimators or self.predictions):
            return "there are no estimators and no predictions. Add an estimator"
        name = self.protocol_name
        splitter_class = type(self.splitter())
        if (self.balance or self.gap) and not issubclass(splitter_class, DrawnSplitter):
            return f"the protocol {name} fixes the training clips. Remove balance and gap"
        if splitter_class.two_classes and (self.column or self.levels):
            return f"the protocol {name} is for two classes. Use leave-film-out"
        self.models()  # raises an error that names the estimator
        return ""

    def models(self) -> dict[str, Learner]:
        """Return the models to fit, by the name that each is listed under.

        They have the class weights that the balance asks for.
        """
        models = {}
        for entry in self.estimators:
            options = {"name": entry} if isinstance(entry, str) else dict(entry)
            name = str(options.pop("name", ""))
            listed = str(options.pop("as", name))
            use = {key: options.pop(key) for key in ("negatives", "threshold") if key in options}
            use |= {"name": name, "options": options, "estimator": make_estimator(name, options)}
            try:
                learner = msgspec.convert(use, Learner)
            except msgspec.ValidationError as problem:
                raise ExperimentError(f"{self.name!r}: {listed}: {problem}") from None
            if self.balance == "weights" and not learner.is_guess:
                parameters = learner.estimator.get_params(deep=True)
                unset = {*WEIGHTS} & (parameters.keys() - options)
                learner.estimator.set_params(**dict.fromkeys(unset, "balanced"))
            if listed in models:
                raise ExperimentError(
                    f'{self.name!r}: two models are called {listed}. Rename one with "as"'
                )
            models[listed] = learner
        return models

    @property
    def protocol_name(self) -> str:
        """The name of the protocol."""
        name = self.protocol
        if isinstance(name, dict):
            name = name.get("name")
        is_official = self.split == OFFICIAL and not self.balance and not self.gap
        return name or (OFFICIAL if is_official else "split")

    @property
    def protocol_options(self) -> dict[str, Any]:
        """The options of the protocol."""
        table = self.protocol if isinstance(self.protocol, dict) else {}
        return {key: value for key, value in table.items() if key != "name"}

    def splitter(self, **more: Any) -> Splitter:
        """Return the splitter of the protocol, with checked options."""
        name = self.protocol_name
        splitter_class = find_protocol(name)
        options = {**self.protocol_options, "random_state": self.seed, **more}
        if issubclass(splitter_class, DrawnSplitter):
            default = "none" if self.column else BALANCE
            options |= {"balance": self.balance or default, "gap": self.gap}
        with translate(
            ExperimentError, f"{self.name!r}", f": protocol {name}: {{}}", foreign=TypeError
        ):
            return splitter_class(**options)

    def tasks(self, scheme: LabelScheme) -> dict[Task, Sequence[Task]]:
        """Return the tasks to learn (one, or one per concept), with the tests of each."""
        tasks = []
        with errors_as(ExperimentError, repr(self.name)):
            if self.positives or self.train_negatives:
                for negatives in (self.train_negatives, *self.test_negatives):
                    tasks.append(make_task(scheme, positives=self.positives, negatives=negatives))
                require_own_keys(tasks)
                train, *tests = tasks
                return {train: tests or [train]}

            if self.column:
                tasks.append(number_task(self.column))
            elif self.levels:
                tasks.append(make_task(scheme, levels=self.levels))
            concepts = self.concepts
            if "all" in (concepts, *concepts):
                concepts = tuple(scheme.visual_concepts)
                if not concepts:
                    raise ExperimentError(
                        f"the scheme {scheme.name!r} has no visual concepts. List concepts by name"
                    )
            for concept in dict.fromkeys(map(scheme.concept, concepts)):
                tasks.append(make_task(scheme, concept=concept, negatives=self.negatives or ""))
        return {task: [task] for task in tasks}


def find_protocol(name: str) -> type[Splitter]:
    """Return the splitter of a protocol."""
    from obygaze_models.studies.reproduce.protocols import OF_PAPER

    known = PROTOCOLS | OF_PAPER
    if name not in known:
        raise ExperimentError(
            f"{unknown_name('protocol', name, known)} (for your own protocol, import the module "
            "that defines it; see docs/how-to/extend.md)"
        )
    return known[name]


def _as_text(value: Any) -> str:
    """Convert a path to text with slashes."""
    if isinstance(value, PurePath):
        return value.as_posix()
    raise msgspec.ValidationError(
        f"a {type(value).__name__} cannot be a value: use text, numbers, lists or tables"
    )


def load_experiment(path: str | Path, *, predictions: Sequence[str | Path] = ()) -> Experiment:
    """Read an experiment from a TOML file. Paths in the file are relative to its folder.

    `predictions` are tables of predictions to add to those that the file names.
    """
    path = Path(path)
    table = read_toml(path, ExperimentError)
    known = Experiment.__struct_fields__
    for key in table:
        if key not in known:
            raise ExperimentError(f"{path}: {unknown_name('key', key, known)}")
    for key in ("manifest", "store", "predictions"):
        if key in table:
            table[key] = _beside(path, table[key])
    if predictions:
        table["predictions"] = [*table.get("predictions", ()), *map(str, predictions)]
    missing = translate(ExperimentError, path, ": {}", foreign=TypeError)
    with missing, errors_as(ExperimentError, str(path)):
        return Experiment(**table).check()


def _beside(path: Path, value: Any) -> Any:
    """Resolve relative paths against the file's folder; leave URLs unchanged."""
    if isinstance(value, list):
        return [_beside(path, part) for part in value]
    if not isinstance(value, str) or not value or is_url(value):
        return value
    return path.parent / value
