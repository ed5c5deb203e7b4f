"""Experiments as data, from Python or TOML: the task, features, protocol and estimators."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr
from sklearn.base import is_regressor

from obygaze_features.common.files import read_toml
from obygaze_features.common.text import shorten, unknown_name
from obygaze_features.errors import ExperimentError, errors_as, translate
from obygaze_features.manifests import LabelScheme
from obygaze_features.store.files import is_url
from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.data.targets import TARGETS, Classes, Number
from obygaze_models.data.tasks import Problem, make_task, number_task, require_own_keys
from obygaze_models.estimators.classes import keywords, reads_of
from obygaze_models.estimators.registry import (
    best_of,
    find_entry,
    make_estimator,
    modules_of,
    plugin_errors,
)

Text = Annotated[str, Meta(min_length=1)]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1)]
Seed = Annotated[int, Meta(ge=0)]
LISTED = re.compile(r"[^\W_].*")
MAX_NAME_BYTES = 200
"""The maximum length of an estimator's folder name. File systems allow 255 bytes."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
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
    balance: Literal["undersample", "weights", "none"] | None = None
    estimators: tuple[Text | dict[str, Any], ...] = ("mlp",)
    predictions: tuple[Text, ...] = ()
    score: Text | None = None
    seed: Seed = 0
    seeds: tuple[Seed, ...] = ()

    def __post_init__(self) -> None:
        for key in msgspec.structs.fields(self):
            try:
                plain = msgspec.to_builtins(getattr(self, key.name), enc_hook=_as_text)
                value = msgspec.convert(plain, key.type)
            except msgspec.ValidationError as problem:
                raise ExperimentError(f"{self.name!r}: {key.name}: {problem}") from None
            force_setattr(self, key.name, value)

    def check(self) -> Experiment:
        """Return the experiment; raise `ExperimentError` if keys conflict or names are unknown.

        Experiments in a run's header are not checked, because a check imports their estimators.
        """
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
        given = [kind for kind, value in kinds.items() if value]
        if len(given) != 1:
            return f"set exactly one of {', '.join(kinds)} (got {', '.join(given) or 'none'})"
        if self.negatives and not self.concepts:
            return "negatives needs concepts. Use train_negatives, or an estimator's negatives"
        target = TARGETS[Number.key if self.column else Classes.key]
        scores = target.ranking_scores(several=len(self.levels) > 2)
        if self.score and self.score not in scores:
            return unknown_name("score", self.score, scores)
        if not (self.estimators or self.predictions):
            return "there are no estimators and no predictions. Add an estimator"
        return self._protocol_slip() or self._learner_slip()

    def _protocol_slip(self) -> str:
        """Return a conflict with the protocol, or ""."""
        name = self.protocol_name
        if name is None:
            return ""
        if name not in PROTOCOLS:
            return unknown_name("protocol", name, PROTOCOLS)
        protocol = PROTOCOLS[name]
        if (self.balance or self.gap) and not protocol.balance:
            return f"the protocol {name} fixes the training clips. Remove balance and gap"
        if protocol.two_classes and (self.column or len(self.levels) > 2):
            return f"the protocol {name} is for two classes. Use leave-film-out"
        return ""

    def _learner_slip(self) -> str:
        """Return a conflict between the task and the estimators, or ""."""
        for name, learner in self.learners.items():
            if is_regressor(learner.estimator) != bool(self.column):
                return f"{name} does not predict {'numbers' if self.column else 'classes'}"
            if learner.threshold and (self.column or len(self.levels) > 2):
                return f"threshold needs two classes. Leave it out of {name}"
        return ""

    @cached_property
    def learners(self) -> dict[str, Learner]:
        """The estimators to fit, by the name that each is listed under."""
        learners: dict[str, Learner] = {}
        folders = set()
        for entry in self.estimators:
            options = {"name": entry} if isinstance(entry, str) else dict(entry)
            name = str(options.pop("name", ""))
            listed = str(options.pop("as", name))
            folder = folder_name(listed).casefold()
            if folder in folders:
                raise ExperimentError(
                    f'two estimators have (nearly) the same name, {listed!r}. Set "as" for one'
                )
            if not LISTED.fullmatch(listed) or len(folder.encode()) > MAX_NAME_BYTES:
                raise ExperimentError(
                    f"{self.name!r}: {shorten(listed)!r} cannot be the name of an estimator in a "
                    f"run. Start with a letter or digit, and use at most {MAX_NAME_BYTES} bytes"
                )
            folders.add(folder)
            own = {key: options.pop(key) for key in ("negatives", "threshold") if key in options}
            values = {"name": name, "options": options, **own}
            try:
                learners[listed] = msgspec.convert(values, Learner)
            except msgspec.ValidationError as problem:
                raise ExperimentError(f"{self.name!r}: {listed}: {problem}") from None
        return learners

    @property
    def protocol_name(self) -> str | None:
        """The name of the protocol, or None."""
        return self.protocol.get("name") if isinstance(self.protocol, dict) else self.protocol

    @property
    def protocol_options(self) -> dict[str, Any]:
        """The options of the protocol."""
        table = self.protocol if isinstance(self.protocol, dict) else {}
        return {key: value for key, value in table.items() if key != "name"}

    def problems(self, scheme: LabelScheme) -> list[Problem]:
        """Return the problems to learn: a single problem, or one per concept."""
        tasks = []
        with errors_as(ExperimentError, repr(self.name)):
            if self.positives or self.train_negatives:
                for negatives in (self.train_negatives, *self.test_negatives):
                    tasks.append(make_task(scheme, positives=self.positives, negatives=negatives))
                require_own_keys(tasks)
                train, *tests = tasks
                return [Problem(train, tuple(tests or [train]))]

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
        return [Problem(task, (task,)) for task in tasks]


class Learner(msgspec.Struct, frozen=True, dict=True):
    """An entry in the list of estimators.

    `negatives` is the set of negatives of its concepts (see `Task`), or "" for the default. With
    `threshold`, the threshold for the second of two classes is chosen on validation clips.
    """

    name: str
    options: dict[str, Any] = {}
    negatives: Literal["", "a", "b", "c"] = ""
    threshold: Literal["validation"] | None = None

    @cached_property
    def estimator(self) -> Any:
        """The unfitted estimator."""
        return make_estimator(self.name, self.options)

    @cached_property
    def reads(self) -> str:
        """The input of the estimator: ``features``, ``frames`` or ``groups``."""
        with plugin_errors(modules_of(self.estimator)):
            return reads_of(best_of(self.estimator))

    @property
    def is_guess(self) -> bool:
        """True if the estimator counts classes, and so is fitted before balancing."""
        return find_entry(self.name).before_balancing

    @cached_property
    def uses_validation(self) -> bool:
        """True if the estimator uses validation clips to stop early, choose settings or learn."""
        names = keywords(self.estimator.fit)
        return bool(self.threshold) or any(name.endswith("_val") for name in names)


def folder_name(text: str) -> str:
    """Replace all but letters, digits, ``_``, ``+`` and ``.`` with dashes."""
    return re.sub(r"[^\w+.]+", "-", text)


def _as_text(value: Any) -> str:
    """Convert a path to text with slashes."""
    if isinstance(value, PurePath):
        return value.as_posix()
    raise msgspec.ValidationError(f"{type(value).__name__} cannot be a value of an experiment")


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
