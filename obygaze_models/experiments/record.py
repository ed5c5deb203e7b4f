"""``run.json``: the data, settings and scores of a run, as types.

Records are read and written only in this module. `obygaze_models.experiments.run_folder` reads the
other files of a run folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from obygaze_features.common.files import read_format, write_text
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import group_noun
from obygaze_features.manifests import LabelScheme, Manifest, obygaze_scheme
from obygaze_models.data.dataset import Joined
from obygaze_models.data.tasks import Task
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.saved.about import convert
from obygaze_models.scoring.annotators import AnnotatorComparison
from obygaze_models.scoring.intervals import MIN_GROUPS
from obygaze_models.scoring.metrics import Scores

FORMAT = "obygaze-run"
FORMAT_VERSION = 7
RECORD = "run.json"
MAX_FILMS_NAMED = 3
MAKE = "obygaze models run EXPERIMENT.toml"

_SOME = msgspec.Meta(min_length=1)
"""A constraint: at least one element."""


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the record, whose fields are the keys of the file."""


class _Versions(_Part, frozen=True, kw_only=True, rename={"scikit_learn": "scikit-learn"}):
    """The libraries that a report names."""

    obygaze: str
    scikit_learn: str
    torch: str


class _Config(_Part, frozen=True, kw_only=True):
    """The settings of a backbone that the report reads."""

    vision_config: dict[str, Any] = {}


class _Backbone(_Part, frozen=True, kw_only=True):
    """The keys of a store's backbone that are read."""

    name: str
    weights_sha256: str
    config: _Config = _Config()


class ManifestRecord(_Part, frozen=True, kw_only=True):
    """The labelled items, and their label scheme.

    `levels` has the name of each level's code, the lowest first. `senses` has how each concept is
    perceived, empty if unknown.
    """

    name: str
    version: str
    digest: str
    labels: str
    levels: dict[str, str]
    licence: str
    citation: str
    senses: dict[str, str] = {}

    @classmethod
    def of(cls, manifest: Manifest, labels: str, scheme: LabelScheme) -> ManifestRecord:
        """Return the record of a label set of a manifest."""
        return cls(
            name=manifest.name,
            version=manifest.version,
            digest=manifest.digest,
            labels=labels,
            levels=scheme.name_of,
            licence=manifest.licence,
            citation=manifest.citation,
            senses=scheme.senses,
        )

    @property
    def label_key(self) -> tuple[str, str]:
        """The key of these labels of these items, to compare runs."""
        return self.digest, self.labels

    @property
    def is_obygaze(self) -> bool:
        """True if the levels are ObyGaze's, as in `LabelScheme.is_obygaze`."""
        return self.levels == obygaze_scheme().name_of


class StoreRecord(_Part, frozen=True, kw_only=True):
    """The store of the features, and a digest of its content."""

    name: str
    items_digest: str
    backbone: dict[str, Any]
    preprocessing: dict[str, Any]
    precision: str
    fingerprint: str

    def __post_init__(self) -> None:
        _check(self.backbone, _Backbone, "backbone")


class Features(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A saved model's description of its features, to refuse others.

    `frames` is the array that models of sequences read instead. `missing` says how to treat clips
    that one of several stores lacks.
    """

    backbone: dict[str, Any]
    preprocessing: dict[str, Any]
    array: str
    shape: list[int]
    pooling: str | None
    frames: str | None = None
    missing: str = "drop"


class Official(_Part, frozen=True, kw_only=True):
    """The measure by which a benchmark scores its task, and the mark of such a run."""

    measure: str
    external_data: bool


class Skipped(_Part, frozen=True, kw_only=True):
    """A fit, test or model that could not be learned or tested, with the reason."""

    task: str
    fit: int
    what: str
    why: str


class LeakCount(_Part, frozen=True):
    """The numbers of clips in a fit's test set that the same fit has used, by use."""

    task: str
    fit: int
    test: str
    clips: int
    train: int
    validation: int
    otherwise: int


class Films(_Part, frozen=True, kw_only=True):
    """The films of the test clips, and the number of those that trained in the same fit.

    `titles` has the title of each tested film by id. `untested` has the title of each other film of
    the run's clips, and why it is not tested. They are other groups if clips are grouped `by`
    another column. If the protocol tests one fold, `clips` of a total `of` are tested. `unnamed`
    test clips have no film.
    """

    tested: int
    also_trained: int
    titles: dict[str, str] = {}
    untested: dict[str, str] = {}
    by: str = "film"
    clips: int = 0
    of: int = 0
    unnamed: int = 0

    @property
    def noun(self) -> str:
        """The unit that is kept together, or "clip" if no film is named."""
        return group_noun(self.by) if self.tested else "clip"

    @property
    def note(self) -> str:
        """A note for the start if not all films or clips are tested; "" if they are."""
        parts = []
        if self.clips < self.of:
            parts.append(f"{self.clips:,} of {counted(self.of, 'clip')}")
        if self.untested and self.tested:
            films = self.tested + len(self.untested)
            parts.append(f"{self.tested} of {counted(films, group_noun(self.by))}")
        total = f"tests {', and '.join(parts)}" if parts else ""
        if not self.untested or not self.tested:
            return total
        if self.tested <= MAX_FILMS_NAMED:
            return f"{total}: {', '.join(self.titles.values())}"
        reasons = [f"{title} ({reason})" for title, reason in self.untested.items()]
        return f"{total}, not {join_some(reasons, MAX_FILMS_NAMED)}"


class ModelRecord(_Part, frozen=True, kw_only=True):
    """A model of a run.

    Parameters
    ----------
    title
        What tables and pages call it.
    estimator
        The name of its estimator; empty for a model from outside.
    stores
        The names of the stores that it reads.
    variant_of
        The model that reads more stores and is otherwise the same; "" without one.
    """

    title: str
    estimator: str = ""
    stores: list[str] = []
    variant_of: str = ""


class TestSet(_Part, frozen=True, kw_only=True):
    """A test set's clips, and the scores of guessing there.

    `share` is the share of positives. `baselines` has the closed form of each way to guess.
    """

    clips: int
    positives: int | None
    classes: dict[str, int]
    share: float | None
    baselines: dict[str, Scores]


class FitScores(_Part, frozen=True, kw_only=True):
    """The mean and deviation over the fits, each scored on all its test clips.

    The paper's tables have these averages.
    """

    mean: Scores
    std: Scores


class ModelScores(_Part, frozen=True, kw_only=True):
    """A model's scores on a test set.

    Parameters
    ----------
    mean
        The mean over the groups that count, such as films. An official measure is of all clips
        together, and so are all scores where `pooled`.
    interval
        Its 95% interval, or None.
    groups
        The scores of each group that counts.
    left_out
        The groups that lack clips of a class, and do not count.
    unnamed
        How many clips are in no group, and do not count.
    pooled
        Whether fewer than two groups count, so that all clips are scored together.
    cross_validated
        Whether fits train on clips that other fits test, so that intervals are wider.
    over_fits
        The mean and deviation over the fits instead.
    fits
        Their numbers.
    by_fit
        The scores of each, in that order.
    """

    model: str
    test: str
    mean: Scores
    interval: dict[str, tuple[float, float] | None]
    groups: dict[str, Scores]
    left_out: list[str]
    unnamed: int
    pooled: bool
    cross_validated: bool
    over_fits: FitScores
    fits: list[int]
    by_fit: list[Scores]

    def __post_init__(self) -> None:
        for group, scores in self.groups.items():
            if missing := self.mean.keys() - scores.keys():
                raise ValueError(f"the group {group!r} has no score {min(missing)!r}")

    @property
    def films(self) -> int:
        """The number of groups that count; 1 if all clips are scored together."""
        return max(1, len(self.groups))


class Machine(_Part, frozen=True, kw_only=True):
    """The machine of a run."""

    system: str
    cores: int | None


class RunRecord(_Part, frozen=True, kw_only=True):
    """The content of ``run.json``.

    Parameters
    ----------
    experiment
        Every setting, as in the TOML file; URLs without secrets.
    goal, models, protocol, split
        What is learnt and tested, the models by name, and how clips are divided.
    balance
        How the training clips are balanced: ``undersample``, ``weights`` or ``none``; empty where
        the protocol fixes them.
    warnings
        What a reader must know before any score.
    join
        Which clips came together and which did not.
    leaked
        How many test clips leak in any fit; ``clips.csv`` says which.
    learned
        The tasks that models are trained on.
    tests, scores
        By test set what is in it; and by model and test set what was scored.
    fits_per_clip
        How many fits of a model test the same clip, at most.
    tasks
        What is learned or tested; see `task`.
    blank
        The tested clips whose features are zeros only.
    annotators
        By test set, the models beside each annotator; only if labels of several were merged.
    cuts
        By model, the cut that validation clips chose in each fit, if requested.
    files
        The digest of each file that the scores are of.
    """

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    experiment: Experiment
    goal: str
    models: dict[str, ModelRecord]
    protocol: str
    split: str
    warnings: list[RunWarning]
    manifest: ManifestRecord
    official: Official | None
    store: StoreRecord
    features: Features
    join: Joined
    learned: Annotated[list[str], _SOME]
    skipped: list[Skipped]
    leaked: int
    leaks: list[LeakCount]
    films: Films
    tests: dict[str, TestSet]
    fits_per_clip: int
    scores: Annotated[list[ModelScores], _SOME]
    versions: dict[str, str]
    machine: Machine
    files: dict[str, str]
    started: str
    seconds: float
    balance: str = ""
    annotators: dict[str, AnnotatorComparison] = {}
    cuts: dict[str, list[float]] = {}
    tasks: list[Task] = []
    blank: list[str] = []

    def __post_init__(self) -> None:
        _check(self.versions, _Versions, "versions")
        for name in {*self.tests, *self.learned}:
            self.task(name)

    def task(self, name: str) -> Task:
        """Return a task that was learned or tested, with the levels of its classes."""
        for task in self.tasks:
            if task.key == name:
                return task
        raise ValueError(f"unknown task {name!r}")

    def title_of(self, model: str) -> str:
        """Return the name of a model in tables and pages."""
        return self.models[model].title

    def trained_on(self, test: str) -> str:
        """Return the training task of the models that were tested on `test`."""
        is_learned = test in self.learned and len(self.learned) > 1
        return test if is_learned else self.learned[0]

    def words(self, test: str) -> dict[str, str]:
        """Return the names in sentences of a test's classes and of other levels, by key."""
        return self.task(test).words(self.manifest.levels)

    @property
    def measure(self) -> str:
        """The official measure of the run's benchmark; "" if it has none."""
        return self.official.measure if self.official else ""

    @property
    def ranking_metric(self) -> str:
        """The score of the experiment, by default that of its target, which guesses also have."""
        task = self.task(self.scores[0].test)
        return self.experiment.score or task.target.default_score(task)

    @property
    def main_metric(self) -> str:
        """The score that ranks models, and that sentences mention."""
        return self.measure or self.ranking_metric

    @property
    def headline_model(self) -> str:
        """The model of the result, which was named before the test."""
        scored = [scores.model for scores in self.scores]
        named = self.experiment.headline
        return named if named in scored else next(name for name in self.models if name in scored)

    @property
    def lacks_interval(self) -> str:
        """The reason why some scores have no interval; "" if all have one."""
        noun = group_noun(self.films.by)
        if not self.films.tested:
            return f"no {noun}s are named"
        films = [scores.films for scores in self.scores]
        if min(films) >= MIN_GROUPS:
            return ""
        subject = "the" if max(films) < MIN_GROUPS else "some"
        return f"{subject} scores are of {counted(min(films), noun)}, and {MIN_GROUPS} are needed"

    @property
    def unscored(self) -> list[str]:
        """The models whose fits were all skipped."""
        scored = {scores.model for scores in self.scores}
        return [model for model in self.models if model not in scored]

    @property
    def fit_count(self) -> int:
        """The largest number of fits of an estimator."""
        return max(len(scores.fits) for scores in self.scores)


def read_record(folder: Path) -> RunRecord:
    """Return the record of a run folder; raise `ExperimentError` if it is damaged or outdated."""
    path = folder / RECORD
    content = read_format(path, FORMAT, FORMAT_VERSION, ExperimentError, make=MAKE)
    if content["format_version"] < FORMAT_VERSION:
        raise ExperimentError(
            f"{path} has format version {content['format_version']} of an earlier obygaze, "
            f"but this version reads {FORMAT_VERSION}. Run the experiment again: {MAKE}"
        )
    return convert(content, RunRecord, path, f"run the experiment again: {MAKE}")


def _check(value: Mapping[str, Any], kind: type[_Part], key: str) -> None:
    """Raise if an object that is stored unchanged lacks a key, or has a wrong type."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        raise ValueError(f"{problem} in `{key}`") from None


def write_record(folder: Path, record: RunRecord) -> RunRecord:
    """Write ``run.json``, indented for readers, and return it as it will be read."""
    encoded = msgspec.json.encode(record)
    write_text(folder / RECORD, msgspec.json.format(encoded, indent=2).decode() + "\n")
    return msgspec.json.decode(encoded, type=RunRecord)
