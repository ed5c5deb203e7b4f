"""``run.json``: the data, settings and scores of a run, as types.

Only this module reads and writes ``run.json``. `obygaze_models.experiments.run_folder` reads and
writes the other files of a run folder.
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
IN_NO_FOLD = "not in a test fold"
MAKE = "obygaze models run EXPERIMENT.toml"

_SOME = msgspec.Meta(min_length=1)
"""A constraint: at least one element."""


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the record. Its fields are keys in the file."""


class _Versions(_Part, frozen=True, kw_only=True, rename={"scikit_learn": "scikit-learn"}):
    """The versions that a report shows."""

    obygaze: str
    scikit_learn: str
    torch: str


class _Config(_Part, frozen=True, kw_only=True):
    """The backbone settings that reports use."""

    vision_config: dict[str, Any] = {}


class _Backbone(_Part, frozen=True, kw_only=True):
    """The keys of a store's backbone that obygaze reads from ``run.json``."""

    name: str
    weights_sha256: str
    config: _Config = _Config()


class ManifestRecord(_Part, frozen=True, kw_only=True):
    """The labelled items, and their label scheme.

    `levels` maps level codes to names, lowest level first. `senses` maps concepts to how they are
    perceived. It is empty if the senses are unknown.
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
        """Return the record of a manifest and one of its label sets."""
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
        """A key for comparing runs: equal if the items and the labels are the same."""
        return self.digest, self.labels

    @property
    def is_obygaze(self) -> bool:
        """True if the levels are ObyGaze's, as in `LabelScheme.is_obygaze`."""
        return self.levels == obygaze_scheme().name_of


class StoreRecord(_Part, frozen=True, kw_only=True):
    """The feature store, and a digest of its content."""

    name: str
    items_digest: str
    backbone: dict[str, Any]
    preprocessing: dict[str, Any]
    precision: str
    fingerprint: str

    def __post_init__(self) -> None:
        _check(self.backbone, _Backbone, "backbone")


class Features(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A description of the features that a model was trained on, to reject other features.

    `frames` is the array for models that read sequences of frames.
    """

    backbone: dict[str, Any]
    preprocessing: dict[str, Any]
    array: str
    shape: list[int]
    frames: str | None = None


class Official(_Part, frozen=True, kw_only=True):
    """A benchmark's official measure, and whether the run must be marked as using external data."""

    measure: str
    external_data: bool


class Skipped(_Part, frozen=True, kw_only=True):
    """A fit, test or model that was skipped, and the reason."""

    task: str
    fit: int
    what: str
    why: str


class LeakCount(_Part, frozen=True):
    """The numbers of a fit's test clips that the same fit has used, by kind of use."""

    task: str
    fit: int
    test: str
    clips: int
    train: int
    validation: int
    otherwise: int


class Films(_Part, frozen=True, kw_only=True):
    """The films of the test clips (or other groups, if clips are grouped `by` another column).

    `tested` is the number of films, and `also_trained` the number of films with clips in training
    and in test. `titles` maps the ids of tested films to titles. `untested` maps the titles of the
    other films to the reason why they are not tested. `clips` is the number of tested clips, of a
    total of `of`. `unnamed` is the number of test clips without a film.
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
        """The unit that scores are averaged over, or "clip" if clips have no films."""
        return group_noun(self.by) if self.tested else "clip"

    @property
    def note(self) -> str:
        """A note that not all films or clips are tested; "" if all are tested."""
        parts = []
        if self.clips < self.of:
            parts.append(f"{self.clips:,} of {counted(self.of, 'clip')}")
        if self.untested and self.tested:
            films = self.tested + len(self.untested)
            parts.append(f"{self.tested} of {counted(films, group_noun(self.by))}")
        total = f"tests {', and '.join(parts)}" if parts else ""
        if not self.untested or not self.tested:
            return total
        reasons = [f"{title} ({reason})" for title, reason in self.untested.items()]
        if self.tested <= MAX_FILMS_NAMED:
            tested = ", ".join(self.titles.values())
            lacking = [text for text in reasons if IN_NO_FOLD not in text]
            return f"{total}: {tested}" + (f"; not {join_some(lacking, 1)}" if lacking else "")
        return f"{total}, not {join_some(reasons, MAX_FILMS_NAMED)}"


class ModelRecord(_Part, frozen=True, kw_only=True):
    """A model of a run.

    Parameters
    ----------
    title
        The model's name for tables and pages.
    estimator
        The name of the estimator; empty for an external model.
    stores
        The names of the stores that the model reads.
    """

    title: str
    estimator: str = ""
    stores: list[str] = []


class TestSet(_Part, frozen=True, kw_only=True):
    """The size of a test set, and the scores of guesses on it.

    `share` is the share of positives. `baselines` has the expected scores of each kind of guess.
    """

    clips: int
    positives: int | None
    classes: dict[str, int]
    share: float | None
    baselines: dict[str, Scores]


class FitScores(_Part, frozen=True, kw_only=True):
    """The mean and standard deviation of scores over fits, each scored on all its test clips.

    The paper's tables show such means.
    """

    mean: Scores
    std: Scores


class ModelScores(_Part, frozen=True, kw_only=True):
    """A model's scores on a test set.

    Parameters
    ----------
    mean
        The mean over groups, such as films. Official measures, and all scores if `pooled`, are
        computed on all clips together instead.
    interval
        The 95% interval of the mean, or None.
    groups
        The scores of each group.
    left_out
        The groups that are left out because they lack clips of a class.
    unnamed
        The number of clips that are left out because they are in no group.
    pooled
        True if all clips are scored together, because fewer than two groups can be scored.
    cross_validated
        True if fits are trained on clips that other fits test, which widens intervals.
    over_fits
        The mean and standard deviation over fits.
    fits
        The numbers of the fits.
    by_fit
        The scores of each fit, in the order of `fits`.
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
        """The number of groups that scores are averaged over; 1 if clips are scored together."""
        return max(1, len(self.groups))


class Machine(_Part, frozen=True, kw_only=True):
    """The machine that a run was made on."""

    system: str
    cores: int | None


class RunRecord(_Part, frozen=True, kw_only=True):
    """The content of ``run.json``.

    Parameters
    ----------
    experiment
        All settings, as in the TOML file. URLs are stored without secrets.
    goal, models, protocol, split
        A description of the tasks, the models by name, and how clips are divided.
    balance
        How the training clips are balanced: ``undersample``, ``weights`` or ``none``; empty if the
        protocol fixes the training clips.
    warnings
        Warnings that limit the conclusions from the scores.
    join
        The numbers of labelled and used clips, and of clips that lack a label, a fold or features.
    leaked
        The number of test clips that leak in any fit. ``clips.csv`` marks them.
    learned
        The tasks that models are trained on.
    tests, scores
        The size of each test set, and the scores of each model on each test set.
    fits_per_clip
        The largest number of fits of a model that test the same clip.
    tasks
        The tasks that are learned or tested; see `task`.
    blank
        The tested clips whose features are all zero.
    annotators
        A comparison of the models with each annotator, by test set. It is empty if labels were not
        merged from several annotators.
    cuts
        The thresholds that were chosen on validation clips in each fit, by model, if requested.
    files
        The digests of the run's CSV files.
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
        """Return a model's name for tables and pages."""
        return self.models[model].title

    def trained_on(self, test: str) -> str:
        """Return the training task of the models that were tested on `test`."""
        is_learned = test in self.learned and len(self.learned) > 1
        return test if is_learned else self.learned[0]

    def words(self, test: str) -> dict[str, str]:
        """Return the names of a test's classes and other levels for use in sentences, by key."""
        return self.task(test).words(self.manifest.levels)

    @property
    def measure(self) -> str:
        """The official measure of the run's benchmark; "" if it has none."""
        return self.official.measure if self.official else ""

    @property
    def ranking_metric(self) -> str:
        """The experiment's score, or its target's default. Guesses have this score as well."""
        task = self.task(self.scores[0].test)
        return self.experiment.score or task.target.default_score(task)

    @property
    def main_metric(self) -> str:
        """The metric that models are ranked by and that the headline mentions."""
        return self.measure or self.ranking_metric

    @property
    def headline_model(self) -> str:
        """The model that the headline is about. It is chosen before the test."""
        scored = [scores.model for scores in self.scores]
        named = self.experiment.headline
        return named if named in scored else next(name for name in self.models if name in scored)

    @property
    def lacks_interval(self) -> str:
        """The reason why some scores have no interval; "" if all have one."""
        noun = group_noun(self.films.by)
        if not self.films.tested:
            return f"no clip has a {noun}"
        if self.films.tested > 1 and all(scores.pooled for scores in self.scores):
            return f"fewer than two of {self.films.tested} {noun}s can be scored on their own"
        films = [scores.films for scores in self.scores]
        if min(films) >= MIN_GROUPS:
            return ""
        subject = "the" if max(films) < MIN_GROUPS else "some"
        return f"{subject} scores are over {counted(min(films), noun)}, but {MIN_GROUPS} are needed"

    @property
    def unscored(self) -> list[str]:
        """The models whose fits were all skipped."""
        scored = {scores.model for scores in self.scores}
        return [model for model in self.models if model not in scored]

    @property
    def fit_count(self) -> int:
        """The largest number of fits of any model."""
        return max(len(scores.fits) for scores in self.scores)


def read_record(folder: Path) -> RunRecord:
    """Read the record of a run folder; raise `ExperimentError` if it is damaged or outdated."""
    path = folder / RECORD
    content = read_format(path, FORMAT, FORMAT_VERSION, ExperimentError, make=MAKE)
    if content["format_version"] < FORMAT_VERSION:
        raise ExperimentError(
            f"{path} is from an earlier obygaze (format version {content['format_version']}, but "
            f"this version reads {FORMAT_VERSION}). Run the experiment again: {MAKE}"
        )
    return convert(content, RunRecord, path, f"run the experiment again: {MAKE}")


def _check(value: Mapping[str, Any], kind: type[_Part], key: str) -> None:
    """Raise `ValueError` if a mapping lacks a key or has a value of the wrong type."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        raise ValueError(f"{problem} in `{key}`") from None


def write_record(folder: Path, record: RunRecord) -> RunRecord:
    """Write an indented ``run.json``, and return the record as it will be read back."""
    encoded = msgspec.json.encode(record)
    write_text(folder / RECORD, msgspec.json.format(encoded, indent=2).decode() + "\n")
    return msgspec.json.decode(encoded, type=RunRecord)
